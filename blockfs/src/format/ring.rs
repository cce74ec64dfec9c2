//! The journal ring: positions for the writer, and the scan that finds what is valid.
//!
//! Records follow one another. One that does not fit before the ring's end starts at its beginning, and
//! the rest of the ring is skipped. Nothing says so on the drive: the rule alone decides.

use super::geometry::{BlockRange, Geometry};
use super::record::{HEADER_BYTES, Record, RecordHeader};
use super::superblock::JournalStart;
use super::{FormatError, Identity, LbaSize, Structure};
use driver::namespace::Lba;

#[cfg(test)]
mod tests;

/// A position in the journal: bytes since the ring's start, counted on over the wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingPos(pub u64);

/// Where the ring lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    range: BlockRange,
    lba_size: LbaSize,
}

impl RingShape {
    /// The ring of a layout that has passed its [check](Geometry::check).
    #[must_use]
    pub const fn new(geometry: &Geometry) -> Self {
        Self {
            range: geometry.journal,
            lba_size: geometry.lba_size,
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.range.bytes()
    }

    /// The offset of `pos` from the ring's start, in bytes.
    #[must_use]
    pub const fn offset(self, pos: RingPos) -> u64 {
        match pos.0.checked_rem(self.bytes()) {
            Some(offset) => offset,
            None => 0,
        }
    }

    /// The logical block of `pos`.
    #[must_use]
    pub const fn lba(self, pos: RingPos) -> Lba {
        let start = self.lba_size.lba_of(self.range.start);
        Lba(start
            .0
            .saturating_add(self.offset(pos) / self.lba_size.bytes() as u64))
    }

    /// Where `pos` goes on after skipping what is left of the ring; itself if nothing is to skip.
    const fn wrapped(self, pos: RingPos) -> RingPos {
        let offset = self.offset(pos);
        if offset == 0 {
            return pos;
        }
        RingPos(pos.0.saturating_add(self.bytes() - offset))
    }

    /// Where a record of `bytes` goes that follows `pos`.
    const fn place(self, pos: RingPos, bytes: u64) -> RingPos {
        if bytes > self.bytes() - self.offset(pos) {
            self.wrapped(pos)
        } else {
            pos
        }
    }
}

/// The writer's side: what is used of the ring.
#[derive(Clone, Debug)]
pub struct Ring {
    shape: RingShape,
    tail: RingPos,
    head: RingPos,
}

impl Ring {
    /// The ring in which records from `tail` on are needed and the next goes to `head`, as
    /// [`scan`] found it.
    #[must_use]
    pub const fn new(shape: RingShape, tail: RingPos, head: RingPos) -> Self {
        Self { shape, tail, head }
    }

    /// Takes room for a record of `bytes`, whole logical blocks; `None` if the ring has not enough:
    /// take a checkpoint first.
    #[must_use]
    pub fn reserve(&mut self, bytes: u64) -> Option<RingPos> {
        let pos = self.shape.place(self.head, bytes);
        let head = RingPos(pos.0.checked_add(bytes)?);
        if bytes > self.shape.bytes() || head.0 - self.tail.0.min(head.0) > self.shape.bytes() {
            return None;
        }
        self.head = head;
        Some(pos)
    }

    /// Where the next record goes if it fits there: what a checkpoint starts replay from.
    #[must_use]
    pub const fn head(&self) -> RingPos {
        self.head
    }

    /// Records before `pos` are not needed any more: the superblock that says so is durable.
    pub fn release_to(&mut self, pos: RingPos) {
        self.tail = self.tail.max(pos).min(self.head);
    }

    /// Bytes in use, what was skipped at the end included.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.head.0.saturating_sub(self.tail.0)
    }

    /// Where the ring lies.
    #[must_use]
    pub const fn shape(&self) -> RingShape {
        self.shape
    }
}

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Valid records.
    pub records: u64,
    /// Where the chain starts.
    pub start: RingPos,
    /// Where it ends and the next record goes.
    pub next: RingPos,
    /// The number that the next record takes.
    pub next_txid: u64,
    /// The checksum of the last record: the next one's `prev_crc`.
    pub last_crc: u32,
    /// The epoch of the last record; that of the start if there is none.
    pub last_epoch: u64,
    /// Whether the header of one more record was found whose rest is not there: a write that a power
    /// cut tore. It was never acknowledged.
    pub torn: bool,
}

impl Scanned {
    /// The number of the last record that there is.
    #[must_use]
    pub const fn last_txid(&self) -> u64 {
        self.next_txid.saturating_sub(1)
    }
}

/// Finds the chain of valid records from `start` on, and hands each to `each` in order.
///
/// `read` fills a buffer from a byte offset of the ring, both whole logical blocks; it may fill blocks
/// that the drive cannot read with zeros, which then count as not valid. `max_record_bytes` is the
/// layout's. All operations of a record have been decoded once before it is handed over.
///
/// A record belongs to the chain if its checksums, volume and address are right, its number is the next,
/// it names the checksum of the record before it, and its epoch is not older than that one's. The first
/// that does not ends the chain. Then the rest of the ring is looked at: since a record is written only
/// when the one before it is on the medium, a header with a later number in an epoch of the chain's end
/// or later shows that the journal is damaged, not torn.
///
/// Each byte of the ring is read twice at most, with one allocation of `max_record_bytes`.
///
/// # Errors
/// [`FormatError::JournalRotten`] or [`FormatError::JournalShort`] for a damaged journal, after the
/// valid records before the damage have been handed over; [`FormatError::UnknownOp`] and its like for
/// a record that was committed and cannot be understood; what `read` and `each` return.
pub fn scan<E: From<FormatError>>(
    shape: RingShape,
    identity: Identity,
    max_record_bytes: u32,
    start: &JournalStart,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    mut each: impl FnMut(&Record<'_>, RingPos) -> Result<(), E>,
) -> Result<Scanned, E> {
    let lba_bytes = identity.lba_size.bytes() as usize;
    let from = RingPos(start.offset);
    if start.offset >= shape.bytes() || !start.offset.is_multiple_of(lba_bytes as u64) {
        return Err(E::from(FormatError::BadField {
            what: Structure::Superblock,
            field: "the first record's offset",
            lba: shape.lba(RingPos(0)).0,
            found: start.offset,
        }));
    }
    let mut scan = Scan {
        shape,
        identity,
        lba_bytes,
        buf: vec![0; (max_record_bytes as usize).max(lba_bytes)],
        read,
        found: Scanned {
            records: 0,
            start: from,
            next: from,
            next_txid: start.txid,
            last_crc: start.prev_crc,
            last_epoch: start.epoch,
            torn: false,
        },
    };
    while let Some((header, crc, pos)) = scan.next()? {
        let record = Record::read_before(header, crc, &scan.buf);
        for op in record.ops() {
            op?;
        }
        each(&record, pos)?;
        let found = &mut scan.found;
        found.records += 1;
        found.next = RingPos(pos.0.saturating_add(header.total_bytes.into()));
        found.next_txid = found.next_txid.saturating_add(1);
        found.last_crc = crc;
        found.last_epoch = header.stamp.epoch;
    }
    scan.look_for_later()?;
    let found = scan.found;
    let last_txid = found.last_txid();
    if last_txid < start.known_txid {
        return Err(E::from(FormatError::JournalShort {
            last_txid,
            next_lba: shape.lba(found.next).0,
            known_txid: start.known_txid,
        }));
    }
    Ok(found)
}

struct Scan<R> {
    shape: RingShape,
    identity: Identity,
    lba_bytes: usize,
    /// The longest record.
    buf: Vec<u8>,
    read: R,
    found: Scanned,
}

impl<R> Scan<R> {
    /// The end of what the ring holds: one turn after the chain's start.
    const fn end(&self) -> u64 {
        self.found.start.0.saturating_add(self.shape.bytes())
    }

    /// Reads the next record into the buffer; gives its header, checksum and place.
    fn next<E: From<FormatError>>(&mut self) -> Result<Option<(RecordHeader, u32, RingPos)>, E>
    where
        R: FnMut(u64, &mut [u8]) -> Result<(), E>,
    {
        self.found.torn = false;
        let straight = self.found.next;
        let wrapped = self.shape.wrapped(straight);
        let mut next = self.read_at(straight)?;
        if next.is_none() && straight != wrapped {
            next = self.read_at(wrapped)?;
        }
        Ok(next)
    }

    fn read_at<E: From<FormatError>>(
        &mut self,
        pos: RingPos,
    ) -> Result<Option<(RecordHeader, u32, RingPos)>, E>
    where
        R: FnMut(u64, &mut [u8]) -> Result<(), E>,
    {
        let end = self.end();
        let offset = self.shape.offset(pos);
        (self.read)(offset, &mut self.buf[..self.lba_bytes])?;
        let lba = self.shape.lba(pos);
        let Ok(header) = RecordHeader::parse(&self.buf, self.identity, lba) else {
            return Ok(None);
        };
        let total = header.total_bytes as usize;
        let follows = header.stamp.txid == self.found.next_txid
            && header.stamp.prev_crc == self.found.last_crc
            && header.stamp.epoch >= self.found.last_epoch;
        let placed = self.shape.place(self.found.next, total as u64) == pos
            && pos.0.saturating_add(total as u64) <= end
            && total <= self.buf.len();
        if !follows || !placed {
            return Ok(None);
        }
        if total > self.lba_bytes {
            let rest = &mut self.buf[self.lba_bytes..total];
            (self.read)(offset + self.lba_bytes as u64, rest)?;
        }
        let crc = Record::parse_after(header, &self.buf).map(|record| record.crc);
        self.found.torn |= crc.is_err();
        Ok(crc.ok().map(|crc| (header, crc, pos)))
    }

    /// Looks through what is not the chain for a header that proves that the chain once went on.
    fn look_for_later<E: From<FormatError>>(&mut self) -> Result<(), E>
    where
        R: FnMut(u64, &mut [u8]) -> Result<(), E>,
    {
        let end = self.end();
        let mut at = self.found.next.0;
        while at < end {
            let offset = self.shape.offset(RingPos(at));
            let chunk = (end - at)
                .min(self.shape.bytes() - offset)
                .min(self.buf.len() as u64);
            // At most the buffer's length; whole logical blocks, since all of these are.
            let chunk = usize::try_from(chunk).unwrap_or(self.buf.len());
            (self.read)(offset, &mut self.buf[..chunk])?;
            for (nth, block) in self.buf[..chunk].chunks_exact(self.lba_bytes).enumerate() {
                let pos = RingPos(at + (nth * self.lba_bytes) as u64);
                let lba = self.shape.lba(pos);
                let Ok(header) = RecordHeader::parse(&block[..HEADER_BYTES], self.identity, lba)
                else {
                    continue;
                };
                let expected = self.found.next_txid;
                let txid = header.stamp.txid;
                // The torn record itself may lie where the next one goes, and nowhere else.
                let place = self.shape.place(self.found.next, header.total_bytes.into());
                let later = txid > expected || (txid == expected && pos != place);
                if later && header.stamp.epoch >= self.found.last_epoch {
                    return Err(E::from(FormatError::JournalRotten {
                        expected_txid: expected,
                        expected_lba: self.shape.lba(self.found.next).0,
                        found_txid: txid,
                        found_lba: lba.0,
                    }));
                }
            }
            at += chunk as u64;
        }
        Ok(())
    }
}
