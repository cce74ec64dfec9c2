//! A controller: bring-up, admin commands, queues, shutdown.
//!
//! [`Controller::attach`] disables the controller, tells it where its admin queue is, enables it and
//! reads what it is; each wait has a deadline that the device names (CAP.TO, CRTO), and a fatal
//! status or a device that is gone ends it at once. All limits come from the device.

mod admin;
mod attach;
mod claim;
mod error;
mod limits;
mod options;
mod queues;
mod raw;
mod registers;
mod shared;
#[cfg(test)]
mod tests;

pub use error::ControllerError;
pub use limits::Limits;
pub use options::{ControllerOptions, QueueOptions};
pub(crate) use shared::Shared;

use crate::memory::{DmaBuf, DmaDomain};
use crate::namespace::{Namespace, NamespaceError};
use crate::queue::ControllerId;
use crate::spec::feature::{FeatureId, Select};
use crate::spec::identify::{
    Cns, IDENTIFY_LEN, IdentifyController, IdentifyNamespace, NamespaceList,
};
use crate::spec::log::{LogId, SmartLog};
use crate::spec::registers::Version;
use crate::spec::{Sqe, command};
use admin::AdminCommand;
use std::num::NonZeroU32;
use std::sync::Arc;
use zerocopy::FromBytes;

/// An NVMe controller under this process's control.
///
/// It gives out namespaces and queue pairs. Everything it does runs on the admin queue, behind a lock,
/// and waits; none of it is on the I/O path. The controller is shut down by
/// [`Controller::shutdown`], or when it and the last of its queue pairs have been dropped.
#[derive(Debug)]
pub struct Controller {
    shared: Arc<Shared>,
    limits: Limits,
    version: Version,
    identify: Box<IdentifyController>,
    /// Bytes that one command may move by the device's word.
    max_transfer: u64,
    queues_granted: u16,
}

impl Controller {
    /// This controller's identity within the process.
    #[must_use]
    pub fn id(&self) -> ControllerId {
        self.shared.id
    }

    /// What the transport calls the device: a PCI address, for instance.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.transport().name()
    }

    /// What the controller says of itself.
    #[must_use]
    pub fn identify(&self) -> &IdentifyController {
        &self.identify
    }

    /// The specification that the controller claims to follow.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The limits of the device.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reads the controller's status: cheap enough to call now and then while I/O is outstanding. A
    /// queue by itself cannot tell a slow device from a dead one.
    ///
    /// # Errors
    /// [`ControllerError::Fatal`], [`ControllerError::Gone`], [`ControllerError::NotReady`].
    pub fn check(&self) -> Result<(), ControllerError> {
        self.shared.check()
    }

    /// Bytes that one command may move (MDTS); `None`: no limit.
    #[must_use]
    pub fn max_transfer(&self) -> Option<u64> {
        (self.max_transfer != u64::MAX).then_some(self.max_transfer)
    }

    /// I/O queue pairs that the device granted.
    #[must_use]
    pub fn queues_granted(&self) -> u16 {
        self.queues_granted
    }

    /// The domain that the controller was attached with.
    #[must_use]
    pub fn domain(&self) -> &DmaDomain {
        &self.shared.domain
    }

    /// The geometry of a namespace, for I/O.
    ///
    /// # Errors
    /// [`ControllerError::Namespace`] where there is none, or its format is not one that the driver
    /// transfers; [`ControllerError`].
    pub fn namespace(&self, id: u32) -> Result<Namespace, ControllerError> {
        let identify = match self.identify_namespace(id) {
            Err(ControllerError::Admin { status, .. })
                if status.code() == crate::spec::Status::INVALID_NAMESPACE =>
            {
                return Err(NamespaceError::Inactive(id).into());
            }
            other => other?,
        };
        Ok(Namespace::new(
            self.shared.id,
            id,
            &identify,
            self.max_transfer,
        )?)
    }

    /// What the controller says of a namespace (Identify, CNS 00h).
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn identify_namespace(&self, id: u32) -> Result<Box<IdentifyNamespace>, ControllerError> {
        self.read_structure("Identify Namespace", command::identify(Cns::NAMESPACE, id))
    }

    /// The active namespaces, ascending (Identify, CNS 02h). At most 1,024 a command are asked for,
    /// and the list is bounded by the number of namespaces that the controller claims.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn namespaces(&self) -> Result<Vec<u32>, ControllerError> {
        let mut all = Vec::new();
        let limit = self.identify.nn.get();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let sqe = command::identify(Cns::ACTIVE_NAMESPACES, after);
            let list: Box<NamespaceList> = self.read_structure("Identify Namespace List", sqe)?;
            let before = all.len();
            // Ascending and within the limit, or it is not taken: a device may repeat itself.
            for id in list.iter() {
                if id > all.last().copied().unwrap_or(0) && id <= limit {
                    all.push(id);
                }
            }
            if all.len() < before + NAMESPACES_A_LIST {
                return Ok(all);
            }
        }
    }

    /// The identification descriptors of a namespace (Identify, CNS 03h): 4,096 bytes, to be read
    /// with [`namespace_ids`](crate::spec::identify::namespace_ids).
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn namespace_descriptors(&self, id: u32) -> Result<Vec<u8>, ControllerError> {
        let sqe = command::identify(Cns::NAMESPACE_DESCRIPTORS, id);
        self.read_bytes("Identify Namespace Descriptors", sqe, IDENTIFY_LEN)
    }

    /// The SMART / Health log of the controller.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn smart_log(&self) -> Result<Box<SmartLog>, ControllerError> {
        let dwords = NonZeroU32::new(SMART_BYTES / 4).unwrap_or(NonZeroU32::MIN);
        let sqe = command::get_log_page(LogId::SMART, u32::MAX, dwords, 0);
        self.read_structure("Get Log Page (SMART)", sqe)
    }

    /// The current value of a feature that fits a double word.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn feature(&self, feature: FeatureId) -> Result<u32, ControllerError> {
        let sqe = command::get_features(feature, Select::CURRENT);
        Ok(self.run(AdminCommand::plain("Get Features", sqe))?.1)
    }

    /// Sets a feature that fits a double word, until the next reset.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn set_feature(&self, feature: FeatureId, value: u32) -> Result<(), ControllerError> {
        self.plain("Set Features", command::set_features(feature, value))
            .map(drop)
    }

    /// Whether the drive has a volatile write cache that is on. Without one, a completed write is
    /// durable and a flush has nothing to do.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub fn volatile_cache(&self) -> Result<bool, ControllerError> {
        if !self.identify.has_volatile_cache() {
            return Ok(false);
        }
        Ok(self.feature(FeatureId::VOLATILE_WRITE_CACHE)? & 1 != 0)
    }

    /// Shuts the controller down in order: notifies it, waits until it has secured its caches,
    /// disables it, and unmaps its memory.
    ///
    /// # Errors
    /// [`ControllerError::QueuesInUse`] while queue pairs live: the controller goes on then, and is
    /// stopped when the last of them is dropped. [`ControllerError`] where the device did not follow;
    /// its memory is safe all the same.
    pub fn shutdown(self) -> Result<(), ControllerError> {
        let queues = Arc::strong_count(&self.shared) - 1;
        if queues > 0 {
            return Err(ControllerError::QueuesInUse { queues });
        }
        self.shared.stop()
    }

    fn run(&self, command: AdminCommand) -> Result<(Option<DmaBuf>, u32), ControllerError> {
        let done = self.shared.admin(command, self.shared.times.admin)?;
        Ok((done.buf, done.result))
    }

    fn plain(&self, name: &'static str, sqe: Sqe) -> Result<u32, ControllerError> {
        Ok(self.run(AdminCommand::plain(name, sqe))?.1)
    }

    /// Runs a command that returns one structure.
    fn read_structure<S: FromBytes>(
        &self,
        name: &'static str,
        sqe: Sqe,
    ) -> Result<Box<S>, ControllerError> {
        attach::read_structure(&self.shared, name, sqe)
    }

    /// Runs a command that returns `len` bytes.
    fn read_bytes(
        &self,
        name: &'static str,
        sqe: Sqe,
        len: usize,
    ) -> Result<Vec<u8>, ControllerError> {
        attach::read_bytes(&self.shared, name, sqe, len)
    }
}

/// Namespaces in one list.
const NAMESPACES_A_LIST: usize = 1024;
/// Length of the SMART / Health log.
const SMART_BYTES: u32 = 512;
const _: () = assert!(size_of::<SmartLog>() == SMART_BYTES as usize);
const _: () = assert!(size_of::<NamespaceList>() == NAMESPACES_A_LIST * 4);
