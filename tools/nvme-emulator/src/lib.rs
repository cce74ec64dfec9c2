//! A software NVMe controller: a drive in a box.
//!
//! Registers, doorbells and queues lie in shared memory exactly as the specification lays them out. A
//! thread executes them, or a test does, step by step in virtual time. It is a test double for whatever
//! drives NVMe through `driver`'s [`Transport`](driver::transport::Transport): build a drive, let time
//! pass, cut the power, and assert on the commands that it has seen.
//!
//! It implements the specification and trusts the host no more than a drive does: what makes no sense
//! ends with the status that the specification asks for, never with a panic. It reaches host memory only
//! through what was mapped for it.
//!
//! ```
//! use driver::spec::registers::{CC, CSTS, Csts};
//! use nvme_emulator::{Emulator, Namespace};
//! use std::time::Duration;
//!
//! // A drive of 64 MiB that takes 20 ms to get ready, without a thread.
//! let drive = Emulator::builder()
//!     .namespace(Namespace::ram(64 << 20).block_size(4096))
//!     .ready_delay(Duration::from_millis(20))
//!     .stepped()?;
//! let transport = drive.transport();
//!
//! // Enabled without admin queues it fails at once, and says so.
//! transport.write32(CC, 1)?;
//! assert!(Csts::from(transport.read32(CSTS)?).cfs());
//!
//! // Data written behind its back, lost or not by the seed.
//! drive.with_media(1, |media| media.write(0, &[7; 4096], false)).unwrap()?;
//! let report = drive.power_cut(1)?;
//! assert_eq!(report.at_risk, 1);
//! assert_eq!(drive.stats().power_cuts, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod controller;
mod dma;
mod emulator;
pub mod media;
mod queue;
mod raw;
mod settings;
mod stats;
mod transport;

pub use emulator::Emulator;
pub use settings::{BuildError, Builder, Namespace, Timing};
pub use stats::{CommandRecord, Stats};

#[cfg(test)]
mod tests;
