//! Any bytes at all: each parser answers, with a value that can be written again or with an error.

use blockfs::format::op::Ops;
use blockfs::format::record::{Record, RecordHeader};
use blockfs::format::superblock::{Superblock, choose};
use blockfs::format::{Identity, LbaSize};
use driver::namespace::Lba;
use proptest::prelude::*;

/// Bytes with a right checksum after the first `covered`, so that the checks behind it are reached.
fn forged(mut bytes: Vec<u8>, magic: &[u8], covered: usize) -> Vec<u8> {
    bytes[..magic.len()].copy_from_slice(magic);
    let crc = crc32c::crc32c(&bytes[..covered]);
    bytes[covered..covered + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

proptest! {
    /// Superblocks of any bytes, and of any bytes behind a right magic number, version and checksum.
    #[test]
    fn superblocks(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        mostly in proptest::collection::vec(prop_oneof![6 => Just(0u8), 1 => any::<u8>()], 512),
    ) {
        for lba_size in [LbaSize::B512, LbaSize::B4096] {
            prop_assert!(Superblock::decode(&bytes, Lba(0), lba_size).is_err());
            prop_assert!(choose(&bytes, &mostly, lba_size).is_err());
            let mut mostly = mostly.clone();
            mostly[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0x10, 0, 0]);
            mostly[32..40].fill(0);
            mostly[64..72].fill(0);
            mostly[72..76].copy_from_slice(&lba_size.bytes().to_le_bytes());
            let forged = forged(mostly, b"DBELLBFS", 508);
            if let Ok(superblock) = Superblock::decode(&forged, Lba(0), lba_size) {
                let again = superblock.encode(Lba(0)).expect("valid");
                prop_assert_eq!(&again[..], &forged[..]);
            }
        }
    }

    /// Records of any bytes, and of any bytes behind a right header.
    #[test]
    fn records(
        bytes in proptest::collection::vec(any::<u8>(), 64..2048),
        ops_bytes in 0u32..2048,
        ops: u32,
    ) {
        let identity = Identity { uuid32: 0, lba_size: LbaSize::B512 };
        let mut plausible = bytes.clone();
        prop_assert!(Record::parse(&bytes, identity, Lba(0)).is_err());
        prop_assert!(Record::parse(&bytes[..bytes.len().min(63)], identity, Lba(0)).is_err());
        plausible[..64].fill(0);
        plausible.resize(2048 + 512, 0);
        plausible[32..36].copy_from_slice(&ops_bytes.to_le_bytes());
        plausible[36..40].copy_from_slice(&ops.to_le_bytes());
        let mut plausible = forged(plausible, b"DBJR", 60);
        let Ok(header) = RecordHeader::parse(&plausible, identity, Lba(0)) else {
            prop_assert_eq!(ops, 0);
            return Ok(());
        };
        let total = header.total_bytes as usize;
        prop_assert!(Record::parse(&plausible, identity, Lba(0)).is_err());
        let header_crc = crc32c::crc32c(&plausible[..60]);
        let crc = crc32c::crc32c_append(header_crc, &plausible[64..total - 4]);
        plausible[total - 4..total].copy_from_slice(&crc.to_le_bytes());
        let record = Record::parse(&plausible, identity, Lba(0)).expect("a right checksum");
        prop_assert!(record.ops().count() <= ops_bytes as usize / 8 + 1);
    }

    /// Lists of operations of any bytes: they end, after one error at most.
    #[test]
    fn operations(
        words in proptest::collection::vec((0u8..24, 0u8..4, 0u16..40, 0u32..40), 0..200),
        count: u32,
    ) {
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|&(tag, flags, short, long)| {
                let [a, b] = short.to_le_bytes();
                let [c, d, e, f] = long.to_le_bytes();
                [tag, flags, a, b, c, d, e, f]
            })
            .collect();
        let read: Vec<_> = Ops::new(&bytes, count).collect();
        prop_assert!(read.len() <= words.len() + 1);
        let errors = read.iter().filter(|op| op.is_err()).count();
        prop_assert!(errors <= 1);
        prop_assert!(errors == 0 || read.last().is_some_and(Result::is_err));
    }
}
