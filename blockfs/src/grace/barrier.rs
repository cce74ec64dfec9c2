//! The two halves of the ordering: nothing for the reader, a system call for the replacer.
#![cfg_attr(
    not(loom),
    expect(unsafe_code, reason = "membarrier(2) has no safe wrapper")
)]

use std::io;

/// The kernel cannot order the memory accesses of other threads.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel refuses membarrier(2), which Linux has since 4.14: allow the system call (a seccomp \
     profile may forbid it)"
)]
pub struct GraceError(#[source] io::Error);

/// That this process may issue barriers on its other threads.
#[derive(Debug)]
pub(super) struct Barrier(());

/// The reader's half: the compiler keeps the order, the processor need not.
#[inline(always)]
pub(super) fn light() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    // The two halves together are two full fences, wherever the reader is when the other half comes.
    #[cfg(loom)]
    if super::model::with_barrier() {
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(not(loom))]
impl Barrier {
    pub(super) fn new() -> Result<Self, GraceError> {
        call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED).map(|()| Self(()))
    }

    /// The replacer's half: every thread of the process has passed a full barrier when it returns.
    /// `false` if not, as in a child of a fork that has not registered: nothing may be freed then.
    pub(super) fn heavy(&self) -> bool {
        call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).is_ok()
    }
}

#[cfg(not(loom))]
fn call(command: libc::c_int) -> Result<(), GraceError> {
    // SAFETY: the call takes three integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    match result {
        0 => Ok(()),
        _ => Err(GraceError(io::Error::last_os_error())),
    }
}

#[cfg(loom)]
impl Barrier {
    pub(super) fn new() -> Result<Self, GraceError> {
        Ok(Self(()))
    }

    pub(super) fn heavy(&self) -> bool {
        if super::model::with_barrier() {
            loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        }
        true
    }
}
