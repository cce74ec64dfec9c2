//! A small drive in memory: a cache that a power cut loses, errors, any order of completions.

use crate::device::{BlockDevice, Limits};
use crate::journal::MetaTag;
use driver::clock::Clock;
use driver::memory::DmaBuf;
use driver::namespace::Lba;
use driver::queue::{Completion, Rejected, SubmitError};
use driver::spec::Status;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Numbers from a seed (xorshift).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// A clock on which each turn takes a microsecond.
#[derive(Debug, Default)]
pub(super) struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn pause(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap().max(1);
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Fua,
    Flush,
    Zero,
}

struct Command {
    kind: Kind,
    lba: usize,
    blocks: usize,
    buf: Option<DmaBuf>,
    tag: MetaTag,
    rung: bool,
    polled: u32,
    /// What a flush covers: writes that had ended when it was submitted.
    covers: u64,
}

/// Which commands of a kind fail: from the first number on, so many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    pub(super) kind: Kind,
    pub(super) after: u64,
    pub(super) status: Status,
}

struct State {
    lba_bytes: usize,
    volatile_cache: bool,
    depth: usize,
    /// What a read finds.
    view: Vec<u8>,
    /// What survives a power cut for sure.
    medium: Vec<u8>,
    /// What of `view` is in the cache only: the number of the write, the block, and what it holds.
    cached: Vec<(u64, usize, Vec<u8>)>,
    /// Writes that were cached.
    writes: u64,
    queue: Vec<Command>,
    random: Random,
    /// Commands end when polled, or not.
    held: bool,
    /// Writes without FUA take so many polls.
    slow: u32,
    failing: Option<Failing>,
    /// Logical blocks that cannot be read.
    unreadable: Vec<usize>,
    log: Vec<(Kind, usize, usize)>,
}

/// The drive; clones are the same one.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub(super) fn new(image: Vec<u8>, lba_bytes: usize, volatile_cache: bool, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            lba_bytes,
            volatile_cache,
            depth: 32,
            medium: image.clone(),
            view: image,
            cached: Vec::new(),
            writes: 0,
            queue: Vec::new(),
            random: Random::new(seed),
            held: false,
            slow: 0,
            failing: None,
            unreadable: Vec::new(),
            log: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Commands end when polled, or only later.
    pub(super) fn hold(&self, held: bool) {
        self.state().held = held;
    }

    /// Writes without FUA take so many polls.
    pub(super) fn slow(&self, polls: u32) {
        self.state().slow = polls;
    }

    pub(super) fn fail(&self, failing: Option<Failing>) {
        self.state().failing = failing;
    }

    pub(super) fn unreadable(&self, lbas: &[usize]) {
        self.state().unreadable = lbas.to_vec();
    }

    pub(super) fn depth(&self, depth: usize) {
        self.state().depth = depth;
    }

    /// The commands that were submitted since this was last asked for: kind, first block, blocks.
    pub(super) fn take_log(&self) -> Vec<(Kind, usize, usize)> {
        std::mem::take(&mut self.state().log)
    }

    /// What a read would find.
    pub(super) fn image(&self) -> Vec<u8> {
        self.state().view.clone()
    }

    /// What a power cut leaves now: of what is in the cache or under way, each block or not.
    pub(super) fn cut(&self, random: &mut Random) -> Vec<u8> {
        let state = self.state();
        let lba_bytes = state.lba_bytes;
        let mut image = state.medium.clone();
        let share = [0, 1, 2, 3, 4][usize::try_from(random.below(5)).unwrap()];
        let mut put = |lba: usize, bytes: &[u8], random: &mut Random| {
            if random.below(4) < share {
                image[lba * lba_bytes..][..lba_bytes].copy_from_slice(bytes);
            }
        };
        for (_, lba, bytes) in &state.cached {
            put(*lba, bytes, random);
        }
        for command in state.queue.iter().filter(|command| command.rung) {
            let mut bytes = vec![0; command.blocks * lba_bytes];
            match (command.kind, &command.buf) {
                (Kind::Write | Kind::Fua, Some(buf)) => buf.read_at(0, &mut bytes).unwrap(),
                (Kind::Zero, _) => {}
                _ => continue,
            }
            for (nth, block) in bytes.chunks(lba_bytes).enumerate() {
                put(command.lba + nth, block, random);
            }
        }
        image
    }

    fn submit(
        &self,
        kind: Kind,
        lba: Lba,
        blocks: usize,
        buf: Option<DmaBuf>,
        tag: MetaTag,
    ) -> Result<(), Rejected<MetaTag>> {
        let mut state = self.state();
        let lba = usize::try_from(lba.0).unwrap();
        assert!(
            (lba + blocks) * state.lba_bytes <= state.view.len(),
            "inside the drive"
        );
        if state.queue.len() >= state.depth {
            return Err(Rejected {
                reason: SubmitError::Full,
                buf,
                ctx: tag,
            });
        }
        state.log.push((kind, lba, blocks));
        let covers = state.writes;
        state.queue.push(Command {
            kind,
            lba,
            blocks,
            buf,
            tag,
            rung: false,
            polled: 0,
            covers,
        });
        Ok(())
    }
}

impl State {
    fn status(&mut self, command: &Command) -> Status {
        let blocks = command.lba..command.lba + command.blocks;
        if command.kind == Kind::Read && self.unreadable.iter().any(|lba| blocks.contains(lba)) {
            return Status::UNRECOVERED_READ;
        }
        match &mut self.failing {
            Some(failing) if failing.kind == command.kind => match failing.after.checked_sub(1) {
                Some(left) => {
                    failing.after = left;
                    Status::SUCCESS
                }
                None => failing.status,
            },
            _ => Status::SUCCESS,
        }
    }

    fn execute(&mut self, command: &mut Command) -> Status {
        let status = self.status(command);
        if !status.is_success() {
            return status;
        }
        let bytes = command.lba * self.lba_bytes..(command.lba + command.blocks) * self.lba_bytes;
        match command.kind {
            Kind::Read => {
                let buf = command.buf.as_mut().unwrap();
                buf.write_at(0, &self.view[bytes]).unwrap();
            }
            Kind::Write | Kind::Fua | Kind::Zero => {
                if let Some(buf) = &command.buf {
                    buf.read_at(0, &mut self.view[bytes.clone()]).unwrap();
                } else {
                    self.view[bytes.clone()].fill(0);
                }
                if command.kind == Kind::Fua || !self.volatile_cache {
                    self.medium[bytes.clone()].copy_from_slice(&self.view[bytes]);
                    let blocks = command.lba..command.lba + command.blocks;
                    self.cached.retain(|(_, lba, _)| !blocks.contains(lba));
                } else {
                    for lba in command.lba..command.lba + command.blocks {
                        let block = &self.view[lba * self.lba_bytes..][..self.lba_bytes];
                        self.cached.push((self.writes, lba, block.to_vec()));
                    }
                    self.writes += 1;
                }
            }
            Kind::Flush => {
                let (medium, lba_bytes) = (&mut self.medium, self.lba_bytes);
                self.cached.retain(|(write, lba, block)| {
                    let covered = *write < command.covers;
                    if covered {
                        medium[lba * lba_bytes..][..lba_bytes].copy_from_slice(block);
                    }
                    !covered
                });
            }
        }
        Status::SUCCESS
    }
}

impl BlockDevice<MetaTag> for Fake {
    fn limits(&self) -> Limits {
        let state = self.state();
        Limits {
            blocks: (state.view.len() / state.lba_bytes) as u64,
            block_size: u32::try_from(state.lba_bytes).unwrap(),
            volatile_cache: state.volatile_cache,
            write_zeroes: state.lba_bytes == 512,
            discard: false,
        }
    }

    fn read(&mut self, lba: Lba, buf: DmaBuf, tag: MetaTag) -> Result<(), Rejected<MetaTag>> {
        let blocks = buf.len() / self.state().lba_bytes;
        self.submit(Kind::Read, lba, blocks, Some(buf), tag)
    }

    fn write(
        &mut self,
        lba: Lba,
        buf: DmaBuf,
        fua: bool,
        tag: MetaTag,
    ) -> Result<(), Rejected<MetaTag>> {
        let blocks = buf.len() / self.state().lba_bytes;
        let kind = if fua { Kind::Fua } else { Kind::Write };
        self.submit(kind, lba, blocks, Some(buf), tag)
    }

    fn flush(&mut self, tag: MetaTag) -> Result<(), Rejected<MetaTag>> {
        self.submit(Kind::Flush, Lba(0), 0, None, tag)
    }

    fn write_zeroes(
        &mut self,
        lba: Lba,
        blocks: u64,
        tag: MetaTag,
    ) -> Result<(), Rejected<MetaTag>> {
        self.submit(Kind::Zero, lba, usize::try_from(blocks).unwrap(), None, tag)
    }

    fn discard(&mut self, _: Lba, _: u64, tag: MetaTag) -> Result<(), Rejected<MetaTag>> {
        Err(Rejected {
            reason: SubmitError::Full,
            buf: None,
            ctx: tag,
        })
    }

    fn ring(&mut self) {
        for command in &mut self.state().queue {
            command.rung = true;
        }
    }

    fn poll(&mut self, mut each: impl FnMut(Completion<MetaTag>)) -> usize {
        let mut ended = Vec::new();
        {
            let mut state = self.state();
            let slow = state.slow;
            for command in state.queue.iter_mut().filter(|command| command.rung) {
                command.polled += 1;
            }
            let ends = |command: &Command| {
                command.rung && (command.kind != Kind::Write || command.polled > slow)
            };
            let count = state.queue.iter().filter(|command| ends(command)).count();
            if state.held || count == 0 {
                return 0;
            }
            for _ in 0..=state.random.below(count as u64) {
                let ready: Vec<usize> = (0..state.queue.len())
                    .filter(|&nth| ends(&state.queue[nth]))
                    .collect();
                let nth = usize::try_from(state.random.below(ready.len() as u64)).unwrap();
                let mut command = state.queue.remove(ready[nth]);
                let status = state.execute(&mut command);
                let (ctx, buf) = (command.tag, command.buf);
                ended.push(Completion {
                    ctx,
                    buf,
                    status,
                    result: 0,
                });
            }
        }
        let count = ended.len();
        ended.into_iter().for_each(&mut each);
        count
    }
}
