//! Free ranges of 64-bit addresses: first fit, exact take, coalescing free.
//!
//! Serves the process-wide I/O address space and the space within each region. Ranges are kept with
//! their last address, not their end, so that nothing overflows at the top of the address space.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Every address: for a caller without a restriction of its own.
pub(super) const ANYWHERE: &[RangeInclusive<u64>] = &[0..=u64::MAX];

/// Disjoint free ranges, no two of them adjacent.
#[derive(Debug, Default)]
pub(super) struct RangeSet {
    /// First address to last address.
    ranges: BTreeMap<u64, u64>,
}

/// The last address of `len` addresses from `first`; `None` if there are none or they wrap around.
fn last_of(first: u64, len: u64) -> Option<u64> {
    first.checked_add(len.checked_sub(1)?)
}

impl RangeSet {
    /// Nothing is free.
    pub(super) const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }

    /// Adds `len` addresses from `first`. `false`, and nothing happens, if the range is empty, wraps
    /// around or is partly free already.
    #[must_use]
    pub(super) fn free(&mut self, first: u64, len: u64) -> bool {
        let Some(last) = last_of(first, len) else {
            return false;
        };
        let before = self
            .ranges
            .range(..=last)
            .next_back()
            .map(|(&f, &l)| (f, l));
        let mut merged = (first, last);
        if let Some((before_first, before_last)) = before {
            if before_last >= first {
                return false;
            }
            if before_last == first - 1 {
                merged.0 = before_first;
            }
        }
        let after = last
            .checked_add(1)
            .and_then(|next| self.ranges.remove(&next));
        if let Some(after_last) = after {
            merged.1 = after_last;
        }
        self.ranges.insert(merged.0, merged.1);
        true
    }

    /// Takes exactly `len` addresses from `first`. `false`, and nothing happens, if they are not all
    /// free.
    #[must_use]
    pub(super) fn take(&mut self, first: u64, len: u64) -> bool {
        let Some(last) = last_of(first, len) else {
            return false;
        };
        let Some((&free_first, &free_last)) = self.ranges.range(..=first).next_back() else {
            return false;
        };
        if free_last < last {
            return false;
        }
        if free_first < first {
            self.ranges.insert(free_first, first - 1);
        } else {
            self.ranges.remove(&free_first);
        }
        if last < free_last {
            self.ranges.insert(last + 1, free_last);
        }
        true
    }

    /// Takes the first `len` addresses that start at a multiple of `align` (a power of two) and lie
    /// within one of `within`.
    #[must_use]
    pub(super) fn alloc(
        &mut self,
        len: u64,
        align: u64,
        within: &[RangeInclusive<u64>],
    ) -> Option<u64> {
        let first = within
            .iter()
            .find_map(|window| self.first_fit(len, align, window))?;
        self.take(first, len).then_some(first)
    }

    /// Where [`RangeSet::alloc`] would place it within one window.
    fn first_fit(&self, len: u64, align: u64, window: &RangeInclusive<u64>) -> Option<u64> {
        if !align.is_power_of_two() || window.is_empty() {
            return None;
        }
        let (&low, &high) = (window.start(), window.end());
        let around = self.ranges.range(..low).next_back();
        around
            .into_iter()
            .chain(self.ranges.range(low..=high))
            .find_map(|(&first, &last)| {
                let start = first.max(low).checked_next_multiple_of(align)?;
                (last_of(start, len)? <= last.min(high)).then_some(start)
            })
    }
}

/// What lies in both lists.
pub(super) fn intersection(
    a: &[RangeInclusive<u64>],
    b: &[RangeInclusive<u64>],
) -> Vec<RangeInclusive<u64>> {
    let both = |x: &RangeInclusive<u64>, y: &RangeInclusive<u64>| {
        let range = *x.start().max(y.start())..=*x.end().min(y.end());
        (!range.is_empty()).then_some(range)
    };
    a.iter()
        .flat_map(|x| b.iter().filter_map(move |y| both(x, y)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The model is a small array of booleans; its addresses lie at the very top of the 64 bits, so
    /// that every overflow is met.
    const SIZE: u64 = 48;
    const BASE: u64 = u64::MAX - SIZE + 1;

    #[derive(Debug, Clone)]
    enum Step {
        Free(u64, u64),
        Take(u64, u64),
        Alloc {
            len: u64,
            align: u64,
            low: u64,
            high: u64,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..SIZE, 0..12_u64).prop_map(|(at, len)| Step::Free(at, len)),
            (0..SIZE, 0..12_u64).prop_map(|(at, len)| Step::Take(at, len)),
            (0..12_u64, 0..5_u32, 0..SIZE, 0..SIZE).prop_map(|(len, shift, low, high)| {
                Step::Alloc {
                    len,
                    align: 1 << shift,
                    low,
                    high,
                }
            }),
        ];
        proptest::collection::vec(step, 0..80)
    }

    /// Marks `len` places from `at` as `to` if all of them are the opposite now.
    fn flip(model: &mut [bool], at: u64, len: u64, to: bool) -> bool {
        let (at, len) = (usize::try_from(at).unwrap(), usize::try_from(len).unwrap());
        let possible =
            len > 0 && at + len <= model.len() && model[at..at + len].iter().all(|&x| x != to);
        if possible {
            model[at..at + len].fill(to);
        }
        possible
    }

    fn first_fit(model: &[bool], len: u64, align: u64, low: u64, high: u64) -> Option<u64> {
        (low..=high).find(|&at| {
            let end = at + len;
            (BASE + at).is_multiple_of(align)
                && len > 0
                && end - 1 <= high
                && (at..end).all(|place| model[usize::try_from(place).unwrap()])
        })
    }

    proptest! {
        /// Every step has the outcome that it has on an array of booleans, and no two ranges touch.
        #[test]
        fn behaves_as_an_array_of_booleans(steps in steps()) {
            let mut set = RangeSet::new();
            let mut model = [false; 48];
            for step in steps {
                match step {
                    Step::Free(at, len) => {
                        prop_assert_eq!(set.free(BASE + at, len), flip(&mut model, at, len, true));
                    }
                    Step::Take(at, len) => {
                        prop_assert_eq!(set.take(BASE + at, len), flip(&mut model, at, len, false));
                    }
                    Step::Alloc { len, align, low, high } => {
                        let expected = first_fit(&model, len, align, low, high);
                        let got = set.alloc(len, align, &[BASE + low..=BASE + high]);
                        prop_assert_eq!(got, expected.map(|at| BASE + at));
                        if let Some(at) = expected {
                            prop_assert!(flip(&mut model, at, len, false));
                        }
                    }
                }
                let mut runs = Vec::new();
                for (place, _) in (BASE..=u64::MAX).zip(model).filter(|(_, free)| *free) {
                    match runs.last_mut() {
                        Some((_, last)) if *last + 1 == place => *last = place,
                        _ => runs.push((place, place)),
                    }
                }
                prop_assert_eq!(set.ranges.iter().map(|(&f, &l)| (f, l)).collect::<Vec<_>>(), runs);
            }
        }
    }

    /// The whole address space can be freed and taken, and lengths that wrap around are refused.
    #[test]
    fn the_ends_of_the_address_space() {
        let mut set = RangeSet::new();
        assert!(set.free(0, u64::MAX));
        assert!(set.free(u64::MAX, 1));
        assert_eq!(set.alloc(u64::MAX, 1 << 63, ANYWHERE), Some(0));
        assert_eq!(set.alloc(2, 1, ANYWHERE), None);
        assert!(!set.take(u64::MAX, 2));
        assert!(!set.free(u64::MAX - 1, 3));
        assert!(set.take(u64::MAX, 1));
    }

    /// Ranges that overlap in part are cut, disjoint and touching ones are told apart.
    #[test]
    fn intersections() {
        assert_eq!(
            intersection(&[0..=9, 20..=29], &[5..=22, 29..=40]),
            [5..=9, 20..=22, 29..=29]
        );
        assert_eq!(intersection(&[0..=4], &[5..=9]), []);
    }
}
