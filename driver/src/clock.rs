//! Time, passed in.
//!
//! Nothing on the I/O path reads a clock. Bring-up, admin commands and blocking helpers do, through
//! this trait, so that a stepped device runs in virtual time and a failing run repeats.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// A source of time that can also pass it.
///
/// # Examples
///
/// ```
/// use driver::clock::{Clock, SystemClock};
/// use std::time::Duration;
///
/// let clock = SystemClock::new();
/// let start = clock.now();
/// clock.pause(Duration::from_micros(50));
/// assert!(clock.now() - start >= Duration::from_micros(50));
/// ```
pub trait Clock: Debug + Send + Sync {
    /// Time since an arbitrary, fixed start. Never goes backwards.
    fn now(&self) -> Duration;

    /// Lets at least `duration` pass. A zero duration is one turn of a waiting loop: a hint to the
    /// processor on a real clock, one step of the device on a stepped one.
    fn pause(&self, duration: Duration);
}

/// The operating system's monotonic clock.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pause(&self, duration: Duration) {
        if duration.is_zero() {
            std::hint::spin_loop();
        } else {
            thread::sleep(duration);
        }
    }
}

/// A point in time that a wait must not pass.
///
/// The waiting loop asks [`Deadline::wait_turn`] after each look at the device; it spins for a short
/// while, then sleeps in growing steps, and answers `false` once the time is up.
#[derive(Debug)]
pub struct Deadline<'a> {
    clock: &'a dyn Clock,
    start: Duration,
    limit: Duration,
    turns: u32,
}

/// Turns of a waiting loop that spin before the loop begins to sleep.
const SPIN_TURNS: u32 = 2_000;
/// The first and the longest sleep of a waiting loop.
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

impl<'a> Deadline<'a> {
    /// A deadline `limit` from now.
    #[must_use]
    pub fn after(clock: &'a dyn Clock, limit: Duration) -> Self {
        Self {
            clock,
            start: clock.now(),
            limit,
            turns: 0,
        }
    }

    /// How long the wait has lasted.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.clock.now().saturating_sub(self.start)
    }

    /// Passes one turn of the waiting loop. `false`: the time is up, look once more and give up.
    #[must_use]
    pub fn wait_turn(&mut self) -> bool {
        if self.waited() >= self.limit {
            return false;
        }
        self.turns = self.turns.saturating_add(1);
        let pause = match self.turns.checked_sub(SPIN_TURNS) {
            None => Duration::ZERO,
            Some(over) => (SLEEP_MIN * (over / 16 + 1)).min(SLEEP_MAX),
        };
        self.clock.pause(pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock on which each turn takes ten microseconds.
    #[derive(Debug, Default)]
    struct Ticking(AtomicU64);

    impl Clock for Ticking {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }
        fn pause(&self, duration: Duration) {
            let micros = u64::try_from(duration.as_micros()).unwrap().max(10);
            self.0.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// A wait ends, at its limit and not long after it.
    #[test]
    fn a_deadline_ends_the_wait() {
        let clock = Ticking::default();
        let mut deadline = Deadline::after(&clock, Duration::from_millis(500));
        while deadline.wait_turn() {}
        assert!(deadline.waited() >= Duration::from_millis(500));
        assert!(deadline.waited() <= Duration::from_millis(502));
    }
}
