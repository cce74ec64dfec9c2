//! The look-up of a read's block: as few instructions as can be, and no branch to mispredict.

use super::{CHUNK, ExtentMap, Form, UNWRITTEN};

/// Where the last of `keys`, which are in order, is that is not greater than `key`; 0 if all are. No
/// branch can be mispredicted, and no bound is checked.
#[inline(always)]
fn last_not_greater(keys: &[u32], key: u32) -> usize {
    let not_greater = keys.partition_point(|&other| other <= key);
    not_greater.saturating_sub(1)
}

/// The same of a chunk: half the instructions if it is at least half full.
#[inline(always)]
fn last_in_chunk(keys: &[u32], key: u32) -> usize {
    const HALF: usize = CHUNK / 2;
    // The last half if it starts at or before `key`, or else the first, which reaches up to it.
    let last = keys.len().wrapping_sub(HALF);
    let upper = keys.get(last).is_some_and(|&first| first <= key);
    let from = std::hint::select_unpredictable(upper, last, 0);
    let Some(half) = keys.get(from..).and_then(|rest| rest.first_chunk::<HALF>()) else {
        return last_not_greater(keys, key);
    };
    let mut at = 0;
    let mut bit = HALF / 2;
    while bit > 0 {
        let there = half[(at | bit) % HALF] <= key;
        at = std::hint::select_unpredictable(there, at | bit, at);
        bit /= 2;
    }
    from + at
}

const _: () = assert!(CHUNK.is_power_of_two());

/// An extent in two words, which a call returns in registers.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tree) struct Packed {
    lblk_len: u64,
    pblk: u64,
}

impl Packed {
    /// Its first block in the file, and its blocks; 0 blocks if there is none.
    #[inline]
    pub(in crate::tree) const fn range(self) -> (u64, u64) {
        (self.lblk_len & 0xffff_ffff, self.lblk_len >> 32)
    }

    /// Its first block on the volume.
    #[inline]
    pub(in crate::tree) const fn pblk(self) -> u64 {
        self.pblk
    }
}

impl ExtentMap {
    /// The written extent that has block `lblk`, if any has: one that starts behind it or ends before
    /// it is none.
    #[inline(never)]
    pub(in crate::tree) fn find(&self, lblk: u32) -> Packed {
        let (keys, places, at) = match &self.form {
            Form::Inline { keys, places, len } => {
                let used = keys.get(..*len).unwrap_or(&[]);
                (&keys[..], &places[..], last_not_greater(used, lblk))
            }
            Form::Chunked { firsts, chunks } => match chunks.get(last_not_greater(firsts, lblk)) {
                Some(chunk) => {
                    let at = last_in_chunk(&chunk.keys, lblk);
                    (&chunk.keys[..], &chunk.places[..], at)
                }
                None => return Packed::default(),
            },
        };
        match (keys.get(at), places.get(at)) {
            (Some(&key), Some(place)) if place.len_unwritten & UNWRITTEN == 0 => Packed {
                lblk_len: u64::from(key) | u64::from(place.len_unwritten) << 32,
                pblk: u64::from(place.low) | u64::from(place.high) << 32,
            },
            _ => Packed::default(),
        }
    }
}
