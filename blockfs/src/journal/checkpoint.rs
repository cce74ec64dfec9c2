//! A checkpoint on its way: pages, a flush, a superblock; beside the records, never in their way.

use super::commit::full;
use super::mkfs::superblock_block;
use super::{Journal, JournalError, MetaTag, Tag};
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::Twin;
use crate::format::checkpoint::{CheckpointWriter, PAGE_BYTES, Place, Written};
use crate::format::geometry::Geometry;
use crate::format::ring::RingPos;
use crate::format::superblock::{ActiveCheckpoint, JournalStart, Label, Superblock};
use crate::tree::Tree;
use driver::memory::DmaBuf;
use driver::namespace::Lba;

/// Bytes of operations that one pump turns into pages while somebody waits for a record.
const BUDGET_BYTES: usize = 8 << 10;
/// Pages of one write.
const CHUNK_PAGES: usize = 16;
/// Bytes of one write.
pub(super) const CHUNK_BYTES: usize = CHUNK_PAGES * PAGE_BYTES;

/// A checkpoint on its way.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// The last record that it contains.
    txid: u64,
    /// Where replay starts then: known when that record is durable.
    start: Option<(RingPos, u32)>,
    /// Whether the ring lacks the last of its records: there was no room for them.
    gap: bool,
    /// What the superblock says of the volume.
    label: Label,
    geometry: Geometry,
    grown: bool,
    place: Place,
    writer: CheckpointWriter,
    /// Whether the tree has handed over everything.
    complete: bool,
    /// Pages that wait to be written, and the number of the first.
    pages: Vec<u8>,
    next_page: u64,
    /// A chunk that the device queue had no room for.
    refused: Option<(Lba, DmaBuf, bool)>,
    under_way: u32,
    /// Chunks that were written, and about how many there are.
    chunks: (u64, u64),
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
        self.checkpoints.0 += 1;
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
            gap: false,
            label: Label::new(tree.label()).unwrap_or(Label::EMPTY),
            geometry: self.geometry,
            grown: std::mem::take(&mut self.grown),
            place,
            writer: CheckpointWriter::new(place),
            complete: false,
            pages: Vec::new(),
            next_page: 0,
            refused: None,
            under_way: 0,
            chunks: (0, 1 + tree.totals().metadata_bytes / CHUNK_BYTES as u64),
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
                    self.write_superblock(checkpoint)?;
                    if checkpoint.stage == Stage::Superblock {
                        return Ok(());
                    }
                }
                Stage::GeometryCopy => {
                    let mut copy = self.superblock;
                    copy.clean = true;
                    let lba = copy.geometry.geometry_copy_lba();
                    if self.write_block(&copy, lba, Tag::GeometryCopy)? {
                        checkpoint.stage = Stage::GeometryCopyWritten;
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

    /// How many bytes of operations are turned into pages at a time.
    fn budget(&self) -> usize {
        match self.writing.is_some() || self.awaits_flush() {
            true => BUDGET_BYTES,
            false => CHUNK_BYTES,
        }
    }

    fn write_pages(
        &mut self,
        checkpoint: &mut Checkpoint,
        tree: &mut Tree,
    ) -> Result<(), JournalError> {
        while checkpoint.under_way < self.depth() {
            if checkpoint.refused.is_none() {
                checkpoint.fill(tree, self.budget())?;
                let Some(pages) = checkpoint.chunk() else {
                    return Ok(());
                };
                let (buf, kept) = match self.page_buf.filled(pages) {
                    Some(buf) => (buf, true),
                    None => match self.domain.alloc(pages.len()) {
                        Ok(mut buf) => {
                            buf.write_at(0, pages)?;
                            (buf, false)
                        }
                        // The one that is kept will be back.
                        Err(_) => return Ok(()),
                    },
                };
                let block = checkpoint.place.slot.start + checkpoint.next_page;
                let lba = self.identity.lba_size.lba_of(block);
                checkpoint.taken(buf.len());
                checkpoint.refused = Some((lba, buf, kept));
            }
            let Some((lba, buf, kept)) = checkpoint.refused.take() else {
                return Ok(());
            };
            let tag = self.tag(Tag::Page { kept });
            match self.device.write(lba, buf, false, tag) {
                Ok(()) => checkpoint.under_way += 1,
                Err(rejected) => {
                    checkpoint.refused = full(rejected)?.map(|buf| (lba, buf, kept));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes a superblock to `lba`; `false` if the device queue is full.
    fn write_block(
        &mut self,
        superblock: &Superblock,
        lba: Lba,
        tag: Tag,
    ) -> Result<bool, JournalError> {
        let block = superblock_block(superblock, lba)?;
        // One superblock is under way at a time.
        let buf = self.superblock_buf.filled(&block);
        let buf = buf.ok_or(JournalError::TooLong)?;
        let (fua, tag) = (self.limits.volatile_cache, self.tag(tag));
        match self.device.write(lba, buf, fua, tag) {
            Ok(()) => Ok(true),
            Err(rejected) => {
                if let Some(buf) = full(rejected)? {
                    self.superblock_buf.put_back(buf);
                }
                Ok(false)
            }
        }
    }

    pub(super) fn page_ended(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.under_way = checkpoint.under_way.saturating_sub(1);
            checkpoint.chunks.0 = checkpoint.chunks.1.min(checkpoint.chunks.0 + 1);
        }
    }

    /// Whether all records that the checkpoint contains are durable, or not needed any more: if the
    /// ring has no room for them they are dropped, and the checkpoint makes them durable.
    fn is_covered(&mut self, checkpoint: &mut Checkpoint) -> bool {
        if checkpoint.start.is_none() && self.drop_waiting(checkpoint.txid) {
            checkpoint.start = Some((self.ring.head(), self.last_crc));
            checkpoint.gap = true;
        }
        checkpoint.start.is_some()
    }

    fn write_superblock(&mut self, checkpoint: &mut Checkpoint) -> Result<(), JournalError> {
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
        next.label = checkpoint.label;
        next.geometry = checkpoint.geometry;
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
            next.journal.known_txid = next.journal.known_txid.max(checkpoint.txid + 1);
        }
        if bugs::on(Bug::ReplayStartNotMoved) {
            next.journal = self.superblock.journal;
        }
        if bugs::on(Bug::KnownRecordTooHigh) {
            next.journal.known_txid += 1;
        }
        next.clean = self.closing;
        let lba = Geometry::superblock_lba(self.identity.lba_size, next.copy());
        if self.write_block(&next, lba, Tag::Superblock)? {
            self.superblock = next;
            checkpoint.stage = Stage::SuperblockWritten;
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
        checkpoint.gap = false;
        if checkpoint.grown {
            checkpoint.stage = Stage::GeometryCopy;
        } else {
            self.checkpoint_ended();
        }
    }

    pub(super) fn geometry_copy_ended(&mut self, ok: bool) {
        if ok {
            self.checkpoint_ended();
        }
    }

    fn checkpoint_ended(&mut self) {
        self.checkpoint = None;
        self.checkpoints.1 = self.checkpoints.0;
    }
}

impl Checkpoint {
    /// Chunks that were written, and about how many there are.
    pub(super) const fn progress(&self) -> (u64, u64) {
        self.chunks
    }

    pub(super) const fn has_gap(&self) -> bool {
        self.gap
    }

    /// Takes about `budget` bytes of operations from the tree, unless there is a chunk of pages.
    fn fill(&mut self, tree: &mut Tree, budget: usize) -> Result<(), JournalError> {
        if self.pages.len() >= CHUNK_BYTES || self.complete {
            return Ok(());
        }
        let (writer, pages) = (&mut self.writer, &mut self.pages);
        self.complete = tree.continue_snapshot(budget, |op| {
            writer.push(op)?;
            while let Some(page) = writer.page() {
                pages.extend_from_slice(page);
            }
            Ok::<(), JournalError>(())
        })?;
        if self.complete {
            writer.finish();
            while let Some(page) = writer.page() {
                pages.extend_from_slice(page);
            }
        }
        Ok(())
    }

    /// The next pages to be written.
    fn chunk(&self) -> Option<&[u8]> {
        match self.pages.get(..CHUNK_BYTES) {
            Some(chunk) => Some(chunk),
            None if self.complete && !self.pages.is_empty() => Some(&self.pages),
            None => None,
        }
    }

    /// So many bytes of pages are in a buffer now.
    fn taken(&mut self, bytes: usize) {
        self.pages.drain(..bytes.min(self.pages.len()));
        self.next_page += (bytes / PAGE_BYTES) as u64;
    }
}
