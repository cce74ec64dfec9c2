//! Mounting: superblock, checkpoint, journal, and what does not fit together.

use super::buffers::Kept;
use super::checkpoint::CHUNK_BYTES;
use super::mkfs::{superblock_block, tree_limits};
use super::read::{Unreadable, nothing_after, read_checkpoint, read_superblocks, replay};
use super::salvage::salvage;
use super::wire::Wire;
use super::{Flushes, Journal, JournalError, MetaTag, new_life};
use crate::device::BlockDevice;
use crate::format::geometry::Geometry;
use crate::format::record::RecordBuilder;
use crate::format::ring::{Ring, RingShape, Scanned};
use crate::format::superblock::Superblock;
use crate::format::{FormatError, Identity, Structure, uuid32};
use crate::tree::{Severity, Tree};
use driver::clock::Clock;
use driver::memory::{DmaDomain, MemoryError};
use std::collections::VecDeque;
use std::time::Duration;

/// For what a volume is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMode {
    /// To be changed. Writes a superblock.
    ReadWrite,
    /// To be read. Writes nothing, and refuses damage as `ReadWrite` does.
    ReadOnly,
    /// To get out what can be got out of a damaged one. Writes nothing.
    Salvage,
}

/// How a volume is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// For what.
    pub mode: LoadMode,
    /// How long each transfer may take.
    pub limit: Duration,
}

/// What loading found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Whether it had been unmounted.
    pub clean: bool,
    /// Whether the older superblock is intact, too.
    pub twin_valid: bool,
    /// Pages of the checkpoint.
    pub checkpoint_pages: u64,
    /// Records that were replayed.
    pub records: u64,
    /// Number of the last record of all that the metadata contain, by the checkpoint or replayed.
    pub last_record: u64,
    /// Whether a record was found that a power cut tore; it was never acknowledged.
    pub torn: bool,
    /// What a salvage had to pass over.
    pub problems: Vec<String>,
}

/// A loaded volume.
#[derive(Debug)]
pub struct Loaded<D> {
    /// Its metadata.
    pub tree: Tree,
    /// Its journal.
    pub journal: Journal<D>,
    /// Where things lie.
    pub geometry: Geometry,
    /// What was done.
    pub report: LoadReport,
}

/// Generations, epochs and record numbers from here on are nothing that counting up leads to.
const LAST_NUMBER: u64 = u64::MAX / 2;

/// Loads a volume.
///
/// # Errors
/// [`JournalError`], and the device.
pub fn load<D: BlockDevice<MetaTag>>(
    mut device: D,
    domain: &DmaDomain,
    clock: &dyn Clock,
    options: &LoadOptions,
) -> Result<Loaded<D>, (JournalError, D)> {
    let wire = Wire {
        device: &mut device,
        domain,
        clock,
        limit: options.limit,
    };
    let state = match options.mode {
        LoadMode::Salvage => salvage(wire),
        _ => strict(wire, options.mode),
    };
    match state {
        Ok(state) => state.loaded(device, domain, options.mode),
        Err(error) => Err((error, device)),
    }
}

/// What was read.
pub(super) struct State {
    pub(super) superblock: Superblock,
    /// Where things lie; the journal may have made the volume larger than the superblock says.
    pub(super) geometry: Geometry,
    pub(super) tree: Tree,
    pub(super) scanned: Scanned,
    pub(super) report: LoadReport,
}

impl State {
    fn loaded<D: BlockDevice<MetaTag>>(
        self,
        device: D,
        domain: &DmaDomain,
        mode: LoadMode,
    ) -> Result<Loaded<D>, (JournalError, D)> {
        let read_only = mode != LoadMode::ReadWrite;
        let kept = match self.buffers(domain, read_only) {
            Ok(kept) => kept,
            Err(error) => return Err((error.into(), device)),
        };
        let [record_buf, page_buf, superblock_buf] = kept;
        let geometry = self.geometry;
        let identity = Identity {
            uuid32: uuid32(&self.superblock.uuid),
            lba_size: geometry.lba_size,
        };
        let max_record_bytes = geometry.max_record_bytes();
        let ring = Ring::new(
            RingShape::new(&geometry),
            self.scanned.start,
            self.scanned.next,
        );
        let durable = self.scanned.last_txid();
        let journal = Journal {
            limits: device.limits(),
            device,
            life: new_life(),
            domain: domain.clone(),
            identity,
            max_record_bytes,
            superblock: self.superblock,
            geometry,
            read_only,
            failed: None,
            ring,
            open: RecordBuilder::new(identity, max_record_bytes),
            open_txid: self.scanned.next_txid,
            queue: VecDeque::new(),
            spare: Vec::new(),
            writing: None,
            wanted: 0,
            durable,
            last_crc: self.scanned.last_crc,
            dirty: false,
            flushes: Flushes::default(),
            checkpoint: None,
            checkpoint_wanted: false,
            checkpoints: (0, 0),
            grown: geometry != self.superblock.geometry,
            closing: false,
            record_buf,
            page_buf,
            superblock_buf,
        };
        Ok(Loaded {
            tree: self.tree,
            journal,
            geometry,
            report: self.report,
        })
    }

    /// For a record, a chunk of pages, and a superblock.
    fn buffers(&self, domain: &DmaDomain, read_only: bool) -> Result<[Kept; 3], MemoryError> {
        if read_only {
            return Ok([Kept::default(), Kept::default(), Kept::default()]);
        }
        let geometry = &self.superblock.geometry;
        Ok([
            Kept::new(domain, geometry.max_record_bytes() as usize)?,
            Kept::new(domain, CHUNK_BYTES)?,
            Kept::new(domain, geometry.lba_size.bytes() as usize)?,
        ])
    }
}

fn strict<D: BlockDevice<MetaTag>>(
    mut wire: Wire<'_, D>,
    mode: LoadMode,
) -> Result<State, JournalError> {
    let limits = wire.device.limits();
    let chosen = read_superblocks(&mut wire)?;
    let mut superblock = chosen.superblock;
    superblock.geometry.check_device(limits.blocks)?;
    let forbidden = superblock.features.forbid_writing();
    if mode == LoadMode::ReadWrite && forbidden != 0 {
        return Err(JournalError::ForbidsWriting { bits: forbidden });
    }
    let mut tree = Tree::new(tree_limits(&superblock.geometry));
    read_checkpoint(&mut wire, &superblock, &mut tree)?;
    refuse_unsound(&tree)?;
    // A volume that was unmounted has nothing in its journal; but if its other superblock is lost,
    // this may be the older one.
    let scanned = match superblock.clean && chosen.twin.is_ok() {
        true => nothing_after(&superblock),
        false => replay(&mut wire, &superblock, &mut tree, Unreadable::Refused)?,
    };
    let report = LoadReport {
        clean: superblock.clean,
        twin_valid: chosen.twin.is_ok(),
        checkpoint_pages: superblock.checkpoint.pages,
        records: scanned.records,
        last_record: scanned.last_txid(),
        torn: scanned.torn,
        problems: Vec::new(),
    };
    let geometry = grown(&superblock.geometry, &tree)?;
    geometry.check_device(limits.blocks)?;
    if mode == LoadMode::ReadWrite {
        take_over(&mut wire, &mut superblock, &scanned)?;
    }
    Ok(State {
        superblock,
        geometry,
        tree,
        scanned,
        report,
    })
}

/// The layout of a volume that the journal may have made larger.
pub(super) fn grown(geometry: &Geometry, tree: &Tree) -> Result<Geometry, FormatError> {
    let blocks = tree.limits().volume_blocks;
    let lbas = blocks.saturating_mul(geometry.lba_size.per_block());
    geometry.grown(lbas)
}

/// Writes the superblock of a new epoch: what any earlier one left is old from now on.
fn take_over<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    superblock: &mut Superblock,
    scanned: &Scanned,
) -> Result<(), JournalError> {
    let lba_size = superblock.geometry.lba_size;
    let epoch = superblock.epoch.max(scanned.last_epoch);
    for (field, number) in [
        ("the generation", superblock.generation),
        ("the epoch", epoch),
        ("the number of the next record", scanned.next_txid),
    ] {
        if number > LAST_NUMBER {
            let lba = Geometry::superblock_lba(lba_size, superblock.copy()).0;
            let (what, found) = (Structure::Superblock, number);
            return Err(FormatError::BadField {
                what,
                field,
                lba,
                found,
            }
            .into());
        }
    }
    superblock.generation += 1;
    superblock.epoch = epoch + 1;
    superblock.clean = false;
    superblock.journal.known_txid = scanned.last_txid();
    // A process that died without a power cut may have left the last record in the drive's cache only;
    // it must not be called known before it is on the medium.
    wire.flush()?;
    let lba = Geometry::superblock_lba(lba_size, superblock.copy());
    let fua = wire.device.limits().volatile_cache;
    wire.write(lba, &superblock_block(superblock, lba)?, fua)
}

fn refuse_unsound(tree: &Tree) -> Result<(), JournalError> {
    let findings = tree.check();
    let mut errors = findings
        .into_iter()
        .filter(|finding| finding.severity() > Severity::Warning);
    match errors.next() {
        None => Ok(()),
        Some(first) => Err(JournalError::Unsound {
            count: 1 + errors.count(),
            first,
        }),
    }
}
