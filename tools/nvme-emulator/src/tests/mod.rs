//! The whole controller, against a host of a few lines with rings of its own.
#![expect(unsafe_code, reason = "a host maps memory for its device")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "test patterns are truncated numbers"
)]

mod admin;
mod host;
mod hostile;
mod io;
mod lifecycle;
mod prp;
mod queues;
mod threaded;
