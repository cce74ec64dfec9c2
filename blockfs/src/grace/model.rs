//! The model: every interleaving, and every reordering that the memory model allows, of a reader and of
//! who truncates under it, with the barrier as a step of its own.
//!
//! Run by `tests/run loom`, which builds with `--cfg loom`.

use super::{Flight, Flights, Grace, Published};
use loom::sync::Arc as LoomArc;
use loom::sync::atomic::{AtomicU32, Ordering};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Whether the barrier is there; a model without it has to fail.
    static BARRIER: Cell<bool> = const { Cell::new(true) };
}

pub(super) fn with_barrier() -> bool {
    BARRIER.get()
}

/// The owner of the only block.
const MINE: u32 = 1;
const NOBODY: u32 = 0;
const ANOTHER: u32 = 2;

/// A reader looks the block up and reads it, once or twice; a truncation takes it away and, when the
/// ticket has passed, gives it to another file, which writes to it. The reader must never read what
/// the other file wrote.
fn truncate_against_reads(reads: usize, flight: Flight, flights: Flights) {
    let Ok(grace) = Grace::new() else {
        return;
    };
    let map = LoomArc::new(Published::new(MINE));
    let block = LoomArc::new(AtomicU32::new(MINE));
    let mut member = grace.member();
    let reader = {
        let (map, block) = (LoomArc::clone(&map), LoomArc::clone(&block));
        loom::thread::spawn(move || {
            for _ in 0..reads {
                let pass = member.enter(flight);
                if *member.get(&map, &pass) == MINE {
                    let found = block.load(Ordering::Relaxed);
                    assert_ne!(found, ANOTHER, "somebody else's data");
                }
                member.leave(pass);
            }
            member
        })
    };
    let mut periods = grace.periods();
    periods.retire(map.replace(NOBODY));
    let ticket = periods.ticket(flights);
    for _ in 0..2 {
        periods.advance();
        if periods.passed(ticket) {
            block.store(ANOTHER, Ordering::Relaxed);
            break;
        }
        loom::thread::yield_now();
    }
    let member = reader.join();
    drop(member);
    periods.advance();
    assert!(periods.passed(ticket), "nobody is in the air any more");
}

/// Truncation against reads.
#[test]
fn freed_blocks_are_not_reused_under_a_read() {
    loom::model(|| truncate_against_reads(1, Flight::Read, Flights::All));
}

/// The same with a second read, which may find the other parity.
#[test]
fn nor_under_a_later_read() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| truncate_against_reads(2, Flight::Read, Flights::All));
}

/// Punching a hole against overwrites: who waits for writes alone.
#[test]
fn nor_under_an_overwrite() {
    loom::model(|| truncate_against_reads(1, Flight::Write, Flights::Writes));
}

/// Without the barrier the model fails: it can see what the barrier is for.
#[test]
fn without_the_barrier_the_model_fails() {
    let failed = catch_unwind(AssertUnwindSafe(|| {
        loom::model(|| {
            BARRIER.set(false);
            truncate_against_reads(1, Flight::Read, Flights::All);
        });
    }));
    BARRIER.set(true);
    assert!(failed.is_err(), "the model saw nothing");
}
