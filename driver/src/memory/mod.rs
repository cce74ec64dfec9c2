//! DMA memory: what a device may touch, and when.
//!
//! A [`DmaDomain`] holds memory and the controllers that may reach it; every region of the domain is
//! mapped for every controller attached to it, also for those attached later. Its I/O addresses are
//! unique in the process. Memory is used through [`DmaBuf`]s: exclusive, owned, and given to a queue
//! by value for as long as the device may touch them.
//!
//! From the bottom up: `range_set` (free ranges), `iova` (the I/O addresses of the process), `pages`
//! (where memory comes from), [`DmaTarget`] (an IOMMU, or what stands for one), `table` (what is
//! mapped where), `region`, `buf`, `domain`, and `prp` (how a command names a buffer).
//!
//! # Examples
//!
//! ```
//! use driver::memory::DmaDomain;
//!
//! let domain = DmaDomain::new();
//! let mut buf = domain.alloc(4096)?;
//! buf.write_at(100, b"doorbell")?;
//! let mut text = [0; 8];
//! buf.read_at(100, &mut text)?;
//! assert_eq!(&text, b"doorbell");
//! # Ok::<(), driver::memory::MemoryError>(())
//! ```

mod buf;
mod domain;
mod error;
mod iova;
mod pages;
mod prp;
mod range_set;
mod region;
mod table;
mod target;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use buf::DmaBuf;
pub use domain::{Attachment, DmaDomain, SLAB_BYTES};
pub use error::{IovaRanges, MemoryError};
pub use pages::PageKind;
pub use prp::PrpLists;
pub use region::DmaRegion;
pub use table::{DmaStats, DomainId};
pub use target::{DmaTarget, DmaTargetError};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever a thread that panicked may have left: no state here is left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
