//! Records: operations that apply all or none, and what must hold after them.

use super::inode::{Body, Inode};
use super::step::Txn;
use super::{Totals, Tree, TreeError};
use super::{cost, extents};
use crate::format::geometry::BlockRange;
use crate::format::op::{Extent, Ino, Op, ROOT_INO};

/// What a record did, for those who keep the free space and the open files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Blocks that no file has any more.
    pub freed: Vec<BlockRange>,
    /// Blocks that a file has now.
    pub allocated: Vec<BlockRange>,
    /// Inodes that were changed, created or freed, in order.
    pub touched: Vec<Ino>,
    /// The volume's new size in blocks.
    pub grown: Option<u64>,
}

impl Tree {
    /// Applies the operations of one journal record, in order.
    ///
    /// # Errors
    /// [`TreeError`] if an operation does not fit the state, or if the state after the last one is
    /// not consistent. Nothing has changed then.
    pub fn apply(&mut self, ops: &[Op<'_>]) -> Result<Effects, TreeError> {
        let totals = self.totals;
        let mut txn = Txn::default();
        if let Err(error) = self.carry_out(ops, &mut txn) {
            self.undo(txn.undo);
            self.totals = totals;
            return Err(error);
        }
        let (freed, allocated) = net(&txn.freed, &txn.allocated);
        let mut touched = txn.touched;
        touched.sort_unstable();
        touched.dedup();
        Ok(Effects {
            freed,
            allocated,
            touched,
            grown: txn.grown,
        })
    }

    /// As [`Tree::apply`], for a mount: if it fails, some of the operations may have been carried out,
    /// and what was freed and allocated is not asked for.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(crate) fn replay(&mut self, ops: &[Op<'_>]) -> Result<(), TreeError> {
        let mut txn = std::mem::take(&mut self.spare);
        let result = self.carry_out(ops, &mut txn);
        txn.clear();
        self.spare = txn;
        result
    }

    /// All steps of a record, and whether what must hold then does.
    fn carry_out(&mut self, ops: &[Op<'_>], txn: &mut Txn) -> Result<(), TreeError> {
        let before = self.totals;
        ops.iter().try_for_each(|op| self.step(op, txn))?;
        self.settled(txn, before)
    }

    /// Applies one operation of a checkpoint. Inodes come before what they have and what leads to
    /// them, in the order of their numbers; what must hold in the end is found by [`Tree::check`].
    ///
    /// # Errors
    /// [`TreeError`]; nothing has changed then.
    pub fn load(&mut self, op: &Op<'_>) -> Result<(), TreeError> {
        let mut txn = std::mem::take(&mut self.spare);
        let result = self.step(op, &mut txn);
        txn.clear();
        self.spare = txn;
        result
    }

    /// Applies operations of a checkpoint that map `extents`, one after the other: [`Tree::load`] for
    /// what most of a checkpoint consists of. The extents have been decoded, and so checked.
    ///
    /// # Errors
    /// [`TreeError`]; some may have been applied then.
    pub(crate) fn load_extents(&mut self, ino: Ino, extents: &[Extent]) -> Result<(), TreeError> {
        let blocks = self.limits.volume_blocks;
        let ends = |extent: &Extent| extent.pblk.saturating_add(extent.len.into());
        if let Some(end) = extents.iter().map(ends).find(|&end| end > blocks) {
            return Err(TreeError::OutOfVolume { ino, end, blocks });
        }
        let refused = self.change_extents(ino, |file| {
            let mut left = extents;
            loop {
                let appended = file.append(left);
                let (&extent, rest) = left.get(appended..)?.split_first()?;
                let range = (extent.lblk.into(), extents::end(&extent));
                if let Some(Extent { lblk, .. }) = file.parts(range.0, range.1).next() {
                    return Some(TreeError::AlreadyMapped { ino, lblk });
                }
                file.insert(extent);
                left = rest;
            }
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// What must hold after a record.
    fn settled(&self, txn: &Txn, before: Totals) -> Result<(), TreeError> {
        for &ino in &txn.touched {
            if let Some(inode) = self.inodes.get(&ino) {
                self.settled_inode(ino, inode)?;
            }
        }
        for &ino in &txn.moved {
            let directory = self.inodes.get(&ino).and_then(|inode| inode.directory());
            // What has no directories in it cannot be its own ancestor.
            if directory.is_some_and(|directory| directory.subdirs > 0)
                && self.is_under(ino, ROOT_INO) != Some(true)
            {
                return Err(TreeError::NotATree { ino });
            }
        }
        let bytes = self.totals.metadata_bytes;
        if bytes > self.limits.metadata_bytes && bytes > before.metadata_bytes {
            return Err(TreeError::TooLarge {
                bytes,
                limit: self.limits.metadata_bytes,
            });
        }
        Ok(())
    }

    /// What must hold of one inode between records.
    pub(super) fn settled_inode(&self, ino: Ino, inode: &Inode) -> Result<(), TreeError> {
        let nlink = inode.core.nlink;
        let counted = links(ino, inode);
        if u64::from(nlink) != counted {
            return Err(TreeError::LinkCount {
                ino,
                nlink,
                counted,
            });
        }
        if self.orphans.contains(&ino) != (nlink == 0) {
            return Err(TreeError::OrphanState { ino });
        }
        match &inode.body {
            Body::Directory(directory) => {
                let placed = if ino == ROOT_INO {
                    inode.names == 0
                } else {
                    inode.names == 1 || (inode.names == 0 && directory.is_empty())
                };
                placed.then_some(()).ok_or(TreeError::NotATree { ino })
            }
            Body::Symlink(target)
                if target.is_empty() || target.len() as u64 != inode.core.size =>
            {
                Err(TreeError::NoTarget { ino })
            }
            Body::Symlink(_) | Body::File(_) => Ok(()),
        }
    }

    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.totals.metadata_bytes = self.totals.metadata_bytes.saturating_add(bytes);
    }

    pub(super) fn sub_bytes(&mut self, bytes: u64) {
        self.totals.metadata_bytes = self.totals.metadata_bytes.saturating_sub(bytes);
    }

    /// Takes an inode out of the totals; its extents too.
    pub(super) fn forget_inode(&mut self, inode: &Inode) {
        self.totals.inodes = self.totals.inodes.saturating_sub(1);
        if let Body::File(extents) = &inode.body {
            self.totals.extents = self.totals.extents.saturating_sub(extents.count());
            self.totals.blocks = self.totals.blocks.saturating_sub(extents.blocks());
        }
        self.sub_bytes(cost::inode(inode));
    }
}

/// The link count that an inode must have.
pub(super) fn links(ino: Ino, inode: &Inode) -> u64 {
    let names = u64::from(inode.names);
    match inode.directory() {
        // "." and each subdirectory's ".."; the root's own ".." stands for its name.
        Some(directory) if ino == ROOT_INO => 2 + u64::from(directory.subdirs),
        Some(directory) if names > 0 => names + 1 + u64::from(directory.subdirs),
        _ => names,
    }
}

/// What is freed and allocated in all, where the same blocks were both.
fn net(freed: &[BlockRange], allocated: &[BlockRange]) -> (Vec<BlockRange>, Vec<BlockRange>) {
    let edges = |ranges: &[BlockRange], sign: i64| {
        let edges = ranges
            .iter()
            .flat_map(move |range| [(range.start, sign), (range.end(), -sign)]);
        edges.collect::<Vec<_>>()
    };
    let mut all = edges(allocated, 1);
    all.extend(edges(freed, -1));
    all.sort_unstable();
    let mut sums = (Vec::new(), Vec::new());
    let mut sum = 0i64;
    let mut from = 0;
    for (at, change) in all {
        let list = match sum.signum() {
            -1 => Some(&mut sums.0),
            1 => Some(&mut sums.1),
            _ => None,
        };
        if let Some(list) = list.filter(|_| at > from) {
            push(list, from, at);
        }
        sum += change;
        from = at;
    }
    sums
}

fn push(list: &mut Vec<BlockRange>, from: u64, to: u64) {
    match list.last_mut() {
        Some(last) if last.end() == from => last.blocks += to - from,
        _ => list.push(BlockRange {
            start: from,
            blocks: to - from,
        }),
    }
}
