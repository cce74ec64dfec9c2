//! The superblock: the 512 bytes that everything is found from, kept in two copies.
//!
//! Its 512 bytes are one logical block on every supported drive, so a power cut leaves a copy old or
//! new. The copies are written alternately, by generation, and never two without a flush between.

use super::geometry::{BlockRange, Geometry};
use super::{BLOCK_BYTES, Field, FormatError, LbaSize, Structure, Twin, expect};
use driver::namespace::Lba;
use std::fmt;
use std::mem::offset_of;
use uuid::Uuid;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(test)]
mod tests;

/// Size of a superblock in bytes; the rest of a larger logical block is zero.
pub const SUPERBLOCK_BYTES: usize = 512;
/// The version of the format that this code writes, and the latest that it reads.
pub const VERSION: u32 = 1;
/// The longest label in bytes.
pub const MAX_LABEL_BYTES: usize = 64;

/// "DBELLBFS".
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"DBELLBFS");
const FLAG_CLEAN: u32 = 1;

/// The superblock as it lies on the drive.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U64,
    version: U32,
    block_bytes: U32,
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    uuid: [u8; 16],
    generation: U64,
    self_lba: U64,
    lba_bytes: U32,
    flags: U32,
    created_ns: I64,
    volume_blocks: U64,
    journal_start: U64,
    journal_blocks: U64,
    slot_a_start: U64,
    slot_b_start: U64,
    slot_blocks: U64,
    data_start: U64,
    epoch: U64,
    checkpoint_slot: U32,
    checkpoint_root_crc: U32,
    checkpoint_pages: U64,
    checkpoint_epoch: U64,
    first_txid: U64,
    first_epoch: U64,
    first_offset: U64,
    first_prev_crc: U32,
    reserved0: U32,
    known_txid: U64,
    label: [u8; MAX_LABEL_BYTES],
    reserved1: [u8; 228],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == SUPERBLOCK_BYTES);
const _: () = assert!(offset_of!(Raw, uuid) == 40);
const _: () = assert!(offset_of!(Raw, volume_blocks) == 88);
const _: () = assert!(offset_of!(Raw, epoch) == 144);
const _: () = assert!(offset_of!(Raw, first_txid) == 176);
const _: () = assert!(offset_of!(Raw, label) == 216);
const _: () = assert!(offset_of!(Raw, crc) == SUPERBLOCK_BYTES - 4);

/// A volume's label: at most [`MAX_LABEL_BYTES`] bytes without NUL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label([u8; MAX_LABEL_BYTES]);

impl Label {
    /// No label.
    pub const EMPTY: Self = Self([0; MAX_LABEL_BYTES]);

    /// The label `bytes`; `None` if it is too long or has a NUL.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut label = Self::EMPTY;
        label.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.contains(&0)).then_some(label)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or(&[])
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.as_bytes()).fmt(f)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({:?})", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// Feature bits in three classes; version 1 defines none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Unknown bits here change nothing.
    pub compat: u64,
    /// Unknown bits here forbid writing.
    pub ro_compat: u64,
    /// Unknown bits here forbid reading: [`Superblock::decode`] refuses them.
    pub incompat: u64,
}

impl Features {
    /// The `ro_compat` bits that this version may write with.
    pub const KNOWN_RO_COMPAT: u64 = 0;
    /// The `incompat` bits that this version understands.
    pub const KNOWN_INCOMPAT: u64 = 0;

    /// The `ro_compat` bits that forbid writing; zero if writing is allowed.
    #[must_use]
    pub const fn forbid_writing(&self) -> u64 {
        self.ro_compat & !Self::KNOWN_RO_COMPAT
    }
}

/// The checkpoint that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveCheckpoint {
    /// Where it is.
    pub slot: Twin,
    /// Its length in pages of 4 KiB.
    pub pages: u64,
    /// CRC32C over the checksums of all its pages.
    pub root_crc: u32,
    /// The epoch that its pages carry.
    pub epoch: u64,
}

/// Where replay starts: the first record that the checkpoint does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalStart {
    /// Its number.
    pub txid: u64,
    /// The least epoch that it may carry.
    pub epoch: u64,
    /// Where it goes: bytes from the start of the ring.
    pub offset: u64,
    /// The checksum of the record before it; zero if there was none.
    pub prev_crc: u32,
    /// The last record that was on the medium when the superblock was written; `txid - 1` if none is
    /// after the checkpoint. A chain that ends before it is damaged, never torn.
    pub known_txid: u64,
}

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The volume.
    pub uuid: Uuid,
    /// Its label.
    pub label: Label,
    /// What it uses beyond version 1.
    pub features: Features,
    /// Counts superblock writes; even ones go to copy A, odd ones to copy B.
    pub generation: u64,
    /// Where things lie.
    pub geometry: Geometry,
    /// When it was made: nanoseconds since 1970.
    pub created_ns: i64,
    /// Whether it was unmounted.
    pub clean: bool,
    /// The epoch now: at least that of everything on the volume. Each mount and each checkpoint takes
    /// the next, so that nothing older is ever taken for new.
    pub epoch: u64,
    /// The checkpoint in force.
    pub checkpoint: ActiveCheckpoint,
    /// What follows it.
    pub journal: JournalStart,
}

impl Superblock {
    /// The copy that this generation is written to.
    #[must_use]
    pub const fn copy(&self) -> Twin {
        if self.generation.is_multiple_of(2) {
            Twin::A
        } else {
            Twin::B
        }
    }

    /// The bytes for `lba`; fill a larger logical block up with zeros.
    ///
    /// # Errors
    /// What [`Superblock::decode`] would refuse is not written: [`FormatError::Layout`],
    /// [`FormatError::BadField`].
    pub fn encode(&self, lba: Lba) -> Result<[u8; SUPERBLOCK_BYTES], FormatError> {
        self.check(lba)?;
        let layout = &self.geometry;
        let mut raw = Raw {
            magic: MAGIC.into(),
            version: VERSION.into(),
            block_bytes: U32::new(4096),
            compat: self.features.compat.into(),
            ro_compat: self.features.ro_compat.into(),
            incompat: self.features.incompat.into(),
            uuid: self.uuid.into_bytes(),
            generation: self.generation.into(),
            self_lba: lba.0.into(),
            lba_bytes: layout.lba_size.bytes().into(),
            flags: if self.clean { FLAG_CLEAN } else { 0 }.into(),
            created_ns: self.created_ns.into(),
            volume_blocks: layout.volume_blocks.into(),
            journal_start: layout.journal.start.into(),
            journal_blocks: layout.journal.blocks.into(),
            slot_a_start: layout.slots[0].start.into(),
            slot_b_start: layout.slots[1].start.into(),
            slot_blocks: layout.slots[0].blocks.into(),
            data_start: layout.data.start.into(),
            epoch: self.epoch.into(),
            checkpoint_slot: u32::from(self.checkpoint.slot == Twin::B).into(),
            checkpoint_root_crc: self.checkpoint.root_crc.into(),
            checkpoint_pages: self.checkpoint.pages.into(),
            checkpoint_epoch: self.checkpoint.epoch.into(),
            first_txid: self.journal.txid.into(),
            first_epoch: self.journal.epoch.into(),
            first_offset: self.journal.offset.into(),
            first_prev_crc: self.journal.prev_crc.into(),
            reserved0: U32::ZERO,
            known_txid: self.journal.known_txid.into(),
            label: self.label.0,
            reserved1: [0; 228],
            crc: U32::ZERO,
        };
        raw.crc = raw.checksum().into();
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        Ok(bytes)
    }

    /// Reads what lies at `lba`; only the first 512 of `bytes` count.
    ///
    /// The checks go from the outside in: magic number, checksum, version, incompatible features, own
    /// address, then every field. So a foreign block, a damaged one, a later format and a misdirected
    /// write give different errors.
    ///
    /// # Errors
    /// [`FormatError::Mismatch`], [`FormatError::Version`], [`FormatError::Features`],
    /// [`FormatError::BadField`], [`FormatError::Layout`], [`FormatError::Length`].
    pub fn decode(bytes: &[u8], lba: Lba, lba_size: LbaSize) -> Result<Self, FormatError> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return Err(FormatError::Length {
                what: Structure::Superblock,
                expected: SUPERBLOCK_BYTES as u64,
                found: bytes.len() as u64,
            });
        };
        raw.recognise(lba, lba_size)?;
        let bad = |field, found| bad_field(lba, field, found);
        let slot = match raw.checkpoint_slot.get() {
            0 => Twin::A,
            1 => Twin::B,
            other => return Err(bad("the checkpoint slot", other.into())),
        };
        let flags = raw.flags.get();
        if flags & !FLAG_CLEAN != 0 {
            return Err(bad("the flags", flags.into()));
        }
        let reserved = raw.reserved1.iter().any(|&byte| byte != 0);
        if reserved || raw.reserved0 != U32::ZERO {
            return Err(bad("what is reserved", 1));
        }
        let label = raw
            .label
            .split(|&byte| byte == 0)
            .next()
            .and_then(Label::new);
        let Some(label) = label.filter(|label| label.0 == raw.label) else {
            return Err(bad("the label's padding", 1));
        };
        let superblock = Self {
            uuid: Uuid::from_bytes(raw.uuid),
            label,
            features: Features {
                compat: raw.compat.get(),
                ro_compat: raw.ro_compat.get(),
                incompat: raw.incompat.get(),
            },
            generation: raw.generation.get(),
            geometry: raw.geometry(lba_size),
            created_ns: raw.created_ns.get(),
            clean: flags & FLAG_CLEAN != 0,
            epoch: raw.epoch.get(),
            checkpoint: ActiveCheckpoint {
                slot,
                pages: raw.checkpoint_pages.get(),
                root_crc: raw.checkpoint_root_crc.get(),
                epoch: raw.checkpoint_epoch.get(),
            },
            journal: JournalStart {
                txid: raw.first_txid.get(),
                epoch: raw.first_epoch.get(),
                offset: raw.first_offset.get(),
                prev_crc: raw.first_prev_crc.get(),
                known_txid: raw.known_txid.get(),
            },
        };
        superblock.check(lba)?;
        Ok(superblock)
    }

    /// What must hold between the fields.
    fn check(&self, lba: Lba) -> Result<(), FormatError> {
        self.geometry.check()?;
        let JournalStart {
            txid,
            epoch,
            offset,
            known_txid,
            ..
        } = self.journal;
        let misaligned = !offset.is_multiple_of(self.geometry.lba_size.bytes().into());
        let pages = self.checkpoint.pages;
        // A checkpoint is a page of operations and the trailer at least.
        let pages_fit = (2..=self.geometry.slots[0].blocks).contains(&pages);
        let slots_differ = self.geometry.slots[0].blocks != self.geometry.slots[1].blocks;
        for (wrong, field, found) in [
            (
                slots_differ,
                "the slots' size",
                self.geometry.slots[1].blocks,
            ),
            (!pages_fit, "the checkpoint's length", pages),
            (
                self.checkpoint.epoch > self.epoch,
                "the checkpoint's epoch",
                self.checkpoint.epoch,
            ),
            (epoch > self.epoch, "the journal's epoch", epoch),
            (txid == 0, "the first record's number", txid),
            (
                known_txid < txid.saturating_sub(1),
                "the last known record",
                known_txid,
            ),
            (
                misaligned || offset >= self.geometry.journal.bytes(),
                "the first record's offset",
                offset,
            ),
        ] {
            if wrong {
                return Err(bad_field(lba, field, found));
            }
        }
        Ok(())
    }
}

fn bad_field(lba: Lba, field: &'static str, found: u64) -> FormatError {
    FormatError::BadField {
        what: Structure::Superblock,
        field,
        lba: lba.0,
        found,
    }
}

impl Raw {
    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..offset_of!(Self, crc)])
    }

    /// Everything before the fields' own meaning.
    fn recognise(&self, lba: Lba, lba_size: LbaSize) -> Result<(), FormatError> {
        let check = |field, expected: u64, found: u64| {
            expect(Structure::Superblock, field, lba, expected, found)
        };
        check(Field::Magic, MAGIC, self.magic.get())?;
        check(Field::Crc, self.checksum().into(), self.crc.get().into())?;
        let version = self.version.get();
        if version != VERSION {
            return Err(FormatError::Version {
                found: version,
                supported: VERSION,
            });
        }
        let unknown = self.incompat.get() & !Features::KNOWN_INCOMPAT;
        if unknown != 0 {
            return Err(FormatError::Features { unknown });
        }
        check(Field::SelfLba, lba.0, self.self_lba.get())?;
        check(
            Field::LbaSize,
            lba_size.bytes().into(),
            self.lba_bytes.get().into(),
        )?;
        check(Field::BlockSize, BLOCK_BYTES, self.block_bytes.get().into())
    }

    fn geometry(&self, lba_size: LbaSize) -> Geometry {
        let range = |start: U64, blocks: u64| BlockRange {
            start: start.get(),
            blocks,
        };
        let volume_blocks = self.volume_blocks.get();
        let data_blocks = volume_blocks
            .saturating_sub(1)
            .saturating_sub(self.data_start.get());
        Geometry {
            lba_size,
            volume_blocks,
            journal: range(self.journal_start, self.journal_blocks.get()),
            slots: [
                range(self.slot_a_start, self.slot_blocks.get()),
                range(self.slot_b_start, self.slot_blocks.get()),
            ],
            data: range(self.data_start, data_blocks),
        }
    }
}

/// The superblock that is in force, and how its twin is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The newest valid one; [`Superblock::copy`] says where it is.
    pub superblock: Superblock,
    /// The other copy's generation, or what is wrong with it. A power cut while the other copy was
    /// written leaves it invalid: that alone is no damage.
    pub twin: Result<u64, FormatError>,
}

/// Chooses the newest valid one of both copies; `a` and `b` are what lies at their places.
///
/// # Errors
/// [`FormatError::NoSuperblock`] if neither is valid, [`FormatError::TwinUuid`] if they belong to
/// different volumes, [`FormatError::Version`] or [`FormatError::Features`] if either is of a later
/// format: an older twin must not hide that.
pub fn choose(a: &[u8], b: &[u8], lba_size: LbaSize) -> Result<Chosen, FormatError> {
    let read = |bytes: &[u8], copy| {
        let lba = Geometry::superblock_lba(lba_size, copy);
        let superblock = Superblock::decode(bytes, lba, lba_size)?;
        if superblock.copy() != copy {
            return Err(bad_field(lba, "the generation", superblock.generation));
        }
        Ok(superblock)
    };
    let (newer, older) = match (read(a, Twin::A), read(b, Twin::B)) {
        (Ok(a), Ok(b)) if a.uuid != b.uuid => {
            return Err(FormatError::TwinUuid {
                a: a.uuid,
                b: b.uuid,
            });
        }
        (Ok(a), Ok(b)) if a.generation > b.generation => (a, Ok(b.generation)),
        (Ok(a), Ok(b)) => (b, Ok(a.generation)),
        (Err(later @ (FormatError::Version { .. } | FormatError::Features { .. })), _)
        | (_, Err(later @ (FormatError::Version { .. } | FormatError::Features { .. }))) => {
            return Err(later);
        }
        (Ok(valid), Err(error)) | (Err(error), Ok(valid)) => (valid, Err(error)),
        (Err(a), Err(b)) => {
            return Err(FormatError::NoSuperblock {
                a: Box::new(a),
                b: Box::new(b),
            });
        }
    };
    Ok(Chosen {
        superblock: newer,
        twin: older,
    })
}
