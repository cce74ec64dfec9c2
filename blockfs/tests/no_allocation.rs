//! Walking mappings and counting requests allocate nothing: a million steps under a counting
//! allocator.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use blockfs::iomap::{
    Begun, Ended, IomapIter, MapError, MapOps, Mapping, OpFlags, Request, SimpleLimits, read_simple,
};
use blockfs::iostat::{Kind, PerQueue, Tracked};
use driver::clock::SystemClock;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator; counts, for each thread, what it is asked for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count_one() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: everything is left to the system's allocator. The counter is a constant-initialised
// thread-local without a destructor, so it allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps this trait's contract, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count_one();
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread allocates or frees while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

const STEP: u64 = 512;

/// A file without an end, 512 bytes a mapping; every fifth look-up is stale, every ninth a hole.
struct Endless {
    turn: u64,
    ends: u64,
}

impl MapOps for Endless {
    type Error = MapError;
    type Private = u64;
    type Held = [u8; 32];
    const HAS_END: bool = true;

    fn size(&self) -> u64 {
        u64::MAX
    }

    fn begin(&mut self, request: Request) -> Result<Begun<u64, [u8; 32]>, MapError> {
        self.turn += 1;
        let (pos, private) = (request.pos, self.turn);
        let mapping = if self.turn.is_multiple_of(9) {
            Mapping::hole(pos, STEP)
        } else {
            Mapping::mapped(pos, pos, STEP)
        };
        Ok(Begun {
            mapping,
            source: Some(Mapping::mapped(0, pos, STEP)),
            private,
            held: [1; 32],
        })
    }

    fn end(&mut self, ended: Ended<'_, u64, [u8; 32]>) -> Result<(), MapError> {
        assert_eq!(ended.private, self.turn);
        self.ends += 1;
        // Half of these errors count for nothing, because bytes were advanced.
        if ended.private.is_multiple_of(2) {
            Ok(())
        } else {
            Err(MapError::WouldBlock)
        }
    }
}

/// A million steps of the iterator, stale ones and failing ends among them.
#[test]
fn a_million_steps_allocate_nothing() {
    let mut ops = Endless { turn: 0, ends: 0 };
    let mut steps = 0_u64;
    let count = allocations(|| {
        let mut pos = 0;
        while steps < 1_000_000 {
            let iter = IomapIter::new(&mut ops, pos, 100 * STEP, OpFlags::READ);
            let Ok(mut iter) = iter else { return };
            while let Ok(Some(mut step)) = iter.next_step() {
                steps += 1;
                if step.mapping().offset().is_multiple_of(5) && step.advance(1).is_ok() {
                    step.mark_stale();
                } else if step.advance(step.len()).is_err() {
                    return;
                }
            }
            pos = iter.pos();
        }
    });
    assert_eq!(count, 0);
    assert!(steps >= 1_000_000);
    assert_eq!((ops.turn, ops.ends), (steps, steps));
}

/// A file in one extent.
struct OneExtent;

impl MapOps for OneExtent {
    type Error = MapError;
    type Private = ();
    type Held = ();
    const HAS_END: bool = false;

    fn size(&self) -> u64 {
        1 << 40
    }

    fn begin(&mut self, _: Request) -> Result<Begun, MapError> {
        Ok(Mapping::mapped(1 << 30, 0, 1 << 40).into())
    }
}

/// A million reads of the short path, each counted by statistics that are on.
#[test]
fn a_million_counted_reads_allocate_nothing() {
    let limits = SimpleLimits::new(512, 4096).unwrap();
    let mut stats = PerQueue::new(SystemClock::new());
    let count = allocations(|| {
        for block in 0..1_000_000 {
            let request = Tracked::submit(&stats, Kind::Read, 4096, block);
            let read = read_simple(
                &mut OneExtent,
                (),
                limits,
                block * 4096,
                4096,
                OpFlags::DIRECT,
            );
            request.complete(
                &mut stats,
                read.is_ok_and(|r| r.addr == (1 << 30) + block * 4096),
            );
        }
    });
    assert_eq!(count, 0);
    assert_eq!(stats.stats().kind(Kind::Read).count(), 1_000_000);
}

/// The counter counts.
#[test]
fn an_allocation_is_counted() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 2);
}
