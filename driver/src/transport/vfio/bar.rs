//! A mapped register window.
#![expect(unsafe_code, reason = "device registers lie behind a raw pointer")]

use crate::transport::{DoorbellWindow, TransportError};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::any::Any;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// The first bytes of a BAR, mapped into this process.
#[derive(Debug)]
pub(super) struct Bar {
    base: NonNull<u8>,
    len: usize,
    /// What must not be closed before the mapping is gone.
    _owner: Arc<dyn Owner>,
}

/// What a mapping keeps alive.
pub(super) trait Owner: Any + Debug + Send + Sync {}
impl<T: Any + Debug + Send + Sync> Owner for T {}

// SAFETY: the window is mapped until it is dropped, and accessed in whole, aligned registers only.
unsafe impl Send for Bar {}
// SAFETY: as above.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps `len` bytes at `offset` of the device's file. The mapping keeps `owner`.
    pub(super) fn map(
        device: &File,
        offset: u64,
        len: usize,
        owner: Arc<dyn Owner>,
    ) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is mapped.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED,
                device,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let bar = Self {
            base,
            len,
            _owner: owner,
        };
        // The child of a fork must not be able to ring a doorbell: it does not get the window.
        // SAFETY: the range is the mapping made above.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(bar)
    }

    /// The 32-bit register at byte `offset`.
    fn register(&self, offset: usize) -> Result<NonNull<u32>, TransportError> {
        let end = offset.checked_add(size_of::<u32>());
        if !offset.is_multiple_of(size_of::<u32>()) || end.is_none_or(|end| end > self.len) {
            return Err(TransportError::OutOfRange {
                offset,
                len: self.len,
            });
        }
        // SAFETY: the offset lies inside the window, which is one mapping.
        Ok(unsafe { self.base.add(offset) }.cast())
    }

    /// Checks that a 64-bit register at byte `offset` lies inside. Returns where its upper half is.
    pub(super) fn check64(&self, offset: usize) -> Result<usize, TransportError> {
        let high = offset.saturating_add(size_of::<u32>());
        self.register(high).map(|_| high)
    }

    /// Reads the register at byte `offset`.
    pub(super) fn read32(&self, offset: usize) -> Result<u32, TransportError> {
        let register = self.register(offset)?;
        // SAFETY: `register` is mapped for as long as `self` lives, aligned, and volatile.
        Ok(unsafe { register.read_volatile() })
    }

    /// Writes the register at byte `offset`, after everything written to memory before.
    pub(super) fn write32(&self, offset: usize, value: u32) -> Result<(), TransportError> {
        let register = self.register(offset)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a barrier touches no memory and no register. It reaches the outer shareable domain,
        // where the device is, and the fence above does not.
        unsafe {
            std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
        }
        // SAFETY: as in `read32`.
        unsafe { register.write_volatile(value) };
        Ok(())
    }

    /// The doorbells between the bytes `start` and `end`. They keep this mapping.
    pub(super) fn doorbells(self: &Arc<Self>, start: usize, end: usize) -> DoorbellWindow {
        let end = end.min(self.len);
        let start = start.min(end);
        let owner = Arc::clone(self);
        // SAFETY: `start` is at most the length of the window.
        let base = unsafe { self.base.add(start) };
        // SAFETY: the mapping begins at a page and `start` is a multiple of four (or nothing is left
        // behind it), the window keeps the mapping, and all other access to it is volatile.
        unsafe { DoorbellWindow::new(base.cast(), end - start, owner) }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `map`, and its users are gone.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap of a mapping of our own: {result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(len: usize) -> (File, Bar) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(u64::try_from(len).unwrap()).unwrap();
        let bar = Bar::map(&file, 0, len, Arc::new(())).unwrap();
        (file, bar)
    }

    /// A register that is written reads back; one outside the window or misaligned is refused.
    #[test]
    fn registers_lie_inside_the_window() {
        let (_file, bar) = bar(8192);
        bar.write32(0x14, 0x1234_5678).unwrap();
        assert_eq!(bar.read32(0x14).unwrap(), 0x1234_5678);
        assert_eq!(bar.read32(8188).unwrap(), 0);
        for offset in [8192, 8190, 2, usize::MAX, usize::MAX - 3] {
            assert!(matches!(
                bar.read32(offset),
                Err(TransportError::OutOfRange { .. })
            ));
            assert!(matches!(
                bar.write32(offset, 1),
                Err(TransportError::OutOfRange { .. })
            ));
        }
    }

    /// Doorbells outlive their maker, and none lies behind the end that was given.
    #[test]
    fn the_doorbell_window_keeps_the_mapping() {
        let (_file, bar) = bar(8192);
        let bar = Arc::new(bar);
        let window = bar.doorbells(0x1000, 0x1800);
        let other = Arc::downgrade(&bar);
        drop(bar);
        assert_eq!(window.len(), 0x800);
        assert!(window.doorbell(0x800).is_none());
        window.doorbell(4).unwrap().ring(9);
        assert_eq!(other.upgrade().unwrap().read32(0x1004).unwrap(), 9);
    }
}
