//! The commands of one operation, one after the other, on the queue of its caller.

use super::op::At;
use super::{Inner, Tag};
use crate::device::BlockDevice;
use crate::fs::FsError;
use crate::iostat::{IoStat, Kind, Tracked};
use driver::memory::{DmaBuf, DmaDomain};
use driver::namespace::Lba;
use driver::queue::{Rejected, SubmitError};
use driver::spec::Status;
use std::collections::VecDeque;

/// One thing to do. What says `len` takes the next bytes of the work buffer; all are whole logical
/// blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    /// Reads from the drive into the work buffer.
    Read { lba: u64, len: u32 },
    /// Writes from the work buffer to the drive.
    Write { lba: u64, len: u32 },
    /// Zeroes a part of the work buffer.
    Zeros { len: u32 },
    /// Leaves a part of the work buffer as it is.
    Keep { len: u32 },
    /// Zeroes logical blocks of the drive.
    Clear { lba: u64, blocks: u64 },
    /// Zeroes the bytes `from..to` of one logical block of the drive.
    Patch { lba: u64, from: u32, to: u32 },
    /// Tells the drive that blocks are free.
    Discard { lba: u64, blocks: u64 },
}

/// Where the work buffer is while a script runs.
#[derive(Debug, Default)]
pub(super) struct Script {
    todo: VecDeque<Io>,
    /// What was worked on already, from the start of the buffer.
    done: Option<DmaBuf>,
    /// What follows.
    rest: Option<DmaBuf>,
    under_way: Option<UnderWay>,
    /// A buffer of its own, for zeros and for patches.
    side: Option<DmaBuf>,
    failed: Option<FsError>,
}

/// What the command that was submitted last is for.
#[derive(Clone, Copy, Debug)]
enum UnderWay {
    /// It has a piece of the work buffer.
    Piece,
    /// It zeroes blocks, of which these are left.
    Clear { lba: u64, left: u64 },
    /// It has read the block that is to be patched.
    PatchRead { lba: u64, from: u32, to: u32 },
    /// It has the side buffer, or none.
    Side,
}

/// What a command returned.
pub(super) type Returned = (Option<DmaBuf>, Status);

/// What a rejected command leaves: its buffer if it is to be tried again.
enum Submitted {
    Yes,
    Full(Option<DmaBuf>),
    Refused(Option<DmaBuf>, FsError),
}

/// Zeros that are written at a time where the drive cannot do it itself.
const ZEROS_BYTES: u64 = 64 << 10;

impl Script {
    pub(super) fn new(todo: impl IntoIterator<Item = Io>, work: Option<DmaBuf>) -> Self {
        Self {
            todo: todo.into_iter().collect(),
            rest: work,
            ..Self::default()
        }
    }

    /// The work buffer, when nothing is under way.
    pub(super) fn into_work(self) -> Option<DmaBuf> {
        join(self.done, self.rest)
    }

    /// Goes on as far as it goes. `None`: a command is under way, or the queue is full.
    pub(super) fn go_on<T, Q, D, S>(
        &mut self,
        at: &mut At<'_, Q, D, S>,
        returned: &mut Option<Returned>,
    ) -> Option<Result<(), FsError>>
    where
        Q: BlockDevice<Tag<T, S>>,
        S: IoStat,
    {
        loop {
            if let Some(under_way) = self.under_way {
                let (buf, status) = returned.take()?;
                self.under_way = None;
                self.ended(under_way, buf, status);
            }
            if let Some(error) = self.failed.take() {
                self.todo.clear();
                return Some(Err(error));
            }
            let Some(io) = self.todo.front().copied() else {
                return Some(Ok(()));
            };
            match self.begin(io, at) {
                Submitted::Yes => {
                    self.todo.pop_front();
                }
                Submitted::Full(buf) => {
                    self.put_back(io, buf);
                    return None;
                }
                Submitted::Refused(buf, error) => {
                    self.put_back(io, buf);
                    self.failed = Some(error);
                }
            }
        }
    }

    /// Begins one thing; what needs no command is done at once.
    fn begin<T, Q, D, S>(&mut self, io: Io, at: &mut At<'_, Q, D, S>) -> Submitted
    where
        Q: BlockDevice<Tag<T, S>>,
        S: IoStat,
    {
        match io {
            Io::Read { lba, len } => {
                let Some(piece) = self.take(len) else {
                    return Submitted::Refused(None, short());
                };
                let tag = at.tag(Kind::Read, len.into());
                self.submitted(UnderWay::Piece, at.device.read(Lba(lba), piece, tag), at)
            }
            Io::Write { lba, len } => {
                let Some(piece) = self.take(len) else {
                    return Submitted::Refused(None, short());
                };
                let tag = at.tag(Kind::Write, len.into());
                let result = at.device.write(Lba(lba), piece, false, tag);
                self.submitted(UnderWay::Piece, result, at)
            }
            Io::Zeros { len } | Io::Keep { len } => {
                if let Some(mut piece) = self.take(len) {
                    if matches!(io, Io::Zeros { .. }) {
                        piece.fill(0);
                    }
                    self.done = join(self.done.take(), Some(piece));
                }
                Submitted::Yes
            }
            Io::Clear { lba, blocks } => self.clear(lba, blocks, at),
            Io::Patch { lba, from, to } => match self.side(1 << at.lba_shift, &at.shared.domain) {
                Ok(buf) => {
                    let tag = at.tag(Kind::Read, 1 << at.lba_shift);
                    let result = at.device.read(Lba(lba), buf, tag);
                    self.submitted(UnderWay::PatchRead { lba, from, to }, result, at)
                }
                Err(error) => Submitted::Refused(None, error),
            },
            Io::Discard { lba, blocks } => {
                let tag = at.tag(Kind::Discard, blocks << at.lba_shift);
                let result = at.device.discard(Lba(lba), blocks, tag);
                self.submitted(UnderWay::Side, result, at)
            }
        }
    }

    fn clear<T, Q, D, S>(&mut self, lba: u64, blocks: u64, at: &mut At<'_, Q, D, S>) -> Submitted
    where
        Q: BlockDevice<Tag<T, S>>,
        S: IoStat,
    {
        if blocks == 0 {
            return Submitted::Yes;
        }
        if at.shared.limits.write_zeroes && blocks << at.lba_shift > ZEROS_BYTES {
            let tag = at.tag(Kind::Write, blocks << at.lba_shift);
            let result = at.device.write_zeroes(Lba(lba), blocks, tag);
            return self.submitted(UnderWay::Side, result, at);
        }
        let now = blocks.min(ZEROS_BYTES >> at.lba_shift);
        // At most ZEROS_BYTES.
        let bytes = usize::try_from(now << at.lba_shift).unwrap_or(0);
        let mut buf = match self.side(bytes, &at.shared.domain) {
            Ok(buf) => buf,
            Err(error) => return Submitted::Refused(None, error),
        };
        buf.fill(0);
        let tag = at.tag(Kind::Write, now << at.lba_shift);
        let under_way = UnderWay::Clear {
            lba: lba + now,
            left: blocks - now,
        };
        let result = at.device.write(Lba(lba), buf, false, tag);
        self.submitted(under_way, result, at)
    }

    fn submitted<T, Q, D, S: IoStat>(
        &mut self,
        under_way: UnderWay,
        result: Result<(), Rejected<Tag<T, S>>>,
        at: &mut At<'_, Q, D, S>,
    ) -> Submitted {
        match result {
            Ok(()) => {
                at.submitted = true;
                self.under_way = Some(under_way);
                Submitted::Yes
            }
            Err(rejected) => {
                // The context is this operation's slot: there is nothing to give back.
                let _ = rejected.ctx.0.cancel();
                match rejected.reason {
                    SubmitError::Full => Submitted::Full(rejected.buf),
                    other => Submitted::Refused(rejected.buf, FsError::Rejected(other)),
                }
            }
        }
    }

    /// A command has ended.
    fn ended(&mut self, under_way: UnderWay, buf: Option<DmaBuf>, status: Status) {
        match under_way {
            UnderWay::Piece => self.done = join(self.done.take(), buf),
            UnderWay::Side => self.side = buf.or(self.side.take()),
            UnderWay::Clear { lba, left } => {
                self.side = buf;
                if left > 0 {
                    self.todo.push_front(Io::Clear { lba, blocks: left });
                }
            }
            UnderWay::PatchRead { lba, from, to } => {
                let mut rest = buf;
                if let Some(buf) = rest.as_mut() {
                    zero(buf, from as usize, to as usize);
                    let len = buf.len32();
                    // It is written as if it were the next piece of the work buffer, and comes back
                    // as one: the scripts that patch have no work buffer.
                    self.todo.push_front(Io::Write { lba, len });
                }
                self.side = None;
                self.done = None;
                self.rest = rest;
            }
        }
        if !status.is_success() {
            self.failed = Some(FsError::Device(status));
        }
    }

    /// The next `len` bytes of the work buffer.
    fn take(&mut self, len: u32) -> Option<DmaBuf> {
        let rest = self.rest.take()?;
        if rest.len32() <= len {
            return Some(rest);
        }
        match rest.split_at(len as usize) {
            Ok((piece, rest)) => {
                self.rest = Some(rest);
                Some(piece)
            }
            Err((whole, _)) => {
                self.rest = Some(whole);
                None
            }
        }
    }

    /// A command was not taken: its buffer goes back to where it was.
    fn put_back(&mut self, io: Io, buf: Option<DmaBuf>) {
        match io {
            Io::Read { .. } | Io::Write { .. } => self.rest = join(buf, self.rest.take()),
            _ => self.side = buf.or(self.side.take()),
        }
    }

    /// A buffer of `bytes` of the script's own.
    fn side(&mut self, bytes: usize, domain: &DmaDomain) -> Result<DmaBuf, FsError> {
        match self.side.take() {
            Some(buf) if buf.len() == bytes => Ok(buf),
            _ => Ok(domain.alloc(bytes)?),
        }
    }
}

impl<Q, D, S: IoStat> At<'_, Q, D, S> {
    fn tag<T>(&self, kind: Kind, bytes: u64) -> Tag<T, S> {
        Tag(Tracked::submit(
            self.stat,
            kind,
            bytes,
            Inner::Part(self.slot),
        ))
    }
}

/// One buffer of two neighbours.
fn join(first: Option<DmaBuf>, second: Option<DmaBuf>) -> Option<DmaBuf> {
    match (first, second) {
        (Some(first), Some(second)) => match first.join(second) {
            Ok(whole) => Some(whole),
            // They were split from one buffer.
            Err((first, _)) => Some(first),
        },
        (first, second) => first.or(second),
    }
}

fn short() -> FsError {
    FsError::Busy("its work buffer is shorter than its range")
}

/// Zeroes `from..to` of a buffer.
pub(super) fn zero(buf: &mut DmaBuf, from: usize, to: usize) {
    const ZEROS: [u8; 512] = [0; 512];
    let to = to.min(buf.len());
    let mut at = from;
    while at < to {
        let len = (to - at).min(ZEROS.len());
        // Within the buffer.
        let _ = buf.write_at(at, ZEROS.get(..len).unwrap_or(&ZEROS));
        at += len;
    }
}

/// Copies `len` bytes from one buffer to another.
pub(super) fn copy(from: &DmaBuf, from_at: usize, to: &mut DmaBuf, to_at: usize, len: usize) {
    let mut chunk = [0; 4096];
    let mut moved = 0;
    while moved < len {
        let now = (len - moved).min(chunk.len());
        let Some(part) = chunk.get_mut(..now) else {
            return;
        };
        if from.read_at(from_at + moved, part).is_err() || to.write_at(to_at + moved, part).is_err()
        {
            return;
        }
        moved += now;
    }
}
