//! A userspace NVMe driver.
//!
//! The parts, from the wire up: [`spec`] (what is on the wire), [`transport`] (how a controller is
//! reached), [`memory`] (what a device may touch), [`controller`] (bring-up and admin commands),
//! [`queue`] (the hot path) and [`namespace`] (typed commands).

pub mod clock;
pub mod controller;
pub mod memory;
pub mod namespace;
pub mod queue;
pub mod spec;
pub mod transport;
