//! What is asked of inodes: attributes, listings, and what a file's range is.

use super::cost;
use super::inode::Body;
use super::{PosixError, Tree};
use crate::format::BLOCK_BYTES;
use crate::format::geometry::BlockRange;
use crate::format::op::{Extent, Ino, Kind, MAX_FILE_BLOCKS};
use crate::space::Used;

/// An inode's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Names that it has; of a directory, two more than it has subdirectories.
    pub nlink: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its size in bytes; of a directory, what its names take in a checkpoint.
    pub size: u64,
    /// Blocks of 4 KiB that it has.
    pub blocks: u64,
    /// Last access: nanoseconds since 1970, as all times.
    pub atime_ns: i64,
    /// Last change of its contents.
    pub mtime_ns: i64,
    /// Last change of its attributes.
    pub ctime_ns: i64,
    /// When it was created.
    pub btime_ns: i64,
}

/// A piece of a file that is one thing. In blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Nothing is there.
    Hole {
        /// The first block in the file.
        lblk: u32,
        /// Blocks.
        len: u32,
    },
    /// Blocks of the volume are.
    Extent(Extent),
}

/// A directory entry as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Go on after it with this.
    pub cookie: u64,
    /// Where it leads.
    pub ino: Ino,
    /// What that is.
    pub kind: Kind,
    /// The name.
    pub name: &'a [u8],
}

impl Tree {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`PosixError::NotFound`].
    pub fn stat(&self, ino: Ino) -> Result<Stat, PosixError> {
        let inode = self.get(ino)?;
        let core = &inode.core;
        let (size, blocks) = match &inode.body {
            Body::File(extents) => (core.size, extents.blocks()),
            Body::Directory(directory) => {
                let names = directory.by_name();
                (names.map(|(name, _)| cost::dirent(name)).sum(), 0)
            }
            Body::Symlink(_) => (core.size, 0),
        };
        Ok(Stat {
            ino,
            kind: core.kind,
            mode: core.mode,
            nlink: core.nlink,
            uid: core.uid,
            gid: core.gid,
            size,
            blocks,
            atime_ns: core.atime_ns,
            mtime_ns: core.mtime_ns,
            ctime_ns: core.ctime_ns,
            btime_ns: core.btime_ns,
        })
    }

    /// The entries of a directory that were added after the one with `cookie`, 0 for all; without
    /// "." and "..", for which no entry has cookies 1 and 2. A cookie stays good while entries come
    /// and go.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::NotDirectory`].
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
    ) -> Result<impl Iterator<Item = Listed<'_>>, PosixError> {
        let entries = self.dir(dir)?.after(cookie);
        Ok(entries.map(|(name, entry)| Listed {
            cookie: entry.cookie,
            ino: entry.ino,
            kind: entry.kind,
            name,
        }))
    }

    /// The directory that a directory is in; the root is in itself.
    ///
    /// # Errors
    /// [`PosixError::NotFound`] (for a removed directory, too), [`PosixError::NotDirectory`].
    pub fn parent_of(&self, dir: Ino) -> Result<Ino, PosixError> {
        self.dir(dir)?;
        self.parent(dir).ok_or(PosixError::NotFound)
    }

    /// What block `lblk` of a file is, and all after it that is of the same piece. A hole at the
    /// end goes on to the largest file's end.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::IsDirectory`], [`PosixError::Invalid`] for a link.
    pub fn segment(&self, ino: Ino, lblk: u32) -> Result<Segment, PosixError> {
        let next = self.file(ino)?.from(lblk.into()).next();
        Ok(match next {
            Some(extent) if extent.lblk <= lblk => Segment::Extent(extent),
            next => Segment::Hole {
                lblk,
                len: next.map_or(MAX_FILE_BLOCKS, |next| next.lblk) - lblk,
            },
        })
    }

    /// What [`lblk`, `lblk` + `len`) of a file is, piece by piece.
    ///
    /// # Errors
    /// As [`Tree::segment`].
    pub fn segments(
        &self,
        ino: Ino,
        lblk: u32,
        len: u32,
    ) -> Result<impl Iterator<Item = Segment> + '_, PosixError> {
        let to = lblk.saturating_add(len);
        let mut parts = self.file(ino)?.parts(lblk.into(), to.into()).peekable();
        let mut at = lblk;
        Ok(std::iter::from_fn(move || {
            let hole_end = match parts.peek() {
                Some(next) if next.lblk == at => {
                    let extent = parts.next()?;
                    // Within the range, which ends in 32 bits.
                    at = at.saturating_add(extent.len);
                    return Some(Segment::Extent(extent));
                }
                next => next.map_or(to, |next| next.lblk),
            };
            let lblk = at;
            at = hole_end;
            (hole_end > lblk).then(|| Segment::Hole {
                lblk,
                len: hole_end - lblk,
            })
        }))
    }

    /// The extents of a file that have a byte of [`offset`, `offset` + `len`), whole; those that
    /// end behind the last are the last, as fiemap reports them.
    ///
    /// # Errors
    /// As [`Tree::segment`].
    pub fn fiemap(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<impl Iterator<Item = Extent> + '_, PosixError> {
        let to = offset.saturating_add(len).div_ceil(BLOCK_BYTES);
        let extents = self.file(ino)?.from(offset / BLOCK_BYTES);
        Ok(extents.take_while(move |extent| u64::from(extent.lblk) < to))
    }

    /// The first byte at or after `offset` that was written. Reserved space reads as zeros and is a
    /// hole.
    ///
    /// # Errors
    /// [`PosixError::NoData`] if there is none before the end, or `offset` is behind it; as
    /// [`Tree::segment`].
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64, PosixError> {
        let size = self.get(ino)?.core.size;
        let mut written = self
            .file(ino)?
            .from(offset / BLOCK_BYTES)
            .filter(|extent| !extent.unwritten);
        let first = written.next().ok_or(PosixError::NoData)?;
        let found = (u64::from(first.lblk) * BLOCK_BYTES).max(offset);
        if found < size {
            Ok(found)
        } else {
            Err(PosixError::NoData)
        }
    }

    /// The first byte at or after `offset` that was never written; the end is one.
    ///
    /// # Errors
    /// [`PosixError::NoData`] if `offset` is at the end or behind it; as [`Tree::segment`].
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64, PosixError> {
        let size = self.get(ino)?.core.size;
        let file = self.file(ino)?;
        if offset >= size {
            return Err(PosixError::NoData);
        }
        let mut at = offset / BLOCK_BYTES;
        for extent in file.from(at) {
            if extent.unwritten || u64::from(extent.lblk) > at {
                break;
            }
            at = super::extents::end(&extent);
        }
        Ok((at * BLOCK_BYTES).max(offset).min(size))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::NoAttribute`].
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<&[u8], PosixError> {
        let xattrs = self.get(ino)?.xattrs.as_ref();
        let value = xattrs.and_then(|xattrs| xattrs.get(name));
        value.map(|value| &**value).ok_or(PosixError::NoAttribute)
    }

    /// The extended attributes of an inode: name and value, in order.
    ///
    /// # Errors
    /// [`PosixError::NotFound`].
    pub fn xattrs(&self, ino: Ino) -> Result<impl Iterator<Item = (&[u8], &[u8])>, PosixError> {
        Ok(self.get(ino)?.xattrs())
    }

    /// The numbers of all inodes, in order.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.inodes.keys().copied()
    }

    /// All blocks that files have, for [`Space::build`](crate::space::Space::build).
    pub fn used(&self) -> impl Iterator<Item = Used> + '_ {
        // In the order of their first blocks, in which most of it is in order: sorting it takes less then.
        let files = self.inodes.iter().filter_map(|(&ino, inode)| {
            let extents = inode.file()?;
            Some((extents.from(0).next()?.pblk, ino, extents))
        });
        let mut files: Vec<_> = files.collect();
        files.sort_unstable_by_key(|&(first, ino, _)| (first, ino));
        files.into_iter().flat_map(|(_, ino, extents)| {
            extents.from(0).map(move |extent| Used {
                blocks: BlockRange {
                    start: extent.pblk,
                    blocks: extent.len.into(),
                },
                ino,
            })
        })
    }
}
