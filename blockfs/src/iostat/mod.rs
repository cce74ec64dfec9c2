//! I/O statistics as a type parameter: what is off is not there.
//!
//! Whoever does I/O takes a type `S:` [`IoStat`] and wraps each request's context in [`Tracked`]:
//!
//! | `S` | what it does | what a request carries |
//! |---|---|---|
//! | [`Off`] | nothing; the default | nothing: neither a byte nor an instruction more |
//! | [`PerQueue`] | counts, bytes and latencies, by kind | time, bytes, kind |
//! | [`Switchable`] | the same while its [`Switch`] is on | the same, or that it was off |
//!
//! Whether a request counts is decided once, when it is submitted, and travels with it. So a switch
//! in the middle of a run cannot make counts, bytes and latencies disagree.
//!
//! Counters belong to one queue and its thread: there is no lock and nothing is shared. To report,
//! the owner lends or clones its [`Stats`], and [`Stats::merge`] adds several up.
//!
//! # Examples
//!
//! ```
//! use blockfs::iostat::{IoStat, Kind, PerQueue, Tracked};
//! use driver::clock::SystemClock;
//!
//! /// Submits a read with the context `id`, and takes its completion.
//! fn one_read<S: IoStat>(stats: &mut S, id: u32) -> u32 {
//!     let in_flight = Tracked::submit(stats, Kind::Read, 4096, id);
//!     // ... the queue carries it, the drive does the work ...
//!     in_flight.complete(stats, true)
//! }
//!
//! let mut stats = PerQueue::new(SystemClock::new());
//! assert_eq!(one_read(&mut stats, 7), 7);
//!
//! let reads = stats.stats().kind(Kind::Read);
//! assert_eq!((reads.count(), reads.bytes(), reads.errors()), (1, 4096, 0));
//! let p99 = reads.latency().quantile(99, 100);
//! assert!(p99.is_some_and(|ns| ns <= reads.latency().max()));
//! ```
#![forbid(unsafe_code)]

mod histogram;
mod per_queue;
mod stats;
mod switchable;
#[cfg(test)]
mod tests;
mod tracked;

pub use histogram::Histogram;
pub use per_queue::{PerQueue, Started};
pub use stats::{Kind, KindStats, Stats};
pub use switchable::{Switch, Switchable};
pub use tracked::Tracked;

use driver::clock::Clock;

/// What is done with each request, and what it carries for that.
///
/// It is a generic parameter, never a trait object.
pub trait IoStat {
    /// What a request carries from its submission to its completion.
    type Ctx: Copy;

    /// A request of `bytes` bytes is about to be submitted.
    fn submit(&self, kind: Kind, bytes: u64) -> Self::Ctx;

    /// The request has ended, well or not.
    fn complete(&mut self, ctx: Self::Ctx, ok: bool);
}

/// No statistics: nothing is stored, nothing is done, no clock is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Off;

impl IoStat for Off {
    type Ctx = ();

    #[inline(always)]
    fn submit(&self, _: Kind, _: u64) {}

    #[inline(always)]
    fn complete(&mut self, (): (), _: bool) {}
}

/// A clock for latencies.
///
/// Every [`Clock`] of the driver is one. A cheaper source, the processor's time stamp counter say,
/// can be brought along.
pub trait Tick {
    /// Nanoseconds since an arbitrary, fixed start. Never goes backwards.
    fn tick(&self) -> u64;
}

impl<C: Clock> Tick for C {
    #[inline]
    fn tick(&self) -> u64 {
        // 2^64 ns are 584 years.
        u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX)
    }
}
