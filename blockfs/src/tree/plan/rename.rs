//! Rename, in one record: at no time is a name missing or there twice.

use super::{Plan, Room, changed};
use crate::format::op::{Dirent, Ino, Kind, Op};
use crate::tree::inode::Entry;
use crate::tree::{PosixError, Tree};

/// What happens to the new name if it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// What it led to loses the name.
    Replace,
    /// Nothing is done.
    NoReplace,
    /// It must be there, and the two change places.
    Exchange,
}

/// A name in a directory.
type Place<'a> = (Ino, &'a [u8]);

impl Tree {
    /// `from` becomes `to`.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::NotDirectory`]; [`PosixError::Exists`] with
    /// [`RenameMode::NoReplace`]; [`PosixError::Invalid`] for a directory into itself and for
    /// impossible names; what is replaced must be alike: [`PosixError::IsDirectory`],
    /// [`PosixError::NotDirectory`], [`PosixError::NotEmpty`]; [`PosixError::NoSpace`],
    /// [`PosixError::TooManyLinks`].
    pub fn plan_rename<'a>(
        &self,
        from: Place<'a>,
        to: Place<'a>,
        mode: RenameMode,
        is_open: impl Fn(Ino) -> bool,
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        let source = self.named(from.0, from.1)?;
        let target = match self.named(to.0, to.1) {
            Err(PosixError::NotFound) if self.dir(to.0).is_ok() => None,
            other => Some(other?),
        };
        self.alive(to.0)?;
        self.not_into_itself(source, to.0)?;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => Err(PosixError::Exists),
            (RenameMode::Exchange, None) => Err(PosixError::NotFound),
            (RenameMode::Exchange, Some(target)) => {
                self.not_into_itself(target, from.0)?;
                self.plan_exchange((from, source), (to, target), now_ns)
            }
            // Two names of one file: POSIX has it that nothing happens.
            (_, Some(target)) if target.ino == source.ino => Ok(Plan::default()),
            (_, target) => {
                let mut ops = Vec::new();
                let new = dirent(to, source);
                match target {
                    Some(target) => {
                        self.may_replace(source, target)?;
                        ops.push(Op::ReplaceDirent(new));
                        self.drop_name(target, &is_open, now_ns, &mut ops)?;
                    }
                    None => ops.push(Op::AddDirent(new)),
                }
                let (dir, name) = from;
                ops.push(Op::RemoveDirent { dir, name });
                ops.push(changed(source.ino, now_ns));
                let moved = i64::from(source.kind == Kind::Directory);
                let replaced = target.is_some_and(|target| target.kind == Kind::Directory);
                let change = (-moved, moved - i64::from(replaced));
                self.dirs_changed((from.0, to.0), change, now_ns, &mut ops)?;
                self.admit(ops, Room::Ordinary)
            }
        }
    }

    fn plan_exchange<'a>(
        &self,
        (from, source): (Place<'a>, Entry),
        (to, target): (Place<'a>, Entry),
        now_ns: i64,
    ) -> Result<Plan<'a>, PosixError> {
        if source.ino == target.ino {
            return Ok(Plan::default());
        }
        let mut ops = vec![
            Op::ReplaceDirent(dirent(to, source)),
            Op::ReplaceDirent(dirent(from, target)),
            changed(source.ino, now_ns),
            changed(target.ino, now_ns),
        ];
        let is_dir = |entry: Entry| i64::from(entry.kind == Kind::Directory);
        let to_gains = is_dir(source) - is_dir(target);
        self.dirs_changed((from.0, to.0), (-to_gains, to_gains), now_ns, &mut ops)?;
        self.admit(ops, Room::Ordinary)
    }

    fn not_into_itself(&self, moved: Entry, dir: Ino) -> Result<(), PosixError> {
        let inside = moved.kind == Kind::Directory && self.is_under(dir, moved.ino) != Some(false);
        if inside {
            return Err(PosixError::Invalid("a directory cannot move into itself"));
        }
        Ok(())
    }

    fn may_replace(&self, source: Entry, target: Entry) -> Result<(), PosixError> {
        match (source.kind, target.kind) {
            (Kind::Directory, Kind::Directory) if !self.dir(target.ino)?.is_empty() => {
                Err(PosixError::NotEmpty)
            }
            (Kind::Directory, Kind::Directory) => Ok(()),
            (Kind::Directory, _) => Err(PosixError::NotDirectory),
            (_, Kind::Directory) => Err(PosixError::IsDirectory),
            _ => Ok(()),
        }
    }

    fn dirs_changed(
        &self,
        (from, to): (Ino, Ino),
        (from_gains, to_gains): (i64, i64),
        now_ns: i64,
        ops: &mut Vec<Op<'_>>,
    ) -> Result<(), PosixError> {
        if from == to {
            ops.push(self.dir_changed(from, from_gains + to_gains, now_ns)?);
        } else {
            ops.push(self.dir_changed(from, from_gains, now_ns)?);
            ops.push(self.dir_changed(to, to_gains, now_ns)?);
        }
        Ok(())
    }
}

const fn dirent(place: Place<'_>, entry: Entry) -> Dirent<'_> {
    Dirent {
        dir: place.0,
        ino: entry.ino,
        kind: entry.kind,
        name: place.1,
    }
}
