//! What must hold for domains, regions and buffers, on targets that record and fail.

mod buffers;
mod mappings;
mod parking;

use super::{DmaDomain, DmaRegion};
use std::ptr::NonNull;
use std::sync::Arc;
use vm_memory::mmap::MmapRegion;

/// Registers `len` bytes. The count of the `Arc` falls back to one when the memory is let go of.
#[expect(unsafe_code, reason = "registering memory is unsafe")]
fn registered(domain: &DmaDomain, len: usize) -> (Result<DmaRegion, super::MemoryError>, Arc<()>) {
    let alive = Arc::new(());
    let map = MmapRegion::<()>::new(len).unwrap();
    let memory = NonNull::new(map.as_ptr()).unwrap();
    // SAFETY: the keeper is the mapping, which is used for nothing else.
    let region = unsafe { domain.register(memory, len, (map, Arc::clone(&alive))) };
    (region, alive)
}

/// Whether the memory of [`registered`] is still held.
fn held(alive: &Arc<()>) -> bool {
    Arc::strong_count(alive) > 1
}

/// A length of an ordinary region.
const LEN: usize = 64 << 10;
