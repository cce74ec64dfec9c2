//! The admin queue: one command at a time, each with a deadline.

use super::error::ControllerError;
use super::registers::Registers;
use crate::clock::{Clock, Deadline};
use crate::memory::DmaBuf;
use crate::queue::{Completion, Core};
use crate::spec::Sqe;
use std::time::Duration;

/// The admin queue pair. Whoever runs a command has it to himself until the command has ended.
#[derive(Debug)]
pub(super) struct AdminQueue {
    core: Core<u64>,
    /// The number of the command under way: tells its completion from that of one given up before.
    turn: u64,
}

/// An admin command: its name for messages, the entry, and its data.
#[derive(Debug)]
pub(super) struct AdminCommand {
    pub(super) name: &'static str,
    pub(super) sqe: Sqe,
    /// A buffer that PRP1 and PRP2 are made to describe.
    pub(super) data: Option<DmaBuf>,
}

impl AdminCommand {
    /// A command without data.
    pub(super) fn plain(name: &'static str, sqe: Sqe) -> Self {
        Self {
            name,
            sqe,
            data: None,
        }
    }

    /// A command that moves all of `data`.
    pub(super) fn with_data(name: &'static str, sqe: Sqe, data: DmaBuf) -> Self {
        Self {
            name,
            sqe,
            data: Some(data),
        }
    }
}

/// Turns of the waiting loop between two looks at the status register.
const TURNS_A_STATUS: u32 = 64;

impl AdminQueue {
    pub(super) fn new(core: Core<u64>) -> Self {
        Self { core, turn: 0 }
    }

    /// Runs one command and waits for it, at most `limit`. A command that does not end in time keeps
    /// its slot and its buffer until the controller has been stopped.
    pub(super) fn run(
        &mut self,
        registers: &Registers,
        clock: &dyn Clock,
        limit: Duration,
        command: AdminCommand,
    ) -> Result<Completion<u64>, ControllerError> {
        self.turn += 1;
        let (turn, name) = (self.turn, command.name);
        let submitted = match command.data {
            Some(data) => self.core.submit_data(command.sqe, data, turn),
            None => self.core.submit_plain(command.sqe, None, turn),
        };
        submitted.map_err(|rejected| ControllerError::AdminRejected {
            command: name,
            reason: rejected.reason,
        })?;
        let mut deadline = Deadline::after(clock, limit);
        let mut turns = 0_u32;
        loop {
            let in_time = deadline.wait_turn();
            let mut ended = None;
            self.core.poll(usize::MAX, |done| {
                if done.ctx == turn {
                    ended = Some(done);
                }
            });
            match ended {
                Some(done) if done.status.is_success() => return Ok(done),
                Some(done) => {
                    return Err(ControllerError::Admin {
                        command: name,
                        status: done.status,
                    });
                }
                None => {}
            }
            turns = turns.wrapping_add(1);
            if !in_time || turns.is_multiple_of(TURNS_A_STATUS) {
                let csts = registers.status(name)?;
                if !in_time {
                    return Err(ControllerError::TimedOut {
                        what: name,
                        limit,
                        csts,
                    });
                }
            }
        }
    }

    /// Takes out all memory, for a device that may still work on it.
    pub(super) fn abandon(&mut self) -> Vec<DmaBuf> {
        self.core.abandon()
    }

    /// Where the device finds the rings: submission, completion.
    pub(super) fn iovas(&self) -> (u64, u64) {
        (self.core.sq_iova(), self.core.cq_iova())
    }
}
