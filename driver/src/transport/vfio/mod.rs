//! Reaching a controller through VFIO: a container, the IOMMU group in it, the function of the group.
//!
//! - `error`: everything that can stand in the way, and what to do about it
//! - `facts`, `memlock`, `preflight`: what can be known without opening anything
//! - `container`: the groups and the memory map ([`VfioTarget`])
//! - `config`, `bar`: the function's configuration space and registers
//! - `ioctl`, `caps`: the kernel's interface

mod bar;
mod caps;
mod config;
mod container;
mod error;
mod facts;
mod ioctl;
mod memlock;
mod preflight;
#[cfg(test)]
mod tests;

pub use caps::CapsError;
pub use container::VfioTarget;
pub use error::SetupError;
pub use facts::{Driver, GroupMember, Holder};
pub use preflight::{Preflight, preflight};

use super::pci::PciAddress;
use super::{DoorbellWindow, Transport, TransportError};
use crate::clock::{Clock, SystemClock};
use crate::memory::DmaTarget;
use bar::Bar;
use config::ConfigSpace;
use container::Membership;
use facts::{FunctionFacts, Host};
use std::fs::File;
use std::io;
use std::sync::Arc;
use vfio_bindings::bindings::vfio as abi;

/// Where the doorbells begin in BAR0 (NVMe over PCIe Transport, "Controller Registers").
const DOORBELLS: usize = 0x1000;
/// The least that an NVMe controller has: its registers and the two doorbells of the admin queue.
const BAR_MIN: usize = DOORBELLS + 2 * size_of::<u32>();

/// An NVMe controller on the PCI bus, bound to vfio-pci and opened by this process.
///
/// It is closed when this, and every [`DoorbellWindow`] handed out, has been dropped. The kernel then
/// resets the function.
///
/// # Examples
///
/// ```no_run
/// use driver::transport::vfio::VfioTransport;
///
/// let first = VfioTransport::open("0000:01:00.0".parse()?, None)?;
/// // A second controller in the same container: what is mapped for one is mapped for both.
/// let second = VfioTransport::open("0000:02:00.0".parse()?, Some(first.target()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VfioTransport {
    name: String,
    bar: Arc<Bar>,
    function: Arc<Function>,
    clock: Arc<dyn Clock>,
    doorbells: DoorbellWindow,
}

/// An open function, kept by its registers. Fields are dropped from the top: first the device, then its
/// place in the group, because the kernel lets go of a group only when its devices are closed.
#[derive(Debug)]
struct Function {
    config: ConfigSpace,
    membership: Membership,
    can_reset: bool,
}

impl VfioTransport {
    /// Opens the controller at `address`, in the container of `existing` or in one of its own.
    ///
    /// The function must be bound to vfio-pci. It is woken up if it sleeps, answers to its registers
    /// and may reach memory (what is mapped, that is) afterwards; its INTx interrupt is masked.
    ///
    /// # Errors
    /// [`SetupError`] says what stands in the way and what to do about it; the most basic obstacle
    /// comes first. [`preflight`] lists all of them.
    pub fn open(
        address: PciAddress,
        existing: Option<Arc<VfioTarget>>,
    ) -> Result<Self, SetupError> {
        let host = Host::default();
        let facts = host.function(address)?;
        if let Some(obstacle) = preflight::function_obstacles(&facts).into_iter().next() {
            return Err(obstacle);
        }
        let Some(group) = facts.group else {
            return Err(SetupError::NoIommuGroup { address });
        };
        let target = match existing {
            Some(target) => target,
            None => Arc::new(VfioTarget::new(host)?),
        };
        let (device, membership) = target.attach(&facts, group)?;
        Self::set_up(&facts, device, membership)
    }

    fn set_up(
        facts: &FunctionFacts,
        device: File,
        membership: Membership,
    ) -> Result<Self, SetupError> {
        let address = facts.address;
        let flags = ioctl::device_flags(&device)
            .map_err(|error| SetupError::os(format!("asking what {address} is"), error))?;
        let config = ioctl::region_info(&device, abi::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let config = ConfigSpace::new(device, address, config.offset);
        config.check_present()?;
        config.check_class()?;
        config.enable()?;

        let region = ioctl::region_info(config.device(), abi::VFIO_PCI_BAR0_REGION_INDEX)?;
        let have = region.mappable_from_start();
        let len = usize::try_from(have).unwrap_or(usize::MAX);
        if len < BAR_MIN {
            return Err(SetupError::BarTooSmall {
                address,
                need: BAR_MIN as u64,
                have,
            });
        }
        // Behind the doorbells there may be interrupt tables: no doorbell may fall onto them.
        let end = match config.msix_in_bar0(DOORBELLS as u64)? {
            Some(table) => usize::try_from(table).unwrap_or(len),
            None => len,
        };
        let can_reset = flags & abi::VFIO_DEVICE_FLAGS_RESET != 0;
        let function = Arc::new(Function {
            config,
            membership,
            can_reset,
        });
        let owner = Arc::clone(&function);
        let bar = Bar::map(function.config.device(), region.offset, len, owner)
            .map_err(|error| SetupError::os(format!("mapping BAR0 of {address}"), error))?;
        let bar = Arc::new(bar);
        let doorbells = bar.doorbells(DOORBELLS, end);
        let clock = Arc::new(SystemClock::new());
        Ok(Self {
            name: address.to_string(),
            bar,
            function,
            clock,
            doorbells,
        })
    }

    /// The memory map of this controller's container, for opening further controllers in it.
    #[must_use]
    pub fn target(&self) -> Arc<VfioTarget> {
        Arc::clone(self.function.membership.target())
    }

    /// After a fork the child neither drives nor stops the parent's controller.
    fn refuse_foreign(&self) -> Result<(), TransportError> {
        if self.function.membership.target().is_foreign() {
            return Err(TransportError::Unsupported {
                what: "access from a forked child",
            });
        }
        Ok(())
    }
}

/// What a failure in configuration space means to a user of the transport.
fn transport_error(what: &'static str, error: SetupError) -> TransportError {
    match error {
        SetupError::NotResponding { .. } => TransportError::Gone,
        other => TransportError::Os {
            what,
            source: io::Error::other(other),
        },
    }
}

impl Transport for VfioTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn read32(&self, offset: usize) -> Result<u32, TransportError> {
        self.refuse_foreign()?;
        self.bar.read32(offset)
    }

    /// Two 32-bit reads, the lower half first: every controller takes those, and not all of them and
    /// the bridges before them take one of 64 bits.
    fn read64(&self, offset: usize) -> Result<u64, TransportError> {
        self.refuse_foreign()?;
        let high = self.bar.check64(offset)?;
        let low = self.bar.read32(offset)?;
        Ok(u64::from(self.bar.read32(high)?) << 32 | u64::from(low))
    }

    fn write32(&self, offset: usize, value: u32) -> Result<(), TransportError> {
        self.refuse_foreign()?;
        self.bar.write32(offset, value)
    }

    /// Two 32-bit writes, the lower half first, as for [`Transport::read64`].
    fn write64(&self, offset: usize, value: u64) -> Result<(), TransportError> {
        self.refuse_foreign()?;
        let high = self.bar.check64(offset)?;
        self.bar.write32(offset, low_half(value))?;
        self.bar.write32(high, low_half(value >> 32))
    }

    fn doorbells(&self) -> DoorbellWindow {
        self.doorbells.clone()
    }

    fn dma(&self) -> Arc<dyn DmaTarget> {
        self.target()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn reset(&self) -> Result<(), TransportError> {
        const WHAT: &str = "resetting the function";
        self.refuse_foreign()?;
        let Function {
            config, can_reset, ..
        } = &*self.function;
        if !can_reset {
            return Err(TransportError::Unsupported { what: WHAT });
        }
        config
            .check_present()
            .map_err(|error| transport_error(WHAT, error))?;
        ioctl::reset(config.device())
            .map_err(|source| TransportError::Os { what: WHAT, source })?;
        // The kernel restores configuration space; this makes sure of it.
        config
            .enable()
            .map_err(|error| transport_error("enabling the function again", error))
    }

    fn silence(&self) -> Result<(), TransportError> {
        self.refuse_foreign()?;
        let result = self.function.config.silence();
        result.map_err(|error| transport_error("switching Bus Master off", error))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what is asked for"
)]
fn low_half(value: u64) -> u32 {
    value as u32
}
