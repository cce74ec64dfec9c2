//! A software NVMe controller: a drive in a box.
//!
//! Registers, doorbells and queues lie in shared memory exactly as the specification lays them out.
//! A thread executes them, or a test does, step by step in virtual time. It is a test double for
//! whatever drives NVMe through `driver`'s [`Transport`](driver::transport::Transport): build a
//! drive, let time pass, cut the power, and assert on the commands that it has seen.
//!
//! It implements the specification and trusts the host no more than a drive does: what makes no
//! sense ends with the status that the specification asks for, never with a panic. It reaches host
//! memory only through what was mapped for it.
//!
//! ```
//! use driver::controller::{Controller, ControllerOptions, QueueOptions};
//! use driver::memory::DmaDomain;
//! use driver::namespace::{BlockingIo, Lba};
//! use driver::spec::opcode::IoOpcode;
//! use nvme_emulator::{Emulator, Namespace, Timing};
//! use std::time::Duration;
//!
//! // A drive of 64 MiB that reads in 80 us, in virtual time: it works while its host waits.
//! let timing = Timing { read: Duration::from_micros(80), ..Timing::default() };
//! let drive = Emulator::builder()
//!     .namespace(Namespace::ram(64 << 20).block_size(4096))
//!     .timing(timing)
//!     .record_commands(100)
//!     .stepped()?;
//!
//! let domain = DmaDomain::new();
//! let options = ControllerOptions::default();
//! let controller = Controller::attach(drive.transport(), &domain, &options)?;
//! let queue = controller.queue_pair(&QueueOptions::default())?;
//! let mut io = BlockingIo::new(queue, controller.namespace(1)?);
//! let mut buf = domain.alloc(4096)?;
//! buf.write_at(0, b"kept")?;
//! let mut buf = io.write(Lba(0), buf)?;
//! io.flush()?;
//! buf.write_at(0, b"lost")?;
//! let buf = io.write(Lba(1), buf)?;
//! let before = drive.transport().clock().now();
//! let buf = io.read(Lba(0), buf)?;
//! assert!(drive.transport().clock().now() - before >= Duration::from_micros(80));
//!
//! // The commands that it has seen.
//! let seen = drive.commands();
//! let seen: Vec<_> = seen.iter().filter(|c| c.qid != 0).map(|c| c.sqe.opcode).collect();
//! assert_eq!(seen[..3], [IoOpcode::WRITE.0, IoOpcode::FLUSH.0, IoOpcode::WRITE.0]);
//!
//! // The power goes. What was flushed is there; the rest is or is not, as the seed says.
//! let report = drive.power_cut(1)?;
//! assert_eq!(report.at_risk, 1);
//! let mut block = vec![0; 4096];
//! drive.with_media(1, |media| media.read(0, &mut block)).unwrap()?;
//! assert_eq!(&block[..4], b"kept");
//! # drop((io, buf, controller));
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
