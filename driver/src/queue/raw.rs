//! Raw I/O commands: what the typed ones do not cover.
#![expect(
    unsafe_code,
    reason = "a raw command may move any memory: its caller vouches for it"
)]

use super::QueuePair;
use super::request::Rejected;
use crate::memory::DmaBuf;
use crate::spec::Sqe;

/// What a raw command's data pointer is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawData {
    /// The buffer: the driver fills in PRP1 and PRP2.
    Describe,
    /// The command brings its own pointers, or has none.
    AsGiven,
}

impl<T> QueuePair<T> {
    /// Submits a raw 64-byte command, with the queue's own command identifier put in. `buf` is kept
    /// until the command has ended; with `data`, PRP1 and PRP2 are made to describe all of it.
    ///
    /// # Errors
    /// [`Rejected`], with everything that was given.
    ///
    /// # Safety
    /// The device does what the command says: the command must move no more bytes than the buffers that
    /// it names hold, and memory that it names by itself must stay valid, and unread by safe code,
    /// until it has ended.
    pub unsafe fn submit_raw(
        &mut self,
        sqe: Sqe,
        buf: Option<DmaBuf>,
        data: RawData,
        ctx: T,
    ) -> Result<(), Rejected<T>> {
        match (buf, data) {
            (Some(buf), RawData::Describe) => {
                if let Err(reason) = self.check_buffer(&buf) {
                    return Err(Rejected::new(reason, Some(buf), ctx));
                }
                self.core().submit_data(sqe, buf, ctx)
            }
            (buf, _) => self.core().submit_plain(sqe, buf, ctx),
        }
    }
}
