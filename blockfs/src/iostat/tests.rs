//! Tests of what is counted, when, and what is not there when it is off.

use super::{IoStat, Kind, Off, PerQueue, Stats, Switch, Switchable, Tick, Tracked};
use crate::device::DriverDevice;
use crate::iomap::{Begun, IomapIter, MapError, MapOps, Mapping, Request};
use driver::queue::Completion;
use proptest::prelude::*;
use std::cell::Cell;

/// A clock that the test sets, and that counts how often it is read.
#[derive(Debug, Default)]
struct Manual {
    now: Cell<u64>,
    reads: Cell<u32>,
}

impl Tick for &Manual {
    fn tick(&self) -> u64 {
        self.reads.set(self.reads.get() + 1);
        self.now.get()
    }
}

/// Each kind is counted apart, with bytes, latency and errors; two clock reads a request.
#[test]
fn every_kind_is_counted_apart() {
    let clock = Manual::default();
    let mut stats = PerQueue::new(&clock);
    for (index, kind) in (1..).zip(Kind::ALL) {
        for _ in 0..index {
            let request = Tracked::submit(&stats, kind, index * 512, index);
            clock.now.set(clock.now.get() + index * 1000);
            assert_eq!(request.complete(&mut stats, true), index);
        }
        Tracked::submit(&stats, kind, 1 << 40, ()).complete(&mut stats, false);
        Tracked::submit(&stats, kind, 1 << 40, ()).cancel();
    }
    for (index, kind) in (1..).zip(Kind::ALL) {
        let of_kind = stats.stats().kind(kind);
        assert_eq!(of_kind.count(), index, "{kind}");
        assert_eq!(of_kind.bytes(), index * index * 512, "{kind}");
        assert_eq!(of_kind.errors(), 1, "{kind}");
        assert_eq!(of_kind.latency().max(), index * 1000, "{kind}");
        assert_eq!(of_kind.latency().mean(), Some(index * 1000), "{kind}");
    }
    // Fifteen that ended well read it twice, five failed and five cancelled ones once.
    assert_eq!(clock.reads.get(), 15 * 2 + 5 + 5);
}

/// A clock that goes backwards, against its contract, costs a latency and nothing else.
#[test]
fn a_clock_that_goes_backwards_is_harmless() {
    let clock = Manual::default();
    clock.now.set(500);
    let mut stats = PerQueue::new(&clock);
    let request = Tracked::submit(&stats, Kind::Read, u64::MAX, ());
    clock.now.set(400);
    request.complete(&mut stats, true);
    Tracked::submit(&stats, Kind::Read, u64::MAX, ()).complete(&mut stats, true);
    let reads = stats.stats().kind(Kind::Read);
    assert_eq!((reads.latency().max(), reads.bytes()), (0, u64::MAX));
}

/// Queues added up are what one queue would have counted.
#[test]
fn merging_adds_up() {
    let clock = Manual::default();
    let mut queues = [PerQueue::new(&clock), PerQueue::new(&clock)];
    let mut one = PerQueue::new(&clock);
    for turn in 0..1000_u64 {
        let kind = Kind::ALL[(turn % 5) as usize];
        let queue = &mut queues[(turn % 2) as usize];
        let requests = (
            Tracked::submit(queue, kind, turn, ()),
            Tracked::submit(&one, kind, turn, ()),
        );
        clock.now.set(clock.now.get() + turn * turn);
        requests.0.complete(queue, turn % 7 != 0);
        requests.1.complete(&mut one, turn % 7 != 0);
    }
    let mut sum = Stats::new();
    for queue in &queues {
        sum.merge(queue.stats());
    }
    assert_eq!(&sum, one.stats());
    assert_ne!(&sum, queues[0].stats());
}

/// While it is off no clock is read and nothing is counted.
#[test]
fn switched_off_reads_no_clock() {
    let clock = Manual::default();
    let mut stats = Switchable::new(&clock, &Switch::new());
    for ok in [true, false] {
        Tracked::submit(&stats, Kind::Write, 512, ()).complete(&mut stats, ok);
    }
    assert_eq!(clock.reads.get(), 0);
    assert_eq!(stats.stats(), &Stats::new());
}

/// What to do, to which request in flight, and how much.
fn step() -> impl Strategy<Value = (u8, prop::sample::Index, u64)> {
    (0..4_u8, any::<prop::sample::Index>(), 1..1_u64 << 20)
}

proptest! {
    /// With the switch thrown at any time, and completions in any order: exactly the requests that
    /// were submitted while it was on are counted, with all they have.
    #[test]
    fn a_request_counts_as_what_it_was_submitted(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let clock = Manual::default();
        let switch = Switch::new();
        let mut stats = Switchable::new(&clock, &switch);
        let mut in_flight = Vec::new();
        let (mut count, mut bytes, mut latency) = (0, 0, 0);
        for (what, which, size) in steps {
            clock.now.set(clock.now.get() + size);
            match what {
                0 => switch.set(!switch.is_on()),
                1 | 2 => {
                    let ctx = (switch.is_on(), clock.now.get(), size);
                    in_flight.push(Tracked::submit(&stats, Kind::Read, size, ctx));
                }
                _ if in_flight.is_empty() => {}
                _ => {
                    let request = in_flight.swap_remove(which.index(in_flight.len()));
                    let (was_on, start, size) = request.complete(&mut stats, true);
                    if was_on {
                        count += 1;
                        bytes += size;
                        latency = latency.max(clock.now.get() - start);
                    }
                }
            }
        }
        let reads = stats.stats().kind(Kind::Read);
        prop_assert_eq!((reads.count(), reads.bytes()), (count, bytes));
        prop_assert_eq!(reads.latency().max(), latency);
    }
}

/// The context of a read as one would write it without statistics.
#[expect(dead_code, reason = "only its size counts")]
struct BareRead {
    buffer: Box<[u8]>,
    pos: u64,
    tag: u16,
}

/// Map operations with statistics as a parameter, and without any.
struct WithStats<'a, S>(&'a u64, S);
struct Bare<'a>(&'a u64);

macro_rules! one_extent {
    ($ops:ty, $($param:ident)?) => {
        impl<$($param)?> MapOps for $ops {
            type Error = MapError;
            type Private = ();
            type Held = ();
            const HAS_END: bool = false;
            fn size(&self) -> u64 {
                *self.0
            }
            fn begin(&mut self, _: Request) -> Result<Begun, MapError> {
                Ok(Mapping::mapped(0, 0, *self.0).into())
            }
        }
    };
}
one_extent!(WithStats<'_, S>, S);
one_extent!(Bare<'_>,);

/// A queue context as the filesystem has one: the device, and the statistics beside it.
#[expect(dead_code, reason = "only its size counts")]
struct Queue<T, S: IoStat> {
    device: DriverDevice<Tracked<T, S>>,
    stats: S,
}

/// Off is not there: requests, what travels through the queue, the queue's context and the iterator
/// have the size and alignment of hand-written ones.
#[test]
fn off_takes_no_room() {
    macro_rules! same {
        ($a:ty, $b:ty) => {
            const { assert!(size_of::<$a>() == size_of::<$b>()) };
            const { assert!(align_of::<$a>() == align_of::<$b>()) };
            const { assert!(size_of::<Option<$a>>() == size_of::<Option<$b>>()) };
        };
    }
    same!(Tracked<BareRead>, BareRead);
    same!(Tracked<()>, ());
    same!(Tracked<u8>, u8);
    same!(Completion<Tracked<BareRead>>, Completion<BareRead>);
    same!(DriverDevice<Tracked<BareRead>>, DriverDevice<BareRead>);
    same!(Queue<BareRead, Off>, DriverDevice<BareRead>);
    same!(IomapIter<WithStats<'static, Off>>, IomapIter<Bare<'static>>);
    // The comparison would notice statistics that are on.
    type On = PerQueue<&'static Manual>;
    assert!(size_of::<Tracked<BareRead, On>>() > size_of::<BareRead>());
    assert!(size_of::<Queue<BareRead, On>>() > size_of::<DriverDevice<BareRead>>());
    assert!(size_of::<IomapIter<WithStats<'static, On>>>() > size_of::<IomapIter<Bare<'static>>>());
}
