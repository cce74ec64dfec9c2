//! Everything that blockfs puts on a drive: bytes in, typed values out, and back.
//!
//! No device and no clock: callers read and write the blocks. `docs/on-disk-format.md` is the same to
//! the byte, with the reasons.
//!
//! | module | on the drive |
//! |---|---|
//! | [`geometry`] | where things lie: superblocks, journal ring, checkpoint slots, data area |
//! | [`superblock`] | the 512 bytes that everything is found from, twice |
//! | [`op`] | the operations that journal and checkpoints are made of |
//! | [`record`] | one journal record: one write, committed by its checksum |
//! | [`ring`] | the journal's positions, and the scan that finds what is valid |
//! | [`checkpoint`] | the whole metadata as a stream of operations in checksummed pages |
//!
//! Nothing here trusts the drive: every length is checked before it is used, no input makes it panic,
//! and no allocation is larger than a constant or the input.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod error;
pub mod geometry;
pub mod op;
pub mod record;
pub mod ring;
pub mod superblock;

pub use error::{Field, FormatError, Structure};

use driver::namespace::Lba;
use uuid::Uuid;

/// Size of a filesystem block in bytes, whatever the drive's logical blocks are.
pub const BLOCK_BYTES: u64 = 4096;

/// Blocks of the largest volume: block numbers take 48 bits.
pub const MAX_VOLUME_BLOCKS: u64 = 1 << 48;

/// The size of a logical block: what the drive writes whole in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LbaSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl LbaSize {
    /// The size that a drive reports.
    ///
    /// # Errors
    /// [`FormatError::LbaSize`] for any size but 512 and 4096.
    pub const fn from_bytes(bytes: u32) -> Result<Self, FormatError> {
        match bytes {
            512 => Ok(Self::B512),
            4096 => Ok(Self::B4096),
            _ => Err(FormatError::LbaSize { bytes }),
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }

    /// Logical blocks in a filesystem block.
    #[must_use]
    pub const fn per_block(self) -> u64 {
        match self {
            Self::B512 => 8,
            Self::B4096 => 1,
        }
    }

    /// The first logical block of filesystem block `block`.
    #[must_use]
    pub const fn lba_of(self, block: u64) -> Lba {
        Lba(block.saturating_mul(self.per_block()))
    }
}

/// One of two: the superblock's copies, the checkpoint's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// The first.
    A,
    /// The second.
    B,
}

impl Twin {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// What a block must carry to belong to this volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The volume's [`uuid32`].
    pub uuid32: u32,
    /// The volume's logical block size.
    pub lba_size: LbaSize,
}

/// The short form of a UUID that each journal record and checkpoint page carries: CRC32C of its bytes.
#[must_use]
pub fn uuid32(uuid: &Uuid) -> u32 {
    crc32c::crc32c(uuid.as_bytes())
}

/// Compares one field of a structure at `lba`.
fn expect(
    what: Structure,
    field: Field,
    lba: Lba,
    expected: u64,
    found: u64,
) -> Result<(), FormatError> {
    if expected == found {
        return Ok(());
    }
    Err(FormatError::Mismatch {
        what,
        field,
        lba: lba.0,
        expected,
        found,
    })
}
