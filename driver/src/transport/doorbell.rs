//! Doorbells: the registers that every NVMe command ends at.
#![expect(
    unsafe_code,
    reason = "a doorbell is a device register behind a raw pointer"
)]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The memory in which a controller's doorbells lie (BAR0 from offset 1000h on).
///
/// Handed out by a [`Transport`](super::Transport); it keeps the mapping alive.
#[derive(Clone)]
pub struct DoorbellWindow {
    base: NonNull<u32>,
    len: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the window is plain mapped memory which `owner` keeps alive; all access to it is by atomic
// stores of whole, aligned doorbells.
unsafe impl Send for DoorbellWindow {}
// SAFETY: as above.
unsafe impl Sync for DoorbellWindow {}

impl DoorbellWindow {
    /// Describes `len` bytes of doorbells at `base`.
    ///
    /// # Safety
    /// `base` must be valid for aligned 32-bit atomic stores over `len` bytes for as long as `owner`
    /// lives, and nothing may form a Rust reference other than to atomics into that memory.
    #[must_use]
    pub unsafe fn new(base: NonNull<u32>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            base,
            len,
            _owner: owner,
        }
    }

    /// Length of the window in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the window holds no doorbell at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len < size_of::<u32>()
    }

    /// The doorbell at byte `offset` of the window. `None`: outside the window, or misaligned.
    #[must_use]
    pub fn doorbell(&self, offset: usize) -> Option<Doorbell> {
        let end = offset.checked_add(size_of::<u32>())?;
        if end > self.len || !offset.is_multiple_of(size_of::<u32>()) {
            return None;
        }
        // SAFETY: the offset lies inside the window, which is one mapping.
        let register = unsafe { self.base.byte_add(offset) };
        Some(Doorbell {
            register: register.cast(),
            _window: self.clone(),
        })
    }
}

impl fmt::Debug for DoorbellWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorbellWindow")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// One doorbell register.
#[derive(Debug)]
pub struct Doorbell {
    register: NonNull<AtomicU32>,
    _window: DoorbellWindow,
}

// SAFETY: as for `DoorbellWindow`, of which this is one aligned word.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// Writes the doorbell, after everything this thread has written to memory before.
    ///
    /// One store fence, one register write. On x86 ordinary write-back stores are seen by a device
    /// before a later uncached store (no instruction needed); on ARM a store barrier for the outer
    /// shareable domain is needed, which a Rust fence does not give.
    #[inline(always)]
    pub fn ring(&self, value: u32) {
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a barrier touches no memory and no register.
        unsafe {
            std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
        }
        // SAFETY: the window is mapped for as long as `self` lives, and the word is aligned.
        let register = unsafe { self.register.as_ref() };
        register.store(value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doorbells outside the window, across its end or misaligned are refused; one inside is written.
    #[test]
    fn a_doorbell_lies_inside_its_window() {
        let memory: Arc<[AtomicU32; 4]> = Arc::default();
        let base = NonNull::from(&memory[0]).cast();
        // SAFETY: `memory` holds 16 bytes of atomics and lives as long as the window.
        let window = unsafe { DoorbellWindow::new(base, 16, Arc::clone(&memory) as _) };
        assert!(window.doorbell(16).is_none());
        assert!(window.doorbell(14).is_none());
        assert!(window.doorbell(usize::MAX).is_none());
        window.doorbell(12).unwrap().ring(7);
        assert_eq!(memory[3].load(Ordering::Relaxed), 7);
    }
}
