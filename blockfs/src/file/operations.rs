//! What becomes an operation, and how operations are moved on.

use super::op::{self, Op, Request};
use super::{Done, IoQueue, Tag, truncate, write};
use crate::device::BlockDevice;
use crate::fs::core::Shared;
use crate::fs::{File, Refused};
use crate::iostat::IoStat;
use crate::journal::MetaTag;
use crate::tree::Fallocate;
use driver::memory::DmaBuf;
use std::sync::Arc;

impl<Q, T, D, S: IoStat> IoQueue<Q, T, D, S>
where
    Q: BlockDevice<Tag<T, S>>,
    D: BlockDevice<MetaTag>,
{
    /// Makes durable: the file's data whose writes have ended, its size, its attributes and its names
    /// (and, as the journal is one, all changes before).
    ///
    /// # Errors
    /// [`Refused`] gives the context back.
    pub fn fsync(&mut self, file: &File, ctx: T) -> Result<(), Refused<T>> {
        if file.inode.volume != self.volume {
            return Err(self.not_for(file, "this volume", None, ctx));
        }
        self.start(Some(file.clone()), Request::sync(false), None, ctx);
        Ok(())
    }

    /// As [`IoQueue::fsync`], but of what changed only what is needed to read the data back.
    ///
    /// # Errors
    /// [`Refused`] gives the context back.
    pub fn fdatasync(&mut self, file: &File, ctx: T) -> Result<(), Refused<T>> {
        if file.inode.volume != self.volume {
            return Err(self.not_for(file, "this volume", None, ctx));
        }
        self.start(Some(file.clone()), Request::sync(true), None, ctx);
        Ok(())
    }

    /// Sets the file's size; what is behind it goes.
    ///
    /// # Errors
    /// [`Refused`] gives the context back.
    pub fn truncate(&mut self, file: &File, size: u64, ctx: T) -> Result<(), Refused<T>> {
        if file.writable_on != self.volume {
            return Err(self.not_for(file, "writing", None, ctx));
        }
        let request = Request::Change(truncate::Change::truncate(size));
        self.start(Some(file.clone()), request, None, ctx);
        Ok(())
    }

    /// Reserves, punches or zeroes a range.
    ///
    /// # Errors
    /// [`Refused`] gives the context back.
    pub fn fallocate(
        &mut self,
        file: &File,
        mode: Fallocate,
        offset: u64,
        len: u64,
        ctx: T,
    ) -> Result<(), Refused<T>> {
        if file.writable_on != self.volume {
            return Err(self.not_for(file, "writing", None, ctx));
        }
        let request = Request::Change(truncate::Change::fallocate(mode, offset, len));
        self.start(Some(file.clone()), request, None, ctx);
        Ok(())
    }

    /// Writes zeros to a range: it has blocks that are written, so that later writes to it are
    /// overwrites. The file grows to its end.
    ///
    /// # Errors
    /// [`Refused`] gives the context back.
    pub fn write_zeroes(
        &mut self,
        file: &File,
        offset: u64,
        len: u64,
        ctx: T,
    ) -> Result<(), Refused<T>> {
        if file.writable_on != self.volume {
            return Err(self.not_for(file, "writing", None, ctx));
        }
        let request = Request::Write(write::Write::zeroes(offset, len));
        self.start(Some(file.clone()), request, None, ctx);
        Ok(())
    }

    /// Makes durable every change, and all data whose writes have ended.
    pub fn sync(&mut self, ctx: T) {
        self.start(None, Request::sync(false), None, ctx);
    }

    /// Tells the drive which blocks are free. The result is how many bytes.
    pub fn trim(&mut self, ctx: T) {
        self.start(None, Request::trim(), None, ctx);
    }

    #[inline(never)]
    pub(super) fn poll_operations(&mut self, each: &mut dyn FnMut(Done<T>)) -> usize {
        let mut ended = 0;
        while let Some(done) = self.ready.pop_front() {
            ended += 1;
            each(done);
        }
        if self.back.slots.is_empty() {
            return ended;
        }
        self.move_operations();
        while let Some(done) = self.ready.pop_front() {
            ended += 1;
            each(done);
        }
        ended
    }

    /// Moves every operation on as far as it goes.
    fn move_operations(&mut self) {
        let Self {
            device,
            member,
            stat,
            ready,
            lba_shift,
            back,
            ..
        } = self;
        let mut core = back.shared.pump();
        let mut at = op::At {
            core: &mut core,
            shared: &back.shared,
            device,
            stat,
            lba_shift: *lba_shift,
            member,
            slot: 0,
            submitted: false,
        };
        for slot in 0..back.slots.capacity() {
            at.slot = u32::try_from(slot).unwrap_or(u32::MAX);
            let outcome = back.slots.get_mut(slot).and_then(|op| op.go_on(&mut at));
            if let Some(result) = outcome
                && let Some(op) = back.slots.remove(slot)
            {
                ready.push_back(op.finish(result));
            }
        }
        let submitted = at.submitted;
        back.shared.pump_locked(&mut core);
        drop(core);
        if submitted {
            device.ring();
        }
    }

    pub(super) fn start(
        &mut self,
        file: Option<File>,
        request: Request,
        buf: Option<DmaBuf>,
        ctx: T,
    ) {
        self.back.slots.insert(Op::new(file, request, buf, ctx));
        self.move_operations();
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared<D>> {
        &self.back.shared
    }
}
