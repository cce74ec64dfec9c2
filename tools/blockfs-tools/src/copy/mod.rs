//! `blockfs cp`: into a volume, out of one, within one, from one to another.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | from the command line to both sides |
//! | `side.rs` | a side: the host or a volume |
//! | `walk.rs` | what is copied, in which order |
//! | `transfer.rs` | contents, several pieces under way at a time |
//! | `progress.rs` | the line that shows how far it is |

mod progress;
mod side;
mod transfer;
mod walk;

use crate::args::Cp;
use crate::error::ToolError;
use crate::output::write_json;
use crate::signals;
use crate::volume::{Volume, base_name, join};
use blockfs::journal::LoadMode;
use device::{DeviceString, Place};
use driver::memory::DmaDomain;
use serde_json::json;
use side::{Side, What};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use transfer::Transfer;
use walk::Walk;

/// Copies.
///
/// # Errors
/// [`ToolError`].
pub(crate) fn run(args: &Cp, json: bool) -> Result<(), ToolError> {
    let (from, to) = sides(&args.paths)?;
    let interrupt = signals::catch().map_err(ToolError::Signals)?;
    let domain = DmaDomain::new();
    let open = |device: &DeviceString, mode| Volume::open(device, &domain, mode);
    // One volume is mounted once.
    let target = to.map(|device| open(device, LoadMode::ReadWrite));
    let target = target.transpose()?;
    let source = match from {
        Some(device) if Some(device) != to => Some(open(device, LoadMode::ReadOnly)?),
        _ => None,
    };
    let to_side = target.as_ref().map_or(Side::Host, Side::Volume);
    let from_side = match (&source, from) {
        (Some(volume), _) => Side::Volume(volume),
        (None, Some(_)) => to_side,
        (None, None) => Side::Host,
    };
    let copied = copy(args, json, (from_side, to_side), &domain, interrupt);
    // What was copied is made durable, whatever else there was.
    let mut closed = Ok(());
    for volume in [source, target].into_iter().flatten() {
        closed = closed.and(volume.close().map(drop));
    }
    copied.and(closed)
}

/// The devices of both sides; `None` is the host.
fn sides(paths: &[Place]) -> Result<(Option<&DeviceString>, Option<&DeviceString>), ToolError> {
    let usage = |text: String| Err(ToolError::Usage(text));
    let mut devices = Vec::new();
    for place in paths {
        devices.push(match place {
            Place::Device(device) => {
                return usage(format!(
                    "{device} is a device: add a path, as in {device}:/"
                ));
            }
            Place::Volume { device, .. } => Some(device),
            Place::Host(_) => None,
        });
    }
    let to = devices.pop().flatten();
    let from = devices.first().copied().flatten();
    if devices.iter().any(|device| *device != from) {
        return usage("the sources are in several places: copy from one at a time".to_owned());
    }
    if from.is_none() && to.is_none() {
        let text = "no path is on a volume: write DEVICE:/PATH, as in emu:file=disk.img:/doc";
        return usage(text.to_owned());
    }
    Ok((from, to))
}

fn copy(
    args: &Cp,
    json: bool,
    sides: (Side<'_>, Side<'_>),
    domain: &DmaDomain,
    interrupt: Arc<AtomicBool>,
) -> Result<(), ToolError> {
    let transfer = Transfer::new(sides, domain, Arc::clone(&interrupt))?;
    let mut walk = Walk::new(sides, transfer, (args.recursive, json), interrupt);
    let copied = copy_each(args, sides.1, &mut walk);
    let ended = walk.end();
    copied.and(ended)?;
    let (files, bytes) = (walk.transfer.files, walk.transfer.bytes);
    let done = files + walk.directories + walk.links;
    if json {
        write_json(&json!({
            "files": files,
            "directories": walk.directories,
            "links": walk.links,
            "bytes": bytes,
            "failed": walk.failed,
            "seconds": walk.seconds(),
        }))?;
    }
    match walk.failed {
        0 => Ok(()),
        failed => {
            let total = failed + done;
            Err(ToolError::Partly { failed, total })
        }
    }
}

fn copy_each(args: &Cp, to: Side<'_>, walk: &mut Walk<'_>) -> Result<(), ToolError> {
    let mut paths: Vec<Vec<u8>> = args.paths.iter().map(path_of).collect();
    let Some(target) = paths.pop() else {
        return Ok(());
    };
    let found = to.find(&target, true)?;
    let inside =
        !args.no_target_directory && found.is_some_and(|found| found.what == What::Directory);
    if paths.len() > 1 && !inside {
        let place = to.place(&target);
        let problem = "is no directory, and several files are to be copied there";
        return Err(ToolError::Refused { place, problem });
    }
    for from in paths {
        let name = base_name(&from);
        let to = match (inside, name) {
            // All that is in it.
            (true, b"" | b".") | (false, _) => target.clone(),
            (true, b"..") => {
                let text = "the name of a copy cannot be `..`: name the directory";
                return Err(ToolError::Usage(text.to_owned()));
            }
            (true, name) => join(&target, name),
        };
        walk.copy(from, to)?;
    }
    Ok(())
}

fn path_of(place: &Place) -> Vec<u8> {
    match place {
        Place::Volume { path, .. } => path.clone().into_bytes(),
        Place::Host(path) => path.as_os_str().as_bytes().to_vec(),
        Place::Device(_) => Vec::new(),
    }
}
