//! What stops a journal, or keeps a volume from being mounted.

use crate::format::FormatError;
use crate::tree::{Finding, TreeError};
use driver::memory::MemoryError;
use driver::queue::SubmitError;
use driver::spec::Status;
use std::sync::Arc;
use std::time::Duration;

/// Why metadata cannot be read or made durable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// What is on the drive is no volume, or a damaged one.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A record or a checkpoint does not fit the state that it changes.
    #[error("the metadata contradict themselves: run fsck")]
    Tree(#[from] TreeError),
    /// The checkpoint is whole, but its contents are not sound.
    #[error("{count} contradictions in the metadata, the first: {first}; run fsck")]
    Unsound {
        /// How many.
        count: usize,
        /// The first.
        first: Finding,
    },
    /// The volume has features that forbid this version to write.
    #[error(
        "the volume has features ({bits:#x}) that only a later version can write: mount it read-only"
    )]
    ForbidsWriting {
        /// The unknown ro-compat bits.
        bits: u64,
    },
    /// The device failed a command.
    #[error("the device failed {what}: {status}")]
    Device {
        /// What it was.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// The device queue did not accept a command.
    #[error("the device queue did not accept a command")]
    Rejected(#[source] SubmitError),
    /// The device did not answer in time.
    #[error("the device did not answer within {limit:?}")]
    TimedOut {
        /// How long was waited.
        limit: Duration,
    },
    /// No DMA memory.
    #[error("no memory for the transfer")]
    Memory(#[source] Arc<MemoryError>),
    /// The volume is mounted to be read only.
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// Operations that must stay together are longer than a record.
    #[error("the change is too large for one journal record: do it in parts")]
    TooLong,
}

impl From<MemoryError> for JournalError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(Arc::new(error))
    }
}
