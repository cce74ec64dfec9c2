//! Names: create, link, unlink.

use super::{NewNode, Plan, Room, new_inode};
use crate::format::op::{Attrs, Dirent, Ino, Kind, MAX_NAME_BYTES, MAX_SYMLINK_BYTES, Op};
use crate::tree::inode::Entry;
use crate::tree::{PosixError, Tree};

impl Tree {
    /// A new, empty file.
    ///
    /// # Errors
    /// [`PosixError::Exists`]; of the directory [`PosixError::NotFound`],
    /// [`PosixError::NotDirectory`]; of the name [`PosixError::NameTooLong`],
    /// [`PosixError::Invalid`]; [`PosixError::NoSpace`].
    pub fn plan_create<'a>(
        &self,
        dir: Ino,
        name: &'a [u8],
        node: NewNode,
    ) -> Result<Plan<'a>, PosixError> {
        self.plan_new(dir, name, Kind::File, node, None)
    }

    /// A new, empty directory.
    ///
    /// # Errors
    /// As [`Tree::plan_create`]; [`PosixError::TooManyLinks`].
    pub fn plan_mkdir<'a>(
        &self,
        dir: Ino,
        name: &'a [u8],
        node: NewNode,
    ) -> Result<Plan<'a>, PosixError> {
        self.plan_new(dir, name, Kind::Directory, node, None)
    }

    /// A new symbolic link to `target`, whatever that is.
    ///
    /// # Errors
    /// As [`Tree::plan_create`]; of the target [`PosixError::NameTooLong`],
    /// [`PosixError::NotFound`] if it is empty.
    pub fn plan_symlink<'a>(
        &self,
        dir: Ino,
        name: &'a [u8],
        target: &'a [u8],
        node: NewNode,
    ) -> Result<Plan<'a>, PosixError> {
        if target.is_empty() {
            return Err(PosixError::NotFound);
        }
        if target.len() > MAX_SYMLINK_BYTES {
            return Err(PosixError::NameTooLong);
        }
        if target.contains(&0) {
            return Err(PosixError::Invalid("a target has no NUL"));
        }
        self.plan_new(dir, name, Kind::Symlink, node, Some(target))
    }

    /// Another name for a file or a symbolic link.
    ///
    /// # Errors
    /// As [`Tree::plan_create`]; [`PosixError::LinkToDirectory`], [`PosixError::TooManyLinks`],
    /// [`PosixError::NotFound`] for an orphan.
    pub fn plan_link<'a>(
        &self,
        ino: Ino,
        dir: Ino,
        name: &'a [u8],
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        let inode = self.get(ino)?;
        let kind = inode.core.kind;
        if kind == Kind::Directory {
            return Err(PosixError::LinkToDirectory);
        }
        self.vacant(dir, name)?;
        if inode.core.nlink == 0 {
            return Err(PosixError::NotFound);
        }
        let nlink = inode.core.nlink.checked_add(1);
        let attrs = Attrs {
            nlink: Some(nlink.ok_or(PosixError::TooManyLinks)?),
            ctime_ns: Some(now_ns),
            ..Attrs::default()
        };
        let ops = vec![
            Op::AddDirent(Dirent {
                dir,
                ino,
                kind,
                name,
            }),
            Op::SetAttr { ino, attrs },
            self.dir_changed(dir, 0, now_ns)?,
        ];
        self.admit(ops, Room::Ordinary)
    }

    /// A name of a file or a symbolic link goes. With the last one the inode goes, or, if `is_open`
    /// says so, becomes an orphan for [`Tree::plan_reap`].
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::NotDirectory`], [`PosixError::IsDirectory`],
    /// [`PosixError::Invalid`], [`PosixError::NameTooLong`].
    pub fn plan_unlink<'a>(
        &self,
        dir: Ino,
        name: &'a [u8],
        is_open: impl Fn(Ino) -> bool,
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        let entry = self.named(dir, name)?;
        if entry.kind == Kind::Directory {
            return Err(PosixError::IsDirectory);
        }
        let mut ops = vec![Op::RemoveDirent { dir, name }];
        self.drop_name(entry, &is_open, now_ns, &mut ops)?;
        ops.push(self.dir_changed(dir, 0, now_ns)?);
        self.admit(ops, Room::Freeing)
    }

    /// An empty directory goes, or becomes an orphan if it is open.
    ///
    /// # Errors
    /// As [`Tree::plan_unlink`]; [`PosixError::NotDirectory`], [`PosixError::NotEmpty`].
    pub fn plan_rmdir<'a>(
        &self,
        dir: Ino,
        name: &'a [u8],
        is_open: impl Fn(Ino) -> bool,
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        let entry = self.named(dir, name)?;
        if !self.dir(entry.ino)?.is_empty() {
            return Err(PosixError::NotEmpty);
        }
        let mut ops = vec![Op::RemoveDirent { dir, name }];
        self.drop_name(entry, &is_open, now_ns, &mut ops)?;
        ops.push(self.dir_changed(dir, -1, now_ns)?);
        self.admit(ops, Room::Freeing)
    }

    fn plan_new<'a>(
        &self,
        dir: Ino,
        name: &'a [u8],
        kind: Kind,
        node: NewNode,
        target: Option<&'a [u8]>,
    ) -> Result<Plan<'a>, PosixError> {
        self.vacant(dir, name)?;
        let ino = self.next_ino;
        let mut new = new_inode(ino, kind, node);
        new.size = target.map_or(0, |target| target.len() as u64);
        let mut ops = vec![Op::CreateInode(new)];
        ops.extend(target.map(|target| Op::SetSymlink { ino, target }));
        ops.push(Op::AddDirent(Dirent {
            dir,
            ino,
            kind,
            name,
        }));
        let subdirs = i64::from(kind == Kind::Directory);
        ops.push(self.dir_changed(dir, subdirs, node.now_ns)?);
        Ok(Plan {
            created: Some(ino),
            ..self.admit(ops, Room::Ordinary)?
        })
    }

    /// What a name leads to.
    pub(super) fn named(&self, dir: Ino, name: &[u8]) -> Result<Entry, PosixError> {
        check_name(name)?;
        self.dir(dir)?.get(name).ok_or(PosixError::NotFound)
    }

    /// That a name can be made in `dir`.
    fn vacant(&self, dir: Ino, name: &[u8]) -> Result<(), PosixError> {
        check_name(name)?;
        if self.dir(dir)?.get(name).is_some() {
            return Err(PosixError::Exists);
        }
        self.alive(dir)
    }

    /// That `dir` is not removed, though open.
    pub(super) fn alive(&self, dir: Ino) -> Result<(), PosixError> {
        if self.orphans.contains(&dir) {
            return Err(PosixError::NotFound);
        }
        Ok(())
    }

    /// What follows when a name of `entry`'s inode goes.
    pub(super) fn drop_name(
        &self,
        entry: Entry,
        is_open: &dyn Fn(Ino) -> bool,
        now_ns: i64,
        ops: &mut Vec<Op<'_>>,
    ) -> Result<(), PosixError> {
        let ino = entry.ino;
        let left = match entry.kind {
            Kind::Directory => 0,
            _ => self.get(ino)?.core.nlink.saturating_sub(1),
        };
        if left == 0 && !is_open(ino) {
            ops.push(Op::FreeInode { ino });
            return Ok(());
        }
        let attrs = Attrs {
            nlink: Some(left),
            ctime_ns: Some(now_ns),
            ..Attrs::default()
        };
        ops.push(Op::SetAttr { ino, attrs });
        if left == 0 {
            ops.push(Op::AddOrphan { ino });
        }
        Ok(())
    }

    /// The names in `dir` changed, and `subdirs` of them more lead to directories.
    pub(super) fn dir_changed(
        &self,
        dir: Ino,
        subdirs: i64,
        now_ns: i64,
    ) -> Result<Op<'static>, PosixError> {
        let nlink = i64::from(self.get(dir)?.core.nlink) + subdirs;
        let nlink = u32::try_from(nlink).map_err(|_| PosixError::TooManyLinks)?;
        let attrs = Attrs {
            mtime_ns: Some(now_ns),
            ctime_ns: Some(now_ns),
            nlink: (subdirs != 0).then_some(nlink),
            ..Attrs::default()
        };
        Ok(Op::SetAttr { ino: dir, attrs })
    }
}

/// That something can have this name.
fn check_name(name: &[u8]) -> Result<(), PosixError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(PosixError::NameTooLong);
    }
    let plain = !name.is_empty() && name != b"." && name != b"..";
    if !plain || name.contains(&b'/') || name.contains(&0) {
        return Err(PosixError::Invalid("no such name is possible"));
    }
    Ok(())
}
