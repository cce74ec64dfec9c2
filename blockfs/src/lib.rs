//! A crash-safe extent filesystem on a userspace NVMe driver.
//!
//! What is here so far is the border to the drive: [`device::BlockDevice`], the small trait that the
//! filesystem will stand on, implemented for the driver's queue pair and namespace. The filesystem
//! itself is not built yet.

pub mod device;
