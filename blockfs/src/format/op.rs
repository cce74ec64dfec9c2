//! The operations that journal records and checkpoints are made of.
//!
//! They are logical (an inode's new size, not a block's new bytes) and idempotent to replay in
//! order. Inode numbers start at 1. Extents count 4 KiB blocks: `lblk` in the file, `pblk` on the
//! volume. How they lie in bytes is in [`Op::encode`] and [`Op::decode`].

mod check;
mod codec;
#[cfg(test)]
pub(super) mod tests;

use super::{BLOCK_BYTES, FormatError};

/// The number of an inode; never zero, and never used twice.
pub type Ino = u64;

/// The root directory.
pub const ROOT_INO: Ino = 1;
/// The longest name of a directory entry or of an extended attribute, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The longest target of a symbolic link, in bytes.
pub const MAX_SYMLINK_BYTES: usize = 4095;
/// The longest value of an extended attribute, in bytes.
pub const MAX_XATTR_BYTES: usize = 4096;
/// Blocks of the largest file: any range of it fits 32 bits.
pub const MAX_FILE_BLOCKS: u32 = u32::MAX;
/// The size of the largest file in bytes.
pub const MAX_FILE_BYTES: u64 = MAX_FILE_BLOCKS as u64 * BLOCK_BYTES;
/// The longest extent in blocks: in memory a bit beside the length says "unwritten".
pub const MAX_EXTENT_BLOCKS: u32 = (1 << 31) - 1;
/// The longest operation in bytes: an extended attribute with the longest name and value.
pub const MAX_OP_BYTES: usize = 16 + (MAX_NAME_BYTES + MAX_XATTR_BYTES).next_multiple_of(8);

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// An inode to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// Names that it has.
    pub nlink: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its size in bytes.
    pub size: u64,
    /// Last access: nanoseconds since 1970, as all times.
    pub atime_ns: i64,
    /// Last change of its contents.
    pub mtime_ns: i64,
    /// Last change of its attributes.
    pub ctime_ns: i64,
    /// When it was created.
    pub btime_ns: i64,
}

/// Attributes to be set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// The size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime_ns: Option<i64>,
    /// Last change of the contents.
    pub mtime_ns: Option<i64>,
    /// Last change of the attributes.
    pub ctime_ns: Option<i64>,
    /// Permission bits.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Names that it has.
    pub nlink: Option<u32>,
}

/// A directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The directory.
    pub dir: Ino,
    /// What the name leads to.
    pub ino: Ino,
    /// What that is.
    pub kind: Kind,
    /// 1 to 255 bytes without '/' and NUL, not "." or "..".
    pub name: &'a [u8],
}

/// Blocks of a file that lie in one piece on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block in the file.
    pub lblk: u32,
    /// The first block on the volume, below 2^48.
    pub pblk: u64,
    /// Blocks: 1 to [`MAX_EXTENT_BLOCKS`].
    pub len: u32,
    /// Reserved, and read as zeros.
    pub unwritten: bool,
}

/// One operation. The operations of a journal record apply all or none, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op<'a> {
    /// A new inode.
    CreateInode(NewInode),
    /// The inode and all that it has go.
    FreeInode {
        /// Which.
        ino: Ino,
    },
    /// Attributes change.
    SetAttr {
        /// Whose.
        ino: Ino,
        /// To what; one at least.
        attrs: Attrs,
    },
    /// A new name.
    AddDirent(Dirent<'a>),
    /// A name goes.
    RemoveDirent {
        /// From which directory.
        dir: Ino,
        /// Which.
        name: &'a [u8],
    },
    /// A name that is there leads elsewhere.
    ReplaceDirent(Dirent<'a>),
    /// Blocks are mapped.
    MapExtent {
        /// Whose.
        ino: Ino,
        /// Which.
        extent: Extent,
    },
    /// A range becomes a hole, whatever was mapped there.
    UnmapRange {
        /// Whose.
        ino: Ino,
        /// The first block in the file.
        lblk: u32,
        /// Blocks, one at least.
        len: u32,
    },
    /// What is unwritten in a range becomes written.
    ConvertRange {
        /// Whose.
        ino: Ino,
        /// The first block in the file.
        lblk: u32,
        /// Blocks, one at least.
        len: u32,
    },
    /// Where a symbolic link leads.
    SetSymlink {
        /// Which link.
        ino: Ino,
        /// 1 to 4095 bytes without NUL.
        target: &'a [u8],
    },
    /// An extended attribute is set.
    SetXattr {
        /// Whose.
        ino: Ino,
        /// 1 to 255 bytes without NUL.
        name: &'a [u8],
        /// At most 4096 bytes.
        value: &'a [u8],
    },
    /// An extended attribute goes.
    RemoveXattr {
        /// Whose.
        ino: Ino,
        /// Which.
        name: &'a [u8],
    },
    /// An inode without a name is still open: the next mount frees it.
    AddOrphan {
        /// Which.
        ino: Ino,
    },
    /// An orphan has a name again.
    RemoveOrphan {
        /// Which.
        ino: Ino,
    },
    /// The volume's label.
    SetLabel {
        /// At most 64 bytes without NUL.
        label: &'a [u8],
    },
    /// The volume's new size.
    Grow {
        /// In blocks of 4 KiB.
        blocks: u64,
    },
    /// The lowest inode number that was never used; a checkpoint carries it so that no number
    /// returns.
    NextInode {
        /// That number.
        ino: Ino,
    },
}

impl Op<'_> {
    /// Whether every field has a value that it may have: what [`Op::encode`] and [`Op::decode`] ask
    /// for.
    ///
    /// # Errors
    /// [`FormatError::BadOp`] with the field.
    pub fn check(&self) -> Result<(), FormatError> {
        check::check(self, 0)
    }

    /// Whether it builds state, as all operations of a checkpoint do, instead of changing some.
    #[must_use]
    pub const fn builds(&self) -> bool {
        matches!(
            self,
            Self::CreateInode(_)
                | Self::AddDirent(_)
                | Self::MapExtent { .. }
                | Self::SetSymlink { .. }
                | Self::SetXattr { .. }
                | Self::AddOrphan { .. }
                | Self::SetLabel { .. }
                | Self::NextInode { .. }
        )
    }

    /// What it is called in errors and dumps.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CreateInode(_) => "create inode",
            Self::FreeInode { .. } => "free inode",
            Self::SetAttr { .. } => "set attributes",
            Self::AddDirent(_) => "add name",
            Self::RemoveDirent { .. } => "remove name",
            Self::ReplaceDirent(_) => "replace name",
            Self::MapExtent { .. } => "map extent",
            Self::UnmapRange { .. } => "unmap range",
            Self::ConvertRange { .. } => "convert range",
            Self::SetSymlink { .. } => "set symlink",
            Self::SetXattr { .. } => "set xattr",
            Self::RemoveXattr { .. } => "remove xattr",
            Self::AddOrphan { .. } => "add orphan",
            Self::RemoveOrphan { .. } => "remove orphan",
            Self::SetLabel { .. } => "set label",
            Self::Grow { .. } => "grow",
            Self::NextInode { .. } => "next inode",
        }
    }
}

/// The operations in `bytes`, of which there must be `count`; ends after the first error.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
    count: u32,
}

impl<'a> Ops<'a> {
    /// Reads `bytes`, which are `count` operations and nothing else.
    #[must_use]
    pub const fn new(bytes: &'a [u8], count: u32) -> Self {
        Self {
            bytes,
            at: 0,
            left: count,
            count,
        }
    }

    fn step(&mut self) -> Result<Option<Op<'a>>, FormatError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        if self.left == 0 && rest.is_empty() {
            return Ok(None);
        }
        if self.left == 0 || rest.is_empty() {
            return Err(FormatError::Count {
                what: super::Structure::Record,
                counted: "operations",
                expected: self.count.into(),
                found: u64::from(self.count - self.left) + u64::from(self.left == 0),
            });
        }
        let (op, len) = Op::decode(rest, self.at as u64)?;
        self.at += len;
        self.left -= 1;
        Ok(Some(op))
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            *self = Self::new(&[], 0);
        }
        step.transpose()
    }
}
