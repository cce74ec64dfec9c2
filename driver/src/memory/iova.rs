//! The I/O addresses of this process.
//!
//! One allocator serves all domains, so that no address ever means two things: a buffer that is not
//! mapped for a controller faults there instead of landing in another's memory. Addresses are low
//! and have nothing to do with the virtual ones, because IOMMUs may have as few as 39 bits.

use super::error::{IovaRanges, MemoryError};
use super::range_set::{RangeSet, intersection};
use std::ops::RangeInclusive;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The first address ever given out. Address zero in a stray command then always faults.
const FLOOR: u64 = 1 << 20;

/// Where addresses are looked for first, whatever else is permitted, so that a controller attached
/// later most likely reaches them: below 2^39 (the narrowest IOMMUs), without the windows in which
/// interrupts are raised by memory writes (x86: architectural; arm64: where Linux puts it).
const PREFERRED: &[RangeInclusive<u64>] = &[
    FLOOR..=0x07ff_ffff,
    0x0810_0000..=0xfedf_ffff,
    0xfef0_0000..=(1 << 39) - 1,
];

static SPACE: LazyLock<Mutex<Space>> = LazyLock::new(|| Mutex::new(Space::new()));

/// Takes addresses that no one in the process has, within `permitted` (`None`: no controller is
/// attached that would restrict them).
pub(super) fn alloc(
    len: u64,
    align: u64,
    permitted: Option<&[RangeInclusive<u64>]>,
) -> Result<u64, MemoryError> {
    space().alloc(len, align, permitted)
}

/// Gives back what [`alloc`] gave, once no device can reach it under these addresses.
pub(super) fn free(iova: u64, len: u64) {
    space().free(iova, len);
}

/// I/O addresses that the process has in use, in bytes.
pub(super) fn bytes_in_use() -> u64 {
    space().in_use
}

fn space() -> MutexGuard<'static, Space> {
    super::lock(&SPACE)
}

#[derive(Debug)]
struct Space {
    free: RangeSet,
    in_use: u64,
}

impl Space {
    fn new() -> Self {
        let mut free = RangeSet::new();
        let _new = free.free(FLOOR, u64::MAX - FLOOR);
        Self { free, in_use: 0 }
    }

    fn alloc(
        &mut self,
        len: u64,
        align: u64,
        permitted: Option<&[RangeInclusive<u64>]>,
    ) -> Result<u64, MemoryError> {
        let iova = match permitted {
            None => self.free.alloc(len, align, PREFERRED),
            Some(ranges) => self
                .free
                .alloc(len, align, &intersection(ranges, PREFERRED))
                .or_else(|| self.free.alloc(len, align, ranges)),
        };
        let iova = iova.ok_or_else(|| MemoryError::ApertureTooNarrow {
            need: len,
            align,
            have: IovaRanges(permitted.unwrap_or(PREFERRED).to_vec()),
        })?;
        self.in_use += len;
        Ok(iova)
    }

    fn free(&mut self, iova: u64, len: u64) {
        if self.free.free(iova, len) {
            self.in_use -= len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::range_set::ANYWHERE;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Where nothing restricts them, addresses start above the first MiB, avoid both MSI windows and
    /// end at 39 bits. Only when those are used up others follow, if a controller permits them.
    #[test]
    fn defaults_suit_every_iommu() {
        let mut space = Space::new();
        assert_eq!(space.alloc(4096, 4096, None).unwrap(), MIB);
        let mut seen = Vec::new();
        while let Ok(iova) = space.alloc(1 << 28, 1 << 20, None) {
            seen.push(iova);
        }
        let (mut space, permitted) = (Space::new(), Some(ANYWHERE));
        assert_eq!(space.alloc(4096, 4096, permitted).unwrap(), MIB);
        for iova in &seen {
            assert_eq!(space.alloc(1 << 28, 1 << 20, permitted).unwrap(), *iova);
        }
        assert!(space.alloc(1 << 28, 1 << 20, permitted).is_ok());
        for iova in &seen {
            let last = iova + (1 << 28) - 1;
            assert!(last < 1 << 39);
            assert!(last < 0xfee0_0000 || *iova > 0xfeef_ffff, "{iova:#x}");
            assert!(last < 0x0800_0000 || *iova > 0x080f_ffff, "{iova:#x}");
        }
        assert!(seen.len() > 2040, "{}", seen.len());
    }

    /// Permitted ranges are kept to, the low ones are taken first, and the others when those are full.
    #[test]
    fn permitted_ranges_hold() {
        let mut space = Space::new();
        let permitted = [0..=0x2f_ffff, 1 << 50..=(1 << 50) + 4 * MIB - 1];
        assert_eq!(space.alloc(2 * MIB, 4096, Some(&permitted)).unwrap(), MIB);
        assert_eq!(
            space.alloc(2 * MIB, 4096, Some(&permitted)).unwrap(),
            1 << 50
        );
        let error = space.alloc(4 * MIB, 4096, Some(&permitted)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no free I/O addresses for 0x400000 bytes aligned to 0x1000; the ranges that all \
             attached controllers can reach are 0x0-0x2fffff, 0x4000000000000-0x40000003fffff: use \
             less DMA memory, or a domain of its own for the controller with the narrow IOMMU"
        );
        assert_eq!(space.in_use, 4 * MIB);
        space.free(MIB, 2 * MIB);
        assert_eq!(space.alloc(2 * MIB, 4096, Some(&permitted)).unwrap(), MIB);
    }

    /// The first MiB is not given out even where a controller permits nothing else.
    #[test]
    fn the_first_mib_stays_unused() {
        assert!(
            Space::new()
                .alloc(4096, 4096, Some(&[0..=MIB - 1]))
                .is_err()
        );
    }
}
