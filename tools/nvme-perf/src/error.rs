//! Everything that ends the program with something else than success.

use super::drive::GuardError;
use super::job::{Failure, JobError};
use super::memory::MemoryShort;
use super::plan::PlanError;
use super::run::RunError;
use device::OpenError;
use driver::controller::ControllerError;
use std::io;
use std::path::PathBuf;

/// Why there is no measurement, or not a good one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The command line does not fit the drive.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The controller does not tell what is needed.
    #[error("cannot use {device}")]
    Controller {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: ControllerError,
    },
    /// The drive must not be written.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The buffers are too large for this machine.
    #[error(transparent)]
    Memory(#[from] MemoryShort),
    /// A job could not be set up.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The run could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Commands failed.
    #[error("{}", describe(*first, *errors))]
    Failed {
        /// The first failure.
        first: Failure,
        /// Commands that the device failed.
        errors: u64,
    },
    /// Commands did not end.
    #[error(
        "the device did not answer {commands} commands: see its state with `nvme smart-log`, reset \
         or power-cycle it"
    )]
    Lost {
        /// Commands outstanding.
        commands: usize,
    },
    /// The signals that end a run early cannot be caught.
    #[error("SIGINT and SIGTERM cannot be caught")]
    Signals(#[source] io::Error),
    /// The report could not be written.
    #[error("the report cannot be written to {}", path.as_ref().map_or("standard output".into(), |p| p.display().to_string()))]
    Output {
        /// The file, if not standard output.
        path: Option<PathBuf>,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn describe(first: Failure, errors: u64) -> String {
    match first {
        Failure::Status(direction, status) => format!(
            "{errors} commands failed, first a {}: {status}; the figures are those until then",
            direction.name()
        ),
        Failure::Rejected(direction, reason) => {
            format!("a {} was not accepted: {reason}", direction.name())
        }
    }
}

impl PerfError {
    /// A stable name for scripts.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Plan(_) => "usage",
            Self::Open(error) => error.code(),
            Self::Controller { .. } => "controller",
            Self::Guard(_) => "not-empty",
            Self::Memory(_) | Self::Job(_) => "resources",
            Self::Run(_) => "threads",
            Self::Failed { .. } => "io",
            Self::Lost { .. } => "timeout",
            Self::Signals(_) => "signals",
            Self::Output { .. } => "output",
        }
    }

    /// The program's exit status: 2 for wrong usage, 1 for everything else.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Plan(_) => 2,
            _ => 1,
        }
    }
}
