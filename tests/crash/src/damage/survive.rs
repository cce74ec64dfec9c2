//! Everything that can be done with a volume that may be damaged: it gives right data or a typed error,
//! it ends, and it takes no more memory than what it has warrants.

use crate::check::{Violation, chain};
use crate::contents::{Contents, Overlay};
use crate::run::{Fs, Io, Rig};
use blockfs::format::op::Kind;
use blockfs::fs::{FsError, OpenOptions};
use blockfs::journal::LoadMode;
use blockfs::tree::{Finding, Severity};
use driver::memory::DmaDomain;
use std::sync::Arc;

/// What a damaged image came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survived {
    /// It could be mounted to be read.
    pub read: bool,
    /// It could be mounted to be written.
    pub written: bool,
    /// Something of it could be salvaged.
    pub salvaged: bool,
    /// Files, directories and links that were looked at.
    pub seen: u64,
}

/// Names that are looked at; an image of the size that is used here cannot have more.
const MOST: u64 = 50_000;

/// Bytes of a file that are read from a place.
const PART: usize = 20_000;

/// Mounts `image` in every way, looks at everything, and removes everything.
///
/// # Errors
/// What is neither right nor a typed error.
pub fn survive(image: Vec<u8>, lba: u32, domain: &DmaDomain) -> Result<Survived, Violation> {
    let image = Arc::new(image);
    let mut survived = Survived::default();
    for mode in [LoadMode::ReadOnly, LoadMode::Salvage, LoadMode::ReadWrite] {
        let overlay = Overlay::new(Arc::clone(&image), lba as usize);
        let rig = Rig::over(Contents::Overlay(overlay), false, 0, domain);
        let fs = match rig.mount(mode) {
            Ok(fs) => fs,
            Err(error) => {
                typed(&error)?;
                continue;
            }
        };
        if mode != LoadMode::Salvage {
            sound(&fs, mode)?;
        }
        let mut io = rig.io(&fs).map_err(|error| chain(&error))?;
        survived.seen += look(&fs, &mut io)?;
        match mode {
            LoadMode::ReadOnly => survived.read = true,
            LoadMode::Salvage => survived.salvaged = true,
            LoadMode::ReadWrite => {
                survived.written = true;
                empty(&rig, fs, io)?;
                continue;
            }
        }
        drop(io);
        let counts = rig.drive.counts();
        if counts.writes + counts.zeroes + counts.discards > 0 {
            return Err(format!("mounted {mode:?}, it was written to"));
        }
    }
    Ok(survived)
}

/// An error says what it is.
fn typed(error: &FsError) -> Result<(), Violation> {
    match error {
        FsError::TimedOut { .. } | FsError::Busy(_) => Err(format!(
            "not an error of a damaged volume: {}",
            chain(error)
        )),
        error if chain(error).is_empty() || error.errno() == 0 => {
            Err("an error without text".into())
        }
        _ => Ok(()),
    }
}

/// What was mounted contradicts itself nowhere. Blocks behind the end of a file contradict nothing;
/// whether they should be there is for fsck to say.
fn sound(fs: &Fs, mode: LoadMode) -> Result<(), Violation> {
    let mut found = fs.check().into_iter().filter(|finding| {
        let behind = matches!(finding, Finding::BehindTheEnd { .. });
        finding.severity() > Severity::Warning && !behind
    });
    match found.next() {
        None => Ok(()),
        Some(finding) => Err(format!("mounted {mode:?}, yet: {finding}")),
    }
}

/// Looks at everything; says at how much.
fn look(fs: &Fs, io: &mut Io) -> Result<u64, Violation> {
    let mut seen = 0;
    let mut left: Vec<Vec<u8>> = vec![b"/".to_vec()];
    while let Some(path) = left.pop() {
        seen += 1;
        if seen > MOST {
            return Err("there is no end of names".into());
        }
        let Some(stat) = or_typed(fs.lstat(&path))? else {
            continue;
        };
        match stat.kind {
            Kind::Symlink => drop(or_typed(fs.readlink(&path))?),
            Kind::File => file(fs, io, &path, stat.size)?,
            Kind::Directory => {
                let entries = or_typed(fs.readdir(&path, 0, usize::MAX))?;
                for entry in entries.unwrap_or_default() {
                    let mut below = path.clone();
                    if below.len() > 1 {
                        below.push(b'/');
                    }
                    below.extend_from_slice(&entry.name);
                    left.push(below);
                }
            }
        }
        or_typed(fs.stat(&path))?;
        for name in or_typed(fs.xattrs(&path))?.unwrap_or_default() {
            or_typed(fs.xattr(&path, &name))?;
        }
    }
    let stat = fs.statfs();
    if stat.available_blocks > stat.blocks || stat.free_blocks > stat.blocks {
        return Err(format!("more is free than there is: {stat:?}"));
    }
    Ok(seen)
}

/// Reads a file: its start, its end, and where its data begin and end.
fn file(fs: &Fs, io: &mut Io, path: &[u8], size: u64) -> Result<(), Violation> {
    let Some(file) = or_typed(fs.open(path, OpenOptions::new().read(true)))? else {
        return Ok(());
    };
    let mut places = vec![0, size.saturating_sub(5000)];
    let mut at = 0;
    // An image of this size has no more extents.
    for _ in 0..1000 {
        let Some(data) = or_typed(fs.seek_data(&file, at))? else {
            break;
        };
        let Some(hole) = or_typed(fs.seek_hole(&file, data))? else {
            break;
        };
        if data < at || hole <= data {
            return Err(format!(
                "data from {data} to {hole}, looked for from {at} on"
            ));
        }
        places.extend([data, hole.saturating_sub(100)]);
        at = hole;
    }
    let mut buf = vec![0; PART];
    for place in places {
        if let Some(read) = or_typed(io.read(&file, place, &mut buf))? {
            let expected = size.saturating_sub(place).min(PART as u64);
            if read as u64 != expected {
                return Err(format!("{read} bytes at {place} of {size}"));
            }
        }
    }
    or_typed(fs.fiemap(&file, 0, u64::MAX)).map(drop)
}

/// Uses the volume, removes everything, unmounts; then it can be mounted again.
fn empty(rig: &Rig, fs: Fs, mut io: Io) -> Result<(), Violation> {
    let create = OpenOptions::new().read(true).write(true).create(0o600);
    if let Some(file) = or_typed(fs.open("/.new", create))? {
        or_typed(io.write(&file, 3, &[7; 9000]))?;
        or_typed(io.fsync(&file))?;
    }
    clear(&fs, &mut io, b"", 0)?;
    or_typed(fs.sync())?;
    sound(&fs, LoadMode::ReadWrite)?;
    drop(io);
    if or_typed(fs.unmount())?.is_none() {
        return Ok(());
    }
    let again = rig.mount(LoadMode::ReadWrite);
    let again = again.map_err(|error| format!("unmounted, then: {}", chain(&error)))?;
    sound(&again, LoadMode::ReadWrite)
}

/// Removes what is in a directory. Paths that are too long are left.
fn clear(fs: &Fs, io: &mut Io, dir: &[u8], depth: u32) -> Result<(), Violation> {
    let path = if dir.is_empty() { b"/" } else { dir };
    let entries = or_typed(fs.readdir(path, 0, usize::MAX))?;
    for entry in entries.unwrap_or_default() {
        let mut path = dir.to_vec();
        path.push(b'/');
        path.extend_from_slice(&entry.name);
        if entry.kind == Kind::Directory {
            if depth < 100 {
                clear(fs, io, &path, depth + 1)?;
            }
            or_typed(fs.rmdir(&path))?;
            continue;
        }
        if entry.kind == Kind::File
            && let Some(file) = or_typed(fs.open(&path, OpenOptions::new().write(true)))?
        {
            or_typed(io.truncate(&file, 100))?;
        }
        or_typed(fs.unlink(&path))?;
    }
    Ok(())
}

/// The result, or nothing if a typed error says why there is none.
fn or_typed<T>(result: Result<T, FsError>) -> Result<Option<T>, Violation> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => typed(&error).map(|()| None),
    }
}
