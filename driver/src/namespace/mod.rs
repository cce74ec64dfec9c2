//! Namespaces: geometry, typed commands, splitting at the device's limits.

mod blocking;
mod commands;

pub use blocking::{BlockingIo, IoError};
pub use commands::{BlockRange, IoFlags};

use crate::queue::ControllerId;
use crate::spec::Sqe;
use crate::spec::identify::IdentifyNamespace;
use crate::spec::opcode::IoOpcode;
use std::fmt;

/// A logical block address: blocks from the start of a namespace, in the namespace's own block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identifier of a namespace, from 1.
pub type NamespaceId = u32;

/// A namespace's geometry, and the commands on it.
///
/// It is a small copyable value without a connection to the device: a queue pair of the same
/// controller, passed to each command, is the connection. After a format or a resize ask the controller
/// for a new one.
#[derive(Clone, Copy, Debug)]
pub struct Namespace {
    controller: ControllerId,
    id: NamespaceId,
    /// Blocks in all.
    blocks: u64,
    block_shift: u32,
    /// Bits in which the first and the last block of a command must agree: all above the optimal
    /// boundary where that is a power of two, none where there is no boundary. Where it is not a
    /// power of two all bits, so that the exact test is left to the splitting path.
    boundary_mask: u64,
    /// The optimal boundary in blocks; 0: none.
    boundary: u32,
    /// Blocks of a command without data that one command may cover.
    max_blocks_without_data: u32,
}

/// Why a namespace cannot be used by this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// No such namespace, or not attached to this controller.
    #[error("namespace {0} is not active on this controller: see the controller's namespace list")]
    Inactive(NamespaceId),
    /// It points to a format that it does not have.
    #[error("namespace {0} reports a format beyond its own list: the device is at fault")]
    Format(NamespaceId),
    /// Its blocks carry metadata.
    #[error(
        "namespace {id} is formatted with {metadata} bytes of metadata a block, which this driver \
         does not transfer: format it without"
    )]
    Metadata {
        /// The namespace.
        id: NamespaceId,
        /// Bytes of metadata a block.
        metadata: u16,
    },
    /// The device reports a block size that makes no sense.
    #[error("namespace {id} reports blocks of 2^{shift} bytes: outside 2^9 to 2^24")]
    BlockSize {
        /// The namespace.
        id: NamespaceId,
        /// The exponent reported.
        shift: u8,
    },
}

impl Namespace {
    /// Takes the geometry from what the device reports.
    pub(crate) fn new(
        controller: ControllerId,
        id: NamespaceId,
        identify: &IdentifyNamespace,
        max_transfer: u64,
    ) -> Result<Self, NamespaceError> {
        let blocks = identify.nsze.get();
        if blocks == 0 {
            return Err(NamespaceError::Inactive(id));
        }
        let format = identify.format().ok_or(NamespaceError::Format(id))?;
        let (metadata, shift) = (format.ms.get(), format.lbads);
        if metadata != 0 {
            return Err(NamespaceError::Metadata { id, metadata });
        }
        if !(9..=24).contains(&shift) {
            return Err(NamespaceError::BlockSize { id, shift });
        }
        let boundary = u32::from(identify.noiob.get());
        let boundary_mask = match boundary {
            0 => 0,
            b if b.is_power_of_two() => !(u64::from(b) - 1),
            _ => u64::MAX,
        };
        let max_blocks = (max_transfer >> shift).clamp(1, MAX_BLOCKS);
        Ok(Self {
            controller,
            id,
            blocks,
            block_shift: u32::from(shift),
            boundary_mask,
            boundary,
            max_blocks_without_data: u32::try_from(max_blocks).unwrap_or(1),
        })
    }

    /// The namespace's identifier.
    #[must_use]
    pub fn id(&self) -> NamespaceId {
        self.id
    }

    /// The controller that the namespace was asked of.
    #[must_use]
    pub fn controller(&self) -> ControllerId {
        self.controller
    }

    /// Number of logical blocks (NSZE).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size of a logical block in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1 << self.block_shift
    }

    /// Size of the namespace in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_size()))
    }

    /// The boundary, in blocks, that reads and writes should not cross (NOIOB), if there is one.
    #[must_use]
    pub fn optimal_boundary(&self) -> Option<u32> {
        (self.boundary != 0).then_some(self.boundary)
    }

    fn sqe(&self, opcode: IoOpcode) -> Sqe {
        Sqe {
            opcode: opcode.0,
            nsid: self.id,
            ..Sqe::default()
        }
    }
}

/// Blocks that one command may have: CDW12.NLB is 16 bits wide and 0's based.
const MAX_BLOCKS: u64 = 1 << 16;
