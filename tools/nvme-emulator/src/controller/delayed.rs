//! Completions that are still to come: the modelled drive's latency and pace.

use crate::queue::Completion;
use crate::settings::Timing;
use driver::spec::Status;
use driver::spec::opcode::IoOpcode;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Delayed {
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    /// When the modelled drive can start another command.
    free_at: u64,
}

#[derive(Debug)]
struct Entry {
    due: u64,
    sequence: u64,
    cqid: u16,
    done: Completion,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl Delayed {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    #[inline]
    pub(super) fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.0.due)
    }

    /// When a command that is fetched now completes.
    pub(super) fn due(&mut self, now: u64, timing: &Timing, opcode: u8) -> u64 {
        let start = self.free_at.max(now);
        if let Some(iops) = timing.iops {
            self.free_at = start.saturating_add(1_000_000_000 / u64::from(iops.max(1)));
        }
        let latency = match IoOpcode(opcode) {
            IoOpcode::READ | IoOpcode::COMPARE => timing.read,
            _ => timing.write,
        };
        start.saturating_add(nanos(latency))
    }

    pub(super) fn push(&mut self, due: u64, cqid: u16, done: Completion) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry {
            due,
            sequence: self.sequence,
            cqid,
            done,
        }));
    }

    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u16, Completion)> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|entry| (entry.0.cqid, entry.0.done))
    }

    /// Lets all that is still to come be due at `now`.
    pub(super) fn expire(&mut self, now: u64) {
        self.rewrite(|entry| entry.due = now);
    }

    /// Ends commands of queue `sqid` (all, or the one with `cid`) at `now` with `status`. Returns
    /// whether there was any.
    pub(super) fn end(&mut self, now: u64, sqid: u16, cid: Option<u16>, status: Status) -> bool {
        let mut any = false;
        self.rewrite(|entry| {
            if entry.done.sqid == sqid && cid.is_none_or(|cid| entry.done.cid == cid) {
                (entry.due, entry.done.status, entry.done.result) = (now, status, 0);
                any = true;
            }
        });
        any
    }

    fn rewrite(&mut self, change: impl FnMut(&mut Entry)) {
        let mut entries: Vec<Entry> = self.heap.drain().map(|entry| entry.0).collect();
        entries.iter_mut().for_each(change);
        self.heap.extend(entries.into_iter().map(Reverse));
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.free_at = 0;
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
