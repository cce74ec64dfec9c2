//! Names and attributes: everything that changes metadata without data.
//!
//! Each of these is visible at once and durable after the next sync; none waits for the drive, unless
//! the journal is so full that changes have to be slowed down.

use super::core::Core;
use super::error::FsError;
use super::open::{File, OpenOptions};
use super::{Blockfs, DirEntry, StatFs};
use crate::device::BlockDevice;
use crate::format::op::{Extent, Ino, Kind, ROOT_INO};
use crate::iostat::IoStat;
use crate::journal::MetaTag;
use crate::tree::{NewNode, PosixError, RenameMode, SetAttr, Stat, XattrMode};
use std::sync::MutexGuard;

impl<D: BlockDevice<MetaTag>, S: IoStat> Blockfs<D, S> {
    /// Opens a file or a directory.
    ///
    /// # Errors
    /// [`FsError::Posix`] as open(2): not found, exists, is a directory (to be written), too many
    /// links; [`FsError::ReadOnly`], [`FsError::Access`] for truncation without writing,
    /// [`FsError::Stopped`].
    pub fn open(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File, FsError> {
        let path = path.as_ref();
        if options.truncate && !options.write {
            return Err(FsError::Access("writing, which truncation needs"));
        }
        if options.write || options.create.is_some() {
            self.may_write()?;
        }
        let mut core = match options.create.is_some() || options.truncate {
            true => self.admitted()?,
            false => self.shared.lock(),
        };
        let ino = match core.tree.resolve(ROOT_INO, path, !options.no_follow) {
            Ok(_) if options.create.is_some() && options.exclusive => {
                return Err(PosixError::Exists.into());
            }
            Err(PosixError::NotFound) if options.create.is_some() => {
                self.create(&mut core, path, options)?
            }
            found => found?,
        };
        let kind = core.tree.stat(ino)?.kind;
        match kind {
            Kind::Symlink => return Err(PosixError::Loop.into()),
            Kind::Directory if options.write => return Err(PosixError::IsDirectory.into()),
            _ => {}
        }
        if options.truncate && kind == Kind::File && core.size(ino)? > 0 {
            // A whole file: nothing is to be zeroed.
            let lock = core.ranges.lock(ino, 0..u64::MAX);
            let lock = lock.ok_or(FsError::Busy("operations on the file are under way"))?;
            let plan = core.tree.plan_truncate(ino, 0, self.now());
            let done = plan.map_err(FsError::from).and_then(|p| core.change(&p));
            core.ranges.unlock(lock);
            done?;
        }
        Ok(self.handle(&mut core, ino, options))
    }

    fn create(
        &self,
        core: &mut Core<D>,
        path: &[u8],
        options: OpenOptions,
    ) -> Result<Ino, FsError> {
        // A link that leads nowhere is created where it leads.
        let mut path = path.to_vec();
        let mut start = ROOT_INO;
        for _ in 0..crate::tree::MAX_LINKS_FOLLOWED {
            let parent = core.tree.resolve_parent(start, &path)?;
            if parent.directory {
                return Err(PosixError::IsDirectory.into());
            }
            let (dir, name) = (parent.dir, parent.name);
            match core.tree.lookup(dir, name) {
                Err(PosixError::NotFound) => {
                    let node = self.node(options.create.unwrap_or(0), options.owner);
                    let plan = core.tree.plan_create(dir, name, node)?;
                    core.change(&plan)?;
                    return plan.created.ok_or(PosixError::NotFound.into());
                }
                Ok(_) if options.exclusive => return Err(PosixError::Exists.into()),
                Ok(ino) => match core.tree.readlink(ino) {
                    Ok(_) if options.no_follow => return Err(PosixError::Loop.into()),
                    Ok(target) => {
                        let target = target.to_vec();
                        start = dir;
                        path = target;
                    }
                    Err(_) => return Ok(ino),
                },
                Err(error) => return Err(error.into()),
            }
        }
        Err(PosixError::Loop.into())
    }

    pub(crate) fn handle(&self, core: &mut Core<D>, ino: Ino, options: OpenOptions) -> File {
        let map = core.tree.file_map(ino).unwrap_or_default();
        let txid = core.journal.last();
        let volume = self.shared.volume;
        let inode = core.open.open(volume, ino, || map, txid);
        File {
            inode,
            readable_on: volume.only_if(options.read),
            writable_on: volume.only_if(options.write),
            append: options.append,
            direct: options.direct,
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<(), FsError> {
        let path = path.as_ref();
        let mut core = self.admitted()?;
        let parent = core.tree.resolve_parent(ROOT_INO, path)?;
        let node = self.node(mode, (0, 0));
        let plan = core.tree.plan_mkdir(parent.dir, parent.name, node)?;
        core.change(&plan).map(drop)
    }

    /// Makes a symbolic link that leads to `target`.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let parent = core.tree.resolve_parent(ROOT_INO, path.as_ref())?;
        not_a_directory(parent.directory)?;
        let node = self.node(0o777, (0, 0));
        let target = target.as_ref();
        let plan = core
            .tree
            .plan_symlink(parent.dir, parent.name, target, node)?;
        core.change(&plan).map(drop)
    }

    /// Gives what `from` leads to another name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let ino = core.tree.resolve(ROOT_INO, from.as_ref(), false)?;
        let parent = core.tree.resolve_parent(ROOT_INO, to.as_ref())?;
        not_a_directory(parent.directory)?;
        let (dir, name) = (parent.dir, parent.name);
        let plan = core.tree.plan_link(ino, dir, name, self.now())?;
        core.change(&plan).map(drop)
    }

    /// Takes a name away. A file that is open stays until it is closed.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let parent = core.tree.resolve_parent(ROOT_INO, path.as_ref())?;
        if parent.directory {
            return Err(PosixError::NotDirectory.into());
        }
        let (dir, name) = (parent.dir, parent.name);
        let used = |ino| core.open.is_open(ino);
        let plan = core.tree.plan_unlink(dir, name, used, self.now())?;
        core.change(&plan).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let parent = core.tree.resolve_parent(ROOT_INO, path.as_ref())?;
        let (dir, name) = (parent.dir, parent.name);
        let used = |ino| core.open.is_open(ino);
        let plan = core.tree.plan_rmdir(dir, name, used, self.now())?;
        core.change(&plan).map(drop)
    }

    /// Renames, in one step: at no time, nor after a power cut, is a name missing or there twice.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let source = core.tree.resolve_parent(ROOT_INO, from.as_ref())?;
        let target = core.tree.resolve_parent(ROOT_INO, to.as_ref())?;
        let ino = core.tree.lookup(source.dir, source.name)?;
        if (source.directory || target.directory) && core.tree.stat(ino)?.kind != Kind::Directory {
            return Err(PosixError::NotDirectory.into());
        }
        let plan = core.tree.plan_rename(
            (source.dir, source.name),
            (target.dir, target.name),
            mode,
            |ino| core.open.is_open(ino),
            self.now(),
        )?;
        core.change(&plan).map(drop)
    }

    /// The attributes of what `path` leads to.
    ///
    /// # Errors
    /// As stat(2).
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat, FsError> {
        let core = self.shared.lock();
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), true)?;
        Ok(core.tree.stat(ino)?)
    }

    /// As [`Blockfs::stat`], of a symbolic link itself.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Stat, FsError> {
        let core = self.shared.lock();
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), false)?;
        Ok(core.tree.stat(ino)?)
    }

    /// The attributes of an open file.
    ///
    /// # Errors
    /// [`FsError::ForeignVolume`].
    pub fn fstat(&self, file: &File) -> Result<Stat, FsError> {
        self.own(file)?;
        Ok(self.shared.lock().tree.stat(file.ino())?)
    }

    /// The entries of a directory that were added after the one with `cookie`, 0 for all, at most
    /// `most`; without "." and "..". A cookie stays good while entries come and go.
    ///
    /// # Errors
    /// As readdir(3).
    pub fn readdir(
        &self,
        path: impl AsRef<[u8]>,
        cookie: u64,
        most: usize,
    ) -> Result<Vec<DirEntry>, FsError> {
        let core = self.shared.lock();
        let dir = core.tree.resolve(ROOT_INO, path.as_ref(), true)?;
        let entries = core.tree.readdir(dir, cookie)?.take(most);
        Ok(entries
            .map(|entry| DirEntry {
                cookie: entry.cookie,
                ino: entry.ino,
                kind: entry.kind,
                name: entry.name.to_vec(),
            })
            .collect())
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, FsError> {
        let core = self.shared.lock();
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), false)?;
        Ok(core.tree.readlink(ino)?.to_vec())
    }

    /// Sets attributes; a symbolic link at the end of `path` is followed if `follow`.
    ///
    /// # Errors
    /// As chmod(2) and its like. Permissions are kept, not checked.
    pub fn set_attr(
        &self,
        path: impl AsRef<[u8]>,
        follow: bool,
        set: SetAttr,
    ) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), follow)?;
        let plan = core.tree.plan_setattr(ino, set, self.now())?;
        core.change(&plan).map(drop)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), true)?;
        let plan = core
            .tree
            .plan_set_xattr(ino, (name, value), mode, self.now())?;
        core.change(&plan).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: &[u8]) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), true)?;
        let plan = core.tree.plan_remove_xattr(ino, name, self.now())?;
        core.change(&plan).map(drop)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As getxattr(2).
    pub fn xattr(&self, path: impl AsRef<[u8]>, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let core = self.shared.lock();
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), true)?;
        Ok(core.tree.xattr(ino, name)?.to_vec())
    }

    /// The names of the extended attributes, in order.
    ///
    /// # Errors
    /// As listxattr(2).
    pub fn xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>, FsError> {
        let core = self.shared.lock();
        let ino = core.tree.resolve(ROOT_INO, path.as_ref(), true)?;
        let names = core.tree.xattrs(ino)?.map(|(name, _)| name.to_vec());
        Ok(names.collect())
    }

    /// The extents of a file that have a byte of the range, whole, in blocks of 4 KiB.
    ///
    /// # Errors
    /// [`FsError::Posix`] for what is no file; [`FsError::ForeignVolume`].
    pub fn fiemap(&self, file: &File, offset: u64, len: u64) -> Result<Vec<Extent>, FsError> {
        self.own(file)?;
        let core = self.shared.lock();
        Ok(core.tree.fiemap(file.ino(), offset, len)?.collect())
    }

    /// The first byte at or after `offset` that was written.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_DATA`.
    pub fn seek_data(&self, file: &File, offset: u64) -> Result<u64, FsError> {
        self.own(file)?;
        Ok(self.shared.lock().tree.seek_data(file.ino(), offset)?)
    }

    /// The first byte at or after `offset` that was not; the end is one.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_HOLE`.
    pub fn seek_hole(&self, file: &File, offset: u64) -> Result<u64, FsError> {
        self.own(file)?;
        Ok(self.shared.lock().tree.seek_hole(file.ino(), offset)?)
    }

    /// How much there is.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let core = self.shared.lock();
        let (space, totals) = (core.space.stats(), core.tree.totals());
        let limits = core.tree.limits();
        StatFs {
            blocks: space.total,
            free_blocks: space.free + space.limbo,
            available_blocks: core.space.available(),
            inodes: totals.inodes,
            extents: totals.extents,
            metadata_bytes: totals.metadata_bytes,
            metadata_limit: limits.metadata_bytes,
        }
    }

    /// The volume's label.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.shared.lock().tree.label().to_vec()
    }

    /// Gives the volume another label.
    ///
    /// # Errors
    /// [`FsError::Posix`] for more than 64 bytes or a NUL.
    pub fn set_label(&self, label: &[u8]) -> Result<(), FsError> {
        let mut core = self.admitted()?;
        let plan = core.tree.plan_label(label)?;
        core.change(&plan).map(drop)
    }

    fn node(&self, mode: u16, (uid, gid): (u32, u32)) -> NewNode {
        NewNode {
            mode,
            uid,
            gid,
            now_ns: self.now(),
        }
    }

    pub(crate) fn own(&self, file: &File) -> Result<(), FsError> {
        match file.inode.volume == self.shared.volume {
            true => Ok(()),
            false => Err(FsError::ForeignVolume),
        }
    }

    pub(crate) fn may_write(&self) -> Result<(), FsError> {
        match self.shared.read_only {
            true => Err(FsError::ReadOnly),
            false => Ok(()),
        }
    }

    /// The state, once the journal has room for a change.
    fn admitted(&self) -> Result<MutexGuard<'_, Core<D>>, FsError> {
        self.may_write()?;
        self.wait(|core| {
            core.writable()?;
            Ok((!core.journal.must_wait()).then_some(()))
        })
        .map(|(core, ())| core)
    }
}

fn not_a_directory(directory: bool) -> Result<(), FsError> {
    match directory {
        true => Err(PosixError::NotFound.into()),
        false => Ok(()),
    }
}
