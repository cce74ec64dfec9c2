//! What has been counted.

use super::histogram::Histogram;
use std::fmt;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Reads file data.
    Read,
    /// Writes file data.
    Write,
    /// Makes data durable: a flush.
    Sync,
    /// Reads or writes the filesystem's own structures.
    Metadata,
    /// Tells the drive that blocks are free.
    Discard,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Metadata,
        Self::Discard,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Metadata => "metadata",
            Self::Discard => "discard",
        })
    }
}

/// The requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindStats {
    bytes: u64,
    errors: u64,
    latency: Histogram,
}

impl KindStats {
    /// Requests that ended well.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.latency.count()
    }

    /// Their bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests that failed. They add neither to the bytes nor to the latencies.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// From submission to completion, in nanoseconds.
    #[must_use]
    pub const fn latency(&self) -> &Histogram {
        &self.latency
    }
}

/// The requests of all kinds, about 39 KiB on the heap. A clone is a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    kinds: Box<[KindStats; Kind::ALL.len()]>,
}

impl Stats {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The requests of one kind.
    #[must_use]
    pub const fn kind(&self, kind: Kind) -> &KindStats {
        &self.kinds[kind as usize]
    }

    /// Adds all that another, of another queue say, has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.kinds.iter_mut().zip(other.kinds.iter()) {
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
            mine.errors = mine.errors.saturating_add(theirs.errors);
            mine.latency.merge(&theirs.latency);
        }
    }

    /// Counts a request that ended well after `latency_ns`.
    #[inline]
    pub(super) fn record(&mut self, kind: Kind, bytes: u64, latency_ns: u64) {
        let stats = &mut self.kinds[kind as usize];
        stats.bytes = stats.bytes.saturating_add(bytes);
        stats.latency.record(latency_ns);
    }

    /// Counts a request that failed.
    #[cold]
    pub(super) fn record_error(&mut self, kind: Kind) {
        let stats = &mut self.kinds[kind as usize];
        stats.errors = stats.errors.saturating_add(1);
    }
}
