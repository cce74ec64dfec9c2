//! Figures derived from an outcome: both formats show them.

use super::Report;
use crate::histogram::Latencies;
use crate::pattern::Direction;

/// Minimum, maximum, mean and standard deviation of some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    pub(super) stddev: f64,
    pub(super) samples: usize,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Self {
        let Some(first) = values.first() else {
            return Self::default();
        };
        #[expect(clippy::cast_precision_loss, reason = "a number of samples")]
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // Of a sample, not of the whole: as fio has it.
        let stddev = if count > 1.0 {
            (squares / (count - 1.0)).sqrt()
        } else {
            0.0
        };
        Self {
            min: values.iter().copied().fold(*first, f64::min),
            max: values.iter().copied().fold(*first, f64::max),
            mean,
            stddev,
            samples: values.len(),
        }
    }
}

/// The figures of one direction, all jobs together.
#[derive(Debug)]
pub(super) struct DirectionStats {
    pub(super) ios: u64,
    pub(super) bytes: u64,
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) latencies: Latencies,
    pub(super) iops_spread: Spread,
}

impl DirectionStats {
    pub(super) fn new(report: &Report<'_>, direction: Direction) -> Self {
        let outcome = report.outcome;
        let (ios, iops) = (outcome.ios(direction), outcome.iops(direction));
        let of_direction = |sample: &[f64; 3]| sample[direction.index()];
        let mut samples: Vec<f64> = outcome.samples.iter().map(of_direction).collect();
        if samples.is_empty() && ios > 0 {
            // Too short a run for a sample: the whole is one.
            samples.push(iops);
        }
        Self {
            ios,
            bytes: ios.saturating_mul(report.plan.block_bytes.into()),
            iops,
            bytes_per_second: iops * f64::from(report.plan.block_bytes),
            latencies: outcome.latencies(&outcome.jobs, &[direction]),
            iops_spread: Spread::of(&samples),
        }
    }
}

/// Shares in percent of counts whose index is a size, by fio's bounds: the share of all that lies at or
/// below each bound and above the one before, and at last the share above all bounds.
pub(super) fn shares<const N: usize>(counts: &[u64], bounds: [usize; N]) -> (f64, [f64; N]) {
    let mut sums = [0_u64; N];
    let mut above = 0_u64;
    for (size, count) in counts.iter().enumerate() {
        match bounds.iter().position(|bound| size <= *bound) {
            Some(place) => sums[place] += count,
            None => above += count,
        }
    }
    let all = sums.iter().sum::<u64>() + above;
    #[expect(clippy::cast_precision_loss, reason = "a share in percent")]
    let share = |count: u64| 100.0 * count as f64 / all.max(1) as f64;
    (share(above), sums.map(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and deviation are those of the samples; none give zeros.
    #[test]
    fn the_spread_of_samples() {
        let spread = Spread::of(&[2.0, 4.0, 6.0]);
        let expected = Spread {
            min: 2.0,
            max: 6.0,
            mean: 4.0,
            stddev: 2.0,
            samples: 3,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(&[]), Spread::default());
        assert!(Spread::of(&[1.0]).stddev == 0.0);
    }

    /// Shares add up to the whole, and sizes beyond the last bound are counted apart.
    #[test]
    fn shares_are_of_the_whole() {
        let counts = [0, 10, 0, 30, 0, 60];
        let (above, shares) = shares(&counts, [0, 2, 4]);
        assert_eq!((above, shares), (60.0, [0.0, 10.0, 30.0]));
        assert_eq!(super::shares(&[0, 0], [0]), (0.0, [0.0]));
    }
}
