//! What a volume's threads share: one state behind one lock, which nobody holds while waiting.
//!
//! Whoever waits for anything calls [`Core::pump`], which moves everything on as far as it goes: the
//! journal, freed blocks, files that are closed. No thread is needed for another one's progress.

use super::error::FsError;
use super::open::OpenFiles;
use super::ranges::{RangeLock, Ranges};
use crate::bugs::{self, Bug};
use crate::device::{BlockDevice, Limits};
use crate::format::BLOCK_BYTES;
use crate::format::geometry::{BlockRange, Geometry};
use crate::format::op::{Extent, Ino, MAX_EXTENT_BLOCKS, Op};
use crate::grace::{Flights, Grace, Periods, Ticket};
use crate::journal::{FlushId, Journal, MetaTag, Txid};
use crate::space::{Goal, Request, Source, Space, Token};
use crate::tree::{Plan, PosixError, Segment, Tree};
use driver::clock::Clock;
use driver::memory::DmaDomain;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock that knows the date.
pub trait WallClock: Debug + Send + Sync {
    /// Nanoseconds since 1970.
    fn now_ns(&self) -> i64;
}

/// The operating system's date.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWallClock;

impl WallClock for SystemWallClock {
    fn now_ns(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
        })
    }
}

/// What all handles of a mounted volume share.
#[derive(Debug)]
pub(crate) struct Shared<D> {
    core: Mutex<Core<D>>,
    /// Tells volumes of this process apart.
    pub(crate) volume: VolumeId,
    /// The last record that is durable, for those who look without the lock.
    pub(crate) durable: AtomicU64,
    /// Whether the journal has stopped, for those who look without the lock.
    pub(crate) stopped: AtomicBool,
    pub(crate) grace: Arc<Grace>,
    pub(crate) domain: DmaDomain,
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<dyn WallClock>,
    /// How long a blocking call may wait.
    pub(crate) limit: Duration,
}

/// A number that a mounted volume has to itself in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeId(u64);

impl VolumeId {
    /// No volume's.
    pub(crate) const NONE: Self = Self(0);

    /// This number if `so`, or else none.
    pub(crate) const fn only_if(self, so: bool) -> Self {
        if so { self } else { Self::NONE }
    }

    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What is needed to share a volume.
#[derive(Debug)]
pub(crate) struct SharedParts {
    pub(crate) grace: Arc<Grace>,
    pub(crate) domain: DmaDomain,
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) limit: Duration,
}

impl<D> Shared<D> {
    pub(crate) fn new(core: Core<D>, parts: SharedParts) -> Self {
        Self {
            core: Mutex::new(core),
            volume: VolumeId::next(),
            durable: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            grace: parts.grace,
            domain: parts.domain,
            limits: parts.limits,
            read_only: parts.read_only,
            clock: parts.clock,
            wall: parts.wall,
            limit: parts.limit,
        }
    }

    /// The state. A panic under the lock can only have come from a bug; what it left is consistent
    /// enough to be looked at, and the journal knows what it has not made durable.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core<D>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_core(self) -> Core<D> {
        let core = self.core.into_inner();
        core.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: BlockDevice<MetaTag>> Shared<D> {
    /// The state after it was moved on.
    pub(crate) fn pump(&self) -> MutexGuard<'_, Core<D>> {
        let mut core = self.lock();
        self.pump_locked(&mut core);
        core
    }

    /// Moves the state on, and tells those who look without the lock.
    pub(crate) fn pump_locked(&self, core: &mut Core<D>) {
        core.pump();
        self.durable
            .store(core.journal.durable().0, Ordering::Release);
        if core.journal.failed().is_some() {
            self.stopped.store(true, Ordering::Release);
        }
    }
}

/// Blocks that were freed and may not be used yet.
#[derive(Debug)]
struct Freeing {
    /// The record that frees them.
    txid: Txid,
    /// Until everything in flight at that time has ended.
    ticket: Ticket,
    token: Token,
}

/// What must have become durable for a sync to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncPoint {
    txid: Txid,
    flush: Option<FlushId>,
}

/// A queue's count of completed writes that may lie in the drive's cache; written by its owner only.
pub(crate) type WriteCount = Arc<AtomicU64>;

/// The state of a volume.
#[derive(Debug)]
pub(crate) struct Core<D> {
    pub(crate) tree: Tree,
    pub(crate) space: Space,
    pub(crate) journal: Journal<D>,
    pub(crate) periods: Periods,
    pub(crate) geometry: Geometry,
    pub(crate) open: OpenFiles,
    pub(crate) ranges: Ranges,
    freeing: VecDeque<Freeing>,
    writes: Vec<WriteCount>,
    /// The sum of those counts when a flush was last asked for.
    writes_seen: u64,
    /// Of queues that are gone.
    writes_gone: u64,
}

impl<D: BlockDevice<MetaTag>> Core<D> {
    pub(crate) fn new(
        tree: Tree,
        space: Space,
        journal: Journal<D>,
        periods: Periods,
        geometry: Geometry,
    ) -> Self {
        Self {
            tree,
            space,
            journal,
            periods,
            geometry,
            open: OpenFiles::default(),
            ranges: Ranges::default(),
            freeing: VecDeque::new(),
            writes: Vec::new(),
            writes_seen: 0,
            writes_gone: 0,
        }
    }

    /// Moves everything on as far as it goes without waiting.
    pub(crate) fn pump(&mut self) {
        // A failure is sticky; whoever waits for durability looks there.
        let _ = self.journal.pump(&mut self.tree);
        self.periods.advance();
        self.release();
        self.reap();
    }

    /// Makes a change: in memory at once, durable with a later record.
    pub(crate) fn change(&mut self, plan: &Plan<'_>) -> Result<Txid, FsError> {
        if plan.ops.is_empty() {
            return Ok(self.journal.last());
        }
        self.writable()?;
        self.journal.fits(&plan.ops)?;
        let effects = self.tree.apply(&plan.ops)?;
        let txid = self.append(&plan.ops)?;
        for &ino in &effects.touched {
            let map = self.tree.file_map(ino).ok();
            self.open.publish(ino, map, txid, &mut self.periods);
        }
        if !effects.freed.is_empty() {
            let token = self.space.free(&effects.freed)?;
            if bugs::on(Bug::BlocksReusedAtOnce) {
                let _ = self.space.release(token);
                return Ok(txid);
            }
            let ticket = self.periods.ticket(Flights::All);
            self.freeing.push_back(Freeing {
                txid,
                ticket,
                token,
            });
        }
        Ok(txid)
    }

    fn append(&mut self, ops: &[Op<'_>]) -> Result<Txid, FsError> {
        let stopped = |error| FsError::Stopped(Arc::new(error));
        if bugs::on(Bug::ChangeInSeveralRecords) {
            let mut last = self.journal.last();
            for op in ops {
                last = self
                    .journal
                    .append(std::slice::from_ref(op))
                    .map_err(stopped)?;
                self.journal.cut();
            }
            return Ok(last);
        }
        self.journal.append(ops).map_err(stopped)
    }

    /// That changes are still accepted.
    pub(crate) fn writable(&self) -> Result<(), FsError> {
        match self.journal.failed() {
            None => Ok(()),
            Some(error) => Err(FsError::Stopped(Arc::new(error.clone()))),
        }
    }

    fn release(&mut self) {
        let durable = self.journal.durable();
        // In the order of their records; a grace period that lasts does not hold up those behind it.
        let mut at = 0;
        while let Some(front) = self.freeing.get(at).filter(|front| front.txid <= durable) {
            if !self.periods.passed(front.ticket) {
                at += 1;
                continue;
            }
            if let Some(freed) = self.freeing.remove(at) {
                // The token is this space's.
                let _ = self.space.release(freed.token);
            }
        }
    }

    /// Frees what nobody has open any more.
    fn reap(&mut self) {
        if self.journal.is_read_only() || self.journal.failed().is_some() {
            return;
        }
        let closed: Vec<Ino> = self
            .tree
            .orphans()
            .filter(|&ino| !self.open.is_open(ino) && self.ranges.is_idle(ino))
            .collect();
        for ino in closed {
            if self.journal.must_wait() {
                return;
            }
            if let Ok(plan) = self.tree.plan_reap(ino) {
                // It is only put off if it fails: the orphan stays one.
                let _ = self.change(&plan);
                self.open.forget(ino);
            }
        }
    }

    /// Blocks for the holes of a range of a file, or none of them.
    pub(crate) fn fill_holes(
        &mut self,
        ino: Ino,
        (offset, len): (u64, u64),
    ) -> Result<Vec<Extent>, FsError> {
        let holes: Vec<(u32, u32)> = self.tree.fallocate_needs(ino, (offset, len))?.collect();
        let mut got: Vec<Extent> = Vec::new();
        for (lblk, len) in holes {
            let mut goal = self.goal(ino, lblk);
            let (mut at, mut left) = (lblk, len);
            while left > 0 {
                let request = Request {
                    goal,
                    wanted: u64::from(left.min(MAX_EXTENT_BLOCKS)),
                    least: 1,
                };
                let range = match self.space.allocate(request, Source::Ordinary) {
                    Ok(range) => range,
                    Err(error) => {
                        self.give_back(&got);
                        return Err(error.into());
                    }
                };
                // At most what was wanted.
                let blocks = u32::try_from(range.blocks).unwrap_or(left);
                got.push(Extent {
                    lblk: at,
                    pblk: range.start,
                    len: blocks,
                    unwritten: false,
                });
                goal = Goal::Continue(range.end());
                at += blocks;
                left -= blocks;
            }
        }
        Ok(got)
    }

    /// Gives back blocks that no file ever had, and nothing writes to any more.
    pub(crate) fn give_back(&mut self, extents: &[Extent]) {
        let ranges: Vec<BlockRange> = extents
            .iter()
            .map(|extent| BlockRange {
                start: extent.pblk,
                blocks: extent.len.into(),
            })
            .collect();
        if ranges.is_empty() {
            return;
        }
        if let Ok(token) = self.space.free(&ranges) {
            let _ = self.space.release(token);
        }
    }

    /// Whether it is worth waiting for blocks that are being freed; each call that only waits for
    /// what is in flight elsewhere costs patience.
    pub(crate) fn wait_for_frees(&mut self, patience: &mut u32, most: u32) -> bool {
        let durable = self.journal.durable();
        if self.freeing.iter().any(|freeing| freeing.txid > durable) {
            self.journal.commit();
            return true;
        }
        *patience = patience.saturating_add(1);
        !self.freeing.is_empty() && *patience <= most
    }

    /// The extents of a range of a file, cut to its blocks.
    pub(crate) fn placed(&self, ino: Ino, bytes: &Range<u64>) -> Result<Vec<Extent>, FsError> {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let (Ok(lblk), Ok(len)) = (
            u32::try_from(blocks.start),
            u32::try_from(blocks.end - blocks.start),
        ) else {
            return Err(PosixError::FileTooLarge.into());
        };
        let segments = self.tree.segments(ino, lblk, len)?;
        let extents = segments.filter_map(|segment| match segment {
            Segment::Extent(extent) => Some(extent),
            Segment::Hole { .. } => None,
        });
        Ok(extents.collect())
    }

    /// Of those, what was written.
    pub(crate) fn written(&self, ino: Ino, bytes: &Range<u64>) -> Result<Vec<Extent>, FsError> {
        let mut extents = self.placed(ino, bytes)?;
        extents.retain(|extent| !extent.unwritten);
        Ok(extents)
    }

    /// An operation on a range has ended.
    pub(crate) fn end_exclusive(&mut self, ino: Ino, slowed: bool, lock: Option<RangeLock>) {
        if slowed {
            let map = self.tree.file_map(ino).unwrap_or_default();
            self.open.slow(ino, false, map, &mut self.periods);
        }
        if let Some(lock) = lock {
            self.ranges.unlock(lock);
        }
    }

    /// Where the block `lblk` of a file is best: behind the one before it.
    fn goal(&self, ino: Ino, lblk: u32) -> Goal {
        let before = lblk.checked_sub(1);
        let before = before.and_then(|before| self.tree.segment(ino, before).ok());
        match before {
            Some(Segment::Extent(extent)) => {
                Goal::Continue(extent.pblk + u64::from(lblk - extent.lblk))
            }
            _ => self.space.directory_goal(ino),
        }
    }

    /// Whether every block is free or some file's.
    pub(crate) fn is_settled(&self) -> bool {
        self.freeing.is_empty() && self.ranges.is_empty()
    }

    /// A queue that writes data.
    pub(crate) fn add_queue(&mut self) -> WriteCount {
        let count = WriteCount::default();
        self.writes.push(Arc::clone(&count));
        count
    }

    /// The queue is gone.
    pub(crate) fn remove_queue(&mut self, gone: &WriteCount) {
        self.writes_gone += gone.load(Ordering::Relaxed);
        self.writes.retain(|count| !Arc::ptr_eq(count, gone));
    }

    /// Tells the journal if data were written since it was last told, in no record's name.
    fn note_data(&mut self) -> bool {
        let counts = self
            .writes
            .iter()
            .map(|count| count.load(Ordering::Acquire));
        let sum = counts.sum::<u64>() + self.writes_gone;
        let written = sum != self.writes_seen;
        if written {
            self.writes_seen = sum;
            self.journal.data_written();
        }
        written
    }

    /// Begins to make durable all that was changed up to `txid`, and all data whose writes have
    /// ended.
    pub(crate) fn begin_sync(&mut self, txid: Txid) -> Result<SyncPoint, FsError> {
        self.writable()?;
        self.note_data();
        if txid > self.journal.durable() {
            self.journal.commit();
        }
        let flush = Some(self.journal.flush());
        let _ = self.journal.pump(&mut self.tree);
        Ok(SyncPoint { txid, flush })
    }

    /// Whether a sync is done.
    pub(crate) fn synced(&self, point: SyncPoint) -> Result<bool, FsError> {
        if bugs::on(Bug::SyncAnswersAtOnce) {
            return Ok(true);
        }
        let flushed = point.flush.is_none_or(|flush| self.journal.flushed(flush));
        if flushed && point.txid <= self.journal.durable() {
            return Ok(true);
        }
        self.writable().map(|()| false)
    }

    /// The state of a file as those who read it see it.
    pub(crate) fn size(&self, ino: Ino) -> Result<u64, PosixError> {
        self.tree.stat(ino).map(|stat| stat.size)
    }
}
