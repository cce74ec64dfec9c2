//! I/O queue pairs: made and deleted on the device.
//!
//! The completion queue comes first and goes last, because the submission queue names it. Memory that
//! the device was told of is freed only on its word: a command that was refused leaves nothing behind,
//! one that was not answered may have been carried out.

use super::admin::AdminCommand;
use super::options::QueueOptions;
use super::shared::Shared;
use super::{Controller, ControllerError, attach, limits};
use crate::queue::{Core, CoreSetup, QueueId, QueuePair, QueueSize};
use crate::spec::{Sqe, command};
use std::num::NonZeroU16;
use std::sync::Arc;

impl Controller {
    /// Creates a queue pair.
    ///
    /// # Errors
    /// [`ControllerError::NoQueueLeft`] where all that the device granted are in use;
    /// [`ControllerError`].
    pub fn queue_pair<T>(&self, options: &QueueOptions) -> Result<QueuePair<T>, ControllerError> {
        let granted = self.queues_granted;
        let id = self
            .shared
            .take_queue_id()
            .ok_or(ControllerError::NoQueueLeft { granted })?;
        let unused = |_: &ControllerError| self.shared.give_queue_id(id);
        let (core, size) = self.queue_core(id, options).inspect_err(unused)?;
        match self
            .shared
            .create_queues(id, size, core.sq_iova(), core.cq_iova())
        {
            Ok(()) => Ok(QueuePair::new(core, id, Arc::clone(&self.shared))),
            Err(error @ ControllerError::Admin { .. }) => {
                unused(&error);
                Err(error)
            }
            Err(error) => {
                let mut core = core;
                self.shared.park(core.abandon());
                Err(error)
            }
        }
    }

    /// The host side of a queue pair.
    fn queue_core<T>(
        &self,
        id: QueueId,
        options: &QueueOptions,
    ) -> Result<(Core<T>, QueueSize), ControllerError> {
        let size = attach::queue_size(options.commands, self.limits.queue_entries_max)?;
        let doorbells = self.shared.transport().doorbells();
        let core = Core::new(CoreSetup {
            domain: &self.shared.domain,
            controller: self.shared.id,
            size,
            page_shift: self.limits.page_shift,
            max_transfer: limits::usable_transfer(self.max_transfer, options.max_transfer),
            sq_doorbell: attach::doorbell(&doorbells, &self.limits, id.0, false)?,
            cq_doorbell: attach::doorbell(&doorbells, &self.limits, id.0, true)?,
        })?;
        Ok((core, size))
    }
}

impl Shared {
    /// Creates a queue pair on the device. [`ControllerError::Admin`]: the device has none now; any
    /// other error: it may have.
    fn create_queues(
        &self,
        id: QueueId,
        size: QueueSize,
        sq_iova: u64,
        cq_iova: u64,
    ) -> Result<(), ControllerError> {
        // A size is at least 2.
        let entries = NonZeroU16::MIN.saturating_add(size.zero_based());
        let cq = command::create_io_cq(id.0, entries, cq_iova);
        self.plain("Create I/O Completion Queue", cq)?;
        let sq = command::create_io_sq(id.0, entries, sq_iova, id.0);
        self.plain("Create I/O Submission Queue", sq)
            .or_else(|error| {
                if matches!(error, ControllerError::Admin { .. }) {
                    self.delete_cq(id)?;
                }
                Err(error)
            })
    }

    /// Deletes a queue pair on the device: when this succeeds the device touches neither its rings
    /// nor the buffers of its commands any more.
    pub(crate) fn delete_queue_pair(&self, id: QueueId) -> Result<(), ControllerError> {
        self.plain("Delete I/O Submission Queue", command::delete_io_sq(id.0))?;
        self.delete_cq(id)?;
        self.give_queue_id(id);
        Ok(())
    }

    /// Deletes a completion queue. A refusal is no [`ControllerError::Admin`] here: the queue is there.
    fn delete_cq(&self, id: QueueId) -> Result<(), ControllerError> {
        let name = "Delete I/O Completion Queue";
        self.plain(name, command::delete_io_cq(id.0))
            .map_err(|error| match error {
                ControllerError::Admin { status, .. } => {
                    ControllerError::QueueNotDeleted { queue: id, status }
                }
                other => other,
            })
    }

    fn plain(&self, name: &'static str, sqe: Sqe) -> Result<(), ControllerError> {
        self.admin(AdminCommand::plain(name, sqe), self.times.admin)
            .map(drop)
    }
}
