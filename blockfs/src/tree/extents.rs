//! The extents of one file: sorted arrays, keys apart from values.
//!
//! Up to eight extents lie in the inode itself; more go to chunks of at most [`CHUNK`], so that an
//! insertion moves little. Neighbours that can be one extent are one, whatever the order in which
//! they came: the same blocks have one form.

use crate::format::op::{Extent, MAX_EXTENT_BLOCKS};
use std::sync::Arc;

mod find;
pub(super) use find::TOPS;
#[cfg(test)]
mod tests;

/// Extents that need no memory of their own.
const INLINE: usize = 8;
/// Extents in a chunk.
const CHUNK: usize = 512;

/// An extent without its key: 48 bits of address, 31 of length, and one for "unwritten".
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    len_unwritten: u32,
    low: u32,
    high: u32,
}

const UNWRITTEN: u32 = 1 << 31;

impl Place {
    fn new(extent: Extent) -> Self {
        let [a, b, c, d, e, f, g, h] = extent.pblk.to_le_bytes();
        let flag = if extent.unwritten { UNWRITTEN } else { 0 };
        Self {
            len_unwritten: extent.len & !UNWRITTEN | flag,
            low: u32::from_le_bytes([a, b, c, d]),
            high: u32::from_le_bytes([e, f, g, h]),
        }
    }

    fn extent(self, lblk: u32) -> Extent {
        Extent {
            lblk,
            pblk: u64::from(self.low) | u64::from(self.high) << 32,
            len: self.len_unwritten & !UNWRITTEN,
            unwritten: self.len_unwritten & UNWRITTEN != 0,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    keys: Vec<u32>,
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
enum Form {
    Inline {
        len: usize,
        keys: [u32; INLINE],
        places: [Place; INLINE],
    },
    /// No chunk is empty; `firsts` has the first key of each. Chunks are shared with the maps that
    /// readers and checkpoints have.
    Chunked {
        firsts: Vec<u32>,
        chunks: Vec<Arc<Chunk>>,
    },
}

impl Default for Form {
    fn default() -> Self {
        Self::Inline {
            len: 0,
            keys: [0; INLINE],
            places: [Place::default(); INLINE],
        }
    }
}

/// The extents of a file. A clone shares what it can.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtentMap {
    form: Form,
    count: u64,
    blocks: u64,
}

/// The first block of the file after `extent`.
pub(super) fn end(extent: &Extent) -> u64 {
    u64::from(extent.lblk) + u64::from(extent.len)
}

/// `extent` from `from` up to `to`, both of which are in it or at its ends.
fn part(extent: &Extent, from: u64, to: u64) -> Option<Extent> {
    let from = from.max(extent.lblk.into());
    let to = to.min(end(extent));
    let len = u32::try_from(to.checked_sub(from)?).ok()?;
    let skip = from - u64::from(extent.lblk);
    (len > 0).then_some(Extent {
        lblk: u32::try_from(from).ok()?,
        pblk: extent.pblk + skip,
        len,
        unwritten: extent.unwritten,
    })
}

fn mergeable(left: &Extent, right: &Extent) -> bool {
    left.unwritten == right.unwritten
        && end(left) == u64::from(right.lblk)
        && left.pblk + u64::from(left.len) == right.pblk
        && u64::from(left.len) + u64::from(right.len) <= u64::from(MAX_EXTENT_BLOCKS)
}

/// What is at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This extent.
    Extent(Extent),
    /// Nothing, from here to there; to the end of all if there is no end.
    Hole { from: u64, to: Option<u64> },
}

impl ExtentMap {
    /// How many extents.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Blocks that they have.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The extents that end after block `lblk`, in order.
    pub(super) fn from(&self, lblk: u64) -> Iter<'_> {
        let key = u32::try_from(lblk).ok();
        let key = key.filter(|_| self.last().is_some_and(|last| end(&last) > lblk));
        let Some(key) = key else {
            // Behind the last, as what is appended is: nothing to search.
            return Iter {
                map: self,
                chunk: usize::MAX,
                at: 0,
            };
        };
        let (chunk, after) = self.locate(key);
        let mut iter = Iter {
            map: self,
            chunk,
            at: after,
        };
        let before = after.checked_sub(1).and_then(|at| self.get(chunk, at));
        if before.is_some_and(|extent| end(&extent) > lblk) {
            iter.at -= 1;
        }
        iter
    }

    /// The parts of the extents in [`lblk`, `to`).
    pub(super) fn parts(&self, lblk: u64, to: u64) -> impl Iterator<Item = Extent> + '_ {
        self.from(lblk)
            .take_while(move |extent| u64::from(extent.lblk) < to)
            .filter_map(move |extent| part(&extent, lblk, to))
    }

    /// Adds `extent`, which lies in a hole.
    pub(super) fn insert(&mut self, extent: Extent) {
        let mut extent = extent;
        let last = self.last();
        // Files grow at their end, and a checkpoint builds them there.
        if last.is_none_or(|last| end(&last) <= extent.lblk.into() && !mergeable(&last, &extent)) {
            self.insert_plain(extent);
            return;
        }
        let left = extent.lblk.checked_sub(1);
        let left = left.and_then(|left| self.from(left.into()).next());
        if let Some(left) = left.filter(|left| mergeable(left, &extent)) {
            self.remove_starting(left.lblk.into(), end(&left));
            extent = Extent {
                len: left.len + extent.len,
                ..left
            };
        }
        let right = self.from(end(&extent)).next();
        if let Some(right) = right.filter(|right| mergeable(&extent, right)) {
            self.remove_starting(right.lblk.into(), end(&right));
            extent.len += right.len;
        }
        self.insert_plain(extent);
    }

    /// Adds the first of `extents` that go behind all others, as far as the last chunk has room. Says
    /// how many; those after it take [`ExtentMap::insert`].
    pub(super) fn append(&mut self, extents: &[Extent]) -> usize {
        let Form::Chunked { chunks, .. } = &mut self.form else {
            return 0;
        };
        let Some(chunk) = chunks.last_mut().map(Arc::make_mut) else {
            return 0;
        };
        let (Some(&key), Some(place)) = (chunk.keys.last(), chunk.places.last()) else {
            return 0;
        };
        let mut last = place.extent(key);
        let room = CHUNK.saturating_sub(chunk.keys.len());
        let mut appended = 0;
        for &extent in extents.iter().take(room) {
            if end(&last) > u64::from(extent.lblk) || mergeable(&last, &extent) {
                break;
            }
            chunk.keys.push(extent.lblk);
            chunk.places.push(Place::new(extent));
            self.blocks += u64::from(extent.len);
            last = extent;
            appended += 1;
        }
        self.count += appended as u64;
        appended
    }

    /// Makes a hole of [`lblk`, `to`); what was there, in order.
    pub(super) fn unmap(&mut self, lblk: u64, to: u64) -> Vec<Extent> {
        let first = self.from(lblk).next();
        let Some(first) = first.filter(|first| u64::from(first.lblk) < to) else {
            return Vec::new();
        };
        let mut removed = self.remove_starting(first.lblk.into(), to);
        if let Some(head) = part(&first, 0, lblk) {
            self.insert_plain(head);
        }
        if let Some(last) = removed.last().copied() {
            let tail = part(&last, to, u64::MAX).filter(|_| end(&last) > to);
            if let Some(tail) = tail {
                self.insert_plain(tail);
            }
        }
        for extent in &mut removed {
            if let Some(part) = part(extent, lblk, to) {
                *extent = part;
            }
        }
        removed
    }

    /// Makes written what is unwritten in [`lblk`, `to`).
    pub(super) fn convert(&mut self, lblk: u64, to: u64) {
        let unwritten = self.parts(lblk, to).filter(|extent| extent.unwritten);
        for extent in unwritten.collect::<Vec<_>>() {
            self.unmap(extent.lblk.into(), end(&extent));
            self.insert(Extent {
                unwritten: false,
                ..extent
            });
        }
    }

    /// The extent that has block `lblk`, or the hole there as [`from`, `to`).
    pub(super) fn look_up(&self, lblk: u32) -> Found {
        let next = self.from(lblk.into()).next();
        match next.filter(|extent| extent.lblk <= lblk) {
            Some(extent) => Found::Extent(extent),
            None => self.hole_at(lblk),
        }
    }

    /// The hole that block `lblk` is in.
    fn hole_at(&self, lblk: u32) -> Found {
        let (chunk, at) = self.locate(lblk);
        let before = at.checked_sub(1).and_then(|at| self.get(chunk, at));
        let from = before.map_or(0, |before| end(&before));
        let next = self.get(chunk, at).or_else(|| self.get(chunk + 1, 0));
        Found::Hole {
            from,
            to: next.map(|next| next.lblk.into()),
        }
    }

    fn last(&self) -> Option<Extent> {
        match &self.form {
            Form::Inline { len, .. } => self.get(0, len.checked_sub(1)?),
            Form::Chunked { chunks, .. } => {
                let chunk = chunks.len().checked_sub(1)?;
                self.get(chunk, chunks[chunk].keys.len().checked_sub(1)?)
            }
        }
    }

    /// The chunk that has the place for `key`, and how many of its keys are not greater.
    fn locate(&self, key: u32) -> (usize, usize) {
        // Behind the last there is nothing to search.
        let not_greater = |keys: &[u32]| match keys.last() {
            Some(&last) if last <= key => keys.len(),
            _ => keys.partition_point(|&other| other <= key),
        };
        match &self.form {
            Form::Inline { len, keys, .. } => (0, not_greater(&keys[..*len])),
            Form::Chunked { firsts, chunks } => {
                let chunk = not_greater(firsts).saturating_sub(1);
                let at = chunks
                    .get(chunk)
                    .map_or(0, |chunk| not_greater(&chunk.keys));
                (chunk, at)
            }
        }
    }

    fn get(&self, chunk: usize, at: usize) -> Option<Extent> {
        let (keys, places) = match &self.form {
            Form::Inline { len, keys, places } if chunk == 0 => (&keys[..*len], &places[..]),
            Form::Inline { .. } => return None,
            Form::Chunked { chunks, .. } => {
                let chunk = chunks.get(chunk)?;
                (&chunk.keys[..], &chunk.places[..])
            }
        };
        Some(places.get(at)?.extent(*keys.get(at)?))
    }

    fn insert_plain(&mut self, extent: Extent) {
        let (chunk, at) = self.locate(extent.lblk);
        self.count += 1;
        self.blocks += u64::from(extent.len);
        let place = Place::new(extent);
        match &mut self.form {
            Form::Inline { len, keys, places } if *len < INLINE => {
                keys.copy_within(at..*len, at + 1);
                places.copy_within(at..*len, at + 1);
                keys[at] = extent.lblk;
                places[at] = place;
                *len += 1;
            }
            Form::Inline { keys, places, .. } => {
                let mut only = Chunk {
                    keys: keys.to_vec(),
                    places: places.to_vec(),
                };
                only.keys.insert(at, extent.lblk);
                only.places.insert(at, place);
                self.form = Form::Chunked {
                    firsts: only.keys[..1].to_vec(),
                    chunks: vec![Arc::new(only)],
                };
            }
            Form::Chunked { firsts, chunks } => {
                insert_chunked(firsts, chunks, (chunk, at), extent.lblk, place);
            }
        }
    }

    /// Takes out the extents that start in [`from`, `to`), whole.
    fn remove_starting(&mut self, from: u64, to: u64) -> Vec<Extent> {
        let mut removed = Vec::new();
        let inside = |keys: &[u32]| {
            let start = keys.partition_point(|&key| u64::from(key) < from);
            start..keys.partition_point(|&key| u64::from(key) < to).max(start)
        };
        match &mut self.form {
            Form::Inline { len, keys, places } => {
                let range = inside(&keys[..*len]);
                for at in range.clone() {
                    removed.push(places[at].extent(keys[at]));
                }
                keys.copy_within(range.end..*len, range.start);
                places.copy_within(range.end..*len, range.start);
                *len -= range.len();
                // A look-up reads the first even if there is none: it must find no blocks there.
                places[*len..].fill(Place::default());
            }
            Form::Chunked { firsts, chunks } => {
                let start = firsts.partition_point(|&key| u64::from(key) <= from);
                let start = start.saturating_sub(1);
                let stop = firsts
                    .partition_point(|&key| u64::from(key) < to)
                    .max(start);
                for chunk in &mut chunks[start..stop] {
                    let range = inside(&chunk.keys);
                    if range.is_empty() {
                        continue;
                    }
                    let chunk = Arc::make_mut(chunk);
                    let keys = chunk.keys.drain(range.clone());
                    let places = chunk.places.drain(range);
                    removed.extend(keys.zip(places).map(|(key, place)| place.extent(key)));
                }
                // Only the outer two can have something left.
                let empty = |chunk: &Arc<Chunk>| chunk.keys.is_empty();
                let kept_left = chunks[start..stop].first().is_some_and(|c| !empty(c));
                let kept_right = chunks[start..stop].last().is_some_and(|c| !empty(c));
                let left = start + usize::from(kept_left);
                let right = (stop - usize::from(kept_right)).max(left);
                firsts.drain(left..right);
                chunks.drain(left..right);
                for (first, chunk) in firsts.iter_mut().zip(&*chunks).skip(start).take(2) {
                    *first = chunk.keys.first().copied().unwrap_or(*first);
                }
            }
        }
        self.count -= removed.len() as u64;
        self.blocks -= removed
            .iter()
            .map(|extent| u64::from(extent.len))
            .sum::<u64>();
        // Half of what fits, so that a file at the limit does not change its form each time.
        if matches!(self.form, Form::Chunked { .. }) && self.count <= INLINE as u64 / 2 {
            let rest: Vec<Extent> = self.from(0).collect();
            *self = Self::default();
            for extent in rest {
                self.insert_plain(extent);
            }
        }
        removed
    }
}

fn insert_chunked(
    firsts: &mut Vec<u32>,
    chunks: &mut Vec<Arc<Chunk>>,
    (chunk, at): (usize, usize),
    key: u32,
    place: Place,
) {
    let Some(target) = chunks.get_mut(chunk).map(Arc::make_mut) else {
        return;
    };
    if target.keys.len() < CHUNK {
        target.keys.insert(at, key);
        target.places.insert(at, place);
        firsts[chunk] = target.keys[0];
        return;
    }
    // A file that grows at its end leaves full chunks behind; elsewhere halves.
    let middle = if at == CHUNK { CHUNK } else { CHUNK / 2 };
    let mut right = Chunk {
        keys: Vec::with_capacity(CHUNK),
        places: Vec::with_capacity(CHUNK),
    };
    right.keys.extend(target.keys.drain(middle..));
    right.places.extend(target.places.drain(middle..));
    let (half, at) = if at >= middle {
        (&mut right, at - middle)
    } else {
        (target, at)
    };
    half.keys.insert(at, key);
    half.places.insert(at, place);
    firsts[chunk] = chunks[chunk].keys[0];
    firsts.insert(chunk + 1, right.keys[0]);
    chunks.insert(chunk + 1, Arc::new(right));
}

/// Extents in order.
#[derive(Clone, Debug)]
pub(super) struct Iter<'a> {
    map: &'a ExtentMap,
    chunk: usize,
    at: usize,
}

impl Iterator for Iter<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        loop {
            if let Some(extent) = self.map.get(self.chunk, self.at) {
                self.at += 1;
                return Some(extent);
            }
            if self.at == 0 {
                return None;
            }
            self.chunk = self.chunk.saturating_add(1);
            self.at = 0;
        }
    }
}
