//! Getting out what can be got out of a damaged volume.

use super::load::{LoadReport, State, grown};
use super::mkfs::tree_limits;
use super::read::{Unreadable, nothing_after, read_checkpoint, replay};
use super::superblocks::{FoundSuperblock, find_superblocks};
use super::wire::Wire;
use super::{JournalError, MetaTag};
use crate::device::BlockDevice;
use crate::format::geometry::SUPERBLOCK_B_BLOCK;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, LbaSize};
use crate::tree::Tree;

/// Findings that are reported one by one.
const MAX_FINDINGS: usize = 1000;

/// Tries one superblock after the other, and takes what each leads to as far as it goes.
pub(super) fn salvage<D: BlockDevice<MetaTag>>(
    mut wire: Wire<'_, D>,
) -> Result<State, JournalError> {
    let limits = wire.device.limits();
    let lba_size = LbaSize::from_bytes(limits.block_size)?;
    let mut problems = Vec::new();
    let mut found: Vec<Superblock> = Vec::new();
    for FoundSuperblock {
        place,
        lba,
        found: one,
    } in find_superblocks(&mut wire)?
    {
        match one {
            Ok(superblock) => found.push(superblock),
            Err(error) => problems.push(format!("{place}, at LBA {}: {error}", lba.0)),
        }
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    let mut last = JournalError::Format(FormatError::VolumeTooSmall {
        blocks: limits.blocks / lba_size.per_block(),
        needed: SUPERBLOCK_B_BLOCK + 1,
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
        let scanned = match replay(&mut wire, &superblock, &mut tree, Unreadable::Zeros) {
            Ok(scanned) => scanned,
            Err(error) => {
                problems.push(format!("the journal: {error}"));
                nothing_after(&superblock)
            }
        };
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
            torn: scanned.torn,
            problems,
        };
        let geometry = grown(&superblock.geometry, &tree).unwrap_or(superblock.geometry);
        return Ok(State {
            superblock,
            geometry,
            tree,
            scanned,
            report,
        });
    }
    Err(last)
}
