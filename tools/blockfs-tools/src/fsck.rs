//! `fsck.blockfs`: says what is wrong with a volume, puts in order what a mount does, and gets files out
//! of a damaged one.

use super::error::ToolError;
use super::output::{printable, write, write_json};
use super::salvage::{Exported, export};
use super::volume::{Drive, For};
use blockfs::check::{Counts, Problem, Report, check, repair};
use blockfs::fs::{FsError, MountOptions};
use blockfs::journal::{JournalError, LoadMode};
use blockfs::tree::Severity;
use clap::Parser;
use device::{DeviceString, format_size};
use driver::memory::DmaDomain;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checks a blockfs volume, and repairs it if asked.
///
/// Repairing is what a mount does: the journal is replayed, files without a name are freed, superblocks
/// are written anew. Nothing is guessed: what is damaged beyond that is left as it is, and --salvage
/// gets out what is still there.
#[derive(Clone, Debug, Parser)]
#[command(name = "fsck.blockfs", version, max_term_width = 100, after_help = NOTES)]
pub struct Args {
    /// The volume's device: a PCI address, emu:file=F or vfio-user:path=SOCKET
    #[arg(value_name = "DEVICE")]
    pub device: DeviceString,

    /// Write nothing; the default if standard input is no terminal
    #[arg(short = 'n', long, conflicts_with = "yes")]
    pub no: bool,

    /// Repair without asking
    #[arg(short = 'y', visible_short_aliases = ['p', 'a'], long)]
    pub yes: bool,

    /// Check even what was unmounted, which is done anyway: for fsck(8)
    #[arg(short, long)]
    pub force: bool,

    /// Write nothing, and export all that is still there to a folder
    #[arg(long, value_name = "DIR", conflicts_with = "yes")]
    pub salvage: Option<PathBuf>,

    /// Write the result, or an error, as JSON
    #[arg(long)]
    pub json: bool,
}

const NOTES: &str = "\
Exit status: 0 nothing wrong, 1 repaired, 4 something is left wrong, 8 the check could not be made,
16 wrong usage, 32 interrupted.";

/// Nothing is wrong.
const CLEAN: u8 = 0;
/// What was wrong is in order now.
const CORRECTED: u8 = 1;
/// Something is wrong.
const UNCORRECTED: u8 = 4;
/// The check could not be made.
const OPERATIONAL: u8 = 8;
/// The command line makes no sense.
pub const USAGE: u8 = 16;
/// SIGINT or SIGTERM.
const CANCELLED: u8 = 32;

/// The exit status for an error.
#[must_use]
pub const fn exit_status(error: &ToolError) -> u8 {
    match error {
        ToolError::Usage(_) | ToolError::Device(_) => USAGE,
        ToolError::Interrupted => CANCELLED,
        _ => OPERATIONAL,
    }
}

/// Checks, and says what was found; the exit status.
///
/// # Errors
/// [`ToolError`]: the check could not be made.
pub fn run(args: &Args, interrupt: &AtomicBool) -> Result<u8, ToolError> {
    let domain = DmaDomain::new();
    let options = MountOptions::default();
    let drive = Drive::open(&args.device, &domain, For::Volume)?;
    let failed = |error: FsError| match is_no_volume(&error) {
        true => ToolError::mount(drive.name(), error),
        false => ToolError::volume(drive.name(), error),
    };
    let checked = check(drive.queue()?, &domain, &options);
    let (report, device) = checked.map_err(|error| failed(error.error))?;
    if let Some(folder) = &args.salvage {
        drop(device);
        let exported = match report.counts {
            Some(_) => {
                let volume = drive.mount(LoadMode::Salvage)?;
                let exported = export(&volume, folder, interrupt)?;
                volume.close()?;
                exported
            }
            None => Exported::default(),
        };
        return tell_export(args, &report, &exported);
    }
    stop_if(interrupt)?;
    if report.is_clean() || !wanted(args, &report)? {
        let status = if report.is_clean() {
            CLEAN
        } else {
            UNCORRECTED
        };
        return tell(args, &report, &report, status);
    }
    let repaired = repair(device, &domain, &options);
    let device = repaired.map_err(|(error, _)| failed(error))?;
    // That it is in order is not taken for granted.
    let (after, _) = check(device, &domain, &options).map_err(|error| failed(error.error))?;
    let status = if after.is_clean() {
        CORRECTED
    } else {
        UNCORRECTED
    };
    tell(args, &report, &after, status)
}

fn is_no_volume(error: &FsError) -> bool {
    let FsError::Journal(error) = error else {
        return false;
    };
    matches!(&**error, JournalError::Format(error) if error.is_no_volume())
}

fn stop_if(interrupt: &AtomicBool) -> Result<(), ToolError> {
    match interrupt.load(Ordering::Relaxed) {
        true => Err(ToolError::Interrupted),
        false => Ok(()),
    }
}

/// Whether to repair: as told, or as somebody answers who is asked.
fn wanted(args: &Args, report: &Report) -> Result<bool, ToolError> {
    if args.no || !report.is_repairable() {
        return Ok(false);
    }
    if args.yes || args.json || !stdin().is_terminal() {
        return Ok(args.yes);
    }
    let ask = || {
        let mut err = stderr();
        for problem in &report.problems {
            writeln!(err, "{}", line(problem))?;
        }
        write!(err, "Repair? [y/N] ")?;
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    };
    ask().map_err(ToolError::Output)
}

const fn severity(problem: Severity) -> &'static str {
    match problem {
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
    }
}

fn line(problem: &Problem) -> String {
    let text = printable(&problem.to_string());
    format!(
        "{}: {text} [{}]",
        severity(problem.severity()),
        problem.code()
    )
}

/// Problems that are listed; of more there is the number.
const LISTED: usize = 1000;

fn described(report: &Report, corrected: bool) -> Vec<Value> {
    let problems = report.problems.iter().take(LISTED);
    problems
        .map(|problem| {
            json!({
                "code": problem.code(),
                "severity": severity(problem.severity()),
                "message": problem.to_string(),
                "repairable": problem.is_repairable(),
                "corrected": corrected,
            })
        })
        .collect()
}

fn counted(counts: &Counts) -> Value {
    json!({
        "files": counts.files,
        "directories": counts.directories,
        "symlinks": counts.symlinks,
        "orphans": counts.orphans,
        "names": counts.names,
        "extents": counts.extents,
        "used_blocks": counts.used_blocks,
        "data_blocks": counts.data_blocks,
    })
}

fn summary(counts: Option<&Counts>) -> String {
    match counts {
        Some(counts) => format!(
            "{} files, {} directories, {} symbolic links, {}/{} blocks",
            counts.files,
            counts.directories,
            counts.symlinks,
            counts.used_blocks,
            counts.data_blocks
        ),
        None => "nothing of it can be read".to_owned(),
    }
}

/// Says what was found `before`, and what is wrong `after` a repair; without one both are the same.
fn tell(args: &Args, before: &Report, after: &Report, status: u8) -> Result<u8, ToolError> {
    let corrected = status == CORRECTED;
    let state = match status {
        CLEAN => "clean",
        CORRECTED => "corrected",
        _ => "uncorrected",
    };
    if args.json {
        let left: &[Problem] = if corrected { &[] } else { &after.problems };
        write_json(&json!({
            "device": args.device.to_string(),
            "state": state,
            "exit": status,
            "found": before.problems.len(),
            "left": left.len(),
            "problems": described(before, corrected),
            "counts": after.counts.as_ref().map(counted),
        }))?;
        return Ok(status);
    }
    write(|out| {
        let mut print = || {
            list(out, before)?;
            let what = summary(after.counts.as_ref());
            let hint = match status {
                UNCORRECTED if after.is_repairable() => {
                    format!("; `fsck.blockfs -y {}` repairs it", args.device)
                }
                UNCORRECTED => {
                    format!(
                        "; `fsck.blockfs --salvage DIR {}` gets out what is left",
                        args.device
                    )
                }
                _ => String::new(),
            };
            writeln!(out, "{}: {state}, {what}{hint}", args.device)
        };
        print().map_err(ToolError::Output)
    })?;
    Ok(status)
}

fn list(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for problem in report.problems.iter().take(LISTED) {
        writeln!(out, "{}", line(problem))?;
    }
    match report.problems.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more"),
    }
}

/// Says what was exported, and what was not.
fn tell_export(args: &Args, report: &Report, exported: &Exported) -> Result<u8, ToolError> {
    let status = match report.is_clean() && exported.lost.is_empty() {
        true => CLEAN,
        false => UNCORRECTED,
    };
    let Exported {
        files,
        directories,
        symlinks,
        bytes,
        lost,
    } = exported;
    if args.json {
        let lost: Vec<Value> = lost
            .iter()
            .map(|(path, why)| json!({ "path": path, "why": why }))
            .collect();
        write_json(&json!({
            "device": args.device.to_string(),
            "exit": status,
            "problems": described(report, false),
            "exported": {
                "files": files,
                "directories": directories,
                "symlinks": symlinks,
                "bytes": bytes,
            },
            "lost": lost,
        }))?;
        return Ok(status);
    }
    write(|out| {
        let mut print = || {
            list(out, report)?;
            for (path, why) in lost {
                writeln!(out, "lost: {}: {}", printable(path), printable(why))?;
            }
            writeln!(
                out,
                "{}: exported {files} files, {directories} directories and {symlinks} symbolic \
                 links, {}; {} were not, or not all of them",
                args.device,
                format_size(*bytes),
                lost.len()
            )
        };
        print().map_err(ToolError::Output)
    })?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// clap finds no contradiction in the definition.
    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }
}
