//! What an iteration is for.

use std::ops::BitOr;

/// A set of facts about an operation. The empty set is a plain read.
///
/// # Examples
///
/// ```
/// use blockfs::iomap::OpFlags;
///
/// let op = OpFlags::WRITE | OpFlags::DIRECT;
/// assert!(op.contains(OpFlags::WRITE));
/// assert!(!op.contains(OpFlags::NOWAIT));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFlags(u16);

impl OpFlags {
    /// None of them: a read.
    pub const READ: Self = Self(0);
    /// Blocks will be written: `begin` allocates what is missing.
    pub const WRITE: Self = Self(1 << 0);
    /// Blocks will be zeroed: holes may stay holes.
    pub const ZERO: Self = Self(1 << 1);
    /// The mappings themselves are wanted, not the data.
    pub const REPORT: Self = Self(1 << 2);
    /// I/O between the caller's buffer and the device; never reads from a mapping's source.
    pub const DIRECT: Self = Self(1 << 3);
    /// The whole range in one mapping, at once: no metadata I/O, no lock to wait for, no
    /// transaction; otherwise "would block", before any side effect.
    pub const NOWAIT: Self = Self(1 << 4);
    /// Writes data over data: "would block" instead of allocating, zeroing or growing the file.
    pub const OVERWRITE_ONLY: Self = Self(1 << 5);
    /// One mapping, one command, the whole length, or an error.
    pub const ATOMIC: Self = Self(1 << 6);
    /// Blocks that other files use will be copied: holes stay holes.
    pub const UNSHARE: Self = Self(1 << 7);

    /// Whether all of `other` are in this set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` are in this set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing but `allowed` is in this set.
    #[inline]
    #[must_use]
    pub const fn is_within(self, allowed: Self) -> bool {
        self.0 & !allowed.0 == 0
    }
}

impl BitOr for OpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What `begin` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The file position that the answer must cover, in bytes.
    pub pos: u64,
    /// How much there is to do from there on, in bytes; never zero. The answer may be shorter or
    /// longer.
    pub len: u64,
    /// What for; the same throughout an iteration.
    pub op: OpFlags,
}
