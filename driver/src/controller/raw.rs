//! Raw admin commands: what the typed ones do not cover.
#![expect(
    unsafe_code,
    reason = "a raw command may move any memory: its caller vouches for it"
)]

use super::admin::AdminCommand;
use super::options::ADMIN_MAX_TRANSFER;
use super::{Controller, ControllerError};
use crate::memory::DmaBuf;
use crate::queue::SubmitError;
use crate::spec::Sqe;

/// The name of such commands in messages.
const NAME: &str = "(passthrough)";

impl Controller {
    /// Runs a raw 64-byte admin command and waits for it; gives its buffer and dword 0 of its
    /// completion. The command identifier, and PRP1 and PRP2 for `data`, are put in.
    ///
    /// # Errors
    /// [`ControllerError`]. The buffer is not given back then: if the command has not ended it stays
    /// parked until the controller has been stopped.
    ///
    /// # Safety
    /// The device does what the command says: it must move no more bytes than `data` holds, must not
    /// name other memory, and must not create, delete or reformat what the driver counts on (queues,
    /// the format of a namespace in use).
    pub unsafe fn admin_raw(
        &self,
        sqe: Sqe,
        data: Option<DmaBuf>,
    ) -> Result<(Option<DmaBuf>, u32), ControllerError> {
        if let Some(data) = &data {
            let (len, max) = (data.len32(), ADMIN_MAX_TRANSFER);
            let reason = if data.domain() != self.shared.domain.id() {
                Some(SubmitError::WrongDomain)
            } else if len > max {
                Some(SubmitError::TooLong { len, max })
            } else {
                None
            };
            if let Some(reason) = reason {
                return Err(ControllerError::AdminRejected {
                    command: NAME,
                    reason,
                });
            }
        }
        self.run(AdminCommand {
            name: NAME,
            sqe,
            data,
        })
    }
}
