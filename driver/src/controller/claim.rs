//! One controller a transport: two drivers on one device would undo each other's work.

use super::error::ControllerError;
use crate::transport::Transport;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The transports that this process drives, by address: a claim keeps its transport, so that no other
/// can come to lie there.
static CLAIMED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn claimed() -> MutexGuard<'static, BTreeSet<usize>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A transport that nobody else in this process drives, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim(Arc<dyn Transport>);

impl Claim {
    /// Claims `transport`, unless somebody has.
    pub(super) fn of(transport: &Arc<dyn Transport>) -> Result<Self, ControllerError> {
        if claimed().insert(address(transport)) {
            return Ok(Self(Arc::clone(transport)));
        }
        Err(ControllerError::InUse {
            name: transport.name().to_owned(),
        })
    }

    pub(super) fn transport(&self) -> &Arc<dyn Transport> {
        &self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claimed().remove(&address(&self.0));
    }
}

fn address(transport: &Arc<dyn Transport>) -> usize {
    Arc::as_ptr(transport).cast::<()>().addr()
}
