//! How a controller is reached: its registers, its doorbells, its view of memory.
//!
//! A [`Transport`] is used while a controller is set up, reset and shut down. After that a queue sees
//! pointers to memory and two doorbell addresses, so that hardware and the software controller differ
//! in nothing on the I/O path.

mod doorbell;
pub mod pci;
pub mod vfio;

pub use doorbell::{Doorbell, DoorbellWindow};

use crate::clock::Clock;
use crate::memory::DmaTarget;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A way to reach one NVMe controller.
///
/// Register offsets are bytes from the start of BAR0 (NVMe 2.x base, section 3.1.4, "Controller
/// Properties"). Implementations check them and answer [`TransportError::OutOfRange`].
///
/// Whoever writes registers and doorbells tells the device what memory to use. A transport that was
/// given to a [`Controller`](crate::controller::Controller) is the controller's: written to by others, its
/// device may change buffers that their owners hold (their contents, that is: memory that is not mapped
/// stays out of reach, and a [`DmaBuf`](crate::memory::DmaBuf) lends no reference that could be broken by it).
pub trait Transport: Debug + Send + Sync {
    /// A name for messages: the PCI address, `emu`, ...
    fn name(&self) -> &str;

    /// Reads a 32-bit register.
    ///
    /// # Errors
    /// [`TransportError`] if the register cannot be reached. A device that is gone may also answer
    /// all ones: the caller checks.
    fn read32(&self, offset: usize) -> Result<u32, TransportError>;

    /// Reads a 64-bit register.
    ///
    /// # Errors
    /// As [`Transport::read32`].
    fn read64(&self, offset: usize) -> Result<u64, TransportError>;

    /// Writes a 32-bit register. For the driver alone while a controller is attached.
    ///
    /// # Errors
    /// [`TransportError`] if the register cannot be reached.
    fn write32(&self, offset: usize, value: u32) -> Result<(), TransportError>;

    /// Writes a 64-bit register. For the driver alone while a controller is attached.
    ///
    /// # Errors
    /// [`TransportError`] if the register cannot be reached.
    fn write64(&self, offset: usize, value: u64) -> Result<(), TransportError>;

    /// The memory in which the doorbells lie: BAR0 from offset 1000h on.
    fn doorbells(&self) -> DoorbellWindow;

    /// The controller's view of memory. Two controllers behind one IOMMU container give the same one.
    fn dma(&self) -> Arc<dyn DmaTarget>;

    /// The clock that waits for this controller run on.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Resets the whole function (for VFIO: `VFIO_DEVICE_RESET`), the rung below a controller reset.
    ///
    /// # Errors
    /// [`TransportError`] if there is no such reset or it failed.
    fn reset(&self) -> Result<(), TransportError>;

    /// Stops the function's access to memory for good (for PCI: Bus Master off), the last rung.
    ///
    /// # Errors
    /// [`TransportError`] if the access may go on.
    fn silence(&self) -> Result<(), TransportError>;
}

/// What can go wrong between this process and a controller's registers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The access lies outside the register window.
    #[error("register access at {offset:#x} lies outside the {len:#x} byte register window")]
    OutOfRange {
        /// Byte offset of the access.
        offset: usize,
        /// Length of the window in bytes.
        len: usize,
    },
    /// The controller is gone.
    #[error("the controller is gone: unplugged, powered off or taken away")]
    Gone,
    /// The operation does not exist on this transport.
    #[error("{what} is not possible on this transport")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("{what} failed")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}
