//! The hot path: a submission ring, a completion ring and the slots between them.
//!
//! Nothing here allocates, locks, reads a clock or makes a system call, and nothing is written that
//! the next step does not need: a submission writes its 64 bytes in the ring and its slot, a completion
//! reads its 16 bytes and its slot.

use super::request::{Completion, Rejected, Stray, Strays, SubmitError};
use super::ring::{Completed, CompletionRing, SubmissionRing};
use super::slots::{SlotTable, Unusual};
use super::split::Splits;
use super::{ControllerId, QueueSize};
use crate::memory::{DmaBuf, DmaDomain, DomainId, MemoryError, PrpLists};
use crate::spec::Sqe;
use crate::transport::Doorbell;

/// What a queue is made from.
#[derive(Debug)]
pub(crate) struct CoreSetup<'a> {
    pub(crate) domain: &'a DmaDomain,
    pub(crate) controller: ControllerId,
    pub(crate) size: QueueSize,
    /// The device's memory page, as a shift.
    pub(crate) page_shift: u32,
    /// Bytes that one command may move.
    pub(crate) max_transfer: u32,
    pub(crate) sq_doorbell: Doorbell,
    pub(crate) cq_doorbell: Doorbell,
}

/// A queue pair without its owner: what admin and I/O queues share.
#[derive(Debug)]
pub(crate) struct Core<T> {
    pub(super) sq: SubmissionRing,
    cq: CompletionRing,
    pub(super) slots: SlotTable<T>,
    pub(super) prps: PrpLists,
    /// Buffers of other domains are refused: one compare.
    domain: DomainId,
    controller: ControllerId,
    max_transfer: u32,
    pub(super) splits: Splits,
    strays: Strays,
}

impl<T> Core<T> {
    pub(crate) fn new(setup: CoreSetup<'_>) -> Result<Self, MemoryError> {
        let CoreSetup {
            domain,
            size,
            page_shift,
            max_transfer,
            ..
        } = setup;
        let page_size = 1_usize << page_shift;
        Ok(Self {
            sq: SubmissionRing::new(domain, size, page_size, setup.sq_doorbell)?,
            cq: CompletionRing::new(domain, size, page_size, setup.cq_doorbell)?,
            slots: SlotTable::new(size),
            prps: PrpLists::new(domain, size.slots(), max_transfer, page_shift)?,
            domain: domain.id(),
            controller: setup.controller,
            max_transfer,
            splits: Splits::new(size.slots()),
            strays: Strays::default(),
        })
    }

    /// Where the device finds the submission ring.
    pub(crate) fn sq_iova(&self) -> u64 {
        self.sq.iova()
    }

    /// Where the device finds the completion ring.
    pub(crate) fn cq_iova(&self) -> u64 {
        self.cq.iova()
    }

    #[inline(always)]
    pub(crate) fn domain(&self) -> DomainId {
        self.domain
    }

    #[inline(always)]
    pub(crate) fn controller(&self) -> ControllerId {
        self.controller
    }

    #[inline(always)]
    pub(crate) fn max_transfer(&self) -> u32 {
        self.max_transfer
    }

    #[inline(always)]
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.capacity() - self.slots.available()
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    pub(crate) fn strays(&self) -> Strays {
        self.strays
    }

    /// Submits one command that moves the whole of `buf`, if a slot is free. The caller has checked the
    /// buffer's domain and that its length is at most [`Core::max_transfer`].
    ///
    /// # Errors
    /// Gives buffer and context back.
    #[inline(always)]
    pub(crate) fn try_data(
        &mut self,
        mut sqe: Sqe,
        buf: DmaBuf,
        ctx: T,
    ) -> Result<(), (DmaBuf, T)> {
        let (iova, len) = (buf.iova(), buf.len32());
        let Some(slot) = self.slots.vacant() else {
            return Err((buf, ctx));
        };
        sqe.cid = slot.fill(Some(buf), ctx);
        #[expect(clippy::cast_possible_truncation, reason = "an index is below 65,536")]
        let index = self.slots.index(sqe.cid) as u16;
        (sqe.prp1, sqe.prp2) = self.prps.describe(index, iova, len);
        self.sq.push(sqe);
        Ok(())
    }

    /// As [`Core::try_data`], with a reason.
    pub(crate) fn submit_data(&mut self, sqe: Sqe, buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>> {
        self.try_data(sqe, buf, ctx)
            .map_err(|(buf, ctx)| Rejected::new(SubmitError::Full, Some(buf), ctx))
    }

    /// Submits one command as it is, but for its identifier; `buf` is kept until it has ended.
    pub(crate) fn submit_plain(
        &mut self,
        mut sqe: Sqe,
        buf: Option<DmaBuf>,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        let Some(slot) = self.slots.vacant() else {
            return Err(Rejected::new(SubmitError::Full, buf, ctx));
        };
        sqe.cid = slot.fill(buf, ctx);
        self.sq.push(sqe);
        Ok(())
    }

    /// Tells the device of everything submitted since the last call.
    #[inline(always)]
    pub(crate) fn ring(&mut self) {
        self.sq.ring();
    }

    /// Hands at most `max` completion entries' worth of ended requests to `each`; says how many.
    #[inline(always)]
    pub(crate) fn poll(&mut self, max: usize, mut each: impl FnMut(Completion<T>)) -> usize {
        self.sq.ring();
        let mut ended = 0;
        for _ in 0..max {
            let Some(done) = self.cq.pop() else { break };
            let completion = match self.slots.take(done.cid()) {
                Some(held) => Completion {
                    ctx: held.ctx,
                    buf: held.buf,
                    status: done.status(),
                    result: done.result(),
                },
                None => match self.unusual(done) {
                    Some(completion) => completion,
                    None => continue,
                },
            };
            ended += 1;
            each(completion);
        }
        self.cq.ring();
        // Parts of split requests may have been started.
        self.sq.ring();
        ended
    }

    /// A completion that is not that of a whole request: a part of one, or a stray.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, done: Completed) -> Option<Completion<T>> {
        match self.slots.classify(done.cid()) {
            Unusual::Split(cid) => return self.end_part(cid, done),
            Unusual::Unknown => self.strays.unknown += 1,
            Unusual::Idle => self.strays.idle += 1,
            Unusual::Stale => self.strays.stale += 1,
        }
        self.strays.last = Some(Stray {
            cid: done.cid(),
            status: done.status(),
        });
        None
    }

    /// Empties the queue without the device's word, for a device that may still work on it: gives all
    /// memory that it may touch. The queue is not to be used afterwards.
    #[cold]
    pub(crate) fn abandon(&mut self) -> Vec<DmaBuf> {
        let mut memory = Vec::new();
        self.slots.take_all(|held| memory.extend(held.buf));
        memory.extend(self.sq.take_memory());
        memory.extend(self.cq.take_memory());
        memory.extend(self.prps.take_memory());
        memory
    }
}
