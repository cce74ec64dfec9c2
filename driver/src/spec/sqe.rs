//! The submission queue entry.

use super::command::BlockCount;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A submission queue entry: 64 bytes ("Common Command Format" of the base specification).
///
/// One entry fills one cache line, so that writing it in place touches no other entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(64))]
pub struct Sqe {
    /// OPC: see [`opcode`](super::opcode).
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6; zero: not fused, PRPs.
    pub flags: u8,
    /// CID: the identifier that the completion will carry.
    pub cid: u16,
    /// NSID: the namespace; zero where a command uses none.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// MPTR: address of the metadata.
    pub mptr: u64,
    /// PRP entry 1 of the data pointer.
    pub prp1: u64,
    /// PRP entry 2 of the data pointer: the second page, or the PRP list.
    pub prp2: u64,
    /// Command dword 10.
    pub cdw10: u32,
    /// Command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14.
    pub cdw14: u32,
    /// Command dword 15.
    pub cdw15: u32,
}

impl Sqe {
    /// log2 of the size: what CC.IOSQES asks for.
    pub const SIZE_LOG2: u8 = 6;
    /// The bits of `flags` that select SGLs instead of PRPs (PSDT).
    pub const FLAGS_PSDT: u8 = 0b1100_0000;
    /// The bits of `flags` that fuse two commands (FUSE).
    pub const FLAGS_FUSE: u8 = 0b0000_0011;

    /// The starting LBA of a command that has one: dwords 10 and 11.
    #[inline]
    #[must_use]
    pub const fn slba(&self) -> u64 {
        self.cdw10 as u64 | (self.cdw11 as u64) << 32
    }

    /// This entry for the blocks from `slba` on: dwords 10 and 11 and the low half of dword 12,
    /// where the commands of the NVM command set have them. The flags in dword 12 stay.
    #[inline]
    #[must_use]
    pub const fn with_blocks(mut self, slba: u64, count: BlockCount) -> Self {
        self.cdw10 = (slba & 0xffff_ffff) as u32;
        self.cdw11 = (slba >> 32) as u32;
        self.cdw12 = self.cdw12 & 0xffff_0000 | count.nlb() as u32;
        self
    }

    /// This entry with the data pointer set.
    #[inline]
    #[must_use]
    pub const fn with_prps(mut self, prp1: u64, prp2: u64) -> Self {
        self.prp1 = prp1;
        self.prp2 = prp2;
        self
    }
}

const _: () = assert!(size_of::<Sqe>() == 64);
const _: () = assert!(size_of::<Sqe>() == 1 << Sqe::SIZE_LOG2);
const _: () = assert!(std::mem::offset_of!(Sqe, cid) == 2);
const _: () = assert!(std::mem::offset_of!(Sqe, nsid) == 4);
const _: () = assert!(std::mem::offset_of!(Sqe, mptr) == 16);
const _: () = assert!(std::mem::offset_of!(Sqe, prp1) == 24);
const _: () = assert!(std::mem::offset_of!(Sqe, prp2) == 32);
const _: () = assert!(std::mem::offset_of!(Sqe, cdw10) == 40);
const _: () = assert!(std::mem::offset_of!(Sqe, cdw15) == 60);
