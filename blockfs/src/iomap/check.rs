//! The checks that every answer of `begin` goes through, on the general and on the short path.

use super::error::{Corruption, MapError};
use super::mapping::{Mapping, MappingFlags, MappingKind};
use super::op::{OpFlags, Request};
use super::ops::{Begun, MapOps};

/// Where in the file a mapping ends, if it makes sense as an answer for `pos`.
#[inline]
fn mapping_end(mapping: &Mapping, pos: u64) -> Result<u64, Corruption> {
    if mapping.length() == 0 {
        return Err(Corruption::Empty);
    }
    if mapping.offset() > pos {
        return Err(Corruption::StartsBehind);
    }
    let Some(end) = mapping.offset().checked_add(mapping.length()) else {
        return Err(Corruption::FileOverflow);
    };
    if end <= pos {
        return Err(Corruption::EndsBefore);
    }
    // An address of `NO_ADDR` overflows too.
    if mapping.kind().has_address() && mapping.raw_addr().checked_add(mapping.length()).is_none() {
        return Err(Corruption::DeviceOverflow);
    }
    if mapping.flags().contains(MappingFlags::STALE) {
        return Err(Corruption::Stale);
    }
    Ok(end)
}

/// How many bytes from `request.pos` on can be worked on, all limits considered: more than zero.
#[inline]
pub(super) fn usable<O: MapOps>(
    begun: &Begun<O::Private, O::Held>,
    request: Request,
) -> Result<u64, MapError> {
    let corrupt = |what| MapError::Corrupt {
        pos: request.pos,
        what,
    };
    let mapping = &begun.mapping;
    let mut end = mapping_end(mapping, request.pos).map_err(corrupt)?;
    match mapping.kind() {
        MappingKind::Hole
            if request.op.contains(OpFlags::WRITE)
                && !request.op.intersects(OpFlags::ZERO | OpFlags::UNSHARE) =>
        {
            return Err(corrupt(Corruption::HoleForWrite));
        }
        MappingKind::Inline => {
            let data = u64::try_from(O::inline_data(&begun.held).len()).unwrap_or(u64::MAX);
            if mapping.length() > data {
                return Err(corrupt(Corruption::InlineTooLong));
            }
        }
        _ => {}
    }
    if let Some(source) = real_source(begun.source.as_ref()) {
        end = end.min(mapping_end(source, request.pos).map_err(corrupt)?);
    }
    Ok(request.len.min(end - request.pos))
}

/// What the operation's flags demand of a mapping of which `usable` bytes count. `begin` has the
/// duty to see to it before any side effect; this is the second look.
#[inline]
pub(super) fn flags_obeyed(
    mapping: &Mapping,
    usable: u64,
    request: Request,
) -> Result<(), MapError> {
    let op = request.op;
    if op.contains(OpFlags::ATOMIC) && usable < request.len {
        return Err(MapError::NotAtomic {
            wanted: request.len,
            covered: usable,
        });
    }
    if op.contains(OpFlags::NOWAIT) && usable < request.len {
        return Err(MapError::WouldBlock);
    }
    let needs_more_than_overwriting = mapping.kind() != MappingKind::Mapped
        || mapping.flags().contains(MappingFlags::NEW)
        || mapping.flags().contains(MappingFlags::SHARED);
    if op.contains(OpFlags::OVERWRITE_ONLY) && needs_more_than_overwriting {
        return Err(MapError::WouldBlock);
    }
    Ok(())
}

/// A source that is there and is not a hole.
#[inline]
pub(super) fn real_source(source: Option<&Mapping>) -> Option<&Mapping> {
    source.filter(|source| source.kind() != MappingKind::Hole)
}
