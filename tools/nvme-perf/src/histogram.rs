//! Latencies: recorded with one increment in the loop, evaluated by hdrhistogram afterwards.

use super::ticks::TickLength;
use hdrhistogram::Histogram;
use std::sync::LazyLock;

/// Buckets of a power of two, as a shift: a value is off by less than 1/128.
const SUB_SHIFT: u32 = 7;
const SUB: u64 = 1 << SUB_SHIFT;
/// Values of this many bits are told apart; longer ones fall in the last bucket. At 4 GHz 2^43 ticks
/// are over half an hour.
const VALUE_BITS: u32 = 43;
const BUCKETS: usize = ((VALUE_BITS - SUB_SHIFT + 1) as usize) << SUB_SHIFT;

/// A log-linear histogram of ticks.
#[derive(Clone, Debug)]
pub struct TickHistogram {
    counts: Box<[u64; BUCKETS]>,
    min: u64,
    max: u64,
    sum: u64,
}

impl Default for TickHistogram {
    fn default() -> Self {
        // Made on the heap at once: it is too long for a small stack.
        let counts: Box<[u64]> = vec![0; BUCKETS].into();
        Self {
            counts: counts.try_into().unwrap_or_else(|_| Box::new([0; BUCKETS])),
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }
}

/// The bucket of a value: its exponent above the sub-bucket's bits, and the bits below its first.
/// Values below `SUB` have buckets of their own.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "clamped below the number of buckets"
)]
fn bucket(value: u64) -> usize {
    let value = value.min((1 << VALUE_BITS) - 1);
    let shift = (63 - (value | SUB).leading_zeros()) - SUB_SHIFT;
    ((u64::from(shift) << SUB_SHIFT) + (value >> shift)) as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    // Inverse of the above: from the second power of two on `value >> shift` is SUB..2*SUB.
    let shift = (bucket >> SUB_SHIFT).saturating_sub(1);
    let low = (bucket - (shift << SUB_SHIFT)) << shift;
    low + ((1 << shift) >> 1)
}

impl TickHistogram {
    /// Counts one value.
    #[inline(always)]
    pub fn record(&mut self, ticks: u64) {
        let bucket = bucket(ticks);
        debug_assert!(bucket < BUCKETS);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.min = self.min.min(ticks);
        self.max = self.max.max(ticks);
        self.sum = self.sum.wrapping_add(ticks);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.min, self.max, self.sum) = (u64::MAX, 0, 0);
    }
}

/// Latencies in nanoseconds, of one direction of one or several jobs.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Exact, where the histogram rounds.
    min: f64,
    max: f64,
    sum: f64,
}

/// Significant digits of the histogram that is evaluated.
const DIGITS: u8 = 3;
/// The longest latency told apart, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// An empty histogram, to make others like it.
#[expect(
    clippy::expect_used,
    reason = "the bounds are constants, and a test makes one"
)]
static SHAPE: LazyLock<Histogram<u64>> = LazyLock::new(|| {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds that hdrhistogram takes")
});

impl Latencies {
    fn empty() -> Self {
        Self {
            histogram: Histogram::new_from(&*SHAPE),
            min: f64::MAX,
            max: 0.0,
            sum: 0.0,
        }
    }

    /// Evaluates what several jobs recorded.
    #[must_use]
    pub fn collect<'a>(
        parts: impl IntoIterator<Item = &'a TickHistogram>,
        length: TickLength,
    ) -> Self {
        let mut all = Self::empty();
        for part in parts {
            for (bucket, &count) in part
                .counts
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
            {
                // The outermost buckets reach beyond what was seen.
                let ticks = middle(bucket).clamp(part.min, part.max);
                all.histogram
                    .saturating_record_n(round(length.nanoseconds(ticks)), count);
            }
            if part.min <= part.max {
                all.min = all.min.min(length.nanoseconds(part.min));
                all.max = all.max.max(length.nanoseconds(part.max));
                all.sum += length.nanoseconds(part.sum);
            }
        }
        all
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The least, in nanoseconds; 0 without any.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 {
            0
        } else {
            round(self.min)
        }
    }

    /// The greatest, in nanoseconds; 0 without any.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        round(self.max)
    }

    /// The mean in nanoseconds; 0 without any.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a mean of measured values")]
        let count = self.count().max(1) as f64;
        self.sum / count
    }

    /// The standard deviation in nanoseconds.
    #[must_use]
    pub fn stddev_ns(&self) -> f64 {
        if self.count() == 0 {
            0.0
        } else {
            self.histogram.stdev()
        }
    }

    /// The latency that `percent` of all did not exceed, in nanoseconds.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let value = self.histogram.value_at_percentile(percent);
        value.clamp(self.min_ns(), self.max_ns())
    }

    /// How many took more than `above_ns` and at most `to_ns`.
    #[must_use]
    pub fn count_between(&self, above_ns: u64, to_ns: u64) -> u64 {
        if to_ns <= above_ns {
            return 0;
        }
        self.histogram.count_between(above_ns + 1, to_ns)
    }

    /// The distribution: upper ends of buckets that double, in nanoseconds, and counts.
    pub fn doubling(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.min_ns().next_power_of_two().max(1);
        std::iter::successors(Some(first), |end| end.checked_mul(2))
            .scan(0, |from, end| {
                let range = (*from, end);
                *from = end;
                Some(range)
            })
            .take_while(|(from, _)| *from < self.max_ns() || *from == 0)
            .map(|(from, end)| (end, self.count_between(from, end)))
    }
}

/// To a whole number of nanoseconds.
fn round(nanoseconds: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate, and a negative latency there is none"
    )]
    let whole = nanoseconds.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Buckets are contiguous, and each value lies within 1/128 of its bucket's middle.
    #[test]
    fn buckets_are_narrow() {
        assert_eq!(bucket((1 << VALUE_BITS) - 1), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let mut last = 0;
        for shift in 0..VALUE_BITS {
            for step in 0..256 {
                let value = (1_u64 << shift) + ((step << shift) >> 8);
                let index = bucket(value);
                assert!(index == last || index == last + 1 || shift < 8, "{value}");
                last = index;
                let error = middle(index).abs_diff(value);
                assert!(error * 128 <= value, "{value}: {}", middle(index));
            }
        }
    }

    fn recorded(values: &[u64]) -> Latencies {
        let mut histogram = TickHistogram::default();
        for &value in values {
            histogram.record(value);
        }
        Latencies::collect([&histogram], TickLength::nanosecond())
    }

    /// Without a value everything is zero.
    #[test]
    fn nothing_recorded_is_zero() {
        let none = recorded(&[]);
        let counts = (
            none.count(),
            none.min_ns(),
            none.max_ns(),
            none.percentile_ns(99.0),
        );
        assert_eq!(counts, (0, 0, 0, 0));
        assert!(none.mean_ns() == 0.0 && none.stddev_ns() == 0.0);
    }

    /// Jobs add up, and clearing forgets.
    #[test]
    fn jobs_add_up() {
        let (mut one, mut two) = (TickHistogram::default(), TickHistogram::default());
        one.record(1);
        one.clear();
        one.record(100);
        two.record(300);
        let both = Latencies::collect([&one, &two], TickLength::nanosecond());
        assert_eq!((both.count(), both.min_ns(), both.max_ns()), (2, 100, 300));
        assert!((both.mean_ns() - 200.0).abs() < 1e-9);
    }

    proptest! {
        /// Percentiles, mean and deviation are those of the sorted values, within the buckets' width.
        #[test]
        fn figures_match_sorted_values(
            mut values in prop::collection::vec(1_u64..1 << 36, 1..400),
            permille in 1_usize..1000,
        ) {
            let all = recorded(&values);
            values.sort_unstable();
            let rank = (permille * values.len()).div_ceil(1000);
            let exact = values[rank - 1];
            let found = all.percentile_ns(permille as f64 / 10.0);
            prop_assert!(found.abs_diff(exact) * 64 <= exact + 64, "{found} for {exact}");
            prop_assert_eq!(all.min_ns(), values[0]);
            prop_assert_eq!(all.max_ns(), *values.last().unwrap());
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
            prop_assert!((all.mean_ns() - mean).abs() <= mean * 1e-6 + 1.0);
            prop_assert_eq!(all.doubling().map(|(_, count)| count).sum::<u64>(), all.count());
        }
    }
}
