//! A histogram with a bounded relative error and a fixed size.

use std::fmt;

/// Buckets for each doubling of the value: a bucket is at most a sixteenth of its values wide.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// The values below `SUB` have a bucket each, and so has each sixteenth of every doubling above.
const BUCKETS: usize = (u64::BITS - SUB_BITS + 1) as usize * SUB;

/// A log-linear histogram of 64-bit values, nanoseconds here.
///
/// A value is known to within 1/16 (6.25 %); recording is a handful of instructions.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: u64,
    max: u64,
    buckets: [u64; BUCKETS],
}

/// The bucket of a value.
#[inline]
const fn bucket(value: u64) -> usize {
    // The last SUB_BITS + 1 significant bits, and how far they were shifted.
    let shift = (u64::BITS - SUB_BITS - 1).saturating_sub(value.leading_zeros());
    #[expect(clippy::cast_possible_truncation, reason = "it has SUB_BITS + 1 bits")]
    let top = (value >> shift) as usize;
    (shift as usize) * SUB + top
}

/// The largest value of a bucket.
const fn bucket_end(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let shift = index / SUB - 1;
    let top = (index % SUB + SUB) as u64;
    (top << shift) + ((1 << shift) - 1)
}

impl Histogram {
    /// One without any value.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            count: 0,
            sum: 0,
            max: 0,
            buckets: [0; BUCKETS],
        }
    }

    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
        // Every value has a bucket; `get_mut` spares a branch that could panic.
        if let Some(bucket) = self.buckets.get_mut(bucket(value)) {
            *bucket = bucket.saturating_add(1);
        }
    }

    /// Adds all of another's values.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// How many values it has.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The largest value, exactly; 0 if there is none.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The mean, rounded down.
    #[must_use]
    pub const fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// A value that at least `part` of `of` values do not exceed: `quantile(999, 1000)` is the
    /// 99.9th percentile, `quantile(1, 2)` the median. It is never below the exact one and at most
    /// 1/16 above it. `None` without values, or if `of` is 0.
    #[must_use]
    pub fn quantile(&self, part: u64, of: u64) -> Option<u64> {
        if self.count == 0 || of == 0 {
            return None;
        }
        let rank = (u128::from(self.count) * u128::from(part)).div_ceil(u128::from(of));
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += u128::from(*bucket);
            if *bucket > 0 && seen >= rank {
                return Some(bucket_end(index).min(self.max));
            }
        }
        Some(self.max)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("p99", &self.quantile(99, 100))
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Buckets are numbered without gaps from 0 to u64::MAX, and none is wider than 1/16 of its
    /// values.
    #[test]
    fn buckets_cover_everything() {
        let mut start = 0_u64;
        for index in 0..BUCKETS {
            let end = bucket_end(index);
            assert_eq!((bucket(start), bucket(end)), (index, index));
            assert!(
                end - start <= start / 16,
                "bucket {index}: {start} to {end}"
            );
            start = end.wrapping_add(1);
        }
        assert_eq!(start, 0, "the last bucket ends with the largest value");
    }

    /// Nothing comes of nothing.
    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        let empty = Histogram::new();
        assert_eq!(
            (empty.quantile(1, 2), empty.mean(), empty.max()),
            (None, None, 0)
        );
        let mut one = Histogram::new();
        one.record(5);
        assert_eq!(one.quantile(1, 0), None);
    }

    proptest! {
        /// Quantiles against the sorted values themselves: not below, and at most 1/16 above; and
        /// two halves merged are the whole.
        #[test]
        fn quantiles_are_close(
            values in proptest::collection::vec((any::<u64>(), 0..64_u32), 1..200),
            part in 0..=1000_u64,
        ) {
            let mut values: Vec<u64> = values.iter().map(|(value, shift)| value >> shift).collect();
            let mut whole = Histogram::new();
            let mut halves = [Histogram::new(), Histogram::new()];
            for (index, value) in values.iter().enumerate() {
                whole.record(*value);
                halves[index % 2].record(*value);
            }
            let [mut first, second] = halves;
            first.merge(&second);
            prop_assert_eq!(&first, &whole);

            values.sort_unstable();
            let rank = (values.len() * usize::try_from(part).unwrap()).div_ceil(1000).max(1);
            let exact = values[rank - 1];
            let got = whole.quantile(part, 1000).unwrap();
            prop_assert!(got >= exact && got - exact <= exact / 16, "{} for {}", got, exact);
            prop_assert_eq!(whole.max(), values[values.len() - 1]);
        }
    }
}
