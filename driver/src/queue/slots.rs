//! The slot table: who waits for which command identifier.
//!
//! A command identifier is a slot's index in its low bits and a generation above. A slot takes part in
//! two hot operations, [`SlotTable::vacant`] with [`Vacant::fill`], and [`SlotTable::take`], each one compare and a few
//! stores. `take` accepts an identifier only if exactly that identifier is outstanding: one that was
//! never given out, is idle, or belongs to an earlier use of the slot is refused by the same compare.
#![expect(
    unsafe_code,
    reason = "slots are read and written without bounds checks"
)]

use super::QueueSize;
use crate::memory::DmaBuf;
use std::fmt;
use std::mem::MaybeUninit;

/// What a slot keeps for the caller while the device works.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) buf: Option<DmaBuf>,
    pub(super) ctx: T,
}

/// The state of one slot.
#[repr(C)]
struct Slot<T> {
    /// The identifier that is outstanding, or the next one with [`IDLE`] set. [`SPLIT`] marks a
    /// command that is a part of a larger request, [`OWNER`] the slot that holds such a request.
    state: u32,
    held: MaybeUninit<Held<T>>,
}

/// A slot taken from the free ones.
#[must_use = "it is lost if it is not filled"]
pub(super) struct Vacant<'a, T>(&'a mut Slot<T>);

impl<T> Vacant<'_, T> {
    /// Puts a request into it and gives the identifier for its command.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an identifier is the low half"
    )]
    pub(super) fn fill(self, buf: Option<DmaBuf>, ctx: T) -> u16 {
        self.0.state &= CID;
        self.0.held.write(Held { buf, ctx });
        self.0.state as u16
    }
}

/// No command is outstanding in the slot.
const IDLE: u32 = 1 << 31;
/// The command is a part of a request that needs several.
const SPLIT: u32 = 1 << 30;
/// The slot holds the buffer and context of a request that needs several commands.
const OWNER: u32 = 1 << 29;
/// The identifier within the state.
const CID: u32 = 0xffff;

/// What the cold path learns about an identifier that [`SlotTable::take`] did not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusual {
    /// It is outstanding and a part of a larger request.
    Split(u16),
    /// No command is outstanding in its slot.
    Idle,
    /// Its slot has a command outstanding, of another generation.
    Stale,
    /// No slot has such an identifier.
    Unknown,
}

/// The slots of one queue, and the stack of free ones.
pub(super) struct SlotTable<T> {
    /// As many as the ring has entries, so that an index is a masked identifier. The last one is
    /// never used: a ring of N entries takes N - 1 commands, and FFFFh never is an identifier.
    slots: Box<[Slot<T>]>,
    /// Free slots, a stack: the one used last is the one still in the cache.
    free: Box<[u16]>,
    /// Entries of `free` in use; at most `free.len()`.
    available: usize,
}

impl<T> SlotTable<T> {
    /// A table for a ring of `size` entries.
    pub(super) fn new(size: QueueSize) -> Self {
        let slots = (0..size.entries())
            .map(|index| Slot {
                state: IDLE | index,
                held: MaybeUninit::uninit(),
            })
            .collect();
        let free: Box<[u16]> = (0..size.slots()).rev().collect();
        Self {
            slots,
            available: free.len(),
            free,
        }
    }

    /// Slots free now.
    #[inline(always)]
    pub(super) fn available(&self) -> usize {
        self.available
    }

    /// Slots in all.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.free.len()
    }

    /// The slot of an identifier; in range for every identifier.
    #[inline(always)]
    pub(super) fn index(&self, cid: u16) -> usize {
        usize::from(cid) & (self.slots.len() - 1)
    }

    /// Pops a free slot. The caller has seen that one is available.
    #[inline(always)]
    fn pop(&mut self) -> Option<usize> {
        self.available = self.available.checked_sub(1)?;
        // SAFETY: `available` never exceeds the stack's length, and was just lowered below it.
        Some(usize::from(unsafe {
            *self.free.get_unchecked(self.available)
        }))
    }

    /// Pushes a slot back. Each slot is on the stack at most once, so there is room.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an index is below 65,536")]
    fn push(&mut self, index: usize) {
        debug_assert!(self.available < self.free.len());
        // SAFETY: a slot that is not on the stack leaves room for itself; every caller has just
        // moved the slot from outstanding to idle, which happens once per pop.
        unsafe { *self.free.get_unchecked_mut(self.available) = index as u16 };
        self.available += 1;
    }

    /// Takes a free slot, if there is one. It has to be filled: one that is dropped is lost.
    #[inline(always)]
    pub(super) fn vacant(&mut self) -> Option<Vacant<'_, T>> {
        let index = self.pop()?;
        // SAFETY: the stack holds indices of slots only.
        Some(Vacant(unsafe { self.slots.get_unchecked_mut(index) }))
    }

    /// Takes out what is held for `cid`. `None`: not a whole request outstanding under exactly this
    /// identifier; ask [`SlotTable::classify`].
    #[inline(always)]
    pub(super) fn take(&mut self, cid: u16) -> Option<Held<T>> {
        let len = self.slots.len();
        let index = self.index(cid);
        // SAFETY: the index is masked with the length less one, a power of two less one.
        let slot = unsafe { self.slots.get_unchecked_mut(index) };
        if slot.state != u32::from(cid) {
            return None;
        }
        slot.state = IDLE | u32::from(next_generation(cid, len));
        // SAFETY: a state without flags means that `fill` wrote `held`, and the new state means
        // that nobody reads it again.
        let held = unsafe { slot.held.assume_init_read() };
        self.push(index);
        Some(held)
    }

    /// What an identifier that `take` refused is.
    #[cold]
    pub(super) fn classify(&self, cid: u16) -> Unusual {
        let state = self.slots[self.index(cid)].state;
        if self.index(cid) >= self.free.len() {
            Unusual::Unknown
        } else if state & IDLE != 0 {
            Unusual::Idle
        } else if state & CID != u32::from(cid) {
            Unusual::Stale
        } else {
            Unusual::Split(cid)
        }
    }

    /// Puts a request that needs several commands into a free slot, which becomes its owner; no
    /// command is outstanding yet. Gives the owner's index.
    ///
    /// # Errors
    /// Gives the request back where no slot is free.
    #[cold]
    pub(super) fn insert_owner(&mut self, buf: Option<DmaBuf>, ctx: T) -> Result<usize, Held<T>> {
        let Some(index) = self.pop() else {
            return Err(Held { buf, ctx });
        };
        let slot = &mut self.slots[index];
        slot.state |= OWNER;
        slot.held.write(Held { buf, ctx });
        Ok(index)
    }

    /// The buffer that an owner holds: where a part's transfer lies.
    #[cold]
    pub(super) fn owner_iova(&self, owner: usize) -> Option<u64> {
        let slot = &self.slots[owner];
        if slot.state & OWNER == 0 {
            return None;
        }
        // SAFETY: `OWNER` is set exactly while `held` is written.
        let held = unsafe { slot.held.assume_init_ref() };
        held.buf.as_ref().map(DmaBuf::iova)
    }

    /// Takes a free slot for a further part of a request.
    #[cold]
    pub(super) fn acquire_part(&mut self) -> Option<usize> {
        self.pop()
    }

    /// Marks an idle slot as having a part outstanding and gives the part's identifier.
    #[cold]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an identifier is the low half"
    )]
    pub(super) fn start_part(&mut self, index: usize) -> u16 {
        let slot = &mut self.slots[index];
        slot.state = (slot.state & (CID | OWNER)) | SPLIT;
        slot.state as u16
    }

    /// Ends the part outstanding under `cid` and gives its slot, which stays taken.
    #[cold]
    pub(super) fn end_part(&mut self, cid: u16) -> usize {
        let index = self.index(cid);
        let next = next_generation(cid, self.slots.len());
        let slot = &mut self.slots[index];
        slot.state = (slot.state & OWNER) | IDLE | u32::from(next);
        index
    }

    /// Frees a slot that only ran parts.
    #[cold]
    pub(super) fn release_part(&mut self, index: usize) {
        debug_assert!(self.slots[index].state & (IDLE | OWNER) == IDLE);
        self.push(index);
    }

    /// Takes a finished request out of its owner and frees the slot.
    #[cold]
    pub(super) fn take_owner(&mut self, owner: usize) -> Option<Held<T>> {
        let slot = &mut self.slots[owner];
        if slot.state & (OWNER | IDLE) != OWNER | IDLE {
            return None;
        }
        slot.state &= !OWNER;
        // SAFETY: `OWNER` was set, so `held` is written; it was just cleared, so nobody reads it again.
        let held = unsafe { slot.held.assume_init_read() };
        self.push(owner);
        Some(held)
    }

    /// Takes out everything that is still held, for a queue that the device no longer works on.
    #[cold]
    pub(super) fn take_all(&mut self, mut each: impl FnMut(Held<T>)) {
        for index in 0..self.slots.len() {
            let len = self.slots.len();
            let slot = &mut self.slots[index];
            let whole = slot.state & (IDLE | SPLIT) == 0;
            let owner = slot.state & OWNER != 0;
            let taken = whole || owner || slot.state & IDLE == 0;
            let next = next_generation((slot.state & CID) as u16, len);
            slot.state = IDLE | u32::from(next);
            // SAFETY: a whole request outstanding, or an owner: exactly the states in which `held`
            // is written; the new state means that nobody reads it again.
            let held = (whole || owner).then(|| unsafe { slot.held.assume_init_read() });
            if taken {
                self.push(index);
            }
            if let Some(held) = held {
                each(held);
            }
        }
    }
}

impl<T> Drop for SlotTable<T> {
    fn drop(&mut self) {
        self.take_all(drop);
    }
}

impl<T> fmt::Debug for SlotTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable")
            .field("capacity", &self.capacity())
            .field("available", &self.available)
            .finish_non_exhaustive()
    }
}

/// The identifier for the next use of a slot in a table of `len` slots (a power of two).
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the generation wraps by design"
)]
fn next_generation(cid: u16, len: usize) -> u16 {
    cid.wrapping_add(len as u16)
}
