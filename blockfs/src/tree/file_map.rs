//! A file's size and blocks as its readers see them: immutable, made anew with each change.

use super::extents::{ExtentMap, Found, TOPS};
use super::inode::Body;
use super::{PosixError, Tree};
use crate::format::BLOCK_BYTES;
use crate::format::op::{Ino, MAX_FILE_BYTES};
use crate::iomap::{Begun, MapError, MapOps, Mapping, Request, Short};

/// Where a file's bytes are. It shares the extents with the tree that it was made from.
///
/// # Examples
///
/// ```
/// use blockfs::iomap::{IomapIter, MappingKind, OpFlags};
/// use blockfs::tree::FileMap;
///
/// let empty = FileMap::default();
/// let mut iter = IomapIter::new(&empty, 0, 4096, OpFlags::DIRECT)?;
/// let kind = iter.next_step()?.map(|step| step.mapping().kind());
/// assert_eq!(kind, Some(MappingKind::Hole));
/// # Ok::<(), blockfs::iomap::MapError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileMap {
    size: u64,
    slow_writes: bool,
    /// The first extent, or nothing: most files have no other.
    first: Run,
    tops: [u32; TOPS],
    extents: ExtentMap,
}

/// Written blocks that are within the file's size, all in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    offset: u64,
    length: u64,
    addr: u64,
}

impl Default for FileMap {
    fn default() -> Self {
        Self::new(0, &ExtentMap::default())
    }
}

impl FileMap {
    pub(super) fn new(size: u64, extents: &ExtentMap) -> Self {
        let first = extents.from(0).next().filter(|first| !first.unwritten);
        let first = first.map_or(Run::default(), |first| {
            let offset = u64::from(first.lblk) * BLOCK_BYTES;
            let length = u64::from(first.len) * BLOCK_BYTES;
            Run {
                offset,
                length: length.min(size.saturating_sub(offset)),
                addr: first.pblk * BLOCK_BYTES,
            }
        });
        Self {
            size,
            slow_writes: false,
            first,
            tops: extents.tops(),
            extents: extents.clone(),
        }
    }

    /// What is at `pos`.
    #[inline(never)]
    fn search(&self, pos: u64) -> Mapping {
        // Behind the largest file there is a hole.
        let Ok(lblk) = u32::try_from(pos / BLOCK_BYTES) else {
            return Mapping::hole(MAX_FILE_BYTES, u64::MAX - MAX_FILE_BYTES);
        };
        match self.extents.look_up(lblk) {
            Found::Extent(extent) => {
                let addr = extent.pblk * BLOCK_BYTES;
                let offset = u64::from(extent.lblk) * BLOCK_BYTES;
                let length = u64::from(extent.len) * BLOCK_BYTES;
                match extent.unwritten {
                    false => Mapping::mapped(addr, offset, length),
                    true => Mapping::unwritten(addr, offset, length),
                }
            }
            Found::Hole { from, to } => {
                let from = from * BLOCK_BYTES;
                let to = to.map_or(u64::MAX, |to| to * BLOCK_BYTES);
                Mapping::hole(from, to - from)
            }
        }
    }

    /// The file's size in bytes.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Whether writers have to take the locked path.
    #[inline]
    #[must_use]
    pub const fn slow_writes(&self) -> bool {
        self.slow_writes
    }

    /// The same map, with writers on the locked path or not.
    #[must_use]
    pub const fn with_slow_writes(mut self, slow: bool) -> Self {
        self.slow_writes = slow;
        self
    }
}

impl MapOps for &FileMap {
    type Error = MapError;
    type Private = ();
    type Held = ();
    const HAS_END: bool = false;

    #[inline]
    fn size(&self) -> u64 {
        self.size
    }

    #[inline]
    fn begin(&mut self, request: Request) -> Result<Begun, MapError> {
        Ok(self.search(request.pos).into())
    }

    #[inline]
    fn short(&self, pos: u64, len: u64) -> Short {
        let mut run = self.first;
        if pos.wrapping_sub(run.offset) >= run.length {
            // A position behind the largest file comes out too small, and then too far behind the extent.
            #[expect(clippy::cast_possible_truncation, reason = "seen by the last check")]
            let above = (pos / BLOCK_BYTES + 1) as u32;
            let found = self.extents.find(&self.tops, above);
            let (lblk, blocks) = found.range();
            run = Run {
                offset: lblk * BLOCK_BYTES,
                length: blocks * BLOCK_BYTES,
                addr: found.pblk() * BLOCK_BYTES,
            };
            // Should this overflow, `pos` is too far behind the extent.
            if pos.wrapping_add(len) > self.size {
                return Short::NotSimple;
            }
        }
        // Where it starts behind `pos`, the difference is greater than any length.
        let skip = pos.wrapping_sub(run.offset);
        match run.length.checked_sub(skip) {
            Some(left) if left >= len => Short::Mapped {
                addr: run.addr + skip,
            },
            _ => Short::NotSimple,
        }
    }
}

impl Tree {
    /// A file's map as it is now.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::IsDirectory`], [`PosixError::Invalid`] for a link.
    pub fn file_map(&self, ino: Ino) -> Result<FileMap, PosixError> {
        let inode = self.get(ino)?;
        match &inode.body {
            Body::File(extents) => Ok(FileMap::new(inode.core.size, extents)),
            Body::Directory(_) => Err(PosixError::IsDirectory),
            Body::Symlink(_) => Err(PosixError::Invalid("it is a symbolic link")),
        }
    }
}
