//! Getting out what can be got out of a damaged volume.

use super::load::{LoadReport, State, grown};
use super::mkfs::tree_limits;
use super::read::{Unreadable, nothing_after, read_checkpoint, replay};
use super::superblocks::{FoundSuperblock, SuperblockPlace, find_superblocks};
use super::wire::Wire;
use super::{JournalError, MetaTag};
use crate::device::BlockDevice;
use crate::format::checkpoint::{CheckpointScan, PAGE_BYTES, Scan};
use crate::format::geometry::SUPERBLOCK_B_BLOCK;
use crate::format::superblock::{ActiveCheckpoint, Superblock};
use crate::format::{FormatError, Identity, Twin, uuid32};
use crate::tree::Tree;

/// Findings that are reported one by one.
const MAX_FINDINGS: usize = 1000;

/// Tries one superblock after the other, and takes what each leads to as far as it goes. If none leads
/// anywhere, whole checkpoints are looked for that none names: the newest of them is the state, without
/// what the journal has after it.
pub(super) fn salvage<D: BlockDevice<MetaTag>>(
    mut wire: Wire<'_, D>,
) -> Result<State, JournalError> {
    let mut problems = Vec::new();
    let mut in_use = Vec::new();
    let mut spare = None;
    for FoundSuperblock { place, lba, found } in find_superblocks(&mut wire)? {
        match found {
            Ok(superblock) if place == SuperblockPlace::GeometryCopy => spare = Some(superblock),
            Ok(superblock) => in_use.push(superblock),
            Err(error) => problems.push(format!("{place}, at LBA {}: {error}", lba.0)),
        }
    }
    in_use.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    let mut last = None;
    for superblock in &in_use {
        match load(&mut wire, superblock, true, &mut problems) {
            Ok(state) => return Ok(state.with(problems)),
            Err(error) => last = Some(error),
        }
    }
    // The geometry copy says where things lie; its own checkpoint is as old as the volume, mostly.
    let guides: Vec<Superblock> = in_use.first().copied().into_iter().chain(spare).collect();
    let Some(guide) = guides.first() else {
        return Err(last.unwrap_or_else(|| nothing(&wire)));
    };
    for checkpoint in scan_slots(&mut wire, guide) {
        let named = guides.iter().find(|one| one.checkpoint == checkpoint);
        let superblock = named.copied().unwrap_or(Superblock {
            checkpoint,
            ..*guide
        });
        if named.is_none() {
            problems.push(format!(
                "no superblock names the checkpoint of epoch {}, nor what the journal has after it",
                checkpoint.epoch
            ));
        }
        match load(&mut wire, &superblock, named.is_some(), &mut problems) {
            Ok(state) => return Ok(state.with(problems)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| nothing(&wire)))
}

/// There is nothing that says where anything is.
fn nothing<D: BlockDevice<MetaTag>>(wire: &Wire<'_, D>) -> JournalError {
    let limits = wire.device.limits();
    let bytes = limits.blocks.saturating_mul(limits.block_size.into());
    let (blocks, needed) = (bytes / PAGE_BYTES as u64, SUPERBLOCK_B_BLOCK + 1);
    FormatError::VolumeTooSmall { blocks, needed }.into()
}

/// The state that a superblock leads to; with its journal if that is known.
fn load<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    superblock: &Superblock,
    journal: bool,
    problems: &mut Vec<String>,
) -> Result<State, JournalError> {
    let mut tree = Tree::new(tree_limits(&superblock.geometry));
    if let Err(error) = read_checkpoint(wire, superblock, &mut tree) {
        problems.push(format!(
            "the checkpoint of generation {}: {error}",
            superblock.generation
        ));
        return Err(error);
    }
    let scanned = match journal {
        true => replay(wire, superblock, &mut tree, Unreadable::Zeros),
        false => Ok(nothing_after(superblock)),
    };
    let scanned = scanned.unwrap_or_else(|error| {
        problems.push(format!("the journal: {error}"));
        nothing_after(superblock)
    });
    let findings = tree.check();
    problems.extend(findings.iter().take(MAX_FINDINGS).map(ToString::to_string));
    if findings.len() > MAX_FINDINGS {
        problems.push(format!("and {} more", findings.len() - MAX_FINDINGS));
    }
    let report = LoadReport {
        clean: superblock.clean,
        twin_valid: false,
        checkpoint_pages: superblock.checkpoint.pages,
        records: scanned.records,
        last_record: scanned.last_txid(),
        torn: scanned.torn,
        problems: Vec::new(),
    };
    let geometry = grown(&superblock.geometry, &tree).unwrap_or(superblock.geometry);
    Ok(State {
        superblock: *superblock,
        geometry,
        tree,
        scanned,
        report,
    })
}

impl State {
    fn with(mut self, problems: Vec<String>) -> Self {
        self.report.problems = problems;
        self
    }
}

/// Whole checkpoints in both slots, the newest first.
fn scan_slots<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    guide: &Superblock,
) -> Vec<ActiveCheckpoint> {
    let slots = [Twin::A, Twin::B].into_iter();
    let mut found: Vec<_> = slots
        .filter_map(|slot| scan_slot(wire, guide, slot))
        .collect();
    found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.epoch));
    found
}

/// Pages that are read at a time.
const WINDOW_PAGES: u64 = 256;

fn scan_slot<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    guide: &Superblock,
    slot: Twin,
) -> Option<ActiveCheckpoint> {
    let lba_size = guide.geometry.lba_size;
    let range = guide.geometry.slot(slot);
    let identity = Identity {
        uuid32: uuid32(&guide.uuid),
        lba_size,
    };
    let mut scan = CheckpointScan::new(identity, slot, range);
    let mut window = Vec::new();
    let mut at = range.start;
    while at < range.end() {
        let pages = WINDOW_PAGES.min(range.end() - at);
        // At most WINDOW_PAGES.
        window.resize(usize::try_from(pages).unwrap_or(0) * PAGE_BYTES, 0);
        wire.read(lba_size.lba_of(at), &mut window).ok()?;
        for page in window.as_chunks::<PAGE_BYTES>().0 {
            match scan.page(page) {
                Scan::More => {}
                Scan::Whole(checkpoint) => return Some(checkpoint),
                Scan::Broken => return None,
            }
        }
        at += pages;
    }
    None
}
