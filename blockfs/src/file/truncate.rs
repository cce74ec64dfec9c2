//! Truncation and fallocate: changes of the map that may have to zero parts of blocks first.

use super::Tag;
use super::op::{At, Hands, Outcome};
use super::script::Script;
use super::write::zero_ios;
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::BLOCK_BYTES;
use crate::format::op::{Extent, Ino};
use crate::fs::core::Core;
use crate::fs::ranges::RangeLock;
use crate::fs::{File, FsError};
use crate::grace::{Flights, Ticket};
use crate::iostat::IoStat;
use crate::journal::MetaTag;
use crate::tree::{Fallocate, Plan, PosixError};
use std::ops::Range;

/// Polls that a reservation without space waits for blocks whose freeing is durable already.
const PATIENCE: u32 = 64;

/// Pieces of a file that one change concerns at most: it has to fit into the smallest record.
const PIECES_A_CHANGE: usize = 128;

/// What becomes of the file.
#[derive(Clone, Copy, Debug)]
enum What {
    Truncate(u64),
    Fallocate(Fallocate, u64, u64),
}

/// A change under way.
#[derive(Debug)]
pub(super) struct Change {
    what: What,
    patience: u32,
    lock: Option<RangeLock>,
    slowed: bool,
    new: Vec<Extent>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits for the journal, the range, and blocks.
    Begin,
    /// Waits until writes that were in flight have ended.
    Quiet(Ticket, Vec<Range<u64>>),
    /// Zeroes parts of blocks.
    Zero(Script),
    /// Changes the map.
    Change,
}

impl Change {
    pub(super) const fn truncate(size: u64) -> Self {
        Self::new(What::Truncate(size))
    }

    pub(super) const fn fallocate(mode: Fallocate, offset: u64, len: u64) -> Self {
        Self::new(What::Fallocate(mode, offset, len))
    }

    const fn new(what: What) -> Self {
        Self {
            what,
            patience: 0,
            lock: None,
            slowed: false,
            new: Vec::new(),
            stage: Stage::Begin,
        }
    }

    pub(super) fn go_on<T, Q, D, S>(
        &mut self,
        file: &File,
        at: &mut At<'_, Q, D, S>,
        hands: &mut Hands<'_>,
    ) -> Outcome
    where
        Q: BlockDevice<Tag<T, S>>,
        D: BlockDevice<MetaTag>,
        S: IoStat,
    {
        match self.try_on(file.ino(), at, hands) {
            Ok(None) => None,
            Ok(Some(())) => {
                self.give_up(file, at.core);
                Some(Ok(0))
            }
            Err(error) => {
                at.core.give_back(&std::mem::take(&mut self.new));
                self.give_up(file, at.core);
                Some(Err(error))
            }
        }
    }

    fn try_on<T, Q, D, S>(
        &mut self,
        ino: Ino,
        at: &mut At<'_, Q, D, S>,
        hands: &mut Hands<'_>,
    ) -> Result<Option<()>, FsError>
    where
        Q: BlockDevice<Tag<T, S>>,
        D: BlockDevice<MetaTag>,
        S: IoStat,
    {
        loop {
            match &mut self.stage {
                Stage::Begin => {
                    if !self.begin(ino, at.core)? {
                        return Ok(None);
                    }
                }
                Stage::Quiet(ticket, zero) => {
                    if !at.core.periods.passed(*ticket) {
                        return Ok(None);
                    }
                    let mut ios = Vec::new();
                    for range in zero {
                        let extents = at.core.written(ino, range)?;
                        zero_ios(&extents, range, at.lba_shift, &mut ios);
                    }
                    self.stage = Stage::Zero(Script::new(ios, None));
                }
                Stage::Zero(script) => {
                    let Some(result) = script.go_on(at, hands.returned) else {
                        return Ok(None);
                    };
                    result?;
                    if !bugs::on(Bug::ZeroedTailNotFlushed) {
                        at.core.journal.data_written();
                    }
                    self.stage = Stage::Change;
                }
                Stage::Change => {
                    self.change(ino, at.core, at.shared.wall.now_ns())?;
                    return Ok(Some(()));
                }
            }
        }
    }

    /// Takes the range and blocks, and finds out what is to be zeroed. `false`: something has to be
    /// waited for.
    fn begin<D: BlockDevice<MetaTag>>(
        &mut self,
        ino: Ino,
        core: &mut Core<D>,
    ) -> Result<bool, FsError> {
        core.writable()?;
        if core.journal.must_wait() {
            return Ok(false);
        }
        let size = core.size(ino)?;
        let blocks = match self.what {
            What::Truncate(to) => to.min(size) / BLOCK_BYTES..u64::MAX,
            What::Fallocate(_, offset, len) => {
                let end = offset.checked_add(len).ok_or(PosixError::FileTooLarge)?;
                let behind = core.tree.behind_end(ino, end)?;
                let from = behind.map_or(offset, |behind| offset.min(behind.start));
                from / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
            }
        };
        let Some(lock) = core.ranges.lock(ino, blocks) else {
            return Ok(false);
        };
        if let What::Fallocate(mode, offset, len) = self.what
            && mode != Fallocate::Punch
        {
            match core.fill_holes(ino, (offset, len)) {
                Ok(new) => self.new = new,
                Err(FsError::NoSpace { .. })
                    if core.wait_for_frees(&mut self.patience, PATIENCE) =>
                {
                    core.ranges.unlock(lock);
                    return Ok(false);
                }
                Err(error) => {
                    core.ranges.unlock(lock);
                    return Err(error);
                }
            }
        }
        self.lock = Some(lock);
        let zero = match self.what {
            What::Truncate(to) => core.tree.plan_truncate(ino, to, 0)?.zero,
            What::Fallocate(mode, offset, len) => {
                let plan = core
                    .tree
                    .plan_fallocate(ino, mode, (offset, len), &self.new, 0)?;
                plan.zero
            }
        };
        if zero.is_empty() || bugs::on(Bug::TailNotZeroed) {
            self.stage = Stage::Change;
            return Ok(true);
        }
        let map = core.tree.file_map(ino)?;
        core.open.slow(ino, true, map, &mut core.periods);
        self.slowed = true;
        let ticket = core.periods.ticket(Flights::Writes);
        core.periods.advance();
        self.stage = Stage::Quiet(ticket, zero);
        Ok(true)
    }

    fn change<D: BlockDevice<MetaTag>>(
        &mut self,
        ino: Ino,
        core: &mut Core<D>,
        now: i64,
    ) -> Result<(), FsError> {
        let (mode, offset, len) = match self.what {
            What::Truncate(size) => {
                let plan = core.tree.plan_truncate(ino, size, now)?;
                return core.change(&plan).map(drop);
            }
            What::Fallocate(mode, offset, len) => (mode, offset, len),
        };
        let end = offset + len;
        let mut from = offset;
        while from < end {
            // One change removes any number of extents, but makes only so many.
            let to = match mode {
                Fallocate::Punch => end,
                _ => self.part_end(ino, core, from, end)?,
            };
            let split = self
                .new
                .partition_point(|extent| u64::from(extent.lblk) * BLOCK_BYTES < to);
            let rest = self.new.split_off(split);
            let plan: Plan<'static> =
                core.tree
                    .plan_fallocate(ino, mode, (from, to - from), &self.new, now)?;
            core.change(&plan)?;
            self.new = rest;
            from = to;
        }
        Ok(())
    }

    /// Where a part of `from..end` ends that has few enough pieces.
    fn part_end<D: BlockDevice<MetaTag>>(
        &self,
        ino: Ino,
        core: &Core<D>,
        from: u64,
        end: u64,
    ) -> Result<u64, FsError> {
        let first = from / BLOCK_BYTES;
        let old = core.placed(ino, &(from..end))?;
        let old = old.iter().map(|extent| u64::from(extent.lblk));
        let new = self.new.iter().map(|extent| u64::from(extent.lblk));
        let mut starts: Vec<u64> = old.chain(new).filter(|&lblk| lblk > first).collect();
        starts.sort_unstable();
        let to = starts.get(PIECES_A_CHANGE);
        Ok(to.map_or(end, |to| to * BLOCK_BYTES))
    }

    /// Gives back what others wait for.
    pub(super) fn give_up<D: BlockDevice<MetaTag>>(&mut self, file: &File, core: &mut Core<D>) {
        core.end_exclusive(
            file.ino(),
            std::mem::take(&mut self.slowed),
            self.lock.take(),
        );
    }
}
