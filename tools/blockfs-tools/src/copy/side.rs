//! One end of a copy: the host's filesystem, or a volume. Paths are bytes on both.

use crate::error::ToolError;
use crate::volume::Volume;
use blockfs::format::BLOCK_BYTES;
use blockfs::format::op::Kind;
use blockfs::fs::{FsError, OpenOptions};
use blockfs::tree::{PosixError, SetAttr, Stat};
use rustix::fs::{AtFlags, CWD, Gid, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side<'v> {
    Host,
    Volume(&'v Volume),
}

/// An open file.
#[derive(Debug)]
pub(super) enum Handle {
    Host(fs::File),
    Volume(blockfs::fs::File),
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File,
    Directory,
    Symlink,
    /// Something that is not copied.
    Other,
}

/// What is copied of an inode beside its contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) what: What,
    pub(super) mode: u16,
    pub(super) owner: (u32, u32),
    pub(super) size: u64,
    /// Whether it has fewer blocks than its size needs.
    pub(super) has_holes: bool,
    pub(super) atime_ns: i64,
    pub(super) mtime_ns: i64,
    pub(super) links: u64,
    /// Which inode it is, on its side.
    pub(super) id: (u64, u64),
}

pub(super) fn host_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

impl Side<'_> {
    /// An error about a path on this side.
    pub(super) fn host_error(path: &[u8], source: impl Into<io::Error>) -> ToolError {
        ToolError::host(host_path(path), source)
    }

    /// How a path on this side is named.
    pub(super) fn place(self, path: &[u8]) -> String {
        match self {
            Self::Host => host_path(path).display().to_string(),
            Self::Volume(volume) => volume.place(path),
        }
    }

    /// What `path` is; `None` if there is nothing.
    pub(super) fn find(self, path: &[u8], follow: bool) -> Result<Option<Node>, ToolError> {
        match self {
            Self::Host => {
                let host = host_path(path);
                let found = match follow {
                    true => fs::metadata(host),
                    false => fs::symlink_metadata(host),
                };
                match found {
                    Ok(found) => Ok(Some(host_node(&found))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(Self::host_error(path, error)),
                }
            }
            Self::Volume(volume) => {
                let fs = volume.fs();
                let found = if follow {
                    fs.stat(path)
                } else {
                    fs.lstat(path)
                };
                match found {
                    Ok(stat) => Ok(Some(volume_node(&stat))),
                    Err(FsError::Posix(PosixError::NotFound)) => Ok(None),
                    Err(error) => Err(volume.error(path, error)),
                }
            }
        }
    }

    /// What `path` is.
    pub(super) fn get(self, path: &[u8], follow: bool) -> Result<Node, ToolError> {
        let found = self.find(path, follow)?;
        found.ok_or_else(|| match self {
            Self::Host => Self::host_error(path, io::ErrorKind::NotFound),
            Self::Volume(volume) => volume.error(path, PosixError::NotFound.into()),
        })
    }

    /// The names in a directory, in order.
    pub(super) fn list(self, path: &[u8]) -> Result<Vec<Vec<u8>>, ToolError> {
        match self {
            Self::Host => {
                let failed = |error| Self::host_error(path, error);
                let mut names = Vec::new();
                for entry in fs::read_dir(host_path(path)).map_err(failed)? {
                    names.push(entry.map_err(failed)?.file_name().into_vec());
                }
                names.sort_unstable();
                Ok(names)
            }
            Self::Volume(volume) => {
                let entries = volume.list(path)?;
                Ok(entries.into_iter().map(|entry| entry.name).collect())
            }
        }
    }

    /// Opens a file to read it.
    pub(super) fn open(self, path: &[u8]) -> Result<Handle, ToolError> {
        match self {
            Self::Host => {
                let file = fs::File::open(host_path(path));
                let file = file.map_err(|error| Self::host_error(path, error))?;
                Ok(Handle::Host(file))
            }
            Self::Volume(volume) => {
                let file = volume.fs().open(path, OpenOptions::new().read(true));
                let file = file.map_err(|error| volume.error(path, error))?;
                Ok(Handle::Volume(file))
            }
        }
    }

    /// Makes a file, or empties the one that is there. It gets its attributes at the end.
    pub(super) fn create(self, path: &[u8], node: &Node) -> Result<Handle, ToolError> {
        match self {
            Self::Host => {
                let mut options = fs::OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                let file = options.open(host_path(path));
                let file = file.map_err(|error| Self::host_error(path, error))?;
                Ok(Handle::Host(file))
            }
            Self::Volume(volume) => {
                let (uid, gid) = node.owner;
                let options = OpenOptions::new().write(true).truncate(true);
                let options = options.create(0o600).owner(uid, gid);
                let file = volume.fs().open(path, options);
                let file = file.map_err(|error| volume.error(path, error))?;
                Ok(Handle::Volume(file))
            }
        }
    }

    /// Makes a directory.
    pub(super) fn make_dir(self, path: &[u8]) -> Result<(), ToolError> {
        match self {
            Self::Host => {
                let made = rustix::fs::mkdir(host_path(path), 0o700.into());
                made.map_err(|error| Self::host_error(path, error))
            }
            Self::Volume(volume) => {
                let made = volume.fs().mkdir(path, 0o700);
                made.map_err(|error| volume.error(path, error))
            }
        }
    }

    pub(super) fn read_link(self, path: &[u8]) -> Result<Vec<u8>, ToolError> {
        match self {
            Self::Host => {
                let target = fs::read_link(host_path(path));
                let target = target.map_err(|error| Self::host_error(path, error))?;
                Ok(PathBuf::into_os_string(target).into_vec())
            }
            Self::Volume(volume) => {
                let target = volume.fs().readlink(path);
                target.map_err(|error| volume.error(path, error))
            }
        }
    }

    /// Makes a symbolic link.
    pub(super) fn make_link(self, target: &[u8], path: &[u8]) -> Result<(), ToolError> {
        match self {
            Self::Host => {
                let made = std::os::unix::fs::symlink(host_path(target), host_path(path));
                made.map_err(|error| Self::host_error(path, error))
            }
            Self::Volume(volume) => {
                let made = volume.fs().symlink(target, path);
                made.map_err(|error| volume.error(path, error))
            }
        }
    }

    /// Gives a file another name.
    pub(super) fn hard_link(self, from: &[u8], to: &[u8]) -> Result<(), ToolError> {
        match self {
            Self::Host => {
                let made = fs::hard_link(host_path(from), host_path(to));
                made.map_err(|error| Self::host_error(to, error))
            }
            Self::Volume(volume) => {
                let made = volume.fs().link(from, to);
                made.map_err(|error| volume.error(to, error))
            }
        }
    }

    /// Takes the name of what is no directory away.
    pub(super) fn remove(self, path: &[u8]) -> Result<(), ToolError> {
        match self {
            Self::Host => {
                let gone = fs::remove_file(host_path(path));
                gone.map_err(|error| Self::host_error(path, error))
            }
            Self::Volume(volume) => {
                let gone = volume.fs().unlink(path);
                gone.map_err(|error| volume.error(path, error))
            }
        }
    }

    /// Sets the attributes of what `path` is; of a link those of the link itself.
    pub(super) fn set_attrs(self, path: &[u8], node: &Node) -> Result<(), ToolError> {
        match self {
            Self::Host => {
                let failed = |error| Self::host_error(path, error);
                let host = host_path(path);
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                if let Some((uid, gid)) = host_owner(node) {
                    let changed = rustix::fs::chownat(CWD, host, Some(uid), Some(gid), flags);
                    changed.map_err(|error| failed(error.into()))?;
                }
                if node.what != What::Symlink {
                    let mode = fs::Permissions::from_mode(node.mode.into());
                    fs::set_permissions(host, mode).map_err(failed)?;
                }
                let set = rustix::fs::utimensat(CWD, host, &times(node), flags);
                set.map_err(|error| failed(error.into()))
            }
            Self::Volume(volume) => {
                let set = SetAttr {
                    mode: (node.what != What::Symlink).then_some(node.mode),
                    uid: Some(node.owner.0),
                    gid: Some(node.owner.1),
                    atime_ns: Some(node.atime_ns),
                    mtime_ns: Some(node.mtime_ns),
                };
                let set = volume.fs().set_attr(path, false, set);
                set.map_err(|error| volume.error(path, error))
            }
        }
    }

    /// As [`Side::set_attrs`], of an open file: what is above it may be closed to us by now.
    pub(super) fn set_file_attrs(
        self,
        file: &Handle,
        path: &[u8],
        node: &Node,
    ) -> Result<(), ToolError> {
        let Handle::Host(file) = file else {
            return self.set_attrs(path, node);
        };
        let failed = |error: Errno| Self::host_error(path, error);
        if let Some((uid, gid)) = host_owner(node) {
            rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed)?;
        }
        rustix::fs::fchmod(file, u32::from(node.mode).into()).map_err(failed)?;
        rustix::fs::futimens(file, &times(node)).map_err(failed)
    }

    /// The next range of `file` at or after `at` that has data; `None` if none has.
    pub(super) fn next_data(
        self,
        file: &Handle,
        path: &[u8],
        at: u64,
        size: u64,
    ) -> Result<Option<(u64, u64)>, ToolError> {
        let found = match (self, file) {
            (Self::Volume(volume), Handle::Volume(file)) => {
                let range = || {
                    let data = volume.fs().seek_data(file, at)?;
                    Ok((data, volume.fs().seek_hole(file, data)?))
                };
                match range() {
                    Ok(range) => range,
                    Err(FsError::Posix(PosixError::NoData)) => return Ok(None),
                    Err(error) => return Err(volume.error(path, error)),
                }
            }
            (_, Handle::Host(file)) => {
                let range = || {
                    let data = rustix::fs::seek(file, SeekFrom::Data(at))?;
                    Ok((data, rustix::fs::seek(file, SeekFrom::Hole(data))?))
                };
                match range() {
                    Ok(range) => range,
                    Err(Errno::NXIO) => return Ok(None),
                    // A filesystem that does not know of holes.
                    Err(Errno::INVAL) => (at, size),
                    Err(error) => return Err(Self::host_error(path, error)),
                }
            }
            (Self::Host, Handle::Volume(_)) => (at, size),
        };
        Ok(Some((found.0, found.1.min(size))).filter(|(from, to)| from < to))
    }
}

fn host_node(found: &fs::Metadata) -> Node {
    let kind = found.file_type();
    let what = match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
        (true, ..) => What::File,
        (_, true, _) => What::Directory,
        (.., true) => What::Symlink,
        _ => What::Other,
    };
    let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    Node {
        what,
        // Twelve bits.
        mode: u16::try_from(found.mode() & 0o7777).unwrap_or(0),
        owner: (found.uid(), found.gid()),
        size: found.len(),
        has_holes: found.blocks().saturating_mul(512) < found.len(),
        atime_ns: ns(found.atime(), found.atime_nsec()),
        mtime_ns: ns(found.mtime(), found.mtime_nsec()),
        links: found.nlink(),
        id: (found.dev(), found.ino()),
    }
}

fn volume_node(stat: &Stat) -> Node {
    Node {
        what: match stat.kind {
            Kind::File => What::File,
            Kind::Directory => What::Directory,
            Kind::Symlink => What::Symlink,
        },
        mode: stat.mode,
        owner: (stat.uid, stat.gid),
        size: stat.size,
        has_holes: stat.blocks.saturating_mul(BLOCK_BYTES) < stat.size,
        atime_ns: stat.atime_ns,
        mtime_ns: stat.mtime_ns,
        links: stat.nlink.into(),
        id: (0, stat.ino),
    }
}

/// The owner that a host file gets: only root may give files away.
fn host_owner(node: &Node) -> Option<(Uid, Gid)> {
    let (uid, gid) = node.owner;
    // All ones would mean that it stays as it is.
    let valid = uid != u32::MAX && gid != u32::MAX && rustix::process::geteuid().is_root();
    valid.then(|| (Uid::from_raw(uid), Gid::from_raw(gid)))
}

fn times(node: &Node) -> Timestamps {
    let time = |ns: i64| Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    };
    Timestamps {
        last_access: time(node.atime_ns),
        last_modification: time(node.mtime_ns),
    }
}

/// Reads as much as there is; says how much.
pub(super) fn read_all(file: &fs::File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = into.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
