//! Where the memory of a region comes from: huge pages, ordinary pages, or the caller.
#![expect(
    unsafe_code,
    reason = "memory is advised and populated by raw system calls"
)]

use super::error::MemoryError;
use std::any::Any;
use std::io;
use std::ptr::NonNull;
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};

/// The length of a huge page that is asked for.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// What kind of pages a region consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageKind {
    /// Huge pages of 2 MiB, from the system's pool.
    Huge,
    /// Ordinary pages, since there were no huge ones or the region is too small for one.
    Ordinary,
    /// The caller's own memory.
    Callers,
}

/// The address of a region's first byte. It is used only through buffers, each of which owns its
/// range alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base(pub(super) NonNull<u8>);

// SAFETY: it is an address; whoever dereferences it answers for that.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// The memory of a region. Dropping it frees the memory; forgetting it parks the memory for good.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) base: Base,
    pub(super) len: usize,
    pub(super) kind: PageKind,
    /// Keeps the memory alive.
    _keeper: Box<dyn Any + Send + Sync>,
}

impl Pages {
    /// Fresh, zeroed, populated memory of at least `len` bytes, in multiples of `granule` bytes (a
    /// power of two) and aligned to them.
    pub(super) fn allocate(len: usize, granule: usize) -> Result<Self, MemoryError> {
        let huge = len.checked_next_multiple_of(HUGE_PAGE);
        if let Some(huge) = huge
            && len >= HUGE_PAGE
            && granule <= HUGE_PAGE
            && huge - len <= len / 4
            && let Ok(pages) = Self::mapped(huge, PageKind::Huge, granule)
        {
            return Ok(pages);
        }
        let too_large = MemoryError::TooLarge {
            len: len as u64,
            max: isize::MAX as u64,
        };
        let whole = len.checked_next_multiple_of(granule).ok_or(too_large)?;
        // Aligned to a huge page, the kernel may use transparent ones.
        let align = if len >= HUGE_PAGE {
            granule.max(HUGE_PAGE)
        } else {
            granule
        };
        Self::mapped(whole, PageKind::Ordinary, align)
    }

    /// The caller's memory, kept alive by `keeper`.
    pub(super) fn callers(
        base: NonNull<u8>,
        len: usize,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            base: Base(base),
            len,
            kind: PageKind::Callers,
            _keeper: keeper,
        }
    }

    fn mapped(len: usize, kind: PageKind, align: usize) -> Result<Self, MemoryError> {
        let failed = |source| MemoryError::Mmap { len, source };
        let (flags, page) = match kind {
            PageKind::Huge => (libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, HUGE_PAGE),
            _ => (0, system_page()),
        };
        // Addresses beyond what is used are never touched, so they cost no memory.
        let mapped_len = len.saturating_add(align.saturating_sub(page));
        let map = MmapRegionBuilder::<()>::new(mapped_len)
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | flags)
            .build()
            .map_err(|error| match error {
                MmapRegionError::Mmap(source) => failed(source),
                other => failed(io::Error::other(other)),
            })?;
        let start = map.as_ptr();
        let skip = start.addr().next_multiple_of(align) - start.addr();
        let base = NonNull::new(start.wrapping_add(skip))
            .ok_or_else(|| failed(io::Error::other("mmap answered address zero")))?;
        if kind == PageKind::Ordinary && len >= HUGE_PAGE {
            // A kernel that may will put transparent huge pages here. One that may not is no error.
            // SAFETY: the range lies in the mapping just made; the advice does not change its contents.
            unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        populate(base, len).map_err(failed)?;
        Ok(Self {
            base: Base(base),
            len,
            kind,
            _keeper: Box::new(map),
        })
    }
}

/// Faults all pages in now: no first touch is slow, and a shortage is an error here instead of a
/// SIGBUS later (`MAP_POPULATE` would ignore it).
fn populate(base: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the range is a mapping of ours; populating does not change its contents.
    if unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Kernels before 5.14 do not know the advice: pages come when they are pinned or touched.
    if error.raw_os_error() == Some(libc::EINVAL) {
        Ok(())
    } else {
        Err(error)
    }
}

/// The length of the system's ordinary pages.
pub(super) fn system_page() -> usize {
    // SAFETY: asks for a constant.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths are rounded to whole granules, and memory is there whether or not huge pages are.
    #[test]
    fn memory_comes_with_or_without_huge_pages() {
        let small = Pages::allocate(5000, 4096).unwrap();
        assert_eq!((small.len, small.kind), (8192, PageKind::Ordinary));
        let large = Pages::allocate(HUGE_PAGE, 4096).unwrap();
        assert_eq!(large.len, HUGE_PAGE);
        let coarse = Pages::allocate(5000, 65536).unwrap();
        assert_eq!((coarse.len, coarse.base.0.addr().get() % 65536), (65536, 0));
    }

    /// What the system cannot give is an error that names the length.
    #[test]
    fn too_much_is_an_error() {
        let error = Pages::allocate(1 << 60, 4096).unwrap_err();
        assert!(
            matches!(error, MemoryError::Mmap { len, .. } if len == 1 << 60),
            "{error}"
        );
        let error = Pages::allocate(usize::MAX, 4096).unwrap_err();
        assert!(matches!(error, MemoryError::TooLarge { .. }), "{error}");
    }
}
