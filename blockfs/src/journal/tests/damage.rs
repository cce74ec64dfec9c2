//! Torn tails and rot: told apart, and never mounted as something else.

use super::fake::Random;
use super::*;
use crate::format::FormatError;
use crate::format::geometry::BlockRange;
use crate::journal::JournalError;

/// A volume with records of several blocks, and where each lies: first byte, end.
fn with_records(records: u8) -> (Volume, Vec<(usize, usize)>) {
    let mut volume = fresh(512, true, 40);
    let ino = volume.create("a");
    volume.checkpoint();
    let start = usize::try_from(volume.geometry.journal.start * 4096).unwrap();
    let mut places = Vec::new();
    let mut at = usize::try_from(volume.journal.superblock().journal.offset).unwrap();
    for byte in 0..records {
        volume.fill(ino, 1500, byte);
        volume.commit();
        let used = usize::try_from(volume.journal.ring.head().0).unwrap();
        places.push((start + at, start + used));
        at = used;
    }
    (volume, places)
}

fn image_mounts(image: Vec<u8>, mode: LoadMode) -> Result<Volume, JournalError> {
    mount(Fake::new(image, 512, true, 1), mode)
}

/// The last record with any of its blocks old is a torn tail: dropped, said, and written over.
#[test]
fn a_torn_tail_is_dropped() {
    let (volume, places) = with_records(5);
    let before = volume.states[volume.states.len() - 2].1;
    let (start, end) = *places.last().unwrap();
    let blocks = (end - start) / 512;
    for torn in 1..(1_u32 << blocks) {
        let mut image = volume.fake.image();
        for nth in (0..blocks).filter(|nth| torn >> nth & 1 == 1) {
            image[start + nth * 512..][..512].fill(0);
        }
        let mut again = image_mounts(image, LoadMode::ReadWrite).unwrap();
        assert_eq!((again.report.records, again.tree.state_hash()), (4, before));
        assert_eq!(again.report.torn, torn & 1 == 0);
        again.create("b");
        again.commit();
        let state = again.tree.state_hash();
        let again = mount(again.fake.clone(), LoadMode::ReadOnly).unwrap();
        assert_eq!((again.report.records, again.tree.state_hash()), (5, state));
    }
}

/// Any byte of any record but the last: refused as rotten, for reading and for writing; a salvage gets
/// what is before it.
#[test]
fn rot_in_the_middle_is_refused() {
    let (volume, places) = with_records(5);
    let image = volume.fake.image();
    let mut random = Random::new(41);
    for (nth, &(start, end)) in places.iter().enumerate().take(4) {
        for _ in 0..20 {
            let mut image = image.clone();
            let at = start + usize::try_from(random.below((end - start) as u64)).unwrap();
            image[at] ^= 1 << random.below(8);
            for mode in [LoadMode::ReadOnly, LoadMode::ReadWrite] {
                let found = image_mounts(image.clone(), mode).map(|_| ());
                let rotten = FormatError::JournalRotten {
                    expected_txid: 0,
                    expected_lba: 0,
                    found_txid: 0,
                    found_lba: 0,
                };
                let rotten = std::mem::discriminant(&rotten);
                match found {
                    Err(JournalError::Format(error)) => {
                        assert_eq!(std::mem::discriminant(&error), rotten, "{error}");
                    }
                    other => panic!("record {nth}, byte {at}: {other:?}"),
                }
            }
            let salvaged = image_mounts(image, LoadMode::Salvage).unwrap();
            let before = volume.states[volume.states.len() - 6 + nth].1;
            assert_eq!(salvaged.tree.state_hash(), before, "record {nth}");
            assert!(!salvaged.report.problems.is_empty());
        }
    }
}

/// A last record that a superblock knew of, and that is gone, is no torn tail.
#[test]
fn a_known_record_that_is_gone_is_refused() {
    let (volume, places) = with_records(3);
    // The mount after it says that it is known.
    drop(mount(volume.fake.clone(), LoadMode::ReadWrite).unwrap());
    let mut image = volume.fake.image();
    image[places[2].0] ^= 1;
    let found = image_mounts(image, LoadMode::ReadOnly).map(|_| ());
    let short = matches!(
        found,
        Err(JournalError::Format(FormatError::JournalShort { .. }))
    );
    assert!(short, "{found:?}");
}

/// Any byte of metadata changed gives the same state, the state of a twin, or a typed error.
#[test]
fn any_byte_of_metadata() {
    let (mut volume, _) = with_records(3);
    volume.checkpoint();
    let ino = volume.create("late");
    volume.fill(ino, 700, 9);
    volume.commit();
    let states: Vec<u64> = volume.states.iter().map(|(_, state)| *state).collect();
    let image = volume.fake.image();
    let geometry = volume.geometry;
    let areas = [
        BlockRange {
            start: 0,
            blocks: 1,
        },
        BlockRange {
            start: 256,
            blocks: 1,
        },
        geometry.journal,
        geometry.slots[0],
        geometry.slots[1],
    ];
    let mut random = Random::new(42);
    let mut refused = 0;
    for nth in 0..600_usize {
        let area = areas[nth % areas.len()];
        let mut image = image.clone();
        // What is written is at the beginning of an area.
        let bytes = area.bytes().min(8192);
        let at = area.start * 4096 + random.below(bytes);
        let byte = &mut image[usize::try_from(at).unwrap()];
        *byte = match random.below(3) {
            0 => 0,
            1 => 0xff,
            _ => *byte ^ 1 << random.below(8),
        };
        for mode in [LoadMode::ReadWrite, LoadMode::Salvage] {
            match image_mounts(image.clone(), mode) {
                Ok(found) => assert!(states.contains(&found.tree.state_hash()), "byte {at}"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 0);
}

/// Numbers that counting up cannot have led to are refused for writing, and never overflow.
#[test]
fn numbers_at_their_end() {
    let fake = made(512, true, 43);
    let image = fake.image();
    let lba = driver::namespace::Lba(0);
    let size = crate::format::LbaSize::B512;
    let found = crate::format::superblock::Superblock::decode(&image[..512], lba, size).unwrap();
    for nth in 0..3 {
        let mut superblock = found;
        match nth {
            0 => superblock.generation = u64::MAX - 1,
            1 => superblock.epoch = u64::MAX,
            _ => {
                superblock.journal.txid = u64::MAX;
                superblock.journal.known_txid = u64::MAX;
            }
        }
        let mut image = image.clone();
        image[..512].copy_from_slice(&superblock.encode(lba).unwrap());
        let reader = image_mounts(image.clone(), LoadMode::ReadOnly).unwrap();
        assert_eq!(reader.tree.totals().inodes, 1);
        assert!(image_mounts(image, LoadMode::ReadWrite).is_err());
    }
}
