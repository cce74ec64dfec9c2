//! Every superblock that a drive has, valid or not: for salvage, fsck, and whoever wants to look.

use super::wire::Wire;
use super::{JournalError, MetaTag};
use crate::device::BlockDevice;
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, LbaSize, Structure, Twin};
use driver::clock::Clock;
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use std::fmt;
use std::time::Duration;

/// Where a superblock may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockPlace {
    /// One of the two that are in use.
    Copy(Twin),
    /// The one at the volume's end that mkfs and grow leave.
    GeometryCopy,
}

impl fmt::Display for SuperblockPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy(Twin::A) => "superblock A",
            Self::Copy(Twin::B) => "superblock B",
            Self::GeometryCopy => "the geometry copy",
        })
    }
}

/// A place, and what is there.
#[derive(Clone, Debug)]
pub struct FoundSuperblock {
    /// Which place.
    pub place: SuperblockPlace,
    /// Its logical block.
    pub lba: Lba,
    /// The superblock, or what is there instead.
    pub found: Result<Superblock, JournalError>,
}

/// Reads all places where superblocks may be. The geometry copy is looked for at the volume's end, or at
/// the drive's if no other superblock says where that is.
///
/// # Errors
/// [`FormatError::LbaSize`]. A block that cannot be read is an error of its place alone.
pub fn superblocks<D: BlockDevice<MetaTag>>(
    device: &mut D,
    domain: &DmaDomain,
    clock: &dyn Clock,
    limit: Duration,
) -> Result<Vec<FoundSuperblock>, JournalError> {
    let mut wire = Wire {
        device,
        domain,
        clock,
        limit,
    };
    find_superblocks(&mut wire)
}

pub(super) fn find_superblocks<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
) -> Result<Vec<FoundSuperblock>, JournalError> {
    let limits = wire.device.limits();
    let lba_size = LbaSize::from_bytes(limits.block_size)?;
    let mut all: Vec<FoundSuperblock> = Vec::new();
    let mut look = |place: SuperblockPlace, lba: Lba, all: &mut Vec<FoundSuperblock>| {
        if lba.0 < limits.blocks {
            let found = read_superblock(wire, place, lba, lba_size);
            all.push(FoundSuperblock { place, lba, found });
        }
    };
    for copy in [Twin::A, Twin::B] {
        let lba = Geometry::superblock_lba(lba_size, copy);
        look(SuperblockPlace::Copy(copy), lba, &mut all);
    }
    let valid = all.iter().filter_map(|found| found.found.as_ref().ok());
    let newest = valid.max_by_key(|superblock| superblock.generation);
    let last = match newest {
        Some(superblock) => superblock.geometry.geometry_copy_lba(),
        None => lba_size.lba_of((limits.blocks / lba_size.per_block()).saturating_sub(1)),
    };
    look(SuperblockPlace::GeometryCopy, last, &mut all);
    Ok(all)
}

fn read_superblock<D: BlockDevice<MetaTag>>(
    wire: &mut Wire<'_, D>,
    place: SuperblockPlace,
    lba: Lba,
    lba_size: LbaSize,
) -> Result<Superblock, JournalError> {
    let mut block = vec![0; lba_size.bytes() as usize];
    wire.read(lba, &mut block)?;
    let superblock = Superblock::decode(&block, lba, lba_size)?;
    match place {
        SuperblockPlace::Copy(copy) if superblock.copy() != copy => Err(FormatError::BadField {
            what: Structure::Superblock,
            field: "the generation",
            lba: lba.0,
            found: superblock.generation,
        }
        .into()),
        _ => Ok(superblock),
    }
}
