//! Version 1 to the byte: what this code writes, and what it reads of what was written once.
//!
//! The images are in tests/golden as text: 16 bytes a line, lines of zeros left out. A change there is a
//! change of the format: it needs a new version or a feature bit and new files beside the old ones. While
//! version 1 has not been released, they can be written anew:
//!
//! ```sh
//! BLOCKFS_GOLDEN=write cargo test -p doorbell-blockfs --test format written
//! ```

use crate::image::{self, BLOCKS};
use blockfs::format::checkpoint::{CheckpointReader, Place};
use blockfs::format::geometry::Geometry;
use blockfs::format::op::Op;
use blockfs::format::ring::{RingShape, scan};
use blockfs::format::superblock::{Superblock, choose};
use blockfs::format::{BLOCK_BYTES, FormatError, Identity, LbaSize, Twin, uuid32};
use driver::namespace::Lba;
use std::fmt::Write as _;
use std::path::PathBuf;

const BOTH: [LbaSize; 2] = [LbaSize::B512, LbaSize::B4096];

fn path(lba_size: LbaSize) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("v1-lba{}.hex", lba_size.bytes()))
}

fn to_text(lba_size: LbaSize, image: &[u8]) -> String {
    let mut text = format!(
        "# A blockfs volume of version 1 on logical blocks of {} bytes; see tests/format/golden.rs.\n",
        lba_size.bytes()
    );
    for (nth, line) in image.chunks(16).enumerate() {
        if line.iter().any(|&byte| byte != 0) {
            write!(text, "{:08x} ", nth * 16).expect("a string takes it");
            for byte in line {
                write!(text, " {byte:02x}").expect("a string takes it");
            }
            text.push('\n');
        }
    }
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(BLOCKS * BLOCK_BYTES).expect("small")];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let at = usize::from_str_radix(words.next().expect("an offset"), 16).expect("hex");
        for (byte, word) in image[at..at + 16].iter_mut().zip(words) {
            *byte = u8::from_str_radix(word, 16).expect("hex");
        }
    }
    image
}

fn golden(lba_size: LbaSize) -> Vec<u8> {
    from_text(&std::fs::read_to_string(path(lba_size)).expect("the golden image"))
}

/// What lies from `lba` on.
fn at(image: &[u8], lba_size: LbaSize, lba: Lba) -> &[u8] {
    &image[usize::try_from(lba.0 * u64::from(lba_size.bytes())).expect("small")..]
}

fn superblock(image: &[u8], lba_size: LbaSize) -> Superblock {
    let copy = |copy| at(image, lba_size, Geometry::superblock_lba(lba_size, copy));
    let chosen = choose(copy(Twin::A), copy(Twin::B), lba_size).expect("valid");
    assert_eq!(chosen.twin, Ok(2));
    chosen.superblock
}

/// What is written today is what was written when version 1 was made.
#[test]
fn written_as_ever() {
    for lba_size in BOTH {
        let text = to_text(lba_size, &image::build(lba_size).expect("a valid volume"));
        if std::env::var_os("BLOCKFS_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(path(lba_size), &text).expect("tests/golden is writable");
        }
        let golden = std::fs::read_to_string(path(lba_size)).expect("the golden image");
        for (now, then) in text.lines().zip(golden.lines()) {
            assert_eq!(now, then, "the format has changed");
        }
        assert_eq!(
            text.lines().count(),
            golden.lines().count(),
            "the format has changed"
        );
    }
}

/// The golden images are read: superblocks, checkpoint, a journal that wraps, and the geometry copy.
#[test]
fn read_as_ever() {
    for lba_size in BOTH {
        let image = golden(lba_size);
        let superblock = superblock(&image, lba_size);
        assert_eq!(superblock.generation, 3);
        assert_eq!(superblock.label.as_bytes(), b"golden");
        assert_eq!(Ok(superblock.geometry), image::geometry(lba_size));
        let end = lba_size.lba_of(superblock.geometry.geometry_copy_block());
        let copy = Superblock::decode(at(&image, lba_size, end), end, lba_size).expect("valid");
        assert_eq!(copy.geometry, superblock.geometry);

        let identity = Identity {
            uuid32: uuid32(&superblock.uuid),
            lba_size,
        };
        let active = superblock.checkpoint;
        let slot = superblock.geometry.slot(active.slot);
        let place = Place {
            identity,
            epoch: active.epoch,
            slot,
        };
        let mut reader = CheckpointReader::new(place, active.pages, active.root_crc);
        let expected = image::checkpoint_ops();
        let mut seen = 0;
        for page in 0..active.pages {
            let bytes = at(&image, lba_size, lba_size.lba_of(slot.start + page));
            let each = |op: &Op<'_>| {
                assert_eq!(*op, expected[seen]);
                seen += 1;
                Ok::<(), FormatError>(())
            };
            reader.page(&bytes[..4096], each).expect("valid");
        }
        let counts = reader.finish().expect("whole");
        assert_eq!((seen as u64, counts.inodes), (counts.ops, 4));
        assert_eq!(seen, expected.len());
        replay(&image, &superblock, identity);
    }
}

fn replay(image: &[u8], superblock: &Superblock, identity: Identity) {
    let geometry = &superblock.geometry;
    let start = identity.lba_size.lba_of(geometry.journal.start);
    let ring = at(image, identity.lba_size, start);
    let expected = image::journal_ops();
    let mut offsets = Vec::new();
    let found = scan(
        RingShape::new(geometry),
        identity,
        geometry.max_record_bytes(),
        &superblock.journal,
        |offset, buf: &mut [u8]| {
            let offset = usize::try_from(offset).expect("small");
            buf.copy_from_slice(&ring[offset..offset + buf.len()]);
            Ok::<(), FormatError>(())
        },
        |record, pos| {
            let ops: Result<Vec<_>, _> = record.ops().collect();
            assert_eq!(ops.as_ref(), Ok(&expected[offsets.len()]));
            offsets.push(RingShape::new(geometry).offset(pos));
            Ok(())
        },
    )
    .expect("intact");
    assert_eq!((found.records, found.next_txid, found.torn), (4, 14, false));
    // The second did not fit what was left.
    assert_eq!(offsets[..2], [superblock.journal.offset, 0]);
}
