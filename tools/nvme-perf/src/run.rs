//! The run: starts the jobs, keeps the time, samples their progress, gathers what they measured.

use super::cpus::{PinError, pin};
use super::histogram::{Latencies, TickHistogram};
use super::job::{Failure, Job, Tally};
use super::pattern::Direction;
use super::plan::Plan;
use super::signal::{Control, Phase, Progress};
use super::ticks::{TickLength, Ticks};
use super::usage::ThreadUsage;
use super::watch::{Status, Watch};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// What one job measured, and what it used.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// What it measured.
    pub tally: Tally,
    /// What its thread used.
    pub usage: ThreadUsage,
    /// Commands that it kept outstanding.
    pub depth: usize,
}

/// What the run measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Job by job.
    pub jobs: Vec<JobResult>,
    /// Commands a second by direction, interval by interval.
    pub samples: Vec<[f64; 3]>,
    /// How long a tick is.
    pub tick: TickLength,
    /// The jobs were stopped because the device made no progress.
    pub stalled: bool,
    /// The jobs were stopped before their time because that was asked for.
    pub interrupted: bool,
}

/// Why the run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A job's thread could not be started.
    #[error("no thread for a job: ask for fewer jobs, or raise `ulimit -u`")]
    Thread(#[source] io::Error),
    /// A job's thread could not be put on its processor.
    #[error("a job's thread could not be placed")]
    Pin(#[source] PinError),
    /// A job's thread panicked.
    #[error("a job ended in a panic, which is a defect of this program")]
    Panicked,
}

/// How long the jobs wait for each other between two looks.
const START_PAUSE: Duration = Duration::from_micros(200);

/// What the jobs' threads share.
struct Stage<'a> {
    control: &'a Control,
    ticks: Ticks,
    /// Threads that stand where they should.
    ready: AtomicUsize,
    /// Threads that have not finished.
    running: AtomicUsize,
    /// Woken when a job ends.
    main: Thread,
}

/// Runs the jobs to their end, or until `interrupt` is set. `status` is called once an interval, on
/// this thread.
///
/// # Errors
/// [`RunError`].
pub fn run(
    jobs: Vec<Job>,
    plan: &Plan,
    interrupt: &AtomicBool,
    status: impl FnMut(Status),
) -> Result<Outcome, RunError> {
    let progress: Vec<Progress> = jobs.iter().map(|_| Progress::default()).collect();
    let control = Control::new();
    let count = jobs.len();
    let stage = Stage {
        control: &control,
        ticks: Ticks::start(),
        ready: AtomicUsize::new(0),
        running: AtomicUsize::new(count),
        main: thread::current(),
    };
    let mut watch = Watch::new(plan, &progress, &control, interrupt);
    let results: Result<Vec<_>, RunError> = thread::scope(|scope| {
        let mut handles = Vec::new();
        for (job, progress) in jobs.into_iter().zip(&progress) {
            let name = format!("job {}", job.number());
            let cpu = plan
                .cpus
                .as_ref()
                .and_then(|cpus| cpus.of_job(job.number()));
            let stage = &stage;
            let body = move || stage.run_job(job, cpu, progress);
            let started = thread::Builder::new().name(name).spawn_scoped(scope, body);
            // Those that were started stop at once if one was not.
            let stop = |_: &io::Error| control.enter(Phase::Stop);
            handles.push(started.inspect_err(stop).map_err(RunError::Thread)?);
        }
        while stage.ready.load(Ordering::Acquire) < count {
            thread::sleep(START_PAUSE);
        }
        watch.until_done(&stage.running, status);
        let ended = handles.into_iter().map(|handle| handle.join());
        ended
            .map(|result| result.unwrap_or(Err(RunError::Panicked)))
            .collect()
    });
    Ok(Outcome {
        jobs: results?,
        samples: watch.samples(),
        tick: stage.ticks.length(),
        stalled: watch.stalled(),
        interrupted: watch.interrupted(),
    })
}

impl Stage<'_> {
    /// A job's thread.
    fn run_job(
        &self,
        job: Job,
        cpu: Option<usize>,
        progress: &Progress,
    ) -> Result<JobResult, RunError> {
        // However the job ends, the main thread learns of it.
        let _ended = Ended(self);
        let pinned = cpu.map_or(Ok(()), pin);
        self.ready.fetch_add(1, Ordering::Release);
        if let Err(error) = pinned {
            self.control.enter(Phase::Stop);
            return Err(RunError::Pin(error));
        }
        while self.control.phase() == Phase::Wait {
            thread::sleep(START_PAUSE);
        }
        let depth = job.depth();
        let before = ThreadUsage::now();
        let tally = job.run(self.control, progress, &self.ticks);
        if tally.failure.is_some() {
            self.control.enter(Phase::Stop);
        }
        let usage = ThreadUsage::now().since(before);
        Ok(JobResult {
            tally,
            usage,
            depth,
        })
    }
}

/// Tells the main thread of a job's end when dropped.
struct Ended<'a>(&'a Stage<'a>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Release);
        self.0.main.unpark();
    }
}

impl Outcome {
    /// The first failure of the first job that had one.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.jobs.iter().find_map(|job| job.tally.failure)
    }

    /// Commands of a direction that ended.
    #[must_use]
    pub fn ios(&self, direction: Direction) -> u64 {
        let ios = |job: &JobResult| job.tally.directions[direction.index()].ios;
        self.jobs.iter().map(ios).sum()
    }

    /// Commands that failed.
    #[must_use]
    pub fn errors(&self) -> u64 {
        let errors = |job: &JobResult| job.tally.directions.iter().map(|d| d.errors).sum::<u64>();
        self.jobs.iter().map(errors).sum()
    }

    /// Commands that never ended.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.jobs.iter().map(|job| job.tally.lost).sum()
    }

    /// Length of one job's measurement.
    #[must_use]
    pub fn elapsed_of(&self, job: &JobResult) -> Duration {
        self.tick.duration(job.tally.ticks)
    }

    /// Length of the longest job's measurement.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let ticks = self.jobs.iter().map(|job| job.tally.ticks).max();
        self.tick.duration(ticks.unwrap_or(0))
    }

    /// Commands of a direction a second: the sum of the jobs' rates.
    #[must_use]
    pub fn iops(&self, direction: Direction) -> f64 {
        self.jobs
            .iter()
            .map(|job| self.iops_of(job, direction))
            .sum()
    }

    /// One job's commands of a direction a second.
    #[must_use]
    pub fn iops_of(&self, job: &JobResult, direction: Direction) -> f64 {
        let seconds = self.elapsed_of(job).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let ios = job.tally.directions[direction.index()].ios as f64;
        if seconds > 0.0 { ios / seconds } else { 0.0 }
    }

    /// The latencies of some directions of some jobs.
    #[must_use]
    pub fn latencies<'a>(
        &'a self,
        jobs: impl IntoIterator<Item = &'a JobResult>,
        directions: &'a [Direction],
    ) -> Latencies {
        let of_job = |job: &'a JobResult| directions.iter().map(|d| of_direction(job, *d));
        Latencies::collect(jobs.into_iter().flat_map(of_job), self.tick)
    }
}

fn of_direction(job: &JobResult, direction: Direction) -> &TickHistogram {
    &job.tally.directions[direction.index()].latencies
}
