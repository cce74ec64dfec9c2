//! Walking PRPs: from the two entries of a command to the pieces of host memory.
//!
//! NVMe base 2.x, "Physical Region Page Entry and List".

use super::Controller;
use crate::dma::DmaMap;
use crate::raw::Span;
use driver::spec::{Sqe, Status};

/// Bytes of a PRP entry.
const ENTRY: u64 = 8;

/// Appends the pieces of the `len` bytes that `prp1` and `prp2` describe, in pages of `1 << shift`.
///
/// # Errors
/// `PRP Offset Invalid` where an offset must be zero or aligned and is not, `Data Transfer Error`
/// where memory is not mapped. Nothing has been transferred then.
pub(super) fn walk(
    dma: &mut DmaMap,
    (prp1, prp2): (u64, u64),
    len: usize,
    shift: u32,
    out: &mut Vec<Span>,
) -> Result<(), Status> {
    let page = 1usize << shift;
    let offset_of = |address: u64| address & ((1u64 << shift) - 1);
    // Offsets in the first page are whole dwords.
    if prp1 & 3 != 0 {
        return Err(Status::PRP_OFFSET_INVALID.with_dnr());
    }
    let mut take = |dma: &mut DmaMap, iova: u64, len: usize| match dma.spans(iova, len, out) {
        true => Ok(()),
        false => Err(Status::DATA_TRANSFER_ERROR),
    };
    let first = len.min(page - usize::try_from(offset_of(prp1)).unwrap_or(0));
    take(dma, prp1, first)?;
    let mut rest = len - first;
    if rest == 0 {
        return Ok(());
    }
    if rest <= page {
        // The second entry is the second page, and begins with it.
        return match offset_of(prp2) {
            0 => take(dma, prp2, rest),
            _ => Err(Status::PRP_OFFSET_INVALID.with_dnr()),
        };
    }
    // It points to a list otherwise, which may begin anywhere in a page at a whole entry.
    if prp2 & (ENTRY - 1) != 0 {
        return Err(Status::PRP_OFFSET_INVALID.with_dnr());
    }
    let mut at = prp2;
    while rest > 0 {
        let last_of_page = offset_of(at) + ENTRY == 1u64 << shift;
        let entry = dma.part(at, 8).and_then(|span| span.load_u64(0));
        let entry = entry.ok_or(Status::DATA_TRANSFER_ERROR)?;
        if offset_of(entry) != 0 {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        if last_of_page && rest > page {
            // More than one page is left: the last entry points to the next page of the list. That
            // begins with an entry that is not its last, so every round of this loop but one moves
            // on.
            at = entry;
            continue;
        }
        let len = rest.min(page);
        take(dma, entry, len)?;
        rest -= len;
        at = at.wrapping_add(ENTRY);
    }
    Ok(())
}

impl Controller {
    /// Runs `action` on the pieces of a command's data buffer.
    pub(super) fn with_data<R>(
        &mut self,
        sqe: &Sqe,
        len: usize,
        action: impl FnOnce(&mut Self, &[Span]) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        let prps = (sqe.prp1, sqe.prp2);
        let result = walk(&mut self.dma, prps, len, self.page_shift, &mut spans)
            .and_then(|()| action(self, &spans));
        self.spans = spans;
        result
    }

    /// Sends `data` to the host.
    pub(super) fn reply(&mut self, sqe: &Sqe, data: &[u8]) -> Result<(), Status> {
        self.with_data(sqe, data.len(), |_, spans| {
            let mut from = Span::source(data);
            for &span in spans {
                span.copy_from(from);
                from = from
                    .slice(span.len(), from.len().saturating_sub(span.len()))
                    .unwrap_or(from);
            }
            Ok(())
        })
    }

    /// Takes as many bytes as `data` holds from the host.
    pub(super) fn request(&mut self, sqe: &Sqe, data: &mut [u8]) -> Result<(), Status> {
        let len = data.len();
        let mut into = Span::target(data);
        self.with_data(sqe, len, |_, spans| {
            for &span in spans {
                into.copy_from(span);
                into = into
                    .slice(span.len(), into.len().saturating_sub(span.len()))
                    .unwrap_or(into);
            }
            Ok(())
        })
    }
}
