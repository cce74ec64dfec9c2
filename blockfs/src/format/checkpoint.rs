//! A checkpoint: the whole metadata as a stream of operations in pages of 4 KiB.
//!
//! Applied to an empty volume in order, the operations build the state. The stream runs on from page to
//! page without regard to where an operation ends; the last page is the trailer with counts and the
//! checksum over all pages' checksums.

use super::geometry::BlockRange;
use super::op::{MAX_OP_BYTES, Op};
use super::{Field, FormatError, Identity, Structure, expect};
use driver::namespace::Lba;
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod scan;
pub use scan::{CheckpointScan, Scan};
#[cfg(test)]
mod tests;

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Size of a page's header in bytes.
pub const PAGE_HEADER_BYTES: usize = 32;
/// What a page carries of the stream, in bytes.
pub const PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

/// "DBCP": a page of the stream.
const MAGIC_PAGE: u32 = u32::from_le_bytes(*b"DBCP");
/// "DBCT": the trailer.
const MAGIC_TRAILER: u32 = u32::from_le_bytes(*b"DBCT");

/// A page as it lies on the drive.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPage {
    magic: U32,
    uuid32: U32,
    epoch: U64,
    self_lba: U64,
    seq: U32,
    /// Over the page without this field.
    crc: U32,
    payload: [u8; PAYLOAD_BYTES],
}

/// The trailer's payload.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTrailer {
    stream_bytes: U64,
    ops: U64,
    inodes: U64,
    dirents: U64,
    extents: U64,
    /// Over the checksums of the pages before.
    pages_crc: U32,
    reserved: [u8; PAYLOAD_BYTES - 44],
}

const _: () = assert!(size_of::<RawPage>() == PAGE_BYTES);
const _: () = assert!(offset_of!(RawPage, payload) == PAGE_HEADER_BYTES);
const _: () = assert!(offset_of!(RawPage, crc) + 4 == PAGE_HEADER_BYTES);
const _: () = assert!(size_of::<RawTrailer>() == PAYLOAD_BYTES);
const _: () = assert!(offset_of!(RawTrailer, pages_crc) == 40);

impl RawPage {
    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        let sum = crc32c::crc32c(&bytes[..offset_of!(Self, crc)]);
        crc32c::crc32c_append(sum, &bytes[PAGE_HEADER_BYTES..])
    }
}

/// How much a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of the stream.
    pub stream_bytes: u64,
    /// Operations.
    pub ops: u64,
    /// Inodes among them.
    pub inodes: u64,
    /// Directory entries among them.
    pub dirents: u64,
    /// Extents among them.
    pub extents: u64,
}

impl Counts {
    fn add(&mut self, op: &Op<'_>, bytes: usize) {
        self.stream_bytes += bytes as u64;
        self.ops += 1;
        self.inodes += u64::from(matches!(op, Op::CreateInode(_)));
        self.dirents += u64::from(matches!(op, Op::AddDirent(_)));
        self.extents += u64::from(matches!(op, Op::MapExtent { .. }));
    }
}

/// Where a checkpoint lies and what its pages carry.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The volume.
    pub identity: Identity,
    /// The epoch that the pages carry.
    pub epoch: u64,
    /// The slot.
    pub slot: BlockRange,
}

impl Place {
    fn lba(&self, seq: u64) -> Lba {
        self.identity
            .lba_size
            .lba_of(self.slot.start.saturating_add(seq))
    }
}

/// Pages that a stream of `bytes` takes, the trailer included.
#[must_use]
pub const fn pages_for(bytes: u64) -> u64 {
    bytes.div_ceil(PAYLOAD_BYTES as u64).saturating_add(1)
}

fn refuse_changing(op: &Op<'_>, at: u64) -> Result<(), FormatError> {
    if op.builds() {
        return Ok(());
    }
    Err(FormatError::BadOp {
        op: op.name(),
        field: "its place in a checkpoint",
        value: 0,
        at,
    })
}

/// What the superblock keeps of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length in pages of 4 KiB.
    pub pages: u64,
    /// CRC32C over the checksums of all its pages.
    pub root_crc: u32,
    /// What it holds.
    pub counts: Counts,
}

/// Turns operations into pages.
///
/// [`push`](Self::push) operations and take [`page`](Self::page) until there is none, in turns; then
/// [`finish`](Self::finish) and take the last pages; then [`written`](Self::written) is for the
/// superblock. The pages go to the slot one after the other.
///
/// # Examples
///
/// ```
/// use blockfs::format::checkpoint::{CheckpointReader, CheckpointWriter, Place};
/// use blockfs::format::geometry::BlockRange;
/// use blockfs::format::op::Op;
/// use blockfs::format::{FormatError, Identity, LbaSize};
///
/// # fn main() -> Result<(), FormatError> {
/// let identity = Identity { uuid32: 7, lba_size: LbaSize::B4096 };
/// let place = Place { identity, epoch: 1, slot: BlockRange { start: 17, blocks: 16 } };
/// let mut slot = Vec::new();
/// let mut writer = CheckpointWriter::new(place);
/// writer.push(&Op::NextInode { ino: 2 })?;
/// writer.finish();
/// while let Some(page) = writer.page() {
///     slot.extend_from_slice(page);
/// }
/// let written = writer.written().expect("finished");
///
/// let mut reader = CheckpointReader::new(place, written.pages, written.root_crc);
/// for page in slot.chunks(4096) {
///     reader.page(page, |op| {
///         assert_eq!(*op, Op::NextInode { ino: 2 });
///         Ok::<(), FormatError>(())
///     })?;
/// }
/// assert_eq!(reader.finish()?, written.counts);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CheckpointWriter {
    place: Place,
    /// The stream's bytes that are not in a page yet, from `taken` on.
    pending: Vec<u8>,
    taken: usize,
    page: Box<[u8; PAGE_BYTES]>,
    seq: u64,
    /// CRC32C over the checksums of the pages so far.
    pages_crc: u32,
    counts: Counts,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Finishing,
    Done,
}

impl CheckpointWriter {
    /// A checkpoint for `place`.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self {
            place,
            pending: Vec::with_capacity(PAYLOAD_BYTES + MAX_OP_BYTES),
            taken: 0,
            page: Box::new([0; PAGE_BYTES]),
            seq: 0,
            pages_crc: 0,
            counts: Counts::default(),
            state: State::Open,
        }
    }

    /// Appends an operation.
    ///
    /// # Errors
    /// [`FormatError::SlotFull`] if the slot cannot take it and the trailer, [`FormatError::BadOp`] for
    /// one that a checkpoint does not hold or after [`CheckpointWriter::finish`]. Nothing is appended
    /// then.
    pub fn push(&mut self, op: &Op<'_>) -> Result<(), FormatError> {
        let at = self.counts.stream_bytes;
        refuse_changing(op, at)?;
        if self.state != State::Open {
            return Err(FormatError::BadOp {
                op: op.name(),
                field: "its place after the end",
                value: 0,
                at,
            });
        }
        let before = self.pending.len();
        op.encode(&mut self.pending)?;
        let bytes = self.pending.len() - before;
        if pages_for(at.saturating_add(bytes as u64)) > self.place.slot.blocks {
            self.pending.truncate(before);
            return Err(FormatError::SlotFull {
                pages: self.place.slot.blocks,
            });
        }
        self.counts.add(op, bytes);
        Ok(())
    }

    /// No operation follows.
    pub fn finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Finishing;
        }
    }

    /// The next page that is complete.
    pub fn page(&mut self) -> Option<&[u8; PAGE_BYTES]> {
        let rest = self.pending.len() - self.taken;
        match self.state {
            State::Open if rest < PAYLOAD_BYTES => {
                self.pending.drain(..self.taken);
                self.taken = 0;
                return None;
            }
            State::Done => return None,
            // A checkpoint has a page of operations at least, be it empty.
            State::Finishing if rest == 0 && self.seq > 0 => {
                self.seal_trailer();
                self.state = State::Done;
            }
            State::Open | State::Finishing => {
                let len = rest.min(PAYLOAD_BYTES);
                let mut payload = [0; PAYLOAD_BYTES];
                payload[..len].copy_from_slice(&self.pending[self.taken..self.taken + len]);
                self.taken += len;
                self.seal(MAGIC_PAGE, payload);
            }
        }
        Some(&self.page)
    }

    /// What the superblock is to say; `None` before the last page was taken.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        (self.state == State::Done).then_some(Written {
            pages: self.seq,
            root_crc: self.pages_crc,
            counts: self.counts,
        })
    }

    fn seal_trailer(&mut self) {
        let trailer = RawTrailer {
            stream_bytes: self.counts.stream_bytes.into(),
            ops: self.counts.ops.into(),
            inodes: self.counts.inodes.into(),
            dirents: self.counts.dirents.into(),
            extents: self.counts.extents.into(),
            pages_crc: self.pages_crc.into(),
            reserved: [0; PAYLOAD_BYTES - 44],
        };
        self.seal(MAGIC_TRAILER, zerocopy::transmute!(trailer));
    }

    fn seal(&mut self, magic: u32, payload: [u8; PAYLOAD_BYTES]) {
        let mut page = RawPage {
            magic: magic.into(),
            uuid32: self.place.identity.uuid32.into(),
            epoch: self.place.epoch.into(),
            self_lba: self.place.lba(self.seq).0.into(),
            // Slots have at most 2^28 pages.
            seq: u32::try_from(self.seq).unwrap_or(u32::MAX).into(),
            crc: U32::ZERO,
            payload,
        };
        let crc = page.checksum();
        page.crc = crc.into();
        self.page.copy_from_slice(page.as_bytes());
        self.pages_crc = crc32c::crc32c_append(self.pages_crc, &crc.to_le_bytes());
        self.seq += 1;
    }
}

/// Turns pages into operations again.
///
/// An operation is handed over as soon as the pages that carry it are verified; that the checkpoint is
/// the one that the superblock means is known only when [`CheckpointReader::finish`] has said so.
#[derive(Debug)]
pub struct CheckpointReader {
    place: Place,
    pages: u64,
    root_crc: u32,
    seq: u64,
    pages_crc: u32,
    /// The start of an operation whose end is in the next page: shorter than the longest operation.
    carry: Vec<u8>,
    counts: Counts,
    complete: bool,
}

impl CheckpointReader {
    /// Reads the checkpoint of `pages` pages at `place`.
    #[must_use]
    pub fn new(place: Place, pages: u64, root_crc: u32) -> Self {
        Self {
            place,
            pages,
            root_crc,
            seq: 0,
            pages_crc: 0,
            carry: Vec::with_capacity(PAYLOAD_BYTES + MAX_OP_BYTES),
            counts: Counts::default(),
            complete: false,
        }
    }

    /// Takes the next page and hands its operations to `each`.
    ///
    /// # Errors
    /// After any, the reader is of no use any more.
    /// [`FormatError::Mismatch`] for a page that is damaged, another's, stale or out of order;
    /// [`FormatError::UnknownOp`] and its like; [`FormatError::Count`], [`FormatError::PageCount`];
    /// what `each` returns.
    pub fn page<E: From<FormatError>>(
        &mut self,
        bytes: &[u8],
        each: impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.seq >= self.pages {
            return Err(E::from(self.page_count(self.seq.saturating_add(1))));
        }
        let last = self.seq.saturating_add(1) == self.pages;
        let page = self.verify(bytes, last)?;
        self.pages_crc = crc32c::crc32c_append(self.pages_crc, page.crc.as_bytes());
        self.seq += 1;
        if last {
            return Ok(());
        }
        self.operations(&page.payload, each)
    }

    /// The counts, once all pages were taken.
    ///
    /// # Errors
    /// [`FormatError::PageCount`] if pages are missing.
    pub fn finish(&self) -> Result<Counts, FormatError> {
        if self.complete {
            Ok(self.counts)
        } else {
            Err(self.page_count(self.seq))
        }
    }

    fn page_count(&self, found: u64) -> FormatError {
        FormatError::PageCount {
            expected: self.pages,
            found,
        }
    }

    fn verify<'b>(&mut self, bytes: &'b [u8], last: bool) -> Result<&'b RawPage, FormatError> {
        let (what, magic) = if last {
            (Structure::CheckpointTrailer, MAGIC_TRAILER)
        } else {
            (Structure::CheckpointPage, MAGIC_PAGE)
        };
        let page = RawPage::ref_from_bytes(bytes).map_err(|_| FormatError::Length {
            what,
            expected: PAGE_BYTES as u64,
            found: bytes.len() as u64,
        })?;
        let lba = self.place.lba(self.seq);
        let check = |field, expected, found| expect(what, field, lba, expected, found);
        check(Field::Magic, magic.into(), page.magic.get().into())?;
        check(Field::Crc, page.checksum().into(), page.crc.get().into())?;
        check(
            Field::Uuid32,
            self.place.identity.uuid32.into(),
            page.uuid32.get().into(),
        )?;
        check(Field::SelfLba, lba.0, page.self_lba.get())?;
        check(Field::Epoch, self.place.epoch, page.epoch.get())?;
        check(Field::Sequence, self.seq, page.seq.get().into())?;
        if last {
            self.trailer(page, lba)?;
        }
        Ok(page)
    }

    /// Compares the trailer with what the pages before it held, and all with the superblock.
    fn trailer(&mut self, page: &RawPage, lba: Lba) -> Result<(), FormatError> {
        let what = Structure::CheckpointTrailer;
        let raw: RawTrailer = zerocopy::transmute!(page.payload);
        let check = |expected: u32, found: u32| {
            expect(what, Field::RootCrc, lba, expected.into(), found.into())
        };
        check(self.pages_crc, raw.pages_crc.get())?;
        let root = crc32c::crc32c_append(self.pages_crc, page.crc.as_bytes());
        check(self.root_crc, root)?;
        if raw.reserved.iter().any(|&byte| byte != 0) {
            return Err(FormatError::BadField {
                what,
                field: "what is reserved",
                lba: lba.0,
                found: 1,
            });
        }
        for (counted, announced, found) in [
            ("bytes", raw.stream_bytes, self.counts.stream_bytes),
            ("operations", raw.ops, self.counts.ops),
            ("inodes", raw.inodes, self.counts.inodes),
            ("names", raw.dirents, self.counts.dirents),
            ("extents", raw.extents, self.counts.extents),
        ] {
            if announced.get() != found {
                return Err(FormatError::Count {
                    what,
                    counted,
                    expected: announced.get(),
                    found,
                });
            }
        }
        self.complete = true;
        Ok(())
    }

    fn operations<E: From<FormatError>>(
        &mut self,
        payload: &[u8],
        mut each: impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.carry.extend_from_slice(payload);
        let mut used = 0;
        while let Some(rest) = self.carry.get(used..).filter(|rest| !rest.is_empty()) {
            // Zeros from where an operation would start fill the page before the trailer.
            let filling = self.seq.saturating_add(1) == self.pages && rest.iter().all(|&b| b == 0);
            if filling {
                used = self.carry.len();
                break;
            }
            let at = self.counts.stream_bytes;
            let (op, len) = match Op::decode(rest, at) {
                Err(FormatError::Truncated { .. }) if self.seq.saturating_add(1) < self.pages => {
                    break;
                }
                other => other?,
            };
            refuse_changing(&op, at)?;
            each(&op)?;
            self.counts.add(&op, len);
            used += len;
        }
        self.carry.drain(..used);
        Ok(())
    }
}
