//! The turn of one queue: fetch, execute, complete.

use super::{BURST, Controller};
use crate::queue::{Completion, RingFault};
use driver::spec::log::{AsyncEvent, LogId};
use driver::spec::registers::{cq_head_doorbell, sq_tail_doorbell};

impl Controller {
    /// Executes a burst of submission queue `index`, as far as its completion queue has room.
    #[inline]
    pub(super) fn serve(&mut self, index: usize) -> usize {
        let Some(sq) = self.sqs.get_mut(index) else {
            return 0;
        };
        let (qid, cqid) = (sq.qid, sq.cqid);
        let pending = match sq.pending() {
            Ok(0) => return 0,
            Ok(pending) => usize::from(pending),
            Err(_) => {
                self.bad_doorbell(AsyncEvent::ERROR_INVALID_DOORBELL_VALUE);
                return 0;
            }
        };
        let count = self.room(cqid, pending.min(BURST));
        let served = match qid {
            0 => self.serve_admin(count),
            _ => self.serve_io(index, cqid, count),
        };
        served.unwrap_or_else(|RingFault| {
            self.fail();
            0
        })
    }

    /// How many of `wanted` completions the queue has room for.
    #[inline]
    fn room(&mut self, cqid: u16, wanted: usize) -> usize {
        let Some(Some(cq)) = self.cqs.get_mut(usize::from(cqid)) else {
            return 0;
        };
        if usize::from(cq.room()) < wanted && cq.refresh().is_err() {
            self.bad_doorbell(AsyncEvent::ERROR_INVALID_DOORBELL_VALUE);
            return 0;
        }
        wanted.min(usize::from(cq.room()))
    }

    fn serve_io(&mut self, index: usize, cqid: u16, count: usize) -> Result<usize, RingFault> {
        let mut batch = [Completion::default(); BURST];
        let mut filled = 0;
        let modelled = self.timing.is_modelled();
        for slot in batch.iter_mut().take(count) {
            let Some(sq) = self.sqs.get_mut(index) else {
                break;
            };
            let sqe = sq.fetch(&mut self.dma)?;
            let (qid, sqhd) = (sq.qid, sq.head);
            let answer = self.io_command(&sqe);
            let done = self.completion(qid, sqhd, &sqe, answer);
            if modelled {
                let due = self.delayed.due(self.now, &self.timing, sqe.opcode);
                self.complete_at(due, cqid, done);
            } else {
                *slot = done;
                filled += 1;
            }
        }
        if let Some(Some(cq)) = self.cqs.get_mut(usize::from(cqid)) {
            for done in batch.iter().take(filled) {
                cq.post(&mut self.dma, done)?;
            }
        }
        Ok(count)
    }

    /// Admin commands one at a time: each may change the queues.
    fn serve_admin(&mut self, count: usize) -> Result<usize, RingFault> {
        for served in 0..count {
            let Some(sq) = self.sqs.first_mut().filter(|_| self.running) else {
                return Ok(served);
            };
            let sqe = sq.fetch(&mut self.dma)?;
            let sqhd = sq.head;
            if let Some(answer) = self.admin_command(&sqe) {
                let done = self.completion(0, sqhd, &sqe, answer);
                if let Some(Some(cq)) = self.cqs.first_mut() {
                    cq.post(&mut self.dma, &done)?;
                }
            }
        }
        self.announce();
        Ok(count)
    }

    /// Lets a completion be posted at `due`, with a place kept for it.
    pub(super) fn complete_at(&mut self, due: u64, cqid: u16, done: Completion) {
        if let Some(Some(cq)) = self.cqs.get_mut(usize::from(cqid)) {
            cq.reserved = cq.reserved.saturating_add(1);
            self.delayed.push(due, cqid, done);
        }
    }

    /// Posts the completions that are due, as far as their queues have room.
    pub(super) fn deliver(&mut self) -> usize {
        let mut posted = 0;
        let mut blocked = Vec::new();
        while let Some((cqid, done)) = self.delayed.pop_due(self.now) {
            let Some(Some(cq)) = self.cqs.get_mut(usize::from(cqid)) else {
                continue;
            };
            cq.reserved = cq.reserved.saturating_sub(1);
            if cq.is_full() && cq.refresh().is_err() {
                self.bad_doorbell(AsyncEvent::ERROR_INVALID_DOORBELL_VALUE);
            }
            let Some(Some(cq)) = self.cqs.get_mut(usize::from(cqid)) else {
                continue;
            };
            if cq.is_full() {
                blocked.push((cqid, done));
            } else if cq.post(&mut self.dma, &done).is_ok() {
                posted += 1;
            } else {
                self.fail();
                break;
            }
        }
        for (cqid, done) in blocked {
            self.complete_at(self.now, cqid, done);
        }
        posted
    }

    /// Looks for what no queue's turn sees: impossible completion heads, and doorbells of queues
    /// that do not exist. For idle moments, for it touches every doorbell.
    pub(crate) fn inspect_doorbells(&mut self) {
        if !self.running {
            return;
        }
        for qid in 0..=self.settings.queues {
            let cq = self.cqs.get_mut(usize::from(qid)).and_then(Option::as_mut);
            let no_cq = cq.is_none();
            if cq.is_some_and(|cq| cq.refresh().is_err()) {
                self.bad_doorbell(AsyncEvent::ERROR_INVALID_DOORBELL_VALUE);
            }
            let no_sq = self.sqs.iter().all(|sq| sq.qid != qid);
            let dstrd = self.settings.dstrd;
            let absent = [
                no_sq.then(|| sq_tail_doorbell(qid, dstrd)),
                no_cq.then(|| cq_head_doorbell(qid, dstrd)),
            ];
            for offset in absent.into_iter().flatten() {
                let word = self.doorbells.word(offset).filter(|word| word.load() != 0);
                if let Some(word) = word {
                    word.store(0);
                    self.bad_doorbell(AsyncEvent::ERROR_INVALID_DOORBELL_REGISTER);
                }
            }
        }
    }

    #[cold]
    fn bad_doorbell(&mut self, info: u8) {
        self.stats.bad_doorbells += 1;
        self.raise(AsyncEvent::TYPE_ERROR, info, LogId::ERROR);
    }
}
