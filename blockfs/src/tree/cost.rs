//! What the state takes in a checkpoint, in bytes, kept up to date with every change.

use super::Tree;
use super::extents::end;
use super::inode::{Body, Inode};
use crate::format::op::Op;

/// An inode, its name and extents not counted.
pub(super) const INODE: u64 = 64;
/// An extent.
pub(super) const EXTENT: u64 = 24;
/// An orphan.
pub(super) const ORPHAN: u64 = 16;
/// The next inode number.
pub(super) const NEXT_INODE: u64 = 16;

const fn padded(head: u64, bytes: usize) -> u64 {
    head + (bytes as u64).next_multiple_of(8)
}

pub(super) const fn dirent(name: &[u8]) -> u64 {
    padded(24, name.len())
}

pub(super) const fn symlink(target: &[u8]) -> u64 {
    padded(16, target.len())
}

pub(super) const fn xattr(name: &[u8], value: &[u8]) -> u64 {
    padded(16, name.len() + value.len())
}

pub(super) const fn label(label: &[u8]) -> u64 {
    padded(8, label.len())
}

/// All of an inode but its being an orphan and the names in it.
pub(super) fn inode(inode: &Inode) -> u64 {
    let extents = inode.file().map_or(0, |extents| extents.count() * EXTENT);
    node(inode) + extents
}

/// An inode without its extents, too.
pub(super) fn node(inode: &Inode) -> u64 {
    let target = match &inode.body {
        Body::Symlink(target) if !target.is_empty() => symlink(target),
        _ => 0,
    };
    let xattrs: u64 = inode.xattrs().map(|(name, value)| xattr(name, value)).sum();
    INODE + target + xattrs
}

/// By how much `op` makes a checkpoint longer at most, and shorter at least.
pub(super) fn bound(tree: &Tree, op: &Op<'_>) -> i64 {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let old = |ino, name: &[u8]| {
        let value = tree.inodes.get(&ino)?.xattrs.as_ref()?.get(name)?;
        Some(xattr(name, value))
    };
    match *op {
        Op::CreateInode(_) => signed(INODE),
        Op::FreeInode { ino } => {
            let orphan = u64::from(tree.orphans.contains(&ino)) * ORPHAN;
            -signed(tree.inodes.get(&ino).map_or(0, |found| inode(found)) + orphan)
        }
        Op::AddDirent(ref added) => signed(dirent(added.name)),
        Op::RemoveDirent { name, .. } => -signed(dirent(name)),
        Op::MapExtent { .. } => signed(EXTENT),
        Op::UnmapRange { ino, lblk, len } => {
            let to = u64::from(lblk) + u64::from(len);
            let extents = tree.inodes.get(&ino).and_then(|inode| inode.file());
            let first = extents.and_then(|extents| extents.from(lblk.into()).next());
            // Only a hole in the middle of an extent makes two of one.
            let splits = first.is_some_and(|first| first.lblk < lblk && end(&first) > to);
            signed(u64::from(splits) * EXTENT)
        }
        Op::ConvertRange { .. } => signed(2 * EXTENT),
        Op::SetSymlink { target, .. } => signed(symlink(target)),
        Op::SetXattr { ino, name, value } => {
            signed(xattr(name, value)) - signed(old(ino, name).unwrap_or(0))
        }
        Op::RemoveXattr { ino, name } => -signed(old(ino, name).unwrap_or(0)),
        Op::AddOrphan { .. } => signed(ORPHAN),
        Op::RemoveOrphan { .. } => -signed(ORPHAN),
        Op::SetLabel { label: new } => signed(label(new)) - signed(label(&tree.label)),
        _ => 0,
    }
}
