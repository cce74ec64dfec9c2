//! `fsck.blockfs --salvage`: everything that a damaged volume still has, to a folder of the host.

use super::error::ToolError;
use super::volume::{Io, Volume};
use blockfs::check::Salvaged;
use blockfs::format::op::Kind;
use blockfs::fs::FsError;
use blockfs::tree::PosixError;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// What was exported.
#[derive(Debug, Default)]
pub(crate) struct Exported {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) symlinks: u64,
    pub(crate) bytes: u64,
    /// What could not be: what it is, and why.
    pub(crate) lost: Vec<(String, String)>,
}

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// Bytes of a block: what is read alone where a piece fails.
const BLOCK: usize = 4096;
/// A file that has lost so many bytes is given up.
const MAX_UNREADABLE: usize = 64 << 20;

/// Exports all that `volume` has to `folder`, which is made, or is there and empty.
pub(crate) fn export(
    volume: &Volume,
    folder: &Path,
    interrupt: &AtomicBool,
) -> Result<Exported, ToolError> {
    make_folder(folder)?;
    let salvaged = volume.fs().salvaged();
    let mut export = Export {
        volume,
        folder,
        io: volume.io()?,
        piece: vec![0; PIECE],
        done: Exported::default(),
    };
    // Links last: nothing is written through one. Attributes of directories after all that.
    let kinds = [Kind::Directory, Kind::File, Kind::Symlink];
    for kind in kinds {
        let of_kind = |found: &&Salvaged| found.stat.kind == kind;
        for found in salvaged.iter().filter(of_kind) {
            if interrupt.load(Ordering::Relaxed) {
                return Err(ToolError::Interrupted);
            }
            if let Err(error) = export.one(found) {
                export.lose(&found.path, device::chain(&error).join(": "));
            }
        }
    }
    let directories = salvaged.iter().rev();
    for found in directories.filter(|found| found.stat.kind == Kind::Directory) {
        let path = export.path(&found.path);
        let opened = File::open(&path).and_then(|dir| set_attrs(&dir, found));
        if let Err(error) = opened {
            export.lose(&found.path, format!("its attributes: {error}"));
        }
    }
    Ok(export.done)
}

fn make_folder(folder: &Path) -> Result<(), ToolError> {
    let failed = |error| ToolError::host(folder, error);
    fs::create_dir_all(folder).map_err(failed)?;
    match fs::read_dir(folder).map_err(failed)?.next() {
        None => Ok(()),
        Some(_) => Err(failed(io::ErrorKind::DirectoryNotEmpty.into())),
    }
}

struct Export<'v> {
    volume: &'v Volume,
    folder: &'v Path,
    io: Io,
    piece: Vec<u8>,
    done: Exported,
}

impl Export<'_> {
    fn path(&self, path: &[u8]) -> PathBuf {
        self.folder.join(OsStr::from_bytes(path))
    }

    fn lose(&mut self, path: &[u8], why: String) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.done.lost.push((path, why));
    }

    fn one(&mut self, found: &Salvaged) -> Result<(), ToolError> {
        let path = self.path(&found.path);
        let failed = |error| ToolError::host(&path, error);
        if let Some(above) = path.parent() {
            // `lost+found`, and what is in a directory that could not be made.
            fs::create_dir_all(above).map_err(failed)?;
        }
        match found.stat.kind {
            Kind::Directory => {
                fs::create_dir_all(&path).map_err(failed)?;
                self.done.directories += 1;
            }
            Kind::Symlink => {
                let target = found.target.as_deref().unwrap_or_default();
                symlink(OsStr::from_bytes(target), &path).map_err(failed)?;
                self.done.symlinks += 1;
            }
            Kind::File => {
                let mut new = OpenOptions::new();
                let file = new.write(true).create_new(true).mode(0o600).open(&path);
                let file = file.map_err(failed)?;
                self.contents(found, &file, &path)?;
                set_attrs(&file, found).map_err(failed)?;
                self.done.files += 1;
            }
        }
        Ok(())
    }

    /// All of a file that can be read; what cannot is a hole, and told.
    fn contents(&mut self, found: &Salvaged, to: &File, path: &Path) -> Result<(), ToolError> {
        let place = String::from_utf8_lossy(&found.path).into_owned();
        let of_volume = |error| ToolError::volume(&place, error);
        let of_host = |error| ToolError::host(path, error);
        let fs = self.volume.fs();
        let file = fs.open_salvaged(found).map_err(of_volume)?;
        to.set_len(found.stat.size).map_err(of_host)?;
        let (mut at, mut unreadable) = (0, 0);
        let mut first = None;
        while unreadable < MAX_UNREADABLE {
            at = match fs.seek_data(&file, at) {
                Ok(at) => at,
                Err(FsError::Posix(PosixError::NoData)) => break,
                Err(error) => return Err(of_volume(error)),
            };
            let end = fs.seek_hole(&file, at).map_err(of_volume)?;
            // At most PIECE.
            let len = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            let piece = self.piece.get_mut(..len).unwrap_or_default();
            let mut put = |at: u64, bytes: &[u8]| {
                self.done.bytes += bytes.len() as u64;
                to.write_all_at(bytes, at).map_err(of_host)
            };
            if let Ok(read) = self.io.read(&file, at, piece) {
                put(at, piece.get(..read).unwrap_or_default())?;
                at += len as u64;
                continue;
            }
            // What fails as a whole is read block by block.
            for block in piece.chunks_mut(BLOCK) {
                match self.io.read(&file, at, block) {
                    Ok(read) => put(at, block.get(..read).unwrap_or_default())?,
                    Err(error) => {
                        unreadable += block.len();
                        first.get_or_insert((at, error));
                    }
                }
                at += block.len() as u64;
            }
        }
        if let Some((at, error)) = first {
            let given_up = match unreadable < MAX_UNREADABLE {
                true => "",
                false => ", and the rest was not tried",
            };
            let why = format!(
                "{unreadable} bytes cannot be read{given_up}, the first at byte {at}: {error}"
            );
            self.lose(&found.path, why);
        }
        Ok(())
    }
}

/// Permissions and times.
fn set_attrs(file: &File, found: &Salvaged) -> io::Result<()> {
    let stat = &found.stat;
    let time = |ns: i64| {
        let since = Duration::from_nanos(ns.unsigned_abs());
        match ns < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(since),
            false => SystemTime::UNIX_EPOCH.checked_add(since),
        }
    };
    file.set_permissions(Permissions::from_mode(stat.mode.into()))?;
    let mut times = fs::FileTimes::new();
    if let Some(accessed) = time(stat.atime_ns) {
        times = times.set_accessed(accessed);
    }
    if let Some(modified) = time(stat.mtime_ns) {
        times = times.set_modified(modified);
    }
    file.set_times(times)
}
