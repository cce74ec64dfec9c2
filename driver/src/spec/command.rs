//! Builders for the commands that the driver sends: everything but identifier and data pointer.
//!
//! Counts that the wire holds less one are taken as counts here, and types keep zero out.

use super::Sqe;
use super::feature::{FeatureId, QueueCounts, Select};
use super::identify::Cns;
use super::log::LogId;
use super::opcode::{AdminOpcode, IoOpcode};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// CDW12 of the NVM commands: Force Unit Access.
pub const CDW12_FUA: u32 = 1 << 30;
/// CDW12 of the NVM commands: Limited Retry.
pub const CDW12_LIMITED_RETRY: u32 = 1 << 31;
/// CDW12 of Write Zeroes: Deallocate.
pub const CDW12_DEALLOCATE: u32 = 1 << 25;
/// CDW11 of Dataset Management: Attribute, Deallocate.
pub const DSM_DEALLOCATE: u32 = 1 << 2;
/// CDW10 of Set Features: Save.
pub const FEATURE_SAVE: u32 = 1 << 31;
/// CDW11 of Create I/O queue: Physically Contiguous.
pub const QUEUE_CONTIGUOUS: u32 = 1 << 0;
/// CDW11 of Create I/O Completion Queue: Interrupts Enabled.
pub const QUEUE_INTERRUPTS: u32 = 1 << 1;
/// The most ranges that one Dataset Management command carries.
pub const DSM_MAX_RANGES: usize = 256;

const fn admin(opcode: AdminOpcode) -> Sqe {
    io(IoOpcode(opcode.0), 0)
}

const fn io(opcode: IoOpcode, nsid: u32) -> Sqe {
    Sqe {
        opcode: opcode.0,
        flags: 0,
        cid: 0,
        nsid,
        cdw2: 0,
        cdw3: 0,
        mptr: 0,
        prp1: 0,
        prp2: 0,
        cdw10: 0,
        cdw11: 0,
        cdw12: 0,
        cdw13: 0,
        cdw14: 0,
        cdw15: 0,
    }
}

/// Identify: returns 4096 bytes.
#[must_use]
pub const fn identify(cns: Cns, nsid: u32) -> Sqe {
    let mut sqe = admin(AdminOpcode::IDENTIFY);
    sqe.nsid = nsid;
    sqe.cdw10 = cns.0 as u32;
    sqe
}

const fn queue_dword(qid: u16, entries: NonZeroU16) -> u32 {
    qid as u32 | (entries.get() as u32 - 1) << 16
}

/// Create I/O Completion Queue, physically contiguous at `base`, without interrupts.
#[must_use]
pub const fn create_io_cq(qid: u16, entries: NonZeroU16, base: u64) -> Sqe {
    let mut sqe = admin(AdminOpcode::CREATE_IO_CQ);
    sqe.prp1 = base;
    sqe.cdw10 = queue_dword(qid, entries);
    sqe.cdw11 = QUEUE_CONTIGUOUS;
    sqe
}

/// Create I/O Submission Queue, physically contiguous at `base`, that completes to queue `cqid`.
#[must_use]
pub const fn create_io_sq(qid: u16, entries: NonZeroU16, base: u64, cqid: u16) -> Sqe {
    let mut sqe = admin(AdminOpcode::CREATE_IO_SQ);
    sqe.prp1 = base;
    sqe.cdw10 = queue_dword(qid, entries);
    sqe.cdw11 = QUEUE_CONTIGUOUS | (cqid as u32) << 16;
    sqe
}

/// Delete I/O Submission Queue.
#[must_use]
pub const fn delete_io_sq(qid: u16) -> Sqe {
    let mut sqe = admin(AdminOpcode::DELETE_IO_SQ);
    sqe.cdw10 = qid as u32;
    sqe
}

/// Delete I/O Completion Queue.
#[must_use]
pub const fn delete_io_cq(qid: u16) -> Sqe {
    let mut sqe = admin(AdminOpcode::DELETE_IO_CQ);
    sqe.cdw10 = qid as u32;
    sqe
}

/// Set Features of a feature whose value fits dword 11; not saved across resets.
#[must_use]
pub const fn set_features(feature: FeatureId, value: u32) -> Sqe {
    let mut sqe = admin(AdminOpcode::SET_FEATURES);
    sqe.cdw10 = feature.0 as u32;
    sqe.cdw11 = value;
    sqe
}

/// Get Features: the value comes in dword 0 of the completion.
#[must_use]
pub const fn get_features(feature: FeatureId, select: Select) -> Sqe {
    let mut sqe = admin(AdminOpcode::GET_FEATURES);
    sqe.cdw10 = feature.0 as u32 | (select.0 as u32 & 7) << 8;
    sqe
}

/// Set Features, Number of Queues: asks for `pairs` I/O queues of each kind. The completion's dword
/// 0 holds the grant ([`QueueCounts`]), which may be smaller or larger.
#[must_use]
pub const fn set_queue_count(pairs: NonZeroU16) -> Sqe {
    let less_one = pairs.get() - 1;
    let counts = QueueCounts::new()
        .with_submission(less_one)
        .with_completion(less_one);
    set_features(FeatureId::NUMBER_OF_QUEUES, counts.into_bits())
}

/// Set Features, Volatile Write Cache.
#[must_use]
pub const fn set_write_cache(enabled: bool) -> Sqe {
    set_features(FeatureId::VOLATILE_WRITE_CACHE, enabled as u32)
}

/// Get Log Page: `dwords` double words from byte `offset` (a multiple of four) on.
#[must_use]
pub const fn get_log_page(log: LogId, nsid: u32, dwords: NonZeroU32, offset: u64) -> Sqe {
    let less_one = dwords.get() - 1;
    let mut sqe = admin(AdminOpcode::GET_LOG_PAGE);
    sqe.nsid = nsid;
    sqe.cdw10 = log.0 as u32 | less_one << 16;
    sqe.cdw11 = less_one >> 16;
    sqe.cdw12 = low(offset);
    sqe.cdw13 = high(offset);
    sqe
}

/// Abort the command `cid` of submission queue `sqid`.
#[must_use]
pub const fn abort(sqid: u16, cid: u16) -> Sqe {
    let mut sqe = admin(AdminOpcode::ABORT);
    sqe.cdw10 = sqid as u32 | (cid as u32) << 16;
    sqe
}

/// Asynchronous Event Request: completes when something happens.
#[must_use]
pub const fn async_event_request() -> Sqe {
    admin(AdminOpcode::ASYNC_EVENT_REQUEST)
}

const fn low(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

const fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

/// Blocks of an NVM command: the first LBA and how many, which the wire holds less one in 16 bits.
#[inline]
const fn blocks(opcode: IoOpcode, nsid: u32, slba: u64, count: BlockCount, cdw12: u32) -> Sqe {
    let mut sqe = io(opcode, nsid);
    sqe.cdw10 = low(slba);
    sqe.cdw11 = high(slba);
    sqe.cdw12 = count.0 as u32 | cdw12;
    sqe
}

/// The length of one NVM command: 1 to 65536 logical blocks. Held less one, as on the wire (NLB).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockCount(u16);

impl BlockCount {
    /// One block.
    pub const ONE: Self = Self(0);
    /// The most that the wire can say.
    pub const MAX: Self = Self(u16::MAX);

    /// `blocks` logical blocks. `None`: zero, or more than 65536.
    #[inline]
    #[must_use]
    pub const fn new(blocks: u32) -> Option<Self> {
        match blocks.checked_sub(1) {
            #[expect(clippy::cast_possible_truncation, reason = "checked by the guard")]
            Some(nlb) if nlb <= u16::MAX as u32 => Some(Self(nlb as u16)),
            _ => None,
        }
    }

    /// From NLB, the count less one.
    #[inline]
    #[must_use]
    pub const fn from_nlb(nlb: u16) -> Self {
        Self(nlb)
    }

    /// NLB: the count less one.
    #[inline]
    #[must_use]
    pub const fn nlb(self) -> u16 {
        self.0
    }

    /// The number of blocks.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 as u32 + 1
    }
}

/// Read.
#[inline]
#[must_use]
pub const fn read(nsid: u32, slba: u64, count: BlockCount) -> Sqe {
    blocks(IoOpcode::READ, nsid, slba, count, 0)
}

/// Write; with `fua`, completes only when the data are on non-volatile media.
#[inline]
#[must_use]
pub const fn write(nsid: u32, slba: u64, count: BlockCount, fua: bool) -> Sqe {
    blocks(
        IoOpcode::WRITE,
        nsid,
        slba,
        count,
        if fua { CDW12_FUA } else { 0 },
    )
}

/// Compare the blocks with the data sent; a difference ends it with
/// [`Status::COMPARE_FAILURE`](super::Status::COMPARE_FAILURE).
#[inline]
#[must_use]
pub const fn compare(nsid: u32, slba: u64, count: BlockCount) -> Sqe {
    blocks(IoOpcode::COMPARE, nsid, slba, count, 0)
}

/// Write Zeroes; with `deallocate`, the device may deallocate the blocks if they then read as
/// zeros.
#[inline]
#[must_use]
pub const fn write_zeroes(nsid: u32, slba: u64, count: BlockCount, deallocate: bool) -> Sqe {
    let cdw12 = if deallocate { CDW12_DEALLOCATE } else { 0 };
    blocks(IoOpcode::WRITE_ZEROES, nsid, slba, count, cdw12)
}

/// Flush: what was written and completed before is on non-volatile media when this completes.
#[inline]
#[must_use]
pub const fn flush(nsid: u32) -> Sqe {
    io(IoOpcode::FLUSH, nsid)
}

/// Dataset Management, Deallocate, of `ranges` ranges; the data buffer holds as many [`DsmRange`].
#[must_use]
pub const fn deallocate(nsid: u32, ranges: DsmCount) -> Sqe {
    let mut sqe = io(IoOpcode::DATASET_MANAGEMENT, nsid);
    sqe.cdw10 = ranges.0 as u32;
    sqe.cdw11 = DSM_DEALLOCATE;
    sqe
}

/// How many ranges a Dataset Management command carries: 1 to 256. Held less one (NR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DsmCount(u8);

impl DsmCount {
    /// 256 ranges.
    pub const MAX: Self = Self(u8::MAX);

    /// `ranges` ranges, up to 255.
    #[must_use]
    pub const fn new(ranges: NonZeroU8) -> Self {
        Self(ranges.get() - 1)
    }

    /// `ranges` ranges. `None`: zero, or more than 256.
    #[must_use]
    pub fn from_len(ranges: usize) -> Option<Self> {
        u8::try_from(ranges.checked_sub(1)?).ok().map(Self)
    }

    /// The number of ranges.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize + 1
    }
}

/// A range of a Dataset Management command, 16 bytes ("Range Definition").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context Attributes: hints about later access.
    pub attributes: U32,
    /// Length in logical blocks.
    pub blocks: U32,
    /// Starting LBA.
    pub slba: U64,
}

const _: () = assert!(size_of::<DsmRange>() == 16);
const _: () = assert!(std::mem::offset_of!(DsmRange, slba) == 8);

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts are put on the wire less one, at the dwords of the specification.
    #[test]
    fn counts_on_the_wire() {
        let sqe = read(3, 0x1_0000_0002, BlockCount::new(65_536).unwrap());
        assert_eq!((sqe.opcode, sqe.nsid), (2, 3));
        assert_eq!((sqe.cdw10, sqe.cdw11, sqe.cdw12), (2, 1, 0xffff));
        assert_eq!(sqe.slba(), 0x1_0000_0002);
        assert_eq!(write(1, 0, BlockCount::ONE, true).cdw12, 1 << 30);
        assert_eq!(write_zeroes(1, 0, BlockCount::ONE, true).cdw12, 1 << 25);
        assert_eq!((BlockCount::new(0), BlockCount::new(65_537)), (None, None));
        assert_eq!(deallocate(1, DsmCount::from_len(256).unwrap()).cdw10, 255);
        assert_eq!(
            (DsmCount::from_len(0), DsmCount::from_len(257)),
            (None, None)
        );
    }

    /// Queue commands carry identifier, size less one and flags where the specification puts them.
    #[test]
    fn queue_commands() {
        let entries = NonZeroU16::new(128).unwrap();
        let cq = create_io_cq(2, entries, 0x4000);
        assert_eq!(
            (cq.opcode, cq.prp1, cq.cdw10, cq.cdw11),
            (5, 0x4000, 0x007f_0002, 1)
        );
        let sq = create_io_sq(2, entries, 0x8000, 7);
        assert_eq!(
            (sq.opcode, sq.cdw10, sq.cdw11),
            (1, 0x007f_0002, 0x0007_0001)
        );
        assert_eq!(
            set_queue_count(NonZeroU16::new(4).unwrap()).cdw11,
            0x0003_0003
        );
    }

    /// A log page's length is split over two dwords, its offset over two more.
    #[test]
    fn log_page_lengths() {
        let dwords = NonZeroU32::new(0x0002_0000).unwrap();
        let sqe = get_log_page(LogId::ERROR, u32::MAX, dwords, 0x1_0000_0040);
        assert_eq!((sqe.cdw10, sqe.cdw11), (0xffff_0001, 1));
        assert_eq!((sqe.cdw12, sqe.cdw13), (0x40, 1));
    }
}
