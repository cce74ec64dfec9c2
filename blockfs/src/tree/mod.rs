//! All metadata, in memory: inodes, directories, extents, extended attributes, orphans, the label.
//!
//! The state changes through the operations of [`crate::format::op`] alone: a checkpoint is a list
//! of them that builds it ([`Tree::load`], [`Tree::snapshot`]), a journal record is a list that
//! changes it ([`Tree::apply`], all or nothing). No operation is trusted. What the API wants is
//! turned into such a list by the `plan_` functions, which change nothing; the caller applies the
//! plan and journals it. Nothing here does I/O, knows the time, or checks permissions.
//!
//! | file | what |
//! |---|---|
//! | `inode.rs`, `extents.rs`, `extents/` | what is kept of an inode, a directory, a file's blocks |
//! | `file_map.rs` | a file's blocks as its readers see them |
//! | `apply.rs`, `step.rs`, `undo.rs` | operations, one record at a time |
//! | `plan/` | from requests to operations |
//! | `resolve.rs`, `query.rs` | paths; stat, readdir, extents |
//! | `snapshot.rs` | the operations of a checkpoint; the state's hash |
//! | `frozen.rs` | the same of one moment, while records go on |
//! | `check.rs` | the structural rules of fsck |
//! | `cost.rs` | what a checkpoint takes |
//! | `error.rs` | what does not fit, and what POSIX refuses |
#![forbid(unsafe_code)]

mod apply;
mod check;
mod cost;
mod error;
mod extents;
mod file_map;
mod frozen;
mod inode;
mod plan;
mod query;
mod resolve;
mod snapshot;
mod step;
#[cfg(test)]
mod tests;
mod undo;

pub use apply::Effects;
pub use check::{Finding, Severity};
pub use error::{PosixError, TreeError};
pub use file_map::FileMap;
pub use plan::{Fallocate, NewNode, Plan, RenameMode, SetAttr, XattrMode, plan_format};
pub use query::{Listed, Segment, Stat};
pub use resolve::{MAX_LINKS_FOLLOWED, MAX_PATH_BYTES, Parent};

use crate::format::op::{Ino, ROOT_INO};
use inode::Inode;
use std::collections::{BTreeMap, BTreeSet};

/// What limits a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of operations that a checkpoint slot can take.
    pub metadata_bytes: u64,
    /// Of these, what only requests may use that free something.
    pub kept_bytes: u64,
    /// Blocks of the volume, all included.
    pub volume_blocks: u64,
}

impl Limits {
    /// A sixty-fourth is kept.
    #[must_use]
    pub const fn new(metadata_bytes: u64, volume_blocks: u64) -> Self {
        Self {
            metadata_bytes,
            kept_bytes: metadata_bytes / 64,
            volume_blocks,
        }
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Inodes, orphans included.
    pub inodes: u64,
    /// Directory entries.
    pub dirents: u64,
    /// Extents.
    pub extents: u64,
    /// Blocks that they have.
    pub blocks: u64,
    /// Bytes of the operations of a checkpoint.
    pub metadata_bytes: u64,
}

/// The metadata of a volume.
///
/// # Examples
///
/// ```
/// use blockfs::format::op::{Kind, ROOT_INO};
/// use blockfs::tree::{Limits, NewNode, Tree, plan_format};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut tree = Tree::new(Limits::new(1 << 20, 1 << 20));
/// tree.apply(&plan_format(0o755, 0, 0, 1_000).ops)?;
/// let new = NewNode { mode: 0o644, uid: 0, gid: 0, now_ns: 2_000 };
/// let plan = tree.plan_create(ROOT_INO, b"log", new)?;
/// tree.apply(&plan.ops)?;
/// let ino = tree.resolve(ROOT_INO, b"/log", true)?;
/// assert_eq!(Some(ino), plan.created);
/// assert_eq!(tree.stat(ino)?.kind, Kind::File);
///
/// // The state, as a checkpoint has it, builds the same state.
/// let mut copy = Tree::new(tree.limits());
/// for op in tree.snapshot() {
///     copy.load(&op)?;
/// }
/// assert_eq!(copy.state_hash(), tree.state_hash());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tree {
    inodes: BTreeMap<Ino, Box<Inode>>,
    orphans: BTreeSet<Ino>,
    label: Box<[u8]>,
    next_ino: Ino,
    limits: Limits,
    totals: Totals,
    /// For [`Tree::load`], so that it takes memory once.
    spare: step::Txn,
    /// A checkpoint that is being handed out.
    frozen: Option<Box<frozen::Frozen>>,
}

impl Tree {
    /// A volume without even a root: [`plan_format`] or a checkpoint makes it.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            inodes: BTreeMap::new(),
            orphans: BTreeSet::new(),
            label: Box::default(),
            next_ino: ROOT_INO,
            limits,
            totals: Totals {
                metadata_bytes: cost::NEXT_INODE + cost::label(&[]),
                ..Totals::default()
            },
            spare: step::Txn::default(),
            frozen: None,
        }
    }

    /// What limits it; the volume's size follows [`Op::Grow`](crate::format::op::Op::Grow).
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// How much there is.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// The volume's label.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        &self.label
    }

    /// The lowest inode number that was never used.
    #[must_use]
    pub const fn next_ino(&self) -> Ino {
        self.next_ino
    }

    /// Inodes without a name that are still open, or were when the power went.
    pub fn orphans(&self) -> impl Iterator<Item = Ino> + '_ {
        self.orphans.iter().copied()
    }

    fn get(&self, ino: Ino) -> Result<&Inode, PosixError> {
        self.inodes
            .get(&ino)
            .map(|b| &**b)
            .ok_or(PosixError::NotFound)
    }

    fn dir(&self, ino: Ino) -> Result<&inode::Directory, PosixError> {
        self.get(ino)?.directory().ok_or(PosixError::NotDirectory)
    }

    fn file(&self, ino: Ino) -> Result<&extents::ExtentMap, PosixError> {
        match &self.get(ino)?.body {
            inode::Body::File(extents) => Ok(extents),
            inode::Body::Directory(_) => Err(PosixError::IsDirectory),
            inode::Body::Symlink(_) => Err(PosixError::Invalid("it is a symbolic link")),
        }
    }

    /// The directory that `dir` is in; the root is in itself. `None` for an orphan.
    fn parent(&self, dir: Ino) -> Option<Ino> {
        if dir == ROOT_INO {
            return Some(ROOT_INO);
        }
        let inode = self.inodes.get(&dir)?;
        (inode.names == 1).then_some(inode.parents)
    }

    /// Whether `dir` is `ancestor` or under it; `None` if the way up does not end at the root.
    fn is_under(&self, dir: Ino, ancestor: Ino) -> Option<bool> {
        let mut at = dir;
        for _ in 0..=self.inodes.len() {
            if at == ancestor {
                return Some(true);
            }
            if at == ROOT_INO {
                return Some(false);
            }
            at = self.parent(at)?;
        }
        None
    }
}
