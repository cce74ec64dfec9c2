//! Processors: lists of them, and threads that stay on one.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::str::FromStr;

/// A list of processors, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

/// Why a text is no list of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no list of processors: write numbers and ranges below {max}, as in 0-3,5")]
pub struct CpuListError {
    text: String,
    max: usize,
}

/// A thread could not be put on a processor.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot run on processor {cpu}: choose one that this process may use (`taskset -pc $$` lists them)"
)]
pub struct PinError {
    cpu: usize,
    #[source]
    source: io::Error,
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let max = CpuSet::MAX_CPU;
        let parse = || {
            let mut list = Vec::new();
            for part in text.split(',') {
                let (from, to) = part.split_once('-').unwrap_or((part, part));
                let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
                if from > to || to >= max {
                    return None;
                }
                list.extend(from..=to);
            }
            Some(Self(list))
        };
        parse().ok_or_else(|| CpuListError {
            text: text.to_owned(),
            max,
        })
    }
}

impl CpuList {
    /// The processor of a job: the jobs share the list out in turn.
    #[must_use]
    pub fn of_job(&self, job: usize) -> Option<usize> {
        let place = job.checked_rem(self.0.len())?;
        self.0.get(place).copied()
    }
}

/// Keeps this thread on one processor.
///
/// # Errors
/// [`PinError`] if there is no such processor or this process may not use it.
pub fn pin(cpu: usize) -> Result<(), PinError> {
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|errno| PinError {
        cpu,
        source: errno.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    /// Numbers, ranges and mixtures are read, and dealt out in turn; anything else is refused.
    #[test]
    fn lists_are_read() {
        let list: CpuList = "0-2,5".parse().unwrap();
        let jobs: Vec<_> = (0..5).filter_map(|job| list.of_job(job)).collect();
        assert_eq!(jobs, [0, 1, 2, 5, 0]);
        for text in ["", "a", "3-1", "0,", "-1", "1-", "99999999"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    /// A thread that was pinned is where it was put, and a processor that is not there is an error.
    #[test]
    fn a_thread_is_pinned() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU)
            .find(|&cpu| allowed.is_set(cpu))
            .unwrap();
        pin(cpu).unwrap();
        let now = sched_getaffinity(None).unwrap();
        assert!(now.count() == 1 && now.is_set(cpu));
        assert!(pin(CpuSet::MAX_CPU - 1).is_err() && pin(usize::MAX).is_err());
        sched_setaffinity(None, &allowed).unwrap();
    }
}
