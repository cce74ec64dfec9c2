//! Raw memory: the only place where this crate follows a pointer.
//!
//! A device and its host share memory that either may change at any time. Rings are accessed by
//! atomics, data by plain copies through raw pointers. A [`Span`] into the host's memory comes from
//! the DMA map alone and is used only while the device's lock is held; unmapping takes the same
//! lock, so that no span outlives its mapping.
#![expect(unsafe_code, reason = "the device's side of DMA works on raw memory")]

use driver::spec::Sqe;
use driver::transport::DoorbellWindow;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The page of this process's memory.
pub(crate) const HOST_PAGE: usize = 4096;

/// Anonymous memory, zero until written, page-aligned.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that this object owns; how it is accessed is up to `Span` and `Word`.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes, rounded up to whole pages, none of them touched yet.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let len = len
            .max(1)
            .checked_next_multiple_of(HOST_PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// The bytes `offset..offset + len`, if they lie inside.
    pub(crate) fn span(&self, offset: u64, len: usize) -> Option<Span> {
        let offset = usize::try_from(offset).ok()?;
        self.whole().slice(offset, len)
    }

    fn whole(&self) -> Span {
        Span {
            base: self.base,
            len: self.len,
        }
    }

    /// Makes whole pages read as zeros by giving them back. What is not page-aligned stays as it
    /// is.
    pub(crate) fn release(&self, offset: usize, len: usize) -> bool {
        let aligned = offset.is_multiple_of(HOST_PAGE) && len.is_multiple_of(HOST_PAGE);
        let Some(span) = self.whole().slice(offset, len).filter(|_| aligned) else {
            return false;
        };
        // SAFETY: the range lies inside this private anonymous mapping, which then reads as zeros.
        unsafe { libc::madvise(span.base.as_ptr().cast(), span.len, libc::MADV_DONTNEED) == 0 }
    }

    /// The aligned 32-bit word at `offset`, kept alive by the clone of `self`.
    pub(crate) fn word(self: &Arc<Self>, offset: usize) -> Option<Word> {
        let span = self.whole().slice(offset, size_of::<u32>())?;
        let aligned = offset.is_multiple_of(size_of::<u32>());
        aligned.then(|| Word {
            cell: span.base.cast(),
            _owner: Arc::clone(self),
        })
    }

    /// The memory as a window of doorbells for a driver.
    pub(crate) fn doorbell_window(self: &Arc<Self>, len: usize) -> DoorbellWindow {
        let len = len.min(self.len);
        let owner = Arc::clone(self);
        // SAFETY: the mapping lives as long as `owner`, and all access to it is by atomics.
        unsafe { DoorbellWindow::new(self.base.cast(), len, owner) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing refers to it any
        // more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A 32-bit word that two threads share: a doorbell.
#[derive(Debug)]
pub(crate) struct Word {
    cell: NonNull<AtomicU32>,
    _owner: Arc<Pages>,
}

// SAFETY: an atomic in memory that the object keeps alive.
unsafe impl Send for Word {}

impl Word {
    #[inline(always)]
    fn cell(&self) -> &AtomicU32 {
        // SAFETY: aligned, inside the pages that `_owner` keeps alive, accessed by atomics only.
        unsafe { self.cell.as_ref() }
    }

    /// The value, with everything that was written before it.
    #[inline(always)]
    pub(crate) fn load(&self) -> u32 {
        self.cell().load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, value: u32) {
        self.cell().store(value, Ordering::Release);
    }
}

/// Bytes of memory that somebody else may change at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a span is an address; who may follow it when is laid down in the module's documentation.
unsafe impl Send for Span {}

impl Span {
    /// A span of mapped host memory.
    ///
    /// # Safety
    /// The memory must be valid for reads and writes for as long as the span is used.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// A span over a slice, to copy from or compare with only.
    pub(crate) fn source(bytes: &[u8]) -> Self {
        Self {
            base: NonNull::from(bytes).cast(),
            len: bytes.len(),
        }
    }

    /// A span over a slice, to copy into.
    pub(crate) fn target(bytes: &mut [u8]) -> Self {
        Self {
            len: bytes.len(),
            base: NonNull::from(bytes).cast(),
        }
    }

    #[cfg(test)]
    pub(crate) fn pointer(self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The part `offset..offset + len`, if it lies inside.
    #[inline]
    pub(crate) fn slice(self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: the offset lies inside the span, which is one allocation.
        let base = unsafe { self.base.add(offset) };
        Some(Self { base, len })
    }

    /// The first `len` bytes, or all.
    #[inline]
    pub(crate) fn first(self, len: usize) -> Self {
        Self {
            len: len.min(self.len),
            ..self
        }
    }

    /// Grows by `next` if that begins where this ends.
    #[inline]
    pub(crate) fn extend(&mut self, next: Self) -> bool {
        let joins = self.base.as_ptr().wrapping_add(self.len) == next.base.as_ptr();
        if joins {
            self.len += next.len;
        }
        joins
    }

    /// Copies as many bytes as both have.
    #[inline]
    pub(crate) fn copy_from(self, source: Self) {
        let len = self.len.min(source.len);
        // SAFETY: both spans are valid for `len` bytes; a copy that may overlap takes any two.
        unsafe { std::ptr::copy(source.base.as_ptr(), self.base.as_ptr(), len) };
    }

    pub(crate) fn fill_zero(self) {
        // SAFETY: the span is valid for writes of its length.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), 0, self.len) };
    }

    /// Whether as many bytes as both have are equal.
    pub(crate) fn equals(self, other: Self) -> bool {
        let len = self.len.min(other.len);
        // SAFETY: both spans are valid for reads of `len` bytes; memcmp makes no claim on aliasing.
        unsafe { libc::memcmp(self.base.as_ptr().cast(), other.base.as_ptr().cast(), len) == 0 }
    }

    /// The aligned 64-bit word at `offset`.
    #[inline]
    pub(crate) fn load_u64(self, offset: usize) -> Option<u64> {
        Some(self.atomic_u64(offset)?.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn atomic_u64(&self, offset: usize) -> Option<&AtomicU64> {
        let word: NonNull<AtomicU64> = self.slice(offset, size_of::<u64>())?.base.cast();
        if !word.is_aligned() {
            return None;
        }
        // SAFETY: inside the span and aligned; rings and lists are accessed by atomics only.
        Some(unsafe { word.as_ref() })
    }

    /// The submission entry at `index` of a ring that begins where this span does.
    #[inline(always)]
    pub(crate) fn load_sqe(self, index: usize) -> Option<Sqe> {
        let entry = self.slice(index.checked_mul(size_of::<Sqe>())?, size_of::<Sqe>())?;
        let first: NonNull<AtomicU64> = entry.base.cast();
        if !first.is_aligned() {
            return None;
        }
        let mut words = [0u64; 8];
        for (at, word) in words.iter_mut().enumerate() {
            // SAFETY: the entry has eight words, and `at` is below eight.
            let cell = unsafe { first.add(at) };
            // SAFETY: inside the entry and aligned; rings are accessed by atomics only.
            *word = unsafe { cell.as_ref() }.load(Ordering::Relaxed);
        }
        Some(zerocopy::transmute!(words))
    }

    /// Asks the cache for the submission entry at `index`, which may lie outside the ring.
    #[inline(always)]
    pub(crate) fn prefetch_sqe(self, index: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let entry = self.base.as_ptr().wrapping_add(index * size_of::<Sqe>());
            // SAFETY: a prefetch is a hint and faults on no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(entry.cast_const().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = index;
    }

    /// Writes a completion entry at `index` of a ring: the half with the phase tag last.
    #[inline(always)]
    pub(crate) fn store_cqe(self, index: usize, low: u64, high: u64) -> Option<()> {
        let entry = self.slice(index.checked_mul(16)?, 16)?;
        entry.atomic_u64(0)?.store(low, Ordering::Relaxed);
        entry.atomic_u64(8)?.store(high, Ordering::Release);
        Some(())
    }

    /// Reads the file from `offset` on into all of the span.
    pub(crate) fn read_file(self, file: &File, offset: u64) -> io::Result<()> {
        self.file_io(offset, |base, len, at| {
            // SAFETY: the span is valid for writes of `len` bytes at `base`.
            unsafe { libc::pread(file.as_raw_fd(), base.cast(), len, at) }
        })
    }

    /// Writes all of the span into the file from `offset` on.
    pub(crate) fn write_file(self, file: &File, offset: u64) -> io::Result<()> {
        self.file_io(offset, |base, len, at| {
            // SAFETY: the span is valid for reads of `len` bytes at `base`.
            unsafe { libc::pwrite(file.as_raw_fd(), base.cast_const().cast(), len, at) }
        })
    }

    fn file_io(
        self,
        offset: u64,
        mut call: impl FnMut(*mut u8, usize, i64) -> isize,
    ) -> io::Result<()> {
        let mut rest = self;
        let mut at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        while rest.len > 0 {
            let moved = call(rest.base.as_ptr(), rest.len, at);
            let Ok(moved) = usize::try_from(moved) else {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            };
            if moved == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            rest = rest
                .slice(moved, rest.len.saturating_sub(moved))
                .ok_or(io::ErrorKind::Other)?;
            at += i64::try_from(moved).unwrap_or(i64::MAX);
        }
        Ok(())
    }
}

/// Deallocates bytes of a file, which then read as zeros.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = i64::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a call on an open descriptor; no memory is passed.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where the next data (or hole) of a sparse file begins. `None`: there is no more.
pub(crate) fn seek_data(file: &File, offset: u64, hole: bool) -> Option<u64> {
    let whence = if hole {
        libc::SEEK_HOLE
    } else {
        libc::SEEK_DATA
    };
    // SAFETY: a call on an open descriptor; no memory is passed.
    let found = unsafe { libc::lseek(file.as_raw_fd(), i64::try_from(offset).ok()?, whence) };
    u64::try_from(found).ok()
}

/// Binds the calling thread to one processor.
pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a set of processors is plain bits, and zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is initialised and its size is passed.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
