//! A crash-safe extent filesystem on a userspace NVMe driver.
//!
//! Start with [`fs::Blockfs`], which mounts a volume, and [`file::IoQueue`], which moves its data.
//!
//! - [`device`]: the border to the drive, a small trait, implemented for the driver's queue pair
//!   and namespace.
//! - [`fs`]: a mounted volume: names, attributes, sync.
//! - [`file`](mod@file): direct I/O on files.
//! - [`check`]: what fsck does: what is wrong with a volume, repairs, and getting files out of a damaged
//!   one.
//! - [`journal`]: mkfs, recovery, the redo journal and its checkpoints.
//! - [`format`](mod@format): what is on the drive, as codecs without a device.
//! - [`iomap`]: the mapping iterator: where a file range is on the drive, one piece at a time.
//! - [`iostat`]: statistics as a type parameter, which are not there when they are off.
//! - [`space`]: free space as runs, derived from the extents at mount.
//! - [`tree`]: all metadata in memory: names, inodes, extents; plans and operations.

#[cfg(feature = "seeded-bugs")]
#[doc(hidden)]
pub mod bugs;
#[cfg(not(feature = "seeded-bugs"))]
mod bugs;
pub mod check;
pub mod device;
pub mod file;
pub mod format;
pub mod fs;
mod grace;
pub mod iomap;
pub mod iostat;
pub mod journal;
pub mod space;
pub mod tree;
