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
//! | `wire.rs` | transfers that are waited for |
//! | `error.rs` | what can go wrong |
#![forbid(unsafe_code)]

mod checkpoint;
mod close;
mod commit;
mod error;
mod load;
mod mkfs;
mod wire;

pub use error::JournalError;
pub use load::{LoadMode, LoadOptions, LoadReport, Loaded, load};
pub use mkfs::{MkfsOptions, mkfs};

use crate::bugs::{self, Bug};
use crate::device::{BlockDevice, Limits};
use crate::format::Identity;
use crate::format::geometry::Geometry;
use crate::format::op::Op;
use crate::format::record::RecordBuilder;
use crate::format::ring::Ring;
use crate::format::superblock::Superblock;
use crate::tree::Tree;
use checkpoint::Checkpoint;
use commit::Writing;
use driver::memory::DmaDomain;
use driver::queue::Completion;
use std::collections::VecDeque;

/// The number of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Txid(pub u64);

/// A flush of the drive's cache, to be asked for with [`Journal::flushed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushId(u64);

/// What the metadata device carries with each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaTag(Tag);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// A transfer of [`wire`], by number.
    Wire(u32),
    Flush(u64),
    Record,
    Page,
    Superblock,
    GeometryCopy,
}

/// Records that wait for their turn at most, before changes are slowed down.
const QUEUED: usize = 8;

/// The journal of a mounted volume.
#[derive(Debug)]
pub struct Journal<D> {
    device: D,
    limits: Limits,
    domain: DmaDomain,
    identity: Identity,
    max_record_bytes: u32,
    /// As it was last written, or will be next.
    superblock: Superblock,
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
    /// Flushes: wanted, begun, ended.
    flushes: Flushes,

    checkpoint: Option<Checkpoint>,
    checkpoint_wanted: bool,
    /// Chunks of checkpoints that were written, and how many changes they have paid for.
    chunks: u64,
    paid: u64,
    /// A new end of the volume, where the geometry copy has to go.
    grown: bool,
    /// Whether the next superblock says that the volume was unmounted.
    closing: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    wanted: u64,
    begun: u64,
    ended: u64,
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

    fn push(&mut self, ops: &[Op<'_>]) -> Result<Txid, JournalError> {
        if !self.open.push(ops)? {
            self.cut();
            if !self.open.push(ops)? {
                return Err(JournalError::TooLong);
            }
        }
        self.paid = self.paid.saturating_add(1);
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
    /// quarters on, each chunk of the checkpoint that makes room lets some changes pass, fewer the
    /// fuller the ring is.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        if self.failed.is_some() || self.read_only {
            return false;
        }
        if self.queue.len() >= QUEUED {
            return true;
        }
        let sixteenths = self.fill() * 16 / self.ring.shape().bytes().max(1);
        match sixteenths {
            0..12 => false,
            12..15 => self.paid > self.chunks.saturating_mul(64 >> (2 * (sixteenths - 12))),
            _ => true,
        }
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
        let next = self.flushes.begun + u64::from(self.dirty);
        self.flushes.wanted = self.flushes.wanted.max(next);
        FlushId(next)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn flushed(&self, flush: FlushId) -> bool {
        self.flushes.ended >= flush.0 || bugs::on(Bug::FlushAnswersAtOnce)
    }

    /// Asks for a checkpoint.
    pub const fn checkpoint(&mut self) {
        self.checkpoint_wanted = true;
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
            && self.flushes.ended >= self.flushes.begun
    }

    /// The superblock.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The volume has grown: the next checkpoint says so.
    pub const fn set_geometry(&mut self, geometry: Geometry) {
        self.superblock.geometry = geometry;
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
        self.go_on_checkpoint(tree)?;
        self.go_on_records()?;
        self.go_on_flush()
    }

    fn ended(&mut self, done: Completion<MetaTag>) {
        let Tag::Wire(_) = done.ctx.0 else {
            if !done.status.is_success() && self.failed.is_none() {
                self.failed = Some(JournalError::Device {
                    what: done.ctx.0.name(),
                    status: done.status,
                });
            }
            let ok = done.status.is_success();
            match done.ctx.0 {
                Tag::Flush(number) if ok => self.flushes.ended = self.flushes.ended.max(number),
                Tag::Record => self.record_ended(ok),
                Tag::Page => self.page_ended(ok),
                Tag::Superblock => self.superblock_ended(ok),
                Tag::GeometryCopy => self.geometry_copy_ended(ok),
                Tag::Wire(_) | Tag::Flush(_) => {}
            }
            return;
        };
    }
}

impl Tag {
    const fn name(self) -> &'static str {
        match self {
            Self::Wire(_) => "a transfer",
            Self::Flush(_) => "a flush",
            Self::Record => "a journal record",
            Self::Page => "a checkpoint page",
            Self::Superblock => "a superblock",
            Self::GeometryCopy => "the geometry copy",
        }
    }
}
