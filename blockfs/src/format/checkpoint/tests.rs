//! Tests of checkpoints.

use super::super::LbaSize;
use super::super::op::tests::{Parts, any_parts};
use super::super::op::{Dirent, Extent, Kind};
use super::*;
use proptest::prelude::*;

const PLACE: Place = Place {
    identity: Identity {
        uuid32: 77,
        lba_size: LbaSize::B512,
    },
    epoch: 5,
    slot: BlockRange {
        start: 40,
        blocks: 200,
    },
};

fn write<'a>(ops: impl IntoIterator<Item = Op<'a>>) -> (Vec<u8>, Written) {
    let mut writer = CheckpointWriter::new(PLACE);
    let mut pages = Vec::new();
    for op in ops {
        writer.push(&op).expect("room");
        while let Some(page) = writer.page() {
            pages.extend_from_slice(page);
        }
    }
    assert_eq!(writer.written(), None);
    writer.finish();
    while let Some(page) = writer.page() {
        pages.extend_from_slice(page);
    }
    let written = writer.written().expect("finished");
    assert_eq!(pages.len() as u64, written.pages * PAGE_BYTES as u64);
    (pages, written)
}

/// Reads it all; gives the encoded operations.
fn read(place: Place, pages: &[u8], written: &Written) -> Result<(Vec<u8>, Counts), FormatError> {
    let mut reader = CheckpointReader::new(place, written.pages, written.root_crc);
    let mut stream = Vec::new();
    for page in pages.chunks(PAGE_BYTES) {
        reader.page(page, |op| op.encode(&mut stream))?;
    }
    Ok((stream, reader.finish()?))
}

/// Three pages of operations and the trailer.
fn sample() -> (Vec<u8>, Written) {
    let value = [9; 4000];
    write((1..=3).flat_map(|ino| {
        [
            Op::SetXattr {
                ino,
                name: b"user.x",
                value: &value,
            },
            Op::MapExtent {
                ino,
                extent: Extent {
                    lblk: 0,
                    pblk: 9,
                    len: 1,
                    unwritten: false,
                },
            },
        ]
    }))
}

proptest! {
    /// The operations come back in order, however they lie across pages, with their counts.
    #[test]
    fn round_trip(list in proptest::collection::vec(any_parts(), 0..120)) {
        let ops: Vec<_> = list.iter().map(Parts::op).filter(Op::builds).collect();
        let (pages, written) = write(ops.iter().copied());
        let mut expected = Vec::new();
        for op in &ops {
            op.encode(&mut expected).expect("valid");
        }
        prop_assert_eq!(written.pages, pages_for(expected.len() as u64).max(2));
        prop_assert_eq!(written.counts.ops, ops.len() as u64);
        let inodes = ops.iter().filter(|op| matches!(op, Op::CreateInode(_))).count();
        prop_assert_eq!(written.counts.inodes, inodes as u64);
        prop_assert_eq!(read(PLACE, &pages, &written), Ok((expected, written.counts)));
    }

    /// Pages of any bytes, with right checksums or not, give errors and no panic, and memory stays small.
    #[test]
    fn garbage(
        payload in proptest::collection::vec(any::<u8>(), PAYLOAD_BYTES * 3),
        tags in proptest::collection::vec((0usize..1500, 0u8..20), 0..60),
        forged: bool,
    ) {
        let mut payload = payload;
        for (word, tag) in tags {
            payload[word * 8..word * 8 + 8].copy_from_slice(&[tag, 0, 3, 0, 0, 0, 0, 0]);
        }
        let mut reader = CheckpointReader::new(PLACE, 4, 0);
        for (seq, payload) in payload.chunks(PAYLOAD_BYTES).enumerate() {
            let mut writer = CheckpointWriter::new(PLACE);
            writer.seq = seq as u64;
            writer.seal(MAGIC_PAGE, payload.try_into().expect("a payload"));
            writer.page[PAYLOAD_BYTES] ^= u8::from(!forged);
            let result = reader.page(&*writer.page, |_| Ok::<(), FormatError>(()));
            prop_assert!(reader.carry.len() <= PAYLOAD_BYTES + MAX_OP_BYTES);
            if result.is_err() {
                break;
            }
            prop_assert!(forged);
        }
        prop_assert!(reader.finish().is_err());
    }
}

/// Every change of a single byte of any page is noticed.
#[test]
fn every_byte_counts() {
    let (pages, written) = sample();
    assert_eq!(written.pages, 3 + 1);
    for at in 0..pages.len() {
        let mut bad = pages.clone();
        bad[at] ^= [1, 0x80, 0xff][at % 3];
        let page = at / PAGE_BYTES;
        let mut reader = CheckpointReader::new(PLACE, written.pages, written.root_crc);
        let mut nth = 0;
        let result = bad.chunks(PAGE_BYTES).try_for_each(|bytes| {
            reader.page(bytes, |_| Ok::<(), FormatError>(()))?;
            nth += 1;
            Ok::<(), FormatError>(())
        });
        assert!(
            result.is_err() && nth == page,
            "byte {at}: {result:?} after {nth} pages"
        );
    }
}

/// Pages swapped, of another place, volume or epoch are refused for just that.
#[test]
fn swapped_misdirected_and_stale() {
    let (pages, written) = sample();
    let field = |place, pages: &[u8]| match read(place, pages, &written) {
        Err(FormatError::Mismatch { field, .. }) => Some(field),
        _ => None,
    };
    assert_eq!(field(PLACE, &pages), None);
    let mut swapped = pages.clone();
    swapped.copy_within(PAGE_BYTES..2 * PAGE_BYTES, 0);
    assert_eq!(field(PLACE, &swapped), Some(Field::SelfLba));
    let mut elsewhere = PLACE;
    elsewhere.slot.start += 1;
    assert_eq!(field(elsewhere, &pages), Some(Field::SelfLba));
    let mut foreign = PLACE;
    foreign.identity.uuid32 += 1;
    assert_eq!(field(foreign, &pages), Some(Field::Uuid32));
    let mut later = PLACE;
    later.epoch += 1;
    assert_eq!(field(later, &pages), Some(Field::Epoch));
}

/// A page of another checkpoint of the same place and epoch passes its own checks and fails the root.
#[test]
fn the_root_ties_pages_together() {
    let (mut pages, written) = sample();
    let (others, _) = write([Op::NextInode { ino: 8 }; 3000]);
    // Its operations of 16 bytes end where a page does, so that the stream is readable.
    pages[..3 * PAGE_BYTES].copy_from_slice(&others[..3 * PAGE_BYTES]);
    let answer = read(PLACE, &pages, &written);
    let root = Field::RootCrc;
    assert!(
        matches!(answer, Err(FormatError::Mismatch { field, .. }) if field == root),
        "{answer:?}"
    );
    // A whole checkpoint that is not the one that the superblock means.
    let (pages, _) = sample();
    let other = Written {
        root_crc: written.root_crc ^ 1,
        ..written
    };
    let answer = read(PLACE, &pages, &other);
    assert!(
        matches!(answer, Err(FormatError::Mismatch { field, .. }) if field == root),
        "{answer:?}"
    );
}

/// Missing and surplus pages are counted.
#[test]
fn the_number_of_pages() {
    let (pages, written) = sample();
    let short = read(PLACE, &pages[..2 * PAGE_BYTES], &written);
    assert_eq!(
        short,
        Err(FormatError::PageCount {
            expected: 4,
            found: 2
        })
    );
    let mut longer = pages.clone();
    longer.extend_from_slice(&pages[..PAGE_BYTES]);
    let surplus = read(PLACE, &longer, &written);
    assert_eq!(
        surplus,
        Err(FormatError::PageCount {
            expected: 4,
            found: 5
        })
    );
    let cut = read(PLACE, &pages[..PAGE_BYTES + 1], &written);
    assert!(matches!(cut, Err(FormatError::Length { found: 1, .. })));
}

/// A full slot refuses the operation that does not fit, and the rest can still be finished.
#[test]
fn a_full_slot() {
    let mut place = PLACE;
    place.slot.blocks = 3;
    let mut writer = CheckpointWriter::new(place);
    let mut pushed = 0;
    let full = loop {
        match writer.push(&Op::NextInode { ino: 4 }) {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, FormatError::SlotFull { pages: 3 });
    assert_eq!(pushed, 2 * PAYLOAD_BYTES as u64 / 16);
    writer.finish();
    while writer.page().is_some() {}
    let written = writer.written().expect("finished");
    assert_eq!((written.pages, written.counts.ops), (3, pushed));
    assert!(writer.push(&Op::NextInode { ino: 4 }).is_err());
}

/// Operations that change state have no place in a checkpoint.
#[test]
fn only_what_builds() {
    let mut writer = CheckpointWriter::new(PLACE);
    let name = b"n";
    for op in [
        Op::FreeInode { ino: 1 },
        Op::RemoveDirent { dir: 1, name },
        Op::ReplaceDirent(Dirent {
            dir: 1,
            ino: 2,
            kind: Kind::File,
            name,
        }),
        Op::Grow { blocks: 9 },
    ] {
        assert!(matches!(writer.push(&op), Err(FormatError::BadOp { .. })));
    }
    assert_eq!(writer.counts, Counts::default());
}

/// A page that carries another's number is refused, and so are counts in the trailer that are not those of
/// the stream, although every checksum is right.
#[test]
fn numbers_that_do_not_agree() {
    let mut place = PLACE;
    place.slot.start -= 1;
    let mut writer = CheckpointWriter::new(place);
    writer.seq = 1;
    writer.seal(MAGIC_PAGE, [0; PAYLOAD_BYTES]);
    let mut reader = CheckpointReader::new(PLACE, 2, 0);
    let answer = reader.page(&*writer.page, |_| Ok::<(), FormatError>(()));
    let sequence = Field::Sequence;
    assert!(
        matches!(answer, Err(FormatError::Mismatch { field, .. }) if field == sequence),
        "{answer:?}"
    );
    for what in ["bytes", "operations", "inodes", "names", "extents"] {
        let mut writer = CheckpointWriter::new(PLACE);
        writer.push(&Op::NextInode { ino: 2 }).expect("room");
        let counts = &mut writer.counts;
        *match what {
            "bytes" => &mut counts.stream_bytes,
            "operations" => &mut counts.ops,
            "inodes" => &mut counts.inodes,
            "names" => &mut counts.dirents,
            _ => &mut counts.extents,
        } += 1;
        writer.finish();
        let mut pages = Vec::new();
        while let Some(page) = writer.page() {
            pages.extend_from_slice(page);
        }
        let written = writer.written().expect("finished");
        let answer = read(PLACE, &pages, &written);
        assert!(
            matches!(answer, Err(FormatError::Count { counted, .. }) if counted == what),
            "{answer:?}"
        );
    }
}
