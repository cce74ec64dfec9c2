//! A crash-safe extent filesystem on a userspace NVMe driver.
//!
//! What is here so far is what the filesystem will stand on; the filesystem itself is not built
//! yet.
//!
//! - [`device`]: the border to the drive, a small trait, implemented for the driver's queue pair
//!   and namespace.
//! - [`format`](mod@format): what is on the drive, as codecs without a device.
//! - [`iomap`]: the mapping iterator: where a file range is on the drive, one piece at a time.
//! - [`iostat`]: statistics as a type parameter, which are not there when they are off.
//! - [`space`]: free space as runs, derived from the extents at mount.
//! - [`tree`]: all metadata in memory: names, inodes, extents; plans and operations.

pub mod device;
pub mod format;
pub mod iomap;
pub mod iostat;
pub mod space;
pub mod tree;
