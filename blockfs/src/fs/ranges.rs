//! Who works on which part of a file: operations that change the map exclude each other by range.

use crate::format::op::Ino;
use std::collections::HashMap;
use std::ops::Range;

/// A lock that was granted. It is given back with [`Ranges::unlock`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "nobody else gets the range before it is unlocked"]
pub(crate) struct RangeLock {
    ino: Ino,
    id: u64,
}

/// The locked ranges of all files, in blocks.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    held: HashMap<Ino, Vec<(u64, Range<u64>)>>,
    next: u64,
}

impl Ranges {
    /// Locks `blocks` of a file, or `None` if somebody has a part of them.
    pub(crate) fn lock(&mut self, ino: Ino, blocks: Range<u64>) -> Option<RangeLock> {
        let held = self.held.entry(ino).or_default();
        let overlaps = |other: &Range<u64>| other.start < blocks.end && blocks.start < other.end;
        if held.iter().any(|(_, other)| overlaps(other)) {
            return None;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        held.push((id, blocks));
        Some(RangeLock { ino, id })
    }

    /// Gives a range back.
    pub(crate) fn unlock(&mut self, lock: RangeLock) {
        if let Some(held) = self.held.get_mut(&lock.ino) {
            held.retain(|(id, _)| *id != lock.id);
            if held.is_empty() {
                self.held.remove(&lock.ino);
            }
        }
    }

    /// Whether nobody works on any file.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether nobody works on this file.
    pub(crate) fn is_idle(&self, ino: Ino) -> bool {
        !self.held.contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Overlapping ranges of one file exclude each other; others do not.
    #[test]
    fn overlapping_ranges_exclude_each_other() {
        let mut ranges = Ranges::default();
        let first = ranges.lock(1, 4..8).expect("free");
        assert!(ranges.lock(1, 7..9).is_none());
        assert!(ranges.lock(1, 0..5).is_none());
        let other = ranges.lock(2, 4..8).expect("another file");
        let next = ranges.lock(1, 8..9).expect("beside it");
        ranges.unlock(first);
        let again = ranges.lock(1, 4..8).expect("given back");
        assert!(!ranges.is_idle(1));
        for lock in [other, next, again] {
            ranges.unlock(lock);
        }
        assert!(ranges.is_idle(1) && ranges.is_idle(2));
    }
}
