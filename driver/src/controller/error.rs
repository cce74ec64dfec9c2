//! What can go wrong with a controller as a whole.

use crate::memory::MemoryError;
use crate::namespace::NamespaceError;
use crate::queue::{QueueId, SubmitError};
use crate::spec::Status;
use crate::spec::registers::Csts;
use crate::transport::TransportError;
use crate::transport::vfio::SetupError;
use std::time::Duration;

/// A failure of bring-up, of an admin command or of shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The device could not be opened.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// This process drives the controller already.
    #[error(
        "{name} is driven by another Controller of this process: use that one, or drop it first"
    )]
    InUse {
        /// What the transport calls the device.
        name: String,
    },
    /// The registers could not be reached.
    #[error("the controller's registers cannot be reached")]
    Transport(#[from] TransportError),
    /// Memory for the device could not be had.
    #[error("no memory for the device")]
    Memory(#[from] MemoryError),
    /// The controller is gone: its registers read all ones, or nothing at all.
    #[error("the controller is gone: its registers read {read:#x}")]
    Gone {
        /// What a register that cannot hold that value read.
        read: u64,
    },
    /// The controller reports a fatal error (CSTS.CFS).
    #[error("the controller reports a fatal error ({what}; {csts:?}): reset or power-cycle it")]
    Fatal {
        /// What was being done.
        what: &'static str,
        /// The status register.
        csts: Csts,
    },
    /// The controller has stopped by itself: it was reset from elsewhere, for instance.
    #[error("the controller is not ready any more ({csts:?}): drop it and attach again")]
    NotReady {
        /// The status register.
        csts: Csts,
    },
    /// A wait passed its deadline.
    #[error("{what} did not finish within {limit:?} ({csts:?})")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// The deadline.
        limit: Duration,
        /// The status register at the end.
        csts: Csts,
    },
    /// An admin command failed.
    #[error("admin command {command} failed: {status}")]
    Admin {
        /// The command's name.
        command: &'static str,
        /// Its status.
        status: Status,
    },
    /// The device did not delete a completion queue.
    #[error(
        "the device did not delete completion queue {queue}: {status}; its memory stays parked"
    )]
    QueueNotDeleted {
        /// The queue.
        queue: QueueId,
        /// The status of the command.
        status: Status,
    },
    /// An admin command was not accepted.
    #[error("admin command {command} was not accepted: {reason}")]
    AdminRejected {
        /// The command's name.
        command: &'static str,
        /// Why.
        #[source]
        reason: SubmitError,
    },
    /// The device cannot do what the driver needs.
    #[error("the device does not offer what the driver needs: {what}")]
    Unsupported {
        /// What is missing.
        what: String,
    },
    /// All queues are in use.
    #[error(
        "all {granted} I/O queue pairs that the device granted are in use: share one, or drop one first"
    )]
    NoQueueLeft {
        /// Queue pairs that the device granted.
        granted: u16,
    },
    /// The controller cannot be shut down while queue pairs live.
    #[error("{queues} queue pairs are still in use: drop them before the shutdown")]
    QueuesInUse {
        /// Queue pairs alive.
        queues: usize,
    },
    /// The controller was stopped before.
    #[error("the controller has been stopped")]
    Stopped,
    /// The namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}
