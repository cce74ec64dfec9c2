//! What a user may choose about a controller and its queues.

use crate::memory::PrpLists;
use crate::queue::QueueSize;
use std::time::Duration;

/// Choices for [`Controller::attach`](super::Controller::attach).
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// I/O queue pairs to ask the device for. It may grant fewer or more:
    /// [`Controller::queues_granted`](super::Controller::queues_granted).
    pub io_queues: u16,
    /// How long an admin command may take.
    pub admin_limit: Duration,
    /// The least time given to the device to become ready, for devices that claim less than they
    /// need; CAP.TO and CRTO count where they are longer.
    pub ready_limit_min: Duration,
    /// How long an orderly shutdown may take where the device does not say (RTD3E). What it says counts
    /// up to two minutes, or up to this where it is longer.
    pub shutdown_limit: Duration,
}

impl Default for ControllerOptions {
    /// 64 queue pairs, 30 seconds an admin command, at least 2 seconds to become ready, 10 seconds to
    /// shut down.
    fn default() -> Self {
        Self {
            io_queues: 64,
            admin_limit: Duration::from_secs(30),
            ready_limit_min: Duration::from_secs(2),
            shutdown_limit: Duration::from_secs(10),
        }
    }
}

/// Choices for [`Controller::queue_pair`](super::Controller::queue_pair).
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Commands that may be outstanding at a time. The queue may take more (rings are powers of two),
    /// and fewer where the device's rings are short: [`QueuePair::depth`](crate::queue::QueuePair::depth).
    pub commands: u16,
    /// Bytes that one command may move; the device's own limit (MDTS) counts where it is lower.
    /// Longer requests are split. PRP lists of this length are kept for every slot.
    pub max_transfer: u32,
}

impl Default for QueueOptions {
    /// 127 commands (rings of 128 entries), 2 MiB a command.
    fn default() -> Self {
        Self {
            commands: 127,
            max_transfer: 2 << 20,
        }
    }
}

impl QueueOptions {
    /// Bytes of DMA memory that one queue pair with these options takes at most, on a device with
    /// 4 KiB pages.
    #[must_use]
    pub fn dma_bytes(&self) -> u64 {
        let Some(size) = QueueSize::for_commands(self.commands, u32::MAX) else {
            return 0;
        };
        let rings = 2 * (u64::from(size.entries()) * 64).next_multiple_of(PAGE);
        let lists = PrpLists::bytes(
            size.slots(),
            self.max_transfer.min(MAX_TRANSFER),
            PAGE_SHIFT,
        );
        // The page size is one that there is.
        rings + lists.unwrap_or(0)
    }
}

impl ControllerOptions {
    /// Bytes of DMA memory that a controller and `queues` queue pairs with `options` take at most:
    /// what a preflight needs to know, with the buffers added.
    #[must_use]
    pub fn dma_bytes(&self, queues: u16, options: &QueueOptions) -> u64 {
        let admin = QueueOptions {
            commands: ADMIN_COMMANDS,
            max_transfer: ADMIN_MAX_TRANSFER,
        };
        admin.dma_bytes() + u64::from(queues) * options.dma_bytes() + PAGE
    }
}

/// Commands outstanding on the admin queue.
pub(super) const ADMIN_COMMANDS: u16 = 31;
/// Bytes that one admin command may move: enough for every Identify structure and long logs.
pub(super) const ADMIN_MAX_TRANSFER: u32 = 128 << 10;
/// The most that one command may move: 65,536 blocks of 512 bytes, the smallest that there are.
pub(super) const MAX_TRANSFER: u32 = 32 << 20;

const PAGE_SHIFT: u32 = 12;
const PAGE: u64 = 1 << PAGE_SHIFT;
