//! What fsck does: what is wrong with a volume, what can be repaired, and what can be got out.
//!
//! There is one checker. [`Blockfs::check`] applies it to a mounted volume, [`check`] to one that is
//! not mounted, with its superblocks and its journal.
//!
//! Nothing on the drive is trusted: whatever is there, the answer is a [`Report`] or a typed error.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the check and the repair |
//! | `problem.rs` | what can be wrong |
//! | `salvage.rs` | all that a damaged volume still has |
#![forbid(unsafe_code)]

mod problem;
mod salvage;

pub use problem::Problem;
pub use salvage::Salvaged;

use crate::device::BlockDevice;
use crate::format::FormatError;
use crate::format::geometry::BlockRange;
use crate::format::op::Kind;
use crate::fs::{Blockfs, FsError, MountError, MountOptions};
use crate::iostat::{IoStat, Off};
use crate::journal::{
    self, FoundSuperblock, JournalError, LoadMode, LoadOptions, Loaded, MetaTag, SuperblockPlace,
    load,
};
use crate::space::Space;
use crate::tree::{Finding, Severity, Tree};
use driver::memory::DmaDomain;
use driver::spec::status::SCT_MEDIA;
use std::sync::Arc;

/// How much a volume has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Inodes without a name that wait to be freed.
    pub orphans: u64,
    /// Directory entries.
    pub names: u64,
    /// Extents.
    pub extents: u64,
    /// Blocks of 4 KiB that files have.
    pub used_blocks: u64,
    /// Blocks of 4 KiB that files can have.
    pub data_blocks: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, and what a mount would put in order.
    pub problems: Vec<Problem>,
    /// How much there is; of a damaged volume, how much can be read. `None`: nothing can.
    pub counts: Option<Counts>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether [`repair`] puts everything in order.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        self.problems.iter().all(Problem::is_repairable)
    }
}

/// A check that could not be made, with the device.
#[derive(Debug, thiserror::Error)]
#[error("the volume cannot be checked")]
pub struct CheckError<D> {
    /// Why.
    #[source]
    pub error: FsError,
    /// The device.
    pub device: D,
}

impl<D> CheckError<D> {
    fn new(error: JournalError, device: D) -> Self {
        let error = FsError::Journal(Arc::new(error));
        Self { error, device }
    }
}

/// Everything that must hold of metadata; with `space`, of what is free, too.
fn findings(tree: &Tree, data: BlockRange, space: Option<&Space>) -> Vec<Finding> {
    let mut found = tree.check();
    found.extend(tree.check_blocks(data, space));
    found
}

impl<D: BlockDevice<MetaTag>, S: IoStat> Blockfs<D, S> {
    /// Checks everything that must hold of the metadata as they are in memory now; nothing found
    /// means that all is well. Takes time by their size.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        let core = self.shared.lock();
        // What freed blocks wait for, and what writes on their way have taken, is in no file.
        let settled = core.is_settled().then_some(&core.space);
        findings(&core.tree, core.geometry.data, settled)
    }
}

/// Checks the volume on a device, and writes nothing. Of `options` the clock and the limit are used.
///
/// The journal is replayed in memory: what is checked is what a mount would find.
///
/// # Errors
/// [`CheckError`] with the device: it does not answer, or holds no volume at all.
///
/// # Examples
///
/// ```
/// use blockfs::check::check;
/// use blockfs::device::DriverDevice;
/// use blockfs::fs::{MkfsOptions, MountOptions, mkfs};
/// use driver::controller::{Controller, ControllerOptions, QueueOptions};
/// use driver::memory::DmaDomain;
/// use nvme_emulator::Emulator;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let drive = Emulator::builder().start()?;
/// let domain = DmaDomain::new();
/// let controller = Controller::attach(drive.transport(), &domain, &ControllerOptions::default())?;
/// let mut device = DriverDevice::open(&controller, 1, &QueueOptions::default())?;
/// let options = MountOptions::default();
/// mkfs(&mut device, &domain, &options, &MkfsOptions::new(uuid::Uuid::from_u128(42)))?;
///
/// let (report, _device) = check(device, &domain, &options)?;
/// assert!(report.is_clean());
/// # Ok(())
/// # }
/// ```
pub fn check<D: BlockDevice<MetaTag>>(
    mut device: D,
    domain: &DmaDomain,
    options: &MountOptions,
) -> Result<(Report, D), CheckError<D>> {
    let clock = &*options.clock;
    let superblocks = match journal::superblocks(&mut device, domain, clock, options.limit) {
        Ok(superblocks) => superblocks,
        Err(error) => return Err(CheckError::new(error, device)),
    };
    let mut report = Report::default();
    if let Err(error) = check_superblocks(&superblocks, &mut report) {
        return Err(CheckError::new(error, device));
    }
    let mut read = LoadOptions {
        mode: LoadMode::ReadOnly,
        limit: options.limit,
    };
    let device = match load(device, domain, clock, &read) {
        Ok(loaded) => {
            let (clean, records) = (loaded.report.clean, loaded.report.records);
            if !clean || records > 0 {
                let torn = loaded.report.torn;
                report
                    .problems
                    .push(Problem::NotUnmounted { records, torn });
            }
            return Ok(finish(loaded, report));
        }
        Err((error, device)) if is_operational(&error) => {
            return Err(CheckError::new(error, device));
        }
        Err((error, device)) => {
            report.problems.push(Problem::Unusable(error));
            device
        }
    };
    // It cannot be mounted; what is wrong with the rest is told all the same.
    read.mode = LoadMode::Salvage;
    match load(device, domain, clock, &read) {
        Ok(loaded) => Ok(finish(loaded, report)),
        Err((error, device)) if is_operational(&error) => Err(CheckError::new(error, device)),
        Err((_, device)) => Ok((report, device)),
    }
}

fn check_superblocks(
    superblocks: &[FoundSuperblock],
    report: &mut Report,
) -> Result<(), JournalError> {
    for FoundSuperblock { place, lba, found } in superblocks {
        match found {
            Ok(_) => {}
            Err(error) if is_operational(error) => return Err(error.clone()),
            Err(error) => report.problems.push(Problem::Superblock {
                place: *place,
                lba: *lba,
                error: error.clone(),
            }),
        }
    }
    // Nothing that says that there ever was a volume.
    if superblocks.iter().all(is_foreign) {
        let mut errors = superblocks.iter().filter_map(|found| match &found.found {
            Err(JournalError::Format(error)) => Some(Box::new(error.clone())),
            _ => None,
        });
        if let (Some(a), Some(b)) = (errors.next(), errors.next()) {
            return Err(FormatError::NoSuperblock { a, b }.into());
        }
    }
    Ok(())
}

/// Whether what is there is no superblock of any kind.
fn is_foreign(found: &FoundSuperblock) -> bool {
    match &found.found {
        Err(JournalError::Format(error)) => error.is_no_volume(),
        _ => false,
    }
}

/// Whether this says nothing about what is on the drive: it cannot be checked.
fn is_operational(error: &JournalError) -> bool {
    match error {
        JournalError::Device { status, .. } => status.sct() != SCT_MEDIA,
        JournalError::Format(FormatError::LbaSize { .. }) => true,
        JournalError::Rejected(_) | JournalError::TimedOut { .. } | JournalError::Memory(_) => true,
        _ => false,
    }
}

/// The metadata.
fn finish<D: BlockDevice<MetaTag>>(loaded: Loaded<D>, mut report: Report) -> (Report, D) {
    let Loaded {
        tree,
        journal,
        geometry,
        ..
    } = loaded;
    let found = findings(&tree, geometry.data, None);
    report
        .problems
        .extend(found.into_iter().map(Problem::Metadata));
    report.counts = Some(counts(&tree, geometry.data));
    (report, journal.into_device())
}

fn counts(tree: &Tree, data: BlockRange) -> Counts {
    let totals = tree.totals();
    let mut counts = Counts {
        orphans: tree.orphans().count() as u64,
        names: totals.dirents,
        extents: totals.extents,
        used_blocks: totals.blocks,
        data_blocks: data.blocks,
        ..Counts::default()
    };
    for stat in tree.inodes().filter_map(|ino| tree.stat(ino).ok()) {
        match stat.kind {
            Kind::File => counts.files += 1,
            Kind::Directory => counts.directories += 1,
            Kind::Symlink => counts.symlinks += 1,
        }
    }
    counts
}

/// Puts in order what a mount does: replays the journal, frees what has no name, writes both
/// superblocks and the geometry copy. A volume that is damaged otherwise is refused.
///
/// # Errors
/// As [`Blockfs::mount`] and [`Blockfs::unmount`], with the device if there is one.
pub fn repair<D: BlockDevice<MetaTag>>(
    device: D,
    domain: &DmaDomain,
    options: &MountOptions,
) -> Result<D, (FsError, Option<D>)> {
    let options = MountOptions {
        mode: LoadMode::ReadWrite,
        ..options.clone()
    };
    let mounted = Blockfs::<D, Off>::mount(device, domain, options);
    let fs = mounted.map_err(|MountError { error, device }| (error, Some(device)))?;
    {
        let mut core = fs.shared.lock();
        let geometry = core.geometry;
        core.journal.set_geometry(geometry);
    }
    fs.unmount().map_err(|error| (error, None))
}

impl Problem {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::Superblock { .. } | Self::NotUnmounted { .. } => Severity::Warning,
            Self::Unusable(_) => Severity::Fatal,
            Self::Metadata(finding) => finding.severity(),
        }
    }

    /// Whether [`repair`] puts it in order, if nothing worse is wrong.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        self.severity() == Severity::Warning
    }

    /// A stable name for scripts.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Superblock { place, .. } => match place {
                SuperblockPlace::Copy(_) => "superblock",
                SuperblockPlace::GeometryCopy => "geometry-copy",
            },
            Self::NotUnmounted { .. } => "not-unmounted",
            Self::Unusable(_) => "unusable",
            Self::Metadata(finding) => finding.code(),
        }
    }
}
