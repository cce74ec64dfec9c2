//! What goes into a queue and what comes out: rejected requests, completions, strays.

use crate::memory::DmaBuf;
use crate::spec::Status;
use std::fmt;

/// A request that has ended: the device has said so and touches the buffer no more.
#[derive(Debug)]
#[must_use = "a completion carries the command's status and the buffer"]
pub struct Completion<T> {
    /// What the caller gave at submission.
    pub ctx: T,
    /// The buffer given at submission.
    pub buf: Option<DmaBuf>,
    /// How the command ended. For a request that took several commands: the first failure.
    pub status: Status,
    /// Dword 0 of the completion entry: a result for the commands that have one.
    pub result: u32,
}

impl<T> Completion<T> {
    /// The buffer and context of a command that succeeded.
    ///
    /// # Errors
    /// The status of one that failed; context and buffer are dropped then.
    pub fn ok(self) -> Result<(Option<DmaBuf>, T), Status> {
        if self.status.is_success() {
            Ok((self.buf, self.ctx))
        } else {
            Err(self.status)
        }
    }
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many commands are outstanding as the queue takes.
    #[error("the queue is full: poll it, then submit again")]
    Full,
    /// The buffer is mapped for other controllers.
    #[error(
        "the buffer belongs to another DMA domain and is not mapped for this controller: allocate \
         it from the domain that the controller was attached with"
    )]
    WrongDomain,
    /// The namespace is another controller's.
    #[error("the namespace belongs to another controller than the queue")]
    WrongController,
    /// The length is not a whole number of blocks, or none at all.
    #[error("{len} bytes are not a whole, positive number of {block} byte blocks")]
    Length {
        /// Length of the transfer in bytes.
        len: u32,
        /// Size of a logical block in bytes.
        block: u32,
    },
    /// The range does not lie within the namespace.
    #[error("blocks {lba}..+{blocks} lie outside the namespace of {capacity} blocks")]
    OutOfRange {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// Blocks that the namespace has.
        capacity: u64,
    },
    /// The transfer does not fit into one command and cannot be split.
    #[error("{len} bytes are more than the {max} bytes that one command may move")]
    TooLong {
        /// Length of the transfer in bytes.
        len: u32,
        /// The limit in bytes.
        max: u32,
    },
    /// The namespace's format is one that the driver does not transfer.
    #[error("the namespace is formatted with metadata, which this driver does not transfer yet")]
    Metadata,
    /// The list is empty or too long.
    #[error("{ranges} ranges were given: one command takes 1 to {max}")]
    Ranges {
        /// Number of ranges given.
        ranges: usize,
        /// The limit.
        max: usize,
    },
}

/// A request that was not accepted, with all that was given.
pub struct Rejected<T> {
    /// Why.
    pub reason: SubmitError,
    /// The buffer.
    pub buf: Option<DmaBuf>,
    /// The context.
    pub ctx: T,
}

impl<T> Rejected<T> {
    #[cold]
    pub(crate) fn new(reason: SubmitError, buf: Option<DmaBuf>, ctx: T) -> Self {
        Self { reason, buf, ctx }
    }

    /// Whether the queue was full, so that the request may be accepted after a poll.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.reason == SubmitError::Full
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("reason", &self.reason)
            .field("buf", &self.buf)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T> std::error::Error for Rejected<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Completion entries that no command waited for, counted. A sound device sends none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Entries whose identifier no slot has.
    pub unknown: u64,
    /// Entries whose slot had nothing outstanding: most likely a repetition.
    pub idle: u64,
    /// Entries whose slot had another command outstanding: late ones.
    pub stale: u64,
    /// The last one.
    pub last: Option<Stray>,
}

impl Strays {
    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.unknown + self.idle + self.stale
    }
}

/// A completion entry that no command waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The command identifier.
    pub cid: u16,
    /// The status.
    pub status: Status,
}
