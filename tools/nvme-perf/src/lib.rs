//! Measures an NVMe drive through Doorbell's driver, in fio's and `spdk_nvme_perf`'s vocabulary.
//!
//! [`args`] is the command line and makes a [`plan::Plan`]; [`job`] is the loop that is measured, with
//! [`pattern`] (which blocks), [`ticks`] (time) and [`histogram`] (latencies); [`run`] runs the jobs on
//! their threads; [`drive`] says what the drive is and guards it; [`memory`] bounds the buffers;
//! [`report`] prints.

pub mod args;
pub mod cpus;
pub mod drive;
pub mod error;
pub mod histogram;
pub mod job;
mod measure;
pub mod memory;
pub mod pattern;
pub mod plan;
pub mod report;
pub mod run;
pub mod signal;
mod status_line;
pub mod ticks;
pub mod usage;
pub mod watch;

pub use measure::measure;
