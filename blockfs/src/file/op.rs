//! Operations: requests that take more than one command, or something from the volume's state.

use super::read::Read;
use super::script::{Io, Returned, Script};
use super::truncate::Change;
use super::write::Write;
use super::{Done, Tag};
use crate::device::BlockDevice;
use crate::format::BLOCK_BYTES;
use crate::fs::core::{Core, Shared, SyncPoint};
use crate::fs::{File, FsError};
use crate::grace::Member;
use crate::iostat::IoStat;
use crate::journal::{MetaTag, Txid};
use crate::space::Token;
use driver::memory::DmaBuf;
use driver::spec::Status;
use std::sync::atomic::Ordering;

/// What an operation needs to go on.
pub(super) struct At<'a, Q, D, S> {
    pub(super) core: &'a mut Core<D>,
    pub(super) shared: &'a Shared<D>,
    pub(super) device: &'a mut Q,
    pub(super) stat: &'a S,
    pub(super) lba_shift: u32,
    pub(super) member: &'a mut Member,
    pub(super) slot: u32,
    /// Whether a command was submitted, so that the device has to be told.
    pub(super) submitted: bool,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Request {
    Read(Read),
    Write(Write),
    Change(Change),
    Sync(Sync),
    Trim(Trim),
}

impl Request {
    pub(super) const fn sync(data_only: bool) -> Self {
        Self::Sync(Sync {
            data_only,
            point: None,
        })
    }

    pub(super) const fn trim() -> Self {
        Self::Trim(Trim {
            from: 0,
            bytes: 0,
            taken: None,
        })
    }
}

/// An operation under way.
#[derive(Debug)]
pub(super) struct Op<T> {
    ctx: T,
    file: Option<File>,
    request: Request,
    /// The caller's buffer while no script has it.
    buf: Option<DmaBuf>,
    /// What its last command returned.
    returned: Option<Returned>,
}

/// What an operation works with while it goes on.
pub(super) struct Hands<'a> {
    pub(super) buf: &'a mut Option<DmaBuf>,
    pub(super) returned: &'a mut Option<Returned>,
}

/// The end of an operation, or `None` while it waits.
pub(super) type Outcome = Option<Result<u64, FsError>>;

impl<T> Op<T> {
    pub(super) const fn new(
        file: Option<File>,
        request: Request,
        buf: Option<DmaBuf>,
        ctx: T,
    ) -> Self {
        Self {
            ctx,
            file,
            request,
            buf,
            returned: None,
        }
    }

    /// Goes on as far as it goes.
    pub(super) fn go_on<Q, D, S>(&mut self, at: &mut At<'_, Q, D, S>) -> Outcome
    where
        Q: BlockDevice<Tag<T, S>>,
        D: BlockDevice<MetaTag>,
        S: IoStat,
    {
        let mut hands = Hands {
            buf: &mut self.buf,
            returned: &mut self.returned,
        };
        let file = self.file.as_ref();
        match (&mut self.request, file) {
            (Request::Read(read), _) => read.go_on(at, &mut hands),
            (Request::Write(write), Some(file)) => write.go_on(file, at, &mut hands),
            (Request::Change(change), Some(file)) => change.go_on(file, at, &mut hands),
            (Request::Sync(sync), file) => sync.go_on(file, at),
            (Request::Trim(trim), _) => trim.go_on(at, &mut hands),
            (Request::Write(_) | Request::Change(_), None) => {
                Some(Err(FsError::Access("anything: there is no file")))
            }
        }
    }

    pub(super) fn finish(self, result: Result<u64, FsError>) -> Done<T> {
        Done {
            ctx: self.ctx,
            buf: self.buf,
            result,
        }
    }

    /// The queue is gone, and with it every command: gives back what others wait for.
    fn abandon<D: BlockDevice<MetaTag>>(self, core: &mut Core<D>) {
        match (self.request, self.file) {
            (Request::Write(mut write), Some(file)) => write.give_up(&file, core),
            (Request::Change(mut change), Some(file)) => change.give_up(&file, core),
            (Request::Trim(trim), _) => {
                if let Some((_, token)) = trim.taken {
                    let _ = core.space.release(token);
                }
            }
            _ => {}
        }
    }
}

/// A wait for what was changed to be durable.
#[derive(Debug)]
pub(super) struct Sync {
    data_only: bool,
    point: Option<SyncPoint>,
}

impl Sync {
    fn go_on<Q, D, S>(&mut self, file: Option<&File>, at: &mut At<'_, Q, D, S>) -> Outcome
    where
        D: BlockDevice<MetaTag>,
    {
        if at.shared.read_only {
            return Some(Ok(0));
        }
        let point = match self.point {
            Some(point) => point,
            None => {
                let txid = match file.filter(|_| self.data_only) {
                    Some(file) => Txid(file.inode.map_txid.load(Ordering::Acquire)),
                    None => at.core.journal.last(),
                };
                match at.core.begin_sync(txid) {
                    Ok(point) => *self.point.insert(point),
                    Err(error) => return Some(Err(error)),
                }
            }
        };
        match at.core.synced(point) {
            Ok(true) => Some(Ok(0)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Discards of all that is free.
#[derive(Debug)]
pub(super) struct Trim {
    /// The next block to look at.
    from: u64,
    bytes: u64,
    taken: Option<(Script, Token)>,
}

/// Blocks that one discard names at most: nobody can have them meanwhile.
const DISCARD_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;

impl Trim {
    fn go_on<T, Q, D, S>(&mut self, at: &mut At<'_, Q, D, S>, hands: &mut Hands<'_>) -> Outcome
    where
        Q: BlockDevice<Tag<T, S>>,
        D: BlockDevice<MetaTag>,
        S: IoStat,
    {
        if at.shared.read_only {
            return Some(Err(FsError::ReadOnly));
        }
        if !at.shared.limits.discard {
            return Some(Ok(0));
        }
        loop {
            if let Some((script, _)) = &mut self.taken {
                let result = script.go_on(at, hands.returned)?;
                if let Some((_, token)) = self.taken.take() {
                    // The token is this volume's.
                    let _ = at.core.space.release(token);
                }
                if let Err(error) = result {
                    return Some(Err(error));
                }
            }
            let space = &mut at.core.space;
            let Some((run, token)) = space.take_for_discard(self.from, 1, DISCARD_BLOCKS) else {
                return Some(Ok(self.bytes));
            };
            self.from = run.end();
            self.bytes += run.blocks * BLOCK_BYTES;
            let per_block = BLOCK_BYTES >> at.lba_shift;
            let io = Io::Discard {
                lba: run.start * per_block,
                blocks: run.blocks * per_block,
            };
            self.taken = Some((Script::new([io], None), token));
        }
    }
}

/// The operations of a queue.
#[derive(Debug)]
pub(super) struct Slots<T> {
    ops: Vec<Option<Op<T>>>,
    used: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            ops: Vec::new(),
            used: 0,
        }
    }
}

impl<T> Slots<T> {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.used
    }

    /// Slots, used and not.
    pub(super) fn capacity(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn insert(&mut self, op: Op<T>) {
        self.used += 1;
        match self.ops.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(op),
            None => self.ops.push(Some(op)),
        }
    }

    /// A command of an operation has ended.
    #[cold]
    pub(super) fn part_ended(&mut self, slot: u32, buf: Option<DmaBuf>, status: Status) {
        if let Some(Some(op)) = self.ops.get_mut(slot as usize) {
            op.returned = Some((buf, status));
        }
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Op<T>> {
        self.ops.get_mut(slot)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Op<T>> {
        let op = self.ops.get_mut(slot)?.take();
        self.used -= usize::from(op.is_some());
        op
    }

    /// The queue is gone.
    pub(super) fn abandon<D: BlockDevice<MetaTag>>(&mut self, core: &mut Core<D>) {
        for op in self.ops.drain(..).flatten() {
            op.abandon(core);
        }
        self.used = 0;
    }
}
