//! The short path for a small read: one look-up, no iterator.

use super::check;
use super::error::MapError;
use super::mapping::MappingKind;
use super::op::{OpFlags, Request};
use super::ops::{MapOps, Short};
use std::mem::needs_drop;

/// Which reads may take the short path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleLimits {
    align_mask: u64,
    block: u64,
}

impl SimpleLimits {
    /// Reads of at most `block` bytes, with position and length a multiple of `align` bytes. `None`
    /// if either is not a power of two.
    #[must_use]
    pub const fn new(align: u32, block: u32) -> Option<Self> {
        if !align.is_power_of_two() || !block.is_power_of_two() {
            return None;
        }
        Some(Self {
            align_mask: align as u64 - 1,
            block: block as u64,
        })
    }
}

/// A read that needs nothing but one command.
#[derive(Debug, PartialEq, Eq)]
pub struct SimpleRead<F> {
    /// Where on the device, in bytes.
    pub addr: u64,
    /// The cookie of the mapping: compare it again before use if the map's lock was dropped.
    pub cookie: u32,
    /// The caller's hold on the file's I/O count. Keep it until the command has ended.
    pub flight: F,
}

/// Why the short path has no answer. What was in flight is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimpleError<E> {
    /// Nothing has been done: take the general path.
    NotSimple,
    /// Final: the general path would say the same.
    Failed(E),
}

/// Looks up a read of `len` bytes at `pos`, if it is as simple as that: not empty, not larger than
/// one block, aligned, within the file's size, and in one mapped extent.
///
/// `flight` is the count of the file's I/O in flight, already taken, so that truncate and punch
/// wait: it goes into the answer, and is dropped on every other way out. `op` is a read's: `DIRECT`
/// and `NOWAIT` may be in it.
///
/// The answers are those of an [`IomapIter`](super::IomapIter) over the same range.
///
/// # Errors
/// [`SimpleError`]. Ops that have an `end`, or hold what must be released, are not simple.
///
/// # Examples
///
/// ```
/// use blockfs::iomap::{Begun, MapError, MapOps, Mapping, OpFlags, Request};
/// use blockfs::iomap::{SimpleError, SimpleLimits, read_simple};
///
/// /// A file of 8192 bytes in one extent at 1 MiB.
/// struct OneExtent;
///
/// impl MapOps for OneExtent {
///     type Error = MapError;
///     type Private = ();
///     type Held = ();
///     const HAS_END: bool = false;
///     fn size(&self) -> u64 {
///         8192
///     }
///     fn begin(&mut self, _: Request) -> Result<Begun, MapError> {
///         Ok(Mapping::mapped(1 << 20, 0, 8192).into())
///     }
/// }
///
/// let limits = SimpleLimits::new(512, 4096).ok_or("not powers of two")?;
/// let read = |pos, len| read_simple(&mut OneExtent, (), limits, pos, len, OpFlags::DIRECT);
/// assert_eq!(read(4096, 4096).map(|read| read.addr), Ok((1 << 20) + 4096));
/// assert_eq!(read(0, 8192), Err(SimpleError::NotSimple), "two blocks");
/// # Ok::<(), &str>(())
/// ```
#[inline]
pub fn read_simple<O: MapOps, F>(
    ops: &mut O,
    flight: F,
    limits: SimpleLimits,
    pos: u64,
    len: u64,
    op: OpFlags,
) -> Result<SimpleRead<F>, SimpleError<O::Error>> {
    // Decided when it is compiled.
    if O::HAS_END || needs_drop::<O::Held>() {
        return Err(SimpleError::NotSimple);
    }
    let fits = len.wrapping_sub(1) < limits.block && (pos | len) & limits.align_mask == 0;
    if !fits || !op.is_within(OpFlags::DIRECT | OpFlags::NOWAIT) {
        return Err(SimpleError::NotSimple);
    }
    match ops.short(pos, len) {
        Short::Mapped { addr } => {
            return Ok(SimpleRead {
                addr,
                cookie: 0,
                flight,
            });
        }
        Short::NotSimple => return Err(SimpleError::NotSimple),
        Short::Unknown => {}
    }
    // An overflowing range is not within the file; the general path says so.
    if !matches!(pos.checked_add(len), Some(end) if end <= ops.size()) {
        return Err(SimpleError::NotSimple);
    }
    let request = Request { pos, len, op };
    let begun = ops.begin(request).map_err(SimpleError::Failed)?;
    let mapping = &begun.mapping;
    // First of all, so that the checks of other kinds are not compiled in. Should they fail, the
    // general path says so.
    if mapping.kind() != MappingKind::Mapped {
        return Err(SimpleError::NotSimple);
    }
    let usable = check::usable::<O>(&begun, request)
        .map_err(|error: MapError| SimpleError::Failed(error.into()))?;
    if usable < len || check::real_source(begun.source.as_ref()).is_some() {
        return Err(SimpleError::NotSimple);
    }
    Ok(SimpleRead {
        // Checked: `pos` is within the mapping, and the mapping's end on the device does not
        // overflow.
        addr: mapping.raw_addr() + (pos - mapping.offset()),
        cookie: mapping.cookie(),
        flight,
    })
}
