//! A pointer to something immutable that is replaced as a whole.
#![expect(
    unsafe_code,
    reason = "readers hold references that only grace periods end"
)]

use super::Pass;
use super::sync::{AtomicPtr, Ordering};
use std::fmt;

/// Something immutable that readers find by one load.
pub(crate) struct Published<T>(AtomicPtr<T>);

/// What was replaced: readers may still use it. Only [`Periods`](super::Periods) drops it.
#[derive(Debug)]
#[must_use = "it has to be retired"]
pub(crate) struct Retired<T>(Box<T>);

impl<T> Published<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    /// What is published now. Who calls has been counted in by a member of the same volume: hence the
    /// pass, which is given up when the flight has ended.
    #[inline]
    pub(super) fn get<'p>(&'p self, _: &'p Pass) -> &'p T {
        let pointer = self.0.load(Ordering::Acquire);
        // SAFETY: it came from a box that is freed only when it was replaced and every flight that was
        // counted in before has been counted out; the pass is one that was counted in before the load
        // and, as it is borrowed, has not been counted out.
        unsafe { &*pointer }
    }

    /// Publishes something else.
    pub(crate) fn replace(&self, value: T) -> Retired<T> {
        let new = Box::into_raw(Box::new(value));
        let old = self.0.swap(new, Ordering::AcqRel);
        // SAFETY: it came from a box, and this swap took it out for good.
        Retired(unsafe { Box::from_raw(old) })
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let pointer = self.0.load(Ordering::Acquire);
        // SAFETY: it came from a box; who drops this has it alone, and passes borrow it.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Published")
    }
}

impl<T: Send + Sync + 'static> Retired<T> {
    /// For who drops it later.
    pub(super) fn into_any(self) -> Box<dyn std::any::Any + Send + Sync> {
        self.0
    }
}
