//! Mounting: superblock, checkpoint, journal, and what does not fit together.

use super::mkfs::{superblock_block, tree_limits};
use super::wire::Wire;
use super::{Flushes, Journal, JournalError, MetaTag};
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::checkpoint::{CheckpointReader, PAGE_BYTES, Place};
use crate::format::geometry::Geometry;
use crate::format::op::Op;
use crate::format::record::RecordBuilder;
use crate::format::ring::{Ring, RingPos, RingShape, Scanned, scan};
use crate::format::superblock::{Superblock, choose};
use crate::format::{FormatError, Identity, LbaSize, Twin, uuid32};
use crate::tree::{Severity, Tree};
use driver::clock::Clock;
use driver::memory::DmaDomain;
use driver::namespace::Lba;
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

/// Bytes that are read ahead of a sequential reader.
const WINDOW: usize = 1 << 20;

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
        Ok(state) => Ok(state.loaded(device, domain, options.mode)),
        Err(error) => Err((error, device)),
    }
}

/// What was read.
struct State {
    superblock: Superblock,
    tree: Tree,
    scanned: Scanned,
    report: LoadReport,
}

impl State {
    fn loaded<D: BlockDevice<MetaTag>>(
        self,
        device: D,
        domain: &DmaDomain,
        mode: LoadMode,
    ) -> Loaded<D> {
        let geometry = self.superblock.geometry;
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
        let durable = self.scanned.next_txid - 1;
        let journal = Journal {
            limits: device.limits(),
            device,
            domain: domain.clone(),
            identity,
            max_record_bytes,
            superblock: self.superblock,
            read_only: mode != LoadMode::ReadWrite,
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
            chunks: 0,
            paid: 0,
            grown: false,
            closing: false,
        };
        Loaded {
            tree: self.tree,
            journal,
            geometry,
            report: self.report,
        }
    }
}

fn strict<D: BlockDevice<MetaTag>>(
    mut wire: Wire<'_, D>,
    mode: LoadMode,
) -> Result<State, JournalError> {
    let limits = wire.device.limits();
    let lba_size = LbaSize::from_bytes(limits.block_size)?;
    let lba_bytes = lba_size.bytes() as usize;
    let (mut a, mut b) = (vec![0; lba_bytes], vec![0; lba_bytes]);
    wire.read(Geometry::superblock_lba(lba_size, Twin::A), &mut a)?;
    if limits.blocks <= Geometry::superblock_lba(lba_size, Twin::B).0 {
        let blocks = limits.blocks / lba_size.per_block();
        let needed = crate::format::geometry::SUPERBLOCK_B_BLOCK + 1;
        return Err(FormatError::VolumeTooSmall { blocks, needed }.into());
    }
    wire.read(Geometry::superblock_lba(lba_size, Twin::B), &mut b)?;
    let chosen = choose(&a, &b, lba_size)?;
    let mut superblock = chosen.superblock;
    superblock.geometry.check_device(limits.blocks)?;
    let forbidden = superblock.features.forbid_writing();
    if mode == LoadMode::ReadWrite && forbidden != 0 {
        return Err(JournalError::ForbidsWriting { bits: forbidden });
    }
    let mut report = LoadReport {
        clean: superblock.clean,
        twin_valid: chosen.twin.is_ok(),
        checkpoint_pages: superblock.checkpoint.pages,
        ..LoadReport::default()
    };
    let mut tree = Tree::new(tree_limits(&superblock.geometry));
    read_checkpoint(&mut wire, &superblock, &mut tree)?;
    refuse_unsound(&tree)?;
    // A volume that was unmounted has nothing in its journal; but if its other superblock is lost,
    // this may be the older one.
    let scanned = match superblock.clean && chosen.twin.is_ok() {
        true => nothing_after(&superblock),
        false => replay(&mut wire, &superblock, &mut tree)?,
    };
    report.records = scanned.records;
    report.torn = scanned.torn;
    let per_block = lba_size.per_block();
    let blocks = tree.limits().volume_blocks;
    if blocks > superblock.geometry.volume_blocks {
        superblock.geometry = superblock
            .geometry
            .grown(blocks.saturating_mul(per_block))?;
        superblock.geometry.check_device(limits.blocks)?;
    }
    if mode == LoadMode::ReadWrite {
        superblock.generation += 1;
        superblock.epoch = superblock.epoch.max(scanned.last_epoch) + 1;
        superblock.clean = false;
        superblock.journal.known_txid = scanned.next_txid - 1;
        let lba = Geometry::superblock_lba(lba_size, superblock.copy());
        let block = superblock_block(&superblock, lba)?;
        wire.write(lba, &block, limits.volatile_cache)?;
    }
    Ok(State {
        superblock,
        tree,
        scanned,
        report,
    })
}

/// The state of an unmounted volume's journal.
fn nothing_after(superblock: &Superblock) -> Scanned {
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

fn read_checkpoint<D: BlockDevice<MetaTag>>(
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
    let mut page = 0;
    while page < active.pages {
        let pages = window_pages.min(active.pages - page);
        // At most WINDOW.
        window.resize(usize::try_from(pages).unwrap_or(0) * PAGE_BYTES, 0);
        wire.read(lba_size.lba_of(place.slot.start + page), &mut window)?;
        for bytes in window.chunks_exact(PAGE_BYTES) {
            reader.page(bytes, |op| tree.load(op).map_err(JournalError::from))?;
        }
        page += pages;
    }
    reader.finish()?;
    Ok(())
}

/// Applies what the journal has; `tree` has the checkpoint.
fn replay<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    superblock: &Superblock,
    tree: &mut Tree,
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
            tree.apply(&ops)?;
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
                self.wire.read(lba, &mut self.bytes)?;
                0
            }
        };
        if let Some(bytes) = self.bytes.get(skip..skip + out.len()) {
            out.copy_from_slice(bytes);
        }
        Ok(())
    }
}

/// Tries one superblock after the other, and takes what each leads to as far as it goes.
fn salvage<D: BlockDevice<MetaTag>>(mut wire: Wire<'_, D>) -> Result<State, JournalError> {
    let limits = wire.device.limits();
    let lba_size = LbaSize::from_bytes(limits.block_size)?;
    let last_block = (limits.blocks / lba_size.per_block()).saturating_sub(1);
    let places = [
        Geometry::superblock_lba(lba_size, Twin::A),
        Geometry::superblock_lba(lba_size, Twin::B),
        lba_size.lba_of(last_block),
    ];
    let mut problems = Vec::new();
    let mut found: Vec<Superblock> = Vec::new();
    for lba in places.into_iter().filter(|lba| lba.0 < limits.blocks) {
        let mut block = vec![0; lba_size.bytes() as usize];
        let superblock = wire
            .read(lba, &mut block)
            .and_then(|()| Ok(Superblock::decode(&block, lba, lba_size)?));
        match superblock {
            Ok(superblock) => found.push(superblock),
            Err(error) => problems.push(format!("the superblock at LBA {}: {error}", lba.0)),
        }
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    let mut last = JournalError::Format(FormatError::VolumeTooSmall {
        blocks: limits.blocks / lba_size.per_block(),
        needed: crate::format::geometry::SUPERBLOCK_B_BLOCK + 1,
    });
    for superblock in found {
        let mut tree = Tree::new(tree_limits(&superblock.geometry));
        if let Err(error) = read_checkpoint(&mut wire, &superblock, &mut tree) {
            problems.push(format!(
                "the checkpoint of generation {}: {error}",
                superblock.generation
            ));
            last = error;
            continue;
        }
        let scanned = match replay(&mut wire, &superblock, &mut tree) {
            Ok(scanned) => scanned,
            Err(error) => {
                problems.push(format!("the journal: {error}"));
                nothing_after(&superblock)
            }
        };
        problems.extend(tree.check().iter().map(ToString::to_string));
        let report = LoadReport {
            clean: superblock.clean,
            twin_valid: false,
            checkpoint_pages: superblock.checkpoint.pages,
            records: scanned.records,
            torn: scanned.torn,
            problems,
        };
        return Ok(State {
            superblock,
            tree,
            scanned,
            report,
        });
    }
    Err(last)
}
