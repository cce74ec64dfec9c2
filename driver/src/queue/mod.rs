//! The hot path.
