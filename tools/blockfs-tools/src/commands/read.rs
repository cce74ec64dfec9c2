//! cat, df, fiemap, info.

use crate::error::ToolError;
use crate::output::{printable, text, write, write_json};
use crate::volume::{Volume, VolumePath};
use blockfs::format::BLOCK_BYTES;
use blockfs::format::op::Kind;
use blockfs::fs::OpenOptions;
use blockfs::tree::PosixError;
use device::format_size;
use serde_json::json;
use std::io::Write;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Writes files to standard output.
pub(super) fn cat(volume: &Volume, paths: &[VolumePath]) -> Result<(), ToolError> {
    let mut io = volume.io()?;
    let mut piece = vec![0; PIECE];
    write(|out| {
        for path in paths {
            let failed = |error| volume.error(path.path.as_bytes(), error);
            let read = OpenOptions::new().read(true);
            let file = volume.fs().open(&path.path, read).map_err(failed)?;
            if volume.fs().fstat(&file).map_err(failed)?.kind == Kind::Directory {
                return Err(failed(PosixError::IsDirectory.into()));
            }
            let mut at = 0;
            loop {
                let read = io.read(&file, at, &mut piece).map_err(failed)?;
                let bytes = piece.get(..read).unwrap_or_default();
                out.write_all(bytes).map_err(ToolError::Output)?;
                at += read as u64;
                if read < PIECE {
                    break;
                }
            }
        }
        Ok(())
    })
}

/// Shows how much is used.
pub(super) fn df(volume: &Volume, as_json: bool) -> Result<(), ToolError> {
    let found = volume.fs().statfs();
    let used = found.blocks.saturating_sub(found.free_blocks);
    if as_json {
        return write_json(&json!({
            "device": volume.drive().name(),
            "block_bytes": BLOCK_BYTES,
            "blocks": found.blocks,
            "used_blocks": used,
            "free_blocks": found.free_blocks,
            "available_blocks": found.available_blocks,
            "inodes": found.inodes,
            "extents": found.extents,
            "metadata_bytes": found.metadata_bytes,
            "metadata_limit": found.metadata_limit,
        }));
    }
    let percent = |used: u64, all: u64| used.saturating_mul(100).div_ceil(all.max(1));
    let size = |blocks: u64| format_size(blocks.saturating_mul(BLOCK_BYTES));
    let row = |out: &mut dyn Write, what: &str, [all, used, free]: [String; 3], percent: u64| {
        writeln!(
            out,
            "{what:10} {all:>12} {used:>12} {free:>12} {percent:>4}%"
        )
    };
    write(|out| {
        let head = "                   Size         Used        Avail  Use%";
        let all = [size(found.blocks), size(used), size(found.available_blocks)];
        let left = found.metadata_limit.saturating_sub(found.metadata_bytes);
        let metadata = [
            format_size(found.metadata_limit),
            format_size(found.metadata_bytes),
            format_size(left),
        ];
        let share = percent(found.metadata_bytes, found.metadata_limit);
        writeln!(out, "{}", volume.drive().name())
            .and_then(|()| writeln!(out, "{head}"))
            .and_then(|()| row(out, "data", all, percent(used, found.blocks)))
            .and_then(|()| row(out, "metadata", metadata, share))
            .and_then(|()| writeln!(out, "{} inodes, {} extents", found.inodes, found.extents))
            .map_err(ToolError::Output)
    })
}

/// Shows where a file's blocks are.
pub(super) fn fiemap(volume: &Volume, path: &VolumePath, as_json: bool) -> Result<(), ToolError> {
    let failed = |error| volume.error(path.path.as_bytes(), error);
    let fs = volume.fs();
    let read = OpenOptions::new().read(true);
    let file = fs.open(&path.path, read).map_err(failed)?;
    let size = fs.fstat(&file).map_err(failed)?.size;
    let extents = fs.fiemap(&file, 0, u64::MAX).map_err(failed)?;
    let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES);
    if as_json {
        let extents: Vec<_> = extents
            .iter()
            .map(|extent| {
                json!({
                    "logical": bytes(extent.lblk.into()),
                    "physical": bytes(extent.pblk),
                    "length": bytes(extent.len.into()),
                    "unwritten": extent.unwritten,
                })
            })
            .collect();
        return write_json(&json!({ "path": path.path, "size": size, "extents": extents }));
    }
    write(|out| {
        let mut print = || {
            writeln!(
                out,
                "{}: {size} bytes, {} extents",
                printable(&path.path),
                extents.len()
            )?;
            for (nth, extent) in extents.iter().enumerate() {
                let unwritten = if extent.unwritten { " unwritten" } else { "" };
                writeln!(
                    out,
                    "{nth:5}: file {:>14} at {:>16} length {:>14}{unwritten}",
                    bytes(extent.lblk.into()),
                    bytes(extent.pblk),
                    bytes(extent.len.into()),
                )?;
            }
            Ok(())
        };
        print().map_err(ToolError::Output)
    })
}

/// Shows what a volume is like.
pub(super) fn info(volume: &Volume, as_json: bool) -> Result<(), ToolError> {
    let fs = volume.fs();
    let (found, report, label) = (fs.statfs(), fs.report(), fs.label());
    let drive = volume.drive();
    let limits = drive.limits()?;
    if as_json {
        return write_json(&json!({
            "device": drive.name(),
            "uuid": fs.uuid().to_string(),
            "label": text(&label),
            "lba_bytes": limits.block_size,
            "volatile_cache": limits.volatile_cache,
            "discard": limits.discard,
            "write_zeroes": limits.write_zeroes,
            "device_bytes": limits.blocks.saturating_mul(limits.block_size.into()),
            "data_blocks": found.blocks,
            "free_blocks": found.free_blocks,
            "inodes": found.inodes,
            "extents": found.extents,
            "unmounted": report.clean,
            "replayed_records": report.records,
            "torn_record": report.torn,
            "other_superblock": report.twin_valid,
            "checkpoint_pages": report.checkpoint_pages,
        }));
    }
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let lines = [
        ("device", drive.name().to_owned()),
        ("UUID", fs.uuid().to_string()),
        ("label", printable(&text(&label))),
        ("logical blocks", format!("{} bytes", limits.block_size)),
        ("volatile cache", yes(limits.volatile_cache).to_owned()),
        ("discards", yes(limits.discard).to_owned()),
        (
            "data",
            format_size(found.blocks.saturating_mul(BLOCK_BYTES)),
        ),
        (
            "free",
            format_size(found.free_blocks.saturating_mul(BLOCK_BYTES)),
        ),
        ("inodes", found.inodes.to_string()),
        ("extents", found.extents.to_string()),
        ("unmounted", yes(report.clean).to_owned()),
        ("records to replay", report.records.to_string()),
    ];
    write(|out| {
        for (what, value) in &lines {
            writeln!(out, "{what:18} {value}").map_err(ToolError::Output)?;
        }
        Ok(())
    })
}
