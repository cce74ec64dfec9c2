//! From paths to inodes.

use super::inode::Body;
use super::{PosixError, Tree};
use crate::format::op::{Ino, MAX_NAME_BYTES, ROOT_INO};

/// Symbolic links that are followed on the way of one path.
pub const MAX_LINKS_FOLLOWED: u32 = 40;
/// The longest path in bytes.
pub const MAX_PATH_BYTES: usize = 4095;

/// Where the last name of a path is, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<'p> {
    /// The directory.
    pub dir: Ino,
    /// The name.
    pub name: &'p [u8],
    /// Whether a slash follows: only a directory will do.
    pub directory: bool,
}

impl Tree {
    /// The inode that `path` leads to, from `start` or, with a leading slash, from the root. A
    /// symbolic link at the end is followed if `follow`.
    ///
    /// # Errors
    /// [`PosixError::NotFound`] (an empty path, too), [`PosixError::NotDirectory`],
    /// [`PosixError::Loop`], [`PosixError::NameTooLong`].
    pub fn resolve(&self, start: Ino, path: &[u8], follow: bool) -> Result<Ino, PosixError> {
        if path.is_empty() {
            return Err(PosixError::NotFound);
        }
        let mut at = begin(start, path)?;
        let mut links = 0;
        // What is left of the path and of each target that it is in, innermost last.
        let mut left = vec![path];
        while let Some(rest) = left.pop() {
            let Some((name, rest)) = split(rest) else {
                continue;
            };
            // A slash at the end asks for a directory, by way of the link.
            let last = rest.is_empty() && left.iter().all(|rest| rest.is_empty());
            if !rest.is_empty() {
                left.push(rest);
            }
            let found = self.component(at, name)?;
            match &self.get(found)?.body {
                Body::Symlink(target) if follow || !last => {
                    links += 1;
                    if links > MAX_LINKS_FOLLOWED {
                        return Err(PosixError::Loop);
                    }
                    at = begin(at, target)?;
                    left.push(target);
                }
                _ if last => return Ok(found),
                Body::Directory(_) => at = found,
                _ => return Err(PosixError::NotDirectory),
            }
        }
        Ok(at)
    }

    /// The directory in which the last name of `path` is to be looked up, made or removed; links on
    /// the way are followed, the last name is not.
    ///
    /// # Errors
    /// As [`Tree::resolve`]; [`PosixError::Exists`] if the path has no last name, as "/" and
    /// "a/..".
    pub fn resolve_parent<'p>(&self, start: Ino, path: &'p [u8]) -> Result<Parent<'p>, PosixError> {
        let trimmed = without_end_slashes(path);
        let directory = trimmed.len() < path.len();
        if path.is_empty() {
            return Err(PosixError::NotFound);
        }
        let cut = trimmed.iter().rposition(|&byte| byte == b'/');
        let name = trimmed.get(cut.map_or(0, |cut| cut + 1)..).unwrap_or(&[]);
        if name.is_empty() || name == b"." || name == b".." {
            return Err(PosixError::Exists);
        }
        check_length(name)?;
        let dir = match cut {
            None => begin(start, path)?,
            // With its slash, so that what is not a directory is refused.
            Some(cut) => self.resolve(start, trimmed.get(..=cut).unwrap_or(&[]), true)?,
        };
        self.dir(dir)?;
        Ok(Parent {
            dir,
            name,
            directory,
        })
    }

    /// What `name` in `dir` leads to.
    ///
    /// # Errors
    /// [`PosixError::NotFound`], [`PosixError::NotDirectory`], [`PosixError::NameTooLong`].
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, PosixError> {
        check_length(name)?;
        let entry = self.dir(dir)?.get(name);
        entry.map(|entry| entry.ino).ok_or(PosixError::NotFound)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// [`PosixError::NotFound`]; [`PosixError::Invalid`] for what is no link.
    pub fn readlink(&self, ino: Ino) -> Result<&[u8], PosixError> {
        match &self.get(ino)?.body {
            Body::Symlink(target) => Ok(target),
            _ => Err(PosixError::Invalid("it is not a symbolic link")),
        }
    }

    fn component(&self, dir: Ino, name: &[u8]) -> Result<Ino, PosixError> {
        match name {
            b"." => self.dir(dir).map(|_| dir),
            b".." => {
                self.dir(dir)?;
                self.parent(dir).ok_or(PosixError::NotFound)
            }
            name => self.lookup(dir, name),
        }
    }
}

fn begin(start: Ino, path: &[u8]) -> Result<Ino, PosixError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(PosixError::NameTooLong);
    }
    let absolute = path.first() == Some(&b'/');
    Ok(if absolute { ROOT_INO } else { start })
}

pub(super) const fn check_length(name: &[u8]) -> Result<(), PosixError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(PosixError::NameTooLong);
    }
    Ok(())
}

/// The first name and what follows it, from its slash on; a slash alone at the end stands for ".".
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|&byte| byte != b'/');
    let Some(start) = start else {
        return (!path.is_empty()).then_some((b".", b""));
    };
    let path = path.get(start..)?;
    let end = path.iter().position(|&byte| byte == b'/');
    Some(path.split_at(end.unwrap_or(path.len())))
}

fn without_end_slashes(path: &[u8]) -> &[u8] {
    let keep = path.iter().rposition(|&byte| byte != b'/');
    path.get(..keep.map_or(0, |keep| keep + 1)).unwrap_or(&[])
}
