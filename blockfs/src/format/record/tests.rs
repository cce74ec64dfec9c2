//! Tests of journal records.

use super::super::LbaSize;
use super::super::op::tests::{Parts, any_parts};
use super::*;
use proptest::prelude::*;

const IDENTITY: Identity = Identity {
    uuid32: 0x1234_5678,
    lba_size: LbaSize::B512,
};
const STAMP: Stamp = Stamp {
    epoch: 3,
    txid: 17,
    prev_crc: 0xabcd,
    lba: Lba(40),
};

fn sealed(ops: &[Op<'_>]) -> Vec<u8> {
    let mut builder = RecordBuilder::new(IDENTITY, 128 << 10);
    assert_eq!(builder.push(ops), Ok(true));
    builder.seal(&STAMP).expect("not empty").bytes.to_vec()
}

fn name(name: &[u8]) -> Op<'_> {
    Op::RemoveDirent { dir: 1, name }
}

proptest! {
    /// What is built is parsed again, whatever the operations, in whole logical blocks.
    #[test]
    fn round_trip(list in proptest::collection::vec(any_parts(), 1..20), big: bool) {
        let lba_size = if big { LbaSize::B4096 } else { LbaSize::B512 };
        let identity = Identity { lba_size, ..IDENTITY };
        let ops: Vec<_> = list.iter().map(Parts::op).collect();
        let mut builder = RecordBuilder::new(identity, 128 << 10);
        prop_assert_eq!(builder.push(&ops), Ok(true));
        let expected = builder.sealed_bytes();
        let sealed = builder.seal(&STAMP).expect("not empty");
        prop_assert_eq!(sealed.bytes.len(), expected);
        prop_assert_eq!(sealed.bytes.len() % lba_size.bytes() as usize, 0);
        let record = Record::parse(sealed.bytes, identity, STAMP.lba).expect("whole");
        prop_assert_eq!(record.header.stamp, STAMP);
        prop_assert_eq!(record.crc, sealed.crc);
        let read: Result<Vec<_>, _> = record.ops().collect();
        prop_assert_eq!(read, Ok(ops));
    }

    /// A group of operations goes in whole or not at all, and the record keeps its bound.
    #[test]
    fn groups_stay_together(groups in proptest::collection::vec(
        proptest::collection::vec(any_parts(), 1..6), 1..40))
    {
        let mut builder = RecordBuilder::new(IDENTITY, 16 << 10);
        let mut taken = Vec::new();
        for group in &groups {
            let ops: Vec<_> = group.iter().map(Parts::op).collect();
            match builder.push(&ops) {
                Ok(true) => taken.extend(ops),
                Ok(false) => prop_assert!(!builder.is_empty()),
                Err(FormatError::RecordTooLong { bytes, .. }) => prop_assert!(bytes > 16 << 10),
                Err(other) => prop_assert!(false, "{other}"),
            }
            prop_assert!(builder.sealed_bytes() <= 16 << 10);
        }
        if !taken.is_empty() {
            let sealed = builder.seal(&STAMP).expect("not empty");
            let record = Record::parse(sealed.bytes, IDENTITY, STAMP.lba).expect("whole");
            let read: Result<Vec<_>, _> = record.ops().collect();
            prop_assert_eq!(read, Ok(taken));
        }
    }
}

/// Every change of a single byte is noticed, in the header, the operations, the filling and the
/// checksum.
#[test]
fn every_byte_counts() {
    let good = sealed(&[
        name(b"a name"),
        Op::AddOrphan { ino: 4 },
        name(&[b'n'; 255]),
    ]);
    assert_eq!(good.len(), 512);
    let long = sealed(&[name(&[b'n'; 255]), name(&[b'm'; 255])]);
    assert_eq!(long.len(), 1024);
    for good in [good, long] {
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(
                    Record::parse(&bad, IDENTITY, STAMP.lba).is_err(),
                    "byte {at}, {flip:#x}"
                );
            }
        }
    }
}

/// A record at another place or of another volume is refused for just that.
#[test]
fn misdirected_or_foreign() {
    let good = sealed(&[name(b"x")]);
    let field = |identity, lba| match Record::parse(&good, identity, lba) {
        Err(FormatError::Mismatch { field, .. }) => Some(field),
        _ => None,
    };
    assert_eq!(field(IDENTITY, Lba(41)), Some(Field::SelfLba));
    let other = Identity {
        uuid32: 1,
        ..IDENTITY
    };
    assert_eq!(field(other, STAMP.lba), Some(Field::Uuid32));
    assert_eq!(field(IDENTITY, STAMP.lba), None);
}

/// A record can be sealed for another place, taken on after sealing, and used again.
#[test]
fn a_builder_is_used_again() {
    let mut builder = RecordBuilder::new(IDENTITY, 16 << 10);
    assert!(matches!(
        builder.seal(&STAMP),
        Err(FormatError::Count { .. })
    ));
    assert_eq!(builder.push(&[name(b"one")]), Ok(true));
    let first = builder.seal(&STAMP).expect("not empty").bytes.to_vec();
    assert_eq!(builder.push(&[name(b"two")]), Ok(true));
    let moved = Stamp {
        lba: Lba(99),
        ..STAMP
    };
    let sealed = builder.seal(&moved).expect("not empty");
    let record = Record::parse(sealed.bytes, IDENTITY, Lba(99)).expect("whole");
    let read: Vec<_> = record.ops().collect();
    assert_eq!(read, [Ok(name(b"one")), Ok(name(b"two"))]);
    builder.clear();
    assert!(builder.is_empty());
    assert_eq!(builder.push(&[name(b"one")]), Ok(true));
    assert_eq!(builder.seal(&STAMP).expect("not empty").bytes, first);
}

/// The checksum that the next record names differs with everything in the header, so that a chain of
/// another epoch or number never fits.
#[test]
fn the_checksum_covers_the_header() {
    let mut builder = RecordBuilder::new(IDENTITY, 16 << 10);
    assert_eq!(builder.push(&[name(b"x")]), Ok(true));
    let mut crc = |stamp: Stamp| builder.seal(&stamp).expect("not empty").crc;
    let sums = [
        crc(STAMP),
        crc(Stamp { epoch: 4, ..STAMP }),
        crc(Stamp { txid: 18, ..STAMP }),
        crc(Stamp {
            prev_crc: 1,
            ..STAMP
        }),
        crc(Stamp {
            lba: Lba(41),
            ..STAMP
        }),
    ];
    for (nth, sum) in sums.iter().enumerate() {
        assert!(!sums[..nth].contains(sum));
    }
}

/// One request that no record can hold is refused with the sizes; the record stays as it was.
#[test]
fn too_long_for_any_record() {
    let value = [7; 4096];
    let xattr = Op::SetXattr {
        ino: 1,
        name: b"user.x",
        value: &value,
    };
    let mut builder = RecordBuilder::new(IDENTITY, 16 << 10);
    assert_eq!(builder.push(&[xattr; 3]), Ok(true));
    assert_eq!(builder.push(&[xattr]), Ok(false));
    let sealed = builder.seal(&STAMP).expect("not empty");
    let record = Record::parse(sealed.bytes, IDENTITY, STAMP.lba).expect("whole");
    assert_eq!(record.ops().count(), 3);
    builder.clear();
    let answer = builder.push(&[xattr; 4]);
    let refused = matches!(answer, Err(FormatError::RecordTooLong { max: 16384, .. }));
    assert!(refused && builder.is_empty(), "{answer:?}");
}

/// Lengths in a header with a right checksum that cannot be are refused before they are used.
#[test]
fn impossible_lengths() {
    let good = sealed(&[name(b"x")]);
    for (at, value) in [(35, 0xffu8), (34, 2), (36, 0), (44, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        let crc = crc32c::crc32c(&bad[..60]);
        bad[60..64].copy_from_slice(&crc.to_le_bytes());
        let answer = RecordHeader::parse(&bad, IDENTITY, STAMP.lba);
        let refused = matches!(
            answer,
            Err(FormatError::BadField { .. } | FormatError::Count { .. })
        );
        assert!(refused, "byte {at}: {answer:?}");
    }
    assert!(matches!(
        Record::parse(&good[..63], IDENTITY, STAMP.lba),
        Err(FormatError::Length { .. })
    ));
    assert!(matches!(
        Record::parse(&good[..511], IDENTITY, STAMP.lba),
        Err(FormatError::Length { .. })
    ));
}
