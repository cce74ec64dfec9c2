//! Everything that ends a program with something else than success.

use blockfs::fs::FsError;
use blockfs::journal::JournalError;
use device::{DeviceStringError, OpenError};
use driver::controller::ControllerError;
use driver::memory::MemoryError;
use driver::namespace::IoError;
use std::io;
use std::path::PathBuf;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A text that names neither a device nor a path.
    #[error(transparent)]
    Device(#[from] DeviceStringError),
    /// The file of an emulated drive is not there, or empty.
    #[error(
        "{} {problem}: make a volume in it with `mkfs.blockfs emu:file={},size=1g`",
        path.display(), path.display()
    )]
    NoFile {
        /// The file.
        path: PathBuf,
        /// What is the matter with it.
        problem: &'static str,
    },
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A volume needs two queue pairs.
    #[error(
        "{device} grants {granted} I/O queue pair, and a volume needs two, one for metadata and one \
         for data: use a controller (or `queues=2` of emu) with more"
    )]
    TooFewQueues {
        /// The device.
        device: String,
        /// How many it grants.
        granted: u16,
    },
    /// The controller does not do what is needed.
    #[error("cannot use {device}")]
    Controller {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: ControllerError,
    },
    /// A command of the device's failed.
    #[error("cannot read {device}")]
    Read {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: IoError,
    },
    /// No DMA memory.
    #[error("no memory for transfers")]
    Memory(#[from] MemoryError),
    /// The device holds no volume.
    #[error(
        "{device} holds no blockfs volume: make one with `mkfs.blockfs {device}`, or see \
         `fsck.blockfs {device}` if there was one"
    )]
    NoVolume {
        /// The device.
        device: String,
    },
    /// The device holds something that mkfs would destroy.
    #[error(
        "{device} holds {what} (at byte {at}), which would be lost: give --force if that is meant"
    )]
    InUse {
        /// The device.
        device: String,
        /// What it holds, with an article.
        what: &'static str,
        /// Where its mark is.
        at: u64,
    },
    /// The volume cannot be made.
    #[error("no volume can be made on {device}")]
    Make {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: FsError,
    },
    /// The volume cannot be mounted.
    #[error("the volume on {device} cannot be mounted: see `fsck.blockfs {device}`")]
    Mount {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: FsError,
    },
    /// Something on a volume, or all of it.
    #[error("{place}")]
    Volume {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: FsError,
    },
    /// A host file.
    #[error("{}", path.display())]
    Host {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was asked for makes no sense for this file.
    #[error("{place}: {problem}")]
    Refused {
        /// Which.
        place: String,
        /// Why.
        problem: &'static str,
    },
    /// A part of what was asked for was not done; each failure was told when it happened.
    #[error("{failed} of {total} were not done; see above")]
    Partly {
        /// How many failed.
        failed: u64,
        /// Of how many.
        total: u64,
    },
    /// A device did not answer.
    #[error("{device} has not answered for {seconds} s: reset or power-cycle it")]
    Silent {
        /// The device.
        device: String,
        /// For how long.
        seconds: u64,
    },
    /// SIGINT or SIGTERM.
    #[error("interrupted; what was done so far stays")]
    Interrupted,
    /// The signals that end a copy early cannot be caught.
    #[error("SIGINT and SIGTERM cannot be caught")]
    Signals(#[source] io::Error),
    /// The result could not be written.
    #[error("the result cannot be written to standard output")]
    Output(#[source] io::Error),
}

impl ToolError {
    /// An error of something on a volume.
    pub(crate) fn volume(place: impl Into<String>, source: FsError) -> Self {
        let place = place.into();
        Self::Volume { place, source }
    }

    /// An error of a host file.
    pub(crate) fn host(path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Host {
            path: path.into(),
            source: source.into(),
        }
    }

    /// A volume that could not be mounted.
    pub(crate) fn mount(device: impl Into<String>, source: FsError) -> Self {
        let device = device.into();
        match is_no_volume(&source) {
            true => Self::NoVolume { device },
            false => Self::Mount { device, source },
        }
    }

    /// A stable name for scripts.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) | Self::Device(_) => "usage",
            Self::NoFile { .. } => "no-file",
            Self::Open(error) => error.code(),
            Self::TooFewQueues { .. } => "too-few-queues",
            Self::Controller { .. } => "controller",
            Self::Read { .. } => "io",
            Self::Memory(_) => "memory",
            Self::NoVolume { .. } => "no-volume",
            Self::InUse { .. } => "in-use",
            Self::Make { .. } => "mkfs",
            Self::Mount { .. } => "mount",
            Self::Volume { .. } => "volume",
            Self::Host { .. } => "host",
            Self::Refused { .. } => "refused",
            Self::Partly { .. } => "partly",
            Self::Silent { .. } => "timeout",
            Self::Interrupted => "interrupted",
            Self::Signals(_) => "signals",
            Self::Output(_) => "output",
        }
    }

    /// The exit status of mkfs.blockfs and blockfs: 2 for wrong usage, 130 for an interruption, 1 for
    /// everything else.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Device(_) => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

/// Whether this is for want of a volume, or of both superblocks.
fn is_no_volume(error: &FsError) -> bool {
    let FsError::Journal(error) = error else {
        return false;
    };
    matches!(&**error, JournalError::Format(error) if error.is_no_volume())
}
