//! What the drive has done: counters, and the commands that it has seen.

use driver::spec::opcode::{AdminOpcode, IoOpcode};
use driver::spec::{Sqe, Status};
use std::collections::VecDeque;

/// Counters since the emulator was built.
#[derive(Clone, Debug)]
pub struct Stats {
    admin: [u64; 256],
    io: [u64; 256],
    /// Commands that ended with an error.
    pub errors: u64,
    /// Bytes that reads asked for.
    pub bytes_read: u64,
    /// Bytes that writes brought.
    pub bytes_written: u64,
    /// Impossible doorbell values, and doorbells of queues that do not exist.
    pub bad_doorbells: u64,
    /// Asynchronous events told.
    pub events: u64,
    /// How often the controller was enabled.
    pub enables: u64,
    /// How often it was shut down in an orderly way.
    pub shutdowns: u64,
    /// How often the power was cut.
    pub power_cuts: u64,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            admin: [0; 256],
            io: [0; 256],
            errors: 0,
            bytes_read: 0,
            bytes_written: 0,
            bad_doorbells: 0,
            events: 0,
            enables: 0,
            shutdowns: 0,
            power_cuts: 0,
        }
    }
}

impl Stats {
    /// Admin commands with this opcode.
    #[must_use]
    pub fn admin(&self, opcode: AdminOpcode) -> u64 {
        self.admin[usize::from(opcode.0)]
    }

    /// I/O commands with this opcode.
    #[must_use]
    pub fn io(&self, opcode: IoOpcode) -> u64 {
        self.io[usize::from(opcode.0)]
    }

    /// All I/O commands.
    #[must_use]
    pub fn io_total(&self) -> u64 {
        self.io.iter().sum()
    }

    #[inline(always)]
    pub(crate) fn count_io(&mut self, opcode: u8) {
        self.io[usize::from(opcode)] += 1;
    }

    pub(crate) fn count_admin(&mut self, opcode: u8) {
        self.admin[usize::from(opcode)] += 1;
    }
}

/// A command that the drive has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandRecord {
    /// The submission queue; 0: admin.
    pub qid: u16,
    /// The command.
    pub sqe: Sqe,
    /// What it ended with.
    pub status: Status,
}

/// Keeps the last commands.
#[derive(Debug)]
pub(crate) struct Recorder {
    limit: usize,
    kept: VecDeque<CommandRecord>,
}

impl Recorder {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: VecDeque::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    pub(crate) fn push(&mut self, qid: u16, sqe: &Sqe, status: Status) {
        if self.kept.len() >= self.limit {
            self.kept.pop_front();
        }
        self.kept.push_back(CommandRecord {
            qid,
            sqe: *sqe,
            status,
        });
    }

    pub(crate) fn take(&mut self) -> Vec<CommandRecord> {
        self.kept.drain(..).collect()
    }
}
