//! The contents of files, several pieces of several files on their way at the same time.

use super::progress::Progress;
use super::side::{Handle, Node, Side, read_all};
use crate::error::ToolError;
use crate::volume::{Queue, Volume};
use blockfs::file::{Done, WriteFlags};
use blockfs::fs::{FsError, Refused};
use driver::clock::{Deadline, SystemClock};
use driver::memory::{DmaBuf, DmaDomain};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// Pieces under way.
const DEPTH: usize = 24;
/// How long nothing may end while something is under way.
const LIMIT: Duration = Duration::from_secs(60);
/// Buffers for volumes are whole blocks where their length does not matter.
const BLOCK: usize = 4096;

/// A piece of a file on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Which file.
    job: usize,
    offset: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Read,
    Write,
    /// The target's size is set.
    Size,
}

/// A file that is copied.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) source: Handle,
    pub(super) target: Handle,
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) node: Node,
}

#[derive(Debug)]
struct Started {
    job: Job,
    under_way: u32,
    /// Whether all of its pieces were begun.
    begun: bool,
    failed: Option<ToolError>,
}

/// What copies contents from one side to the other.
#[derive(Debug)]
pub(super) struct Transfer<'v> {
    from: Side<'v>,
    to: Side<'v>,
    /// One for each volume, and which of them is whose.
    queues: Vec<Queue<Piece>>,
    from_queue: usize,
    to_queue: usize,
    domain: DmaDomain,
    /// Of PIECE bytes.
    buffers: Vec<DmaBuf>,
    scratch: Vec<u8>,
    jobs: Vec<Option<Started>>,
    under_way: usize,
    interrupt: Arc<AtomicBool>,
    pub(super) progress: Progress,
    /// Bytes that were moved.
    pub(super) bytes: u64,
    /// Files that ended well.
    pub(super) files: u64,
    /// What went wrong and was not told yet.
    pub(super) failures: Vec<ToolError>,
}

impl<'v> Transfer<'v> {
    pub(super) fn new(
        (from, to): (Side<'v>, Side<'v>),
        domain: &DmaDomain,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Self, ToolError> {
        let mut queues = Vec::new();
        let mut add = |volume: &Volume| {
            queues.push(volume.queue()?);
            Ok::<usize, ToolError>(queues.len() - 1)
        };
        let from_queue = match from {
            Side::Volume(volume) => add(volume)?,
            Side::Host => 0,
        };
        let to_queue = match (from, to) {
            (Side::Volume(a), Side::Volume(b)) if std::ptr::eq(a, b) => from_queue,
            (_, Side::Volume(volume)) => add(volume)?,
            (_, Side::Host) => 0,
        };
        Ok(Self {
            from,
            to,
            queues,
            from_queue,
            to_queue,
            domain: domain.clone(),
            buffers: Vec::new(),
            scratch: vec![0; PIECE],
            jobs: Vec::new(),
            under_way: 0,
            interrupt,
            progress: Progress::new(),
            bytes: 0,
            files: 0,
            failures: Vec::new(),
        })
    }

    /// Begins to copy a file; waits until its last piece is under way.
    ///
    /// # Errors
    /// [`ToolError`]: no more can be copied. What is wrong with a file alone is in `failures`.
    pub(super) fn copy(&mut self, job: Job) -> Result<(), ToolError> {
        let node = job.node;
        let started = Started {
            job,
            under_way: 0,
            begun: false,
            failed: None,
        };
        let id = match self.jobs.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.jobs.push(None);
                self.jobs.len() - 1
            }
        };
        if let Some(place) = self.jobs.get_mut(id) {
            *place = Some(started);
        }
        let result = match node.has_holes {
            true => self.copy_data(id, &node),
            false => self.copy_range(id, 0, node.size).map(drop),
        };
        if let Some(started) = self.started(id) {
            started.begun = true;
        }
        self.finish(id);
        result
    }

    /// A file with holes: its size first, then what is between them.
    fn copy_data(&mut self, id: usize, node: &Node) -> Result<(), ToolError> {
        self.set_size(id, node.size)?;
        let from = self.from;
        let mut at = 0;
        while at < node.size {
            let Some(started) = self.started(id) else {
                return Ok(());
            };
            let job = &started.job;
            match from.next_data(&job.source, &job.from, at, node.size) {
                Ok(Some((start, end))) => {
                    if !self.copy_range(id, start, end)? {
                        return Ok(());
                    }
                    at = end;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.fail(id, error);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn set_size(&mut self, id: usize, size: u64) -> Result<(), ToolError> {
        let (to, queue) = (self.to, self.to_queue);
        let Self { jobs, queues, .. } = self;
        let Some(Some(started)) = jobs.get_mut(id) else {
            return Ok(());
        };
        let piece = Piece {
            job: id,
            offset: 0,
            stage: Stage::Size,
        };
        let job = &started.job;
        let done = match (&job.target, queues.get_mut(queue)) {
            (Handle::Host(file), _) => {
                let set = file.set_len(size);
                set.map_err(|error| Side::host_error(&job.to, error))
            }
            (Handle::Volume(file), Some(queue)) => match queue.truncate(file, size, piece) {
                Ok(()) => {
                    started.under_way += 1;
                    self.under_way += 1;
                    Ok(())
                }
                Err(refused) => Err(refused_by(to, &job.to, refused)),
            },
            (Handle::Volume(_), None) => Ok(()),
        };
        if let Err(error) = done {
            self.fail(id, error);
        }
        // The order of what is under way is nobody's promise.
        self.wait(0)
    }

    /// Begins the pieces of a range. `false`: there is no more of the file.
    fn copy_range(&mut self, id: usize, start: u64, end: u64) -> Result<bool, ToolError> {
        let mut at = start;
        while at < end {
            if self.interrupt.load(Ordering::Relaxed) {
                self.fail(id, ToolError::Interrupted);
                return Err(ToolError::Interrupted);
            }
            self.wait(DEPTH - 1)?;
            // At most PIECE.
            let len = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            let more = match self.begin(id, at, len) {
                Ok(more) => more,
                Err(error) => {
                    self.fail(id, error);
                    false
                }
            };
            if !more {
                return Ok(false);
            }
            at += len as u64;
        }
        Ok(true)
    }

    /// Begins a piece.
    fn begin(&mut self, id: usize, offset: u64, len: usize) -> Result<bool, ToolError> {
        let piece = Piece {
            job: id,
            offset,
            stage: Stage::Read,
        };
        let exact = match self.to {
            Side::Volume(_) => len,
            // What is behind the end is not read.
            Side::Host => len.next_multiple_of(BLOCK),
        };
        let from = self.from;
        let Some(Some(started)) = self.jobs.get_mut(id) else {
            return Ok(false);
        };
        if started.failed.is_some() {
            return Ok(false);
        }
        let job = &started.job;
        match &job.source {
            Handle::Host(file) => {
                let scratch = self.scratch.get_mut(..len).unwrap_or_default();
                let read = read_all(file, offset, scratch);
                let read = read.map_err(|error| Side::host_error(&job.from, error))?;
                if read > 0 {
                    let mut buf = self.buffer(read)?;
                    buf.write_at(0, self.scratch.get(..read).unwrap_or_default())?;
                    self.write(piece, buf);
                }
                // A file that has become shorter ends there.
                Ok(read == len)
            }
            Handle::Volume(_) => {
                let buf = self.buffer(exact)?;
                let queue = self.from_queue;
                let Self { jobs, queues, .. } = self;
                let (Some(Some(started)), Some(queue)) = (jobs.get_mut(id), queues.get_mut(queue))
                else {
                    return Ok(false);
                };
                let Handle::Volume(file) = &started.job.source else {
                    return Ok(false);
                };
                match queue.read_at(file, offset, buf, piece) {
                    Ok(()) => {
                        started.under_way += 1;
                        self.under_way += 1;
                        queue.ring();
                        Ok(true)
                    }
                    Err(refused) => Err(refused_by(from, &started.job.from, refused)),
                }
            }
        }
    }

    /// The second half of a piece, into a volume.
    fn write(&mut self, piece: Piece, buf: DmaBuf) {
        let (to, queue) = (self.to, self.to_queue);
        let Self { jobs, queues, .. } = self;
        let (Some(Some(started)), Some(queue)) = (jobs.get_mut(piece.job), queues.get_mut(queue))
        else {
            return;
        };
        let piece = Piece {
            stage: Stage::Write,
            ..piece
        };
        let Handle::Volume(file) = &started.job.target else {
            return;
        };
        self.bytes += buf.len() as u64;
        match queue.write_at(file, piece.offset, buf, WriteFlags::NONE, piece) {
            Ok(()) => {
                started.under_way += 1;
                self.under_way += 1;
                queue.ring();
            }
            Err(refused) => {
                let error = refused_by(to, &started.job.to, refused);
                self.fail(piece.job, error);
            }
        }
    }

    /// The second half of a piece, to the host.
    fn write_host(&mut self, piece: Piece, buf: &DmaBuf, read: usize) {
        let Self { jobs, scratch, .. } = self;
        let Some(Some(started)) = jobs.get_mut(piece.job) else {
            return;
        };
        let Handle::Host(file) = &started.job.target else {
            return;
        };
        let bytes = scratch.get_mut(..read).unwrap_or_default();
        let written = match buf.read_at(0, bytes) {
            Ok(()) => {
                self.bytes += read as u64;
                let written = file.write_all_at(bytes, piece.offset);
                written.map_err(|error| Side::host_error(&started.job.to, error))
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            self.fail(piece.job, error);
        }
    }

    /// Waits until at most `most` pieces are under way.
    ///
    /// # Errors
    /// [`ToolError::Silent`].
    pub(super) fn wait(&mut self, most: usize) -> Result<(), ToolError> {
        let clock = SystemClock::new();
        let mut deadline = Deadline::after(&clock, LIMIT);
        while self.under_way > most {
            if self.turn() > 0 {
                deadline = Deadline::after(&clock, LIMIT);
            } else if !deadline.wait_turn() {
                let side = match self.to {
                    Side::Volume(_) => self.to,
                    Side::Host => self.from,
                };
                let Side::Volume(volume) = side else {
                    return Ok(());
                };
                return Err(ToolError::Silent {
                    device: volume.drive().name().to_owned(),
                    seconds: LIMIT.as_secs(),
                });
            }
        }
        Ok(())
    }

    /// Moves everything on; says how many pieces moved.
    fn turn(&mut self) -> usize {
        let mut ended = Vec::new();
        for queue in &mut self.queues {
            queue.ring();
            queue.poll(|done| ended.push(done));
        }
        let moved = ended.len();
        for done in ended {
            self.ended(done);
        }
        if moved > 0 {
            self.progress.show(self.files, self.bytes);
        }
        moved
    }

    fn ended(&mut self, done: Done<Piece>) {
        let Done { ctx, buf, result } = done;
        self.under_way -= 1;
        let (from, to) = (self.from, self.to);
        let Some(started) = self.started(ctx.job) else {
            return;
        };
        started.under_way -= 1;
        let (side, path) = match ctx.stage {
            Stage::Read => (from, &started.job.from),
            Stage::Write | Stage::Size => (to, &started.job.to),
        };
        match result {
            Err(error) => {
                let error = error_of(side, path, error);
                self.fail(ctx.job, error);
            }
            Ok(bytes) if ctx.stage == Stage::Read => {
                if let Some(buf) = buf {
                    // Not more than the buffer.
                    let read = usize::try_from(bytes).unwrap_or(0).min(buf.len());
                    match to {
                        Side::Volume(_) => self.write(ctx, buf),
                        Side::Host => {
                            self.write_host(ctx, &buf, read);
                            self.keep(buf);
                        }
                    }
                }
            }
            Ok(_) => {
                if let Some(buf) = buf {
                    self.keep(buf);
                }
            }
        }
        self.finish(ctx.job);
    }

    /// If all pieces of a file have ended: its attributes, and it is done.
    fn finish(&mut self, id: usize) {
        let ended = |started: &Started| started.begun && started.under_way == 0;
        let Some(place) = self.jobs.get_mut(id) else {
            return;
        };
        let Some(started) = place.take_if(|started| ended(started)) else {
            return;
        };
        let Job {
            target, to, node, ..
        } = &started.job;
        let result = match started.failed {
            Some(error) => Err(error),
            None => self.to.set_file_attrs(target, to, node),
        };
        match result {
            Ok(()) => self.files += 1,
            Err(error) => self.failures.push(error),
        }
    }

    fn started(&mut self, id: usize) -> Option<&mut Started> {
        self.jobs.get_mut(id)?.as_mut()
    }

    /// The first failure of a file counts.
    fn fail(&mut self, id: usize, error: ToolError) {
        if let Some(started) = self.started(id) {
            started.failed.get_or_insert(error);
        }
    }

    fn buffer(&mut self, len: usize) -> Result<DmaBuf, ToolError> {
        if len == PIECE
            && let Some(buf) = self.buffers.pop()
        {
            return Ok(buf);
        }
        Ok(self.domain.alloc(len)?)
    }

    fn keep(&mut self, buf: DmaBuf) {
        if buf.len() == PIECE && self.buffers.len() < DEPTH {
            self.buffers.push(buf);
        }
    }
}

fn error_of(side: Side<'_>, path: &[u8], error: FsError) -> ToolError {
    ToolError::volume(side.place(path), error)
}

fn refused_by(side: Side<'_>, path: &[u8], refused: Refused<Piece>) -> ToolError {
    error_of(side, path, refused.reason)
}
