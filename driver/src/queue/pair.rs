//! The queue pair as its user sees it.

use super::core::Core;
use super::request::{Completion, Strays, SubmitError};
use super::{ControllerId, QueueId};
use crate::clock::Deadline;
use crate::controller::Shared;
use crate::memory::{DmaBuf, DomainId};
use std::sync::Arc;
use std::time::Duration;

/// One submission and one completion queue of a controller, owned by whoever holds it.
///
/// `T` is the caller's context for a request. It is kept in the slot, by value, and comes back with
/// the completion; a request id, an index or a small struct is usual. Commands are submitted through
/// a [`Namespace`](crate::namespace::Namespace), become visible to the device with
/// [`QueuePair::ring`], and end in [`QueuePair::poll`].
///
/// Dropping a queue pair with commands outstanding deletes the queues on the device first, which ends
/// the commands; only then are the buffers freed. Where the device does not answer, they stay parked
/// until the controller has been stopped.
///
/// # Examples
///
/// ```
/// use driver::controller::{Controller, ControllerOptions, QueueOptions};
/// use driver::memory::DmaDomain;
/// use driver::namespace::Lba;
/// use nvme_emulator::Emulator;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let drive = Emulator::builder().start()?;
/// let domain = DmaDomain::new();
/// let controller = Controller::attach(drive.transport(), &domain, &ControllerOptions::default())?;
/// let namespace = controller.namespace(1)?;
/// let mut queue = controller.queue_pair::<u64>(&QueueOptions::default())?;
///
/// // Four reads in one batch, one doorbell.
/// for block in 0..4 {
///     let buf = domain.alloc(4096)?;
///     namespace.read(&mut queue, Lba(block * 8), buf, block)?;
/// }
/// queue.ring();
/// let mut seen = 0;
/// while seen < 4 {
///     seen += queue.poll(|done| {
///         assert!(done.status.is_success());
///         assert!(done.ctx < 4);
///         drop(done.buf); // here the buffer is the caller's again
///     });
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct QueuePair<T> {
    core: Core<T>,
    id: QueueId,
    shared: Arc<Shared>,
}

impl<T> QueuePair<T> {
    pub(crate) fn new(core: Core<T>, id: QueueId, shared: Arc<Shared>) -> Self {
        Self { core, id, shared }
    }

    /// The queue's identifier on its controller.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// The controller that the queue belongs to.
    #[must_use]
    pub fn controller(&self) -> ControllerId {
        self.core.controller()
    }

    /// The domain whose buffers the queue accepts.
    #[must_use]
    pub fn domain(&self) -> DomainId {
        self.core.domain()
    }

    /// Commands that may be outstanding at a time.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.core.capacity()
    }

    /// Slots taken now. A request that was split takes several.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.core.outstanding()
    }

    /// Bytes that one command of this queue moves at most; longer requests are split.
    #[must_use]
    pub fn max_transfer(&self) -> u32 {
        self.core.max_transfer()
    }

    /// Completion entries that nothing waited for.
    #[must_use]
    pub fn strays(&self) -> Strays {
        self.core.strays()
    }

    /// Makes everything submitted since the last call visible to the device: one store fence and one
    /// register write, none where nothing is new. Call it once a batch. A poll does it too.
    #[inline]
    pub fn ring(&mut self) {
        self.core.ring();
    }

    /// Hands every request that has ended to `each` and says how many there were.
    ///
    /// Never waits. The completion queue's doorbell is written once, after the last; if `each` panics
    /// it is written by the next poll, and nothing is lost but the request in hand.
    #[inline]
    pub fn poll(&mut self, each: impl FnMut(Completion<T>)) -> usize {
        let max = self.core.capacity();
        self.core.poll(max, each)
    }

    /// As [`QueuePair::poll`], looking at `max` completion entries at most.
    #[inline]
    pub fn poll_at_most(&mut self, max: usize, each: impl FnMut(Completion<T>)) -> usize {
        self.core.poll(max, each)
    }

    /// Polls until nothing is outstanding or `limit` has passed; says whether all have ended.
    pub fn drain(&mut self, limit: Duration, mut each: impl FnMut(Completion<T>)) -> bool {
        let clock = Arc::clone(self.shared.clock());
        let mut deadline = Deadline::after(&*clock, limit);
        loop {
            self.poll(&mut each);
            if self.outstanding() == 0 {
                return true;
            }
            if !deadline.wait_turn() {
                self.poll(&mut each);
                return self.outstanding() == 0;
            }
        }
    }

    /// Whether the queue may move all of `buf` with one command.
    pub(crate) fn check_buffer(&self, buf: &DmaBuf) -> Result<(), SubmitError> {
        if buf.domain() != self.core.domain() {
            return Err(SubmitError::WrongDomain);
        }
        let (len, max) = (buf.len32(), self.core.max_transfer());
        if len > max {
            Err(SubmitError::TooLong { len, max })
        } else {
            Ok(())
        }
    }

    #[inline(always)]
    pub(crate) fn core(&mut self) -> &mut Core<T> {
        &mut self.core
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl<T> Drop for QueuePair<T> {
    fn drop(&mut self) {
        if self.shared.delete_queue_pair(self.id).is_err() {
            // The device may still work on the queue: its memory and the buffers are kept until the
            // controller has been stopped.
            let memory = self.core.abandon();
            self.shared.park(memory);
        }
    }
}
