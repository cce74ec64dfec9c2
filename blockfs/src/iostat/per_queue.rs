//! Statistics that are always on.

use super::stats::{Kind, Stats};
use super::{IoStat, Tick};

/// Counts every request of one queue.
///
/// Two clock reads a request; no lock, no allocation after `new`.
#[derive(Debug)]
pub struct PerQueue<C> {
    clock: C,
    stats: Stats,
}

impl<C: Tick> PerQueue<C> {
    /// Nothing counted yet; latencies by `clock`.
    #[must_use]
    pub fn new(clock: C) -> Self {
        Self {
            clock,
            stats: Stats::new(),
        }
    }

    /// What has been counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// What a counted request carries.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    at_ns: u64,
    bytes: u64,
    kind: Kind,
}

// That it is not counted takes no room: `Kind` has values to spare.
const _: () = assert!(size_of::<Started>() == 24 && size_of::<Option<Started>>() == 24);

impl<C: Tick> IoStat for PerQueue<C> {
    type Ctx = Started;

    #[inline]
    fn submit(&self, kind: Kind, bytes: u64) -> Started {
        Started {
            at_ns: self.clock.tick(),
            bytes,
            kind,
        }
    }

    #[inline]
    fn complete(&mut self, started: Started, ok: bool) {
        if ok {
            let latency = self.clock.tick().saturating_sub(started.at_ns);
            self.stats.record(started.kind, started.bytes, latency);
        } else {
            self.stats.record_error(started.kind);
        }
    }
}
