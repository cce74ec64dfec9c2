//! Changes of an image, as a stream of bytes says.

use super::{Image, Spot, What};

/// Bytes that decide; zeros when they are used up.
#[derive(Debug)]
pub struct Stream<'a> {
    rest: &'a [u8],
}

impl<'a> Stream<'a> {
    /// All of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether there are more.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        number % end.max(1)
    }

    /// Eight of them.
    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// Changes at most.
const CHANGES: usize = 12;

/// A changed image.
#[must_use]
pub fn mutate(image: &Image, stream: &mut Stream<'_>) -> Vec<u8> {
    let mut bytes = image.bytes.clone();
    // Three of four: what is behind the checksums is more than they are.
    let reseal = !stream.byte().is_multiple_of(4);
    for _ in 0..CHANGES {
        if stream.is_empty() {
            break;
        }
        change(image, &mut bytes, stream);
    }
    if reseal {
        image.layout.reseal(&mut bytes);
    }
    bytes
}

fn change(image: &Image, bytes: &mut [u8], stream: &mut Stream<'_>) {
    let spots = &image.layout.spots;
    let Some(spot) = spots.get(stream.below(spots.len())) else {
        return;
    };
    match stream.byte() % 16 {
        // A field or an operation: most of what there is.
        0..9 => field(bytes, spot, stream),
        9 | 10 => {
            let at = spot.bytes.start + stream.below(spot.bytes.len());
            let byte = stream.byte();
            if let Some(place) = bytes.get_mut(at) {
                *place ^= byte;
            }
        }
        // Eight-byte words of operations copied to another place: repeated, in another order.
        11 | 12 => {
            let other = spots.get(stream.below(spots.len())).unwrap_or(spot);
            let from = other.bytes.start + stream.below(other.bytes.len()) / 8 * 8;
            let to = spot.bytes.start + stream.below(spot.bytes.len()) / 8 * 8;
            let len = (1 + usize::from(stream.byte() % 16)) * 8;
            copy(bytes, from, to, len.min(spot.bytes.end - to));
        }
        // A logical block lost, or another's.
        13 => {
            let (at, len) = block(image, spot, stream);
            bytes.get_mut(at..at + len).unwrap_or_default().fill(0);
        }
        14 => {
            let other = spots.get(stream.below(spots.len())).unwrap_or(spot);
            let (from, len) = block(image, other, stream);
            let (to, _) = block(image, spot, stream);
            copy(bytes, from, to, len);
        }
        // Any bytes anywhere.
        _ => {
            let at = stream.below(bytes.len() / 16) * 16;
            for place in bytes.iter_mut().skip(at).take(usize::from(stream.byte())) {
                *place = stream.byte();
            }
        }
    }
}

/// A logical block of a structure: its start and its length.
fn block(image: &Image, spot: &Spot, stream: &mut Stream<'_>) -> (usize, usize) {
    let lba = image.lba as usize;
    let blocks = spot.bytes.len().div_ceil(lba);
    (
        spot.bytes.start / lba * lba + stream.below(blocks) * lba,
        lba,
    )
}

fn copy(bytes: &mut [u8], from: usize, to: usize, len: usize) {
    if from + len <= bytes.len() && to + len <= bytes.len() {
        bytes.copy_within(from..from + len, to);
    }
}

/// Sets a field of one to eight bytes to what is near to what it was, at an end of what it can be, or
/// anything.
fn field(bytes: &mut [u8], spot: &Spot, stream: &mut Stream<'_>) {
    let width = 1usize << (stream.byte() % 4);
    // Records and pages are mostly zeros behind their operations: look where there is something.
    let used = match spot.what {
        What::Superblock => spot.bytes.len(),
        What::Record | What::Page => {
            let part = bytes.get(spot.bytes.clone()).unwrap_or_default();
            let last = part.iter().rev().skip(4).position(|&byte| byte != 0);
            (spot.bytes.len() - last.unwrap_or(0)).max(64)
        }
    };
    let at = spot.bytes.start + stream.below(used) / width * width;
    let Some(place) = bytes.get_mut(at..at + width) else {
        return;
    };
    let mut word = [0; 8];
    word[..width].copy_from_slice(place);
    let old = u64::from_le_bytes(word);
    let new = match stream.byte() % 12 {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << (stream.byte() % 64),
        5 => u64::from(stream.byte()),
        6 => 1 << (stream.byte() % 64),
        7 => (1u64 << (stream.byte() % 64)).wrapping_sub(1),
        8 => old << 1,
        9 => old.wrapping_add(u64::from(stream.byte())),
        10 => u64::MAX - u64::from(stream.byte()),
        _ => stream.word(),
    };
    place.copy_from_slice(&new.to_le_bytes()[..width]);
}
