//! A mounted volume: mkfs, mount, names, and what all its threads share.
//!
//! [`Blockfs`] is the volume; clones are the same one. It has a queue of its own for metadata. Data
//! moves through [`IoQueue`]s, one a thread, made by [`Blockfs::queue`].
//!
//! | file | what |
//! |---|---|
//! | `core.rs` | the state behind the lock; changes, freed blocks, syncs |
//! | `names.rs` | open, names, attributes |
//! | `open.rs` | handles, and the table of what is open |
//! | `ranges.rs` | who works on which part of a file |
//! | `error.rs` | what can go wrong |
#![forbid(unsafe_code)]

pub(crate) mod core;
mod error;
mod names;
mod open;
pub(crate) mod ranges;

pub use self::core::{SystemWallClock, WallClock};
pub use crate::grace::GraceError;
pub use error::{FsError, Refused};
pub use open::{File, OpenOptions};

use self::core::{Core, Shared, SharedParts};
use crate::device::BlockDevice;
use crate::file::IoQueue;
use crate::format::op::{Ino, Kind};
use crate::grace::Grace;
use crate::iostat::{IoStat, Off};
use crate::journal::{self, JournalError, LoadMode, LoadReport, MetaTag};
use crate::space::{self, Space};
use driver::clock::{Clock, Deadline, SystemClock};
use driver::memory::DmaDomain;
use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use uuid::Uuid;

pub use crate::journal::MkfsOptions;

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Read and write, read only, or what can be read of a damaged one.
    pub mode: LoadMode,
    /// The clock that waiting goes by.
    pub clock: Arc<dyn Clock>,
    /// The date that files get.
    pub wall: Arc<dyn WallClock>,
    /// How long a blocking call may wait.
    pub limit: Duration,
    /// Blocks of an allocation group.
    pub space: space::Options,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            mode: LoadMode::ReadWrite,
            clock: Arc::new(SystemClock::new()),
            wall: Arc::new(SystemWallClock),
            limit: Duration::from_secs(60),
            space: space::Options::default(),
        }
    }
}

/// How much there is of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks of 4 KiB that files can be made of.
    pub blocks: u64,
    /// Of these, those that no file has.
    pub free_blocks: u64,
    /// Of these, those that can be had now.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes of a checkpoint.
    pub metadata_bytes: u64,
    /// Bytes that it may have.
    pub metadata_limit: u64,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Go on after it with this.
    pub cookie: u64,
    /// Where it leads.
    pub ino: Ino,
    /// What that is.
    pub kind: Kind,
    /// The name.
    pub name: Vec<u8>,
}

/// A mount that failed, with the device.
#[derive(Debug, thiserror::Error)]
#[error("the volume cannot be mounted")]
pub struct MountError<D> {
    /// Why.
    #[source]
    pub error: FsError,
    /// The device.
    pub device: D,
}

/// A mounted volume. Clones are the same one.
///
/// `D` is the queue that metadata go through, `S` what statistics its data queues keep.
///
/// # Examples
///
/// ```
/// use blockfs::device::DriverDevice;
/// use blockfs::file::{Blocking, WriteFlags};
/// use blockfs::fs::{Blockfs, MkfsOptions, MountOptions, OpenOptions};
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
/// blockfs::fs::mkfs(&mut device, &domain, &options, &MkfsOptions::new(uuid::Uuid::from_u128(42)))?;
///
/// let fs: Blockfs<_> = Blockfs::mount(device, &domain, options)?;
/// fs.mkdir("/logs", 0o755)?;
/// let create = OpenOptions::new().read(true).write(true).create(0o644);
/// let file = fs.open("/logs/today", create)?;
///
/// let data = DriverDevice::open(&controller, 1, &QueueOptions::default())?;
/// let mut io = Blocking::new(fs.queue(data, Default::default())?);
/// io.write(&file, 0, b"doorbell")?;
/// io.fsync(&file)?;
/// let mut text = [0; 8];
/// assert_eq!(io.read(&file, 0, &mut text)?, 8);
/// assert_eq!(&text, b"doorbell");
/// drop((io, file));
/// fs.unmount()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Blockfs<D, S = Off> {
    pub(crate) shared: Arc<Shared<D>>,
    report: LoadReport,
    uuid: Uuid,
    stat: PhantomData<fn() -> S>,
}

impl<D, S> Clone for Blockfs<D, S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            report: self.report.clone(),
            uuid: self.uuid,
            stat: PhantomData,
        }
    }
}

/// Makes an empty volume on a drive; what was on it is gone. Of `options` the clock and the limit are
/// used.
///
/// # Errors
/// [`FsError::Journal`] if the drive is too small or fails.
pub fn mkfs<D: BlockDevice<MetaTag>>(
    device: &mut D,
    domain: &DmaDomain,
    options: &MountOptions,
    make: &MkfsOptions,
) -> Result<(), FsError> {
    journal::mkfs(device, domain, &*options.clock, make).map_err(broken)?;
    Ok(())
}

fn broken(error: JournalError) -> FsError {
    FsError::Journal(Arc::new(error))
}

impl<D: BlockDevice<MetaTag>, S: IoStat> Blockfs<D, S> {
    /// Mounts the volume on `device`, whose queue is from now on used for metadata.
    ///
    /// Read and write, it replays the journal, writes a superblock, and frees files without names. Read
    /// only, nothing is written.
    ///
    /// # Errors
    /// [`MountError`] with the device: no volume, damage, a device that fails.
    pub fn mount(
        device: D,
        domain: &DmaDomain,
        options: MountOptions,
    ) -> Result<Self, MountError<D>> {
        let grace = match Grace::new() {
            Ok(grace) => grace,
            Err(error) => {
                let error = error.into();
                return Err(MountError { error, device });
            }
        };
        let limits = device.limits();
        let load = journal::LoadOptions {
            mode: options.mode,
            limit: options.limit,
        };
        let loaded = journal::load(device, domain, &*options.clock, &load);
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err((error, device)) => {
                let error = broken(error);
                return Err(MountError { error, device });
            }
        };
        let (tree, data) = (loaded.tree, loaded.geometry.data);
        let space = match Space::build(data, options.space, tree.used()) {
            Ok(space) => space,
            Err(_) if options.mode == LoadMode::Salvage => Space::empty(data, options.space),
            Err(error) => {
                let device = loaded.journal.into_device();
                return Err(MountError {
                    error: error.into(),
                    device,
                });
            }
        };
        let uuid = loaded.journal.superblock().uuid;
        let periods = grace.periods();
        let core = Core::new(tree, space, loaded.journal, periods, loaded.geometry);
        let parts = SharedParts {
            grace,
            domain: domain.clone(),
            limits,
            read_only: options.mode != LoadMode::ReadWrite,
            clock: options.clock,
            wall: options.wall,
            limit: options.limit,
        };
        let fs = Self {
            shared: Arc::new(Shared::new(core, parts)),
            report: loaded.report,
            uuid,
            stat: PhantomData,
        };
        drop(fs.shared.pump());
        Ok(fs)
    }

    /// What mounting did.
    #[must_use]
    pub const fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The volume's UUID.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// A queue for data: one thread's way to this volume's files. `device` is another queue of the
    /// same drive.
    ///
    /// # Errors
    /// [`FsError::Busy`] if the device is another drive's.
    pub fn queue<Q, T>(&self, device: Q, stat: S) -> Result<IoQueue<Q, T, D, S>, FsError>
    where
        Q: BlockDevice<crate::file::Tag<T, S>>,
    {
        let member = self.shared.grace.member();
        IoQueue::new(device, member, Arc::clone(&self.shared), stat)
    }

    /// Moves metadata on without waiting. Queues do it whenever they are polled while they wait for
    /// metadata; a service whose queues are idle may want to.
    pub fn pump(&self) {
        drop(self.shared.pump());
    }

    /// Makes every change durable, and all data whose writes have ended; waits.
    ///
    /// # Errors
    /// [`FsError::Stopped`], [`FsError::TimedOut`], [`FsError::ReadOnly`].
    pub fn sync(&self) -> Result<(), FsError> {
        self.may_write()?;
        let point = {
            let mut core = self.shared.lock();
            let last = core.journal.last();
            core.begin_sync(last)?
        };
        self.wait(|core| Ok(core.synced(point)?.then_some(())))
            .map(drop)
    }

    /// Writes a checkpoint, so that the next mount has nothing to replay; waits.
    ///
    /// # Errors
    /// As [`Blockfs::sync`].
    pub fn checkpoint(&self) -> Result<(), FsError> {
        self.sync()?;
        let wanted = self.shared.lock().journal.checkpoint();
        self.wait(|core| {
            core.writable()?;
            Ok(core.journal.checkpointed(wanted).then_some(()))
        })
        .map(drop)
    }

    /// Begins a checkpoint, or one more behind the one under way, and does not wait: for a service that
    /// knows when it is idle. It goes on whenever somebody polls, or calls [`Blockfs::pump`].
    ///
    /// # Errors
    /// [`FsError::ReadOnly`]; [`FsError::Stopped`].
    pub fn begin_checkpoint(&self) -> Result<(), FsError> {
        self.may_write()?;
        self.shared.pump().journal.checkpoint();
        Ok(())
    }

    /// A number that is the same for the same metadata, within this process: for tests.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        self.shared.lock().tree.state_hash()
    }

    /// Takes the rest of a drive that has grown into the volume; waits until that is durable. Says
    /// how many blocks the volume has now.
    ///
    /// # Errors
    /// [`FsError::Format`] if the drive has become smaller; as [`Blockfs::sync`].
    pub fn grow(&self, device_blocks: u64) -> Result<u64, FsError> {
        self.may_write()?;
        let blocks = {
            let mut core = self.shared.pump();
            let grown = core.geometry.grown(device_blocks)?;
            let plan = core.tree.plan_grow(grown.volume_blocks)?;
            core.change(&plan)?;
            core.space.grow(grown.data)?;
            core.geometry = grown;
            core.journal.set_geometry(grown);
            grown.volume_blocks
        };
        self.checkpoint()?;
        Ok(blocks)
    }

    /// Unmounts: makes everything durable, writes a checkpoint and a superblock that says so, and gives
    /// the device back.
    ///
    /// # Errors
    /// [`FsError::Busy`] while files are open, queues or clones of this handle are alive;
    /// [`FsError::Stopped`], [`FsError::TimedOut`]: nothing is lost that a sync acknowledged.
    pub fn unmount(self) -> Result<D, FsError> {
        drop(self.shared.pump());
        let shared = Arc::try_unwrap(self.shared);
        let shared =
            shared.map_err(|_| FsError::Busy("queues or other handles of it are alive"))?;
        if shared.lock().open.count() > 0 {
            return Err(FsError::Busy("files are open"));
        }
        let limit = shared.limit;
        let clock = Arc::clone(&shared.clock);
        let core = shared.into_core();
        let (mut tree, journal) = (core.tree, core.journal);
        let closed = journal.close(&mut tree, &*clock, limit);
        closed.map_err(|(error, _)| FsError::Stopped(Arc::new(error)))
    }

    /// Waits, moving the volume on, until `done` answers.
    pub(crate) fn wait<R>(
        &self,
        mut done: impl FnMut(&mut Core<D>) -> Result<Option<R>, FsError>,
    ) -> Result<(MutexGuard<'_, Core<D>>, R), FsError> {
        let mut deadline = Deadline::after(&*self.shared.clock, self.shared.limit);
        loop {
            let mut core = self.shared.pump();
            if let Some(result) = done(&mut core)? {
                return Ok((core, result));
            }
            drop(core);
            if !deadline.wait_turn() {
                return Err(FsError::TimedOut {
                    limit: self.shared.limit,
                });
            }
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.shared.wall.now_ns()
    }
}
