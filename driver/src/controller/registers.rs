//! The controller's registers by name, and the waits on its status.

use super::error::ControllerError;
use crate::clock::{Clock, Deadline};
use crate::spec::registers::{self, Cap, Cc, Crto, Csts, Version};
use crate::transport::{Transport, TransportError};
use std::sync::Arc;
use std::time::Duration;

/// Typed access to the registers of one controller.
#[derive(Debug)]
pub(super) struct Registers {
    transport: Arc<dyn Transport>,
}

impl Registers {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport }
    }

    /// The capabilities. A device that is there has a queue size and a version, so neither reads as
    /// all ones nor as nothing: those are what a device that is gone reads (zero in some emulators).
    pub(super) fn capabilities(&self) -> Result<(Cap, Version), ControllerError> {
        let cap = self.transport.read64(registers::CAP)?;
        let version = self.transport.read32(registers::VS)?;
        if cap == 0 || cap == u64::MAX || version == u32::MAX {
            return Err(ControllerError::Gone { read: cap });
        }
        Ok((Cap::from_bits(cap), Version::from_bits(version)))
    }

    /// The ready timeouts (CRTO) that count for a controller that waits for its media.
    pub(super) fn ready_timeouts(&self) -> Result<Crto, ControllerError> {
        Ok(Crto::from_bits(self.transport.read32(registers::CRTO)?))
    }

    pub(super) fn configuration(&self) -> Result<Cc, ControllerError> {
        match self.transport.read32(registers::CC)? {
            u32::MAX => Err(ControllerError::Gone {
                read: u32::MAX.into(),
            }),
            cc => Ok(Cc::from_bits(cc)),
        }
    }

    pub(super) fn set_configuration(&self, cc: Cc) -> Result<(), ControllerError> {
        Ok(self.transport.write32(registers::CC, cc.into_bits())?)
    }

    /// Masks every interrupt of the pin and MSI kind: the driver polls.
    pub(super) fn mask_interrupts(&self) -> Result<(), ControllerError> {
        Ok(self.transport.write32(registers::INTMS, u32::MAX)?)
    }

    /// Tells the controller where its admin queues are and how large.
    pub(super) fn set_admin_queues(
        &self,
        attributes: registers::Aqa,
        submission: u64,
        completion: u64,
    ) -> Result<(), TransportError> {
        self.transport
            .write32(registers::AQA, attributes.into_bits())?;
        self.transport.write64(registers::ASQ, submission)?;
        self.transport.write64(registers::ACQ, completion)
    }

    /// The status, without judging it but for all ones, which a device that is there never reads.
    fn raw_status(&self) -> Result<Csts, ControllerError> {
        let read = self.transport.read32(registers::CSTS)?;
        if read == u32::MAX {
            return Err(ControllerError::Gone { read: read.into() });
        }
        Ok(Csts::from_bits(read))
    }

    /// The status of a controller that is at work while `what` goes on.
    pub(super) fn status(&self, what: &'static str) -> Result<Csts, ControllerError> {
        let csts = self.raw_status()?;
        if csts.cfs() {
            return Err(ControllerError::Fatal { what, csts });
        }
        if !csts.rdy() {
            // Not ready although enabled: a device that vanished may read zero. CAP never does.
            self.capabilities()?;
        }
        Ok(csts)
    }

    /// Waits until the status is as wanted. `fatal_ends`: a fatal error ends the wait too; while a
    /// failed controller is being disabled it does not.
    pub(super) fn wait_status(
        &self,
        clock: &dyn Clock,
        limit: Duration,
        what: &'static str,
        fatal_ends: bool,
        wanted: impl Fn(Csts) -> bool,
    ) -> Result<(), ControllerError> {
        let mut deadline = Deadline::after(clock, limit);
        loop {
            let in_time = deadline.wait_turn();
            match self.raw_status() {
                Ok(csts) if wanted(csts) => return Ok(()),
                Ok(csts) if fatal_ends && csts.cfs() => {
                    return Err(ControllerError::Fatal { what, csts });
                }
                Ok(csts) if !in_time => {
                    return Err(ControllerError::TimedOut { what, limit, csts });
                }
                // All ones for a while is what some devices read after a reset: the deadline decides.
                Err(error) if !in_time => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }
}
