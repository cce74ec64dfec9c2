//! What can go wrong: an operation that does not fit the state, and a request that POSIX refuses.

use crate::format::FormatError;
use crate::format::op::Ino;

/// Why an operation cannot be applied: the journal or the checkpoint is damaged, or a plan was made
/// for another state. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A field has a value that it never has.
    #[error("the operation is malformed")]
    Malformed(#[source] FormatError),
    /// There is no such inode.
    #[error("there is no inode {ino}")]
    NoInode {
        /// Which.
        ino: Ino,
    },
    /// An inode number that was used before, or is too large.
    #[error("inode number {ino} cannot be given to a new inode: the next is {next}")]
    InodeNumber {
        /// Which.
        ino: Ino,
        /// The lowest that was never used.
        next: Ino,
    },
    /// The inode is of another kind than the operation is for, or than the name says.
    #[error("inode {ino} is not {wanted}")]
    WrongKind {
        /// Which.
        ino: Ino,
        /// What it would have to be.
        wanted: &'static str,
    },
    /// The name is there already.
    #[error("directory {dir} has the name {name:?} already")]
    NameExists {
        /// Which directory.
        dir: Ino,
        /// The name.
        name: Box<[u8]>,
    },
    /// The name is not there.
    #[error("directory {dir} has no name {name:?}")]
    NoName {
        /// Which directory.
        dir: Ino,
        /// The name.
        name: Box<[u8]>,
    },
    /// More names than can be counted.
    #[error("inode {ino} has too many names")]
    TooManyNames {
        /// Which.
        ino: Ino,
    },
    /// A part of the file is mapped already.
    #[error("inode {ino}: block {lblk} of the file is mapped already")]
    AlreadyMapped {
        /// Which.
        ino: Ino,
        /// The first such block.
        lblk: u32,
    },
    /// The extent ends behind the volume.
    #[error("inode {ino}: an extent ends at block {end} of a volume of {blocks}")]
    OutOfVolume {
        /// Which.
        ino: Ino,
        /// The extent's end.
        end: u64,
        /// The volume's blocks.
        blocks: u64,
    },
    /// There is no such extended attribute.
    #[error("inode {ino} has no extended attribute {name:?}")]
    NoXattr {
        /// Which.
        ino: Ino,
        /// The attribute's name.
        name: Box<[u8]>,
    },
    /// The symbolic link leads somewhere already.
    #[error("symbolic link {ino} has a target already")]
    TargetSet {
        /// Which.
        ino: Ino,
    },
    /// The inode is an orphan already, or is none.
    #[error("inode {ino} being an orphan is {orphan} already")]
    Orphan {
        /// Which.
        ino: Ino,
        /// What it is.
        orphan: bool,
    },
    /// An inode is to be freed that has names or entries, or is the root.
    #[error("inode {ino} is in use and cannot be freed")]
    InUse {
        /// Which.
        ino: Ino,
    },
    /// A number that only grows would become smaller.
    #[error("{what} would go from {from} back to {to}")]
    Backwards {
        /// Which number.
        what: &'static str,
        /// What it is.
        from: u64,
        /// What it was to be.
        to: u64,
    },
    /// After the record, the number of names is not what the inode says.
    #[error("inode {ino} says that its link count is {nlink}, but it is {counted}")]
    LinkCount {
        /// Which.
        ino: Ino,
        /// What it says.
        nlink: u32,
        /// What there is.
        counted: u64,
    },
    /// After the record, a directory has two names, or is its own ancestor, or has entries without
    /// a name.
    #[error("directory {ino} is not in the tree in exactly one place")]
    NotATree {
        /// Which.
        ino: Ino,
    },
    /// After the record, an inode without a name is no orphan, or an orphan has a name.
    #[error("inode {ino}: only what has no name is an orphan")]
    OrphanState {
        /// Which.
        ino: Ino,
    },
    /// After the record, a symbolic link has no target or its size is not the target's.
    #[error("symbolic link {ino} has no target of its size")]
    NoTarget {
        /// Which.
        ino: Ino,
    },
    /// The metadata would not fit a checkpoint.
    #[error("metadata of {bytes} bytes do not fit a checkpoint of {limit}")]
    TooLarge {
        /// What a checkpoint would take.
        bytes: u64,
        /// What it can.
        limit: u64,
    },
}

/// Why a request is refused, as POSIX says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PosixError {
    /// EPERM: directories have one name.
    #[error("a directory cannot have a second name")]
    LinkToDirectory,
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EBUSY: the root directory stays where it is.
    #[error("the root directory cannot be moved or removed")]
    Busy,
    /// EEXIST.
    #[error("the name exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// EINVAL.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EFBIG.
    #[error("the file would be too large")]
    FileTooLarge,
    /// ENOSPC: the metadata reach their limit; deleting always works.
    #[error("no space for metadata; delete something, or make a volume with larger checkpoints")]
    NoSpace,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// ENAMETOOLONG.
    #[error("the name or the path is too long")]
    NameTooLong,
    /// ENOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// ELOOP.
    #[error("too many symbolic links on the way")]
    Loop,
    /// ENODATA.
    #[error("no such extended attribute")]
    NoAttribute,
    /// ENXIO: nothing to be found from there on.
    #[error("the offset is behind the end, or no data follow")]
    NoData,
    /// ESTALE: the file changed since its map was looked at; look again.
    #[error("the file's map has changed since it was looked at")]
    Stale,
}

impl PosixError {
    /// The number that Linux has for it.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::LinkToDirectory => 1,
            Self::NotFound => 2,
            Self::NoData => 6,
            Self::Busy => 16,
            Self::Exists => 17,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid(_) => 22,
            Self::FileTooLarge => 27,
            Self::NoSpace => 28,
            Self::TooManyLinks => 31,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::Loop => 40,
            Self::NoAttribute => 61,
            Self::Stale => 116,
        }
    }
}
