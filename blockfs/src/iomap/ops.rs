//! What a filesystem supplies: `begin`, and `end` if it needs one.

use super::error::MapError;
use super::mapping::Mapping;
use super::op::Request;

/// Looks up mappings for an [`IomapIter`](super::IomapIter).
///
/// It is a generic parameter, never a trait object: `begin` and `end` become direct calls, and with
/// `HAS_END = false` nothing of `end` is left. A value serves one walk over one file, and has what
/// the walk needs to know (the inode, say) in it; it may be a reference.
///
/// The lock of the map is not held between `begin` and `end`: nothing that `begin` answers with
/// borrows from it. What keeps blocks from being reused while I/O on them is in flight is a count
/// of I/O in flight, taken before the walk; truncate and punch wait for it.
pub trait MapOps {
    /// The filesystem's error.
    type Error: From<MapError>;
    /// What `begin` wants `end` to know; nobody in between can change it. `()` if nothing.
    type Private: Copy;
    /// What a step owns: pinned buffers, a reservation. It is released, by being dropped, after
    /// `end` and before the next `begin`, and whenever else the step ends. `()` if nothing.
    type Held;
    /// Whether there is anything for `end` to do.
    const HAS_END: bool;

    /// The file's size in bytes.
    fn size(&self) -> u64;

    /// One mapping that covers at least the byte at `request.pos`.
    ///
    /// With `NOWAIT` and `OVERWRITE_ONLY` it answers [`MapError::WouldBlock`] before it does
    /// anything that those forbid.
    ///
    /// # Errors
    /// The filesystem's. There will be no `end` then: it has undone what it did.
    fn begin(&mut self, request: Request) -> Result<Begun<Self::Private, Self::Held>, Self::Error>;

    /// For [`read_simple`](super::read_simple): where `len` bytes at `pos` are, which lie within the
    /// file's size, if `begin` would answer with one mapping of data that covers them. For maps that
    /// are looked up faster without making the mapping.
    #[inline]
    fn short(&self, pos: u64, len: u64) -> Short {
        let _ = (pos, len);
        Short::Unknown
    }

    /// Finishes what `begin` began: exactly once for each `begin` that succeeded.
    ///
    /// # Errors
    /// The filesystem's. It ends the iteration if nothing was advanced; otherwise it is counted.
    fn end(&mut self, ended: Ended<'_, Self::Private, Self::Held>) -> Result<(), Self::Error> {
        let _ = ended;
        Ok(())
    }

    /// The inline data of a step: at least as long as its inline mapping says.
    fn inline_data(held: &Self::Held) -> &[u8] {
        let _ = held;
        &[]
    }
}

impl<O: MapOps> MapOps for &mut O {
    type Error = O::Error;
    type Private = O::Private;
    type Held = O::Held;
    const HAS_END: bool = O::HAS_END;

    #[inline]
    fn size(&self) -> u64 {
        (**self).size()
    }

    #[inline]
    fn begin(&mut self, request: Request) -> Result<Begun<O::Private, O::Held>, O::Error> {
        (**self).begin(request)
    }

    #[inline]
    fn short(&self, pos: u64, len: u64) -> Short {
        (**self).short(pos, len)
    }

    #[inline]
    fn end(&mut self, ended: Ended<'_, O::Private, O::Held>) -> Result<(), O::Error> {
        (**self).end(ended)
    }

    #[inline]
    fn inline_data(held: &O::Held) -> &[u8] {
        O::inline_data(held)
    }
}

/// What [`MapOps::short`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// All of it is data within the file's size, from `addr` of the device on, in bytes, with the cookie 0.
    Mapped {
        /// Where.
        addr: u64,
    },
    /// It is anything else.
    NotSimple,
    /// Only `begin` knows.
    Unknown,
}

/// What `begin` answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun<P = (), H = ()> {
    /// Where the bytes are, or go.
    pub mapping: Mapping,
    /// Where existing data are to be read from, if not from `mapping`. A hole is as good as `None`.
    pub source: Option<Mapping>,
    /// What `end` is to know.
    pub private: P,
    /// What the step owns.
    pub held: H,
}

impl From<Mapping> for Begun {
    #[inline]
    fn from(mapping: Mapping) -> Self {
        Self {
            mapping,
            source: None,
            private: (),
            held: (),
        }
    }
}

/// What `end` is told.
#[derive(Debug)]
pub struct Ended<'a, P, H> {
    /// Where the work on this mapping started, how much of it was usable (0 if the mapping was
    /// refused as corrupt), and what for.
    pub request: Request,
    /// Bytes that were advanced; may be 0.
    pub written: u64,
    /// The mapping, with the flags that the body set.
    pub mapping: &'a Mapping,
    /// What `begin` wanted to be told.
    pub private: P,
    /// What the step owns and is about to release.
    pub held: &'a mut H,
}
