//! A simulated drive: blockfs's device trait on the project's media model, in virtual time.
//!
//! Commands end after a latency, in an order that a seed decides, when somebody polls: time passes to
//! the next end if nothing has ended yet. Reads and writes move their data when they end. Errors are
//! injected by the number of a command. Everything is logged, if asked for, for [`crate::states`].

use crate::contents::Contents;
use crate::states::{Event, Log};
use blockfs::device::{BlockDevice, Limits};
use driver::clock::Clock;
use driver::memory::DmaBuf;
use driver::namespace::Lba;
use driver::queue::{Completion, Rejected, SubmitError};
use driver::spec::Status;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many commands of each kind were submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes, FUA or not.
    pub writes: u64,
    /// Of these, those with FUA.
    pub fua: u64,
    /// Flushes.
    pub flushes: u64,
    /// Write Zeroes.
    pub zeroes: u64,
    /// Discards.
    pub discards: u64,
}

/// Which commands fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail {
    /// None.
    Never,
    /// That one.
    Once(u64),
    /// That one and all that follow.
    From(u64),
}

/// How a drive behaves.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// Whether completed writes may be lost.
    pub volatile_cache: bool,
    /// What a command takes.
    pub latency: Duration,
    /// Decides the order in which commands end.
    pub seed: u64,
    /// Commands that a queue takes.
    pub depth: usize,
    /// What a poll takes, where times are measured. Without it time passes at once to the end of what a
    /// poll waits for, be that somebody else's command.
    pub poll: Option<Duration>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            volatile_cache: true,
            latency: Duration::from_micros(20),
            seed: 0,
            depth: 64,
            poll: None,
        }
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Read,
    Write { data: Arc<[u8]>, fua: bool },
    Flush,
    Zero { blocks: u64 },
    Discard,
}

#[derive(Debug)]
struct Command {
    number: u64,
    queue: u64,
    lba: u64,
    kind: Kind,
}

/// A command's number, status, and what it read.
type Ended = (u64, Status, Option<Vec<u8>>);

#[derive(Debug)]
struct Inner {
    contents: Contents,
    options: SimOptions,
    fail: Fail,
    rng: fastrand::Rng,
    now: Duration,
    next: u64,
    queues: u64,
    /// By the time of their end, and number.
    under_way: BTreeMap<(Duration, u64), Command>,
    /// Ended, not polled: by queue. With what a read found.
    ended: HashMap<u64, Vec<Ended>>,
    reads: HashMap<u64, usize>,
    counts: Counts,
    log: Option<Log>,
}

/// A simulated drive. Clones are the same one.
#[derive(Clone, Debug)]
pub struct SimNvme(Arc<Mutex<Inner>>);

impl SimNvme {
    /// A drive that holds `contents`.
    #[must_use]
    pub fn new(contents: Contents, options: SimOptions) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            contents,
            options,
            fail: Fail::Never,
            rng: fastrand::Rng::with_seed(options.seed),
            now: Duration::ZERO,
            next: 0,
            queues: 0,
            under_way: BTreeMap::new(),
            ended: HashMap::new(),
            reads: HashMap::new(),
            counts: Counts::default(),
            log: None,
        })))
    }

    /// A queue.
    #[must_use]
    pub fn queue<T>(&self) -> SimQueue<T> {
        let mut inner = self.lock();
        let id = inner.queues;
        inner.queues += 1;
        SimQueue {
            drive: self.clone(),
            id,
            slots: HashMap::new(),
        }
    }

    /// Its clock: virtual time.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    /// Which commands fail from now on; they are numbered from 0, see [`SimNvme::commands`].
    pub fn fail(&self, fail: Fail) {
        self.lock().fail = fail;
    }

    /// Commands that were submitted.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.lock().next
    }

    /// The same, by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Logs every command from now on, starting with what the drive holds now.
    pub fn start_log(&self) {
        let mut inner = self.lock();
        let log = Log {
            start: Arc::new(inner.contents.image()),
            lba_bytes: inner.contents.lba_bytes(),
            volatile_cache: inner.options.volatile_cache,
            events: Vec::new(),
        };
        inner.log = Some(log);
    }

    /// Events that were logged.
    #[must_use]
    pub fn logged(&self) -> usize {
        self.lock().log.as_ref().map_or(0, |log| log.events.len())
    }

    /// The log, which ends.
    #[must_use]
    pub fn take_log(&self) -> Option<Log> {
        self.lock().log.take()
    }

    /// What it holds.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        self.lock().contents.image()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SimNvme {
    fn now(&self) -> Duration {
        self.lock().now
    }

    fn pause(&self, duration: Duration) {
        let mut inner = self.lock();
        let until = inner.now + duration.max(Duration::from_nanos(100));
        inner.pass_to(until);
    }
}

impl Inner {
    fn submit(&mut self, queue: u64, lba: u64, kind: Kind) -> u64 {
        let number = self.next;
        self.next += 1;
        match &kind {
            Kind::Read => self.counts.reads += 1,
            Kind::Write { fua, .. } => {
                self.counts.writes += 1;
                self.counts.fua += u64::from(*fua);
            }
            Kind::Flush => self.counts.flushes += 1,
            Kind::Zero { .. } => self.counts.zeroes += 1,
            Kind::Discard => self.counts.discards += 1,
        }
        if let Some(log) = &mut self.log {
            match &kind {
                Kind::Write { data, fua } => log.events.push(Event::Write {
                    number,
                    lba,
                    data: Arc::clone(data),
                    fua: *fua,
                }),
                Kind::Flush => log.events.push(Event::Flush { number }),
                Kind::Zero { blocks } => {
                    let bytes = usize::try_from(*blocks).unwrap_or(0) * log.lba_bytes;
                    log.events.push(Event::Write {
                        number,
                        lba,
                        data: vec![0; bytes].into(),
                        fua: false,
                    });
                }
                Kind::Read | Kind::Discard => {}
            }
        }
        let latency = self.options.latency;
        let jitter = latency.mul_f64(self.rng.f64() * 0.5);
        let command = Command {
            number,
            queue,
            lba,
            kind,
        };
        self.under_way
            .insert((self.now + latency + jitter, number), command);
        number
    }

    fn pass_to(&mut self, until: Duration) {
        while let Some(first) = self.under_way.first_entry() {
            if first.key().0 > until {
                break;
            }
            self.now = self.now.max(first.key().0);
            let command = first.remove();
            self.end(command);
        }
        self.now = self.now.max(until);
    }

    fn end(&mut self, command: Command) {
        let Command {
            number,
            queue,
            lba,
            kind,
        } = command;
        let fails = match self.fail {
            Fail::Never => false,
            Fail::Once(which) => number == which,
            Fail::From(which) => number >= which,
        };
        let mut data = None;
        let ok = !fails
            && match &kind {
                Kind::Read => {
                    let mut out = vec![0; self.reads.remove(&number).unwrap_or(0)];
                    let ok = self.contents.read(lba, &mut out);
                    data = Some(out);
                    ok
                }
                Kind::Write { data, fua } => self.contents.write(lba, data, *fua),
                Kind::Flush => self.contents.flush(),
                Kind::Zero { blocks } => {
                    let bytes = usize::try_from(*blocks).unwrap_or(0) * self.contents.lba_bytes();
                    self.contents.write(lba, &vec![0; bytes], false)
                }
                Kind::Discard => true,
            };
        let status = match (ok, &kind) {
            (true, _) => Status::SUCCESS,
            (false, Kind::Read) => Status::UNRECOVERED_READ,
            (false, _) => Status::WRITE_FAULT,
        };
        if let Some(log) = &mut self.log
            && !matches!(kind, Kind::Read | Kind::Discard)
        {
            log.events.push(Event::End { number, ok });
        }
        self.ended
            .entry(queue)
            .or_default()
            .push((number, status, data));
    }
}

/// A queue of a simulated drive.
#[derive(Debug)]
pub struct SimQueue<T> {
    drive: SimNvme,
    id: u64,
    slots: HashMap<u64, (Option<DmaBuf>, T)>,
}

impl<T> SimQueue<T> {
    fn submit(
        &mut self,
        lba: Lba,
        kind: Kind,
        buf: Option<DmaBuf>,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        let mut inner = self.drive.lock();
        if self.slots.len() >= inner.options.depth {
            let reason = SubmitError::Full;
            return Err(Rejected { reason, buf, ctx });
        }
        let lba_bytes = inner.contents.lba_bytes() as u64;
        let bytes = match &kind {
            Kind::Zero { blocks } => blocks * lba_bytes,
            _ => buf.as_ref().map_or(0, |buf| buf.len() as u64),
        };
        let capacity = inner.contents.blocks();
        let blocks = bytes.div_ceil(lba_bytes);
        if lba.0 + blocks > capacity || bytes % lba_bytes != 0 {
            let reason = SubmitError::OutOfRange {
                lba: lba.0,
                blocks,
                capacity,
            };
            return Err(Rejected { reason, buf, ctx });
        }
        let is_read = matches!(kind, Kind::Read);
        let number = inner.submit(self.id, lba.0, kind);
        if is_read {
            inner
                .reads
                .insert(number, usize::try_from(bytes).unwrap_or(0));
        }
        drop(inner);
        self.slots.insert(number, (buf, ctx));
        Ok(())
    }
}

impl<T> BlockDevice<T> for SimQueue<T> {
    fn limits(&self) -> Limits {
        let inner = self.drive.lock();
        Limits {
            blocks: inner.contents.blocks(),
            block_size: u32::try_from(inner.contents.lba_bytes()).unwrap_or(0),
            volatile_cache: inner.options.volatile_cache,
            write_zeroes: true,
            discard: true,
        }
    }

    fn read(&mut self, lba: Lba, buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>> {
        self.submit(lba, Kind::Read, Some(buf), ctx)
    }

    fn write(&mut self, lba: Lba, buf: DmaBuf, fua: bool, ctx: T) -> Result<(), Rejected<T>> {
        let mut data = vec![0; buf.len()];
        // As long as the buffer.
        let _ = buf.read_at(0, &mut data);
        let data = data.into();
        self.submit(lba, Kind::Write { data, fua }, Some(buf), ctx)
    }

    fn flush(&mut self, ctx: T) -> Result<(), Rejected<T>> {
        self.submit(Lba(0), Kind::Flush, None, ctx)
    }

    fn write_zeroes(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.submit(lba, Kind::Zero { blocks }, None, ctx)
    }

    fn discard(&mut self, lba: Lba, _: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.submit(lba, Kind::Discard, None, ctx)
    }

    fn ring(&mut self) {}

    fn poll(&mut self, mut each: impl FnMut(Completion<T>)) -> usize {
        let mut inner = self.drive.lock();
        // Time passes to the next end, if this queue waits for one; not always at once, so that more is
        // done meanwhile.
        if let Some(poll) = inner.options.poll {
            let until = inner.now + poll;
            inner.pass_to(until);
        } else if !self.slots.is_empty()
            && inner.rng.bool()
            && inner.ended.get(&self.id).is_none_or(Vec::is_empty)
            && let Some((&(next, _), _)) = inner.under_way.first_key_value()
        {
            inner.pass_to(next);
        }
        let ended = inner.ended.remove(&self.id).unwrap_or_default();
        drop(inner);
        let count = ended.len();
        for (number, status, data) in ended {
            let Some((mut buf, ctx)) = self.slots.remove(&number) else {
                continue;
            };
            if let (Some(buf), Some(data)) = (buf.as_mut(), data) {
                let _ = buf.write_at(0, &data);
            }
            each(Completion {
                ctx,
                buf,
                status,
                result: 0,
            });
        }
        count
    }
}
