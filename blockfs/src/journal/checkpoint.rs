//! A checkpoint on its way: pages, a flush, a superblock; beside the records, never in their way.

use super::commit::full;
use super::{Journal, JournalError, MetaTag, Tag};
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::Twin;
use crate::format::checkpoint::{CheckpointWriter, PAGE_BYTES, Place, Written};
use crate::format::geometry::Geometry;
use crate::format::ring::RingPos;
use crate::format::superblock::{ActiveCheckpoint, JournalStart, Label};
use crate::tree::Tree;
use driver::memory::DmaBuf;
use driver::namespace::Lba;

/// Bytes of operations that one pump turns into pages.
const BUDGET_BYTES: usize = 32 << 10;
/// Pages of one write.
const CHUNK_PAGES: usize = 16;

/// A checkpoint on its way.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// The last record that it contains.
    txid: u64,
    /// Where replay starts then: known when that record is durable.
    start: Option<(RingPos, u32)>,
    place: Place,
    writer: CheckpointWriter,
    /// Whether the tree has handed over everything.
    complete: bool,
    /// Pages that wait to be written, and the number of the first.
    pages: Vec<u8>,
    next_page: u64,
    /// A chunk that the device queue had no room for.
    refused: Option<(Lba, DmaBuf)>,
    under_way: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pages,
    /// Waits for this flush.
    Flush(u64),
    /// Waits for the superblock to be taken by the device queue.
    Superblock,
    /// Waits for the device.
    SuperblockWritten,
    GeometryCopy,
    GeometryCopyWritten,
    Done,
}

impl<D: BlockDevice<MetaTag>> Journal<D> {
    pub(super) fn go_on_checkpoint(&mut self, tree: &mut Tree) -> Result<(), JournalError> {
        if self.checkpoint.is_none() {
            if bugs::on(Bug::RingOverwritten) {
                self.ring.release_to(self.ring.head());
            }
            if self.ring.used() * 2 > self.ring.shape().bytes() {
                self.checkpoint_wanted = true;
            }
            if !self.checkpoint_wanted {
                return Ok(());
            }
            self.begin_checkpoint(tree);
        }
        let Some(mut checkpoint) = self.checkpoint.take() else {
            return Ok(());
        };
        let result = self.move_checkpoint(&mut checkpoint, tree);
        if checkpoint.stage != Stage::Done {
            self.checkpoint = Some(checkpoint);
        }
        result
    }

    fn begin_checkpoint(&mut self, tree: &mut Tree) {
        self.checkpoint_wanted = false;
        self.cut();
        let txid = self.open_txid - 1;
        let place = Place {
            identity: self.identity,
            epoch: self.superblock.epoch + 1,
            slot: self.superblock.geometry.slot(self.next_slot()),
        };
        tree.begin_snapshot();
        let start = (self.durable == txid).then(|| (self.ring.head(), self.last_crc));
        self.checkpoint = Some(Checkpoint {
            txid,
            start,
            place,
            writer: CheckpointWriter::new(place),
            complete: false,
            pages: Vec::new(),
            next_page: 0,
            refused: None,
            under_way: 0,
            stage: Stage::Pages,
        });
    }

    /// The slot of the next checkpoint: not the one that is in force.
    fn next_slot(&self) -> Twin {
        let active = self.superblock.checkpoint.slot;
        match bugs::on(Bug::ActiveSlotOverwritten) {
            true => active,
            false => active.other(),
        }
    }

    /// A record has become durable.
    pub(super) fn record_durable(&mut self) {
        let now = (self.durable, self.ring.head(), self.last_crc);
        if let Some(checkpoint) = &mut self.checkpoint
            && checkpoint.txid == now.0
        {
            checkpoint.start = Some((now.1, now.2));
        }
    }

    fn move_checkpoint(
        &mut self,
        checkpoint: &mut Checkpoint,
        tree: &mut Tree,
    ) -> Result<(), JournalError> {
        loop {
            match checkpoint.stage {
                Stage::Pages => {
                    self.write_pages(checkpoint, tree)?;
                    let whole = checkpoint.complete
                        && checkpoint.pages.is_empty()
                        && checkpoint.refused.is_none()
                        && checkpoint.under_way == 0;
                    if !whole || !self.is_covered(checkpoint) {
                        return Ok(());
                    }
                    // Data, too: what the checkpoint says of them may be in no record.
                    let flush = match self.limits.volatile_cache {
                        true if !bugs::on(Bug::CheckpointNotFlushed) => self.flushes.begun + 1,
                        _ => 0,
                    };
                    self.flushes.wanted = self.flushes.wanted.max(flush);
                    checkpoint.stage = Stage::Flush(flush);
                }
                Stage::Flush(flush) => {
                    if self.flushes.ended < flush {
                        if self.flushes.begun < flush {
                            self.begin_flush()?;
                        }
                        return Ok(());
                    }
                    checkpoint.stage = Stage::Superblock;
                }
                Stage::Superblock => {
                    self.write_superblock(checkpoint, tree)?;
                    if checkpoint.stage == Stage::Superblock {
                        return Ok(());
                    }
                }
                Stage::GeometryCopy => {
                    let mut copy = self.superblock;
                    copy.clean = true;
                    let lba = copy.geometry.geometry_copy_lba();
                    let buf = self.superblock_bytes(&copy, lba)?;
                    let (fua, tag) = (self.limits.volatile_cache, MetaTag(Tag::GeometryCopy));
                    match self.device.write(lba, buf, fua, tag) {
                        Ok(()) => checkpoint.stage = Stage::GeometryCopyWritten,
                        Err(rejected) => drop(full(rejected)?),
                    }
                    return Ok(());
                }
                Stage::SuperblockWritten | Stage::GeometryCopyWritten | Stage::Done => {
                    return Ok(());
                }
            }
        }
    }

    /// How many chunks may be under way: more, the fuller the ring is.
    fn depth(&self) -> u32 {
        match self.fill() * 8 / self.ring.shape().bytes().max(1) {
            0..=4 => 1,
            5 => 2,
            6 => 4,
            _ => 8,
        }
    }

    fn write_pages(
        &mut self,
        checkpoint: &mut Checkpoint,
        tree: &mut Tree,
    ) -> Result<(), JournalError> {
        while checkpoint.under_way < self.depth() {
            if checkpoint.refused.is_none() {
                checkpoint.fill(tree)?;
                let Some((page, pages)) = checkpoint.chunk() else {
                    return Ok(());
                };
                let mut buf = self.domain.alloc(pages.len())?;
                buf.write_at(0, &pages)?;
                let block = checkpoint.place.slot.start + page;
                checkpoint.refused = Some((self.identity.lba_size.lba_of(block), buf));
            }
            let Some((lba, buf)) = checkpoint.refused.take() else {
                return Ok(());
            };
            match self.device.write(lba, buf, false, MetaTag(Tag::Page)) {
                Ok(()) => checkpoint.under_way += 1,
                Err(rejected) => {
                    checkpoint.refused = full(rejected)?.map(|buf| (lba, buf));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(super) fn page_ended(&mut self, ok: bool) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.under_way = checkpoint.under_way.saturating_sub(1);
        }
        self.chunks = self.chunks.saturating_add(u64::from(ok));
    }

    /// Whether all records that the checkpoint contains are durable, or not needed any more: if the
    /// ring has no room for them they are dropped, and the checkpoint makes them durable.
    fn is_covered(&mut self, checkpoint: &mut Checkpoint) -> bool {
        if checkpoint.start.is_some() {
            return true;
        }
        if !self.waits_for_room() || !self.take_waiting(checkpoint.txid) {
            return false;
        }
        while self
            .queue
            .front()
            .is_some_and(|(txid, _)| *txid <= checkpoint.txid)
        {
            if let Some((_, mut record)) = self.queue.pop_front() {
                record.clear();
                self.spare.push(record);
            }
        }
        checkpoint.start = Some((self.ring.head(), self.last_crc));
        true
    }

    fn write_superblock(
        &mut self,
        checkpoint: &mut Checkpoint,
        tree: &Tree,
    ) -> Result<(), JournalError> {
        let (Some(written), Some((pos, prev_crc))) =
            (checkpoint.writer.written(), checkpoint.start)
        else {
            return Ok(());
        };
        let mut next = self.superblock;
        let Written {
            pages, root_crc, ..
        } = written;
        next.generation += 1;
        next.epoch = checkpoint.place.epoch;
        next.label = Label::new(tree.label()).unwrap_or(Label::EMPTY);
        next.checkpoint = ActiveCheckpoint {
            slot: self.next_slot(),
            pages,
            root_crc,
            epoch: checkpoint.place.epoch,
        };
        next.journal = JournalStart {
            txid: checkpoint.txid + 1,
            epoch: self.superblock.epoch,
            offset: self.ring.shape().offset(pos),
            prev_crc,
            known_txid: self.durable.max(checkpoint.txid),
        };
        if bugs::on(Bug::ReplayStartsLate) {
            next.journal.txid += 1;
        }
        if bugs::on(Bug::ReplayStartNotMoved) {
            next.journal = self.superblock.journal;
        }
        if bugs::on(Bug::KnownRecordTooHigh) {
            next.journal.known_txid += 1;
        }
        next.clean = self.closing;
        let lba = Geometry::superblock_lba(self.identity.lba_size, next.copy());
        let buf = self.superblock_bytes(&next, lba)?;
        let fua = self.limits.volatile_cache;
        match self.device.write(lba, buf, fua, MetaTag(Tag::Superblock)) {
            Ok(()) => {
                self.superblock = next;
                checkpoint.stage = Stage::SuperblockWritten;
            }
            Err(rejected) => drop(full(rejected)?),
        }
        Ok(())
    }

    pub(super) fn superblock_ended(&mut self, ok: bool) {
        let Some(checkpoint) = self.checkpoint.as_mut().filter(|_| ok) else {
            return;
        };
        if let Some((pos, _)) = checkpoint.start {
            self.ring.release_to(pos);
        }
        self.durable = self.durable.max(checkpoint.txid);
        self.paid = 0;
        self.chunks = 0;
        if std::mem::take(&mut self.grown) {
            checkpoint.stage = Stage::GeometryCopy;
        } else {
            self.checkpoint = None;
        }
    }

    pub(super) fn geometry_copy_ended(&mut self, ok: bool) {
        if ok {
            self.checkpoint = None;
        }
    }
}

impl Checkpoint {
    /// Takes operations from the tree until there is a chunk of pages.
    fn fill(&mut self, tree: &mut Tree) -> Result<(), JournalError> {
        if self.pages.len() < CHUNK_PAGES * PAGE_BYTES && !self.complete {
            let (writer, pages) = (&mut self.writer, &mut self.pages);
            let all = tree.continue_snapshot(BUDGET_BYTES, |op| {
                writer.push(op)?;
                while let Some(page) = writer.page() {
                    pages.extend_from_slice(page);
                }
                Ok::<(), JournalError>(())
            })?;
            if all {
                self.complete = true;
                self.writer.finish();
                while let Some(page) = self.writer.page() {
                    self.pages.extend_from_slice(page);
                }
            }
        }
        Ok(())
    }

    /// The next pages to be written, and the number of the first.
    fn chunk(&mut self) -> Option<(u64, Vec<u8>)> {
        let len = self.pages.len().min(CHUNK_PAGES * PAGE_BYTES);
        if len == 0 || (len < CHUNK_PAGES * PAGE_BYTES && !self.complete) {
            return None;
        }
        let rest = self.pages.split_off(len);
        let chunk = std::mem::replace(&mut self.pages, rest);
        let page = self.next_page;
        self.next_page += (len / PAGE_BYTES) as u64;
        Some((page, chunk))
    }
}
