//! Writes that are more than an overwrite: growth, holes, reserved blocks, unaligned ranges, zeros.
//!
//! The order is: lock the range, take blocks, write the data, and only when all of it has ended, change
//! the map, the size with it. A write that fails changes nothing. Where a file grows without being
//! written from its end on, what it shows of its last block is zeroed before the data.

use super::Tag;
use super::op::{At, Hands, Outcome};
use super::read::small;
use super::script::{Io, Script, copy};
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::BLOCK_BYTES;
use crate::format::op::{Extent, Ino};
use crate::fs::core::{Core, SyncPoint};
use crate::fs::ranges::RangeLock;
use crate::fs::{File, FsError};
use crate::grace::{Flights, Ticket};
use crate::iostat::IoStat;
use crate::journal::{MetaTag, Txid};
use crate::tree::PosixError;
use driver::memory::DmaBuf;
use std::ops::Range;

/// Extents that one change maps at most: it has to fit into the smallest record.
pub(super) const EXTENTS_A_CHANGE: usize = 256;

/// Polls that a write without space waits for blocks whose freeing is durable already.
const PATIENCE: u32 = 64;

/// A write under way.
#[derive(Debug)]
pub(super) struct Write {
    /// Where; the end of the file if not said.
    asked: Option<u64>,
    offset: u64,
    len: u64,
    dsync: bool,
    /// Zeros, without a buffer.
    zeroes: bool,
    placed: bool,
    patience: u32,
    lock: Option<RangeLock>,
    /// Whether writers are kept off the hot path for this.
    slowed: bool,
    new: Vec<Extent>,
    /// What the file shows of its last block when it has grown, and did not write.
    behind: Option<Range<u64>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits for the journal, the range, and blocks.
    Begin,
    /// Waits until writes that were in flight have ended.
    Quiet(Ticket),
    /// Zeroes what is behind the end of the file.
    Behind(Script),
    /// Reads what an unaligned write leaves of its first and last logical block.
    Fetch(Script),
    /// Writes the data.
    Data(Script),
    /// Waits for the record.
    Durable(SyncPoint),
}

impl Write {
    pub(super) const fn new(asked: Option<u64>, len: u64, dsync: bool) -> Self {
        Self {
            asked,
            offset: 0,
            len,
            dsync,
            zeroes: false,
            placed: false,
            patience: 0,
            lock: None,
            slowed: false,
            new: Vec::new(),
            behind: None,
            stage: Stage::Begin,
        }
    }

    pub(super) const fn zeroes(offset: u64, len: u64) -> Self {
        let mut write = Self::new(Some(offset), len, false);
        write.zeroes = true;
        write
    }

    const fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.len
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
            Ok(Some(())) => Some(Ok(self.len)),
            Err(error) => {
                at.core.give_back(&std::mem::take(&mut self.new));
                self.end(file.ino(), at.core, false);
                Some(Err(error))
            }
        }
    }

    /// Goes on as far as it goes; `None` while something has to be waited for.
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
                    if self.len == 0 {
                        return Ok(Some(()));
                    }
                    if !self.begin(ino, at, hands)? {
                        return Ok(None);
                    }
                }
                Stage::Quiet(ticket) => {
                    if !at.core.periods.passed(*ticket) {
                        return Ok(None);
                    }
                    let mut ios = Vec::new();
                    if let Some(behind) = &self.behind {
                        let extents = at.core.written(ino, behind)?;
                        zero_ios(&extents, behind, at.lba_shift, &mut ios);
                    }
                    self.stage = Stage::Behind(Script::new(ios, None));
                }
                Stage::Behind(script) => {
                    let Some(result) = script.go_on(at, hands.returned) else {
                        return Ok(None);
                    };
                    result?;
                    self.stage = match self.is_aligned(at.lba_shift) {
                        true => self.directly(ino, at, hands)?,
                        false => self.through_buffer(ino, at)?,
                    };
                }
                Stage::Fetch(script) => {
                    let Some(result) = script.go_on(at, hands.returned) else {
                        return Ok(None);
                    };
                    let work = std::mem::take(script).into_work();
                    result?;
                    self.stage = self.data_of_buffer(ino, at, hands, work)?;
                }
                Stage::Data(script) => {
                    let Some(result) = script.go_on(at, hands.returned) else {
                        return Ok(None);
                    };
                    let work = std::mem::take(script).into_work();
                    if hands.buf.is_none() {
                        *hands.buf = work;
                    }
                    result?;
                    let txid = self.change(ino, at)?;
                    self.end(ino, at.core, true);
                    if !self.dsync {
                        return Ok(Some(()));
                    }
                    self.stage = Stage::Durable(at.core.begin_sync(txid)?);
                }
                Stage::Durable(point) => {
                    return Ok(at.core.synced(*point)?.then_some(()));
                }
            }
        }
    }

    const fn is_aligned(&self, lba_shift: u32) -> bool {
        (self.offset | self.len) & ((1 << lba_shift) - 1) == 0
    }

    /// Takes place, range and blocks. `false`: something has to be waited for.
    fn begin<Q, D, S>(
        &mut self,
        ino: Ino,
        at: &mut At<'_, Q, D, S>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, FsError>
    where
        D: BlockDevice<MetaTag>,
    {
        let core = &mut *at.core;
        core.writable()?;
        if core.journal.must_wait() {
            return Ok(false);
        }
        if !self.placed {
            self.offset = match self.asked {
                Some(offset) => offset,
                None => {
                    let size = core.size(ino)?;
                    core.open.begin_append(ino, size, self.len)
                }
            };
            self.placed = true;
        }
        let Some(end) = self.offset.checked_add(self.len) else {
            return Err(PosixError::FileTooLarge.into());
        };
        self.behind = core.tree.behind_end(ino, self.offset)?;
        let from = self
            .behind
            .as_ref()
            .map_or(self.offset, |behind| behind.start);
        let blocks = from / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let Some(lock) = core.ranges.lock(ino, blocks) else {
            return Ok(false);
        };
        match core.fill_holes(ino, (self.offset, self.len)) {
            Ok(new) => self.new = new,
            Err(FsError::NoSpace { .. }) if core.wait_for_frees(&mut self.patience, PATIENCE) => {
                core.ranges.unlock(lock);
                return Ok(false);
            }
            Err(error) => {
                core.ranges.unlock(lock);
                return Err(error);
            }
        }
        self.lock = Some(lock);
        if self.is_aligned(at.lba_shift) && self.behind.is_none() {
            self.stage = self.directly(ino, at, hands)?;
            if bugs::on(Bug::RecordBeforeData) {
                self.change(ino, at)?;
                at.core.journal.commit();
            }
            return Ok(true);
        }
        let core = &mut *at.core;
        let map = core.tree.file_map(ino)?;
        core.open.slow(ino, true, map, &mut core.periods);
        self.slowed = true;
        self.stage = Stage::Quiet(core.periods.ticket(Flights::Writes));
        core.periods.advance();
        Ok(true)
    }

    /// A write of whole logical blocks.
    fn directly<Q, D, S>(
        &self,
        ino: Ino,
        at: &At<'_, Q, D, S>,
        hands: &mut Hands<'_>,
    ) -> Result<Stage, FsError>
    where
        D: BlockDevice<MetaTag>,
    {
        let ios = self.ios(ino, at, &self.bytes())?;
        Ok(Stage::Data(Script::new(ios, hands.buf.take())))
    }

    /// An unaligned write: zeros go to the drive as they are, data through a buffer that is read
    /// first where the write leaves something of a logical block.
    fn through_buffer<Q, D, S>(&self, ino: Ino, at: &At<'_, Q, D, S>) -> Result<Stage, FsError>
    where
        D: BlockDevice<MetaTag>,
    {
        let bytes = self.bytes();
        if self.zeroes {
            let ios = self.ios(ino, at, &bytes)?;
            return Ok(Stage::Data(Script::new(ios, None)));
        }
        let lba = 1u64 << at.lba_shift;
        let span = outer(&bytes, lba);
        let work = at.shared.domain.alloc(small(span.end - span.start))?;
        let written: Vec<Extent> = at.core.written(ino, &span)?;
        let one = |from: u64| -> Io {
            // A logical block has at most 4096 bytes.
            let len = u32::try_from(lba).unwrap_or(u32::MAX);
            match address(&written, from) {
                Some((addr, _)) if !bugs::on(Bug::PartialBlockNotRead) => Io::Read {
                    lba: addr >> at.lba_shift,
                    len,
                },
                _ => Io::Zeros { len },
            }
        };
        let last = span.end - lba;
        let mut ios = vec![one(span.start)];
        let mut middle = (last - span.start).saturating_sub(lba);
        while middle > 0 {
            let len = middle.min(1 << 30);
            ios.push(Io::Keep {
                len: u32::try_from(len).unwrap_or(0),
            });
            middle -= len;
        }
        if last > span.start {
            ios.push(one(last));
        }
        Ok(Stage::Fetch(Script::new(ios, Some(work))))
    }

    fn data_of_buffer<Q, D, S>(
        &self,
        ino: Ino,
        at: &At<'_, Q, D, S>,
        hands: &Hands<'_>,
        work: Option<DmaBuf>,
    ) -> Result<Stage, FsError>
    where
        D: BlockDevice<MetaTag>,
    {
        let span = outer(&self.bytes(), 1 << at.lba_shift);
        let mut work = work;
        if let (Some(work), Some(buf)) = (work.as_mut(), hands.buf.as_ref()) {
            let skip = small(self.offset - span.start);
            copy(buf, 0, work, skip, buf.len());
        }
        let ios = self.ios(ino, at, &span)?;
        Ok(Stage::Data(Script::new(ios, work)))
    }

    /// The commands that write `span` of the file, and zero what else there is of blocks that were
    /// never written.
    fn ios<Q, D, S>(
        &self,
        ino: Ino,
        at: &At<'_, Q, D, S>,
        span: &Range<u64>,
    ) -> Result<Vec<Io>, FsError>
    where
        D: BlockDevice<MetaTag>,
    {
        // Made again when the data are there; now it refuses what will be refused, and says what is
        // to be zeroed.
        let plan = at
            .core
            .tree
            .plan_write(ino, (self.offset, self.len), &self.new, 0)?;
        let mut placed = at.core.placed(ino, &outer(&self.bytes(), BLOCK_BYTES))?;
        placed.extend_from_slice(&self.new);
        placed.sort_unstable_by_key(|extent| extent.lblk);
        let mut ios = Vec::new();
        if self.zeroes {
            zero_ios(&placed, span, at.lba_shift, &mut ios);
        } else {
            let mut from = span.start;
            while from < span.end {
                let (addr, run) = address(&placed, from).ok_or(PosixError::Stale)?;
                let len = run.min(span.end - from).min(1 << 30);
                ios.push(Io::Write {
                    lba: addr >> at.lba_shift,
                    len: u32::try_from(len).unwrap_or(0),
                });
                from += len;
            }
        }
        let zero = match bugs::on(Bug::NewBlockNotZeroed) {
            true => &[],
            false => &plan.zero[..],
        };
        for edge in zero {
            // What the buffer covers is zero there.
            let before = edge.start..edge.end.min(span.start);
            let after = edge.start.max(span.end)..edge.end;
            for rest in [before, after] {
                zero_ios(&placed, &rest, at.lba_shift, &mut ios);
            }
        }
        Ok(ios)
    }

    /// The data are on the drive: the file has them now.
    fn change<Q, D, S>(&mut self, ino: Ino, at: &mut At<'_, Q, D, S>) -> Result<Txid, FsError>
    where
        D: BlockDevice<MetaTag>,
    {
        let core = &mut *at.core;
        if !bugs::on(Bug::DataNotFlushed) {
            core.journal.data_written();
        }
        let new = std::mem::take(&mut self.new);
        let mut txid = core.journal.last();
        let mut from = self.offset;
        let end = self.offset + self.len;
        let mut groups = new.chunks(EXTENTS_A_CHANGE).peekable();
        // Without a group there may still be a conversion, and the size.
        while from < end {
            let group = groups.next().unwrap_or(&[]);
            let next = groups.peek().and_then(|next| next.first());
            let to = next.map_or(end, |next| u64::from(next.lblk) * BLOCK_BYTES);
            let now = at.shared.wall.now_ns();
            let plan = core.tree.plan_write(ino, (from, to - from), group, now);
            let done = plan
                .map_err(FsError::from)
                .and_then(|plan| core.change(&plan));
            match done {
                Ok(record) => txid = record,
                Err(error) => {
                    let left = group.iter().chain(groups.flatten()).copied();
                    self.new = left.collect();
                    return Err(error);
                }
            }
            from = to;
        }
        Ok(txid)
    }

    fn end<D: BlockDevice<MetaTag>>(&mut self, ino: Ino, core: &mut Core<D>, ok: bool) {
        core.end_exclusive(ino, std::mem::take(&mut self.slowed), self.lock.take());
        if self.asked.is_none() && std::mem::take(&mut self.placed) {
            core.open.end_append(ino, (self.offset, self.len), ok);
        }
    }

    /// The queue is gone. Blocks that it may still write to stay taken until the next mount.
    pub(super) fn give_up<D: BlockDevice<MetaTag>>(&mut self, file: &File, core: &mut Core<D>) {
        self.end(file.ino(), core, false);
    }
}

/// The multiples of `unit` around `bytes`.
const fn outer(bytes: &Range<u64>, unit: u64) -> Range<u64> {
    bytes.start - bytes.start % unit..bytes.end.next_multiple_of(unit)
}

/// Where the byte `at` of a file is on the drive, and how many bytes follow there.
pub(super) fn address(extents: &[Extent], at: u64) -> Option<(u64, u64)> {
    let block = at / BLOCK_BYTES;
    let next = extents.partition_point(|extent| u64::from(extent.lblk) <= block);
    let extent = extents.get(next.checked_sub(1)?)?;
    let skip = at - u64::from(extent.lblk) * BLOCK_BYTES;
    let len = u64::from(extent.len) * BLOCK_BYTES;
    (skip < len).then(|| (extent.pblk * BLOCK_BYTES + skip, len - skip))
}

/// The commands that zero `range` of a file on the drive; nothing where it has no blocks.
pub(super) fn zero_ios(extents: &[Extent], range: &Range<u64>, lba_shift: u32, ios: &mut Vec<Io>) {
    let lba = 1u64 << lba_shift;
    let mut from = range.start;
    while from < range.end {
        let Some((addr, run)) = address(extents, from) else {
            from = (from / BLOCK_BYTES + 1) * BLOCK_BYTES;
            continue;
        };
        let to = range.end.min(from + run);
        let whole = to - from - (to - from) % lba;
        if addr % lba == 0 && whole > 0 {
            ios.push(Io::Clear {
                lba: addr >> lba_shift,
                blocks: whole >> lba_shift,
            });
            from += whole;
            continue;
        }
        // A part of one logical block.
        let start = addr % lba;
        let end = (start + (to - from)).min(lba);
        ios.push(Io::Patch {
            lba: addr >> lba_shift,
            from: u32::try_from(start).unwrap_or(0),
            to: u32::try_from(end).unwrap_or(0),
        });
        from += end - start;
    }
}
