//! The main thread during a run: it keeps the time and samples the jobs' progress.

use super::plan::Plan;
use super::signal::{Control, Phase, Progress};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How far the run is: for a status line.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Whether it is still before the measurement.
    pub ramp: bool,
    /// Done of the whole, 0 to 1.
    pub done: f64,
    /// Time left; `None`: not known.
    pub left: Option<Duration>,
    /// Commands a second now, by direction.
    pub iops: [f64; 3],
}

/// The longest interval of a sample, as in fio.
const SAMPLE_MAX: Duration = Duration::from_millis(500);
/// Samples that a short run has at least.
const SAMPLES_MIN: u32 = 4;
/// How long the device may make no progress at all.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Keeps the time of a run.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    plan: &'a Plan,
    progress: &'a [Progress],
    control: &'a Control,
    /// Set from outside to end the run early.
    interrupt: &'a AtomicBool,
    interval: Duration,
    samples: Vec<[f64; 3]>,
    stalled: bool,
    interrupted: bool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        progress: &'a [Progress],
        control: &'a Control,
        interrupt: &'a AtomicBool,
    ) -> Self {
        let interval = plan.runtime.map_or(SAMPLE_MAX, |runtime| {
            (runtime / SAMPLES_MIN).clamp(Duration::from_millis(1), SAMPLE_MAX)
        });
        Self {
            plan,
            progress,
            control,
            interrupt,
            interval,
            samples: Vec::new(),
            stalled: false,
            interrupted: false,
        }
    }

    /// Commands a second by direction, interval by interval.
    pub(crate) fn samples(&self) -> Vec<[f64; 3]> {
        self.samples.clone()
    }

    /// Whether the jobs were stopped because nothing went on.
    pub(crate) fn stalled(&self) -> bool {
        self.stalled
    }

    /// Whether the jobs were stopped before their time because that was asked for.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Starts the jobs, and stops them when the time is up or nothing goes on any more.
    pub(crate) fn until_done(&mut self, running: &AtomicUsize, mut status: impl FnMut(Status)) {
        if self.control.phase() == Phase::Stop {
            return;
        }
        if !self.plan.ramp.is_zero() {
            self.control.enter(Phase::Ramp);
            self.phase(true, Some(self.plan.ramp), running, &mut status);
        }
        if !self.interrupted {
            self.control.enter(Phase::Measure);
            self.phase(false, self.plan.runtime, running, &mut status);
        }
        self.control.enter(Phase::Stop);
    }

    /// Waits for the end of a phase: its time, that no job runs any more, or an interrupt. That is
    /// noticed within an interval.
    fn phase(
        &mut self,
        ramp: bool,
        limit: Option<Duration>,
        running: &AtomicUsize,
        status: &mut impl FnMut(Status),
    ) {
        let start = Instant::now();
        let first = self.ended();
        let mut last = (start, first);
        let mut moved = start;
        loop {
            let elapsed = start.elapsed();
            let left = limit.map(|limit| limit.saturating_sub(elapsed));
            if running.load(Ordering::Acquire) == 0 || left == Some(Duration::ZERO) {
                return;
            }
            if self.interrupt.load(Ordering::Relaxed) {
                self.interrupted = true;
                return;
            }
            let next = (last.0 + self.interval).saturating_duration_since(Instant::now());
            // A job that ends unparks this thread.
            thread::park_timeout(left.unwrap_or(next).min(next));
            let now = Instant::now();
            if now < last.0 + self.interval {
                continue;
            }
            let ended = self.ended();
            let iops = rates(last.1, ended, now - last.0);
            if ended != last.1 {
                moved = now;
            } else if now - moved >= STALL_LIMIT {
                self.stalled = true;
                return;
            }
            if !ramp {
                self.samples.push(iops);
            }
            status(self.status(
                ramp,
                limit,
                start.elapsed(),
                total(ended) - total(first),
                iops,
            ));
            last = (now, ended);
        }
    }

    fn status(
        &self,
        ramp: bool,
        limit: Option<Duration>,
        elapsed: Duration,
        ios: u64,
        iops: [f64; 3],
    ) -> Status {
        #[expect(clippy::cast_precision_loss, reason = "a share for a status line")]
        let by_ios = self.plan.ios.filter(|_| !ramp).map_or(0.0, |planned| {
            ios as f64 / (planned.max(1) * self.plan.jobs.max(1) as u64) as f64
        });
        let by_time = limit.map_or(0.0, |limit| elapsed.as_secs_f64() / limit.as_secs_f64());
        let done = by_ios.max(by_time).min(1.0);
        let left = (done > 0.0).then(|| {
            let whole = elapsed.as_secs_f64() / done;
            Duration::try_from_secs_f64(whole - elapsed.as_secs_f64()).unwrap_or_default()
        });
        Status {
            ramp,
            done,
            left,
            iops,
        }
    }

    /// Commands ended so far, by direction.
    fn ended(&self) -> [u64; 3] {
        self.progress
            .iter()
            .map(Progress::get)
            .fold([0; 3], |sum, ios| {
                [sum[0] + ios[0], sum[1] + ios[1], sum[2] + ios[2]]
            })
    }
}

fn total(ios: [u64; 3]) -> u64 {
    ios.iter().sum()
}

/// Commands a second between two moments.
fn rates(before: [u64; 3], after: [u64; 3], time: Duration) -> [f64; 3] {
    let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
    [0, 1, 2].map(|index: usize| {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let ios = after[index].saturating_sub(before[index]) as f64;
        ios / seconds
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates are per second, and a counter that stood still gives zero.
    #[test]
    fn rates_are_per_second() {
        let rates = rates([0, 10, 5], [50, 10, 7], Duration::from_millis(500));
        assert_eq!(rates, [100.0, 0.0, 4.0]);
    }
}
