//! An owned buffer in DMA memory.
#![expect(
    unsafe_code,
    reason = "device-visible memory is reached through raw pointers"
)]

use super::error::MemoryError;
use super::region::RegionInner;
use super::table::DomainId;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use vm_memory::VolatileSlice;

/// A range of DMA memory that belongs to its holder alone.
///
/// It can be moved to another thread but not shared, copied or cloned: whoever holds it knows that
/// nobody else, and no device, uses it. A queue takes it by value and gives it back when the device
/// is done with it. Dropping it gives the range back to its region.
///
/// The memory is always initialised; a fresh buffer holds whatever was there before.
pub struct DmaBuf {
    ptr: NonNull<u8>,
    iova: u64,
    len: u32,
    domain: DomainId,
    owner: Arc<RegionInner>,
}

// Four words: it travels through a slot of the queue with every command.
const _: () = assert!(size_of::<DmaBuf>() == 32 && size_of::<Option<DmaBuf>>() == 32);

// SAFETY: the range is owned alone, and the region behind it is `Send` and `Sync`.
unsafe impl Send for DmaBuf {}

impl DmaBuf {
    /// What the I/O address of every buffer is a multiple of: a PRP entry has no room for less.
    pub const ALIGN: usize = 4;

    /// The buffer of a range that was just taken from `owner`.
    pub(super) fn new(owner: &Arc<RegionInner>, iova: u64, len: u32) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is an offset within the region"
        )]
        let offset = (iova - owner.iova()) as usize;
        // SAFETY: the range was taken from the region's free space, so it lies within its memory.
        let ptr = unsafe { owner.base().add(offset) };
        Self {
            ptr,
            iova,
            len,
            domain: owner.domain(),
            owner: Arc::clone(owner),
        }
    }

    /// Its length in bytes; never zero.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Its length in bytes, as commands count it.
    #[inline]
    #[must_use]
    pub fn len32(&self) -> u32 {
        self.len
    }

    /// Never: there are no buffers of zero bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The I/O address of its first byte, a multiple of four.
    #[inline]
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// The domain that it belongs to: controllers attached to another one cannot reach it.
    #[inline]
    #[must_use]
    pub fn domain(&self) -> DomainId {
        self.domain
    }

    /// Its first byte. While a device may write the memory, only volatile or atomic reads are sound.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// Its first byte. While a device may touch the memory, only volatile or atomic accesses are
    /// sound.
    #[inline]
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The memory for volatile access.
    #[inline]
    #[must_use]
    pub fn volatile(&self) -> VolatileSlice<'_> {
        // SAFETY: the range is valid as long as the buffer, and nothing refers to it but through it.
        unsafe { VolatileSlice::new(self.ptr.as_ptr(), self.len()) }
    }

    /// Copies from `offset` on into `to`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]; nothing is copied then.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        self.part(offset, to.len())?.copy_to(to);
        Ok(())
    }

    /// Copies `from` to `offset` and on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]; nothing is copied then.
    pub fn write_at(&mut self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        self.part(offset, from.len())?.copy_from(from);
        Ok(())
    }

    /// Sets every byte.
    pub fn fill(&mut self, byte: u8) {
        // SAFETY: the range is valid, owned alone, and written through a raw pointer.
        unsafe { self.ptr.as_ptr().write_bytes(byte, self.len()) };
    }

    /// The memory as a slice.
    ///
    /// # Safety
    /// No device may write the memory while the slice lives: no command that names it is in flight,
    /// nor may any controller of the domain that was given it before still be at work on it. Nor may
    /// it be written meanwhile through [`DmaBuf::volatile`] or a raw pointer.
    #[inline]
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: valid, initialised and owned alone; the caller answers for devices.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len()) }
    }

    /// The memory as a slice to write.
    ///
    /// # Safety
    /// As [`DmaBuf::as_slice`]; nor may a device read it.
    #[inline]
    #[must_use]
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: valid, initialised and owned alone; the caller answers for devices.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len()) }
    }

    /// Two buffers: the first `mid` bytes, and the rest. `mid` is a multiple of four.
    ///
    /// # Errors
    /// The buffer, and [`MemoryError::NotAligned`], [`MemoryError::OutOfBounds`], or
    /// [`MemoryError::Empty`] if one part would have no bytes.
    pub fn split_at(mut self, mid: usize) -> Result<(Self, Self), (Self, MemoryError)> {
        let error = match u32::try_from(mid) {
            Ok(first) if first > 0 && first < self.len => {
                if mid.is_multiple_of(Self::ALIGN) {
                    let iova = self.iova + u64::from(first);
                    let rest = Self::new(&self.owner, iova, self.len - first);
                    self.len = first;
                    return Ok((self, rest));
                }
                let (what, value) = ("the place to split a buffer at", mid as u64);
                MemoryError::NotAligned {
                    what,
                    value,
                    align: Self::ALIGN as u64,
                }
            }
            Ok(first) if first == 0 || first == self.len => MemoryError::Empty,
            _ => MemoryError::OutOfBounds {
                offset: mid,
                len: 0,
                size: self.len(),
            },
        };
        Err((self, error))
    }

    /// One buffer of this one and `next`, which lies right behind it: the inverse of
    /// [`DmaBuf::split_at`].
    ///
    /// # Errors
    /// Both, if they are no neighbours of one region or too long together.
    pub fn join(mut self, mut next: Self) -> Result<Self, (Self, Self)> {
        let behind = self.iova + u64::from(self.len) == next.iova;
        let len = self.len.checked_add(next.len);
        match len.filter(|_| behind && Arc::ptr_eq(&self.owner, &next.owner)) {
            Some(len) => {
                next.len = 0;
                self.len = len;
                Ok(self)
            }
            None => Err((self, next)),
        }
    }

    /// Checks a range and gives volatile access to it.
    fn part(&self, offset: usize, len: usize) -> Result<VolatileSlice<'_>, MemoryError> {
        let part = self.volatile().subslice(offset, len);
        part.map_err(|_| MemoryError::OutOfBounds {
            offset,
            len,
            size: self.len(),
        })
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // What was joined to another buffer has nothing of its own any more.
        if self.len > 0 {
            self.owner.release(self.iova, self.len);
        }
    }
}

impl fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaBuf")
            .field("iova", &format_args!("{:#x}", self.iova))
            .field("len", &self.len)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
