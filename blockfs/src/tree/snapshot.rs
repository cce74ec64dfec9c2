//! The state as operations: what a checkpoint holds, and what the hash is taken over.

use super::Tree;
use super::inode::{Body, Inode};
use crate::format::op::{Dirent, Ino, Op};
use std::hash::{DefaultHasher, Hasher};

impl Tree {
    /// The operations that build this state on an empty tree, by [`Tree::load`]. Directories keep
    /// the order in which they are listed.
    pub fn snapshot(&self) -> impl Iterator<Item = Op<'_>> {
        let names = self.inodes.iter().flat_map(|(&dir, inode)| {
            let entries = inode.directory().into_iter().flat_map(|d| d.after(0));
            entries.map(move |(name, entry)| {
                Op::AddDirent(Dirent {
                    dir,
                    ino: entry.ino,
                    kind: entry.kind,
                    name,
                })
            })
        });
        self.nodes().chain(names).chain(self.rest())
    }

    /// A number that is the same for the same state, however that came about, within this process.
    /// The order in which directories are listed is not part of it.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.limits.volume_blocks);
        let names = self.inodes.iter().flat_map(|(&dir, inode)| {
            let entries = inode.directory().into_iter().flat_map(|d| d.by_name());
            entries.map(move |(name, entry)| {
                Op::AddDirent(Dirent {
                    dir,
                    ino: entry.ino,
                    kind: entry.kind,
                    name,
                })
            })
        });
        let mut bytes = Vec::new();
        for op in self.nodes().chain(names).chain(self.rest()) {
            bytes.clear();
            // What is in the state was checked by the same function when it came in.
            if op.encode(&mut bytes).is_ok() {
                hasher.write(&bytes);
            }
        }
        hasher.finish()
    }

    fn nodes(&self) -> impl Iterator<Item = Op<'_>> {
        self.inodes
            .iter()
            .flat_map(|(&ino, inode)| node(ino, inode).chain(extents(ino, inode)))
    }

    fn rest(&self) -> impl Iterator<Item = Op<'_>> {
        let orphans = self.orphans.iter().map(|&ino| Op::AddOrphan { ino });
        orphans.chain([
            Op::SetLabel { label: &self.label },
            Op::NextInode { ino: self.next_ino },
        ])
    }
}

/// An inode and what it has, but for names and extents.
pub(super) fn node(ino: Ino, inode: &Inode) -> impl Iterator<Item = Op<'_>> {
    let target = match &inode.body {
        Body::Symlink(target) if !target.is_empty() => Some(&**target),
        _ => None,
    };
    let target = target.map(|target| Op::SetSymlink { ino, target });
    let xattrs = inode
        .xattrs()
        .map(move |(name, value)| Op::SetXattr { ino, name, value });
    [Op::CreateInode(inode.core)]
        .into_iter()
        .chain(target)
        .chain(xattrs)
}

fn extents(ino: Ino, inode: &Inode) -> impl Iterator<Item = Op<'_>> {
    let extents = inode.file().into_iter().flat_map(|file| file.from(0));
    extents.map(move |extent| Op::MapExtent { ino, extent })
}
