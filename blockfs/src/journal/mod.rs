//! How metadata become durable: the redo journal, the two checkpoints, the superblocks; mkfs and
//! recovery.
//!
//! A [`Journal`] takes the operations that were applied to the tree, collects them in records, and
//! writes one record at a time: its checksum is the commit. When half of the ring is used it writes a
//! checkpoint beside that. Nothing in it waits: [`Journal::pump`] moves everything on as far as it
//! goes, whoever calls it.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the state; what is asked of it |
//! | `commit.rs` | records and flushes on their way |
//! | `checkpoint.rs` | a checkpoint on its way; superblocks |
//! | `mkfs.rs`, `load.rs`, `close.rs` | making, mounting and unmounting a volume |
//! | `read.rs`, `salvage.rs` | what a mount reads; what it reads of a damaged volume |
//! | `superblocks.rs` | every superblock that there is |
//! | `wire.rs` | transfers that are waited for |
//! | `buffers.rs` | DMA memory that is kept for what must be written |
//! | `error.rs` | what can go wrong |
#![forbid(unsafe_code)]

mod buffers;
mod checkpoint;
mod close;
mod commit;
mod error;
mod load;
mod mkfs;
mod read;
mod salvage;
mod superblocks;
#[cfg(test)]
mod tests;
mod wire;

pub use error::JournalError;
pub use load::{LoadMode, LoadOptions, LoadReport, Loaded, load};
pub use mkfs::{MkfsOptions, mkfs};
pub use superblocks::{FoundSuperblock, SuperblockPlace, superblocks};

use crate::bugs::{self, Bug};
use crate::device::{BlockDevice, Limits};
use crate::format::geometry::Geometry;
use crate::format::op::{MAX_OP_BYTES, Op};
use crate::format::record::{HEADER_BYTES, RecordBuilder};
use crate::format::ring::Ring;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, Identity};
use crate::tree::Tree;
use buffers::Kept;
use checkpoint::Checkpoint;
use commit::Writing;
use driver::memory::DmaDomain;
use driver::queue::Completion;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Txid(pub u64);

/// A flush of the drive's cache, to be asked for with [`Journal::flushed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushId(u64);

/// A checkpoint, to be asked for with [`Journal::checkpointed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId(u64);

/// What the metadata device carries with each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaTag {
    /// Whose it is. A command that ends after its submitter has given up is nobody's: it must not be
    /// taken for a later one.
    life: u32,
    tag: Tag,
}

/// A number for one submitter of commands.
fn new_life() -> u32 {
    static LIVES: AtomicU32 = AtomicU32::new(0);
    LIVES.fetch_add(1, Ordering::Relaxed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// A part of a transfer of [`wire`].
    Wire(u32),
    Flush(u64),
    Record,
    Page {
        /// Whether its buffer is the one that is kept for pages.
        kept: bool,
    },
    Superblock,
    GeometryCopy,
}

/// Records that wait for their turn at most, before changes are slowed down.
const QUEUED: usize = 8;

/// The journal of a mounted volume.
#[derive(Debug)]
pub struct Journal<D> {
    device: D,
    life: u32,
    limits: Limits,
    domain: DmaDomain,
    identity: Identity,
    max_record_bytes: u32,
    /// As it was last written, or is under way.
    superblock: Superblock,
    /// Where things lie now: what the next superblock says.
    geometry: Geometry,
    read_only: bool,
    failed: Option<JournalError>,

    ring: Ring,
    /// The record that is being collected, and its number.
    open: RecordBuilder,
    open_txid: u64,
    /// Full records, the oldest first, with their numbers.
    queue: VecDeque<(u64, RecordBuilder)>,
    spare: Vec<RecordBuilder>,
    writing: Option<Writing>,
    /// The record up to which everything is to be written.
    wanted: u64,
    durable: u64,
    last_crc: u32,

    /// Whether data were written that no flush covers yet.
    dirty: bool,
    flushes: Flushes,

    checkpoint: Option<Checkpoint>,
    checkpoint_wanted: bool,
    /// Checkpoints that were begun, and that are in force or were.
    checkpoints: (u64, u64),
    /// Whether the volume has a new end, where the geometry copy has to go.
    grown: bool,
    /// Whether the next superblock says that the volume was unmounted.
    closing: bool,

    /// For a record, a chunk of pages, and a superblock.
    record_buf: Kept,
    page_buf: Kept,
    superblock_buf: Kept,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    wanted: u64,
    begun: u64,
    ended: u64,
    /// The one that covers the data that were known before the last that was begun with any.
    covering: u64,
}

impl<D: BlockDevice<MetaTag>> Journal<D> {
    /// Takes operations that were applied to the tree; they stay together. No I/O.
    ///
    /// # Errors
    /// [`JournalError::ReadOnly`], the failure that stopped it, or operations that no record can take:
    /// that stops it, too, as the tree has them.
    pub fn append(&mut self, ops: &[Op<'_>]) -> Result<Txid, JournalError> {
        if self.read_only {
            return Err(JournalError::ReadOnly);
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.push(ops);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Whether `ops` fit a record; to be asked before they are applied to the tree.
    ///
    /// # Errors
    /// [`FormatError::RecordTooLong`], or what makes them malformed.
    pub fn fits(&self, ops: &[Op<'_>]) -> Result<(), FormatError> {
        let room = (self.max_record_bytes as usize).saturating_sub(HEADER_BYTES + size_of::<u32>());
        if ops.len() <= room / MAX_OP_BYTES {
            return Ok(());
        }
        let mut empty = RecordBuilder::new(self.identity, self.max_record_bytes);
        empty.push(ops).map(drop)
    }

    fn push(&mut self, ops: &[Op<'_>]) -> Result<Txid, JournalError> {
        if !self.open.push(ops)? {
            self.cut();
            if !self.open.push(ops)? {
                return Err(JournalError::TooLong);
            }
        }
        Ok(Txid(self.open_txid))
    }

    /// Closes the record that is being collected.
    pub(crate) fn cut(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let next = self.spare.pop();
        let next = next.unwrap_or_else(|| RecordBuilder::new(self.identity, self.max_record_bytes));
        let full = std::mem::replace(&mut self.open, next);
        self.queue.push_back((self.open_txid, full));
        self.open_txid += 1;
    }

    /// Whether changes have to wait: too much is on its way, or the ring is nearly full. From three
    /// quarters on, the ring is filled only as fast as the checkpoint that makes room goes on, so that
    /// nobody waits for all of it.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        if self.failed.is_some() || self.read_only {
            return false;
        }
        let sixteenth = self.ring.shape().bytes() / 16;
        let (done, all) = self
            .checkpoint
            .as_ref()
            .map_or((0, 1), Checkpoint::progress);
        let most = sixteenth * 12 + sixteenth * 3 * done / all.max(1);
        self.queue.len() >= QUEUED || self.fill() > most
    }

    /// Bytes of the ring that are used, or will be by what was collected.
    fn fill(&self) -> u64 {
        let queued = self.queue.iter().map(|(_, record)| record.sealed_bytes());
        let open = match self.open.is_empty() {
            true => 0,
            false => self.open.sealed_bytes(),
        };
        self.ring.used() + (queued.sum::<usize>() + open) as u64
    }

    /// The number of the last record that operations went into.
    #[must_use]
    pub const fn last(&self) -> Txid {
        match self.open.is_empty() {
            true => Txid(self.open_txid - 1),
            false => Txid(self.open_txid),
        }
    }

    /// The last record that survives a power cut.
    #[must_use]
    pub const fn durable(&self) -> Txid {
        Txid(self.durable)
    }

    /// Wants everything that was appended to become durable.
    pub fn commit(&mut self) {
        self.wanted = self.last().0;
    }

    /// Data writes have ended: what refers to them becomes durable after a flush only.
    pub const fn data_written(&mut self) {
        self.dirty = self.limits.volatile_cache;
    }

    /// Wants a flush of the drive's cache that covers every write that has ended. One that a record
    /// needs anyway will do.
    pub fn flush(&mut self) -> FlushId {
        if !self.limits.volatile_cache {
            return FlushId(0);
        }
        let next = self.covering();
        self.flushes.wanted = self.flushes.wanted.max(next);
        FlushId(next)
    }

    /// The flush that covers the data that were written so far: one that was begun, or the next.
    const fn covering(&self) -> u64 {
        if self.dirty {
            self.flushes.begun + 1
        } else {
            self.flushes.covering
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn flushed(&self, flush: FlushId) -> bool {
        self.flushes.ended >= flush.0 || bugs::on(Bug::FlushAnswersAtOnce)
    }

    /// Asks for a checkpoint of what was appended so far, or more.
    pub const fn checkpoint(&mut self) -> CheckpointId {
        self.checkpoint_wanted = true;
        CheckpointId(self.checkpoints.0 + 1)
    }

    /// Whether it is in force.
    #[must_use]
    pub const fn checkpointed(&self, checkpoint: CheckpointId) -> bool {
        self.checkpoints.1 >= checkpoint.0
    }

    /// The failure that stopped it: nothing more becomes durable.
    #[must_use]
    pub const fn failed(&self) -> Option<&JournalError> {
        self.failed.as_ref()
    }

    /// Whether it was loaded to be read only.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.writing.is_none()
            && self.queue.is_empty()
            && self.checkpoint.is_none()
            && !self.checkpoint_wanted
            && !self.awaits_flush()
            && self.flushes.ended >= self.flushes.begun
    }

    const fn awaits_flush(&self) -> bool {
        self.flushes.ended < self.flushes.wanted
    }

    /// The superblock.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The volume has grown: the next checkpoint says so.
    pub const fn set_geometry(&mut self, geometry: Geometry) {
        self.geometry = geometry;
        self.grown = true;
    }

    /// Gives the device up, as it is.
    pub fn into_device(self) -> D {
        self.device
    }

    /// Moves everything on as far as it goes without waiting. `tree` is the one that the operations
    /// were applied to.
    ///
    /// # Errors
    /// The failure that stopped it.
    pub fn pump(&mut self, tree: &mut Tree) -> Result<(), JournalError> {
        if self.read_only {
            return Ok(());
        }
        let mut ended = Vec::new();
        self.device.poll(|done| ended.push(done));
        for done in ended {
            self.ended(done);
        }
        let result = self.go_on(tree);
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(error);
        }
        self.device.ring();
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn go_on(&mut self, tree: &mut Tree) -> Result<(), JournalError> {
        if self.failed.is_some() {
            return Ok(());
        }
        self.go_on_records()?;
        self.go_on_flush()?;
        // Nobody's record waits until pages are made.
        self.device.ring();
        self.go_on_checkpoint(tree)?;
        self.go_on_records()?;
        self.go_on_flush()
    }

    fn ended(&mut self, done: Completion<MetaTag>) {
        if done.ctx.life != self.life {
            return;
        }
        let ok = done.status.is_success();
        if !ok && self.failed.is_none() {
            self.failed = Some(JournalError::Device {
                what: done.ctx.tag.name(),
                status: done.status,
            });
        }
        let kept = match done.ctx.tag {
            Tag::Record => Some(&mut self.record_buf),
            Tag::Page { kept: true } => Some(&mut self.page_buf),
            Tag::Superblock | Tag::GeometryCopy => Some(&mut self.superblock_buf),
            Tag::Page { kept: false } | Tag::Wire(_) | Tag::Flush(_) => None,
        };
        if let (Some(kept), Some(buf)) = (kept, done.buf) {
            kept.put_back(buf);
        }
        match done.ctx.tag {
            Tag::Flush(number) if ok => self.flushes.ended = self.flushes.ended.max(number),
            Tag::Record => self.record_ended(ok),
            Tag::Page { .. } => self.page_ended(),
            Tag::Superblock => self.superblock_ended(ok),
            Tag::GeometryCopy => self.geometry_copy_ended(ok),
            Tag::Wire(_) | Tag::Flush(_) => {}
        }
    }

    const fn tag(&self, tag: Tag) -> MetaTag {
        MetaTag {
            life: self.life,
            tag,
        }
    }
}

impl Tag {
    const fn name(self) -> &'static str {
        match self {
            Self::Wire(_) => "a transfer",
            Self::Flush(_) => "a flush",
            Self::Record => "a journal record",
            Self::Page { .. } => "a checkpoint page",
            Self::Superblock => "a superblock",
            Self::GeometryCopy => "the geometry copy",
        }
    }
}
