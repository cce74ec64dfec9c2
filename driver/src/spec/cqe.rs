//! The completion queue entry.

use super::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A completion queue entry: 16 bytes ("Common Completion Queue Entry Layout").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(16))]
pub struct Cqe {
    /// Dword 0: what the command returns.
    pub result: u32,
    /// Dword 1: command specific, mostly reserved.
    pub dw1: u32,
    /// SQHD: how far the submission queue has been consumed.
    pub sqhd: u16,
    /// SQID: the submission queue of the command.
    pub sqid: u16,
    /// CID: the identifier of the command.
    pub cid: u16,
    /// The status in bits 15:1, the phase tag in bit 0.
    pub status: u16,
}

impl Cqe {
    /// log2 of the size: what CC.IOCQES asks for.
    pub const SIZE_LOG2: u8 = 4;

    /// P: the phase tag, which changes each time the device passes through the ring.
    #[inline]
    #[must_use]
    pub const fn phase(&self) -> bool {
        self.status & 1 != 0
    }

    /// The status without the phase tag.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Status {
        Status::from_bits(self.status >> 1)
    }

    /// This entry with its status word built from `status` and `phase`.
    #[inline]
    #[must_use]
    pub const fn with_status(mut self, status: Status, phase: bool) -> Self {
        self.status = status.bits() << 1 | phase as u16;
        self
    }
}

const _: () = assert!(size_of::<Cqe>() == 16);
const _: () = assert!(size_of::<Cqe>() == 1 << Cqe::SIZE_LOG2);
const _: () = assert!(std::mem::offset_of!(Cqe, sqhd) == 8);
const _: () = assert!(std::mem::offset_of!(Cqe, sqid) == 10);
const _: () = assert!(std::mem::offset_of!(Cqe, cid) == 12);
const _: () = assert!(std::mem::offset_of!(Cqe, status) == 14);

#[cfg(test)]
mod tests {
    use super::*;

    /// Status and phase share a word without touching each other.
    #[test]
    fn status_and_phase_share_a_word() {
        let cqe = Cqe::default().with_status(Status::LBA_OUT_OF_RANGE.with_dnr(), true);
        assert!(cqe.phase());
        assert_eq!(cqe.status, 0x8101);
        assert_eq!(cqe.status(), Status::LBA_OUT_OF_RANGE.with_dnr());
        assert!(!Cqe::default().phase());
    }
}
