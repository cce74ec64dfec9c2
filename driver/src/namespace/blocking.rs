//! One command at a time, waited for: for tools and tests.

use super::{BlockRange, IoFlags, Lba, Namespace};
use crate::clock::Deadline;
use crate::controller::ControllerError;
use crate::memory::{DmaBuf, DmaDomain, MemoryError};
use crate::queue::{QueuePair, Rejected, SubmitError};
use crate::spec::Status;
use std::sync::Arc;
use std::time::Duration;

/// A queue pair and a namespace, used one command at a time.
///
/// # Examples
///
/// ```
/// use driver::controller::{Controller, ControllerOptions, QueueOptions};
/// use driver::memory::DmaDomain;
/// use driver::namespace::{BlockingIo, Lba};
/// use nvme_emulator::Emulator;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let drive = Emulator::builder().start()?;
/// let domain = DmaDomain::new();
/// let controller = Controller::attach(drive.transport(), &domain, &ControllerOptions::default())?;
/// let queue = controller.queue_pair(&QueueOptions::default())?;
/// let mut io = BlockingIo::new(queue, controller.namespace(1)?);
///
/// let mut buf = domain.alloc(4096)?;
/// buf.write_at(0, b"doorbell")?;
/// let buf = io.write(Lba(0), buf)?;
/// io.flush()?;
/// let buf = io.read(Lba(0), buf)?;
/// let mut text = [0; 8];
/// buf.read_at(0, &mut text)?;
/// assert_eq!(&text, b"doorbell");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BlockingIo {
    queue: QueuePair<u64>,
    namespace: Namespace,
    limit: Duration,
    /// The number of the command under way: tells its completion from that of one given up before.
    turn: u64,
}

/// How a waited-for command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// It was not accepted.
    #[error("the command was not accepted: {0}")]
    Rejected(#[source] SubmitError),
    /// The device failed it.
    #[error("the device failed the command: {0}")]
    Status(Status),
    /// The device did not answer in time. The buffer stays with the queue until it does, or until
    /// the queue has been deleted.
    #[error("the device did not answer within {limit:?}; its buffer stays parked in the queue")]
    TimedOut {
        /// How long was waited.
        limit: Duration,
    },
    /// The controller is dead or gone. The buffer stays with the queue.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// There was no memory for the transfer.
    #[error("no memory for the transfer")]
    Memory(#[from] MemoryError),
}

/// Turns of the waiting loop between two looks at the controller's status.
const TURNS_A_STATUS: u32 = 1024;

/// How long a command may take by default.
const LIMIT: Duration = Duration::from_secs(30);

impl BlockingIo {
    /// Commands on `namespace` through `queue`, each with a limit of 30 seconds.
    #[must_use]
    pub fn new(queue: QueuePair<u64>, namespace: Namespace) -> Self {
        Self {
            queue,
            namespace,
            limit: LIMIT,
            turn: 0,
        }
    }

    /// Sets how long each command may take.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The queue pair.
    #[must_use]
    pub fn queue(&self) -> &QueuePair<u64> {
        &self.queue
    }

    /// Gives the queue pair back.
    #[must_use]
    pub fn into_queue(self) -> QueuePair<u64> {
        self.queue
    }

    /// Fills `buf` from `lba` on.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn read(&mut self, lba: Lba, buf: DmaBuf) -> Result<DmaBuf, IoError> {
        self.with_buffer(|ns, queue, turn| ns.read(queue, lba, buf, turn))
    }

    /// Writes all of `buf` from `lba` on.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&mut self, lba: Lba, buf: DmaBuf) -> Result<DmaBuf, IoError> {
        self.write_with(lba, buf, IoFlags::NONE)
    }

    /// As [`BlockingIo::write`], with options.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write_with(&mut self, lba: Lba, buf: DmaBuf, flags: IoFlags) -> Result<DmaBuf, IoError> {
        self.with_buffer(|ns, queue, turn| ns.write_with(queue, lba, buf, flags, turn))
    }

    /// Compares all of `buf` with what is stored from `lba` on.
    ///
    /// # Errors
    /// [`IoError::Status`] with Compare Failure where they differ; [`IoError`].
    pub fn compare(&mut self, lba: Lba, buf: DmaBuf) -> Result<DmaBuf, IoError> {
        self.with_buffer(|ns, queue, turn| ns.compare(queue, lba, buf, turn))
    }

    /// Makes everything written so far survive a power cut.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.run(|ns, queue, turn| ns.flush(queue, turn)).map(drop)
    }

    /// Sets blocks to zero.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write_zeroes(&mut self, lba: Lba, blocks: u64) -> Result<(), IoError> {
        self.run(|ns, queue, turn| ns.write_zeroes(queue, lba, blocks, turn))
            .map(drop)
    }

    /// Tells the device that blocks are not needed; `buf` carries the list.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn deallocate(&mut self, ranges: &[BlockRange], buf: DmaBuf) -> Result<DmaBuf, IoError> {
        self.with_buffer(|ns, queue, turn| ns.deallocate(queue, ranges, buf, turn))
    }

    /// Reads into ordinary memory, through a buffer from `domain`: one copy more.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn read_to_slice(
        &mut self,
        domain: &DmaDomain,
        lba: Lba,
        bytes: &mut [u8],
    ) -> Result<(), IoError> {
        let buf = self.read(lba, domain.alloc(bytes.len())?)?;
        Ok(buf.read_at(0, bytes)?)
    }

    /// Writes from ordinary memory, through a buffer from `domain`: one copy more.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write_from_slice(
        &mut self,
        domain: &DmaDomain,
        lba: Lba,
        bytes: &[u8],
    ) -> Result<(), IoError> {
        let mut buf = domain.alloc(bytes.len())?;
        buf.write_at(0, bytes)?;
        self.write(lba, buf).map(drop)
    }

    fn with_buffer(
        &mut self,
        submit: impl FnOnce(&Namespace, &mut QueuePair<u64>, u64) -> Result<(), Rejected<u64>>,
    ) -> Result<DmaBuf, IoError> {
        // A command submitted with a buffer completes with it.
        self.run(submit)?
            .ok_or(IoError::TimedOut { limit: self.limit })
    }

    /// Submits one command and waits for it.
    fn run(
        &mut self,
        submit: impl FnOnce(&Namespace, &mut QueuePair<u64>, u64) -> Result<(), Rejected<u64>>,
    ) -> Result<Option<DmaBuf>, IoError> {
        self.turn += 1;
        let turn = self.turn;
        submit(&self.namespace, &mut self.queue, turn)
            .map_err(|rejected| IoError::Rejected(rejected.reason))?;
        let clock = Arc::clone(self.queue.shared().clock());
        let mut deadline = Deadline::after(&*clock, self.limit);
        let mut turns = 0_u32;
        loop {
            let in_time = deadline.wait_turn();
            let mut ended = None;
            self.queue.poll(|done| {
                if done.ctx == turn {
                    ended = Some(done);
                }
            });
            match ended {
                Some(done) if done.status.is_success() => return Ok(done.buf),
                Some(done) => return Err(IoError::Status(done.status)),
                None if !in_time => return Err(IoError::TimedOut { limit: self.limit }),
                None => {}
            }
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_A_STATUS) {
                // A controller that is dead or gone answers nothing: no use in waiting for the limit.
                self.queue.shared().check()?;
            }
        }
    }
}
