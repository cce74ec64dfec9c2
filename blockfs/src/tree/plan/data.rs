//! Contents: write, truncate, fallocate.
//!
//! Bytes behind the end in a file's last block are zero on the drive, always: who shortens a file
//! or writes a part of a new block zeroes the rest ([`Plan::zero`]), so that growing needs nothing.
//! The blocks behind the end may be reserved, but are never written.

use super::{Plan, Room};
use crate::bugs::{self, Bug};
use crate::format::BLOCK_BYTES;
use crate::format::op::{Attrs, Extent, Ino, MAX_FILE_BLOCKS, MAX_FILE_BYTES, Op};
use crate::tree::extents::{ExtentMap, end};
use crate::tree::query::Segment;
use crate::tree::{PosixError, Tree};
use std::ops::Range;

/// What becomes of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// It has blocks; the file grows to its end.
    Reserve,
    /// It has blocks; the file keeps its size.
    ReserveKeepSize,
    /// It is a hole; the file keeps its size.
    Punch,
    /// It reads as zeros and has blocks; the file grows to its end.
    Zero,
    /// It reads as zeros and has blocks; the file keeps its size.
    ZeroKeepSize,
}

impl Tree {
    /// `len` bytes at `offset` were written to the drive: into what is mapped, and into `new`,
    /// blocks for the holes of the range. Mapping, conversion and size are one record; a write over
    /// written blocks inside the file needs none, and the plan is empty.
    ///
    /// [`Plan::zero`] is what the write leaves of blocks that were never written.
    ///
    /// # Errors
    /// [`PosixError::Stale`] if `new` does not lie in holes of the range or leaves any;
    /// [`PosixError::FileTooLarge`], [`PosixError::NoSpace`]; [`PosixError::NotFound`],
    /// [`PosixError::IsDirectory`], [`PosixError::Invalid`].
    pub fn plan_write(
        &self,
        ino: Ino,
        (offset, len): (u64, u64),
        new: &[Extent],
        now_ns: i64,
    ) -> Result<Plan<'static>, PosixError> {
        let file = self.file(ino)?;
        let bytes = byte_range(offset, len)?;
        let range = outer(&bytes);
        if bytes.is_empty() {
            return Ok(Plan::default());
        }
        self.fills_holes(ino, &range, new)?;
        let mut ops = map(ino, new, false);
        if file
            .parts(range.start, range.end)
            .any(|extent| extent.unwritten)
            && !bugs::on(Bug::ConversionForgotten)
        {
            let (lblk, len) = op_range(&range)?;
            ops.push(Op::ConvertRange { ino, lblk, len });
        }
        let size = self.get(ino)?.core.size;
        if ops.is_empty() && bytes.end <= size {
            return Ok(Plan::default());
        }
        ops.push(contents_changed(ino, Some(size.max(bytes.end)), now_ns));
        let fresh = |block: u64| !is_written(file, block);
        let edges = [
            range.start * BLOCK_BYTES..bytes.start,
            bytes.end..range.end * BLOCK_BYTES,
        ];
        let zero = edges.into_iter().filter(|edge| !edge.is_empty());
        let zero = zero
            .filter(|edge| fresh(edge.start / BLOCK_BYTES))
            .collect();
        Ok(Plan {
            zero,
            ..self.admit(ops, Room::Ordinary)?
        })
    }

    /// What a file would show of its last block if it grew to `to` bytes or more, if anything. It reads
    /// as zeros only if it is zeroed first: a write behind the end that failed, or whose record did not
    /// survive a power cut, may have left data there.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::IsDirectory`], [`PosixError::Invalid`].
    pub(crate) fn behind_end(&self, ino: Ino, to: u64) -> Result<Option<Range<u64>>, PosixError> {
        let file = self.file(ino)?;
        let size = self.get(ino)?.core.size;
        let behind = size..size.next_multiple_of(BLOCK_BYTES).min(to);
        let shown = !behind.is_empty() && is_written(file, size / BLOCK_BYTES);
        Ok(shown.then_some(behind))
    }

    /// The file ends at `size`; what was behind it goes, what was reserved there too.
    /// [`Plan::zero`] is the rest of the last block, of a file that grows what it shows then of it.
    ///
    /// # Errors
    /// [`PosixError::FileTooLarge`]; as [`Tree::plan_write`].
    pub fn plan_truncate(
        &self,
        ino: Ino,
        size: u64,
        now_ns: i64,
    ) -> Result<Plan<'static>, PosixError> {
        let file = self.file(ino)?;
        if size > MAX_FILE_BYTES {
            return Err(PosixError::FileTooLarge);
        }
        let mut ops = Vec::new();
        let mut zero = Vec::new();
        if size <= self.get(ino)?.core.size {
            let keep = size.div_ceil(BLOCK_BYTES);
            if file.from(keep).next().is_some() {
                let (lblk, len) = op_range(&(keep..u64::from(MAX_FILE_BLOCKS)))?;
                ops.push(Op::UnmapRange { ino, lblk, len });
            }
            let tail = size..keep * BLOCK_BYTES;
            let old = self.get(ino)?.core.size;
            if size < old && !tail.is_empty() && is_written(file, size / BLOCK_BYTES) {
                zero.push(tail);
            }
        } else {
            zero.extend(self.behind_end(ino, size)?);
        }
        ops.push(contents_changed(ino, Some(size), now_ns));
        Ok(Plan {
            zero,
            ..self.admit(ops, Room::Freeing)?
        })
    }

    /// Changes what a range of a file is. `new` is blocks for the holes that
    /// [`Tree::fallocate_needs`] says. [`Plan::zero`] is what is left of blocks that are only
    /// partly in the range, and what a file that grows shows of its last block then.
    ///
    /// # Errors
    /// [`PosixError::Invalid`] for an empty range; as [`Tree::plan_write`].
    pub fn plan_fallocate(
        &self,
        ino: Ino,
        mode: Fallocate,
        (offset, len): (u64, u64),
        new: &[Extent],
        now_ns: i64,
    ) -> Result<Plan<'static>, PosixError> {
        let file = self.file(ino)?;
        let bytes = byte_range(offset, len)?;
        if bytes.is_empty() {
            return Err(PosixError::Invalid("the range is empty"));
        }
        let mut ops = Vec::new();
        let inner = bytes.start.div_ceil(BLOCK_BYTES)..bytes.end / BLOCK_BYTES;
        let mut zero = Vec::new();
        let mut room = Room::Ordinary;
        match mode {
            Fallocate::Punch => {
                self.fills_nothing(new)?;
                if !inner.is_empty()
                    && file.parts(inner.start, inner.end).next().is_some()
                    && !bugs::on(Bug::PunchForgotten)
                {
                    let (lblk, len) = op_range(&inner)?;
                    ops.push(Op::UnmapRange { ino, lblk, len });
                }
                zero = partial(file, &bytes);
                room = Room::Freeing;
            }
            Fallocate::Reserve | Fallocate::ReserveKeepSize => {
                self.fills_holes(ino, &outer(&bytes), new)?;
            }
            Fallocate::Zero | Fallocate::ZeroKeepSize => {
                self.fills_holes(ino, &outer(&bytes), new)?;
                unwrite(ino, file, &inner, &mut ops);
                zero = partial(file, &bytes);
            }
        }
        ops.extend(map(ino, new, true));
        let size = self.get(ino)?.core.size;
        let grows = matches!(mode, Fallocate::Reserve | Fallocate::Zero) && bytes.end > size;
        if grows {
            zero.extend(self.behind_end(ino, bytes.end)?);
        }
        if ops.is_empty() && zero.is_empty() && !grows {
            return Ok(Plan::default());
        }
        ops.push(contents_changed(ino, grows.then_some(bytes.end), now_ns));
        Ok(Plan {
            zero,
            ..self.admit(ops, room)?
        })
    }

    /// The holes that a write or a fallocate of these bytes needs blocks for, as (first block,
    /// blocks).
    ///
    /// # Errors
    /// [`PosixError::FileTooLarge`]; [`PosixError::NotFound`], [`PosixError::IsDirectory`],
    /// [`PosixError::Invalid`].
    pub fn fallocate_needs(
        &self,
        ino: Ino,
        (offset, len): (u64, u64),
    ) -> Result<impl Iterator<Item = (u32, u32)> + '_, PosixError> {
        let range = outer(&byte_range(offset, len)?);
        let (lblk, len) = op_range(&range)?;
        let segments = self.segments(ino, lblk, len)?;
        Ok(segments.filter_map(|segment| match segment {
            Segment::Hole { lblk, len } => Some((lblk, len)),
            Segment::Extent(_) => None,
        }))
    }

    /// That `new` fills the holes of `range`, all of them and nothing else.
    fn fills_holes(&self, ino: Ino, range: &Range<u64>, new: &[Extent]) -> Result<(), PosixError> {
        let (lblk, len) = op_range(range)?;
        let mut new = new.iter();
        for segment in self.segments(ino, lblk, len)? {
            let Segment::Hole { lblk, len } = segment else {
                continue;
            };
            let mut at = u64::from(lblk);
            let to = at + u64::from(len);
            while at < to {
                let next = new.next().filter(|next| u64::from(next.lblk) == at);
                let next = next.filter(|next| next.len > 0 && end(next) <= to);
                at = next.map(end).ok_or(PosixError::Stale)?;
            }
        }
        self.fills_nothing(new.as_slice())
    }

    fn fills_nothing(&self, new: &[Extent]) -> Result<(), PosixError> {
        new.is_empty().then_some(()).ok_or(PosixError::Stale)
    }
}

fn map(ino: Ino, new: &[Extent], unwritten: bool) -> Vec<Op<'static>> {
    let ops = new.iter().map(|&extent| Op::MapExtent {
        ino,
        extent: Extent {
            unwritten,
            ..extent
        },
    });
    ops.collect()
}

/// What is written in `range` keeps its blocks, but reads as zeros.
fn unwrite(ino: Ino, file: &ExtentMap, range: &Range<u64>, ops: &mut Vec<Op<'_>>) {
    if range.is_empty() {
        return;
    }
    let written = file.parts(range.start, range.end);
    for extent in written.filter(|extent| !extent.unwritten) {
        let Extent { lblk, len, .. } = extent;
        ops.push(Op::UnmapRange { ino, lblk, len });
        ops.extend(map(ino, &[extent], true));
    }
}

/// What `bytes` has of written blocks that are not all in it.
fn partial(file: &ExtentMap, bytes: &Range<u64>) -> Vec<Range<u64>> {
    let head_end = bytes.start.next_multiple_of(BLOCK_BYTES).min(bytes.end);
    let tail_start = (bytes.end / BLOCK_BYTES * BLOCK_BYTES).max(head_end);
    let edges = [bytes.start..head_end, tail_start..bytes.end];
    let edges = edges.into_iter().filter(|edge| !edge.is_empty());
    let edges = edges.filter(|edge| is_written(file, edge.start / BLOCK_BYTES));
    edges.collect()
}

fn is_written(file: &ExtentMap, block: u64) -> bool {
    let mut parts = file.parts(block, block + 1);
    parts.next().is_some_and(|extent| !extent.unwritten)
}

fn byte_range(offset: u64, len: u64) -> Result<Range<u64>, PosixError> {
    let to = offset.checked_add(len).filter(|&to| to <= MAX_FILE_BYTES);
    Ok(offset..to.ok_or(PosixError::FileTooLarge)?)
}

/// The blocks that have a byte of `bytes`.
const fn outer(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start / BLOCK_BYTES;
    if bytes.start == bytes.end {
        return start..start;
    }
    start..bytes.end.div_ceil(BLOCK_BYTES)
}

fn op_range(range: &Range<u64>) -> Result<(u32, u32), PosixError> {
    let lblk = u32::try_from(range.start).map_err(|_| PosixError::FileTooLarge)?;
    let len = range.end.saturating_sub(range.start);
    let len = u32::try_from(len).map_err(|_| PosixError::FileTooLarge)?;
    Ok((lblk, len))
}

fn contents_changed(ino: Ino, size: Option<u64>, now_ns: i64) -> Op<'static> {
    let attrs = Attrs {
        size,
        mtime_ns: Some(now_ns),
        ctime_ns: Some(now_ns),
        ..Attrs::default()
    };
    Op::SetAttr { ino, attrs }
}
