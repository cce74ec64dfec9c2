//! A region: memory that is mapped as one piece, and the free space in it.

use super::buf::DmaBuf;
use super::error::MemoryError;
use super::lock;
use super::pages::{PageKind, Pages};
use super::range_set::{ANYWHERE, RangeSet};
use super::table::{DomainId, Refused, Table};
use std::sync::{Arc, Mutex};

/// What buffers start at, unless asked otherwise: large ones at a page, so that they cross as few
/// device pages as possible, small ones at a cache line, so that no two share one.
const PAGE: usize = 4096;
const CACHE_LINE: usize = 64;

/// Memory that controllers can reach, as one piece of I/O addresses.
///
/// Cheap to clone. The memory is unmapped and freed when the last handle and the last buffer in it
/// are gone.
#[derive(Debug, Clone)]
pub struct DmaRegion {
    inner: Arc<RegionInner>,
}

/// What handles and buffers share.
#[derive(Debug)]
pub(super) struct RegionInner {
    table: Arc<Table>,
    iova: u64,
    /// Taken out only on drop.
    pages: Option<Pages>,
    base: super::pages::Base,
    len: usize,
    kind: PageKind,
    /// Free I/O addresses.
    free: Mutex<RangeSet>,
}

impl DmaRegion {
    /// Puts memory into the domain; its I/O address is aligned to at least `align`.
    pub(super) fn new(table: &Arc<Table>, pages: Pages, align: u64) -> Result<Self, MemoryError> {
        let Pages {
            base, len, kind, ..
        } = pages;
        let iova = match table.add(base, len, align) {
            Ok(iova) => iova,
            Err(Refused { error, reachable }) => {
                if reachable {
                    std::mem::forget(pages);
                }
                return Err(error);
            }
        };
        let mut free = RangeSet::new();
        let _all = free.free(iova, len as u64);
        let (table, free) = (Arc::clone(table), Mutex::new(free));
        let pages = Some(pages);
        Ok(Self {
            inner: Arc::new(RegionInner {
                table,
                iova,
                pages,
                base,
                len,
                kind,
                free,
            }),
        })
    }

    /// Its length in bytes: what was asked for, rounded up to whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Never: there are no regions without memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The I/O address of its first byte.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.inner.iova
    }

    /// The domain that it belongs to.
    #[must_use]
    pub fn domain(&self) -> DomainId {
        self.inner.table.id
    }

    /// What kind of pages it consists of.
    #[must_use]
    pub fn pages(&self) -> PageKind {
        self.inner.kind
    }

    /// A buffer anywhere in the region, page-aligned if it is a page or longer.
    ///
    /// The contents are whatever was there.
    ///
    /// # Errors
    /// As [`DmaRegion::alloc_aligned`].
    pub fn alloc(&self, len: usize) -> Result<DmaBuf, MemoryError> {
        self.alloc_aligned(len, default_align(len))
    }

    /// A buffer whose I/O address is a multiple of `align` bytes, a power of two. Less than a dword
    /// is taken as a dword: no PRP entry can name an odd address.
    ///
    /// # Errors
    /// [`MemoryError::RegionFull`], [`MemoryError::Empty`], [`MemoryError::TooLarge`] (4 GiB or
    /// more), [`MemoryError::AlignNotPowerOfTwo`].
    pub fn alloc_aligned(&self, len: usize, align: usize) -> Result<DmaBuf, MemoryError> {
        let bytes = checked_shape(len, align)?;
        let align_bytes = align.max(DmaBuf::ALIGN) as u64;
        let found = lock(&self.inner.free).alloc(u64::from(bytes), align_bytes, ANYWHERE);
        let iova = found.ok_or(MemoryError::RegionFull {
            len,
            align,
            size: self.inner.len,
        })?;
        Ok(DmaBuf::new(&self.inner, iova, bytes))
    }

    /// The buffer of `len` bytes at exactly `offset`, a multiple of four.
    ///
    /// # Errors
    /// [`MemoryError::NotFree`], [`MemoryError::OutOfBounds`], [`MemoryError::NotAligned`],
    /// [`MemoryError::Empty`], [`MemoryError::TooLarge`].
    pub fn take(&self, offset: usize, len: usize) -> Result<DmaBuf, MemoryError> {
        let bytes = checked_len(len)?;
        let size = self.inner.len;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(MemoryError::OutOfBounds { offset, len, size });
        }
        if !offset.is_multiple_of(DmaBuf::ALIGN) {
            return Err(MemoryError::NotAligned {
                what: "the offset of a buffer in its region",
                value: offset as u64,
                align: DmaBuf::ALIGN as u64,
            });
        }
        let iova = self.inner.iova + offset as u64;
        if !lock(&self.inner.free).take(iova, u64::from(bytes)) {
            return Err(MemoryError::NotFree { offset, len });
        }
        Ok(DmaBuf::new(&self.inner, iova, bytes))
    }
}

impl RegionInner {
    pub(super) fn domain(&self) -> DomainId {
        self.table.id
    }

    pub(super) fn iova(&self) -> u64 {
        self.iova
    }

    pub(super) fn base(&self) -> std::ptr::NonNull<u8> {
        self.base.0
    }

    /// Takes a buffer's range back.
    pub(super) fn release(&self, iova: u64, len: u32) {
        let released = lock(&self.free).free(iova, u64::from(len));
        debug_assert!(released, "buffers own their ranges alone");
    }
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        let pages = self.pages.take();
        if !self.table.remove(self.iova) {
            // A device may still reach it: parked for the life of the process.
            std::mem::forget(pages);
        }
    }
}

/// The alignment of a buffer for which none was asked.
pub(super) fn default_align(len: usize) -> usize {
    if len >= PAGE { PAGE } else { CACHE_LINE }
}

/// The length of a buffer that can be had, if there is room.
pub(super) fn checked_shape(len: usize, align: usize) -> Result<u32, MemoryError> {
    if !align.is_power_of_two() {
        return Err(MemoryError::AlignNotPowerOfTwo { align });
    }
    checked_len(len)
}

fn checked_len(len: usize) -> Result<u32, MemoryError> {
    match u32::try_from(len) {
        Ok(0) => Err(MemoryError::Empty),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(MemoryError::TooLarge {
            len: len as u64,
            max: u64::from(u32::MAX),
        }),
    }
}
