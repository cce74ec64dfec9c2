//! One job: a thread's queue pair, its buffers, and the loop that is measured.
//!
//! In the loop there is no allocation, no lock, no system call, and two readings of the time stamp
//! counter a batch (see [`ticks`](crate::ticks)). Buffers travel through the driver and come back.

use super::histogram::TickHistogram;
use super::pattern::{
    Direction, Directions, Mixed, Places, Random, Reads, Sequential, Trims, Writes,
};
use super::plan::{Mode, Plan};
use super::signal::{Control, Phase, Progress};
use super::ticks::Ticks;
use driver::controller::{Controller, ControllerError, QueueOptions};
use driver::memory::{DmaBuf, DmaDomain, MemoryError};
use driver::namespace::{BlockRange, Lba, Namespace};
use driver::queue::{Completion, QueuePair, Rejected, Strays, SubmitError};
use driver::spec::Status;
use std::time::Duration;

/// What comes back with a completion: when its batch was submitted, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

impl Ticket {
    #[inline(always)]
    fn new(ticks: u64, direction: Direction) -> Self {
        Self(ticks << 2 | direction.index() as u64)
    }

    #[inline(always)]
    fn ticks(self) -> u64 {
        self.0 >> 2
    }

    #[inline(always)]
    fn direction(self) -> Direction {
        match self.0 & 3 {
            0 => Direction::Read,
            1 => Direction::Write,
            _ => Direction::Trim,
        }
    }
}

/// What one job counted of one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionTally {
    /// Commands that ended.
    pub ios: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Latencies in ticks, failed commands included.
    pub latencies: TickHistogram,
}

/// Why a job ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device failed a command.
    Status(Direction, Status),
    /// The driver did not accept one.
    Rejected(Direction, SubmitError),
}

/// What one job measured.
#[derive(Clone, Debug)]
pub struct Tally {
    /// By direction.
    pub directions: [DirectionTally; 3],
    /// By number of commands: how many doorbells told of as many.
    pub submitted: Box<[u64]>,
    /// By number of commands: how many polls found as many. The first are the idle ones.
    pub completed: Box<[u64]>,
    /// By number of commands outstanding: how many were submitted to make it as many.
    pub levels: Box<[u64]>,
    /// The first failure.
    pub failure: Option<Failure>,
    /// Length of the measurement in ticks.
    pub ticks: u64,
    /// Completion entries that nothing waited for, from the beginning.
    pub strays: Strays,
    /// Commands that had not ended some time after the job had.
    pub lost: usize,
}

impl Tally {
    fn new(depth: usize) -> Self {
        let sizes = || vec![0; depth + 1].into_boxed_slice();
        Self {
            directions: Default::default(),
            submitted: sizes(),
            completed: sizes(),
            levels: sizes(),
            failure: None,
            ticks: 0,
            strays: Strays::default(),
            lost: 0,
        }
    }

    fn clear(&mut self) {
        for direction in &mut self.directions {
            (direction.ios, direction.errors) = (0, 0);
            direction.latencies.clear();
        }
        for sizes in [&mut self.submitted, &mut self.completed, &mut self.levels] {
            sizes.fill(0);
        }
    }
}

/// Why a job could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There was no queue pair for it.
    #[error("no queue pair for job {job}")]
    Queue {
        /// Number of the job, from 0.
        job: usize,
        /// Why.
        #[source]
        source: ControllerError,
    },
    /// There was no memory for its buffers.
    #[error("no {bytes} bytes of DMA memory for the buffers of job {job}")]
    Buffers {
        /// Number of the job, from 0.
        job: usize,
        /// Bytes asked for.
        bytes: u64,
        /// Why.
        #[source]
        source: MemoryError,
    },
}

/// How long outstanding commands are waited for after the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// The bytes that one command may move at most: the driver splits longer ones.
const MAX_TRANSFER: u32 = 2 << 20;

/// The queue pair that a plan asks for.
#[must_use]
fn queue_options(plan: &Plan) -> QueueOptions {
    QueueOptions {
        commands: plan.queue_commands,
        max_transfer: plan.block_bytes.min(MAX_TRANSFER),
    }
}

/// One job, ready to run.
#[derive(Debug)]
pub struct Job {
    io: Io,
    plan: Plan,
    number: usize,
}

/// What the loop works with.
#[derive(Debug)]
struct Io {
    queue: QueuePair<Ticket>,
    namespace: Namespace,
    /// Buffers that no command uses; all of them fit.
    free: Vec<DmaBuf>,
    tally: Tally,
    /// Ended commands counted before the measurement began, for the progress.
    before: [u64; 3],
    /// Commands left to submit.
    budget: u64,
}

impl Job {
    /// Sets up job `number`: its queue pair and its buffers, filled with random bytes if they will be
    /// written.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn new(
        controller: &Controller,
        namespace: Namespace,
        domain: &DmaDomain,
        plan: &Plan,
        number: usize,
    ) -> Result<Self, JobError> {
        let queue = controller
            .queue_pair(&queue_options(plan))
            .map_err(|source| JobError::Queue {
                job: number,
                source,
            })?;
        let depth = usize::from(plan.depth).min(queue.depth());
        let bytes = u64::from(plan.block_bytes) * depth as u64;
        let failed = |source| JobError::Buffers {
            job: number,
            bytes,
            source,
        };
        let mut rng = fastrand::Rng::with_seed(plan.seed ^ number as u64);
        let mut pattern = vec![0; plan.block_bytes as usize];
        let mut free = Vec::with_capacity(depth);
        for _ in 0..depth {
            let mut buf = domain.alloc(pattern.len()).map_err(failed)?;
            if plan.mode.is_destructive() {
                rng.fill(&mut pattern);
                buf.write_at(0, &pattern).map_err(failed)?;
            }
            free.push(buf);
        }
        let io = Io {
            queue,
            namespace,
            free,
            tally: Tally::new(depth),
            before: [0; 3],
            budget: plan.ios.unwrap_or(u64::MAX),
        };
        Ok(Self {
            io,
            plan: plan.clone(),
            number,
        })
    }

    /// Number of the job, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Commands that it keeps outstanding: fewer than planned where the device's queues are shorter.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.io.free.len()
    }

    /// Runs until `control` says stop, the planned number of commands has ended, or one fails. Then
    /// waits until nothing is outstanding.
    #[must_use]
    pub fn run(mut self, control: &Control, progress: &Progress, ticks: &Ticks) -> Tally {
        if self.plan.latency {
            self.choose_places::<true>(control, progress, ticks);
        } else {
            self.choose_places::<false>(control, progress, ticks);
        }
        self.io.finish()
    }

    fn choose_places<const LATENCY: bool>(&mut self, c: &Control, p: &Progress, t: &Ticks) {
        let range = self.plan.range;
        let jobs = self.plan.jobs.max(1) as u64;
        match self.plan.mode {
            Mode::Read | Mode::Write | Mode::Rw | Mode::Trim => {
                // Jobs begin at equal distances, so that they do not follow in each other's steps.
                let start = range.places / jobs * self.number as u64;
                self.choose_directions::<_, LATENCY>(Sequential::new(range, start), c, p, t);
            }
            Mode::RandRead | Mode::RandWrite | Mode::RandRw | Mode::RandTrim => {
                let seed = self.plan.seed.wrapping_add(self.number as u64);
                self.choose_directions::<_, LATENCY>(Random::new(range, seed), c, p, t);
            }
        }
    }

    fn choose_directions<P: Places, const LATENCY: bool>(
        &mut self,
        places: P,
        control: &Control,
        progress: &Progress,
        ticks: &Ticks,
    ) {
        let (io, plan) = (&mut self.io, &self.plan);
        let run = Run {
            control,
            progress,
            ticks,
            plan,
        };
        match plan.mode {
            Mode::Read | Mode::RandRead => io.run::<_, _, LATENCY>(places, Reads, run),
            Mode::Write | Mode::RandWrite => io.run::<_, _, LATENCY>(places, Writes, run),
            Mode::Trim | Mode::RandTrim => io.run::<_, _, LATENCY>(places, Trims, run),
            Mode::Rw | Mode::RandRw => {
                let seed = !plan.seed.wrapping_add(self.number as u64);
                let mixed = Mixed::new(plan.read_percent, seed);
                io.run::<_, _, LATENCY>(places, mixed, run);
            }
        }
    }
}

/// What the loop looks at.
struct Run<'a> {
    control: &'a Control,
    progress: &'a Progress,
    ticks: &'a Ticks,
    plan: &'a Plan,
}

impl Io {
    /// The loop that is measured.
    #[inline(never)]
    fn run<P: Places, D: Directions, const LATENCY: bool>(
        &mut self,
        mut places: P,
        mut directions: D,
        run: Run<'_>,
    ) {
        let mut phase = run.control.phase();
        let mut start = run.ticks.now();
        while phase != Phase::Stop {
            if !self.free.is_empty() && self.budget > 0 {
                self.submit::<P, D, LATENCY>(&mut places, &mut directions, &run);
                if self.tally.failure.is_some() {
                    break;
                }
            }
            let ended = self.poll::<D, LATENCY>(&run);
            if ended > 0 {
                self.publish::<D>(run.progress);
                let done = self.budget == 0 && self.queue.outstanding() == 0;
                if done || self.tally.failure.is_some() {
                    break;
                }
            }
            let now = run.control.phase();
            if now != phase {
                // A ramp that is interrupted counts for nothing either.
                let begins = now == Phase::Measure || phase == Phase::Ramp;
                phase = now;
                if begins {
                    self.begin_measurement(run.plan);
                    start = run.ticks.now();
                }
            }
        }
        self.tally.ticks = run.ticks.now().saturating_sub(start);
    }

    /// Submits what there are buffers for, in batches.
    #[inline(always)]
    fn submit<P: Places, D: Directions, const LATENCY: bool>(
        &mut self,
        places: &mut P,
        directions: &mut D,
        run: &Run<'_>,
    ) {
        let mut left = self
            .free
            .len()
            .min(usize::try_from(self.budget).unwrap_or(usize::MAX));
        while left > 0 {
            let batch = left.min(run.plan.batch_submit);
            let now = if LATENCY { run.ticks.now() } else { 0 };
            let mut submitted = 0;
            for _ in 0..batch {
                if self.queue.outstanding() >= self.queue.depth() {
                    // Split requests take more slots than one: the rest waits for completions.
                    left = batch;
                    break;
                }
                let Some(buf) = self.free.pop() else { break };
                let direction = directions.next_direction();
                let ticket = Ticket::new(now, direction);
                let outcome = self.command(direction, places.next_lba(), buf, ticket, run.plan);
                if let Err(rejected) = outcome {
                    self.rejected(rejected);
                    left = batch;
                    break;
                }
                submitted += 1;
            }
            self.queue.ring();
            self.budget -= submitted as u64;
            let level = self.tally.levels.len() - 1 - self.free.len();
            count(&mut self.tally.submitted, submitted, 1);
            count(&mut self.tally.levels, level, submitted as u64);
            left -= batch;
        }
    }

    /// Submits one command.
    #[inline(always)]
    fn command(
        &mut self,
        direction: Direction,
        lba: Lba,
        buf: DmaBuf,
        ticket: Ticket,
        plan: &Plan,
    ) -> Result<(), Rejected<Ticket>> {
        let (namespace, queue) = (&self.namespace, &mut self.queue);
        match direction {
            Direction::Read => namespace.read(queue, lba, buf, ticket),
            Direction::Write => namespace.write_with(queue, lba, buf, plan.write_flags, ticket),
            Direction::Trim => {
                let blocks = plan.range.blocks;
                namespace.deallocate(queue, &[BlockRange { lba, blocks }], buf, ticket)
            }
        }
    }

    /// What the driver does not accept once it will not accept later: the job ends.
    #[cold]
    fn rejected(&mut self, rejected: Rejected<Ticket>) {
        self.free.extend(rejected.buf);
        let failure = Failure::Rejected(rejected.ctx.direction(), rejected.reason);
        self.tally.failure.get_or_insert(failure);
    }

    /// Takes what has ended; says how much.
    #[inline(always)]
    fn poll<D: Directions, const LATENCY: bool>(&mut self, run: &Run<'_>) -> usize {
        let Self {
            queue, free, tally, ..
        } = self;
        let mut now = 0;
        let ended = queue.poll_at_most(run.plan.poll_max, |done| {
            let direction = D::ONLY.unwrap_or_else(|| done.ctx.direction());
            let direction_tally = &mut tally.directions[direction.index()];
            direction_tally.ios += 1;
            if LATENCY {
                if now == 0 {
                    now = run.ticks.now();
                }
                direction_tally
                    .latencies
                    .record(now.saturating_sub(done.ctx.ticks()));
            }
            if !done.status.is_success() {
                direction_tally.errors += 1;
                fail(&mut tally.failure, direction, done.status);
            }
            free.extend(done.buf);
        });
        count(&mut tally.completed, ended, 1);
        ended
    }

    /// Shows the main thread how far the job has come.
    #[inline(always)]
    fn publish<D: Directions>(&self, progress: &Progress) {
        for direction in Direction::ALL {
            if D::ONLY.is_none_or(|only| only == direction) {
                let index = direction.index();
                let ios = self.before[index] + self.tally.directions[index].ios;
                progress.set(direction, ios);
            }
        }
    }

    /// The ramp is over: everything counted so far is forgotten.
    #[cold]
    fn begin_measurement(&mut self, plan: &Plan) {
        for (before, tally) in self.before.iter_mut().zip(&self.tally.directions) {
            *before += tally.ios;
        }
        self.tally.clear();
        if let Some(ios) = plan.ios {
            // What is outstanding will end within the measurement.
            self.budget = ios.saturating_sub(self.queue.outstanding() as u64);
        }
    }

    /// Waits for what is still outstanding, and gives the result.
    fn finish(mut self) -> Tally {
        let Self {
            queue, free, tally, ..
        } = &mut self;
        queue.drain(DRAIN_LIMIT, |done: Completion<Ticket>| {
            let direction = done.ctx.direction();
            if !done.status.is_success() {
                tally.directions[direction.index()].errors += 1;
                fail(&mut tally.failure, direction, done.status);
            }
            free.extend(done.buf);
        });
        tally.lost = queue.outstanding();
        tally.strays = queue.strays();
        self.tally
    }
}

/// Keeps the first failure.
#[cold]
fn fail(failure: &mut Option<Failure>, direction: Direction, status: Status) {
    failure.get_or_insert(Failure::Status(direction, status));
}

/// Adds to the count of a size; sizes are at most the depth, and there is a count for each.
#[inline(always)]
fn count(counts: &mut [u64], size: usize, by: u64) {
    if let Some(count) = counts.get_mut(size) {
        *count += by;
    }
}
