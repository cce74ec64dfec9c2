//! The two rings in DMA memory: submission entries out, completion entries in.
//!
//! NVMe 2.x base, section 3.3.1 ("Memory-based Transport Queue Model"). Sizes are powers of two, so
//! that a wrap is a mask. Whether a submission entry is free is *not* read from the SQ head that the
//! device reports (some do not advance it): the slot table bounds the commands outstanding, and a
//! command outstanding holds at most one entry.
#![expect(
    unsafe_code,
    reason = "rings are memory that a device reads and writes"
)]

use super::QueueSize;
use crate::memory::{DmaBuf, DmaDomain, MemoryError};
use crate::spec::{Cqe, Sqe, Status};
use crate::transport::Doorbell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The submission ring: written by us, read by the device.
#[derive(Debug)]
pub(super) struct SubmissionRing {
    entries: NonNull<Sqe>,
    mask: u32,
    tail: u32,
    /// The tail that the device was last told.
    rung: u32,
    doorbell: Doorbell,
    iova: u64,
    /// The ring's memory; given away only when the queue is abandoned.
    memory: Option<DmaBuf>,
}

// SAFETY: the ring owns its memory; the pointer is into it.
unsafe impl Send for SubmissionRing {}

impl SubmissionRing {
    /// Allocates a ring of `size` entries, aligned to `page_size` bytes.
    pub(super) fn new(
        domain: &DmaDomain,
        size: QueueSize,
        page_size: usize,
        doorbell: Doorbell,
    ) -> Result<Self, MemoryError> {
        let mut memory = ring_memory(domain, size, size_of::<Sqe>(), page_size)?;
        let entries = NonNull::new(memory.as_mut_ptr().cast()).ok_or(MemoryError::Empty)?;
        Ok(Self {
            entries,
            mask: size.mask(),
            tail: 0,
            rung: 0,
            doorbell,
            iova: memory.iova(),
            memory: Some(memory),
        })
    }

    /// Where the device finds the ring.
    pub(super) fn iova(&self) -> u64 {
        self.iova
    }

    /// Gives the memory away, for a device that may still touch it. The ring is not to be used
    /// afterwards, but its pointer stays valid: the memory is parked, not freed.
    pub(super) fn take_memory(&mut self) -> Option<DmaBuf> {
        self.memory.take()
    }

    /// Writes one entry at the tail. The caller holds a slot for it, so the entry is free.
    #[inline(always)]
    pub(super) fn push(&mut self, sqe: Sqe) {
        // SAFETY: `tail` is below the ring's size (it is masked), and the memory holds that many.
        let entry = unsafe { self.entries.add(self.tail as usize) };
        // SAFETY: as above, page-aligned; the device reads it after the doorbell only.
        unsafe { entry.write(sqe) };
        self.tail = (self.tail + 1) & self.mask;
    }

    /// Tells the device of all entries since the last call: one store fence, one register write, and
    /// nothing where nothing is new.
    #[inline(always)]
    pub(super) fn ring(&mut self) {
        if self.tail != self.rung {
            self.rung = self.tail;
            self.doorbell.ring(self.tail);
        }
    }
}

/// One completion, as read from the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    low: u64,
    high: u64,
}

impl Completed {
    /// Dword 0: the command's result.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "dword 0 is the low half")]
    pub(super) fn result(self) -> u32 {
        self.low as u32
    }

    /// The command identifier.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a field is cut out of the entry"
    )]
    pub(super) fn cid(self) -> u16 {
        (self.high >> 32) as u16
    }

    /// The status, without the phase bit.
    #[inline(always)]
    pub(super) fn status(self) -> Status {
        Status::from_bits((self.high >> 49) as u16)
    }
}

/// The phase bit within the upper eight bytes of a completion entry (dword 3, bit 16).
const PHASE: u64 = 1 << 48;

/// The completion ring: written by the device, read by us.
#[derive(Debug)]
pub(super) struct CompletionRing {
    entries: NonNull<[AtomicU64; 2]>,
    mask: u32,
    head: u32,
    /// The phase bit of entries that are new in this pass: `PHASE` in the first, then alternating.
    phase: u64,
    /// The head that the device was last told.
    rung: u32,
    doorbell: Doorbell,
    iova: u64,
    /// The ring's memory; given away only when the queue is abandoned.
    memory: Option<DmaBuf>,
}

// SAFETY: the ring owns its memory; the pointer is into it.
unsafe impl Send for CompletionRing {}

impl CompletionRing {
    /// Allocates a zeroed ring of `size` entries, aligned to `page_size` bytes.
    ///
    /// Zeroed each time: an entry left by an earlier user of the memory would read as new.
    pub(super) fn new(
        domain: &DmaDomain,
        size: QueueSize,
        page_size: usize,
        doorbell: Doorbell,
    ) -> Result<Self, MemoryError> {
        const _: () = assert!(size_of::<Cqe>() == size_of::<[AtomicU64; 2]>());
        let mut memory = ring_memory(domain, size, size_of::<Cqe>(), page_size)?;
        let entries = NonNull::new(memory.as_mut_ptr().cast()).ok_or(MemoryError::Empty)?;
        Ok(Self {
            entries,
            mask: size.mask(),
            head: 0,
            phase: PHASE,
            rung: 0,
            doorbell,
            iova: memory.iova(),
            memory: Some(memory),
        })
    }

    /// Where the device finds the ring.
    pub(super) fn iova(&self) -> u64 {
        self.iova
    }

    /// Gives the memory away, for a device that may still touch it. The ring is not to be used
    /// afterwards, but its pointer stays valid: the memory is parked, not freed.
    pub(super) fn take_memory(&mut self) -> Option<DmaBuf> {
        self.memory.take()
    }

    /// Takes the next completion, if there is one.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Completed> {
        // SAFETY: `head` is below the ring's size (it is masked), and the memory holds that many.
        let entry = unsafe { self.entries.add(self.head as usize) };
        // SAFETY: aligned, inside the ring, which lives as long as `self`; atomics only.
        let entry = unsafe { entry.as_ref() };
        // Acquire: nothing of this entry, nor what the device wrote before it, is read before the
        // phase bit was seen (a plain load on x86).
        let high = entry[1].load(Ordering::Acquire);
        if (high ^ self.phase) & PHASE != 0 {
            return None;
        }
        let low = entry[0].load(Ordering::Relaxed);
        self.head = (self.head + 1) & self.mask;
        self.phase ^= u64::from(self.head == 0) << 48;
        Some(Completed { low, high })
    }

    /// Gives the entries taken since the last call back to the device.
    #[inline(always)]
    pub(super) fn ring(&mut self) {
        if self.head != self.rung {
            self.rung = self.head;
            self.doorbell.ring(self.head);
        }
    }
}

/// Zeroed ring memory of at least one page.
fn ring_memory(
    domain: &DmaDomain,
    size: QueueSize,
    entry_size: usize,
    page_size: usize,
) -> Result<DmaBuf, MemoryError> {
    let len = (size.entries() as usize * entry_size).next_multiple_of(page_size);
    let mut memory = domain.alloc_aligned(len, page_size)?;
    memory.fill(0);
    Ok(memory)
}
