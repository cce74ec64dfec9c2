//! What a file range is on the drive: the mapping, its kind and its flags.

use std::ops::{BitOr, BitOrAssign};

/// What a mapping says about its part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MappingKind {
    /// Nothing is there: it reads as zeros, and it is never an answer to a write.
    Hole,
    /// Space is reserved, but not chosen yet.
    Delalloc,
    /// Data are at the device address.
    Mapped,
    /// Space is at the device address, but it reads as zeros until it has been written.
    Unwritten,
    /// The data are in memory, with the metadata; the step lends them.
    Inline,
}

impl MappingKind {
    /// Whether such a mapping has a device address.
    #[inline]
    #[must_use]
    pub const fn has_address(self) -> bool {
        matches!(self, Self::Mapped | Self::Unwritten)
    }
}

/// A set of facts about a mapping.
///
/// # Examples
///
/// ```
/// use blockfs::iomap::MappingFlags;
///
/// let flags = MappingFlags::NEW | MappingFlags::DIRTY;
/// assert!(flags.contains(MappingFlags::NEW));
/// assert!(!flags.contains(MappingFlags::SHARED));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingFlags(u16);

impl MappingFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Freshly allocated: zero what is not written, and give it back if the write fails.
    pub const NEW: Self = Self(1 << 0);
    /// Reaching the data again needs metadata that are not durable yet, a size that this write will
    /// change at its completion included.
    pub const DIRTY: Self = Self(1 << 1);
    /// Other files use these blocks: a write must go elsewhere.
    pub const SHARED: Self = Self(1 << 2);
    /// Several extents reported as one; says nothing about I/O.
    pub const MERGED: Self = Self(1 << 3);
    /// No I/O and no completion may span this mapping's start.
    pub const BOUNDARY: Self = Self(1 << 4);
    /// A write must go to the device as one atomic command.
    pub const ATOMIC: Self = Self(1 << 5);
    /// The rest of the block after the data must be zeroed.
    pub const ZERO_TAIL: Self = Self(1 << 6);
    /// The body changed the file's size. Set through the step, for `end` to see.
    pub const SIZE_CHANGED: Self = Self(1 << 14);
    /// The mapping is out of date. Set through the step, for `end` to see; `begin` must not answer
    /// with it.
    pub const STALE: Self = Self(1 << 15);

    /// Whether all of `other` are in this set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for MappingFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for MappingFlags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// One contiguous piece of a file and where it is on the device. All positions and lengths in
/// bytes.
///
/// A value may say anything, extents that came from a damaged disk included: the iterator checks
/// it before a body sees it.
///
/// # Examples
///
/// ```
/// use blockfs::iomap::Mapping;
///
/// let mapping = Mapping::mapped(1 << 20, 4096, 8192);
/// assert_eq!(mapping.device_addr(5000), Some((1 << 20) + 904));
/// assert_eq!(mapping.device_addr(12_288), None, "that is behind its end");
/// assert_eq!(Mapping::hole(4096, 8192).device_addr(5000), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    addr: u64,
    offset: u64,
    length: u64,
    cookie: u32,
    flags: MappingFlags,
    kind: MappingKind,
}

// Half a cache line, and a mapping that may be absent is no larger than one that is there.
const _: () = assert!(size_of::<Mapping>() <= 32 && size_of::<Option<Mapping>>() <= 32);

impl Mapping {
    /// In place of an address where there is none.
    pub(super) const NO_ADDR: u64 = u64::MAX;

    #[inline]
    const fn new(kind: MappingKind, addr: u64, offset: u64, length: u64) -> Self {
        Self {
            addr,
            offset,
            length,
            cookie: 0,
            flags: MappingFlags::NONE,
            kind,
        }
    }

    /// Data at `addr` of the device.
    #[inline]
    #[must_use]
    pub const fn mapped(addr: u64, offset: u64, length: u64) -> Self {
        Self::new(MappingKind::Mapped, addr, offset, length)
    }

    /// Space at `addr` of the device that reads as zeros.
    #[inline]
    #[must_use]
    pub const fn unwritten(addr: u64, offset: u64, length: u64) -> Self {
        Self::new(MappingKind::Unwritten, addr, offset, length)
    }

    /// Nothing.
    #[inline]
    #[must_use]
    pub const fn hole(offset: u64, length: u64) -> Self {
        Self::new(MappingKind::Hole, Self::NO_ADDR, offset, length)
    }

    /// Reserved space without a place.
    #[inline]
    #[must_use]
    pub const fn delalloc(offset: u64, length: u64) -> Self {
        Self::new(MappingKind::Delalloc, Self::NO_ADDR, offset, length)
    }

    /// Data in memory, in what the step holds: its first byte is the one at `offset`.
    #[inline]
    #[must_use]
    pub const fn inline(offset: u64, length: u64) -> Self {
        Self::new(MappingKind::Inline, Self::NO_ADDR, offset, length)
    }

    /// The same with `flags` and no others.
    #[inline]
    #[must_use]
    pub const fn with_flags(self, flags: MappingFlags) -> Self {
        Self { flags, ..self }
    }

    /// The same with the `cookie` that was current, under the map's lock, when it was looked up.
    #[inline]
    #[must_use]
    pub const fn with_cookie(self, cookie: u32) -> Self {
        Self { cookie, ..self }
    }

    /// What it is.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> MappingKind {
        self.kind
    }

    /// Its facts.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> MappingFlags {
        self.flags
    }

    /// Where in the file it starts.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The validity cookie; 0 for a map that never changes.
    #[inline]
    #[must_use]
    pub const fn cookie(&self) -> u32 {
        self.cookie
    }

    /// The device address of its first byte, if it has one.
    #[inline]
    #[must_use]
    pub const fn addr(&self) -> Option<u64> {
        if self.kind.has_address() {
            Some(self.addr)
        } else {
            None
        }
    }

    /// The device address of the byte at `pos` of the file, if the mapping covers it and has one.
    #[inline]
    #[must_use]
    pub const fn device_addr(&self, pos: u64) -> Option<u64> {
        let Some(addr) = self.addr() else {
            return None;
        };
        let Some(skip) = pos.checked_sub(self.offset) else {
            return None;
        };
        if skip < self.length {
            addr.checked_add(skip)
        } else {
            None
        }
    }

    /// Whether I/O on this mapping may go on in `next` as one command with one completion: the same
    /// kind, contiguous in the file and on the device, the completions alike, and no boundary
    /// between them.
    #[inline]
    #[must_use]
    pub fn continues_in(&self, next: &Self) -> bool {
        // How a range was put together for a report says nothing about I/O.
        let alike = |flags: MappingFlags| flags.0 & !MappingFlags::MERGED.0;
        let follows = |a: u64, b: u64| a.checked_add(self.length) == Some(b);
        !next.flags.contains(MappingFlags::BOUNDARY)
            && self.kind == next.kind
            && alike(self.flags) & !MappingFlags::BOUNDARY.0 == alike(next.flags)
            && follows(self.offset, next.offset)
            && (!self.kind.has_address() || follows(self.addr, next.addr))
    }

    /// The raw address field, for the checks.
    #[inline]
    pub(super) const fn raw_addr(&self) -> u64 {
        self.addr
    }

    #[inline]
    pub(super) fn set(&mut self, flags: MappingFlags) {
        self.flags |= flags;
    }
}
