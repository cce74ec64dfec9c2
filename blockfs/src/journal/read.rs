//! What a mount reads: superblocks, the checkpoint, the ring.

use super::wire::Wire;
use super::{JournalError, MetaTag};
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::checkpoint::{CheckpointReader, PAGE_BYTES, Place};
use crate::format::geometry::{Geometry, SUPERBLOCK_B_BLOCK};
use crate::format::op::{Extent, Ino, Op};
use crate::format::ring::{RingPos, RingShape, Scanned, scan};
use crate::format::superblock::{Chosen, Superblock, choose};
use crate::format::{FormatError, Identity, LbaSize, Twin, uuid32};
use crate::tree::Tree;
use driver::namespace::Lba;
use driver::spec::status::SCT_MEDIA;

/// Bytes that are read ahead of a sequential reader.
const WINDOW: usize = 1 << 20;

/// What is made of blocks of the ring that the drive cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Nothing: the volume is refused. A power cut does not leave such blocks.
    Refused,
    /// They are passed over.
    Zeros,
}

/// Reads both superblocks and chooses. A copy that the drive cannot read is damaged: the other one is
/// for that.
pub(super) fn read_superblocks<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
) -> Result<Chosen, JournalError> {
    let limits = wire.device.limits();
    let lba_size = LbaSize::from_bytes(limits.block_size)?;
    let (blocks, needed) = (limits.blocks / lba_size.per_block(), SUPERBLOCK_B_BLOCK + 1);
    if blocks < needed {
        return Err(FormatError::VolumeTooSmall { blocks, needed }.into());
    }
    let mut copies = [Twin::A, Twin::B].map(|copy| (copy, vec![0; lba_size.bytes() as usize]));
    for (copy, bytes) in &mut copies {
        match wire.read(Geometry::superblock_lba(lba_size, *copy), bytes) {
            Err(JournalError::Device { status, .. }) if status.sct() == SCT_MEDIA => bytes.fill(0),
            other => other?,
        }
    }
    let [(_, a), (_, b)] = copies;
    Ok(choose(&a, &b, lba_size)?)
}

/// The state of an unmounted volume's journal.
pub(super) fn nothing_after(superblock: &Superblock) -> Scanned {
    let start = &superblock.journal;
    Scanned {
        records: 0,
        start: RingPos(start.offset),
        next: RingPos(start.offset),
        next_txid: start.txid,
        last_crc: start.prev_crc,
        last_epoch: start.epoch,
        torn: false,
    }
}

pub(super) fn read_checkpoint<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    superblock: &Superblock,
    tree: &mut Tree,
) -> Result<(), JournalError> {
    let active = superblock.checkpoint;
    let lba_size = superblock.geometry.lba_size;
    let place = Place {
        identity: Identity {
            uuid32: uuid32(&superblock.uuid),
            lba_size,
        },
        epoch: active.epoch,
        slot: superblock.geometry.slot(active.slot),
    };
    if active.pages > place.slot.blocks {
        return Err(FormatError::SlotFull {
            pages: place.slot.blocks,
        }
        .into());
    }
    let mut reader = CheckpointReader::new(place, active.pages, active.root_crc);
    let window_pages = (WINDOW / PAGE_BYTES) as u64;
    let mut window = Vec::new();
    let mut extents = Extents::default();
    let mut page = 0;
    while page < active.pages {
        let pages = window_pages.min(active.pages - page);
        // At most WINDOW.
        window.resize(usize::try_from(pages).unwrap_or(0) * PAGE_BYTES, 0);
        wire.read(lba_size.lba_of(place.slot.start + page), &mut window)?;
        for bytes in window.chunks_exact(PAGE_BYTES) {
            reader.page(bytes, |op| extents.take(op, tree))?;
        }
        page += pages;
    }
    reader.finish()?;
    extents.load(tree)?;
    Ok(())
}

/// Extents of one file that follow one another in a checkpoint: most of it is that, and one by one
/// they take longer.
#[derive(Default)]
struct Extents {
    ino: Ino,
    extents: Vec<Extent>,
}

/// Extents that are collected at most.
const COLLECTED: usize = 1024;

impl Extents {
    fn take(&mut self, op: &Op<'_>, tree: &mut Tree) -> Result<(), JournalError> {
        if let Op::MapExtent { ino, extent } = *op {
            if self.ino != ino || self.extents.len() >= COLLECTED {
                self.load(tree)?;
                self.ino = ino;
            }
            self.extents.push(extent);
            return Ok(());
        }
        self.load(tree)?;
        Ok(tree.load(op)?)
    }

    fn load(&mut self, tree: &mut Tree) -> Result<(), JournalError> {
        if !self.extents.is_empty() {
            tree.load_extents(self.ino, &self.extents)?;
            self.extents.clear();
        }
        Ok(())
    }
}

/// Applies what the journal has; `tree` has the checkpoint.
pub(super) fn replay<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    superblock: &Superblock,
    tree: &mut Tree,
    unreadable: Unreadable,
) -> Result<Scanned, JournalError> {
    let geometry = &superblock.geometry;
    let shape = RingShape::new(geometry);
    let identity = Identity {
        uuid32: uuid32(&superblock.uuid),
        lba_size: geometry.lba_size,
    };
    let mut window = Window {
        wire,
        first: geometry.lba_size.lba_of(geometry.journal.start),
        lba_bytes: u64::from(geometry.lba_size.bytes()),
        ring_bytes: shape.bytes(),
        unreadable,
        offset: 0,
        bytes: Vec::new(),
    };
    scan(
        shape,
        identity,
        geometry.max_record_bytes(),
        &superblock.journal,
        |offset, bytes| window.read(offset, bytes),
        |record, _| {
            let ops: Result<Vec<Op<'_>>, FormatError> = record.ops().collect();
            let mut ops = ops?;
            if bugs::on(Bug::AttributesNotReplayed) {
                ops.retain(|op| !matches!(op, Op::SetXattr { .. } | Op::ConvertRange { .. }));
            }
            if bugs::on(Bug::RemovalNotReplayed) {
                ops.retain(|op| !matches!(op, Op::RemoveDirent { .. }));
            }
            // A salvage goes on with what it has when this fails: that must be all of a record or none.
            match unreadable {
                Unreadable::Refused => tree.replay(&ops)?,
                Unreadable::Zeros => drop(tree.apply(&ops)?),
            }
            Ok(())
        },
    )
}

/// The ring, read ahead.
struct Window<'a, 'w, D> {
    wire: &'a mut Wire<'w, D>,
    first: Lba,
    lba_bytes: u64,
    ring_bytes: u64,
    unreadable: Unreadable,
    offset: u64,
    bytes: Vec<u8>,
}

impl<D: BlockDevice<MetaTag>> Window<'_, '_, D> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), JournalError> {
        let inside = |window: &Self| {
            let skip = usize::try_from(offset.checked_sub(window.offset)?).ok()?;
            window
                .bytes
                .get(skip..skip.checked_add(out.len())?)
                .map(|_| skip)
        };
        let skip = match inside(self) {
            Some(skip) => skip,
            None => {
                let left = usize::try_from(self.ring_bytes - offset).unwrap_or(usize::MAX);
                let len = WINDOW.max(out.len()).min(left);
                self.bytes.resize(len, 0);
                self.offset = offset;
                let lba = Lba(self.first.0 + offset / self.lba_bytes);
                match self.wire.read(lba, &mut self.bytes) {
                    Err(JournalError::Device { .. }) if self.unreadable == Unreadable::Zeros => {
                        self.read_what_can_be(lba);
                    }
                    other => other?,
                }
                0
            }
        };
        if let Some(bytes) = self.bytes.get(skip..skip + out.len()) {
            out.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Fills the window with what can be read, block by block.
    fn read_what_can_be(&mut self, lba: Lba) {
        // 512 or 4096.
        let lba_bytes = usize::try_from(self.lba_bytes).unwrap_or(512);
        for (nth, block) in self.bytes.chunks_mut(lba_bytes).enumerate() {
            if self.wire.read(Lba(lba.0 + nth as u64), block).is_err() {
                block.fill(0);
            }
        }
    }
}
