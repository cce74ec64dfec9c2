//! One operation: checked against the state first, then carried out, with what undoes it.

use super::cost;
use super::extents::{self, ExtentMap};
use super::inode::{Body, Directory, Entry, Inode};
use super::undo::Undo;
use super::{Tree, TreeError};
use crate::format::geometry::BlockRange;
use crate::format::op::{Attrs, Dirent, Extent, Ino, Kind, NewInode, Op, ROOT_INO};

/// A record on its way.
#[derive(Debug, Default)]
pub(super) struct Txn {
    pub(super) undo: Vec<Undo>,
    pub(super) freed: Vec<BlockRange>,
    pub(super) allocated: Vec<BlockRange>,
    /// Inodes that changed; some more than once.
    pub(super) touched: Vec<Ino>,
    /// Directories that got a name.
    pub(super) moved: Vec<Ino>,
    pub(super) grown: Option<u64>,
}

impl Txn {
    pub(super) fn clear(&mut self) {
        self.undo.clear();
        self.freed.clear();
        self.allocated.clear();
        self.touched.clear();
        self.moved.clear();
        self.grown = None;
    }

    fn did(&mut self, ino: Ino, undo: Undo) {
        if self.touched.last() != Some(&ino) {
            self.touched.push(ino);
        }
        self.undo.push(undo);
    }
}

const fn blocks(extent: &Extent) -> BlockRange {
    BlockRange {
        start: extent.pblk,
        blocks: extent.len as u64,
    }
}

impl Tree {
    /// Carries out one operation, or changes nothing.
    pub(super) fn step(&mut self, op: &Op<'_>, txn: &mut Txn) -> Result<(), TreeError> {
        op.check().map_err(TreeError::Malformed)?;
        match *op {
            Op::CreateInode(new) => self.create(new, txn),
            Op::FreeInode { ino } => self.free_inode(ino, txn),
            Op::SetAttr { ino, ref attrs } => self.set_attr(ino, attrs, txn),
            Op::AddDirent(ref dirent) => self.add_dirent(dirent, txn),
            Op::RemoveDirent { dir, name } => self.remove_dirent(dir, name, txn),
            Op::ReplaceDirent(ref dirent) => self.replace_dirent(dirent, txn),
            Op::MapExtent { ino, extent } => self.map_extent(ino, extent, txn),
            Op::UnmapRange { ino, lblk, len } => self.unmap(ino, (lblk, len), txn),
            Op::ConvertRange { ino, lblk, len } => self.convert(ino, (lblk, len), txn),
            Op::SetSymlink { ino, target } => self.set_symlink(ino, target, txn),
            Op::SetXattr { ino, name, value } => self.set_xattr(ino, name, value, txn),
            Op::RemoveXattr { ino, name } => self.remove_xattr(ino, name, txn),
            Op::AddOrphan { ino } => self.set_orphan(ino, true, txn),
            Op::RemoveOrphan { ino } => self.set_orphan(ino, false, txn),
            Op::SetLabel { label } => {
                self.sub_bytes(cost::label(&self.label));
                self.add_bytes(cost::label(label));
                let old = std::mem::replace(&mut self.label, label.into());
                txn.undo.push(Undo::Label(old));
                Ok(())
            }
            Op::Grow { blocks } => {
                let from = self.limits.volume_blocks;
                forwards("the volume's size", from, blocks)?;
                self.limits.volume_blocks = blocks;
                txn.grown = Some(blocks);
                txn.undo.push(Undo::Blocks(from));
                Ok(())
            }
            Op::NextInode { ino } => {
                let from = self.next_ino;
                forwards("the next inode number", from, ino)?;
                self.next_ino = ino;
                txn.undo.push(Undo::NextIno(from));
                Ok(())
            }
        }
    }

    pub(super) fn known(&mut self, ino: Ino) -> Result<&mut Inode, TreeError> {
        let inode = self.inodes.get_mut(&ino).map(|b| &mut **b);
        inode.ok_or(TreeError::NoInode { ino })
    }

    fn known_dir(&mut self, ino: Ino) -> Result<&mut Directory, TreeError> {
        match &mut self.known(ino)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(wrong_kind(ino, Kind::Directory)),
        }
    }

    fn known_file(&mut self, ino: Ino) -> Result<&mut ExtentMap, TreeError> {
        match &mut self.known(ino)?.body {
            Body::File(extents) => Ok(extents),
            _ => Err(wrong_kind(ino, Kind::File)),
        }
    }

    fn create(&mut self, new: NewInode, txn: &mut Txn) -> Result<(), TreeError> {
        let next = self.next_ino;
        if new.ino < next || new.ino == Ino::MAX {
            return Err(TreeError::InodeNumber { ino: new.ino, next });
        }
        if new.kind == Kind::Directory && new.size != 0 {
            return Err(wrong_kind(new.ino, Kind::File));
        }
        self.inodes.insert(new.ino, Box::new(Inode::new(new)));
        self.next_ino = new.ino + 1;
        self.totals.inodes += 1;
        self.add_bytes(cost::INODE);
        txn.did(new.ino, Undo::Created { ino: new.ino, next });
        Ok(())
    }

    fn free_inode(&mut self, ino: Ino, txn: &mut Txn) -> Result<(), TreeError> {
        let inode = self.known(ino)?;
        let empty = inode.directory().is_none_or(Directory::is_empty);
        if inode.names > 0 || !empty || ino == ROOT_INO {
            return Err(TreeError::InUse { ino });
        }
        self.keep_node(ino);
        self.keep_orphan(ino);
        let orphan = self.orphans.remove(&ino);
        if orphan {
            self.sub_bytes(cost::ORPHAN);
        }
        if let Some(inode) = self.inodes.remove(&ino) {
            self.forget_inode(&inode);
            if let Some(extents) = inode.file() {
                txn.freed
                    .extend(extents.from(0).map(|extent| blocks(&extent)));
            }
            txn.did(ino, Undo::Freed { ino, inode, orphan });
        }
        Ok(())
    }

    fn set_attr(&mut self, ino: Ino, attrs: &Attrs, txn: &mut Txn) -> Result<(), TreeError> {
        self.keep_node(ino);
        let inode = self.known(ino)?;
        if attrs.size.is_some() && inode.core.kind != Kind::File {
            return Err(wrong_kind(ino, Kind::File));
        }
        let old = inode.core;
        inode.core = NewInode {
            size: attrs.size.unwrap_or(old.size),
            atime_ns: attrs.atime_ns.unwrap_or(old.atime_ns),
            mtime_ns: attrs.mtime_ns.unwrap_or(old.mtime_ns),
            ctime_ns: attrs.ctime_ns.unwrap_or(old.ctime_ns),
            mode: attrs.mode.unwrap_or(old.mode),
            uid: attrs.uid.unwrap_or(old.uid),
            gid: attrs.gid.unwrap_or(old.gid),
            nlink: attrs.nlink.unwrap_or(old.nlink),
            ..old
        };
        txn.did(ino, Undo::Core(old));
        Ok(())
    }

    /// That `dirent` may lead where it says.
    fn check_target(&mut self, dirent: &Dirent<'_>) -> Result<(), TreeError> {
        let ino = dirent.ino;
        let target = self.known(ino)?;
        if target.core.kind != dirent.kind {
            return Err(wrong_kind(ino, dirent.kind));
        }
        if ino == ROOT_INO {
            return Err(TreeError::NotATree { ino });
        }
        if target.names == u32::MAX {
            return Err(TreeError::TooManyNames { ino });
        }
        // A directory's own link count has two more than it has subdirectories.
        if self.known_dir(dirent.dir)?.subdirs >= u32::MAX - 2 {
            return Err(TreeError::TooManyNames { ino: dirent.dir });
        }
        Ok(())
    }

    fn add_dirent(&mut self, dirent: &Dirent<'_>, txn: &mut Txn) -> Result<(), TreeError> {
        let &Dirent {
            dir,
            ino,
            kind,
            name,
        } = dirent;
        self.check_target(dirent)?;
        self.keep_end(dir);
        let directory = self.known_dir(dir)?;
        if directory.get(name).is_some() {
            let name = name.into();
            return Err(TreeError::NameExists { dir, name });
        }
        directory.add(name, ino, kind);
        self.attach(dir, ino, kind);
        self.totals.dirents += 1;
        self.add_bytes(cost::dirent(name));
        let name = name.into();
        txn.did(
            dir,
            Undo::Entry {
                dir,
                name,
                old: None,
            },
        );
        self.led_to(ino, kind, txn);
        Ok(())
    }

    fn remove_dirent(&mut self, dir: Ino, name: &[u8], txn: &mut Txn) -> Result<(), TreeError> {
        let old = self.entry(dir, name)?;
        self.keep_entry(dir, name, old);
        self.known_dir(dir)?.remove(name);
        self.detach(dir, old);
        self.totals.dirents = self.totals.dirents.saturating_sub(1);
        self.sub_bytes(cost::dirent(name));
        let (name, old_entry) = (name.into(), Some(old));
        txn.did(
            dir,
            Undo::Entry {
                dir,
                name,
                old: old_entry,
            },
        );
        txn.touched.push(old.ino);
        Ok(())
    }

    fn replace_dirent(&mut self, dirent: &Dirent<'_>, txn: &mut Txn) -> Result<(), TreeError> {
        let &Dirent {
            dir,
            ino,
            kind,
            name,
        } = dirent;
        self.check_target(dirent)?;
        let old = self.entry(dir, name)?;
        self.keep_entry(dir, name, old);
        let entry = Entry { ino, kind, ..old };
        self.known_dir(dir)?.put(name, entry);
        self.detach(dir, old);
        self.attach(dir, ino, kind);
        let (name, old_entry) = (name.into(), Some(old));
        txn.did(
            dir,
            Undo::Entry {
                dir,
                name,
                old: old_entry,
            },
        );
        txn.touched.push(old.ino);
        self.led_to(ino, kind, txn);
        Ok(())
    }

    fn entry(&mut self, dir: Ino, name: &[u8]) -> Result<Entry, TreeError> {
        let found = self.known_dir(dir)?.get(name);
        found.ok_or_else(|| {
            let name = name.into();
            TreeError::NoName { dir, name }
        })
    }

    fn led_to(&self, ino: Ino, kind: Kind, txn: &mut Txn) {
        txn.touched.push(ino);
        if kind == Kind::Directory {
            txn.moved.push(ino);
        }
    }

    /// Counts a name of `ino` in `dir`.
    pub(super) fn attach(&mut self, dir: Ino, ino: Ino, kind: Kind) {
        if let Ok(inode) = self.known(ino) {
            inode.names = inode.names.saturating_add(1);
            inode.parents ^= dir;
        }
        if let Ok(directory) = self.known_dir(dir)
            && kind == Kind::Directory
        {
            directory.subdirs = directory.subdirs.saturating_add(1);
        }
    }

    /// Counts a name in `dir` no more.
    pub(super) fn detach(&mut self, dir: Ino, entry: Entry) {
        if let Ok(inode) = self.known(entry.ino) {
            inode.names = inode.names.saturating_sub(1);
            inode.parents ^= dir;
        }
        if let Ok(directory) = self.known_dir(dir)
            && entry.kind == Kind::Directory
        {
            directory.subdirs = directory.subdirs.saturating_sub(1);
        }
    }

    fn map_extent(&mut self, ino: Ino, extent: Extent, txn: &mut Txn) -> Result<(), TreeError> {
        let (end, volume) = (blocks(&extent).end(), self.limits.volume_blocks);
        if end > volume {
            let blocks = volume;
            return Err(TreeError::OutOfVolume { ino, end, blocks });
        }
        let range = (u64::from(extent.lblk), extents::end(&extent));
        let mapped = self.change_extents(ino, |file| {
            let found = file.parts(range.0, range.1).next();
            if found.is_none() {
                file.insert(extent);
            }
            found
        })?;
        if let Some(Extent { lblk, .. }) = mapped {
            return Err(TreeError::AlreadyMapped { ino, lblk });
        }
        txn.allocated.push(blocks(&extent));
        let old = Vec::new();
        txn.did(ino, Undo::Extents { ino, range, old });
        Ok(())
    }

    fn unmap(&mut self, ino: Ino, range: (u32, u32), txn: &mut Txn) -> Result<(), TreeError> {
        let range = (u64::from(range.0), u64::from(range.0) + u64::from(range.1));
        let old = self.change_extents(ino, |file| file.unmap(range.0, range.1))?;
        txn.freed.extend(old.iter().map(blocks));
        txn.did(ino, Undo::Extents { ino, range, old });
        Ok(())
    }

    fn convert(&mut self, ino: Ino, range: (u32, u32), txn: &mut Txn) -> Result<(), TreeError> {
        let range = (u64::from(range.0), u64::from(range.0) + u64::from(range.1));
        let old: Vec<Extent> = self.known_file(ino)?.parts(range.0, range.1).collect();
        self.change_extents(ino, |file| file.convert(range.0, range.1))?;
        txn.did(ino, Undo::Extents { ino, range, old });
        Ok(())
    }

    /// Lets `change` change the extents of a file, and brings the totals up to date.
    pub(super) fn change_extents<T>(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut ExtentMap) -> T,
    ) -> Result<T, TreeError> {
        self.keep_node(ino);
        let file = self.known_file(ino)?;
        let (count, blocks) = (file.count(), file.blocks());
        let result = change(file);
        let (new_count, new_blocks) = (file.count(), file.blocks());
        let totals = &mut self.totals;
        totals.extents = (totals.extents + new_count).saturating_sub(count);
        totals.blocks = (totals.blocks + new_blocks).saturating_sub(blocks);
        self.add_bytes(new_count * cost::EXTENT);
        self.sub_bytes(count * cost::EXTENT);
        Ok(result)
    }

    fn set_symlink(&mut self, ino: Ino, target: &[u8], txn: &mut Txn) -> Result<(), TreeError> {
        self.keep_node(ino);
        match &mut self.known(ino)?.body {
            Body::Symlink(old) if old.is_empty() => *old = target.into(),
            Body::Symlink(_) => return Err(TreeError::TargetSet { ino }),
            _ => return Err(wrong_kind(ino, Kind::Symlink)),
        }
        self.add_bytes(cost::symlink(target));
        txn.did(ino, Undo::Target { ino });
        Ok(())
    }

    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        txn: &mut Txn,
    ) -> Result<(), TreeError> {
        self.keep_node(ino);
        let xattrs = self.known(ino)?.xattrs.get_or_insert_default();
        let old = xattrs.insert(name.into(), value.into());
        self.sub_bytes(old.as_ref().map_or(0, |old| cost::xattr(name, old)));
        self.add_bytes(cost::xattr(name, value));
        let name = name.into();
        txn.did(ino, Undo::Xattr { ino, name, old });
        Ok(())
    }

    fn remove_xattr(&mut self, ino: Ino, name: &[u8], txn: &mut Txn) -> Result<(), TreeError> {
        self.keep_node(ino);
        let inode = self.known(ino)?;
        let old = inode.xattrs.as_mut().and_then(|xattrs| xattrs.remove(name));
        let Some(old) = old else {
            let name = name.into();
            return Err(TreeError::NoXattr { ino, name });
        };
        inode.xattrs.take_if(|xattrs| xattrs.is_empty());
        self.sub_bytes(cost::xattr(name, &old));
        let (name, old) = (name.into(), Some(old));
        txn.did(ino, Undo::Xattr { ino, name, old });
        Ok(())
    }

    fn set_orphan(&mut self, ino: Ino, orphan: bool, txn: &mut Txn) -> Result<(), TreeError> {
        self.known(ino)?;
        self.keep_orphan(ino);
        let changed = if orphan {
            self.orphans.insert(ino)
        } else {
            self.orphans.remove(&ino)
        };
        if !changed {
            return Err(TreeError::Orphan { ino, orphan });
        }
        if orphan {
            self.add_bytes(cost::ORPHAN);
        } else {
            self.sub_bytes(cost::ORPHAN);
        }
        txn.did(
            ino,
            Undo::Orphan {
                ino,
                orphan: !orphan,
            },
        );
        Ok(())
    }
}

fn forwards(what: &'static str, from: u64, to: u64) -> Result<(), TreeError> {
    if to < from {
        return Err(TreeError::Backwards { what, from, to });
    }
    Ok(())
}

const fn wrong_kind(ino: Ino, wanted: Kind) -> TreeError {
    let wanted = match wanted {
        Kind::File => "a file",
        Kind::Directory => "a directory",
        Kind::Symlink => "a symbolic link",
    };
    TreeError::WrongKind { ino, wanted }
}
