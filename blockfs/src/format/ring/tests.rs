//! Tests of the ring: placement, the scan, and what is torn or rotten.

use super::super::geometry::LayoutOptions;
use super::super::op::Op;
use super::super::record::{RecordBuilder, Stamp};
use super::*;
use proptest::prelude::*;

const RING_BYTES: usize = 64 << 10;
const UUID32: u32 = 0x00c0_ffee;

fn small(offset: u64) -> usize {
    usize::try_from(offset).expect("inside the ring")
}

/// A journal with its writer, in memory.
struct Journal {
    identity: Identity,
    ring: Ring,
    bytes: Vec<u8>,
    start: JournalStart,
    epoch: u64,
    txid: u64,
    prev_crc: u32,
    /// Offset and length of each record, by `txid - 1`.
    records: Vec<(usize, usize)>,
}

impl Journal {
    fn new(lba_size: LbaSize, offset: u64) -> Self {
        let options = LayoutOptions {
            journal_bytes: Some(RING_BYTES as u64),
            checkpoint_bytes: Some(64 << 10),
        };
        let lbas = 512 * lba_size.per_block();
        let geometry = Geometry::plan(lba_size, lbas, &options).expect("2 MiB");
        let shape = RingShape::new(&geometry);
        Self {
            identity: Identity {
                uuid32: UUID32,
                lba_size,
            },
            ring: Ring::new(shape, RingPos(offset), RingPos(offset)),
            bytes: vec![0; RING_BYTES],
            start: JournalStart {
                txid: 1,
                epoch: 1,
                offset,
                prev_crc: 0,
                known_txid: 0,
            },
            epoch: 1,
            txid: 1,
            prev_crc: 0,
            records: Vec::new(),
        }
    }

    /// Writes a record with `names` removed names of 255 bytes: 280 bytes each.
    fn append(&mut self, names: usize) -> bool {
        let mut builder = RecordBuilder::new(self.identity, 16 << 10);
        for _ in 0..names {
            let op = Op::RemoveDirent {
                dir: self.txid,
                name: &[b'n'; 255],
            };
            assert_eq!(builder.push(&[op]), Ok(true));
        }
        let Some(pos) = self.ring.reserve(builder.sealed_bytes() as u64) else {
            return false;
        };
        let stamp = Stamp {
            epoch: self.epoch,
            txid: self.txid,
            prev_crc: self.prev_crc,
            lba: self.ring.shape().lba(pos),
        };
        let sealed = builder.seal(&stamp).expect("not empty");
        let offset = small(self.ring.shape().offset(pos));
        self.bytes[offset..offset + sealed.bytes.len()].copy_from_slice(sealed.bytes);
        self.records.push((offset, sealed.bytes.len()));
        self.prev_crc = sealed.crc;
        self.txid += 1;
        true
    }

    /// Scans `bytes`; also counts what was read and what was handed over.
    fn scan_of(&self, bytes: &[u8]) -> (Result<Scanned, FormatError>, usize, u64) {
        let (mut read, mut handed) = (0, 0);
        let result = scan(
            self.ring.shape(),
            self.identity,
            16 << 10,
            &self.start,
            |offset, buf: &mut [u8]| {
                read += buf.len();
                let offset = small(offset);
                buf.copy_from_slice(&bytes[offset..offset + buf.len()]);
                Ok::<(), FormatError>(())
            },
            |record, pos| {
                assert_eq!(record.header.stamp.txid, self.start.txid + handed);
                assert_eq!(record.header.stamp.lba, self.ring.shape().lba(pos));
                handed += 1;
                Ok(())
            },
        );
        assert!(read <= 2 * RING_BYTES + 8192, "{read} bytes read");
        (result, read, handed)
    }

    fn scan(&self) -> Result<Scanned, FormatError> {
        self.scan_of(&self.bytes).0
    }
}

/// An empty journal is an empty chain; so is one full of an old volume's bytes.
#[test]
fn an_empty_ring() {
    let mut journal = Journal::new(LbaSize::B512, 0);
    let empty = journal.scan().expect("nothing is wrong");
    assert_eq!(
        (empty.records, empty.next, empty.next_txid),
        (0, RingPos(0), 1)
    );
    for names in [1, 9, 40] {
        assert!(journal.append(names));
    }
    journal.identity.uuid32 = 5;
    assert_eq!(journal.scan(), Ok(empty));
}

proptest! {
    /// Whatever is written, released and wrapped, the scan finds exactly what is not released.
    #[test]
    fn the_chain_is_found(
        start in 0u64..16,
        big: bool,
        steps in proptest::collection::vec((1usize..50, any::<bool>()), 1..60),
    ) {
        let lba_size = if big { LbaSize::B4096 } else { LbaSize::B512 };
        let mut journal = Journal::new(lba_size, start * 4096);
        for (names, checkpoint) in steps {
            let fits = journal.append(names);
            if checkpoint || !fits {
                let head = journal.ring.head();
                journal.start = JournalStart {
                    txid: journal.txid,
                    epoch: journal.epoch,
                    offset: journal.ring.shape().offset(head),
                    prev_crc: journal.prev_crc,
                    known_txid: journal.txid - 1,
                };
                journal.ring.release_to(head);
                prop_assert_eq!(journal.ring.used(), 0);
                journal.epoch += 1;
            }
            let (found, _, handed) = journal.scan_of(&journal.bytes);
            let found = found.expect("intact");
            prop_assert_eq!(found.next_txid, journal.txid);
            prop_assert_eq!(found.records, journal.txid - journal.start.txid);
            prop_assert_eq!(handed, found.records);
            prop_assert_eq!(found.last_crc, journal.prev_crc);
            let shape = journal.ring.shape();
            prop_assert_eq!(shape.offset(found.next), shape.offset(journal.ring.head()));
            prop_assert!(!found.torn);
        }
    }

    /// A ring of any bytes, some of them headers, ends the scan with bounded reading and no panic.
    #[test]
    fn garbage(
        bytes in proptest::collection::vec(any::<u8>(), RING_BYTES),
        headers in proptest::collection::vec((0usize..128, any::<bool>(), 0u64..4, 1u64..4, 0u32..20_000), 0..6),
    ) {
        let journal = Journal::new(LbaSize::B512, 512);
        let mut bytes = bytes;
        for (block, valid, txid, epoch, len) in headers {
            let mut header = [0u8; HEADER_BYTES];
            header[..4].copy_from_slice(b"DBJR");
            header[4..8].copy_from_slice(&UUID32.to_le_bytes());
            header[8..16].copy_from_slice(&epoch.to_le_bytes());
            header[16..24].copy_from_slice(&txid.to_le_bytes());
            let lba = journal.ring.shape().lba(RingPos(block as u64 * 512));
            header[24..32].copy_from_slice(&lba.0.to_le_bytes());
            header[32..36].copy_from_slice(&len.to_le_bytes());
            header[36] = 1;
            let crc = crc32c::crc32c(&header[..60]).wrapping_add(u32::from(!valid));
            header[60..].copy_from_slice(&crc.to_le_bytes());
            bytes[block * 512..][..HEADER_BYTES].copy_from_slice(&header);
        }
        match journal.scan_of(&bytes).0 {
            Ok(found) => prop_assert_eq!(found.records, 0),
            Err(FormatError::JournalRotten { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

/// A record cut at every logical block, in every combination of old and new blocks of four, is a torn
/// tail: the records before it stand and nothing is reported damaged.
#[test]
fn a_torn_tail() {
    for start in [0, 62 << 10] {
        let mut journal = Journal::new(LbaSize::B512, start);
        assert!(journal.append(1) && journal.append(5));
        let before = journal.bytes.clone();
        let expected = journal.scan().expect("intact");
        assert!(journal.append(6));
        let (offset, len) = journal.records[2];
        assert_eq!(len, 4 * 512);
        for new in 0u32..15 {
            let mut torn = before.clone();
            for block in (0..4).filter(|block| new >> block & 1 == 1) {
                let at = offset + block * 512;
                torn[at..at + 512].copy_from_slice(&journal.bytes[at..at + 512]);
            }
            let found = journal.scan_of(&torn).0.expect("a torn tail is no damage");
            let torn = new & 1 == 1;
            assert_eq!(found, Scanned { torn, ..expected }, "blocks {new:#b}");
        }
        assert_eq!(journal.scan().expect("whole").records, 3);
    }
}

/// A byte that rots in any record but the last is damage with its place; the records before it have been
/// handed over, none after it.
#[test]
fn rot_in_the_middle() {
    for start in [0, 60 << 10] {
        let mut journal = Journal::new(LbaSize::B512, start);
        for names in [1, 3, 7, 1, 2] {
            assert!(journal.append(names));
        }
        for (nth, &(offset, len)) in journal.records.iter().enumerate() {
            for at in (offset..offset + len).step_by(61).chain([offset + len - 1]) {
                let mut rotten = journal.bytes.clone();
                rotten[at] ^= 0x10;
                let (result, _, handed) = journal.scan_of(&rotten);
                assert_eq!(handed, nth as u64);
                if nth == 4 {
                    assert_eq!(result.expect("looks torn").records, 4);
                    continue;
                }
                let Err(FormatError::JournalRotten {
                    expected_txid,
                    found_txid,
                    ..
                }) = result
                else {
                    panic!("record {nth}, byte {at}: {result:?}");
                };
                assert_eq!(expected_txid, nth as u64 + 1);
                assert!(found_txid > expected_txid);
            }
        }
    }
}

/// Rot in the very last record looks torn, unless the superblock knew that the record was written.
#[test]
fn a_known_record_is_not_torn() {
    let mut journal = Journal::new(LbaSize::B512, 0);
    assert!(journal.append(1) && journal.append(2));
    let (offset, _) = journal.records[1];
    journal.bytes[offset + 100] ^= 1;
    assert!(journal.scan().expect("looks torn").torn);
    journal.start.known_txid = 2;
    assert!(matches!(
        journal.scan(),
        Err(FormatError::JournalShort {
            last_txid: 1,
            known_txid: 2,
            ..
        })
    ));
}

/// What an older epoch wrote is never replayed and proves nothing.
#[test]
fn an_old_epoch_stays_old() {
    let mut journal = Journal::new(LbaSize::B512, 0);
    for names in [1, 3, 1] {
        assert!(journal.append(names));
    }
    // The same ring after a checkpoint that holds all of it, in the next epoch.
    journal.start.epoch = 2;
    let found = journal.scan().expect("old records are no damage");
    assert_eq!((found.records, found.torn), (0, false));
    // A new first record over the old ones: the chain is that record.
    let head = RingPos(0);
    journal.ring = Ring::new(journal.ring.shape(), head, head);
    (journal.txid, journal.prev_crc, journal.epoch) = (1, 0, 2);
    assert!(journal.append(1));
    assert_eq!(journal.scan().expect("intact").records, 1);
}

/// A record that was written where another one belongs, swapped with another or is an older one of the
/// same place ends the chain and shows as damage.
#[test]
fn misdirected_swapped_and_stale() {
    let mut journal = Journal::new(LbaSize::B512, 0);
    let stale = {
        assert!(journal.append(1));
        journal.bytes[..512].to_vec()
    };
    let mut journal = Journal::new(LbaSize::B512, 0);
    journal.epoch = 2;
    for _ in 0..4 {
        assert!(journal.append(1));
    }
    let rotten = |bytes: &[u8], nth| match journal.scan_of(bytes).0 {
        Err(FormatError::JournalRotten { expected_txid, .. }) => expected_txid == nth,
        _ => false,
    };
    let mut bytes = journal.bytes.clone();
    bytes.copy_within(1024..1536, 512);
    assert!(rotten(&bytes, 2), "a misdirected write");
    let mut bytes = journal.bytes.clone();
    bytes.copy_within(1024..1536, 512);
    bytes[1024..1536].copy_from_slice(&journal.bytes[512..1024]);
    assert!(rotten(&bytes, 2), "two swapped");
    let mut bytes = journal.bytes.clone();
    bytes[..512].copy_from_slice(&stale);
    assert!(
        rotten(&bytes, 2),
        "an older version breaks the chain of checksums"
    );
}

/// The next record where the rule does not put it, at the ring's beginning although it would have fitted or
/// somewhere else, is damage.
#[test]
fn the_next_record_out_of_place() {
    for block in [0, 20] {
        let mut journal = Journal::new(LbaSize::B512, 2048);
        assert!(journal.append(1));
        let pos = RingPos(RING_BYTES as u64 + block * 512);
        let shape = journal.ring.shape();
        let right = std::mem::replace(&mut journal.ring, Ring::new(shape, pos, pos));
        assert!(journal.append(1));
        journal.ring = right;
        let answer = journal.scan();
        let rotten = matches!(
            answer,
            Err(FormatError::JournalRotten {
                expected_txid: 2,
                found_txid: 2,
                ..
            })
        );
        assert!(rotten, "block {block}: {answer:?}");
    }
}

/// A record that runs over the chain's start does not belong, even one forged so that the first record is
/// whole inside it: without that rule a forged ring could be walked for ever so long.
#[test]
fn a_chain_does_not_eat_its_tail() {
    let mut journal = Journal::new(LbaSize::B512, 512);
    for _ in 0..127 {
        assert!(journal.append(1));
    }
    let first: [u8; 512] = journal.bytes[512..1024].try_into().expect("a block");
    // 448 bytes of operations make two blocks of which the second is filling alone.
    let mut builder = RecordBuilder::new(journal.identity, 16 << 10);
    let value = [1; 424];
    let xattr = Op::SetXattr {
        ino: 1,
        name: b"user.xyz",
        value: &value,
    };
    assert_eq!(builder.push(&[xattr]), Ok(true));
    assert_eq!(builder.sealed_bytes(), 1024);
    let stamp = Stamp {
        epoch: 1,
        txid: 128,
        prev_crc: journal.prev_crc,
        lba: journal.ring.shape().lba(RingPos(0)),
    };
    let mut forged = builder.seal(&stamp).expect("not empty").bytes.to_vec();
    forged[512..].copy_from_slice(&first);
    // Its checksum is the first record's: four bytes of the value make it right.
    let free = 100..104;
    let wanted = u32::from_le_bytes(*first.last_chunk().expect("four bytes"));
    let sum = |bytes: &[u8]| {
        let header = crc32c::crc32c(&bytes[..60]);
        crc32c::crc32c_append(header, &bytes[64..1020])
    };
    forged[free.clone()].fill(0);
    let zero = sum(&forged);
    let mut basis: Vec<(u32, u32)> = Vec::new();
    let reduce = |basis: &[(u32, u32)], mut pair: (u32, u32)| {
        for &(effect, bits) in basis {
            if pair.0 ^ effect < pair.0 {
                pair = (pair.0 ^ effect, pair.1 ^ bits);
            }
        }
        pair
    };
    for bit in 0..32 {
        forged[free.clone()].copy_from_slice(&(1u32 << bit).to_le_bytes());
        let pair = reduce(&basis, (sum(&forged) ^ zero, 1 << bit));
        basis.push(pair);
        basis.sort_unstable_by(|a, b| b.cmp(a));
    }
    let (rest, bits) = reduce(&basis, (wanted ^ zero, 0));
    assert_eq!(rest, 0, "four bytes reach every checksum");
    forged[free].copy_from_slice(&bits.to_le_bytes());
    let whole = Record::parse(&forged, journal.identity, stamp.lba);
    assert_eq!(whole.expect("forged well").header.stamp, stamp);
    journal.bytes[..1024].copy_from_slice(&forged);
    assert_eq!(journal.scan().expect("no damage").records, 127);
}

/// A committed record with an operation of a later version is an error, not the journal's end.
#[test]
fn a_committed_record_is_never_dropped() {
    let mut journal = Journal::new(LbaSize::B512, 0);
    assert!(journal.append(1));
    journal.bytes[64] = 99;
    let crc = crc32c::crc32c(&journal.bytes[..60]);
    let crc = crc32c::crc32c_append(crc, &journal.bytes[64..508]);
    journal.bytes[508..512].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(
        journal.scan(),
        Err(FormatError::UnknownOp { tag: 99, at: 0 })
    );
}

/// A full ring refuses, keeps what it has, and takes records again after a release.
#[test]
fn a_full_ring() {
    let mut journal = Journal::new(LbaSize::B4096, 4096);
    let mut third = RingPos(0);
    while journal.append(1) {
        if journal.records.len() == 2 {
            third = journal.ring.head();
        }
    }
    assert_eq!(
        (journal.records.len(), journal.ring.used()),
        (16, RING_BYTES as u64)
    );
    assert_eq!(journal.scan().expect("intact").records, 16);
    journal.ring.release_to(third);
    assert!(journal.append(1) && journal.append(1) && !journal.append(1));
    assert_eq!(journal.ring.reserve(u64::MAX), None);
}

/// The reader's error comes through, and an offset that no superblock can hold is refused.
#[test]
fn errors_come_through() {
    let journal = Journal::new(LbaSize::B512, 0);
    let failed = FormatError::SlotFull { pages: 1 };
    let shape = journal.ring.shape();
    let run = |start: &JournalStart| {
        let read = |_, _: &mut [u8]| Err(failed.clone());
        scan(
            shape,
            journal.identity,
            16 << 10,
            start,
            read,
            |_, _| Ok(()),
        )
    };
    assert_eq!(run(&journal.start), Err(failed.clone()));
    for offset in [1, RING_BYTES as u64, u64::MAX] {
        let start = JournalStart {
            offset,
            ..journal.start
        };
        assert!(matches!(run(&start), Err(FormatError::BadField { .. })));
    }
}
