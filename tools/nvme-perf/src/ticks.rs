//! Time in the loop: the processor's time stamp counter, turned into nanoseconds afterwards.
//!
//! The loop reads it twice a batch, not once a command: at the first completion that a poll finds,
//! and before the next submissions. A latency is thus from just before the batch is written until
//! the poll that saw it complete; handling the rest of the same poll does not count. Where the counter
//! is not known to run at a constant rate, the operating system's clock takes its place.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the time stamp counter is read by an intrinsic")
)]

use std::time::{Duration, Instant};

/// A source of ticks whose length is found by comparing it with the system's clock over the run.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    counter: bool,
    start: Instant,
    start_ticks: u64,
}

/// How long a tick is.
#[derive(Clone, Copy, Debug)]
pub struct TickLength {
    nanoseconds: f64,
}

/// Time that a comparison takes at least: two readings of the clock differ by under a microsecond.
const COMPARE_MIN: Duration = Duration::from_millis(20);

impl Ticks {
    /// Begins the comparison.
    #[must_use]
    pub fn start() -> Self {
        let mut ticks = Self {
            counter: has_steady_counter(),
            start: Instant::now(),
            start_ticks: 0,
        };
        ticks.start_ticks = ticks.now();
        ticks
    }

    /// Ticks since an arbitrary start.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.counter {
            read_counter()
        } else {
            self.clock()
        }
    }

    /// Nanoseconds by the system's clock.
    #[cold]
    fn clock(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Ends the comparison. Waits a little if the run was very short.
    #[must_use]
    pub fn length(&self) -> TickLength {
        let elapsed = self.start.elapsed();
        if elapsed < COMPARE_MIN {
            std::thread::sleep(COMPARE_MIN - elapsed);
        }
        let ticks = self.now().saturating_sub(self.start_ticks).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a ratio of measured values")]
        let nanoseconds = self.start.elapsed().as_nanos() as f64 / ticks as f64;
        TickLength { nanoseconds }
    }
}

impl TickLength {
    /// Ticks as nanoseconds.
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "measured values")]
        let ticks = ticks as f64;
        ticks * self.nanoseconds
    }

    /// Ticks as a duration.
    #[must_use]
    pub fn duration(self, ticks: u64) -> Duration {
        Duration::from_secs_f64(self.nanoseconds(ticks) / 1e9)
    }

    /// For tests: ticks of one nanosecond.
    #[cfg(test)]
    pub(crate) fn nanosecond() -> Self {
        Self { nanoseconds: 1.0 }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    0
}

/// Whether the counter runs at a constant rate in all power states (CPUID 8000_0007h, EDX bit 8).
#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    const POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= POWER_LEAF && __cpuid(POWER_LEAF).edx & INVARIANT_TSC != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_steady_counter() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleep measured in ticks is as long as it was, with the counter and with the clock.
    #[test]
    fn ticks_measure_time() {
        for counter in [has_steady_counter(), false] {
            let mut ticks = Ticks::start();
            ticks.counter = counter;
            ticks.start_ticks = ticks.now();
            let (start, clock) = (ticks.now(), Instant::now());
            std::thread::sleep(Duration::from_millis(30));
            let (end, slept) = (ticks.now(), clock.elapsed());
            let measured = ticks.length().duration(end - start);
            let error = measured.abs_diff(slept);
            assert!(
                error < Duration::from_millis(5),
                "{measured:?} for {slept:?}"
            );
        }
    }
}
