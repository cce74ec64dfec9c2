//! Statistics that can be turned on and off in a running service.

use super::per_queue::{PerQueue, Started};
use super::stats::{Kind, Stats};
use super::{IoStat, Tick};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Turns the statistics of any number of queues on and off, from any thread. Starts as off.
///
/// # Examples
///
/// ```
/// use blockfs::iostat::{Kind, Switch, Switchable, Tracked};
/// use driver::clock::SystemClock;
///
/// let switch = Switch::new();
/// let mut stats = Switchable::new(SystemClock::new(), &switch);
///
/// let before = Tracked::submit(&stats, Kind::Read, 4096, "submitted while off");
/// switch.set(true);
/// let after = Tracked::submit(&stats, Kind::Read, 512, "submitted while on");
/// before.complete(&mut stats, true);
/// after.complete(&mut stats, true);
/// assert_eq!(stats.stats().kind(Kind::Read).bytes(), 512);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// One that is off.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests that are submitted from now on are counted, or not. Other threads see it soon.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    /// Whether it is on.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        // Nothing else depends on it, and it is an ordinary load.
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts the requests of one queue that are submitted while its [`Switch`] is on.
///
/// While it is off it costs a load and a branch at submission, a branch at completion, and room in
/// the request; no clock is read.
#[derive(Debug)]
pub struct Switchable<C> {
    switch: Switch,
    on: PerQueue<C>,
}

impl<C: Tick> Switchable<C> {
    /// Nothing counted yet; latencies by `clock`.
    #[must_use]
    pub fn new(clock: C, switch: &Switch) -> Self {
        Self {
            switch: switch.clone(),
            on: PerQueue::new(clock),
        }
    }

    /// What has been counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        self.on.stats()
    }
}

impl<C: Tick> IoStat for Switchable<C> {
    type Ctx = Option<Started>;

    #[inline]
    fn submit(&self, kind: Kind, bytes: u64) -> Option<Started> {
        self.switch.is_on().then(|| self.on.submit(kind, bytes))
    }

    #[inline]
    fn complete(&mut self, started: Option<Started>, ok: bool) {
        if let Some(started) = started {
            self.on.complete(started, ok);
        }
    }
}
