//! Requests that take several commands.
//!
//! A request is split where it exceeds what one command may move, and at the namespace's optimal
//! boundary. Its buffer and context stay in one slot, the owner; its parts use free slots, the owner's
//! among them, and each part that ends starts the next one, so that a request of any length runs in a
//! queue of any size and nothing is allocated. The first failure wins: no further part is started, and
//! the request ends when all that were started have ended.

use super::core::Core;
use super::request::{Completion, Rejected, SubmitError};
use super::ring::Completed;
use crate::memory::DmaBuf;
use crate::spec::command::BlockCount;
use crate::spec::{Sqe, Status};

/// A run of blocks for one opcode, as long as the caller wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest {
    /// The command with opcode, namespace and flags; start and count are filled in per part.
    pub(crate) template: Sqe,
    /// First block of what is left.
    pub(crate) lba: u64,
    /// Blocks left.
    pub(crate) blocks: u64,
    /// Size of a block, as a shift.
    pub(crate) block_shift: u32,
    /// Blocks that one command may have, 1 to 65,536.
    pub(crate) max_blocks: u32,
    /// Parts do not cross multiples of this many blocks; 0 where there is no such boundary.
    pub(crate) boundary: u32,
}

impl BlockRequest {
    /// Cuts the next part off the front: its first block and its length in blocks.
    fn next_part(&mut self) -> (u64, BlockCount) {
        let lba = self.lba;
        let mut blocks = self.blocks.min(u64::from(self.max_blocks.max(1)));
        if self.boundary != 0 {
            let boundary = u64::from(self.boundary);
            blocks = blocks.min(boundary - lba % boundary);
        }
        self.lba = lba.saturating_add(blocks);
        self.blocks -= blocks;
        let count = u32::try_from(blocks).ok().and_then(BlockCount::new);
        // 1 to `max_blocks`, which is at most what the wire can say.
        (lba, count.unwrap_or(BlockCount::ONE))
    }
}

/// The state of one request that takes several commands, kept by its owner's index.
#[derive(Clone, Copy, Debug)]
struct Split {
    left: BlockRequest,
    /// Bytes of the buffer that parts have been started for.
    offset: u64,
    /// Parts outstanding.
    outstanding: u32,
    /// The first failure.
    status: Status,
}

/// All split requests of one queue.
#[derive(Debug)]
pub(super) struct Splits {
    /// One place for each slot that may be an owner.
    requests: Box<[Option<Split>]>,
    /// The owner of the part that a slot runs.
    owners: Box<[u16]>,
}

impl Splits {
    pub(super) fn new(slots: u16) -> Self {
        let slots = usize::from(slots);
        Self {
            requests: vec![None; slots].into(),
            owners: vec![0; slots].into(),
        }
    }
}

impl<T> Core<T> {
    /// Starts a request that may take several commands.
    #[cold]
    #[inline(never)]
    pub(crate) fn submit_split(
        &mut self,
        request: BlockRequest,
        buf: Option<DmaBuf>,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        let owner = match self.slots.insert_owner(buf, ctx) {
            Ok(owner) => owner,
            Err(held) => return Err(Rejected::new(SubmitError::Full, held.buf, held.ctx)),
        };
        let status = Status::SUCCESS;
        self.splits.requests[owner] = Some(Split {
            left: request,
            offset: 0,
            outstanding: 0,
            status,
        });
        let mut slot = Some(owner);
        while let Some(index) = slot {
            self.start_part(owner, index);
            let left = self.splits.requests[owner].is_some_and(|split| split.left.blocks > 0);
            slot = if left {
                self.slots.acquire_part()
            } else {
                None
            };
        }
        Ok(())
    }

    /// Starts the next part of `owner`'s request in the idle slot `index`.
    fn start_part(&mut self, owner: usize, index: usize) {
        let iova = self.slots.owner_iova(owner);
        let Some(split) = &mut self.splits.requests[owner] else {
            return;
        };
        let (lba, blocks) = split.left.next_part();
        let bytes = u64::from(blocks.get()) << split.left.block_shift;
        let mut sqe = split.left.template.with_blocks(lba, blocks);
        // An index is below the queue's size, which is 16 bits wide.
        self.splits.owners[index] = u16::try_from(owner).unwrap_or_default();
        if let Some(iova) = iova {
            let len = u32::try_from(bytes).unwrap_or(u32::MAX);
            let slot = u16::try_from(index).unwrap_or_default();
            (sqe.prp1, sqe.prp2) = self.prps.describe(slot, iova + split.offset, len);
        }
        split.offset += bytes;
        split.outstanding += 1;
        sqe.cid = self.slots.start_part(index);
        self.sq.push(sqe);
    }

    /// Ends the part outstanding under `cid`; gives the completion of a request that ended with it.
    #[cold]
    #[inline(never)]
    pub(super) fn end_part(&mut self, cid: u16, done: Completed) -> Option<Completion<T>> {
        let index = self.slots.end_part(cid);
        let owner = usize::from(self.splits.owners[index]);
        let split = self.splits.requests[owner].as_mut()?;
        split.outstanding -= 1;
        if split.status.is_success() && !done.status().is_success() {
            split.status = done.status();
            split.left.blocks = 0;
        }
        let (left, outstanding, status) = (split.left.blocks, split.outstanding, split.status);
        if left > 0 {
            self.start_part(owner, index);
            return None;
        }
        if index != owner {
            self.slots.release_part(index);
        }
        if outstanding > 0 {
            return None;
        }
        self.splits.requests[owner] = None;
        let held = self.slots.take_owner(owner)?;
        Some(Completion {
            ctx: held.ctx,
            buf: held.buf,
            status,
            result: done.result(),
        })
    }
}
