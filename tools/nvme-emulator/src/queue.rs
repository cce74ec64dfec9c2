//! Submission and completion queues as the device sees them.

use crate::dma::DmaMap;
use crate::raw::{Span, Word};
use driver::spec::{Cqe, Sqe, Status};

/// The memory of a ring. Its host address is kept until the DMA map changes.
#[derive(Debug)]
struct Ring {
    iova: u64,
    entries: u16,
    entry_len: usize,
    host: Option<Span>,
    generation: u64,
}

impl Ring {
    fn new(iova: u64, entries: u16, entry_len: usize) -> Self {
        Self {
            iova,
            entries,
            entry_len,
            host: None,
            generation: 0,
        }
    }

    /// The ring in one piece, if the host's memory is. Looked up again when the map has changed.
    #[inline]
    fn host(&mut self, dma: &mut DmaMap) -> Option<Span> {
        if self.generation != dma.generation() {
            self.generation = dma.generation();
            self.host = dma.whole(self.iova, usize::from(self.entries) * self.entry_len);
        }
        self.host
    }

    /// Where entry `index` lies and its index there. `None`: a DMA fault.
    #[inline]
    fn entry(&mut self, dma: &mut DmaMap, index: u16) -> Option<(Span, usize)> {
        match self.host(dma) {
            Some(host) => Some((host, usize::from(index))),
            None => {
                let offset = u64::from(index) * self.entry_len as u64;
                let span = dma.whole(self.iova.checked_add(offset)?, self.entry_len)?;
                Some((span, 0))
            }
        }
    }
}

/// What a doorbell said that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadDoorbell;

/// The device could not reach a ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RingFault;

/// A submission queue.
#[derive(Debug)]
pub(crate) struct SubmissionQueue {
    pub(crate) qid: u16,
    pub(crate) cqid: u16,
    ring: Ring,
    entries: u16,
    pub(crate) head: u16,
    doorbell: Word,
    /// The last impossible value, so that each is reported once.
    refused: Option<u32>,
}

impl SubmissionQueue {
    /// `entries`: 2 to 65535 (the largest that QSIZE can say, 65536, is more than any MQES here).
    pub(crate) fn new(qid: u16, cqid: u16, iova: u64, entries: u16, doorbell: Word) -> Self {
        doorbell.store(0);
        let ring = Ring::new(iova, entries, size_of::<Sqe>());
        Self {
            qid,
            cqid,
            ring,
            entries,
            head: 0,
            doorbell,
            refused: None,
        }
    }

    /// Entries that the host has submitted and the device not fetched.
    #[inline(always)]
    pub(crate) fn pending(&mut self) -> Result<u16, BadDoorbell> {
        let tail = self.doorbell.load();
        match u16::try_from(tail) {
            Ok(tail) if tail < self.entries => Ok(self.distance(tail)),
            _ if self.refused == Some(tail) => Ok(0),
            _ => {
                self.refused = Some(tail);
                Err(BadDoorbell)
            }
        }
    }

    #[inline(always)]
    fn distance(&self, tail: u16) -> u16 {
        if tail >= self.head {
            tail - self.head
        } else {
            self.entries - self.head + tail
        }
    }

    /// Copies the next entry and moves on.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, dma: &mut DmaMap) -> Result<Sqe, RingFault> {
        let (span, index) = self.ring.entry(dma, self.head).ok_or(RingFault)?;
        // A few entries ahead: the host has just written them, so each is a miss.
        span.prefetch_sqe(index + 6);
        let sqe = span.load_sqe(index).ok_or(RingFault)?;
        self.head = if self.head + 1 == self.entries {
            0
        } else {
            self.head + 1
        };
        Ok(sqe)
    }

    /// Forgets what the host wrote to the doorbell.
    pub(crate) fn clear_doorbell(&self) {
        self.doorbell.store(0);
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ring: Ring,
    entries: u16,
    tail: u16,
    phase: bool,
    /// The host's head as it was when last looked at.
    head: u16,
    doorbell: Word,
    refused: Option<u32>,
    /// Submission queues that complete here.
    pub(crate) users: u32,
    /// Room promised to commands whose completions are still to come.
    pub(crate) reserved: u16,
}

impl CompletionQueue {
    pub(crate) fn new(iova: u64, entries: u16, doorbell: Word) -> Self {
        doorbell.store(0);
        let ring = Ring::new(iova, entries, size_of::<Cqe>());
        Self {
            ring,
            entries,
            tail: 0,
            phase: true,
            head: 0,
            doorbell,
            refused: None,
            users: 0,
            reserved: 0,
        }
    }

    #[inline(always)]
    fn used(&self) -> u16 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.entries - self.head + self.tail
        }
    }

    /// Entries that can be posted beyond those promised, as far as is known without a look.
    #[inline(always)]
    pub(crate) fn room(&self) -> u16 {
        (self.entries - 1 - self.used()).saturating_sub(self.reserved)
    }

    /// Whether not even a promised entry can be posted, as far as is known without a look.
    pub(crate) fn is_full(&self) -> bool {
        self.used() >= self.entries - 1
    }

    /// Looks at the head doorbell. A value beyond what was posted is refused.
    pub(crate) fn refresh(&mut self) -> Result<(), BadDoorbell> {
        let value = self.doorbell.load();
        let head = u16::try_from(value)
            .ok()
            .filter(|&head| head < self.entries);
        let advance = head.map(|head| {
            if head >= self.head {
                head - self.head
            } else {
                self.entries - self.head + head
            }
        });
        match (head, advance) {
            (Some(head), Some(advance)) if advance <= self.used() => {
                self.head = head;
                Ok(())
            }
            _ if self.refused == Some(value) => Ok(()),
            _ => {
                self.refused = Some(value);
                Err(BadDoorbell)
            }
        }
    }

    /// Posts a completion; the caller has made sure of room.
    #[inline(always)]
    pub(crate) fn post(&mut self, dma: &mut DmaMap, done: &Completion) -> Result<(), RingFault> {
        let (span, index) = self.ring.entry(dma, self.tail).ok_or(RingFault)?;
        let status = u64::from(done.status.bits() << 1 | u16::from(self.phase));
        let high = u64::from(done.sqhd)
            | u64::from(done.sqid) << 16
            | u64::from(done.cid) << 32
            | status << 48;
        span.store_cqe(index, u64::from(done.result), high)
            .ok_or(RingFault)?;
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
        Ok(())
    }

    /// Forgets what the host wrote to the doorbell.
    pub(crate) fn clear_doorbell(&self) {
        self.doorbell.store(0);
    }
}

/// A completion before it has a place and a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) result: u32,
    pub(crate) sqhd: u16,
    pub(crate) sqid: u16,
    pub(crate) cid: u16,
    pub(crate) status: Status,
}
