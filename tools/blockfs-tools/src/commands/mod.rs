//! The commands of `blockfs`, but for cp.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | which command is which; volumes for them |
//! | `list.rs` | ls, stat |
//! | `read.rs` | cat, df, fiemap, info |
//! | `change.rs` | mv, rm, mkdir, trim, grow |
//! | `dump.rs` | dump |

mod change;
mod dump;
mod list;
mod read;

use super::args::{Args, Command};
use super::copy;
use super::error::ToolError;
use super::volume::{Volume, VolumePath};
use blockfs::journal::LoadMode;
use device::DeviceString;
use driver::memory::DmaDomain;

/// Does what the command line says.
///
/// # Errors
/// [`ToolError`].
pub fn run(args: &Args) -> Result<(), ToolError> {
    let json = args.json;
    match &args.command {
        Command::Ls(ls) => on_paths(&ls.paths, LoadMode::ReadOnly, |volume| {
            list::ls(volume, ls, json)
        }),
        Command::Cat { paths } => {
            on_paths(paths, LoadMode::ReadOnly, |volume| read::cat(volume, paths))
        }
        Command::Cp(cp) => copy::run(cp, json),
        Command::Mv(mv) => on_paths(&mv.paths, LoadMode::ReadWrite, |volume| {
            change::mv(volume, mv)
        }),
        Command::Rm(rm) => on_paths(&rm.paths, LoadMode::ReadWrite, |volume| {
            change::rm(volume, rm)
        }),
        Command::Mkdir(mkdir) => on_paths(&mkdir.paths, LoadMode::ReadWrite, |volume| {
            change::mkdir(volume, mkdir)
        }),
        Command::Stat { dereference, paths } => on_paths(paths, LoadMode::ReadOnly, |volume| {
            list::stat(volume, paths, *dereference, json)
        }),
        Command::Df { device } => on(device, LoadMode::ReadOnly, |volume| read::df(volume, json)),
        Command::Fiemap { path } => {
            let paths = std::slice::from_ref(path);
            on_paths(paths, LoadMode::ReadOnly, |volume| {
                read::fiemap(volume, path, json)
            })
        }
        Command::Trim { device } => on(device, LoadMode::ReadWrite, |volume| {
            change::trim(volume, json)
        }),
        Command::Grow { device } => on(device, LoadMode::ReadWrite, |volume| {
            change::grow(volume, json)
        }),
        Command::Info { device } => on(device, LoadMode::ReadOnly, |volume| {
            read::info(volume, json)
        }),
        Command::Dump { device, salvage } => dump::dump(device, *salvage, json),
    }
}

/// Mounts the volume that all paths are on, and unmounts it again.
fn on_paths(
    paths: &[VolumePath],
    mode: LoadMode,
    what: impl FnOnce(&Volume) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let Some((first, rest)) = paths.split_first() else {
        return Ok(());
    };
    if rest.iter().any(|path| path.device != first.device) {
        let text = "the paths are on several devices: name those of one at a time";
        return Err(ToolError::Usage(text.to_owned()));
    }
    on(&first.device, mode, what)
}

/// Mounts a volume, and unmounts it again: what was changed is durable then.
fn on(
    device: &DeviceString,
    mode: LoadMode,
    what: impl FnOnce(&Volume) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let volume = Volume::open(device, &DmaDomain::new(), mode)?;
    let done = what(&volume);
    let closed = volume.close().map(drop);
    done.and(closed)
}
