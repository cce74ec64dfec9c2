//! From a log of commands to the images that a power cut may leave.
//!
//! A logical block that was written since it was last durable may be found in any of its versions since
//! then; different blocks are independent. A write that has not ended counts like one that has. A flush
//! covers what had ended before it was submitted; a write with FUA that has ended is durable, and so are
//! all older versions of its blocks gone.

use crate::contents::Overlay;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What was submitted, and what ended.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write was submitted.
    Write {
        /// Its number.
        number: u64,
        /// Its first logical block.
        lba: u64,
        /// Whole logical blocks.
        data: Arc<[u8]>,
        /// Whether it ends on the medium.
        fua: bool,
    },
    /// A flush was submitted.
    Flush {
        /// Its number.
        number: u64,
    },
    /// One of them ended.
    End {
        /// Which.
        number: u64,
        /// Whether it succeeded.
        ok: bool,
    },
}

/// What happened to a drive.
#[derive(Clone, Debug)]
pub struct Log {
    /// What it held before.
    pub start: Arc<Vec<u8>>,
    /// Bytes of a logical block.
    pub lba_bytes: usize,
    /// Whether completed writes may be lost.
    pub volatile_cache: bool,
    /// In order.
    pub events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Version {
    number: u64,
    data: Arc<[u8]>,
    at: usize,
    ended: bool,
    hash: u64,
}

/// A drive at one moment: what is durable, and what else each block may be.
#[derive(Debug)]
pub struct Moment {
    image: Arc<Vec<u8>>,
    lba_bytes: usize,
    volatile_cache: bool,
    /// A hash of the durable image, kept up to date block by block.
    hash: u64,
    at_risk: BTreeMap<u64, Vec<Version>>,
    fua: HashSet<u64>,
    /// Flushes under way, with the writes that they cover.
    flushes: HashMap<u64, HashSet<u64>>,
}

fn hash_block(lba: u64, block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    lba.hash(&mut hasher);
    block.hash(&mut hasher);
    hasher.finish()
}

impl Moment {
    /// Before the log.
    #[must_use]
    pub fn new(log: &Log) -> Self {
        Self {
            image: Arc::clone(&log.start),
            lba_bytes: log.lba_bytes,
            volatile_cache: log.volatile_cache,
            hash: 0,
            at_risk: BTreeMap::new(),
            fua: HashSet::new(),
            flushes: HashMap::new(),
        }
    }

    /// After one event more.
    pub fn advance(&mut self, event: &Event) {
        match event {
            Event::Write {
                number,
                lba,
                data,
                fua,
            } => {
                if *fua {
                    self.fua.insert(*number);
                }
                for (nth, block) in data.chunks(self.lba_bytes).enumerate() {
                    let lba = lba + nth as u64;
                    self.at_risk.entry(lba).or_default().push(Version {
                        number: *number,
                        data: Arc::clone(data),
                        at: nth * self.lba_bytes,
                        ended: false,
                        hash: hash_block(lba, block),
                    });
                }
            }
            Event::Flush { number } => {
                let versions = self.at_risk.values().flatten();
                let ended = versions.filter(|version| version.ended);
                let covered = ended.map(|version| version.number).collect();
                self.flushes.insert(*number, covered);
            }
            Event::End { number, ok } => {
                if let Some(covered) = self.flushes.remove(number) {
                    if *ok {
                        self.make_durable(|version| covered.contains(&version.number));
                    }
                    return;
                }
                // What a failed write left is anybody's guess until something is durable there.
                for version in self.at_risk.values_mut().flatten() {
                    version.ended |= version.number == *number;
                }
                if *ok && (self.fua.contains(number) || !self.volatile_cache) {
                    self.make_durable(|version| version.number == *number);
                }
            }
        }
    }

    fn make_durable(&mut self, which: impl Fn(&Version) -> bool) {
        for (&lba, versions) in &mut self.at_risk {
            let Some(last) = versions.iter().rposition(&which) else {
                continue;
            };
            let version = &versions[last];
            let at = usize::try_from(lba).unwrap_or(usize::MAX) * self.lba_bytes;
            let image = Arc::make_mut(&mut self.image);
            if let (Some(place), Some(block)) = (
                image.get_mut(at..at + self.lba_bytes),
                version.data.get(version.at..version.at + self.lba_bytes),
            ) {
                self.hash ^= hash_block(lba, place) ^ version.hash;
                place.copy_from_slice(block);
            }
            versions.drain(..=last);
        }
        self.at_risk.retain(|_, versions| !versions.is_empty());
    }

    /// Logical blocks that may be found in more than one version.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.at_risk.len()
    }

    /// The choices that are to be tried: for each block at risk, which version, 0 for the durable one.
    #[must_use]
    pub fn choices(&self, rng: &mut fastrand::Rng, random: usize) -> Vec<Vec<usize>> {
        let counts: Vec<usize> = self.at_risk.values().map(Vec::len).collect();
        let all: usize = counts
            .iter()
            .fold(1, |product: usize, count| product.saturating_mul(count + 1));
        if counts.len() <= 12 && all <= 4096 {
            return exhaustive(&counts);
        }
        let (none, newest) = (vec![0; counts.len()], counts.clone());
        let mut choices = vec![none.clone(), newest.clone()];
        for at in 0..counts.len() {
            let mut one = none.clone();
            one[at] = counts[at];
            choices.push(one);
            let mut other = newest.clone();
            other[at] = 0;
            choices.push(other);
            // Everything before it, and everything from it on.
            let prefix = newest
                .iter()
                .enumerate()
                .map(|(nth, &n)| if nth < at { n } else { 0 });
            choices.push(prefix.collect());
            let suffix = newest
                .iter()
                .enumerate()
                .map(|(nth, &n)| if nth < at { 0 } else { n });
            choices.push(suffix.collect());
        }
        // Whole commands, in their order: all up to one of them.
        let mut numbers: Vec<u64> = self.at_risk.values().flatten().map(|v| v.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for &last in &numbers {
            let upto = self.at_risk.values().map(|versions| {
                versions
                    .iter()
                    .filter(|version| version.number <= last)
                    .count()
            });
            choices.push(upto.collect());
        }
        if counts.len() <= 24 {
            for first in 0..counts.len() {
                for second in 0..first {
                    let mut pair = none.clone();
                    pair[first] = counts[first];
                    pair[second] = counts[second];
                    choices.push(pair);
                }
            }
        }
        for _ in 0..random {
            choices.push(self.subset(rng));
        }
        choices.sort_unstable();
        choices.dedup();
        choices
    }

    /// The choices that are prefixes: every version of every block, one more each time, in the order in
    /// which they were written; the last has all of them.
    pub fn prefixes(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        let mut order: Vec<(u64, usize)> = Vec::new();
        for (place, versions) in self.at_risk.values().enumerate() {
            order.extend(versions.iter().map(|version| (version.number, place)));
        }
        order.sort_unstable();
        let mut choice = vec![0; self.at_risk.len()];
        std::iter::once(choice.clone()).chain(order.into_iter().map(move |(_, place)| {
            choice[place] += 1;
            choice.clone()
        }))
    }

    /// A choice at random.
    #[must_use]
    pub fn subset(&self, rng: &mut fastrand::Rng) -> Vec<usize> {
        let versions = self.at_risk.values();
        versions
            .map(|versions| rng.usize(0..=versions.len()))
            .collect()
    }

    /// A number for the image of a choice, within one log.
    #[must_use]
    pub fn fingerprint(&self, choice: &[usize]) -> u64 {
        let mut hash = self.hash;
        for ((&lba, versions), &version) in self.at_risk.iter().zip(choice) {
            if let Some(version) = version.checked_sub(1).and_then(|at| versions.get(at)) {
                let at = usize::try_from(lba).unwrap_or(usize::MAX) * self.lba_bytes;
                let durable = self.image.get(at..at + self.lba_bytes).unwrap_or(&[]);
                hash ^= hash_block(lba, durable) ^ version.hash;
            }
        }
        hash
    }

    /// The image of a choice.
    #[must_use]
    pub fn image(&self, choice: &[usize]) -> Overlay {
        let mut overlay = Overlay::new(Arc::clone(&self.image), self.lba_bytes);
        for ((&lba, versions), &version) in self.at_risk.iter().zip(choice) {
            if let Some(version) = version.checked_sub(1).and_then(|at| versions.get(at)) {
                let block = version.data.get(version.at..version.at + self.lba_bytes);
                overlay.set(lba, block.unwrap_or(&[]).into());
            }
        }
        overlay
    }
}

fn exhaustive(counts: &[usize]) -> Vec<Vec<usize>> {
    let mut choices = vec![Vec::new()];
    for &count in counts {
        let longer = choices.iter().flat_map(|choice: &Vec<usize>| {
            (0..=count).map(move |version| {
                let mut choice = choice.clone();
                choice.push(version);
                choice
            })
        });
        choices = longer.collect();
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(volatile_cache: bool, events: Vec<Event>) -> Log {
        Log {
            start: Arc::new(vec![0; 16]),
            lba_bytes: 4,
            volatile_cache,
            events,
        }
    }

    fn write(number: u64, lba: u64, fill: u8, blocks: usize, fua: bool) -> Event {
        Event::Write {
            number,
            lba,
            data: vec![fill; 4 * blocks].into(),
            fua,
        }
    }

    /// The images that a cut after all of `events` may leave, as the fills of the four blocks.
    fn images(volatile_cache: bool, events: Vec<Event>) -> Vec<Vec<u8>> {
        let log = log(volatile_cache, events);
        let mut moment = Moment::new(&log);
        for event in &log.events {
            moment.advance(event);
        }
        let choices = moment.choices(&mut fastrand::Rng::with_seed(1), 0);
        let images = choices.iter().map(|choice| moment.image(choice).image());
        images
            .map(|image| image.chunks(4).map(|b| b[0]).collect())
            .collect()
    }

    /// A write under way may be torn between logical blocks, with a volatile cache also when it ended.
    #[test]
    fn a_write_is_torn_by_logical_blocks() {
        let torn = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|b| vec![b[0], b[1], 0, 0]);
        assert_eq!(images(false, vec![write(1, 0, 1, 2, false)]), torn);
        let ended = vec![
            write(1, 0, 1, 2, false),
            Event::End {
                number: 1,
                ok: true,
            },
        ];
        assert_eq!(images(true, ended.clone()), torn);
        assert_eq!(images(false, ended), [vec![1, 1, 0, 0]]);
    }

    /// A flush makes durable what had ended when it was submitted, and nothing else.
    #[test]
    fn a_flush_covers_what_had_ended() {
        let events = vec![
            write(1, 0, 1, 1, false),
            write(2, 1, 2, 1, false),
            Event::End {
                number: 1,
                ok: true,
            },
            Event::Flush { number: 3 },
            Event::End {
                number: 2,
                ok: true,
            },
            Event::End {
                number: 3,
                ok: true,
            },
        ];
        assert_eq!(images(true, events), [vec![1, 0, 0, 0], vec![1, 2, 0, 0]]);
    }

    /// Prefixes grow block by block in the order of the writes, a block that was written twice too.
    #[test]
    fn prefixes_follow_the_order_of_the_writes() {
        let log = log(
            true,
            vec![write(1, 1, 1, 2, false), write(2, 0, 2, 2, false)],
        );
        let mut moment = Moment::new(&log);
        for event in &log.events {
            moment.advance(event);
        }
        let images: Vec<Vec<u8>> = moment
            .prefixes()
            .map(|choice| moment.image(&choice).image())
            .map(|image| image.chunks(4).map(|b| b[0]).collect())
            .collect();
        let expected = [
            [0, 0, 0, 0],
            [0, 1, 0, 0],
            [0, 1, 1, 0],
            [2, 1, 1, 0],
            [2, 2, 1, 0],
        ];
        assert_eq!(images, expected);
    }

    /// FUA is durable when it has ended, and the older versions of its blocks are gone.
    #[test]
    fn fua_is_durable_when_it_has_ended() {
        let mut events = vec![
            write(1, 0, 1, 1, false),
            Event::End {
                number: 1,
                ok: true,
            },
            write(2, 0, 2, 1, true),
        ];
        let before = images(true, events.clone());
        assert_eq!(before, [0, 1, 2].map(|fill| vec![fill, 0, 0, 0]));
        events.push(Event::End {
            number: 2,
            ok: true,
        });
        assert_eq!(images(true, events), [vec![2, 0, 0, 0]]);
    }
}
