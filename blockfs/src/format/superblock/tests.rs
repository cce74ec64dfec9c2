//! Tests of the superblock.

use super::super::geometry::LayoutOptions;
use super::*;
use proptest::prelude::*;

const SIZE: LbaSize = LbaSize::B512;

fn sample() -> Superblock {
    let options = LayoutOptions {
        journal_bytes: Some(64 << 10),
        checkpoint_bytes: Some(64 << 10),
    };
    Superblock {
        uuid: Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
        label: Label::new("Türklingel".as_bytes()).expect("short"),
        features: Features::default(),
        generation: 6,
        geometry: Geometry::plan(SIZE, 4096, &options).expect("2 MiB"),
        created_ns: 1_700_000_000_000_000_000,
        clean: true,
        epoch: 9,
        checkpoint: ActiveCheckpoint {
            slot: Twin::B,
            pages: 3,
            root_crc: 0xdead_beef,
            epoch: 8,
        },
        journal: JournalStart {
            txid: 100,
            epoch: 7,
            offset: 512,
            prev_crc: 5,
            known_txid: 103,
        },
    }
}

fn lba(copy: Twin) -> Lba {
    Geometry::superblock_lba(SIZE, copy)
}

/// The bytes of `superblock` at the place of its generation.
fn bytes(superblock: &Superblock) -> [u8; SUPERBLOCK_BYTES] {
    superblock
        .encode(lba(superblock.copy()))
        .expect("a valid superblock")
}

fn at_generation(generation: u64) -> Superblock {
    Superblock {
        generation,
        ..sample()
    }
}

/// Changes bytes and makes the checksum right again.
fn forged(patch: impl FnOnce(&mut [u8; SUPERBLOCK_BYTES])) -> [u8; SUPERBLOCK_BYTES] {
    let mut bytes = bytes(&sample());
    patch(&mut bytes);
    let crc = crc32c::crc32c(&bytes[..508]);
    bytes[508..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

proptest! {
    /// What is written is read again.
    #[test]
    fn round_trip(
        numbers in proptest::array::uniform7(any::<u64>()),
        prev_crc: u32,
        label in proptest::collection::vec(1u8..=255, 0..=64),
        clean: bool,
        created_ns: i64,
    ) {
        let [uuid, generation, compat, ro_compat, epoch, txid, offset] = numbers;
        let mut superblock = sample();
        superblock.uuid = Uuid::from_u128(u128::from(uuid) << 64 | u128::from(epoch));
        superblock.label = Label::new(&label).expect("at most 64 bytes");
        superblock.features = Features { compat, ro_compat, incompat: 0 };
        superblock.generation = generation;
        superblock.clean = clean;
        superblock.created_ns = created_ns;
        superblock.epoch = epoch;
        superblock.checkpoint.epoch = epoch / 2;
        superblock.journal.epoch = epoch / 3;
        superblock.journal.txid = txid.max(1);
        superblock.journal.known_txid = txid.saturating_add(7);
        superblock.journal.offset = offset % 128 * 512;
        superblock.journal.prev_crc = prev_crc;
        let place = lba(superblock.copy());
        let bytes = bytes(&superblock);
        prop_assert_eq!(Superblock::decode(&bytes, place, SIZE), Ok(superblock));
    }
}

/// Every change of a single byte is noticed: all 255 values of all 512 bytes.
#[test]
fn every_byte_counts() {
    let good = bytes(&sample());
    for at in 0..SUPERBLOCK_BYTES {
        for flip in 1..=255 {
            let mut bad = good;
            bad[at] ^= flip;
            assert!(
                Superblock::decode(&bad, Lba(0), SIZE).is_err(),
                "byte {at}, {flip:#x}"
            );
        }
    }
}

/// A superblock that lies where it does not belong is refused for its address.
#[test]
fn misdirected() {
    for generation in [6, 7] {
        let superblock = at_generation(generation);
        let wrong = lba(superblock.copy().other());
        let answer = Superblock::decode(&bytes(&superblock), wrong, SIZE);
        let field = Field::SelfLba;
        assert!(matches!(answer, Err(FormatError::Mismatch { field: f, .. }) if f == field));
    }
    // At the right address, but of the wrong generation for it.
    let a = at_generation(7)
        .encode(lba(Twin::A))
        .expect("valid in itself");
    let chosen = choose(&a, &bytes(&at_generation(7)), SIZE).expect("B is good");
    assert!(matches!(chosen.twin, Err(FormatError::BadField { .. })));
}

/// The newest valid copy is taken, whichever is damaged or old, and the twin's state is told.
#[test]
fn the_newest_valid_copy() {
    let zero = [0; SUPERBLOCK_BYTES];
    for (a, b, newest) in [(6, 7, 7), (8, 7, 8), (0, 1, 1), (8, 3, 8)] {
        let (old_or_new_a, b_bytes) = (bytes(&at_generation(a)), bytes(&at_generation(b)));
        let chosen = choose(&old_or_new_a, &b_bytes, SIZE).expect("both are valid");
        assert_eq!(chosen.superblock.generation, newest);
        assert_eq!(chosen.twin, Ok(a.min(b)));
        let chosen = choose(&zero, &b_bytes, SIZE).expect("B");
        assert_eq!(chosen.superblock.generation, b);
        assert!(chosen.twin.is_err());
        let chosen = choose(&old_or_new_a, &b_bytes[..100], SIZE).expect("A");
        assert_eq!(chosen.superblock.generation, a);
    }
    let answer = choose(&zero, &zero, SIZE);
    assert!(matches!(answer, Err(FormatError::NoSuperblock { .. })));
}

/// Copies of two volumes are not mixed.
#[test]
fn twins_of_different_volumes() {
    let mut other = at_generation(7);
    other.uuid = Uuid::from_u128(1);
    let answer = choose(&bytes(&at_generation(6)), &bytes(&other), SIZE);
    assert!(matches!(answer, Err(FormatError::TwinUuid { .. })));
}

/// The rule of versions and features: later versions and unknown incompatible bits are refused, even
/// when the twin is older and known; unknown read-only bits forbid writing; unknown others nothing.
#[test]
fn versions_and_features() {
    let newer = forged(|bytes| bytes[8] = 2);
    let error = FormatError::Version {
        found: 2,
        supported: 1,
    };
    assert_eq!(Superblock::decode(&newer, Lba(0), SIZE), Err(error.clone()));
    assert_eq!(choose(&newer, &bytes(&at_generation(5)), SIZE), Err(error));
    let incompat = forged(|bytes| bytes[32] = 4);
    assert_eq!(
        Superblock::decode(&incompat, Lba(0), SIZE),
        Err(FormatError::Features { unknown: 4 })
    );
    let ro = forged(|bytes| bytes[24] = 2);
    let ro = Superblock::decode(&ro, Lba(0), SIZE).expect("readable");
    assert_eq!(ro.features.forbid_writing(), 2);
    let compat = forged(|bytes| bytes[16] = 1);
    let compat = Superblock::decode(&compat, Lba(0), SIZE).expect("readable");
    assert_eq!(compat.features.forbid_writing(), 0);
    assert_eq!(compat.features.compat, 1);
}

/// Impossible values with a right checksum are refused by name, and never written.
#[test]
fn impossible_values() {
    for (at, value) in [
        (12, 1u8), // the block size
        (73, 8),   // the logical block size
        (76, 2),   // unknown flags
        (89, 0),   // the volume's size
        (96, 0),   // the journal over copy A
        (112, 1),  // slot A over the journal
        (120, 17), // slot B over slot A
        (128, 0),  // no slots
        (152, 2),  // slot C
        (160, 17), // longer than its slot
        (160, 1),  // no trailer
        (175, 1),  // a checkpoint of the future
        (191, 1),  // a journal of the future
        (193, 1),  // not a whole logical block
        (194, 1),  // outside the ring
        (204, 1),  // reserved
        (208, 50), // less known than the checkpoint holds
        (279, 1),  // after the label's end
        (300, 1),  // reserved
    ] {
        let bytes = forged(|bytes| bytes[at] = value);
        let answer = Superblock::decode(&bytes, Lba(0), SIZE);
        assert!(answer.is_err(), "byte {at}");
        let crc = matches!(
            answer,
            Err(FormatError::Mismatch {
                field: Field::Crc,
                ..
            })
        );
        assert!(!crc, "byte {at}: the checksum was to be right");
    }
    let mut superblock = sample();
    superblock.checkpoint.pages = 17;
    assert!(superblock.encode(Lba(0)).is_err());
}

/// A drive with other logical blocks than the volume's is told so.
#[test]
fn another_block_size() {
    let answer = Superblock::decode(&bytes(&sample()), Lba(0), LbaSize::B4096);
    assert!(matches!(
        answer,
        Err(FormatError::Mismatch {
            field: Field::LbaSize,
            expected: 4096,
            found: 512,
            ..
        })
    ));
}

/// A label is what was given, and no longer than its field.
#[test]
fn labels() {
    assert_eq!(sample().label.to_string(), "Türklingel");
    assert_eq!(Label::new(&[]), Some(Label::EMPTY));
    assert!(Label::new(&[b'x'; 64]).is_some());
    assert!(Label::new(&[b'x'; 65]).is_none());
    assert!(Label::new(b"a\0").is_none());
}
