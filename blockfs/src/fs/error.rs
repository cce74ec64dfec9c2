//! What the filesystem answers when something cannot be done.

use crate::format::FormatError;
use crate::grace::GraceError;
use crate::iomap::MapError;
use crate::journal::JournalError;
use crate::space::SpaceError;
use crate::tree::{PosixError, TreeError};
use driver::memory::{DmaBuf, MemoryError};
use driver::queue::SubmitError;
use driver::spec::Status;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// As POSIX has it.
    #[error(transparent)]
    Posix(#[from] PosixError),
    /// ENOSPC: no blocks are left.
    #[error("no space is left on the volume ({available} blocks of 4 KiB can be had)")]
    NoSpace {
        /// Blocks that can be had.
        available: u64,
    },
    /// EROFS.
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// EBADF: the file was not opened for this.
    #[error("the file was not opened for {0}")]
    Access(&'static str),
    /// EINVAL: only direct I/O was asked for, and the range is not whole logical blocks.
    #[error(
        "offset {offset} and length {len} are not multiples of the logical block of {align} bytes; \
         align them, or leave `DIRECT` out"
    )]
    Alignment {
        /// The position in bytes.
        offset: u64,
        /// The length in bytes.
        len: u64,
        /// What both must be multiples of.
        align: u32,
    },
    /// The file is of another volume than the queue.
    #[error("the file belongs to another volume than the queue")]
    ForeignVolume,
    /// EAGAIN: as many operations are under way as the queue takes.
    #[error("the queue is full: poll it, then submit again")]
    QueueFull,
    /// The queue did not accept a command.
    #[error("the queue did not accept the command")]
    Rejected(#[source] SubmitError),
    /// EIO: the device failed a command of this operation; nothing else is concerned.
    #[error("the device failed the command: {0}")]
    Device(Status),
    /// EIO: metadata could not be made durable. Nothing is written any more; what was acknowledged
    /// before is safe.
    #[error(
        "the volume has stopped accepting changes since metadata could not be written; unmount it, \
         see to the drive, and mount it again"
    )]
    Stopped(#[source] Arc<JournalError>),
    /// The journal or the metadata on the drive cannot be used.
    #[error("the volume cannot be used")]
    Journal(#[source] Arc<JournalError>),
    /// EUCLEAN: the metadata contradict themselves.
    #[error("the metadata are damaged: run fsck")]
    Damaged(#[source] Arc<TreeError>),
    /// EUCLEAN: the extents contradict each other.
    #[error("the extents are damaged: run fsck")]
    Space(#[source] Arc<SpaceError>),
    /// EUCLEAN: a file's map makes no sense.
    #[error("a file's map is damaged: run fsck")]
    Map(#[source] MapError),
    /// The format cannot express this.
    #[error("the format does not allow it")]
    Format(#[source] Arc<FormatError>),
    /// No DMA memory.
    #[error("no memory for the transfer")]
    Memory(#[source] Arc<MemoryError>),
    /// The kernel does not offer what concurrent access needs.
    #[error("concurrent access cannot be ordered on this system")]
    Grace(#[source] Arc<GraceError>),
    /// The device did not answer in time.
    #[error("the device did not answer within {limit:?}")]
    TimedOut {
        /// How long was waited.
        limit: Duration,
    },
    /// EBUSY: something still uses the volume.
    #[error("the volume is in use: {0}")]
    Busy(&'static str),
}

impl FsError {
    /// The number that Linux has for it.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Posix(error) => error.errno(),
            Self::NoSpace { .. } => 28,
            Self::ReadOnly => 30,
            Self::Access(_) => 9,
            Self::Alignment { .. } | Self::Format(_) => 22,
            Self::ForeignVolume => 18,
            Self::QueueFull => 11,
            Self::Rejected(_) | Self::Device(_) | Self::Stopped(_) => 5,
            Self::Journal(_) | Self::Damaged(_) | Self::Space(_) | Self::Map(_) => 117,
            Self::Memory(_) => 12,
            Self::Grace(_) => 38,
            Self::TimedOut { .. } => 110,
            Self::Busy(_) => 16,
        }
    }
}

impl From<MapError> for FsError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl From<MemoryError> for FsError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(Arc::new(error))
    }
}

impl From<TreeError> for FsError {
    fn from(error: TreeError) -> Self {
        Self::Damaged(Arc::new(error))
    }
}

impl From<SpaceError> for FsError {
    fn from(error: SpaceError) -> Self {
        match error {
            SpaceError::NoSpace { available, .. } => Self::NoSpace { available },
            other => Self::Space(Arc::new(other)),
        }
    }
}

impl From<FormatError> for FsError {
    fn from(error: FormatError) -> Self {
        Self::Format(Arc::new(error))
    }
}

impl From<GraceError> for FsError {
    fn from(error: GraceError) -> Self {
        Self::Grace(Arc::new(error))
    }
}

/// An operation that was not accepted, with all that was given.
pub struct Refused<T> {
    /// Why.
    pub reason: FsError,
    /// The buffer.
    pub buf: Option<DmaBuf>,
    /// The context.
    pub ctx: T,
}

impl<T> Refused<T> {
    #[cold]
    pub(crate) fn new(reason: FsError, buf: Option<DmaBuf>, ctx: T) -> Self {
        Self { reason, buf, ctx }
    }

    /// Whether the queue was full, so that it may be accepted after a poll.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.reason, FsError::QueueFull)
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .field("buf", &self.buf)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T> std::error::Error for Refused<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}
