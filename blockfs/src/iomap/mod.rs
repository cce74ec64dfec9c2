//! The mapping iterator: where a file range is on the drive, one piece at a time.
//!
//! A filesystem implements [`MapOps`]: `begin` looks up one [`Mapping`], `end` (if there is one)
//! finishes what `begin` began. [`IomapIter`] asks for mappings until the range is done, and lends
//! each as a [`Step`]; the body does its work, says with [`Step::advance`] how far it got, and lets
//! the step go. [`read_simple`] answers for a read of one block without the iterator.
//!
//! # Examples
//!
//! Which device ranges does a read of 12 KiB need?
//!
//! ```
//! use blockfs::iomap::{Begun, IomapIter, MapError, MapOps, Mapping, OpFlags, Request};
//!
//! /// A file of two extents with a hole behind them, 16 KiB in all.
//! struct File;
//!
//! impl MapOps for File {
//!     type Error = MapError;
//!     type Private = ();
//!     type Held = ();
//!     const HAS_END: bool = false;
//!
//!     fn size(&self) -> u64 {
//!         16_384
//!     }
//!
//!     fn begin(&mut self, request: Request) -> Result<Begun, MapError> {
//!         Ok(match request.pos {
//!             0..4096 => Mapping::mapped(1 << 20, 0, 4096),
//!             4096..8192 => Mapping::mapped(5 << 20, 4096, 4096),
//!             _ => Mapping::hole(8192, 8192),
//!         }
//!         .into())
//!     }
//! }
//!
//! let mut pieces = Vec::new();
//! let mut iter = IomapIter::new(File, 2048, 12_288, OpFlags::DIRECT)?;
//! while let Some(mut step) = iter.next_step()? {
//!     pieces.push((step.device_addr(), step.len()));
//!     step.advance(step.len())?;
//! }
//! let expected = [(Some((1 << 20) + 2048), 2048), (Some(5 << 20), 4096), (None, 6144)];
//! assert_eq!(pieces, expected);
//! # Ok::<(), MapError>(())
//! ```
//!
//! # What holds
//!
//! - A step's order is: `end` of the last one, decide, release what it held, `begin`, check, body.
//! - A mapping is constructed when `begin` answers, and at no other time: nothing is cleared, least
//!   of all on the final step. Nothing is allocated; nothing is called through a pointer.
//! - What a step holds is owned by the step, so it is released on every way out.
//! - `end` runs once for each `begin` that succeeded, with what was advanced. Only a step that is
//!   leaked on purpose misses it; the next call says so.
//! - After the end, or an error, the iteration stays over.
//! - Mappings are not trusted: what does not make sense is a [`Corruption`].
#![forbid(unsafe_code)]

mod check;
mod error;
mod iter;
mod mapping;
mod op;
mod ops;
mod simple;
#[cfg(test)]
mod tests;

pub use error::{Corruption, MapError};
pub use iter::{IomapIter, STALE_LIMIT, Step};
pub use mapping::{Mapping, MappingFlags, MappingKind};
pub use op::{OpFlags, Request};
pub use ops::{Begun, Ended, MapOps, Short};
pub use simple::{SimpleError, SimpleLimits, SimpleRead, read_simple};
