//! A software NVMe controller.
