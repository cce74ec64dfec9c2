//! The admin command set.

use super::{Answer, Controller};
use crate::queue::{CompletionQueue, SubmissionQueue};
use driver::spec::command::{QUEUE_CONTIGUOUS, QUEUE_INTERRUPTS};
use driver::spec::opcode::AdminOpcode;
use driver::spec::registers::{cq_head_doorbell, sq_tail_doorbell};
use driver::spec::{Cqe, Sqe, Status};

/// Dword 0 of Abort: the command was not aborted.
const NOT_ABORTED: u32 = 1;

/// The low and the high half of a dword.
fn halves(dword: u32) -> (u16, u16) {
    let [a, b, c, d] = dword.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}

impl Controller {
    /// Executes one admin command. `None`: it is held.
    pub(super) fn admin_command(&mut self, sqe: &Sqe) -> Option<Answer> {
        self.stats.count_admin(sqe.opcode);
        if sqe.flags & (Sqe::FLAGS_PSDT | Sqe::FLAGS_FUSE) != 0 {
            return Some(Err(Status::INVALID_FIELD.with_dnr()));
        }
        Some(match AdminOpcode(sqe.opcode) {
            AdminOpcode::IDENTIFY => self.identify(sqe),
            AdminOpcode::CREATE_IO_CQ => self.create_cq(sqe),
            AdminOpcode::CREATE_IO_SQ => self.create_sq(sqe),
            AdminOpcode::DELETE_IO_CQ => self.delete_cq(sqe),
            AdminOpcode::DELETE_IO_SQ => self.delete_sq(sqe),
            AdminOpcode::GET_FEATURES => self.get_features(sqe),
            AdminOpcode::SET_FEATURES => self.set_features(sqe),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(sqe),
            AdminOpcode::ABORT => Ok(self.abort(sqe)),
            AdminOpcode::ASYNC_EVENT_REQUEST => match self.hold_event_request(sqe) {
                Ok(()) => return None,
                Err(status) => Err(status),
            },
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        })
    }

    /// What both Create commands check: identifier, size, memory. Returns identifier and entries.
    fn new_queue(&self, sqe: &Sqe, taken: impl Fn(u16) -> bool) -> Result<(u16, u16), Status> {
        let (qid, size) = halves(sqe.cdw10);
        if qid == 0 || qid > self.settings.queues || taken(qid) {
            return Err(Status::INVALID_QUEUE_ID.with_dnr());
        }
        if size == 0 || size > self.settings.mqes {
            return Err(Status::INVALID_QUEUE_SIZE.with_dnr());
        }
        // CAP.CQR: queues are contiguous.
        if sqe.cdw11 & QUEUE_CONTIGUOUS == 0 {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if sqe.prp1.trailing_zeros() < self.page_shift {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        Ok((qid, size + 1))
    }

    fn create_cq(&mut self, sqe: &Sqe) -> Answer {
        let (qid, entries) = self.new_queue(sqe, |qid| self.has_cq(qid))?;
        let (_, vector) = halves(sqe.cdw11);
        if sqe.cdw11 & QUEUE_INTERRUPTS != 0 && vector > self.settings.queues {
            return Err(Status::INVALID_INTERRUPT_VECTOR.with_dnr());
        }
        if self.registers.cc().iocqes() != Cqe::SIZE_LOG2 {
            return Err(Status::INVALID_QUEUE_SIZE.with_dnr());
        }
        let doorbell = self
            .doorbells
            .word(cq_head_doorbell(qid, self.settings.dstrd));
        let doorbell = doorbell.ok_or(Status::INTERNAL_ERROR)?;
        if let Some(slot) = self.cqs.get_mut(usize::from(qid)) {
            *slot = Some(CompletionQueue::new(sqe.prp1, entries, doorbell));
        }
        Ok(0)
    }

    fn create_sq(&mut self, sqe: &Sqe) -> Answer {
        let taken = |qid| self.sqs.iter().any(|sq| sq.qid == qid);
        let (qid, entries) = self.new_queue(sqe, taken)?;
        let (_, cqid) = halves(sqe.cdw11);
        if cqid == 0 || cqid > self.settings.queues {
            return Err(Status::INVALID_QUEUE_ID.with_dnr());
        }
        if self.registers.cc().iosqes() != Sqe::SIZE_LOG2 {
            return Err(Status::INVALID_QUEUE_SIZE.with_dnr());
        }
        let Some(Some(cq)) = self.cqs.get_mut(usize::from(cqid)) else {
            return Err(Status::CQ_INVALID.with_dnr());
        };
        let doorbell = self
            .doorbells
            .word(sq_tail_doorbell(qid, self.settings.dstrd));
        let doorbell = doorbell.ok_or(Status::INTERNAL_ERROR)?;
        cq.users += 1;
        self.sqs
            .push(SubmissionQueue::new(qid, cqid, sqe.prp1, entries, doorbell));
        Ok(0)
    }

    fn has_cq(&self, qid: u16) -> bool {
        self.cqs.get(usize::from(qid)).is_some_and(Option::is_some)
    }

    fn delete_sq(&mut self, sqe: &Sqe) -> Answer {
        let (qid, _) = halves(sqe.cdw10);
        let found = self.sqs.iter().position(|sq| sq.qid == qid && qid != 0);
        let index = found.ok_or(Status::INVALID_QUEUE_ID.with_dnr())?;
        // What it still executes ends first; what it has not fetched was never begun.
        self.delayed
            .end(self.now, qid, None, Status::ABORTED_SQ_DELETION);
        self.deliver();
        let sq = self.sqs.remove(index);
        sq.clear_doorbell();
        if let Some(Some(cq)) = self.cqs.get_mut(usize::from(sq.cqid)) {
            cq.users = cq.users.saturating_sub(1);
        }
        Ok(0)
    }

    fn delete_cq(&mut self, sqe: &Sqe) -> Answer {
        let (qid, _) = halves(sqe.cdw10);
        let slot = self.cqs.get_mut(usize::from(qid)).filter(|_| qid != 0);
        let slot = slot
            .filter(|slot| slot.is_some())
            .ok_or(Status::INVALID_QUEUE_ID.with_dnr())?;
        if slot.as_ref().is_some_and(|cq| cq.users > 0) {
            return Err(Status::INVALID_QUEUE_DELETION.with_dnr());
        }
        if let Some(cq) = slot.take() {
            cq.clear_doorbell();
        }
        Ok(0)
    }

    /// Abort is best effort: only what still waits for its time can be aborted.
    fn abort(&mut self, sqe: &Sqe) -> u32 {
        let (sqid, cid) = halves(sqe.cdw10);
        let aborted = (sqid == 0 && self.abort_event_request(cid))
            || self
                .delayed
                .end(self.now, sqid, Some(cid), Status::ABORT_REQUESTED);
        if aborted { 0 } else { NOT_ABORTED }
    }
}
