//! What is done until a power cut: both sides make it from one seed, the guest to do it and the host to
//! know what must be there. And the marks that the guest puts into the log of the drive's writes.

use crash::run::Action;
use crash::workloads;
use fastrand::Rng;

/// The test in the guest.
pub const HONEST: &str = "power_cut::blockfs";
/// The same on a drive whose flushes end at once and do nothing: the host must find that out.
pub const FORGETFUL: &str = "power_cut::blockfs_on_a_forgetful_drive";

/// More steps than are done before any cut.
const STEPS: usize = 20_000;

/// What is done on a volume that holds what [`workloads::setup`] makes.
#[must_use]
pub fn actions(seed: u64) -> Vec<Action> {
    workloads::random(&mut Rng::with_seed(seed), STEPS)
}

/// Whether everything (a sync), or what the step itself wrote (a durable write), is durable when it ends.
#[must_use]
pub const fn is_durable(action: &Action) -> bool {
    action.is_sync() || matches!(action, Action::Write { dsync: true, .. })
}

/// Something that the log of writes does not say by itself. The guest writes it to the drive's last
/// logical block, which the volume leaves free, and waits for the end of that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The set-up is durable: now the steps begin.
    Ready,
    /// That step begins; they count from 0.
    Begin {
        /// Which.
        step: u64,
    },
    /// It has ended.
    End {
        /// Which.
        step: u64,
        /// Whether it did anything: what the reference refuses changes nothing.
        changed: bool,
    },
    /// The next write of these logical blocks has the FUA bit: `blklogwrites` drops it.
    Fua {
        /// The first.
        lba: u64,
        /// How many.
        blocks: u64,
    },
}

/// How a mark begins.
const MAGIC: u64 = u64::from_le_bytes(*b"cut mark");
/// Bytes of a mark.
const BYTES: usize = 32;

impl Mark {
    /// Writes it to the beginning of a logical block.
    pub fn encode(self, block: &mut [u8]) {
        let [kind, first, second] = match self {
            Self::Ready => [0, 0, 0],
            Self::Begin { step } => [1, step, 0],
            Self::End { step, changed } => [2, step, changed.into()],
            Self::Fua { lba, blocks } => [3, lba, blocks],
        };
        let words = [MAGIC, kind, first, second];
        for (place, word) in block.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads one.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let words: Vec<u64> = block
            .get(..BYTES)?
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let [MAGIC, kind, first, second] = words[..] else {
            return None;
        };
        Some(match (kind, first, second) {
            (0, _, _) => Self::Ready,
            (1, step, _) => Self::Begin { step },
            (2, step, changed) => Self::End {
                step,
                changed: changed != 0,
            },
            (3, lba, blocks) => Self::Fua { lba, blocks },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every mark is read back as what it was, and other data are none.
    #[test]
    fn marks_are_read_back() {
        for mark in [
            Mark::Ready,
            Mark::Begin { step: 3 },
            Mark::End {
                step: 4,
                changed: true,
            },
            Mark::End {
                step: 5,
                changed: false,
            },
            Mark::Fua { lba: 6, blocks: 7 },
        ] {
            let mut block = [0xa5; 512];
            mark.encode(&mut block);
            assert_eq!(Mark::decode(&block), Some(mark));
        }
        assert_eq!(Mark::decode(&[0; 512]), None);
    }
}
