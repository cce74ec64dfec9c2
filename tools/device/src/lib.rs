//! What every Doorbell tool shares: how a device is named, how sizes are written, how errors look, and
//! what a device seems to hold.
//!
//! One grammar names devices, volumes and files ([`DeviceString`], [`Place`]):
//!
//! ```text
//! 0000:01:00.0[,ns=N]              a PCI function on vfio-pci
//! emu[:KEY=VALUE,...]              the software controller in this process
//! vfio-user:path=SOCKET[,ns=N]     a controller behind a vfio-user socket
//! DEVICE:/PATH                     a path on a blockfs volume: all after the first `:/`
//! anything else                    a host path (`./` forces it)
//! ```
//!
//! No value contains `:/` or a comma. [`open`] opens a device and attaches its controller.
//!
//! # Examples
//!
//! ```
//! use device::{DeviceString, Place};
//!
//! let drive: DeviceString = "emu:size=4g,lba=4096,backing=null".parse()?;
//! assert!(matches!(drive, DeviceString::Emulator(_)));
//!
//! let place: Place = "0000:01:00.0,ns=2:/logs/today".parse()?;
//! assert!(matches!(place, Place::Volume { ref path, .. } if path == "/logs/today"));
//! # Ok::<(), device::DeviceStringError>(())
//! ```

mod emulator;
mod grammar;
mod open;
mod options;
mod output;
mod signature;
mod size;

pub use emulator::{Backing, EmulatorSettings};
pub use grammar::{DeviceString, DeviceStringError, Place};
pub use open::{OpenError, Opened, open, preflight};
pub use output::{chain, error_json};
pub use signature::{Signature, signature};
pub use size::{SizeError, format_size, parse_size};
