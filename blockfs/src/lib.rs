//! The filesystem.
