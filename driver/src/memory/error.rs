//! What can go wrong with DMA memory.

use super::target::DmaTargetError;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;

/// Why DMA memory could not be had, mapped or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The controller's view of memory refused a mapping.
    #[error(transparent)]
    Target {
        /// The refusal.
        #[from]
        source: DmaTargetError,
    },
    /// The operating system gave no memory.
    #[error(
        "the system gave no {len} bytes of memory for DMA: free some, raise the limit that \
         applies (`ulimit -v`, the control group's memory.max) or ask for less"
    )]
    Mmap {
        /// Bytes asked for.
        len: usize,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// An address, offset or length is not a multiple of what it must be.
    #[error("{what} {value:#x} is not a multiple of {align:#x}: round it to one")]
    NotAligned {
        /// What it is about.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What it must be a multiple of, in bytes.
        align: u64,
    },
    /// An alignment is not a power of two.
    #[error("an alignment must be a power of two, {align} is none")]
    AlignNotPowerOfTwo {
        /// The alignment asked for, in bytes.
        align: usize,
    },
    /// An access or a piece lies outside.
    #[error("{len} bytes at offset {offset} do not lie within {size} bytes")]
    OutOfBounds {
        /// Offset in bytes.
        offset: usize,
        /// Length in bytes.
        len: usize,
        /// Length of the whole in bytes.
        size: usize,
    },
    /// Nothing was asked for.
    #[error("a buffer or region of zero bytes: ask for at least one")]
    Empty,
    /// More was asked for than one piece can have.
    #[error("{len} bytes are more than one piece of DMA memory can have ({max}): use several")]
    TooLarge {
        /// Bytes asked for.
        len: u64,
        /// The most that one piece can have, in bytes.
        max: u64,
    },
    /// The place asked for is in use.
    #[error("{len} bytes at offset {offset} of the region are in use: drop their buffer first")]
    NotFree {
        /// Offset in bytes.
        offset: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The region has no free range of this length and alignment.
    #[error(
        "the region of {size} bytes has no free range of {len} bytes aligned to {align}: make a \
         larger region, drop buffers, or allocate from the domain, which grows"
    )]
    RegionFull {
        /// Bytes asked for.
        len: usize,
        /// Alignment asked for, in bytes.
        align: usize,
        /// Length of the region in bytes.
        size: usize,
    },
    /// No I/O addresses are left that every attached controller can reach.
    #[error(
        "no free I/O addresses for {need:#x} bytes aligned to {align:#x}; the ranges that all \
         attached controllers can reach are {have}: use less DMA memory, or a domain of its own \
         for the controller with the narrow IOMMU"
    )]
    ApertureTooNarrow {
        /// Bytes asked for.
        need: u64,
        /// Alignment asked for, in bytes.
        align: u64,
        /// The permitted ranges.
        have: IovaRanges,
    },
    /// A region of the domain lies where the new controller's IOMMU cannot reach.
    #[error(
        "the domain has memory at I/O address {iova:#x} (+{len:#x}), which the new controller's \
         IOMMU cannot map (it permits {have}): attach this controller before memory is allocated, \
         or give it a domain of its own"
    )]
    OutsideAperture {
        /// First I/O address of the region.
        iova: u64,
        /// Its length in bytes.
        len: usize,
        /// The ranges that the new target permits.
        have: IovaRanges,
    },
    /// The new controller's quota of mappings does not suffice for what the domain holds.
    #[error(
        "the domain has {need} regions, the controller's IOMMU takes {left} more mappings: use \
         fewer, larger regions, or raise the vfio_iommu_type1 module's dma_entry_limit"
    )]
    TooManyRegions {
        /// Regions to map.
        need: u64,
        /// Mappings left.
        left: u64,
    },
    /// A device page size outside what CC.MPS can express.
    #[error("a device page of 2^{shift} bytes: CC.MPS knows 2^12 (4 KiB) to 2^27 (128 MiB)")]
    PageSize {
        /// Logarithm of the page size.
        shift: u32,
    },
    /// All domain numbers of the process are used up.
    #[error("this process has created 2^32 DMA domains and has no number for another: restart it")]
    NoDomainId,
}

/// Ranges of I/O addresses, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IovaRanges(pub Vec<RangeInclusive<u64>>);

impl fmt::Display for IovaRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, range) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{:#x}-{:#x}", range.start(), range.end())?;
        }
        Ok(())
    }
}
