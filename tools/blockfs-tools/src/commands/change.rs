//! mv, rm, mkdir, trim, grow.

use crate::args::{Mkdir, Mv, Rm};
use crate::error::ToolError;
use crate::output::{write, write_json};
use crate::volume::{Volume, base_name, join};
use blockfs::format::BLOCK_BYTES;
use blockfs::format::op::Kind;
use blockfs::fs::FsError;
use blockfs::tree::{PosixError, RenameMode};
use device::format_size;
use serde_json::json;

/// Renames.
pub(super) fn mv(volume: &Volume, args: &Mv) -> Result<(), ToolError> {
    let Some((target, sources)) = args.paths.split_last() else {
        return Ok(());
    };
    let fs = volume.fs();
    let target = target.path.as_bytes();
    let directory = fs
        .stat(target)
        .is_ok_and(|stat| stat.kind == Kind::Directory);
    let inside = directory && !args.no_target_directory && !args.exchange;
    if sources.len() > 1 && !inside {
        let place = volume.place(target);
        let problem = "is no directory, and several files are to be moved there";
        return Err(ToolError::Refused { place, problem });
    }
    let mode = match (args.exchange, args.no_clobber) {
        (true, _) => RenameMode::Exchange,
        (_, true) => RenameMode::NoReplace,
        _ => RenameMode::Replace,
    };
    for from in sources {
        let from = from.path.as_bytes();
        let to = match inside {
            true => join(target, base_name(from)),
            false => target.to_vec(),
        };
        let renamed = fs.rename(from, &to, mode);
        renamed.map_err(|error| match error {
            // It is the target that is in the way.
            FsError::Posix(PosixError::Exists | PosixError::NotEmpty) => volume.error(&to, error),
            error => volume.error(from, error),
        })?;
    }
    Ok(())
}

/// Removes.
pub(super) fn rm(volume: &Volume, args: &Rm) -> Result<(), ToolError> {
    let fs = volume.fs();
    for path in &args.paths {
        let path = path.path.as_bytes();
        let stat = match fs.lstat(path) {
            Err(FsError::Posix(PosixError::NotFound)) if args.force => continue,
            found => found.map_err(|error| volume.error(path, error))?,
        };
        if stat.kind != Kind::Directory {
            fs.unlink(path).map_err(|error| volume.error(path, error))?;
            continue;
        }
        if !args.recursive {
            return Err(ToolError::Refused {
                place: volume.place(path),
                problem: "is a directory: give -r to remove it with all that is in it",
            });
        }
        if base_name(path).is_empty() {
            return Err(ToolError::Refused {
                place: volume.place(path),
                problem: "is the root directory, which stays: name what is in it",
            });
        }
        remove_tree(volume, path)?;
    }
    Ok(())
}

/// Removes a directory with all that is in it.
fn remove_tree(volume: &Volume, path: &[u8]) -> Result<(), ToolError> {
    let fs = volume.fs();
    let mut left = vec![path.to_vec()];
    while let Some(dir) = left.last().cloned() {
        let mut below = Vec::new();
        for entry in volume.list(&dir)? {
            let path = join(&dir, &entry.name);
            if entry.kind == Kind::Directory {
                below.push(path);
            } else {
                fs.unlink(&path)
                    .map_err(|error| volume.error(&path, error))?;
            }
        }
        if below.is_empty() {
            fs.rmdir(&dir).map_err(|error| volume.error(&dir, error))?;
            left.pop();
        }
        left.append(&mut below);
    }
    Ok(())
}

/// Makes directories.
pub(super) fn mkdir(volume: &Volume, args: &Mkdir) -> Result<(), ToolError> {
    let fs = volume.fs();
    for path in &args.paths {
        let path = path.path.as_bytes();
        let failed = |path: &[u8], error| volume.error(path, error);
        if !args.parents {
            fs.mkdir(path, args.mode)
                .map_err(|error| failed(path, error))?;
            continue;
        }
        let ends = path.iter().enumerate().skip(1);
        let ends = ends.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let part = path.get(..end).unwrap_or(path);
            match fs.mkdir(part, args.mode) {
                Ok(()) => {}
                // One that is there will do, and a link to one.
                Err(_) if fs.stat(part).is_ok_and(|stat| stat.kind == Kind::Directory) => {}
                Err(error) => return Err(failed(part, error)),
            }
        }
    }
    Ok(())
}

/// Tells the drive which blocks are free.
pub(super) fn trim(volume: &Volume, as_json: bool) -> Result<(), ToolError> {
    let name = volume.drive().name();
    let bytes = volume.io()?.trim();
    let bytes = bytes.map_err(|error| ToolError::volume(name, error))?;
    if as_json {
        return write_json(&json!({ "device": name, "bytes": bytes }));
    }
    write(|out| {
        let told = format_size(bytes);
        writeln!(out, "{name}: {told} are free, and the drive knows").map_err(ToolError::Output)
    })
}

/// Takes the rest of a drive that has grown into the volume.
pub(super) fn grow(volume: &Volume, as_json: bool) -> Result<(), ToolError> {
    let name = volume.drive().name();
    let before = volume.fs().statfs().blocks;
    let blocks = volume.fs().grow(volume.drive().limits()?.blocks);
    let blocks = blocks.map_err(|error| ToolError::volume(name, error))?;
    let more = volume.fs().statfs().blocks.saturating_sub(before);
    if as_json {
        return write_json(&json!({ "device": name, "blocks": blocks, "more_blocks": more }));
    }
    let size = |blocks: u64| format_size(blocks.saturating_mul(BLOCK_BYTES));
    write(|out| {
        let (all, more) = (size(blocks), size(more));
        writeln!(out, "{name}: the volume has {all}, {more} more").map_err(ToolError::Output)
    })
}
