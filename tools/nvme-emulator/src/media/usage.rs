//! Which parts of the media have been written, in coarse chunks.

use super::Store;
use crate::raw::seek_data;

/// A bit for each chunk of the media, and their number.
#[derive(Debug)]
pub(super) struct Usage {
    /// Empty: everything counts as used.
    bits: Vec<u64>,
    used: u64,
    len: u64,
}

/// Bytes of a chunk: 64 KiB, so that a terabyte takes two megabytes of bits.
const CHUNK_SHIFT: u32 = 16;

impl Usage {
    /// What `store` holds already: nothing in memory, the data of a sparse file, all of a null
    /// store.
    pub(super) fn of(store: &Store) -> Self {
        let len = store.len();
        let words = (len >> CHUNK_SHIFT).div_ceil(64) + 1;
        let bits = match (store, usize::try_from(words)) {
            (Store::Null { .. }, _) | (_, Err(_)) => Vec::new(),
            (_, Ok(words)) => vec![0; words],
        };
        let mut usage = Self { bits, used: 0, len };
        if let Store::File(file) = store {
            let mut at = 0;
            while let Some(data) = seek_data(&file.file, at, false) {
                let hole = seek_data(&file.file, data, true).unwrap_or(len).min(len);
                if hole <= data {
                    break;
                }
                usage.set(data, hole - data);
                at = hole;
            }
        }
        usage
    }

    /// Bytes in use, whole chunks counted.
    pub(super) fn bytes(&self) -> u64 {
        if self.bits.is_empty() {
            self.len
        } else {
            (self.used << CHUNK_SHIFT).min(self.len)
        }
    }

    /// Whether the bytes lie in chunks that were never written.
    #[inline]
    pub(super) fn is_unused(&self, offset: u64, len: u64) -> bool {
        let last = offset.saturating_add(len.saturating_sub(1)) >> CHUNK_SHIFT;
        (offset >> CHUNK_SHIFT..=last).all(|chunk| {
            let index = usize::try_from(chunk / 64).unwrap_or(usize::MAX);
            self.bits
                .get(index)
                .is_some_and(|word| word >> (chunk % 64) & 1 == 0)
        })
    }

    /// Marks the chunks that the bytes touch.
    #[inline]
    pub(super) fn set(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = offset.saturating_add(len - 1) >> CHUNK_SHIFT;
        for chunk in offset >> CHUNK_SHIFT..=last {
            let Some((word, bit)) = self.bit(chunk) else {
                return;
            };
            if *word & bit == 0 {
                *word |= bit;
                self.used += 1;
            }
        }
    }

    /// Clears the chunks that the bytes fill.
    pub(super) fn clear(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let last = if end >= self.len {
            end.div_ceil(1 << CHUNK_SHIFT)
        } else {
            end >> CHUNK_SHIFT
        };
        for chunk in offset.div_ceil(1 << CHUNK_SHIFT)..last {
            let Some((word, bit)) = self.bit(chunk) else {
                return;
            };
            if *word & bit != 0 {
                *word &= !bit;
                self.used -= 1;
            }
        }
    }

    #[inline]
    fn bit(&mut self, chunk: u64) -> Option<(&mut u64, u64)> {
        let word = self.bits.get_mut(usize::try_from(chunk / 64).ok()?)?;
        Some((word, 1 << (chunk % 64)))
    }
}
