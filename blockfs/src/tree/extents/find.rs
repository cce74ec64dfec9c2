//! The look-up of a read's block: as few instructions as can be, and no branch to mispredict.

use super::{CHUNK, ExtentMap, Form, Place, UNWRITTEN};

/// Where the last of `keys`, which are in order, is that is below `above`; 0 if none is. No branch can
/// be mispredicted, and no bound is checked.
#[inline(always)]
fn last_below(keys: &[u32], above: u32) -> usize {
    keys.partition_point(|&key| key < above).saturating_sub(1)
}

/// Keys of half a chunk.
const HALF: usize = CHUNK / 2;

/// First keys that are searched without a loop.
pub(in crate::tree) const TOPS: usize = 8;

/// The half of sorted keys that has the last one below `above`, and half of that, down to one. All lengths
/// are known, so three instructions a step, no branch, and no bound is checked. ("Below" takes the
/// processor one flag to decide, "not above" two and another cycle.)
macro_rules! halved {
    ($keys:expr, $above:expr, $len:tt, 1) => {{
        let [low, high]: &[u32; $len] = $keys;
        std::hint::select_unpredictable(*high < $above, high, low)
    }};
    ($keys:expr, $above:expr, $len:tt, $half:tt $(, $less:tt)+) => {{
        let keys: &[u32; $len] = $keys;
        // Both are there.
        let low = keys.first_chunk::<$half>().unwrap_or(&[0; $half]);
        let high = keys.last_chunk::<$half>().unwrap_or(&[0; $half]);
        let keys = std::hint::select_unpredictable(high[0] < $above, high, low);
        halved!(keys, $above, $half $(, $less)+)
    }};
}

/// Where the last key below `above` is in a chunk: half the instructions if it is at least half full.
#[inline(always)]
fn last_in_chunk(keys: &[u32], above: u32) -> (usize, u32) {
    // The last half if it starts below, or else the first, which reaches up to it.
    let (Some(first), Some(last)) = (keys.first_chunk::<HALF>(), keys.last_chunk::<HALF>()) else {
        let at = last_below(keys, above);
        // A chunk is not empty.
        return (at, keys.get(at).copied().unwrap_or(0));
    };
    let half = std::hint::select_unpredictable(last[0] < above, last, first);
    let found = halved!(half, above, 256, 128, 64, 32, 16, 8, 4, 2, 1);
    // Where it is, from where both are; so no step has to count.
    let offset = std::ptr::from_ref(found).addr() - keys.as_ptr().addr();
    (offset / size_of::<u32>(), *found)
}

const _: () = assert!(CHUNK == 512, "the steps of `last_in_chunk`");

/// An extent in two words, which a call returns in registers.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tree) struct Packed {
    lblk_len: u64,
    pblk: u64,
}

impl Packed {
    #[inline(always)]
    fn of(key: u32, place: Option<&Place>) -> Self {
        match place {
            Some(place) if place.len_unwritten & UNWRITTEN == 0 => Self {
                lblk_len: u64::from(key) | u64::from(place.len_unwritten) << 32,
                pblk: u64::from(place.low) | u64::from(place.high) << 32,
            },
            _ => Self::default(),
        }
    }

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
    /// The first keys of the chunks, if there are few; behind them, and otherwise, `u32::MAX`.
    pub(in crate::tree) fn tops(&self) -> [u32; TOPS] {
        let mut tops = [u32::MAX; TOPS];
        if let Form::Chunked { firsts, .. } = &self.form
            && let Some(some) = tops.get_mut(..firsts.len())
        {
            some.copy_from_slice(firsts);
        }
        tops
    }

    /// The last written extent that starts below `above`, or anything if there is none: where it ends is
    /// the caller's to look at. `tops` are the map's [`ExtentMap::tops`].
    #[inline(never)]
    pub(in crate::tree) fn find(&self, tops: &[u32; TOPS], above: u32) -> Packed {
        match &self.form {
            Form::Chunked { firsts, chunks } => {
                let chunk = if tops[0] < above {
                    let top = halved!(tops, above, 8, 4, 2, 1);
                    let offset = std::ptr::from_ref(top).addr() - tops.as_ptr().addr();
                    offset / size_of::<u32>()
                } else {
                    last_below(firsts, above)
                };
                match chunks.get(chunk) {
                    Some(chunk) => {
                        let (at, key) = last_in_chunk(&chunk.keys, above);
                        Packed::of(key, chunk.places.get(at))
                    }
                    None => Packed::default(),
                }
            }
            Form::Inline { keys, places, len } => {
                let used = keys.get(..*len).unwrap_or(&[]);
                let at = last_below(used, above);
                match used.get(at) {
                    Some(&key) => Packed::of(key, places.get(at)),
                    None => Packed::default(),
                }
            }
        }
    }
}
