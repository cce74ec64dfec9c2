//! What a controller's handle and its queue pairs have in common, and the order in which it ends.
//!
//! The last owner to go stops the controller: queues are deleted by then, so it is notified
//! (CC.SHN), disabled, and only when it is known to be still is its memory given back. A device that
//! does not stop is reset, then silenced; if nothing helps, the memory stays parked for the life of
//! the process: never freed, never used again.

use super::admin::{AdminCommand, AdminQueue};
use super::claim::Claim;
use super::error::ControllerError;
use super::registers::Registers;
use crate::clock::Clock;
use crate::memory::{Attachment, DmaBuf, DmaDomain};
use crate::queue::{Completion, ControllerId, QueueId};
use crate::spec::registers::{Cc, Csts};
use crate::transport::Transport;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state behind a [`Controller`](super::Controller) and its queue pairs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) id: ControllerId,
    claim: Claim,
    pub(super) registers: Registers,
    pub(super) domain: DmaDomain,
    clock: Arc<dyn Clock>,
    pub(super) times: Times,
    state: Mutex<State>,
}

/// The limits of the waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) admin: Duration,
    pub(super) ready: Duration,
    pub(super) shutdown: Duration,
}

/// The least time that a shutdown gets: a claim of microseconds is rounded up to what a poll takes.
const SHUTDOWN_LEAST: Duration = Duration::from_millis(100);
/// The most that it gets on the device's word alone: RTD3E can say 71 minutes.
const SHUTDOWN_MOST: Duration = Duration::from_secs(120);

/// What changes.
#[derive(Debug)]
struct State {
    admin: AdminQueue,
    /// The mapping of the domain for this controller; `None` once the controller has been stopped.
    attachment: Option<Attachment>,
    /// Queue identifiers that are free, the one used longest ago first: a late completion of a
    /// deleted queue then has the least chance to meet a new one.
    free_queues: VecDeque<u16>,
    /// How long the controller says that a shutdown takes (RTD3E); zero: it does not say.
    shutdown_limit: Duration,
    /// Memory of queues that the device did not delete.
    parked: Vec<DmaBuf>,
}

impl Shared {
    pub(super) fn new(
        id: ControllerId,
        claim: Claim,
        domain: &DmaDomain,
        times: Times,
        admin: AdminQueue,
        attachment: Attachment,
    ) -> Self {
        let clock = claim.transport().clock();
        let registers = Registers::new(Arc::clone(claim.transport()));
        let state = State {
            admin,
            attachment: Some(attachment),
            free_queues: VecDeque::new(),
            shutdown_limit: Duration::ZERO,
            parked: Vec::new(),
        };
        let state = Mutex::new(state);
        Self {
            id,
            claim,
            registers,
            domain: domain.clone(),
            clock,
            times,
            state,
        }
    }

    pub(super) fn transport(&self) -> &Arc<dyn Transport> {
        self.claim.transport()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the device finds the admin rings: submission, completion.
    pub(super) fn admin_iovas(&self) -> (u64, u64) {
        self.state().admin.iovas()
    }

    /// Sets which queue identifiers may be used: 1 to `granted`.
    pub(super) fn set_queues(&self, granted: u16) {
        self.state().free_queues = (1..=granted).collect();
    }

    /// Notes how long the controller says that a shutdown takes (RTD3E); zero: it does not say.
    pub(super) fn set_shutdown_limit(&self, limit: Duration) {
        self.state().shutdown_limit = limit;
    }

    /// Runs one admin command.
    pub(super) fn admin(
        &self,
        command: AdminCommand,
        limit: Duration,
    ) -> Result<Completion<u64>, ControllerError> {
        let mut state = self.state();
        if state.attachment.is_none() {
            return Err(ControllerError::Stopped);
        }
        state
            .admin
            .run(&self.registers, &*self.clock, limit, command)
    }

    /// Whether the controller is at work: a fatal status, a device that is gone or that has stopped
    /// by itself is an error.
    pub(crate) fn check(&self) -> Result<(), ControllerError> {
        let what = "at work";
        let csts = self.registers.status(what)?;
        if csts.rdy() {
            Ok(())
        } else {
            Err(ControllerError::NotReady { csts })
        }
    }

    /// Takes a queue identifier.
    pub(super) fn take_queue_id(&self) -> Option<QueueId> {
        self.state().free_queues.pop_front().map(QueueId)
    }

    /// Gives a queue identifier back that the device has no queue under.
    pub(super) fn give_queue_id(&self, id: QueueId) {
        self.state().free_queues.push_back(id.0);
    }

    /// Keeps memory that the device may still touch until the controller has been stopped.
    pub(crate) fn park(&self, memory: Vec<DmaBuf>) {
        self.state().parked.extend(memory);
    }

    /// Stops the controller, orderly if it answers, and gives its memory back. Does nothing the
    /// second time.
    pub(super) fn stop(&self) -> Result<(), ControllerError> {
        let mut state = self.state();
        let Some(attachment) = state.attachment.take() else {
            return Ok(());
        };
        let limit = match state.shutdown_limit {
            Duration::ZERO => self.times.shutdown,
            rtd3e => rtd3e.clamp(SHUTDOWN_LEAST, SHUTDOWN_MOST.max(self.times.shutdown)),
        };
        let notified = self.notify_shutdown(limit);
        let disabled = self.disable();
        let still = disabled.is_ok() || self.force_still();
        if still {
            state.parked.clear();
        } else {
            // The device may write to any of this at any time from now on.
            state.parked.drain(..).for_each(mem::forget);
            state.admin.abandon().into_iter().for_each(mem::forget);
            attachment.abandon();
        }
        notified.and(disabled)
    }

    /// Notifies a controller that is at work of the shutdown and waits until it has secured its caches.
    fn notify_shutdown(&self, limit: Duration) -> Result<(), ControllerError> {
        let what = "the shutdown notification";
        let cc = self.registers.configuration()?;
        if !cc.en() || !self.registers.status(what)?.rdy() {
            return Ok(());
        }
        self.registers
            .set_configuration(cc.with_shn(Cc::SHN_NORMAL))?;
        let done = |csts: Csts| csts.shst() == Csts::SHST_COMPLETE;
        self.registers
            .wait_status(&*self.clock, limit, what, true, done)
    }

    /// Sets CC.EN to 0 and waits until the controller has stopped (CSTS.RDY 0).
    pub(super) fn disable(&self) -> Result<(), ControllerError> {
        let cc = self.registers.configuration()?;
        let (limit, clock) = (self.times.ready, &*self.clock);
        if cc.en() {
            // A controller that is only just becoming ready must not be disabled before it is
            // (NVMe 2.x base, "CC.EN"); one that never will be is disabled all the same.
            let becoming = self
                .registers
                .wait_status(clock, limit, "becoming ready", true, |c| c.rdy());
            if let Err(error @ (ControllerError::Transport(_) | ControllerError::Gone { .. })) =
                becoming
            {
                return Err(error);
            }
            let cc = cc.with_en(false).with_shn(Cc::SHN_NONE);
            self.registers.set_configuration(cc)?;
        }
        self.registers
            .wait_status(clock, limit, "disabling the controller", false, |c| {
                !c.rdy()
            })
    }

    /// The last rungs for a device that does not stop: reset the function, then cut it off from
    /// memory. Says whether it is still.
    fn force_still(&self) -> bool {
        let reset = self.transport().reset().is_ok() && self.disable().is_ok();
        reset || self.transport().silence().is_ok()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // An error has no receiver here; `stop` has kept memory safe whatever happened.
        let _ = self.stop();
    }
}
