//! Which blocks a job touches, and how: decided per command, without a division or a lock.

use driver::namespace::Lba;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It deallocates.
    Trim,
}

impl Direction {
    /// All of them, by index.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// Its place in [`Direction::ALL`].
    #[inline(always)]
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Trim => 2,
        }
    }

    /// Its name, as fio has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }
}

/// The part of a namespace that a job works on, cut into places of one transfer each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first block.
    pub first: Lba,
    /// Places.
    pub places: u64,
    /// Blocks of one transfer.
    pub blocks: u32,
}

impl Range {
    #[inline(always)]
    fn lba(&self, place: u64) -> Lba {
        Lba(self.first.0 + place * u64::from(self.blocks))
    }
}

/// Chooses the place of the next command.
pub trait Places {
    /// The first block of the next command.
    fn next_lba(&mut self) -> Lba;
}

/// One place after the other, from the start again after the last.
#[derive(Clone, Debug)]
pub struct Sequential {
    range: Range,
    next: u64,
}

impl Sequential {
    /// Begins at the place `start`.
    #[must_use]
    pub fn new(range: Range, start: u64) -> Self {
        let next = if start < range.places { start } else { 0 };
        Self { range, next }
    }
}

impl Places for Sequential {
    #[inline(always)]
    fn next_lba(&mut self) -> Lba {
        let lba = self.range.lba(self.next);
        self.next += 1;
        if self.next >= self.range.places {
            self.next = 0;
        }
        lba
    }
}

/// Any place, all equally likely (to 1 in 2^64 times their number).
#[derive(Clone, Debug)]
pub struct Random {
    range: Range,
    rng: fastrand::Rng,
}

impl Random {
    /// Repeats for the same seed.
    #[must_use]
    pub fn new(range: Range, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { range, rng }
    }
}

impl Places for Random {
    #[inline(always)]
    fn next_lba(&mut self) -> Lba {
        // Maps 64 random bits to the range by a multiplication: no division, no retry.
        let wide = u128::from(self.rng.u64(..)) * u128::from(self.range.places);
        self.range.lba((wide >> 64) as u64)
    }
}

/// Chooses what the next command does.
pub trait Directions {
    /// The only direction there is, if there is one alone: known to the compiler.
    const ONLY: Option<Direction>;

    /// What the next command does.
    fn next_direction(&mut self) -> Direction;
}

/// Reads only. It cannot express a write, so that a run of reads does not write by mistake.
#[derive(Clone, Debug)]
pub struct Reads;

impl Directions for Reads {
    const ONLY: Option<Direction> = Some(Direction::Read);

    #[inline(always)]
    fn next_direction(&mut self) -> Direction {
        Direction::Read
    }
}

/// Writes only.
#[derive(Clone, Debug)]
pub struct Writes;

impl Directions for Writes {
    const ONLY: Option<Direction> = Some(Direction::Write);

    #[inline(always)]
    fn next_direction(&mut self) -> Direction {
        Direction::Write
    }
}

/// Deallocations only.
#[derive(Clone, Debug)]
pub struct Trims;

impl Directions for Trims {
    const ONLY: Option<Direction> = Some(Direction::Trim);

    #[inline(always)]
    fn next_direction(&mut self) -> Direction {
        Direction::Trim
    }
}

/// Reads and writes at a ratio.
#[derive(Clone, Debug)]
pub struct Mixed {
    rng: fastrand::Rng,
    /// Random numbers of 32 bits below this one are reads.
    reads_below: u64,
}

impl Mixed {
    /// `read_percent` of 100 commands read, on average; repeats for the same seed.
    #[must_use]
    pub fn new(read_percent: u8, seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            reads_below: (u64::from(read_percent.min(100)) << 32) / 100,
        }
    }
}

impl Directions for Mixed {
    const ONLY: Option<Direction> = None;

    #[inline(always)]
    fn next_direction(&mut self) -> Direction {
        if self.rng.u64(..) >> 32 < self.reads_below {
            Direction::Read
        } else {
            Direction::Write
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every command lies in the range and on a place, whatever the range.
        #[test]
        fn every_block_is_in_range(
            first in 0_u64..1 << 40, places in 1_u64..1 << 40, blocks in 1_u32..65_536, seed: u64,
        ) {
            let range = Range { first: Lba(first), places, blocks };
            let mut sequential = Sequential::new(range, seed % (places + 1));
            let mut random = Random::new(range, seed);
            for _ in 0..100 {
                for lba in [sequential.next_lba(), random.next_lba()] {
                    let offset = lba.0 - first;
                    prop_assert_eq!(offset % u64::from(blocks), 0);
                    prop_assert!(offset / u64::from(blocks) < places);
                }
            }
        }
    }

    const RANGE: Range = Range {
        first: Lba(100),
        places: 5,
        blocks: 8,
    };

    /// Sequential commands follow each other and begin again after the last place.
    #[test]
    fn sequential_wraps() {
        let mut places = Sequential::new(RANGE, 3);
        let lbas: Vec<u64> = (0..7).map(|_| places.next_lba().0).collect();
        assert_eq!(lbas, [124, 132, 100, 108, 116, 124, 132]);
    }

    /// Random commands reach every place about equally often, and repeat for a seed.
    #[test]
    fn random_reaches_every_place() {
        let mut counts = [0_u32; 5];
        let (mut one, mut two) = (Random::new(RANGE, 7), Random::new(RANGE, 7));
        for _ in 0..10_000 {
            let lba = one.next_lba();
            assert_eq!(lba, two.next_lba());
            counts[usize::try_from((lba.0 - 100) / 8).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (1_800..2_200).contains(count)),
            "{counts:?}"
        );
    }

    /// The mix has the ratio asked for, and 0 and 100 are exact.
    #[test]
    fn the_mix_has_its_ratio() {
        for (percent, reads) in [(0, 0..=0), (30, 29_000..=31_000), (100, 100_000..=100_000)] {
            let mut mix = Mixed::new(percent, 11);
            let read = |_: &u32| mix.next_direction() == Direction::Read;
            let count = (0..100_000_u32).filter(read).count();
            assert!(reads.contains(&count), "{percent} %: {count}");
        }
    }
}
