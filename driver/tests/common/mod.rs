//! A software drive with a controller attached to it.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::DmaDomain;
use driver::namespace::{BlockingIo, Namespace};
use driver::queue::QueuePair;
use nvme_emulator::{Builder, Emulator};

pub(crate) struct Bench {
    pub(crate) controller: Controller,
    pub(crate) domain: DmaDomain,
    pub(crate) drive: Emulator,
}

impl Bench {
    /// A drive without a thread: it works while the driver waits, or in `drive.step()`.
    pub(crate) fn stepped(builder: Builder) -> Self {
        Self::attach(builder.stepped().unwrap())
    }

    pub(crate) fn attach(drive: Emulator) -> Self {
        Self::attach_in(drive, &DmaDomain::new())
    }

    pub(crate) fn attach_in(drive: Emulator, domain: &DmaDomain) -> Self {
        let options = ControllerOptions::default();
        let controller = Controller::attach(drive.transport(), domain, &options).unwrap();
        Self {
            controller,
            domain: domain.clone(),
            drive,
        }
    }

    pub(crate) fn namespace(&self) -> Namespace {
        self.controller.namespace(1).unwrap()
    }

    pub(crate) fn queue<T>(&self) -> QueuePair<T> {
        self.controller
            .queue_pair(&QueueOptions::default())
            .unwrap()
    }

    pub(crate) fn io(&self) -> BlockingIo {
        BlockingIo::new(self.queue(), self.namespace())
    }
}
