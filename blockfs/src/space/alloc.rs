//! Where new blocks are taken from.
//!
//! In one piece if there is one: at the goal, else near it, else the shortest run that is long
//! enough, wherever; only then less than was wanted. Allocation groups cut no runs: they spread the
//! files of different directories, so that what grows together lies together.

use super::{Space, SpaceError};
use crate::format::geometry::BlockRange;
use crate::format::op::Ino;

/// Runs that are looked at on each side of the goal.
const NEAR_RUNS: usize = 8;

/// Where blocks would be best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Exactly from this block on, be it fewer than wanted: what is there grows without a new
    /// extent.
    Continue(u64),
    /// Somewhere near this block.
    Near(u64),
}

/// What is wanted: at least `least`, at most `wanted` blocks in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where.
    pub goal: Goal,
    /// Blocks at most; 0 is taken as 1.
    pub wanted: u64,
    /// Blocks at least; brought into 1 to `wanted`.
    pub least: u64,
}

/// Blocks that were promised: [`Space::reserve`] gives it, [`Space::unreserve`] takes the rest
/// back.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "what is not used has to be given back"]
pub struct Reservation {
    blocks: u64,
}

impl Reservation {
    /// Blocks that are left of it.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// On whose account blocks are taken.
#[derive(Debug)]
pub enum Source<'a> {
    /// What is neither promised nor kept.
    Ordinary,
    /// What was promised; it becomes less by what is taken.
    Reserved(&'a mut Reservation),
    /// The filesystem's own needs: what is kept, too.
    Internal,
}

impl Space {
    /// Takes free blocks, in one piece.
    ///
    /// # Errors
    /// [`SpaceError::NoSpace`], [`SpaceError::Fragmented`]: nothing has changed then.
    pub fn allocate(
        &mut self,
        request: Request,
        source: Source<'_>,
    ) -> Result<BlockRange, SpaceError> {
        let available = match &source {
            Source::Ordinary => self.available(),
            Source::Reserved(reservation) => reservation.blocks,
            Source::Internal => self.free.blocks().saturating_sub(self.reserved),
        };
        let least = request.least.clamp(1, request.wanted.max(1));
        if available < least {
            return Err(SpaceError::NoSpace { least, available });
        }
        let wanted = request.wanted.clamp(1, available);
        let Some(taken) = self.find(request.goal, wanted, least) else {
            let longest = self.free.longest().map_or(0, |run| run.blocks);
            return Err(SpaceError::Fragmented { least, longest });
        };
        self.free.take(taken);
        if let Source::Reserved(reservation) = source {
            reservation.blocks -= taken.blocks;
            self.reserved -= taken.blocks;
        }
        Ok(taken)
    }

    /// Promises `blocks` blocks, so that taking them later does not fail for want of space (it may
    /// take several pieces).
    ///
    /// # Errors
    /// [`SpaceError::NoSpace`].
    pub fn reserve(&mut self, blocks: u64) -> Result<Reservation, SpaceError> {
        let available = self.available();
        if blocks > available {
            return Err(SpaceError::NoSpace {
                least: blocks,
                available,
            });
        }
        self.reserved += blocks;
        Ok(Reservation { blocks })
    }

    /// Takes back what is left of a promise.
    pub fn unreserve(&mut self, reservation: Reservation) {
        self.reserved = self.reserved.saturating_sub(reservation.blocks);
    }

    /// Blocks that [`Source::Ordinary`] can have.
    #[must_use]
    pub const fn available(&self) -> u64 {
        self.free
            .blocks()
            .saturating_sub(self.reserved)
            .saturating_sub(self.options.kept_blocks)
    }

    /// Allocation groups of the volume.
    #[must_use]
    pub const fn groups(&self) -> u64 {
        self.data.blocks.div_ceil(self.options.group_blocks)
    }

    /// The blocks of an allocation group; empty behind the last.
    #[must_use]
    pub fn group(&self, group: u64) -> BlockRange {
        let skipped = group
            .saturating_mul(self.options.group_blocks)
            .min(self.data.blocks);
        BlockRange {
            start: self.data.start.saturating_add(skipped),
            blocks: self.options.group_blocks.min(self.data.blocks - skipped),
        }
    }

    /// Free blocks of an allocation group; takes time by the number of its runs.
    #[must_use]
    pub fn group_free(&self, group: u64) -> u64 {
        let group = self.group(group);
        self.free
            .from(group.start)
            .take_while(|run| run.start < group.end())
            .map(|run| run.end().min(group.end()) - run.start)
            .sum()
    }

    /// Where the files of directory `dir` begin: directories are spread over the groups, evenly and
    /// always the same way.
    #[must_use]
    pub fn directory_goal(&self, dir: Ino) -> Goal {
        // Fibonacci hashing: consecutive numbers land far apart.
        let hash = dir.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let group = (u128::from(hash) * u128::from(self.groups())) >> 64;
        // Less than the number of groups.
        let group = u64::try_from(group).unwrap_or(0);
        Goal::Near(self.group(group).start)
    }

    fn find(&self, goal: Goal, wanted: u64, least: u64) -> Option<BlockRange> {
        let cut = |run: BlockRange| BlockRange {
            start: run.start,
            blocks: run.blocks.min(wanted),
        };
        let (Goal::Continue(at) | Goal::Near(at)) = goal;
        let mut after = self.free.from(at);
        if let Goal::Continue(_) = goal {
            let exact = self.free.from(at).next();
            let exact = exact.filter(|run| run.start == at && run.blocks >= least);
            if exact.is_some() {
                return exact.map(cut);
            }
        }
        let whole = |run: &BlockRange| run.blocks >= wanted;
        after
            .by_ref()
            .take(NEAR_RUNS)
            .find(whole)
            .or_else(|| self.free.before(at).take(NEAR_RUNS).find(whole))
            .or_else(|| self.free.shortest_of(wanted))
            .or_else(|| self.free.longest().filter(|run| run.blocks >= least))
            .map(cut)
    }
}
