//! The commands of the NVM command set (NVM Command Set Specification, section 3).
//!
//! Reads, writes and compares take the buffer by value and move all of it. The checks below are the
//! whole price of safety on the hot path: buffer and namespace belong to the queue, the length is
//! whole blocks, the range lies in the namespace. Everything else leaves for the cold path.

use super::{Lba, MAX_BLOCKS, Namespace};
use crate::memory::DmaBuf;
use crate::queue::{BlockRequest, Core, QueuePair, Rejected, SubmitError};
use crate::spec::Sqe;
use crate::spec::command::{self, BlockCount, DSM_MAX_RANGES, DsmRange};
use crate::spec::opcode::IoOpcode;
use zerocopy::IntoBytes;

/// Options of a read or a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags(u32);

impl IoFlags {
    /// No option.
    pub const NONE: Self = Self(0);
    /// Force Unit Access: a write ends when it is on the medium (CDW12 bit 30).
    pub const FUA: Self = Self(command::CDW12_FUA);
    /// Limited Retry: the device tries less hard to read or write (CDW12 bit 31).
    pub const LIMITED_RETRY: Self = Self(command::CDW12_LIMITED_RETRY);

    /// Both these options and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// First block.
    pub lba: Lba,
    /// Number of blocks.
    pub blocks: u32,
}

impl Namespace {
    /// Reads into all of `buf`, from `lba` on.
    ///
    /// # Errors
    /// [`Rejected`] gives buffer and context back: queue full, length not whole blocks, outside the
    /// namespace, buffer or namespace of another controller.
    #[inline]
    pub fn read<T>(
        &self,
        queue: &mut QueuePair<T>,
        lba: Lba,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        self.transfer(queue, IoOpcode::READ, IoFlags::NONE, lba, buf, ctx)
    }

    /// As [`Namespace::read`], with options.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    #[inline]
    pub fn read_with<T>(
        &self,
        queue: &mut QueuePair<T>,
        lba: Lba,
        buf: DmaBuf,
        flags: IoFlags,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        self.transfer(queue, IoOpcode::READ, flags, lba, buf, ctx)
    }

    /// Writes all of `buf`, from `lba` on.
    ///
    /// What a completed write survives depends on the drive's cache: use [`IoFlags::FUA`] or
    /// [`Namespace::flush`] for what must survive a power cut.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    #[inline]
    pub fn write<T>(
        &self,
        queue: &mut QueuePair<T>,
        lba: Lba,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        self.transfer(queue, IoOpcode::WRITE, IoFlags::NONE, lba, buf, ctx)
    }

    /// As [`Namespace::write`], with options.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    #[inline]
    pub fn write_with<T>(
        &self,
        queue: &mut QueuePair<T>,
        lba: Lba,
        buf: DmaBuf,
        flags: IoFlags,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        self.transfer(queue, IoOpcode::WRITE, flags, lba, buf, ctx)
    }

    /// Compares all of `buf` with what is stored from `lba` on; a difference is the status
    /// Compare Failure.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn compare<T>(
        &self,
        queue: &mut QueuePair<T>,
        lba: Lba,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        self.transfer(queue, IoOpcode::COMPARE, IoFlags::NONE, lba, buf, ctx)
    }

    /// Makes everything that was written before and has completed survive a power cut.
    ///
    /// # Errors
    /// [`Rejected`] gives the context back: queue full, or of another controller.
    pub fn flush<T>(&self, queue: &mut QueuePair<T>, ctx: T) -> Result<(), Rejected<T>> {
        if queue.controller() != self.controller {
            return Err(Rejected::new(SubmitError::WrongController, None, ctx));
        }
        queue
            .core()
            .submit_plain(self.sqe(IoOpcode::FLUSH), None, ctx)
    }

    /// Sets `blocks` blocks from `lba` on to zero, without moving data. The device may deallocate them.
    ///
    /// # Errors
    /// As [`Namespace::flush`], or the range is empty or outside the namespace.
    pub fn write_zeroes<T>(
        &self,
        queue: &mut QueuePair<T>,
        lba: Lba,
        blocks: u64,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        if queue.controller() != self.controller {
            return Err(Rejected::new(SubmitError::WrongController, None, ctx));
        }
        if blocks == 0 || !self.contains(lba, blocks) {
            let reason = SubmitError::OutOfRange {
                lba: lba.0,
                blocks,
                capacity: self.blocks,
            };
            return Err(Rejected::new(reason, None, ctx));
        }
        let template = Sqe {
            cdw12: command::CDW12_DEALLOCATE,
            ..self.sqe(IoOpcode::WRITE_ZEROES)
        };
        let request = BlockRequest {
            template,
            lba: lba.0,
            blocks,
            block_shift: self.block_shift,
            max_blocks: self.max_blocks_without_data,
            boundary: 0,
        };
        queue.core().submit_split(request, None, ctx)
    }

    /// Tells the device that the blocks of `ranges` are not needed (Dataset Management, Deallocate).
    /// What they read afterwards is the device's choice among old, zero and ones.
    ///
    /// `buf` carries the list to the device: 16 bytes a range.
    ///
    /// # Errors
    /// [`Rejected`] gives buffer and context back: no range or more than 256, a buffer too
    /// small, a range outside the namespace, queue full, or of another controller.
    pub fn deallocate<T>(
        &self,
        queue: &mut QueuePair<T>,
        ranges: &[BlockRange],
        mut buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        if let Err(reason) = self.list_ranges(queue, ranges, &mut buf) {
            return Err(Rejected::new(reason, Some(buf), ctx));
        }
        // At most 256, and 0's based.
        let count = u32::try_from(ranges.len() - 1).unwrap_or_default();
        let sqe = Sqe {
            cdw10: count,
            cdw11: command::DSM_DEALLOCATE,
            ..self.sqe(IoOpcode::DATASET_MANAGEMENT)
        };
        queue.core().submit_data(sqe, buf, ctx)
    }

    /// Checks `ranges` and writes them to `buf` as the device reads them.
    fn list_ranges<T>(
        &self,
        queue: &QueuePair<T>,
        ranges: &[BlockRange],
        buf: &mut DmaBuf,
    ) -> Result<(), SubmitError> {
        if queue.controller() != self.controller {
            return Err(SubmitError::WrongController);
        }
        queue.check_buffer(buf)?;
        let max = DSM_MAX_RANGES.min(buf.len() / size_of::<DsmRange>());
        if ranges.is_empty() || ranges.len() > max {
            return Err(SubmitError::Ranges {
                ranges: ranges.len(),
                max,
            });
        }
        for (index, range) in ranges.iter().enumerate() {
            let (lba, blocks) = (range.lba, u64::from(range.blocks));
            let outside = SubmitError::OutOfRange {
                lba: lba.0,
                blocks,
                capacity: self.blocks,
            };
            if !self.contains(lba, blocks) {
                return Err(outside);
            }
            let entry = DsmRange {
                attributes: 0.into(),
                blocks: range.blocks.into(),
                slba: lba.0.into(),
            };
            let at = index * size_of::<DsmRange>();
            buf.write_at(at, entry.as_bytes()).map_err(|_| outside)?;
        }
        Ok(())
    }

    /// Whether `blocks` blocks from `lba` on lie in the namespace.
    #[inline(always)]
    fn contains(&self, lba: Lba, blocks: u64) -> bool {
        lba.0 < self.blocks && blocks <= self.blocks - lba.0
    }

    /// A command that moves all of `buf`. Everything but the usual leaves by one door, so that the
    /// compiler keeps "it was taken" in a register.
    #[inline(always)]
    fn transfer<T>(
        &self,
        queue: &mut QueuePair<T>,
        opcode: IoOpcode,
        flags: IoFlags,
        lba: Lba,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        let core = queue.core();
        let len = buf.len32();
        let blocks = len >> self.block_shift;
        let (mut buf, mut ctx) = (buf, ctx);
        if self.is_at_home(core, &buf)
            && self.is_whole(lba, len)
            && self.is_one_command(lba, len, core.max_transfer())
        {
            // At most MAX_TRANSFER bytes, which is 65,536 of the smallest blocks.
            #[expect(clippy::cast_possible_truncation, reason = "1 to 65,536, 0's based")]
            let count = BlockCount::from_nlb((blocks - 1) as u16);
            let sqe = self.block_command(opcode, flags).with_blocks(lba.0, count);
            match core.try_data(sqe, buf, ctx) {
                Ok(()) => return Ok(()),
                Err(back) => (buf, ctx) = back,
            }
        }
        self.unusual(queue, self.block_command(opcode, flags), lba, buf, ctx)
    }

    /// Whether buffer, queue and namespace belong together.
    #[inline(always)]
    fn is_at_home<T>(&self, core: &Core<T>, buf: &DmaBuf) -> bool {
        buf.domain() == core.domain() && self.controller == core.controller()
    }

    /// Whether `len` bytes at `lba` are whole blocks of the namespace.
    #[inline(always)]
    fn is_whole(&self, lba: Lba, len: u32) -> bool {
        len & (self.block_size() - 1) == 0 && self.contains(lba, (len >> self.block_shift).into())
    }

    /// Whether whole blocks of the namespace are within what one command may move. They are one block
    /// at least, since a buffer is never empty.
    #[inline(always)]
    fn is_one_command(&self, lba: Lba, len: u32, max_transfer: u32) -> bool {
        let blocks = u64::from(len >> self.block_shift);
        let last = lba.0.wrapping_add(blocks).wrapping_sub(1);
        len <= max_transfer && (lba.0 ^ last) & self.boundary_mask == 0
    }

    #[inline(always)]
    fn block_command(&self, opcode: IoOpcode, flags: IoFlags) -> Sqe {
        Sqe {
            cdw12: flags.0,
            ..self.sqe(opcode)
        }
    }

    /// A transfer that is not one command that fits: it is split, or refused.
    #[cold]
    #[inline(never)]
    fn unusual<T>(
        &self,
        queue: &mut QueuePair<T>,
        template: Sqe,
        lba: Lba,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        let core = queue.core();
        if !self.is_at_home(core, &buf) {
            return Err(self.misplaced(core.domain() == buf.domain(), buf, ctx));
        }
        let (len, max) = (buf.len32(), core.max_transfer());
        if !self.is_whole(lba, len) {
            return Err(self.misfit(lba, buf, ctx));
        }
        if self.is_one_command(lba, len, max) {
            return Err(Rejected::new(SubmitError::Full, Some(buf), ctx));
        }
        let request = BlockRequest {
            template,
            lba: lba.0,
            blocks: u64::from(len >> self.block_shift),
            block_shift: self.block_shift,
            max_blocks: (max >> self.block_shift).min(MAX_BLOCKS_U32),
            boundary: self.boundary,
        };
        if request.max_blocks == 0 {
            let reason = SubmitError::TooLong { len, max };
            return Err(Rejected::new(reason, Some(buf), ctx));
        }
        core.submit_split(request, Some(buf), ctx)
    }

    fn misplaced<T>(&self, same_domain: bool, buf: DmaBuf, ctx: T) -> Rejected<T> {
        let reason = if same_domain {
            SubmitError::WrongController
        } else {
            SubmitError::WrongDomain
        };
        Rejected::new(reason, Some(buf), ctx)
    }

    fn misfit<T>(&self, lba: Lba, buf: DmaBuf, ctx: T) -> Rejected<T> {
        let (len, block) = (buf.len32(), self.block_size());
        let reason = if len % block != 0 {
            SubmitError::Length { len, block }
        } else {
            let blocks = u64::from(len / block);
            SubmitError::OutOfRange {
                lba: lba.0,
                blocks,
                capacity: self.blocks,
            }
        };
        Rejected::new(reason, Some(buf), ctx)
    }
}

const MAX_BLOCKS_U32: u32 = 1 << 16;
const _: () = assert!(MAX_BLOCKS_U32 as u64 == MAX_BLOCKS);
