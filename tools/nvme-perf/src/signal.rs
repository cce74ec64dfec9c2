//! What the main thread and the jobs tell each other: plain atomics, each on cache lines of its own.

use super::pattern::Direction;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The jobs wait for each other.
    Wait,
    /// They work, but nothing counts yet.
    Ramp,
    /// The measurement.
    Measure,
    /// The jobs are to stop.
    Stop,
}

/// The main thread's word to the jobs; written three times a run at most.
#[derive(Debug)]
#[repr(align(128))]
pub struct Control(AtomicU8);

impl Control {
    /// Begins with [`Phase::Wait`].
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU8::new(Phase::Wait as u8))
    }

    /// The phase. A job that learns of it a round later is no harm: no data hangs on it.
    #[inline(always)]
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Wait,
            1 => Phase::Ramp,
            2 => Phase::Measure,
            _ => Phase::Stop,
        }
    }

    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

/// One job's word to the main thread: commands ended since it began, by direction.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress([AtomicU64; 3]);

impl Progress {
    /// Says how many have ended. The job alone calls it: a plain store.
    #[inline(always)]
    pub fn set(&self, direction: Direction, ios: u64) {
        self.0[direction.index()].store(ios, Ordering::Relaxed);
    }

    /// How many have ended.
    #[must_use]
    pub fn get(&self) -> [u64; 3] {
        self.0.each_ref().map(|ios| ios.load(Ordering::Relaxed))
    }
}
