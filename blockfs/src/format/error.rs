//! What can be wrong with bytes from a drive, or with what is to be written to one.

use std::fmt;
use uuid::Uuid;

/// What is refused, where, and what was found instead of what.
///
/// `lba` counts logical blocks from the start of the drive, `at` bytes from the start of the
/// operations that were handed in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The drive's logical block size is not supported.
    #[error("logical blocks of {bytes} bytes: format the namespace to 512 or 4096")]
    LbaSize {
        /// What the drive reports.
        bytes: u32,
    },
    /// The drive, or what is left of it, is too small.
    #[error("{blocks} blocks of 4 KiB are too few: {needed} are needed")]
    VolumeTooSmall {
        /// Blocks of 4 KiB that are there.
        blocks: u64,
        /// Blocks of 4 KiB that are needed.
        needed: u64,
    },
    /// The drive is larger than block numbers reach.
    #[error("{blocks} blocks of 4 KiB are too many: a volume has at most {max}")]
    VolumeTooLarge {
        /// Blocks of 4 KiB that are there.
        blocks: u64,
        /// The limit.
        max: u64,
    },
    /// A size that mkfs was asked for.
    #[error("{setting} of {bytes} bytes: choose a multiple of 4096 from {min} to {max}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What was asked for.
        bytes: u64,
        /// The least that is possible.
        min: u64,
        /// The most that is possible.
        max: u64,
    },
    /// A superblock that is intact otherwise describes an impossible layout.
    #[error("the {what} at block {start}, {blocks} blocks long, {problem}")]
    Layout {
        /// Which area.
        what: &'static str,
        /// Its first 4 KiB block.
        start: u64,
        /// Its length in 4 KiB blocks.
        blocks: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A buffer does not have the length of what it should hold.
    #[error("a buffer of {found} bytes for a {what} of {expected}")]
    Length {
        /// What it should hold.
        what: Structure,
        /// The length that is needed, in bytes.
        expected: u64,
        /// Its length in bytes.
        found: u64,
    },
    /// A structure does not carry what it must carry at this place.
    #[error("{what} at LBA {lba}: {field} is {found:#x}, not {expected:#x}")]
    Mismatch {
        /// Which structure.
        what: Structure,
        /// Which of its fields.
        field: Field,
        /// Where.
        lba: u64,
        /// What had to be there.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// A field has a value that nothing writes.
    #[error("{what} at LBA {lba}: {field} is {found:#x}, which is impossible")]
    BadField {
        /// Which structure.
        what: Structure,
        /// Which of its fields.
        field: &'static str,
        /// Where.
        lba: u64,
        /// Its value.
        found: u64,
    },
    /// The volume is of a later version of the format.
    #[error("format version {found}; this program knows version {supported}: use a newer one")]
    Version {
        /// The volume's.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// The volume uses features without which it cannot be read.
    #[error("unknown incompatible features {unknown:#x}: use a newer program")]
    Features {
        /// The bits that are not known.
        unknown: u64,
    },
    /// Neither copy of the superblock is valid.
    #[error("no valid superblock. Copy A: {a}. Copy B: {b}")]
    NoSuperblock {
        /// What is wrong with the copy at byte 0.
        a: Box<FormatError>,
        /// What is wrong with the copy at 1 MiB.
        b: Box<FormatError>,
    },
    /// Both copies of the superblock are valid, of different volumes.
    #[error("two superblocks of different volumes: {a} and {b}; run mkfs again or salvage one")]
    TwinUuid {
        /// The volume of the copy at byte 0.
        a: Uuid,
        /// The volume of the copy at 1 MiB.
        b: Uuid,
    },
    /// An operation that this version does not know.
    #[error("operation at byte {at}: {tag:#04x} is not known")]
    UnknownOp {
        /// Its tag.
        tag: u8,
        /// Where it starts.
        at: u64,
    },
    /// An operation is longer than what is left of its input.
    #[error("operation at byte {at}: {needed} bytes are needed, {found} are left")]
    Truncated {
        /// Where it starts.
        at: u64,
        /// Its length in bytes, as far as it is known.
        needed: u64,
        /// What is left, in bytes.
        found: u64,
    },
    /// A field of an operation has a value that it must not have.
    #[error("{op} at byte {at}: {field} is {value:#x}")]
    BadOp {
        /// Which operation.
        op: &'static str,
        /// Which of its fields.
        field: &'static str,
        /// Its value; of a name or a target, its length.
        value: u64,
        /// Where the operation starts; zero when it was to be encoded.
        at: u64,
    },
    /// Operations that must stay together do not fit a record of their own.
    #[error("operations of {bytes} bytes do not fit a record of {max}: split the request")]
    RecordTooLong {
        /// What they would take, in bytes.
        bytes: u64,
        /// The most that a record of this volume takes.
        max: u64,
    },
    /// A count does not agree with what was counted.
    #[error("{what}: {expected} {counted} were announced, {found} are there")]
    Count {
        /// What announced them.
        what: Structure,
        /// What was counted.
        counted: &'static str,
        /// How many were announced.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The journal is damaged in its middle: records that were written after the damage are intact.
    #[error(
        "the journal is damaged: record {expected_txid} is not valid at LBA {expected_lba}, but a \
         later one, {found_txid}, is at LBA {found_lba}. This is no torn tail; salvage the volume"
    )]
    JournalRotten {
        /// The first record that is not valid.
        expected_txid: u64,
        /// Where it should start.
        expected_lba: u64,
        /// A record that was written after it.
        found_txid: u64,
        /// Where that one is.
        found_lba: u64,
    },
    /// The journal ends before a record that was on the medium when the superblock was written.
    #[error(
        "the journal ends with record {last_txid} before LBA {next_lba}, but record {known_txid} \
         was on the medium: it is damaged; salvage the volume"
    )]
    JournalShort {
        /// The last valid record; one less than the first expected when there is none.
        last_txid: u64,
        /// Where the next should start.
        next_lba: u64,
        /// The last record that is known to have been written.
        known_txid: u64,
    },
    /// The metadata does not fit the checkpoint slot.
    #[error("the checkpoint slot of {pages} pages is full: remove files or make larger slots")]
    SlotFull {
        /// The slot's size in pages of 4 KiB.
        pages: u64,
    },
    /// A page follows the last one, or one is missing.
    #[error("checkpoint: page {found} where the pages are {expected}")]
    PageCount {
        /// Pages that the superblock announced.
        expected: u64,
        /// Pages that were handed in.
        found: u64,
    },
}

/// A structure on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock.
    Superblock,
    /// A journal record.
    Record,
    /// A page of a checkpoint.
    CheckpointPage,
    /// The last page of a checkpoint.
    CheckpointTrailer,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::Record => "journal record",
            Self::CheckpointPage => "checkpoint page",
            Self::CheckpointTrailer => "checkpoint trailer",
        })
    }
}

impl FormatError {
    /// Whether there is nothing that looks like a volume: no superblock's magic number.
    #[must_use]
    pub fn is_no_volume(&self) -> bool {
        match self {
            Self::Mismatch { what, field, .. } => {
                *what == Structure::Superblock && *field == Field::Magic
            }
            Self::NoSuperblock { a, b } => a.is_no_volume() && b.is_no_volume(),
            _ => false,
        }
    }
}

/// What a structure carries to be recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// What kind of structure it is.
    Magic,
    /// The checksum.
    Crc,
    /// The volume.
    Uuid32,
    /// Its own address.
    SelfLba,
    /// The epoch in which it was written.
    Epoch,
    /// Its number among its like.
    Sequence,
    /// The logical block size.
    LbaSize,
    /// The filesystem block size.
    BlockSize,
    /// The checksum over all pages' checksums.
    RootCrc,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Magic => "the magic number",
            Self::Crc => "the checksum",
            Self::Uuid32 => "the volume's mark",
            Self::SelfLba => "its own address",
            Self::Epoch => "the epoch",
            Self::Sequence => "the sequence number",
            Self::LbaSize => "the logical block size",
            Self::BlockSize => "the block size",
            Self::RootCrc => "the root checksum",
        })
    }
}
