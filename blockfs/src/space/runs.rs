//! Disjoint runs of blocks that never touch, by start and by length.

use crate::format::geometry::BlockRange;
use std::collections::{BTreeMap, BTreeSet};

/// Every operation takes a time logarithmic in the number of runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    blocks: u64,
}

const fn run(start: u64, blocks: u64) -> BlockRange {
    BlockRange { start, blocks }
}

impl Runs {
    /// From (start, length) in order, no two touching.
    pub(super) fn from_sorted(runs: Vec<(u64, u64)>) -> Self {
        Self {
            by_length: runs.iter().map(|&(start, len)| (len, start)).collect(),
            blocks: runs.iter().map(|&(_, len)| len).sum(),
            by_start: runs.into_iter().collect(),
        }
    }

    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn count(&self) -> usize {
        self.by_start.len()
    }

    /// A run that has a block of `range`: the last one.
    pub(super) fn overlapping(&self, range: BlockRange) -> Option<BlockRange> {
        let last = self.before(range.end()).next()?;
        last.overlaps(range).then_some(last)
    }

    /// The runs that start before `block`, the last first.
    pub(super) fn before(&self, block: u64) -> impl Iterator<Item = BlockRange> + '_ {
        let runs = self.by_start.range(..block).rev();
        runs.map(|(&start, &len)| run(start, len))
    }

    /// What is free from `block` on, in order; the first may be the rest of a run.
    pub(super) fn from(&self, block: u64) -> impl Iterator<Item = BlockRange> + '_ {
        let rest = self.before(block).next().and_then(|run| {
            let blocks = run.end().checked_sub(block).filter(|&blocks| blocks > 0)?;
            Some(BlockRange {
                start: block,
                blocks,
            })
        });
        let runs = self.by_start.range(block..);
        rest.into_iter()
            .chain(runs.map(|(&start, &len)| run(start, len)))
    }

    /// The shortest run of at least `blocks`.
    pub(super) fn shortest_of(&self, blocks: u64) -> Option<BlockRange> {
        let &(len, start) = self.by_length.range((blocks, 0)..).next()?;
        Some(run(start, len))
    }

    pub(super) fn longest(&self) -> Option<BlockRange> {
        let &(len, start) = self.by_length.last()?;
        Some(run(start, len))
    }

    /// Adds `range`, no block of which is in a run; it grows together with what it touches.
    pub(super) fn insert(&mut self, range: BlockRange) {
        let mut start = range.start;
        let mut end = range.end();
        let left = self.before(start).next();
        if let Some(left) = left.filter(|run| run.end() == start) {
            self.remove(left);
            start = left.start;
        }
        if let Some(&len) = self.by_start.get(&end) {
            self.remove(run(end, len));
            end += len;
        }
        self.add(run(start, end - start));
    }

    /// Takes `range`, all of which is in one run.
    pub(super) fn take(&mut self, range: BlockRange) {
        let Some(whole) = self.overlapping(range) else {
            return;
        };
        self.remove(whole);
        self.add(run(whole.start, range.start.saturating_sub(whole.start)));
        self.add(run(range.end(), whole.end().saturating_sub(range.end())));
    }

    fn add(&mut self, run: BlockRange) {
        if run.blocks > 0 {
            self.by_start.insert(run.start, run.blocks);
            self.by_length.insert((run.blocks, run.start));
            self.blocks += run.blocks;
        }
    }

    fn remove(&mut self, run: BlockRange) {
        self.by_start.remove(&run.start);
        self.by_length.remove(&(run.blocks, run.start));
        self.blocks -= run.blocks;
    }
}
