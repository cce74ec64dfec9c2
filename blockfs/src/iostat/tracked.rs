//! A request's context together with what the statistics carry.

use super::stats::Kind;
use super::{IoStat, Off};

/// A request's own context `T`, and what `S` wants to know again when the request ends.
///
/// With [`Off`] it is exactly as large as `T`.
#[derive(Debug)]
pub struct Tracked<T, S: IoStat = Off> {
    ctx: T,
    stat: S::Ctx,
}

const _: () = {
    assert!(size_of::<Off>() == 0);
    assert!(size_of::<Tracked<u32>>() == size_of::<u32>());
    assert!(size_of::<Tracked<(u64, u8)>>() == size_of::<(u64, u8)>());
    assert!(size_of::<Option<Tracked<Box<u8>>>>() == size_of::<Box<u8>>());
};

impl<T, S: IoStat> Tracked<T, S> {
    /// For a request that is about to be submitted: whether and as what it counts is decided here.
    #[inline]
    #[must_use = "it is what is to be submitted"]
    pub fn submit(stats: &S, kind: Kind, bytes: u64, ctx: T) -> Self {
        Self {
            ctx,
            stat: stats.submit(kind, bytes),
        }
    }

    /// For a request that has ended, well or not: accounts for it and gives its context back.
    #[inline]
    pub fn complete(self, stats: &mut S, ok: bool) -> T {
        stats.complete(self.stat, ok);
        self.ctx
    }

    /// For a request that was not accepted: gives its context back and accounts for nothing.
    #[inline]
    pub fn cancel(self) -> T {
        self.ctx
    }
}
