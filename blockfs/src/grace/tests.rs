//! Members and periods on one thread, step by step; the model checks the threads.
#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

use super::*;
use std::sync::atomic::{AtomicBool, Ordering as Std};

fn grace() -> Arc<Grace> {
    Grace::new().expect("Linux has membarrier(2)")
}

/// A flight of before the ticket holds it up, one of after does not, whichever way they end.
#[test]
fn a_ticket_waits_for_what_was_in_the_air() {
    let grace = grace();
    let (mut periods, mut member) = (grace.periods(), grace.member());
    for flight in [Flight::Read, Flight::Write] {
        for _ in 0..5 {
            let before = member.enter(flight);
            let ticket = periods.ticket(Flights::All);
            periods.advance();
            let after = member.enter(flight);
            periods.advance();
            assert!(!periods.passed(ticket));
            member.leave(before);
            periods.advance();
            // The later flight may have been counted under the old parity once.
            let passed = periods.passed(ticket);
            member.leave(after);
            periods.advance();
            assert!(periods.passed(ticket), "{passed}");
        }
    }
}

/// A steady stream of flights does not keep a ticket from passing.
#[test]
fn a_stream_of_flights_holds_up_nobody() {
    let grace = grace();
    let (mut periods, mut member) = (grace.periods(), grace.member());
    let mut air = VecDequeOf::new();
    for _ in 0..8 {
        air.push_back(member.enter(Flight::Read));
    }
    let ticket = periods.ticket(Flights::All);
    for turn in 0.. {
        periods.advance();
        if periods.passed(ticket) {
            break;
        }
        assert!(turn < 100, "it never passed");
        air.push_back(member.enter(Flight::Read));
        member.leave(air.pop_front().expect("eight are in the air"));
    }
    for pass in air {
        member.leave(pass);
    }
}

type VecDequeOf = std::collections::VecDeque<Pass>;

/// A ticket for writes does not wait for reads.
#[test]
fn reads_do_not_hold_up_who_waits_for_writes() {
    let grace = grace();
    let (mut periods, mut member) = (grace.periods(), grace.member());
    let read = member.enter(Flight::Read);
    let write = member.enter(Flight::Write);
    let ticket = periods.ticket(Flights::Writes);
    periods.advance();
    assert!(!periods.passed(ticket));
    assert!(!write.is_volatile() && !read.is_volatile());
    member.leave(write);
    periods.advance();
    assert!(periods.passed(ticket));
    member.leave(read);
}

/// What was replaced is dropped when the last flight that may use it has ended, and not before.
#[test]
fn the_replaced_is_dropped_when_nobody_uses_it() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    #[derive(Debug)]
    struct Marked(u32);
    impl Drop for Marked {
        fn drop(&mut self) {
            if self.0 == 1 {
                DROPPED.store(true, Std::SeqCst);
            }
        }
    }
    let grace = grace();
    let (mut periods, mut member) = (grace.periods(), grace.member());
    let published = Published::new(Marked(1));
    let pass = member.enter(Flight::Read);
    let old = member.get(&published, &pass).0;
    periods.retire(published.replace(Marked(2)));
    periods.advance();
    assert!(old == 1 && !DROPPED.load(Std::SeqCst));
    assert_eq!(member.get(&published, &pass).0, 2);
    member.leave(pass);
    periods.advance();
    assert!(DROPPED.load(Std::SeqCst));
}

/// A member that is gone holds up nobody, unless a flight of it was not seen to end.
#[test]
fn a_member_that_is_gone_counts_only_if_it_flies() {
    let grace = grace();
    let (mut periods, member) = (grace.periods(), grace.member());
    drop(member);
    let ticket = periods.ticket(Flights::All);
    periods.advance();
    assert!(periods.passed(ticket));
    let mut member = grace.member();
    let lost = member.enter(Flight::Read);
    drop(member);
    let ticket = periods.ticket(Flights::All);
    periods.advance();
    assert!(!periods.passed(ticket));
    drop(lost);
}
