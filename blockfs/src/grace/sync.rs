//! Atomics: the processor's, or the model checker's.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
