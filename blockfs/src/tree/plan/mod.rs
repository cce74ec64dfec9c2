//! From what the API wants to the operations of one journal record.
//!
//! A plan is good for the state that it was made for: apply it before the state changes otherwise.
//! Of permissions nothing is known here.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | attributes, extended attributes, orphans, the volume; the metadata's limit |
//! | `names.rs` | create, link, unlink |
//! | `rename.rs` | rename |
//! | `data.rs` | write, truncate, fallocate |

mod data;
mod names;
mod rename;

pub use data::Fallocate;
pub use rename::RenameMode;

use super::cost;
use super::resolve::check_length;
use super::{PosixError, Tree};
use crate::format::op::{Attrs, Ino, Kind, MAX_XATTR_BYTES, NewInode, Op, ROOT_INO};
use crate::format::superblock::MAX_LABEL_BYTES;
use std::ops::Range;

/// Bytes that the extended attributes of an inode may take, names included.
const MAX_XATTRS_BYTES: u64 = 64 << 10;

/// The operations of one record, and what else is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan<'a> {
    /// In order; none if nothing changes.
    pub ops: Vec<Op<'a>>,
    /// Byte ranges of the file, each within a block, that must be zero on the drive before the
    /// record is submitted.
    pub zero: Vec<Range<u64>>,
    /// The inode that is new.
    pub created: Option<Ino>,
}

/// What a new inode gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Permission bits; others are dropped.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Now, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// Attributes that can be set without touching contents or names; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits; others are dropped.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime_ns: Option<i64>,
    /// Last change of the contents.
    pub mtime_ns: Option<i64>,
}

/// Whether an extended attribute may, must not or must be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Either way.
    Set,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

/// What a plan may use of the metadata's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Not what is kept.
    Ordinary,
    /// What is kept, too: it frees blocks.
    Freeing,
}

/// The root directory of a new volume.
#[must_use]
pub fn plan_format(mode: u16, uid: u32, gid: u32, now_ns: i64) -> Plan<'static> {
    let node = NewNode {
        mode,
        uid,
        gid,
        now_ns,
    };
    Plan {
        ops: vec![Op::CreateInode(new_inode(ROOT_INO, Kind::Directory, node))],
        zero: Vec::new(),
        created: Some(ROOT_INO),
    }
}

impl Tree {
    /// Attributes.
    ///
    /// # Errors
    /// [`PosixError::NotFound`].
    pub fn plan_setattr(
        &self,
        ino: Ino,
        set: SetAttr,
        now_ns: i64,
    ) -> Result<Plan<'static>, PosixError> {
        self.get(ino)?;
        let attrs = Attrs {
            mode: set.mode.map(|mode| mode & 0o7777),
            uid: set.uid,
            gid: set.gid,
            atime_ns: set.atime_ns,
            mtime_ns: set.mtime_ns,
            ctime_ns: Some(now_ns),
            ..Attrs::default()
        };
        self.admit(vec![Op::SetAttr { ino, attrs }], Room::Ordinary)
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::Exists`] and [`PosixError::NoAttribute`] by `mode`,
    /// [`PosixError::Invalid`] for an impossible name or value, [`PosixError::NoSpace`] if they
    /// become too many.
    pub fn plan_set_xattr<'a>(
        &self,
        ino: Ino,
        (name, value): (&'a [u8], &'a [u8]),
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        let inode = self.get(ino)?;
        check_xattr_name(name)?;
        if value.len() > MAX_XATTR_BYTES {
            return Err(PosixError::Invalid("the value is longer than 4096 bytes"));
        }
        match (mode, self.xattr(ino, name)) {
            (XattrMode::Create, Ok(_)) => return Err(PosixError::Exists),
            (XattrMode::Replace, Err(error)) => return Err(error),
            _ => {}
        }
        let others = inode.xattrs().filter(|(other, _)| *other != name);
        let others: u64 = others.map(|(name, value)| cost::xattr(name, value)).sum();
        if others + cost::xattr(name, value) > MAX_XATTRS_BYTES {
            return Err(PosixError::NoSpace);
        }
        let ops = vec![Op::SetXattr { ino, name, value }, changed(ino, now_ns)];
        self.admit(ops, Room::Ordinary)
    }

    /// An extended attribute less.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::NoAttribute`], [`PosixError::Invalid`].
    pub fn plan_remove_xattr<'a>(
        &self,
        ino: Ino,
        name: &'a [u8],
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        check_xattr_name(name)?;
        self.xattr(ino, name)?;
        let ops = vec![Op::RemoveXattr { ino, name }, changed(ino, now_ns)];
        self.admit(ops, Room::Freeing)
    }

    /// An orphan that nobody has open any more goes; one after the other at mount, too.
    ///
    /// # Errors
    /// [`PosixError::NotFound`] if it is none.
    pub fn plan_reap(&self, ino: Ino) -> Result<Plan<'static>, PosixError> {
        if !self.orphans.contains(&ino) {
            return Err(PosixError::NotFound);
        }
        self.admit(vec![Op::FreeInode { ino }], Room::Freeing)
    }

    /// The volume's label.
    ///
    /// # Errors
    /// [`PosixError::Invalid`] for more than 64 bytes or a NUL in it.
    pub fn plan_label<'a>(&self, label: &'a [u8]) -> Result<Plan<'a>, PosixError> {
        if label.len() > MAX_LABEL_BYTES || label.contains(&0) {
            return Err(PosixError::Invalid("a label has at most 64 bytes, no NUL"));
        }
        self.admit(vec![Op::SetLabel { label }], Room::Ordinary)
    }

    /// The volume's new size in blocks.
    ///
    /// # Errors
    /// [`PosixError::Invalid`] if it is smaller than now, or too large.
    pub fn plan_grow(&self, blocks: u64) -> Result<Plan<'static>, PosixError> {
        if blocks < self.limits.volume_blocks || blocks > crate::format::MAX_VOLUME_BLOCKS {
            return Err(PosixError::Invalid("a volume only grows, to 2^48 blocks"));
        }
        self.admit(vec![Op::Grow { blocks }], Room::Ordinary)
    }

    /// A plan of `ops`, if the metadata still fit a checkpoint after it. What makes them no larger
    /// is always possible.
    fn admit<'a>(&self, ops: Vec<Op<'a>>, room: Room) -> Result<Plan<'a>, PosixError> {
        let more: i64 = ops.iter().map(|op| cost::bound(self, op)).sum();
        let kept = match room {
            Room::Ordinary => self.limits.kept_bytes,
            Room::Freeing => 0,
        };
        let limit = self.limits.metadata_bytes.saturating_sub(kept);
        let after = self.totals.metadata_bytes.saturating_add_signed(more);
        if more > 0 && after > limit {
            return Err(PosixError::NoSpace);
        }
        Ok(Plan {
            ops,
            ..Plan::default()
        })
    }
}

fn check_xattr_name(name: &[u8]) -> Result<(), PosixError> {
    check_length(name)?;
    if name.is_empty() || name.contains(&0) {
        return Err(PosixError::Invalid("a name has 1 to 255 bytes, no NUL"));
    }
    Ok(())
}

/// A new inode with the one name that it is about to get.
fn new_inode(ino: Ino, kind: Kind, node: NewNode) -> NewInode {
    NewInode {
        ino,
        kind,
        mode: node.mode & 0o7777,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        uid: node.uid,
        gid: node.gid,
        size: 0,
        atime_ns: node.now_ns,
        mtime_ns: node.now_ns,
        ctime_ns: node.now_ns,
        btime_ns: node.now_ns,
    }
}

/// The attributes of `ino` changed.
fn changed(ino: Ino, now_ns: i64) -> Op<'static> {
    let attrs = Attrs {
        ctime_ns: Some(now_ns),
        ..Attrs::default()
    };
    Op::SetAttr { ino, attrs }
}
