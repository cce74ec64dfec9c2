//! Workloads: the same actions on the filesystem and on the reference, and what was to be seen after
//! each of them.

use crate::act::{Broken, both};
use crate::contents::Contents;
use crate::model::Model;
use crate::sim::{Fail, SimNvme, SimOptions, SimQueue};
use crate::states::Log;
use blockfs::file::{Blocking, Tag};
use blockfs::format::geometry::LayoutOptions;
use blockfs::fs::{Blockfs, FsError, MkfsOptions, MountOptions, mkfs};
use blockfs::journal::{LoadMode, MetaTag};
use blockfs::tree::RenameMode;
use driver::memory::DmaDomain;
use nvme_emulator::media::{Media, Store};
use std::error::Error;
use std::sync::Arc;
use uuid::Uuid;

/// The filesystem on a simulated drive.
pub type Fs = Blockfs<SimQueue<MetaTag>>;
/// A queue of it.
pub type Io = Blocking<SimQueue<Tag<()>>, SimQueue<MetaTag>>;

/// One step of a workload. Offsets and lengths are in bytes.
#[derive(Clone, Debug)]
pub enum Action {
    /// A new file.
    Create(String),
    /// A new directory.
    Mkdir(String),
    /// A new symbolic link, to the first.
    Symlink(String, String),
    /// A write.
    Write {
        /// Where to.
        path: String,
        /// From this byte on.
        at: u64,
        /// So many.
        len: u64,
        /// What is written: see [`crate::model::poison`].
        fill: u32,
        /// Whether it is durable when it ends.
        dsync: bool,
    },
    /// A write at the end.
    Append {
        /// Where to.
        path: String,
        /// So many bytes.
        len: u64,
        /// What is written.
        fill: u32,
    },
    /// A new size.
    Truncate(String, u64),
    /// A hole.
    Punch(String, u64, u64),
    /// Zeros; whether the size stays.
    Zero(String, u64, u64, bool),
    /// Blocks; whether the size stays.
    Reserve(String, u64, u64, bool),
    /// Zeros that are written.
    WriteZeroes(String, u64, u64),
    /// Another name.
    Rename(String, String, RenameMode),
    /// One more name, the second.
    Link(String, String),
    /// A name less.
    Unlink(String),
    /// A directory less.
    Rmdir(String),
    /// An extended attribute.
    SetXattr(String, String, Vec<u8>),
    /// One less.
    RemoveXattr(String, String),
    /// Permission bits.
    Chmod(String, u16),
    /// What was done to this is durable (and with it everything before).
    Fsync(String),
    /// Everything is.
    Sync,
    /// The same, in a checkpoint.
    Checkpoint,
    /// Tells the drive what is free.
    Trim,
}

impl Action {
    /// Whether everything before it is durable when it has ended.
    #[must_use]
    pub const fn is_sync(&self) -> bool {
        matches!(self, Self::Fsync(_) | Self::Sync | Self::Checkpoint)
    }

    pub(crate) fn paths(&self) -> [Option<&str>; 2] {
        match self {
            Self::Create(path) | Self::Mkdir(path) | Self::Unlink(path) | Self::Rmdir(path) => {
                [Some(path), None]
            }
            Self::Rename(from, to, _) | Self::Link(from, to) => [Some(from), Some(to)],
            Self::Symlink(_, path) => [Some(path), None],
            _ => [self.follows(), None],
        }
    }

    /// The path that it follows symbolic links of.
    pub(crate) fn follows(&self) -> Option<&str> {
        match self {
            Self::SetXattr(path, ..)
            | Self::RemoveXattr(path, _)
            | Self::Chmod(path, _)
            | Self::Fsync(path) => Some(path),
            _ => self.touches(),
        }
    }

    /// The file whose contents it changes.
    #[must_use]
    pub fn touches(&self) -> Option<&str> {
        match self {
            Self::Write { path, .. }
            | Self::Append { path, .. }
            | Self::Truncate(path, _)
            | Self::Punch(path, ..)
            | Self::Zero(path, ..)
            | Self::Reserve(path, ..)
            | Self::WriteZeroes(path, ..) => Some(path),
            _ => None,
        }
    }
}

/// A drive of its own.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a logical block.
    pub lba: u32,
    /// Whether its cache is volatile.
    pub volatile_cache: bool,
    /// Its size.
    pub bytes: u64,
}

impl Shape {
    /// The shape for a seed: all kinds in turn.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self {
            lba: if seed.is_multiple_of(2) { 512 } else { 4096 },
            volatile_cache: !seed.is_multiple_of(3),
            bytes: 1280 << 10,
        }
    }
}

/// A mounted volume on a drive, with a queue.
#[derive(Debug)]
pub struct Rig {
    /// The drive.
    pub drive: SimNvme,
    /// Its memory.
    pub domain: DmaDomain,
}

/// What a workload's outcome is.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

impl Rig {
    /// A drive with an empty volume.
    ///
    /// # Errors
    /// What goes wrong.
    pub fn new(shape: Shape, seed: u64, domain: &DmaDomain) -> Outcome<Self> {
        let cache = shape.volatile_cache.then_some(64 << 20);
        let media = Media::new(Store::ram(shape.bytes)?, shape.lba, cache)?;
        let rig = Self::over(
            Contents::Media(Box::new(media)),
            shape.volatile_cache,
            seed,
            domain,
        );
        let mut make = MkfsOptions::new(Uuid::from_u128(u128::from(seed) + 1));
        make.layout = LayoutOptions {
            journal_bytes: Some(64 << 10),
            checkpoint_bytes: Some(64 << 10),
        };
        mkfs(
            &mut rig.drive.queue(),
            domain,
            &rig.options(LoadMode::ReadWrite),
            &make,
        )?;
        Ok(rig)
    }

    /// A drive that holds these contents.
    #[must_use]
    pub fn over(contents: Contents, volatile_cache: bool, seed: u64, domain: &DmaDomain) -> Self {
        let options = SimOptions {
            volatile_cache,
            seed,
            ..SimOptions::default()
        };
        Self {
            drive: SimNvme::new(contents, options),
            domain: domain.clone(),
        }
    }

    fn options(&self, mode: LoadMode) -> MountOptions {
        MountOptions {
            mode,
            clock: self.drive.clock(),
            wall: Arc::new(Epoch),
            ..MountOptions::default()
        }
    }

    /// Mounts the volume.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn mount(&self, mode: LoadMode) -> Result<Fs, FsError> {
        let fs = Fs::mount(self.drive.queue(), &self.domain, self.options(mode));
        fs.map_err(|error| error.error)
    }

    /// A queue of it.
    ///
    /// # Errors
    /// None that is expected.
    pub fn io(&self, fs: &Fs) -> Result<Io, FsError> {
        Ok(Blocking::new(
            fs.queue(self.drive.queue(), Default::default())?,
        ))
    }
}

/// Time stands still: it is not what is tested here.
#[derive(Debug)]
struct Epoch;

impl blockfs::fs::WallClock for Epoch {
    fn now_ns(&self) -> i64 {
        0
    }
}

/// What was done, and what was to be seen afterwards.
#[derive(Clone, Debug)]
pub struct Step {
    /// What.
    pub action: Action,
    /// Events of the drive before it began, and when it had ended.
    pub events: (usize, usize),
    /// The reference afterwards.
    pub model: Model,
}

/// A workload that was run.
#[derive(Debug)]
pub struct Run {
    /// The reference before.
    pub start: Model,
    /// What was done.
    pub steps: Vec<Step>,
    /// What the drive did.
    pub log: Log,
    /// Its shape.
    pub shape: Shape,
}

/// Runs a workload from an empty volume: `setup` is made durable first and not looked at.
///
/// # Errors
/// A difference between the filesystem and the reference, with the action.
pub fn run(
    shape: Shape,
    seed: u64,
    domain: &DmaDomain,
    setup: &[Action],
    actions: &[Action],
) -> Outcome<Run> {
    run_with(shape, seed, domain, setup, actions, |_| Fail::Never)
}

/// As [`run`]; `fail` says which commands fail, given the number of the first after the set-up. With
/// the first action that fails for it the workload ends: whether that happened is open.
///
/// # Errors
/// As [`run`]; a sync that claims success after the journal has stopped.
pub fn run_with(
    shape: Shape,
    seed: u64,
    domain: &DmaDomain,
    setup: &[Action],
    actions: &[Action],
    fail: impl FnOnce(u64) -> Fail,
) -> Outcome<Run> {
    let rig = Rig::new(shape, seed, domain)?;
    let fs = rig.mount(LoadMode::ReadWrite)?;
    let mut io = rig.io(&fs)?;
    let mut model = Model::default();
    for action in setup {
        both(&fs, &mut io, &mut model, action)?;
    }
    fs.sync()?;
    rig.drive.start_log();
    rig.drive.fail(fail(rig.drive.commands()));
    let start = model.clone();
    let mut steps = Vec::new();
    for action in actions {
        let before = rig.drive.logged();
        let expected = model.clone();
        let done = match both(&fs, &mut io, &mut model, action) {
            Ok(done) => done,
            Err(error) if error.is::<Broken>() => {
                stays_stopped(&fs)?;
                let mut after = expected;
                let _ = after.apply(action);
                steps.push(Step {
                    action: action.clone(),
                    events: (before, usize::MAX),
                    model: after,
                });
                break;
            }
            Err(error) => return Err(error),
        };
        if done {
            steps.push(Step {
                action: action.clone(),
                events: (before, rig.drive.logged()),
                model: model.clone(),
            });
        }
    }
    let log = rig.drive.take_log().ok_or("no log")?;
    drop(io);
    Ok(Run {
        start,
        steps,
        log,
        shape,
    })
}

/// O10: once a sync has failed because the journal stopped, none succeeds any more.
fn stays_stopped(fs: &Fs) -> Outcome {
    let first = fs.sync();
    let second = fs.sync();
    match (first, second) {
        (Err(FsError::Stopped(_)), Ok(())) => {
            Err("O10: a sync after a failed one succeeded".into())
        }
        _ => Ok(()),
    }
}
