//! What statistics cost a 4 KiB read: look-up, submission and completion, in five builds of one
//! path.
//!
//! Each `cost_` function is one read through a stand-in for a queue, so that what is counted is the
//! code around it. `tests/cost` runs this under callgrind, which counts their
//! instructions; run alone it only says that all gave the same answers.
//!
//!     cargo run --release -p doorbell-blockfs --example iostat_cost

use blockfs::iomap::{Begun, IomapIter, MapError, MapOps, Mapping, OpFlags, Request};
use blockfs::iomap::{SimpleLimits, read_simple};
use blockfs::iostat::{IoStat, Kind, Off, PerQueue, Switch, Switchable, Tick, Tracked};
use std::hint::black_box;

/// How often each function is called; the test knows it too.
const CALLS: u64 = 1000;
const BLOCK: u64 = 4096;
const SLOTS: usize = 64;

/// A file in one extent.
struct File {
    extent: Mapping,
}

impl MapOps for &File {
    type Error = MapError;
    type Private = ();
    type Held = ();
    const HAS_END: bool = false;

    #[inline]
    fn size(&self) -> u64 {
        self.extent.length()
    }

    #[inline]
    fn begin(&mut self, _: Request) -> Result<Begun, MapError> {
        Ok(self.extent.into())
    }
}

/// Requests on their way: an address and a context each, in order.
struct Ring<T> {
    slots: [(u64, Option<T>); SLOTS],
    head: usize,
    tail: usize,
}

impl<T> Ring<T> {
    fn new() -> Self {
        Self {
            slots: [const { (0, None) }; SLOTS],
            head: 0,
            tail: 0,
        }
    }

    #[inline(always)]
    fn submit(&mut self, addr: u64, ctx: T) {
        self.slots[self.tail % SLOTS] = (addr, Some(ctx));
        self.tail += 1;
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<(u64, T)> {
        let (addr, ctx) = &mut self.slots[self.head % SLOTS];
        self.head += 1;
        Some((*addr, ctx.take()?))
    }
}

/// A queue with statistics as a parameter.
struct Queue<S: IoStat> {
    ring: Ring<Tracked<u32, S>>,
    stats: S,
}

/// The path with statistics as a parameter. `ID` keeps the functions apart: equal ones would be
/// merged.
#[inline(always)]
fn read<S: IoStat, const ID: u32>(
    queue: &mut Queue<S>,
    file: &File,
    limits: SimpleLimits,
    pos: u64,
) -> Option<u64> {
    let found = read_simple(&mut &*file, (), limits, pos, BLOCK, OpFlags::DIRECT).ok()?;
    let request = Tracked::submit(&queue.stats, Kind::Read, BLOCK, ID);
    queue.ring.submit(found.addr, request);
    // The drive works; nothing is known about the ring any more.
    let queue = black_box(queue);
    let (addr, request) = queue.ring.poll()?;
    let id = request.complete(&mut queue.stats, true);
    Some(addr ^ u64::from(id ^ ID))
}

/// The same as somebody writes it who has never heard of statistics.
#[inline(never)]
fn cost_handwritten(
    ring: &mut Ring<u32>,
    file: &File,
    limits: SimpleLimits,
    pos: u64,
) -> Option<u64> {
    const ID: u32 = 11;
    let found = read_simple(&mut &*file, (), limits, pos, BLOCK, OpFlags::DIRECT).ok()?;
    ring.submit(found.addr, ID);
    let ring = black_box(ring);
    let (addr, id) = ring.poll()?;
    Some(addr ^ u64::from(id ^ ID))
}

/// The hand-written one through the iterator instead of the short path.
#[inline(never)]
fn cost_iterator(ring: &mut Ring<u32>, file: &File, _: SimpleLimits, pos: u64) -> Option<u64> {
    const ID: u32 = 12;
    let mut iter = IomapIter::new(file, pos, BLOCK, OpFlags::DIRECT).ok()?;
    while let Some(mut step) = iter.next_step().ok()? {
        ring.submit(step.device_addr()?, ID);
        step.advance(step.len()).ok()?;
    }
    let ring = black_box(ring);
    let (addr, id) = ring.poll()?;
    Some(addr ^ u64::from(id ^ ID))
}

#[inline(never)]
fn cost_off(queue: &mut Queue<Off>, file: &File, limits: SimpleLimits, pos: u64) -> Option<u64> {
    read::<_, 13>(queue, file, limits, pos)
}

#[inline(never)]
fn cost_switched_off(
    queue: &mut Queue<Switchable<Count>>,
    file: &File,
    limits: SimpleLimits,
    pos: u64,
) -> Option<u64> {
    read::<_, 14>(queue, file, limits, pos)
}

#[inline(never)]
fn cost_per_queue(
    queue: &mut Queue<PerQueue<Count>>,
    file: &File,
    limits: SimpleLimits,
    pos: u64,
) -> Option<u64> {
    read::<_, 15>(queue, file, limits, pos)
}

/// A clock of one instruction or two, so that what is counted is the statistics and not the clock.
struct Count;

impl Tick for Count {
    #[inline(always)]
    fn tick(&self) -> u64 {
        black_box(1000)
    }
}

/// Calls one of the functions over the whole file again and again; says what came out. Inlined, so
/// that callgrind does not find the function's name in this one's type parameters.
#[inline(always)]
fn run<Q>(
    queue: &mut Q,
    file: &File,
    limits: SimpleLimits,
    cost: impl Fn(&mut Q, &File, SimpleLimits, u64) -> Option<u64>,
) -> u64 {
    let blocks = file.extent.length() / BLOCK;
    (0..CALLS).fold(0, |sum: u64, call| {
        let addr = cost(queue, file, limits, call % blocks * BLOCK);
        sum.wrapping_add(addr.unwrap_or(u64::MAX))
    })
}

fn main() -> Result<(), &'static str> {
    let file = black_box(File {
        extent: Mapping::mapped(1 << 30, 0, 1 << 20),
    });
    let limits = black_box(SimpleLimits::new(512, 4096).ok_or("not powers of two")?);
    let mut ring = Ring::new();
    let mut off = Queue {
        ring: Ring::new(),
        stats: Off,
    };
    let mut switchable = Queue {
        ring: Ring::new(),
        stats: Switchable::new(Count, &Switch::new()),
    };
    let mut per_queue = Queue {
        ring: Ring::new(),
        stats: PerQueue::new(Count),
    };
    let sums = [
        run(&mut ring, &file, limits, cost_handwritten),
        run(&mut ring, &file, limits, cost_iterator),
        run(&mut off, &file, limits, cost_off),
        run(&mut switchable, &file, limits, cost_switched_off),
        run(&mut per_queue, &file, limits, cost_per_queue),
    ];
    let blocks = file.extent.length() / BLOCK;
    let expected: u64 = (0..CALLS)
        .map(|call| (1 << 30) + call % blocks * BLOCK)
        .sum();
    if sums != [expected; 5] {
        return Err("the paths do not agree");
    }
    if per_queue.stats.stats().kind(Kind::Read).count() != CALLS {
        return Err("not every read was counted");
    }
    Ok(())
}
