//! One action, on the filesystem and on the reference.

use crate::model::{Model, data_of};
use crate::run::{Action, Outcome};
use blockfs::device::BlockDevice;
use blockfs::file::{Blocking, Tag, WriteFlags};
use blockfs::fs::{Blockfs, FsError, OpenOptions};
use blockfs::journal::MetaTag;
use blockfs::tree::{Fallocate, SetAttr, XattrMode};
use std::error::Error;

const READ: OpenOptions = OpenOptions::new().read(true);
const WRITE: OpenOptions = OpenOptions::new().read(true).write(true);

/// Does one action.
///
/// # Errors
/// The filesystem's.
pub fn act<Q, D>(fs: &Blockfs<D>, io: &mut Blocking<Q, D>, action: &Action) -> Result<(), FsError>
where
    Q: BlockDevice<Tag<()>>,
    D: BlockDevice<MetaTag>,
{
    match action {
        Action::Create(path) => {
            let options = WRITE.create(0o644).exclusive(true);
            fs.open(path, options).map(drop)
        }
        Action::Mkdir(path) => fs.mkdir(path, 0o755),
        Action::Symlink(target, path) => fs.symlink(target, path),
        Action::Write {
            path,
            at,
            len,
            fill,
            dsync,
        } => {
            let file = fs.open(path, WRITE)?;
            let flags = if *dsync {
                WriteFlags::DSYNC
            } else {
                WriteFlags::NONE
            };
            io.write_with(&file, *at, &data_of(*fill, *at, *len), flags)
        }
        Action::Append { path, len, fill } => {
            let file = fs.open(path, WRITE.append(true))?;
            let at = fs.fstat(&file)?.size;
            io.write(&file, 0, &data_of(*fill, at, *len))
        }
        Action::Truncate(path, size) => {
            let file = fs.open(path, WRITE)?;
            io.truncate(&file, *size)
        }
        Action::Punch(path, at, len) => {
            let file = fs.open(path, WRITE)?;
            io.fallocate(&file, Fallocate::Punch, *at, *len)
        }
        Action::Zero(path, at, len, keep) => {
            let file = fs.open(path, WRITE)?;
            let mode = if *keep {
                Fallocate::ZeroKeepSize
            } else {
                Fallocate::Zero
            };
            io.fallocate(&file, mode, *at, *len)
        }
        Action::Reserve(path, at, len, keep) => {
            let file = fs.open(path, WRITE)?;
            let mode = if *keep {
                Fallocate::ReserveKeepSize
            } else {
                Fallocate::Reserve
            };
            io.fallocate(&file, mode, *at, *len)
        }
        Action::WriteZeroes(path, at, len) => {
            let file = fs.open(path, WRITE)?;
            io.write_zeroes(&file, *at, *len)
        }
        Action::Rename(from, to, mode) => fs.rename(from, to, *mode),
        Action::Link(from, to) => fs.link(from, to),
        Action::Unlink(path) => fs.unlink(path),
        Action::Rmdir(path) => fs.rmdir(path),
        Action::SetXattr(path, name, value) => {
            fs.set_xattr(path, name.as_bytes(), value, XattrMode::Set)
        }
        Action::RemoveXattr(path, name) => fs.remove_xattr(path, name.as_bytes()),
        Action::Chmod(path, mode) => {
            let set = SetAttr {
                mode: Some(*mode),
                ..SetAttr::default()
            };
            fs.set_attr(path, true, set)
        }
        Action::Fsync(path) => {
            let file = fs.open(path, READ)?;
            io.fsync(&file)
        }
        Action::Sync => fs.sync(),
        Action::Checkpoint => fs.checkpoint(),
        Action::Trim => io.trim().map(drop),
    }
}

/// The drive failed a command of the action.
#[derive(Debug)]
pub(crate) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the drive failed a command")
    }
}

impl Error for Broken {}

/// Does one action on the filesystem and on the reference; whether it succeeded.
///
/// # Errors
/// A difference between them; a drive that fails.
pub fn both<Q, D>(
    fs: &Blockfs<D>,
    io: &mut Blocking<Q, D>,
    model: &mut Model,
    action: &Action,
) -> Outcome<bool>
where
    Q: BlockDevice<Tag<()>>,
    D: BlockDevice<MetaTag>,
{
    // The reference follows no links: what would is left out.
    let through_link = |path: &str| {
        let slashes = path.match_indices('/').filter(|(at, _)| *at > 0);
        let mut above = slashes.filter_map(|(at, _)| path.get(..at));
        above.any(|above| model.is_link(above))
    };
    if action.follows().is_some_and(|path| model.is_link(path))
        || action.paths().into_iter().flatten().any(through_link)
    {
        return Ok(false);
    }
    let expected = model.clone().apply(action);
    let found = act(fs, io, action);
    match (&expected, &found) {
        (Ok(()), Ok(())) => {
            let _ = model.apply(action);
            Ok(true)
        }
        // No space is no difference, as the reference has any amount.
        (Ok(()), Err(error)) if error.errno() == 28 => Ok(false),
        // Where several errors apply, POSIX leaves open which is reported.
        (Err(_), Err(_)) => Ok(false),
        (Ok(()), Err(error)) if error.errno() == 5 => Err(Box::new(Broken)),
        _ => Err(format!("O11: {action:?}: expected {expected:?}, found {found:?}").into()),
    }
}
