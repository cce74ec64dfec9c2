//! What a DMA domain maps into: one IOMMU container, or the software controller's map.
#![expect(unsafe_code, reason = "an IOMMU mapping is a promise about raw memory")]

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::ops::RangeInclusive;
use std::ptr::NonNull;

/// A translation from I/O virtual addresses to this process's memory, used by one or more controllers.
///
/// # Safety
/// Implementations promise that a device behind this target touches no memory but what is mapped, and
/// that once [`DmaTarget::unmap`] has answered `Ok` no device touches that memory any more.
pub unsafe trait DmaTarget: Any + Debug + Send + Sync {
    /// The I/O virtual addresses that may be mapped, ascending and disjoint.
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>>;

    /// The smallest page that can be mapped, in bytes; a power of two.
    fn page_size(&self) -> u64;

    /// Mappings that can still be made, where there is a quota.
    fn mappings_left(&self) -> Option<u64>;

    /// Whether an IOMMU stands between the device and memory.
    fn isolates(&self) -> bool;

    /// Maps `len` bytes at `memory` to `iova`, for reading and writing by the device.
    ///
    /// # Safety
    /// The memory must stay valid until it has been unmapped, and until then no Rust reference into it
    /// may exist while a device may write it: access is volatile, atomic or through raw pointers.
    ///
    /// # Errors
    /// [`DmaTargetError`]; nothing is mapped then.
    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaTargetError>;

    /// Takes back a mapping made by [`DmaTarget::map`] with the same `iova` and `len`.
    ///
    /// # Errors
    /// [`DmaTargetError`] if the device may still reach any of it.
    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaTargetError>;
}

/// Why a mapping could not be made or taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmaTargetError {
    /// The locked-memory limit is too low.
    #[error(
        "mapping {need} bytes for DMA needs more locked memory than RLIMIT_MEMLOCK allows \
         (limit {limit} bytes, {locked} already locked): raise it with `ulimit -l`, \
         LimitMEMLOCK= in the service's unit, or /etc/security/limits.conf"
    )]
    MemlockLimit {
        /// Bytes of the mapping that failed.
        need: u64,
        /// The limit in bytes.
        limit: u64,
        /// Bytes that this process has locked already.
        locked: u64,
    },
    /// The number of mappings is used up.
    #[error(
        "no DMA mapping is left ({len} bytes wanted): use fewer, larger regions, or raise the \
         vfio_iommu_type1 module's dma_entry_limit"
    )]
    QuotaUsedUp {
        /// Bytes of the mapping that failed.
        len: usize,
    },
    /// The address range is taken or reserved.
    #[error("I/O addresses {iova:#x}..+{len:#x} cannot be mapped: taken or reserved")]
    AddressRefused {
        /// First address.
        iova: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Less was unmapped than asked.
    #[error("unmapping {len:#x} bytes at {iova:#x} removed {removed:#x} bytes only")]
    UnmappedShort {
        /// First address.
        iova: u64,
        /// Bytes asked for.
        len: usize,
        /// Bytes that the kernel says it unmapped.
        removed: u64,
    },
    /// Any other refusal.
    #[error("{what} of {len:#x} bytes at {iova:#x} failed")]
    Os {
        /// `mapping` or `unmapping`.
        what: &'static str,
        /// First address.
        iova: u64,
        /// Length in bytes.
        len: usize,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}
