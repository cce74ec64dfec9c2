//! Where the structures of an image lie, and their checksums: docs/on-disk-format.md once more, so that
//! what is tested does not say itself what is right.

use std::ops::Range;

/// A structure with a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A superblock.
    Superblock,
    /// A record of the journal.
    Record,
    /// A page of a checkpoint, the trailer too.
    Page,
}

/// A structure of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// What it is.
    pub what: What,
    /// Its bytes.
    pub bytes: Range<usize>,
}

/// The structures of an image.
#[derive(Clone, Debug)]
pub struct Layout {
    /// All of them: superblocks, then records in their order, then pages by slot.
    pub spots: Vec<Spot>,
    /// For each slot where its pages start, and the superblocks that name what it holds now.
    slots: Vec<(Vec<usize>, Vec<usize>)>,
}

const BLOCK: usize = 4096;
const SUPERBLOCK: usize = 512;
const SUPERBLOCK_CRC: usize = 0x1fc;
const RECORD_CRC: usize = 0x3c;
const PAGE_CRC: usize = 0x1c;
const CRC_OF_CRCS: usize = 0x48;
const ACTIVE_SLOT: usize = 0x98;
const ROOT_CRC: usize = 0x9c;

fn word(image: &[u8], at: usize) -> Option<u64> {
    let bytes = image.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn half(image: &[u8], at: usize) -> Option<u32> {
    let bytes = image.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn number(image: &[u8], at: usize) -> Option<usize> {
    usize::try_from(word(image, at)?).ok()
}

fn set_half(image: &mut [u8], at: usize, value: u32) {
    if let Some(place) = image.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// CRC32C over two ranges of the image, one after the other; what is not there is left out.
fn crc(image: &[u8], first: Range<usize>, second: Range<usize>) -> u32 {
    let part = |range| image.get(range).unwrap_or_default();
    crc32c::crc32c_append(crc32c::crc32c(part(first)), part(second))
}

impl Layout {
    /// Finds the structures of a valid image.
    #[must_use]
    pub fn of(image: &[u8], lba: usize) -> Option<Self> {
        let mut spots = Vec::new();
        let last = image.len() / BLOCK - 1;
        for block in [0, 256, last] {
            let at = block * BLOCK;
            if image.get(at..at + 8) == Some(b"DBELLBFS") {
                spots.push(Spot {
                    what: What::Superblock,
                    bytes: at..at + SUPERBLOCK,
                });
            }
        }
        let first = spots.first()?.bytes.start;
        let ring = number(image, first + 0x60)? * BLOCK;
        let ring = ring..ring + number(image, first + 0x68)? * BLOCK;
        let mut records = Vec::new();
        for at in ring.step_by(lba) {
            let is_one = image.get(at..at + 4) == Some(b"DBJR")
                && number(image, at + 0x18) == Some(at / lba);
            if is_one {
                let bytes = 64 + half(image, at + 0x20)? as usize + 4;
                records.push((
                    word(image, at + 0x10)?,
                    at..at + bytes.next_multiple_of(lba),
                ));
            }
        }
        records.sort_unstable_by_key(|(txid, _)| *txid);
        let records = records.into_iter().map(|(_, bytes)| Spot {
            what: What::Record,
            bytes,
        });
        spots.extend(records);
        let supers = spots.iter().filter(|spot| spot.what == What::Superblock);
        let supers: Vec<usize> = supers.map(|spot| spot.bytes.start).collect();
        let mut slots = Vec::new();
        for (nth, field) in [(0, 0x70), (1, 0x78)] {
            let slot = number(image, first + field)? * BLOCK;
            let end = slot + number(image, first + 0x80)? * BLOCK;
            let is_page = |at: &usize| matches!(image.get(*at..at + 4), Some(b"DBCP" | b"DBCT"));
            let pages: Vec<usize> = (slot..end).step_by(BLOCK).filter(is_page).collect();
            spots.extend(pages.iter().map(|&at| Spot {
                what: What::Page,
                bytes: at..at + BLOCK,
            }));
            // An older superblock may name what was there before.
            let root = seal_slot(&mut image.to_vec(), &pages);
            let names = |at: &usize| {
                half(image, at + ACTIVE_SLOT) == Some(nth) && half(image, at + ROOT_CRC) == root
            };
            slots.push((pages, supers.iter().copied().filter(names).collect()));
        }
        Some(Self { spots, slots })
    }

    /// Makes every checksum right again.
    pub fn reseal(&self, image: &mut [u8]) {
        let mut before = None;
        for spot in self.spots.iter().filter(|spot| spot.what == What::Record) {
            before = Some(seal_record(image, &spot.bytes, before));
        }
        for (pages, supers) in &self.slots {
            if let Some(root) = seal_slot(image, pages) {
                for at in supers {
                    set_half(image, at + ROOT_CRC, root);
                }
            }
        }
        for spot in self.spots.iter().filter(|s| s.what == What::Superblock) {
            let at = spot.bytes.start;
            let sum = crc(image, at..at + SUPERBLOCK_CRC, 0..0);
            set_half(image, at + SUPERBLOCK_CRC, sum);
        }
    }
}

/// The checksums of a slot's pages; the root's. The first trailer is its last page.
fn seal_slot(image: &mut [u8], pages: &[usize]) -> Option<u32> {
    let mut sums = Vec::new();
    for &at in pages {
        let trailer = image.get(at..at + 4) == Some(b"DBCT");
        if trailer {
            set_half(image, at + CRC_OF_CRCS, crc32c::crc32c(&sums));
        }
        let sum = crc(image, at..at + PAGE_CRC, at + PAGE_CRC + 4..at + BLOCK);
        set_half(image, at + PAGE_CRC, sum);
        sums.extend_from_slice(&sum.to_le_bytes());
        if trailer {
            return Some(crc32c::crc32c(&sums));
        }
    }
    None
}

/// The checksums of a record that follows one with the checksum `before`; its own.
fn seal_record(image: &mut [u8], bytes: &Range<usize>, before: Option<u32>) -> u32 {
    let (at, end) = (bytes.start, bytes.end - 4);
    if let Some(before) = before {
        set_half(image, at + 0x28, before);
    }
    let sum = crc(image, at..at + RECORD_CRC, 0..0);
    set_half(image, at + RECORD_CRC, sum);
    let sum = crc(image, at..at + RECORD_CRC, at + 64..end);
    set_half(image, end, sum);
    sum
}
