//! One journal record: operations that apply all or none, in one write that its checksum commits.
//!
//! A record is a whole number of logical blocks, at most 128 KiB. Its header has a checksum of its own,
//! so that the header alone, in its one logical block, shows that a record was written here, even where
//! the rest is lost.

use super::op::{Op, Ops};
use super::{Field, FormatError, Identity, Structure, expect};
use crate::bugs::{self, Bug};
use driver::namespace::Lba;
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(test)]
mod tests;

/// Size of a record's header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Size of the checksum that ends a record.
const CRC_BYTES: usize = 4;

/// "DBJR".
const MAGIC: u32 = u32::from_le_bytes(*b"DBJR");

/// The header as it lies on the drive.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    uuid32: U32,
    epoch: U64,
    txid: U64,
    self_lba: U64,
    ops_bytes: U32,
    ops: U32,
    prev_crc: U32,
    reserved: [u8; 16],
    header_crc: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, self_lba) == 24);
const _: () = assert!(offset_of!(RawHeader, header_crc) == HEADER_BYTES - 4);

impl RawHeader {
    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..offset_of!(Self, header_crc)])
    }
}

/// The checksum over a record whose header has the checksum `header`: over all but the field that holds
/// that one. Over it too, the result would be the same for every header: that is how a CRC over data and
/// their CRC turns out, and the next record would name nothing.
fn checksum(header: u32, record: &[u8]) -> u32 {
    crc32c::crc32c_append(header, record.get(HEADER_BYTES..).unwrap_or(&[]))
}

/// What gives a record its place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The epoch in which it is written.
    pub epoch: u64,
    /// Its number: one more than that of the record before it.
    pub txid: u64,
    /// The checksum of the record before it; zero for the first of a volume.
    pub prev_crc: u32,
    /// Its first logical block.
    pub lba: Lba,
}

/// Collects operations into a record. It allocates once, when made.
///
/// # Examples
///
/// ```
/// use blockfs::format::op::Op;
/// use blockfs::format::record::{Record, RecordBuilder, Stamp};
/// use blockfs::format::{Identity, LbaSize};
/// use driver::namespace::Lba;
///
/// # fn main() -> Result<(), blockfs::format::FormatError> {
/// let identity = Identity { uuid32: 7, lba_size: LbaSize::B512 };
/// let mut builder = RecordBuilder::new(identity, 16384);
/// assert!(builder.push(&[Op::AddOrphan { ino: 12 }])?);
/// let stamp = Stamp { epoch: 1, txid: 1, prev_crc: 0, lba: Lba(8) };
/// let sealed = builder.seal(&stamp)?;
/// let record = Record::parse(sealed.bytes, identity, Lba(8))?;
/// assert_eq!(record.ops().next(), Some(Ok(Op::AddOrphan { ino: 12 })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecordBuilder {
    identity: Identity,
    max_bytes: usize,
    /// Header, operations, and what `seal` put after them.
    buf: Vec<u8>,
    ops_bytes: usize,
    ops: u32,
}

/// A record that is ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    /// A whole number of logical blocks.
    pub bytes: &'a [u8],
    /// What the next record carries as `prev_crc`.
    pub crc: u32,
}

impl RecordBuilder {
    /// Builds records of at most `max_bytes`: the least of the volume's
    /// [`max_record_bytes`](super::geometry::Geometry::max_record_bytes) and what the drive takes in
    /// one command; rounded down to logical blocks.
    #[must_use]
    pub fn new(identity: Identity, max_bytes: u32) -> Self {
        let lba = identity.lba_size.bytes();
        let max_bytes = (max_bytes - max_bytes % lba) as usize;
        let mut buf = Vec::with_capacity(max_bytes.max(HEADER_BYTES));
        buf.resize(HEADER_BYTES, 0);
        Self {
            identity,
            max_bytes,
            buf,
            ops_bytes: 0,
            ops: 0,
        }
    }

    /// Adds operations that must stay together: all of them, or none and `false` if the record has no
    /// room left.
    ///
    /// # Errors
    /// [`FormatError::RecordTooLong`] if not even an empty record has the room (at the latest when it
    /// is tried in one), [`FormatError::BadOp`]. The record is then as it was.
    pub fn push(&mut self, ops: &[Op<'_>]) -> Result<bool, FormatError> {
        let before = HEADER_BYTES + self.ops_bytes;
        self.buf.truncate(before);
        let room = self.max_bytes.saturating_sub(CRC_BYTES);
        for op in ops {
            let encoded = op.encode(&mut self.buf);
            // Checked at each step, so that the buffer never grows by more than one operation.
            let needed = self.buf.len() - before + HEADER_BYTES;
            let result = match encoded {
                Err(error) => Err(error),
                Ok(()) if needed > room => Err(FormatError::RecordTooLong {
                    bytes: (needed + CRC_BYTES) as u64,
                    max: self.max_bytes as u64,
                }),
                Ok(()) if self.buf.len() > room => Ok(false),
                Ok(()) => continue,
            };
            self.buf.truncate(before);
            return result;
        }
        self.ops_bytes = self.buf.len() - HEADER_BYTES;
        self.ops = self
            .ops
            .saturating_add(u32::try_from(ops.len()).unwrap_or(u32::MAX));
        Ok(true)
    }

    /// Whether it has no operations.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// The length that [`RecordBuilder::seal`] gives it, in bytes: what to reserve in the ring.
    #[must_use]
    pub const fn sealed_bytes(&self) -> usize {
        let lba = self.identity.lba_size.bytes() as usize;
        (HEADER_BYTES + self.ops_bytes + CRC_BYTES).next_multiple_of(lba)
    }

    /// Completes the record for its place. It can be sealed again for another one.
    ///
    /// # Errors
    /// [`FormatError::Count`] if it has no operations.
    pub fn seal(&mut self, stamp: &Stamp) -> Result<Sealed<'_>, FormatError> {
        if self.is_empty() {
            return Err(empty());
        }
        let mut header = RawHeader {
            magic: MAGIC.into(),
            uuid32: self.identity.uuid32.into(),
            epoch: stamp.epoch.into(),
            txid: stamp.txid.into(),
            self_lba: stamp.lba.0.into(),
            // Bounded by `max_bytes`, which came from 32 bits.
            ops_bytes: u32::try_from(self.ops_bytes).unwrap_or(u32::MAX).into(),
            ops: self.ops.into(),
            prev_crc: stamp.prev_crc.into(),
            reserved: [0; 16],
            header_crc: U32::ZERO,
        };
        header.header_crc = header.checksum().into();
        self.buf[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.buf.truncate(HEADER_BYTES + self.ops_bytes);
        self.buf.resize(self.sealed_bytes() - CRC_BYTES, 0);
        let crc = checksum(header.header_crc.get(), &self.buf);
        self.buf.extend_from_slice(&crc.to_le_bytes());
        Ok(Sealed {
            bytes: &self.buf,
            crc,
        })
    }

    /// Empties it for the next record.
    pub fn clear(&mut self) {
        self.ops_bytes = 0;
        self.ops = 0;
    }
}

fn empty() -> FormatError {
    FormatError::Count {
        what: Structure::Record,
        counted: "operations",
        expected: 1,
        found: 0,
    }
}

/// A record's header, valid in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The record's place in the chain.
    pub stamp: Stamp,
    /// Its length in bytes, a whole number of logical blocks.
    pub total_bytes: u32,
    ops_bytes: u32,
    ops: u32,
    crc: u32,
}

impl RecordHeader {
    /// Reads the header at the start of `bytes`, which lie at `lba`.
    ///
    /// # Errors
    /// [`FormatError::Mismatch`] for the magic number, the header's checksum, the volume or the
    /// address; [`FormatError::BadField`], [`FormatError::Count`], [`FormatError::Length`].
    pub fn parse(bytes: &[u8], identity: Identity, lba: Lba) -> Result<Self, FormatError> {
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return Err(length(HEADER_BYTES as u64, bytes));
        };
        let check = |field, expected, found| expect(Structure::Record, field, lba, expected, found);
        check(Field::Magic, MAGIC.into(), raw.magic.get().into())?;
        check(
            Field::Crc,
            raw.checksum().into(),
            raw.header_crc.get().into(),
        )?;
        check(
            Field::Uuid32,
            identity.uuid32.into(),
            raw.uuid32.get().into(),
        )?;
        check(Field::SelfLba, lba.0, raw.self_lba.get())?;
        let bad = |field, found| FormatError::BadField {
            what: Structure::Record,
            field,
            lba: lba.0,
            found,
        };
        let ops_bytes = raw.ops_bytes.get();
        let total_bytes = u64::from(ops_bytes)
            .saturating_add((HEADER_BYTES + CRC_BYTES) as u64)
            .next_multiple_of(identity.lba_size.bytes().into());
        let total_bytes = u32::try_from(total_bytes)
            .ok()
            .filter(|&bytes| bytes <= super::geometry::MAX_RECORD_BYTES)
            .ok_or_else(|| bad("the operations' length", ops_bytes.into()))?;
        if raw.ops.get() == 0 {
            return Err(empty());
        }
        if raw.reserved != [0; 16] {
            return Err(bad("what is reserved", 1));
        }
        Ok(Self {
            stamp: Stamp {
                epoch: raw.epoch.get(),
                txid: raw.txid.get(),
                prev_crc: raw.prev_crc.get(),
                lba,
            },
            total_bytes,
            ops_bytes,
            ops: raw.ops.get(),
            crc: raw.header_crc.get(),
        })
    }
}

fn length(expected: u64, bytes: &[u8]) -> FormatError {
    FormatError::Length {
        what: Structure::Record,
        expected,
        found: bytes.len() as u64,
    }
}

/// A record that is whole: its checksums, address and volume are right.
///
/// Whether its operations make sense is for [`Record::ops`] to say: a record with a right checksum was
/// committed, so an operation in it that is not known is an error and no end of the journal.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// What the next record must carry as `prev_crc`.
    pub crc: u32,
    ops: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, which lie at `lba`.
    ///
    /// # Errors
    /// As [`RecordHeader::parse`], and [`FormatError::Mismatch`] for the checksum over all.
    pub fn parse(bytes: &'a [u8], identity: Identity, lba: Lba) -> Result<Self, FormatError> {
        Self::parse_after(RecordHeader::parse(bytes, identity, lba)?, bytes)
    }

    /// [`Record::parse`] for a header that was read from `bytes` before.
    pub(super) fn parse_after(header: RecordHeader, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let total = header.total_bytes as usize;
        let ops_end = HEADER_BYTES + header.ops_bytes as usize;
        let whole = bytes.get(..total);
        let parts = whole.and_then(|whole| {
            let (covered, crc) = whole.split_last_chunk::<CRC_BYTES>()?;
            Some((covered, covered.get(HEADER_BYTES..ops_end)?, *crc))
        });
        let Some((covered, ops, crc)) = parts else {
            return Err(length(total as u64, bytes));
        };
        let crc = u32::from_le_bytes(crc);
        let sum = checksum(header.crc, covered);
        let lba = header.stamp.lba;
        if !bugs::on(Bug::RecordChecksumIgnored) {
            expect(Structure::Record, Field::Crc, lba, sum.into(), crc.into())?;
        }
        Ok(Self { header, crc, ops })
    }

    /// The record in `bytes` again, whose header and checksum [`Record::parse_after`] has found right.
    pub(super) fn read_before(header: RecordHeader, crc: u32, bytes: &'a [u8]) -> Self {
        let ops_end = HEADER_BYTES + header.ops_bytes as usize;
        Self {
            header,
            crc,
            ops: bytes.get(HEADER_BYTES..ops_end).unwrap_or(&[]),
        }
    }

    /// Its operations.
    #[must_use]
    pub const fn ops(&self) -> Ops<'a> {
        Ops::new(self.ops, self.header.ops)
    }
}
