//! Direct I/O: reads, writes, syncs, on a queue that one thread owns.
//!
//! An [`IoQueue`] is polled by its owner. Reads and overwrites of mapped blocks go from the file's
//! published map straight to the device: no lock, no allocation, nothing shared is written. Everything
//! else (holes, growth, unaligned ranges, syncs) becomes an *operation*, a small state machine that is
//! moved on when its owner polls, under the volume's lock.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the queue; the hot path |
//! | `operations.rs` | what becomes an operation, and how operations are moved on |
//! | `op.rs` | operations: what each is waiting for |
//! | `script.rs` | the commands of one operation, one after the other |
//! | `write.rs`, `truncate.rs`, `read.rs` | from requests to scripts |
//! | `blocking.rs` | one operation at a time, waited for |
#![forbid(unsafe_code)]

mod blocking;
mod op;
mod operations;
mod read;
mod script;
mod truncate;
mod write;

pub use blocking::Blocking;

use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::fs::core::{Shared, VolumeId, WriteCount};
use crate::fs::{File, FsError, Refused};
use crate::grace::{Flight, Member, Pass};
use crate::iomap::{IomapIter, MappingKind, OpFlags, SimpleLimits, read_simple};
use crate::iostat::{IoStat, Kind, Off, Tracked};
use crate::journal::MetaTag;
use crate::tree::FileMap;
use driver::memory::DmaBuf;
use driver::namespace::Lba;
use driver::queue::{Completion, Rejected, SubmitError};
use op::{Request, Slots};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    dsync: bool,
}

impl WriteFlags {
    /// It ends when the drive has the data, be it in its cache.
    pub const NONE: Self = Self { dsync: false };
    /// It ends when the data, and what is needed to find them, survive a power cut.
    pub const DSYNC: Self = Self { dsync: true };
}

/// An operation that has ended.
#[derive(Debug)]
#[must_use = "it carries the result and the buffer"]
pub struct Done<T> {
    /// What the caller gave.
    pub ctx: T,
    /// The buffer that the caller gave.
    pub buf: Option<DmaBuf>,
    /// Bytes read, written or discarded; 0 for what moves none.
    pub result: Result<u64, FsError>,
}

/// What a queue's device carries with each command.
pub struct Tag<T, S: IoStat = Off>(Tracked<Inner<T>, S>);

/// Whose the command is.
enum Inner<T> {
    /// A request of one command.
    Single(T, Pass),
    /// A command of the operation in this slot.
    Part(u32),
}

/// Why a request is not one command that the device has taken.
enum Unusual<T, S: IoStat> {
    /// The file is not open for it, or of another volume.
    NotFor(DmaBuf, T),
    /// It is not simple.
    General(DmaBuf, T, Pass),
    /// The device did not take it.
    Rejected(Rejected<Tag<T, S>>),
}

impl<T, S: IoStat> fmt::Debug for Tag<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag")
    }
}

/// One thread's way to the files of a volume.
///
/// `Q` is the device queue, `T` what the caller gets back with each completion, `D` the volume's own
/// queue, `S` the statistics. See [`Blockfs`](crate::fs::Blockfs) for an example.
///
/// What is submitted becomes visible to the drive with [`IoQueue::ring`] and ends in
/// [`IoQueue::poll`]. Dropping the queue drops its operations; those under way may or may not have
/// happened.
pub struct IoQueue<Q, T, D, S: IoStat = Off>
where
    Q: BlockDevice<Tag<T, S>>,
    D: BlockDevice<MetaTag>,
{
    device: Q,
    member: Member,
    stat: S,
    volume: VolumeId,
    lba_shift: u32,
    align_mask: u64,
    simple: SimpleLimits,
    /// Whether the drive's cache is volatile: a durable write needs FUA then.
    fua: bool,
    /// Operations that have ended and were not handed over yet.
    ready: VecDeque<Done<T>>,
    /// Dropped after the device, so that no command is under way any more then.
    back: Back<T, D>,
}

/// What a queue has to do with others.
struct Back<T, D: BlockDevice<MetaTag>> {
    slots: Slots<T>,
    /// Completed writes that may be in the drive's cache. Nobody else writes it.
    writes: WriteCount,
    shared: Arc<Shared<D>>,
}

impl<T, D: BlockDevice<MetaTag>> Drop for Back<T, D> {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        self.slots.abandon(&mut core);
        core.remove_queue(&self.writes);
    }
}

impl<Q, T, D, S: IoStat> fmt::Debug for IoQueue<Q, T, D, S>
where
    Q: BlockDevice<Tag<T, S>>,
    D: BlockDevice<MetaTag>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoQueue")
            .field("volume", &self.volume)
            .finish_non_exhaustive()
    }
}

/// Reads of one block take the short path.
const SIMPLE_BYTES: u32 = 4096;

impl<Q, T, D, S: IoStat> IoQueue<Q, T, D, S>
where
    Q: BlockDevice<Tag<T, S>>,
    D: BlockDevice<MetaTag>,
{
    pub(crate) fn new(
        device: Q,
        member: Member,
        shared: Arc<Shared<D>>,
        stat: S,
    ) -> Result<Self, FsError> {
        let limits = device.limits();
        let lba = limits.block_size;
        let simple = SimpleLimits::new(lba, SIMPLE_BYTES);
        let simple = simple.filter(|_| limits == shared.limits);
        let simple = simple.ok_or(FsError::Busy("the queue is of another drive"))?;
        let writes = shared.lock().add_queue();
        Ok(Self {
            device,
            member,
            stat,
            volume: shared.volume,
            lba_shift: lba.trailing_zeros(),
            align_mask: u64::from(lba) - 1,
            simple,
            fua: limits.volatile_cache,
            ready: VecDeque::with_capacity(64),
            back: Back {
                slots: Slots::default(),
                writes,
                shared,
            },
        })
    }

    /// Reads at `offset` into `buf`, up to the end of the file; what is left of `buf` then is zeroed.
    ///
    /// # Errors
    /// [`Refused`] gives buffer and context back: not open for reading, another volume's, a full
    /// queue; [`FsError::Alignment`] if only direct I/O was asked for.
    #[inline]
    pub fn read_at(
        &mut self,
        file: &File,
        offset: u64,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), Refused<T>> {
        // One way out of line, so that the compiler keeps "it was taken" in a register.
        let unusual = 'hot: {
            if file.readable_on != self.volume {
                break 'hot Unusual::NotFor(buf, ctx);
            }
            let pass = self.member.enter(Flight::Read);
            let bytes = u64::from(buf.len32());
            let mut map = self.member.get(&file.inode.map, &pass);
            let op = OpFlags::DIRECT;
            let Ok(read) = read_simple(&mut map, (), self.simple, offset, bytes, op) else {
                break 'hot Unusual::General(buf, ctx, pass);
            };
            match self.submit_read(read.addr, buf, ctx, pass) {
                Ok(()) => return Ok(()),
                Err(rejected) => Unusual::Rejected(rejected),
            }
        };
        self.unusual_read(file, offset, unusual)
    }

    /// A read that is one command.
    #[inline(always)]
    fn submit_read(
        &mut self,
        addr: u64,
        buf: DmaBuf,
        ctx: T,
        pass: Pass,
    ) -> Result<(), Rejected<Tag<T, S>>> {
        let (bytes, inner) = (u64::from(buf.len32()), Inner::Single(ctx, pass));
        let tag = Tag(Tracked::submit(&self.stat, Kind::Read, bytes, inner));
        self.device.read(Lba(addr >> self.lba_shift), buf, tag)
    }

    #[inline(never)]
    fn unusual_read(
        &mut self,
        file: &File,
        offset: u64,
        unusual: Unusual<T, S>,
    ) -> Result<(), Refused<T>> {
        match unusual {
            Unusual::General(buf, ctx, pass) => self.read_general(file, offset, buf, ctx, pass),
            Unusual::NotFor(buf, ctx) => Err(self.not_for(file, "reading", Some(buf), ctx)),
            Unusual::Rejected(rejected) => Err(self.rejected(rejected)),
        }
    }

    /// A read that is more than one block, or not simple: still one command if it is one extent.
    fn read_general(
        &mut self,
        file: &File,
        offset: u64,
        buf: DmaBuf,
        ctx: T,
        pass: Pass,
    ) -> Result<(), Refused<T>> {
        let len = u64::from(buf.len32());
        let map = self.member.get(&file.inode.map, &pass);
        if (offset | len) & self.align_mask == 0
            && let Some(addr) = longer_piece(map, offset, len)
        {
            return match self.submit_read(addr, buf, ctx, pass) {
                Ok(()) => Ok(()),
                Err(rejected) => Err(self.rejected(rejected)),
            };
        }
        if file.direct && (offset | len) & self.align_mask != 0 {
            self.member.leave(pass);
            return Err(self.unaligned(offset, len, buf, ctx));
        }
        match read::Read::new(map, (offset, len), self.lba_shift) {
            Ok(read) => {
                let request = Request::Read(read.with(pass));
                self.start(Some(file.clone()), request, Some(buf), ctx);
                Ok(())
            }
            Err(error) => {
                self.member.leave(pass);
                Err(Refused::new(error, Some(buf), ctx))
            }
        }
    }

    /// Writes all of `buf` at `offset`, or at the end if the file was opened for appending.
    ///
    /// # Errors
    /// [`Refused`] gives buffer and context back: not open for writing, another volume's, a full
    /// queue; [`FsError::Alignment`] if only direct I/O was asked for; [`FsError::Stopped`].
    #[inline]
    pub fn write_at(
        &mut self,
        file: &File,
        offset: u64,
        buf: DmaBuf,
        flags: WriteFlags,
        ctx: T,
    ) -> Result<(), Refused<T>> {
        if file.writable_on != self.volume {
            return Err(self.not_for(file, "writing", Some(buf), ctx));
        }
        let len = u64::from(buf.len32());
        let aligned = (offset | len) & self.align_mask == 0;
        if aligned && !file.append && !self.back.shared.stopped.load(Ordering::Relaxed) {
            let pass = self.member.enter(Flight::Write);
            let mut map = self.member.get(&file.inode.map, &pass);
            // Durable at once only if the mapping is: otherwise its record has to be written.
            let durable = !flags.dsync
                || bugs::on(Bug::DurableWriteOfNewMapping)
                || file.inode.map_txid.load(Ordering::Relaxed)
                    <= self.back.shared.durable.load(Ordering::Relaxed);
            if !map.slow_writes() && durable {
                let op = OpFlags::DIRECT;
                let addr = match read_simple(&mut map, (), self.simple, offset, len, op) {
                    Ok(found) => Some(found.addr),
                    Err(_) => longer_piece(map, offset, len),
                };
                if let Some(addr) = addr {
                    let fua = flags.dsync && self.fua && !bugs::on(Bug::DurableWriteWithoutFua);
                    let inner = Inner::Single(ctx, pass.volatile(self.fua && !fua));
                    let tag = Tag(Tracked::submit(&self.stat, Kind::Write, len, inner));
                    let lba = Lba(addr >> self.lba_shift);
                    return match self.device.write(lba, buf, fua, tag) {
                        Ok(()) => Ok(()),
                        Err(rejected) => Err(self.rejected(rejected)),
                    };
                }
            }
            self.member.leave(pass);
        }
        self.write_general(file, offset, buf, flags, ctx)
    }

    #[inline(never)]
    fn write_general(
        &mut self,
        file: &File,
        offset: u64,
        buf: DmaBuf,
        flags: WriteFlags,
        ctx: T,
    ) -> Result<(), Refused<T>> {
        let len = u64::from(buf.len32());
        let offset = if file.append { 0 } else { offset };
        if file.direct && (offset | len) & self.align_mask != 0 {
            return Err(self.unaligned(offset, len, buf, ctx));
        }
        let request = Request::Write(write::Write::new(
            (!file.append).then_some(offset),
            len,
            flags.dsync,
        ));
        self.start(Some(file.clone()), request, Some(buf), ctx);
        Ok(())
    }

    /// Makes everything submitted visible to the drive.
    #[inline]
    pub fn ring(&mut self) {
        self.device.ring();
    }

    /// Hands every operation that has ended to `each`; says how many. Never waits.
    #[inline]
    pub fn poll(&mut self, mut each: impl FnMut(Done<T>)) -> usize {
        let Self {
            device,
            member,
            stat,
            back: Back { slots, writes, .. },
            ..
        } = self;
        let mut ended = 0;
        device.poll(|completion| {
            let Completion {
                ctx, buf, status, ..
            } = completion;
            let ok = status.is_success();
            match ctx.0.complete(stat, ok) {
                Inner::Single(ctx, pass) => {
                    if pass.is_volatile() {
                        writes.store(writes.load(Ordering::Relaxed) + 1, Ordering::Release);
                    }
                    member.leave(pass);
                    ended += 1;
                    let bytes = buf.as_ref().map_or(0, |buf| u64::from(buf.len32()));
                    let result = match ok {
                        true => Ok(bytes),
                        false => Err(FsError::Device(status)),
                    };
                    each(Done { ctx, buf, result });
                }
                Inner::Part(slot) => slots.part_ended(slot, buf, status),
            }
        });
        if !self.back.slots.is_empty() || !self.ready.is_empty() {
            // Not generic, so that the hot path has the caller's code for itself.
            ended += self.poll_operations(&mut each);
        }
        ended
    }

    /// Operations and commands that have not ended.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.back.slots.len() + self.ready.len()
    }

    /// The statistics.
    #[must_use]
    pub const fn stat(&self) -> &S {
        &self.stat
    }

    /// The statistics.
    pub const fn stat_mut(&mut self) -> &mut S {
        &mut self.stat
    }

    /// The device queue.
    #[must_use]
    pub const fn device(&self) -> &Q {
        &self.device
    }

    #[cold]
    #[inline(never)]
    fn not_for(&self, file: &File, what: &'static str, buf: Option<DmaBuf>, ctx: T) -> Refused<T> {
        let reason = match file.inode.volume == self.volume {
            true => FsError::Access(what),
            false => FsError::ForeignVolume,
        };
        Refused::new(reason, buf, ctx)
    }

    #[cold]
    #[inline(never)]
    fn unaligned(&self, offset: u64, len: u64, buf: DmaBuf, ctx: T) -> Refused<T> {
        let align = 1 << self.lba_shift;
        let reason = FsError::Alignment { offset, len, align };
        Refused::new(reason, Some(buf), ctx)
    }

    /// A single command that the device queue did not take.
    #[cold]
    #[inline(never)]
    fn rejected(&mut self, rejected: Rejected<Tag<T, S>>) -> Refused<T> {
        let reason = match rejected.reason {
            SubmitError::Full => FsError::QueueFull,
            other => FsError::Rejected(other),
        };
        let ctx = match rejected.ctx.0.cancel() {
            Inner::Single(ctx, pass) => {
                self.member.leave(pass);
                ctx
            }
            // Only single commands come here.
            Inner::Part(_) => unreachable!("a part of an operation"),
        };
        Refused::new(reason, rejected.buf, ctx)
    }
}

/// Where `len` bytes at `offset` are, if in one mapped extent and within the file.
fn longer_piece(map: &FileMap, offset: u64, len: u64) -> Option<u64> {
    if offset.checked_add(len).is_none_or(|end| end > map.size()) {
        return None;
    }
    let mut iter = IomapIter::new(map, offset, len, OpFlags::DIRECT).ok()?;
    let step = iter.next_step().ok()??;
    let whole = step.len() == len && step.mapping().kind() == MappingKind::Mapped;
    whole.then(|| step.device_addr()).flatten()
}
