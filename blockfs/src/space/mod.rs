//! Free space: runs of blocks in memory, derived from the extents at mount and never stored.
//!
//! Blocks are 4 KiB. Memory and time follow the number of runs, not the size of the volume. Whoever
//! journals says when freed blocks may be used again: [`Space::free`] puts them into *limbo*, and
//! [`Space::release`] makes them free once the record that frees them is durable and no I/O on them
//! is in flight any more. Nothing here does I/O or knows the time.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | building, freeing, growing, statistics |
//! | `alloc.rs` | where new blocks are taken from; reservations; allocation groups |
//! | `runs.rs` | disjoint runs, by start and by length |
//! | `error.rs` | what can go wrong |
#![forbid(unsafe_code)]

mod alloc;
mod error;
mod runs;
#[cfg(test)]
mod tests;

pub use alloc::{Goal, Request, Reservation, Source};
pub use error::SpaceError;

use crate::format::BLOCK_BYTES;
use crate::format::geometry::BlockRange;
use crate::format::op::Ino;
use runs::Runs;
use std::collections::BTreeMap;

/// Blocks of an allocation group unless said otherwise: 1 GiB.
pub const GROUP_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Blocks of an allocation group, one at least.
    pub group_blocks: u64,
    /// Blocks that only [`Source::Internal`] may have.
    pub kept_blocks: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            group_blocks: GROUP_BLOCKS,
            kept_blocks: 0,
        }
    }
}

/// Blocks in use and by whom; the inode is only for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which blocks.
    pub blocks: BlockRange,
    /// Whose they are.
    pub ino: Ino,
}

/// What [`Space::free`] put into limbo. There is one [`Space::release`] for each.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the blocks stay in limbo until the token is released"]
pub struct Token(u64);

/// How much there is, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// All that files can be made of.
    pub total: u64,
    /// Free, those reserved included.
    pub free: u64,
    /// Freed, but not to be used yet.
    pub limbo: u64,
    /// Free, but promised.
    pub reserved: u64,
    /// Neither free nor in limbo.
    pub used: u64,
    /// The longest free run.
    pub longest_run: u64,
    /// Free runs (a count, not blocks).
    pub runs: u64,
}

/// The free space of a volume.
///
/// # Examples
///
/// ```
/// use blockfs::format::geometry::BlockRange;
/// use blockfs::space::{Goal, Options, Request, Source, Space, Used};
///
/// # fn main() -> Result<(), blockfs::space::SpaceError> {
/// let data = BlockRange { start: 100, blocks: 1000 };
/// let used = [Used { blocks: BlockRange { start: 100, blocks: 10 }, ino: 7 }];
/// let mut space = Space::build(data, Options::default(), used)?;
/// let request = Request { goal: Goal::Continue(110), wanted: 5, least: 1 };
/// let got = space.allocate(request, Source::Ordinary)?;
/// assert_eq!(got, BlockRange { start: 110, blocks: 5 });
///
/// let token = space.free(&[got])?;
/// assert_eq!(space.stats().limbo, 5);
/// // ... the record is durable, and no I/O is in flight ...
/// space.release(token)?;
/// assert_eq!(space.stats().free, 990);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Space {
    data: BlockRange,
    options: Options,
    free: Runs,
    /// In limbo, start to length, so that nothing is freed twice.
    limbo: BTreeMap<u64, u64>,
    limbo_blocks: u64,
    tokens: BTreeMap<u64, Vec<BlockRange>>,
    next_token: u64,
    reserved: u64,
}

impl Space {
    /// All of `data` but what is `used` is free.
    ///
    /// # Errors
    /// [`SpaceError::OutOfRange`] and [`SpaceError::Overlap`] if the extents are damaged;
    /// [`SpaceError::Options`].
    pub fn build(
        data: BlockRange,
        options: Options,
        used: impl IntoIterator<Item = Used>,
    ) -> Result<Self, SpaceError> {
        if options.group_blocks == 0 {
            return Err(SpaceError::Options);
        }
        let mut used: Vec<Used> = used.into_iter().collect();
        // The stable sort is the one that takes little where much is in order already.
        used.sort_by_key(|used| used.blocks.start);
        let mut free = Vec::new();
        let mut next = data.start;
        let mut last: Option<Used> = None;
        for each in used {
            check_inside(data, each.blocks, Some(each.ino))?;
            if let Some(first) = last.filter(|first| first.blocks.overlaps(each.blocks)) {
                return Err(SpaceError::Overlap {
                    first,
                    second: each,
                });
            }
            if each.blocks.start > next {
                free.push((next, each.blocks.start - next));
            }
            next = each.blocks.end();
            last = Some(each);
        }
        if data.end() > next {
            free.push((next, data.end() - next));
        }
        Ok(Self {
            data,
            options,
            free: Runs::from_sorted(free),
            limbo: BTreeMap::new(),
            limbo_blocks: 0,
            tokens: BTreeMap::new(),
            next_token: 0,
            reserved: 0,
        })
    }

    /// Nothing of `data` is free: for a damaged volume that is only read.
    #[must_use]
    pub fn empty(data: BlockRange, options: Options) -> Self {
        Self {
            data,
            options,
            free: Runs::from_sorted(Vec::new()),
            limbo: BTreeMap::new(),
            limbo_blocks: 0,
            tokens: BTreeMap::new(),
            next_token: 0,
            reserved: 0,
        }
    }

    /// Gives blocks back, all of `ranges` or none: they are in limbo until the token is released.
    ///
    /// # Errors
    /// [`SpaceError::OutOfRange`]; [`SpaceError::NotInUse`] for what is free already or in limbo.
    pub fn free(&mut self, ranges: &[BlockRange]) -> Result<Token, SpaceError> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut before: Option<BlockRange> = None;
        for &range in &sorted {
            check_inside(self.data, range, None)?;
            let twice = before.filter(|before| before.overlaps(range));
            if let Some(found) = twice.or_else(|| self.not_in_use(range)) {
                return Err(SpaceError::NotInUse { range, found });
            }
            before = Some(range);
        }
        Ok(self.put_into_limbo(sorted))
    }

    /// Makes the blocks of a token free. Only when the record that frees them is durable **and** no
    /// I/O that started before is in flight.
    ///
    /// # Errors
    /// [`SpaceError::UnknownToken`] for another volume's.
    pub fn release(&mut self, token: Token) -> Result<(), SpaceError> {
        let ranges = self
            .tokens
            .remove(&token.0)
            .ok_or(SpaceError::UnknownToken)?;
        for range in ranges {
            self.limbo.remove(&range.start);
            self.limbo_blocks = self.limbo_blocks.saturating_sub(range.blocks);
            self.free.insert(range);
        }
        Ok(())
    }

    /// The data area has grown at its end.
    ///
    /// # Errors
    /// [`SpaceError::Shrinks`] if `data` is smaller than before or starts elsewhere.
    pub fn grow(&mut self, data: BlockRange) -> Result<(), SpaceError> {
        if data.start != self.data.start || data.blocks < self.data.blocks {
            return Err(SpaceError::Shrinks {
                from: self.data,
                to: data,
            });
        }
        let more = BlockRange {
            start: self.data.end(),
            blocks: data.blocks - self.data.blocks,
        };
        self.data = data;
        if more.blocks > 0 {
            self.free.insert(more);
        }
        Ok(())
    }

    /// The free runs from block `from` on, in order; none that is in limbo.
    pub fn free_runs(&self, from: u64) -> impl Iterator<Item = BlockRange> + '_ {
        self.free.from(from)
    }

    /// Takes free blocks for a discard: the first run at or after `from`, cut to `most` blocks.
    /// Nobody is given them until the token is released, when the discard has completed. Runs
    /// shorter than `least` are passed over; promised blocks are not taken.
    pub fn take_for_discard(
        &mut self,
        from: u64,
        least: u64,
        most: u64,
    ) -> Option<(BlockRange, Token)> {
        let most = most.min(self.free.blocks().saturating_sub(self.reserved));
        let least = least.max(1);
        let run = self.free.from(from).find(|run| run.blocks >= least)?;
        let taken = BlockRange {
            start: run.start,
            blocks: run.blocks.min(most),
        };
        if taken.blocks < least {
            return None;
        }
        self.free.take(taken);
        let token = self.put_into_limbo(vec![taken]);
        Some((taken, token))
    }

    /// How much there is.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let free = self.free.blocks();
        Stats {
            total: self.data.blocks,
            free,
            limbo: self.limbo_blocks,
            reserved: self.reserved,
            used: self
                .data
                .blocks
                .saturating_sub(free)
                .saturating_sub(self.limbo_blocks),
            longest_run: self.free.longest().map_or(0, |run| run.blocks),
            runs: self.free.count() as u64,
        }
    }

    /// What files can be made of.
    #[must_use]
    pub const fn data(&self) -> BlockRange {
        self.data
    }

    /// What of `range` is free or in limbo, so that it cannot be in use.
    #[must_use]
    pub fn not_in_use(&self, range: BlockRange) -> Option<BlockRange> {
        self.free.overlapping(range).or_else(|| {
            let (&start, &blocks) = self.limbo.range(..range.end()).next_back()?;
            let found = BlockRange { start, blocks };
            found.overlaps(range).then_some(found)
        })
    }

    fn put_into_limbo(&mut self, ranges: Vec<BlockRange>) -> Token {
        for range in &ranges {
            self.limbo.insert(range.start, range.blocks);
            self.limbo_blocks = self.limbo_blocks.saturating_add(range.blocks);
        }
        let token = self.next_token;
        self.next_token = self.next_token.wrapping_add(1);
        self.tokens.insert(token, ranges);
        Token(token)
    }
}

fn check_inside(data: BlockRange, range: BlockRange, ino: Option<Ino>) -> Result<(), SpaceError> {
    if range.blocks > 0 && data.contains(range) {
        return Ok(());
    }
    Err(SpaceError::OutOfRange { range, data, ino })
}
