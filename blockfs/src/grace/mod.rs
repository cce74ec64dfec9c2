//! Grace periods: when nobody uses any more what was taken away.
//!
//! A reader of a file's map does two plain stores to a cache line of its own and one plain load: it
//! counts itself in ([`Member::enter`]), loads the map ([`Member::get`]), and counts itself out when
//! its command has ended ([`Member::leave`]). Who replaces the map pays for the ordering: it publishes
//! the new map, issues a barrier on every processor that runs this process (membarrier(2), expedited),
//! and then waits, without blocking, until the counts have been zero.
//!
//! Why that is enough: a processor may delay the reader's store behind its load. But after the barrier
//! either the store has become visible, and the replacer sees the count, or the load comes after the
//! barrier, and finds the new map. So whoever holds the old map is counted. Counts are kept apart by
//! parity: while the old parity drains, new readers count under the other one, so a steady stream of
//! readers does not keep the old from draining. A reader that saw the parity late only delays the end.
//!
//! Nothing here waits: [`Periods::advance`] looks, and a [`Ticket`] has passed or not. A thread that is
//! not in the middle of anything holds up nobody, whether it polls or not.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | members: the readers' side |
//! | `periods.rs` | the replacer's side |
//! | `published.rs` | the pointer |
//! | `barrier.rs` | membarrier(2) |
//! | `model.rs` | the model, checked exhaustively |

mod barrier;
#[cfg(all(test, loom))]
mod model;
mod periods;
mod published;
mod sync;

pub use barrier::GraceError;
pub(crate) use periods::{Flights, Periods, Ticket};
pub(crate) use published::Published;

use barrier::Barrier;
use std::sync::{Arc, Mutex, PoisonError};
use sync::{AtomicU32, AtomicU64, Ordering};

/// What a member is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flight {
    /// Read through a map.
    Read,
    /// Overwrite blocks through a map.
    Write,
}

/// One flight that was counted in: give it to [`Member::leave`] when it has ended. What is lost of
/// them keeps the volume from using freed blocks again, and does no other harm.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the flight has to be counted out"]
pub(crate) struct Pass(u8);

const WRITE: u8 = 2;
/// Set in those that a sync has to know of.
const VOLATILE: u8 = 4;

impl Pass {
    /// Marks a write that may be in the drive's cache when it has ended.
    #[inline]
    pub(crate) const fn volatile(self, volatile: bool) -> Self {
        Self(if volatile { self.0 | VOLATILE } else { self.0 })
    }

    /// Whether it is such a write.
    #[inline]
    pub(crate) const fn is_volatile(&self) -> bool {
        self.0 & VOLATILE != 0
    }
}

/// A member's counts, on a cache line of their own. Only the member writes them.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// By [`Pass`]: kind and parity.
    counts: [AtomicU64; 4],
}

/// What members and periods of one volume share.
#[derive(Debug)]
pub(crate) struct Grace {
    /// The parity of the flights that begin now, of reads and of writes. Rarely written.
    phases: [AtomicU32; 2],
    slots: Mutex<Vec<Arc<Slot>>>,
    barrier: Barrier,
}

impl Grace {
    /// Nobody is a member yet.
    ///
    /// # Errors
    /// [`GraceError`] if the kernel has no membarrier(2).
    pub(crate) fn new() -> Result<Arc<Self>, GraceError> {
        Ok(Arc::new(Self {
            phases: [AtomicU32::new(0), AtomicU32::new(0)],
            slots: Mutex::new(Vec::new()),
            barrier: Barrier::new()?,
        }))
    }

    /// A new member.
    pub(crate) fn member(self: &Arc<Self>) -> Member {
        let slot = Arc::new(Slot {
            counts: [const { 0 }; 4].map(AtomicU64::new),
        });
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(Arc::clone(&slot));
        drop(slots);
        Member {
            slot,
            grace: Arc::clone(self),
        }
    }

    /// The replacer's side; one for each volume.
    pub(crate) fn periods(self: &Arc<Self>) -> Periods {
        Periods::new(Arc::clone(self))
    }

    /// Whether the count `index` of all members is zero.
    fn is_zero(&self, index: usize) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire: what the flights did happened before.
        slots
            .iter()
            .all(|slot| slot.counts[index].load(Ordering::Acquire) == 0)
    }

    fn has_members(&self) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        !slots.is_empty()
    }
}

/// One queue's part in it. It belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct Member {
    slot: Arc<Slot>,
    grace: Arc<Grace>,
}

impl Member {
    /// Counts a flight in.
    #[inline]
    pub(crate) fn enter(&mut self, flight: Flight) -> Pass {
        let (phase, kind) = match flight {
            Flight::Read => (&self.grace.phases[0], 0),
            Flight::Write => (&self.grace.phases[1], WRITE),
        };
        // 0 or 1; which of them matters only for how soon a period ends.
        let parity = u8::from(phase.load(Ordering::Relaxed) & 1 == 1);
        let pass = Pass(kind | parity);
        // Nobody else writes it: no read-modify-write is needed.
        let count = &self.slot.counts[usize::from(pass.0 & 3)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        barrier::light();
        pass
    }

    /// Counts a flight out.
    #[inline]
    pub(crate) fn leave(&mut self, pass: Pass) {
        let count = &self.slot.counts[usize::from(pass.0 & 3)];
        let left = count.load(Ordering::Relaxed).wrapping_sub(1);
        // Release: what the flight did happened before whatever is done once it is counted out.
        count.store(left, Ordering::Release);
    }

    /// What is published, for as long as the flight lasts. `published` is of the member's volume.
    #[inline]
    pub(crate) fn get<'p, T>(&'p self, published: &'p Published<T>, pass: &'p Pass) -> &'p T {
        published.get(pass)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let flying = self.slot.counts.iter();
        // A flight that was not seen to end may go on: its slot stays, and with it what it uses.
        if flying
            .map(|count| count.load(Ordering::Relaxed))
            .sum::<u64>()
            > 0
        {
            return;
        }
        let mut slots = self
            .grace
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
