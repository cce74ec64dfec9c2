//! ls and stat.

use crate::args::Ls;
use crate::error::ToolError;
use crate::output::{listed, mode, text, time, write, write_json};
use crate::volume::{Volume, VolumePath, base_name, join};
use blockfs::format::BLOCK_BYTES;
use blockfs::format::op::Kind;
use blockfs::tree::Stat;
use serde_json::{Value, json};
use std::io::Write;

/// Something that is listed.
struct Item {
    path: Vec<u8>,
    stat: Stat,
    target: Option<Vec<u8>>,
}

/// Lists.
pub(super) fn ls(volume: &Volume, args: &Ls, as_json: bool) -> Result<(), ToolError> {
    let mut all = Vec::new();
    let mut directories = Vec::new();
    let mut single = Vec::new();
    for path in &args.paths {
        let item = item(volume, path.path.as_bytes(), !args.long && !args.directory)?;
        match item.stat.kind == Kind::Directory && !args.directory {
            true => directories.push(item.path),
            false => single.push(item),
        }
    }
    let headed = args.recursive || args.paths.len() > 1;
    let mut blocks = Vec::new();
    if !single.is_empty() {
        blocks.push((None, single));
    }
    directories.reverse();
    while let Some(path) = directories.pop() {
        let mut items = Vec::new();
        for entry in volume.list(&path)? {
            items.push(item(volume, &join(&path, &entry.name), false)?);
        }
        if args.recursive {
            let below = items.iter().rev();
            let below = below.filter(|item| item.stat.kind == Kind::Directory);
            directories.extend(below.map(|item| item.path.clone()));
        }
        if as_json {
            all.extend(items.iter().map(described));
        } else {
            blocks.push((headed.then_some(path), items));
        }
    }
    if as_json {
        let single = blocks.iter().flat_map(|(_, items)| items);
        let mut found: Vec<Value> = single.map(described).collect();
        found.append(&mut all);
        return write_json(&found);
    }
    write(|out| {
        for (nth, (header, items)) in blocks.iter().enumerate() {
            print(out, nth > 0, header.as_deref(), items, args).map_err(ToolError::Output)?;
        }
        Ok(())
    })
}

fn print(
    out: &mut dyn Write,
    gap: bool,
    header: Option<&[u8]>,
    items: &[Item],
    args: &Ls,
) -> std::io::Result<()> {
    if gap {
        writeln!(out)?;
    }
    if let Some(header) = header {
        out.write_all(&listed(header))?;
        writeln!(out, ":")?;
    }
    let widest = |number: fn(&Item) -> u64| {
        let longest = items.iter().map(number).max().unwrap_or(0);
        longest.to_string().len()
    };
    let (links, size) = (
        widest(|item| item.stat.nlink.into()),
        widest(|item| item.stat.size),
    );
    for item in items {
        let stat = &item.stat;
        if args.long {
            let mode = mode(letter(stat.kind), stat.mode);
            let (nlink, uid, gid, bytes) = (stat.nlink, stat.uid, stat.gid, stat.size);
            let time = time(stat.mtime_ns);
            // To the second.
            let time = time.get(..19).unwrap_or(&time);
            write!(
                out,
                "{mode} {nlink:links$} {uid} {gid} {bytes:size$} {time}Z "
            )?;
        }
        // What was named is listed as it was named.
        let name = match header.is_some() || args.paths.len() == 1 && !args.directory {
            true => base_name(&item.path),
            false => &item.path,
        };
        let name = if name.is_empty() { &item.path } else { name };
        out.write_all(&listed(name))?;
        if let Some(target) = item.target.as_ref().filter(|_| args.long) {
            write!(out, " -> ")?;
            out.write_all(&listed(target))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Shows attributes.
pub(super) fn stat(
    volume: &Volume,
    paths: &[VolumePath],
    follow: bool,
    as_json: bool,
) -> Result<(), ToolError> {
    let mut items = Vec::new();
    for path in paths {
        items.push(item(volume, path.path.as_bytes(), follow)?);
    }
    if as_json {
        let found: Vec<Value> = items.iter().map(described).collect();
        return write_json(&found);
    }
    write(|out| {
        for item in &items {
            print_stat(out, item).map_err(ToolError::Output)?;
        }
        Ok(())
    })
}

fn print_stat(out: &mut dyn Write, item: &Item) -> std::io::Result<()> {
    let stat = &item.stat;
    write!(out, "  File: ")?;
    out.write_all(&listed(&item.path))?;
    if let Some(target) = &item.target {
        write!(out, " -> ")?;
        out.write_all(&listed(target))?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "  Size: {}  Blocks: {} of {BLOCK_BYTES} bytes  {}",
        stat.size,
        stat.blocks,
        name(stat.kind)
    )?;
    let mode_text = mode(letter(stat.kind), stat.mode);
    writeln!(
        out,
        " Inode: {}  Links: {}  Mode: {:04o}/{mode_text}  Uid: {}  Gid: {}",
        stat.ino, stat.nlink, stat.mode, stat.uid, stat.gid
    )?;
    for (what, ns) in [
        ("Access", stat.atime_ns),
        ("Modify", stat.mtime_ns),
        ("Change", stat.ctime_ns),
        (" Birth", stat.btime_ns),
    ] {
        writeln!(out, "{what}: {}", time(ns))?;
    }
    Ok(())
}

fn item(volume: &Volume, path: &[u8], follow: bool) -> Result<Item, ToolError> {
    let fs = volume.fs();
    let failed = |error| volume.error(path, error);
    let stat = if follow {
        fs.stat(path)
    } else {
        fs.lstat(path)
    };
    let stat = stat.map_err(failed)?;
    let target = match stat.kind {
        Kind::Symlink => Some(fs.readlink(path).map_err(failed)?),
        _ => None,
    };
    let path = path.to_vec();
    Ok(Item { path, stat, target })
}

fn described(item: &Item) -> Value {
    let stat = &item.stat;
    json!({
        "path": text(&item.path),
        "name": text(base_name(&item.path)),
        "kind": name(stat.kind),
        "target": item.target.as_ref().map(|target| text(target)),
        "ino": stat.ino,
        "mode": format!("{:04o}", stat.mode),
        "links": stat.nlink,
        "uid": stat.uid,
        "gid": stat.gid,
        "size": stat.size,
        "blocks": stat.blocks,
        "atime": time(stat.atime_ns),
        "mtime": time(stat.mtime_ns),
        "ctime": time(stat.ctime_ns),
        "btime": time(stat.btime_ns),
    })
}

const fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
    }
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
    }
}
