//! Queue pairs: the hot path.
//!
//! A [`QueuePair`] belongs to one thread at a time: it is `Send`, every operation takes `&mut self`,
//! and nothing in it is shared. Reading order: `ring` (the two rings), `slots` (who waits for which
//! command), `core` (submit, ring, poll), `split` (requests of several commands), and `pair` (what a
//! user sees).

mod core;
#[cfg(test)]
pub(crate) mod fake;
mod pair;
mod raw;
mod request;
mod ring;
mod slots;
mod split;
#[cfg(test)]
mod tests;

pub(crate) use self::core::{Core, CoreSetup};
pub use pair::QueuePair;
pub use raw::RawData;
pub use request::{Completion, Rejected, Stray, Strays, SubmitError};
pub(crate) use split::BlockRequest;

use std::fmt;

/// A controller of this process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControllerId(pub(crate) u32);

/// The identifier of a queue; 0 is the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u16);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of entries in a ring: a power of two from 2 to 4,096.
///
/// One size is used for everything about a queue: it is the one that the device was told, encoded
/// 0's based in one place. A ring of N entries takes N - 1 commands at a time; the upper bound leaves
/// four bits of a command identifier for the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSize(u16);

impl QueueSize {
    /// The largest size.
    pub const MAX: Self = Self(4096);

    /// The smallest size that takes `commands` commands at a time, within what the device can
    /// (`device_max` entries, CAP.MQES + 1) and what the driver can; rounded down to a power of two
    /// where the limit is not one. `None`: the device's limit is below two entries.
    #[must_use]
    pub fn for_commands(commands: u16, device_max: u32) -> Option<Self> {
        let limit = device_max.min(u32::from(Self::MAX.0));
        let limit = 1_u32 << limit.checked_ilog2()?;
        let wanted = (u32::from(commands) + 1).next_power_of_two().max(2);
        let entries = u16::try_from(wanted.min(limit)).ok()?;
        (entries >= 2).then_some(Self(entries))
    }

    /// Entries in the ring.
    #[must_use]
    pub fn entries(self) -> u32 {
        u32::from(self.0)
    }

    /// Commands that may be outstanding.
    #[must_use]
    pub fn slots(self) -> u16 {
        self.0 - 1
    }

    /// As the specification's 0's based fields want it (AQA, CDW10.QSIZE).
    #[must_use]
    pub fn zero_based(self) -> u16 {
        self.0 - 1
    }

    fn mask(self) -> u32 {
        u32::from(self.0) - 1
    }
}
