//! Whether what a power cut left is what was promised.

use crate::contents::{Contents, Overlay};
use crate::model::{Model, Seen, Sight, What, small};
use crate::run::{Action, Fs, Io, Rig, Run};
use blockfs::device::BlockDevice;
use blockfs::file::{Blocking, Tag};
use blockfs::format::op::Kind;
use blockfs::fs::{Blockfs, OpenOptions};
use blockfs::journal::{LoadMode, MetaTag};
use driver::memory::DmaDomain;
use std::collections::{BTreeMap, BTreeSet};

/// A promise that was broken: which oracle, and how.
pub type Violation = String;

/// Between which steps a cut came: `synced` are durable, `begun` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Steps that are durable.
    pub synced: usize,
    /// Steps that had ended.
    pub ended: usize,
    /// Steps that had begun.
    pub begun: usize,
}

impl Bounds {
    /// The bounds after `event` events.
    #[must_use]
    pub fn at(run: &Run, event: usize) -> Self {
        let mut bounds = Self {
            synced: 0,
            ended: 0,
            begun: 0,
        };
        for (nth, step) in run.steps.iter().enumerate() {
            if step.events.0 <= event {
                bounds.begun = nth + 1;
            }
            if step.events.1 <= event {
                bounds.ended = nth + 1;
                if step.action.is_sync() {
                    bounds.synced = nth + 1;
                }
            }
        }
        bounds
    }
}

pub(crate) fn model(run: &Run, steps: usize) -> &Model {
    match steps.checked_sub(1).and_then(|last| run.steps.get(last)) {
        Some(step) => &step.model,
        None => &run.start,
    }
}

/// What can be seen of a volume.
///
/// # Errors
/// What cannot be read.
pub fn look<D: BlockDevice<MetaTag>>(fs: &Blockfs<D>) -> Result<Sight, Violation> {
    let mut sight = Sight::new();
    let mut left = vec![String::new()];
    while let Some(path) = left.pop() {
        let name = if path.is_empty() { "/" } else { &path };
        let text = |error| format!("O2: {name}: {error}");
        let stat = fs.lstat(name).map_err(text)?;
        let what = match stat.kind {
            Kind::File => What::File(stat.size),
            Kind::Directory => What::Dir,
            Kind::Symlink => What::Link(fs.readlink(name).map_err(text)?),
        };
        let mut xattrs = BTreeMap::new();
        if stat.kind != Kind::Symlink {
            for xattr in fs.xattrs(name).map_err(text)? {
                let value = fs.xattr(name, &xattr).map_err(text)?;
                xattrs.insert(xattr, value);
            }
        }
        if stat.kind == Kind::Directory {
            for entry in fs.readdir(name, 0, usize::MAX).map_err(text)? {
                left.push(format!("{path}/{}", String::from_utf8_lossy(&entry.name)));
            }
        }
        let seen = Seen {
            what,
            nlink: stat.nlink,
            mode: stat.mode,
            xattrs,
        };
        sight.insert(name.into(), seen);
    }
    Ok(sight)
}

/// O11: names, attributes and contents are the reference's, and nothing contradicts itself.
///
/// # Errors
/// The first difference.
pub fn same<Q, D>(fs: &Blockfs<D>, io: &mut Blocking<Q, D>, model: &Model) -> Result<(), Violation>
where
    Q: BlockDevice<Tag<()>>,
    D: BlockDevice<MetaTag>,
{
    sound(fs)?;
    let (sight, expected) = (look(fs)?, model.sight());
    if sight != expected {
        return Err(format!("O11: expected {expected:?}, found {sight:?}"));
    }
    for (path, seen) in &sight {
        let What::File(size) = seen.what else {
            continue;
        };
        let text = |error| format!("O11: {path}: {error}");
        let file = fs.open(path, OpenOptions::new().read(true)).map_err(text)?;
        let mut found = vec![0; small(size)];
        let read = io.read(&file, 0, &mut found).map_err(text)?;
        let expected = model.find(path).ok().and_then(|id| model.data(id));
        if expected.is_none_or(|data| read != found.len() || **data != found) {
            return Err(format!("O11: {path}: its {size} bytes are others"));
        }
    }
    Ok(())
}

/// Checks one image that a cut in `run` may have left. `thorough`: what need not be done each time.
///
/// # Errors
/// The promise that was broken.
pub fn check(
    run: &Run,
    bounds: Bounds,
    image: Overlay,
    domain: &DmaDomain,
    thorough: bool,
) -> Result<(), Violation> {
    if thorough {
        read_only(run, &image, domain)?;
    }
    let rig = Rig::over(
        Contents::Overlay(image),
        run.shape.volatile_cache,
        0,
        domain,
    );
    let fs = rig
        .mount(LoadMode::ReadWrite)
        .map_err(|error| format!("O1: {}", chain(&error)))?;
    sound(&fs)?;
    let mut io = rig.io(&fs).map_err(|error| error.to_string())?;
    prefix(run, bounds, &fs, &mut io)?;
    if thorough {
        usable(&fs, &mut io)?;
        let hash = fs.state_hash();
        fs.sync().map_err(|error| format!("O7: sync: {error}"))?;
        drop((io, fs));
        // As if the power went once more.
        let again = rig
            .mount(LoadMode::ReadWrite)
            .map_err(|error| format!("O6: {}", chain(&error)))?;
        if again.state_hash() != hash {
            return Err("O6: mounted again, the state is another".into());
        }
    }
    Ok(())
}

/// O3 to O5: the state is that after some number of steps. Several may look the same from outside.
///
/// # Errors
/// What is no such state.
pub fn prefix(run: &Run, bounds: Bounds, fs: &Fs, io: &mut Io) -> Result<(), Violation> {
    let sight = look(fs)?;
    let mut broken = None;
    let mut found = false;
    for steps in bounds.synced..=bounds.begun {
        if model(run, steps).sight() != sight {
            continue;
        }
        match files(run, bounds, steps, &sight, fs, io) {
            Ok(()) => {
                found = true;
                break;
            }
            Err(violation) => broken = Some(violation),
        }
    }
    if !found {
        return Err(broken.unwrap_or_else(|| not_a_prefix(run, bounds, &sight)));
    }
    Ok(())
}

/// An error with its causes.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// O2: nothing contradicts itself.
///
/// # Errors
/// What does.
pub fn sound<D: BlockDevice<MetaTag>>(fs: &Blockfs<D>) -> Result<(), Violation> {
    match fs.check().first() {
        None => Ok(()),
        Some(finding) => Err(format!("O2: {finding}")),
    }
}

fn not_a_prefix(run: &Run, bounds: Bounds, sight: &Sight) -> Violation {
    let expected = model(run, bounds.synced).sight();
    let other: Vec<_> = sight
        .iter()
        .filter(|(path, seen)| expected.get(*path) != Some(seen))
        .collect();
    let missing: Vec<_> = expected
        .keys()
        .filter(|path| !sight.contains_key(*path))
        .collect();
    format!(
        "O4: {bounds:?}: not the state after any number of steps; against the synced one: other {other:?}, missing {missing:?}"
    )
}

/// The contents of all files.
fn files(
    run: &Run,
    bounds: Bounds,
    steps: usize,
    sight: &Sight,
    fs: &Fs,
    io: &mut Io,
) -> Result<(), Violation> {
    for (path, seen) in sight {
        if let What::File(size) = seen.what {
            long_enough(run, bounds, steps, path, size)?;
            file(run, bounds, steps, path, size, fs, io)?;
        }
    }
    Ok(())
}

/// O3 and O5: each logical block of a file is one that it had since the last sync, or zero if it was
/// changed since.
fn file(
    run: &Run,
    bounds: Bounds,
    steps: usize,
    path: &str,
    size: u64,
    fs: &Fs,
    io: &mut Io,
) -> Result<(), Violation> {
    let text = |error| format!("O3: {path}: {error}");
    let handle = fs.open(path, OpenOptions::new().read(true)).map_err(text)?;
    let mut found = vec![0; small(size)];
    let read = io.read(&handle, 0, &mut found).map_err(text)?;
    if read != found.len() {
        return Err(format!("O3: {path}: {read} bytes of {size}"));
    }
    let id = model(run, steps)
        .find(path)
        .map_err(|_| "O4: no such path")?;
    let versions: Vec<_> = (bounds.synced..=bounds.begun)
        .map(|steps| model(run, steps).data(id))
        .collect();
    let changed = versions.iter().flatten().collect::<BTreeSet<_>>().len() > 1;
    let lba = run.shape.lba as usize;
    for (nth, block) in found.chunks(lba).enumerate() {
        let at = nth * lba;
        // A durable write of these bytes that has ended is the oldest that may be found.
        let oldest = durable_write(run, bounds, id, at as u64, block.len() as u64);
        if oldest.is_some_and(|oldest| steps < oldest && grew(run, oldest, id)) {
            return Err(format!(
                "O3: {path}: the size of a durable write is not there ({bounds:?})"
            ));
        }
        let skip = oldest.unwrap_or(0).saturating_sub(bounds.synced);
        let known = versions
            .iter()
            .skip(skip)
            .flatten()
            .any(|data| begins(block, data.get(at..).unwrap_or(&[])));
        let zeroed = changed && oldest.is_none() && block.iter().all(|&byte| byte == 0);
        if !known && !zeroed {
            let head = block.get(..block.len().min(8));
            return Err(format!(
                "O3/O5: {path} at {at}: {head:x?} is no version of it since the last sync ({bounds:?})"
            ));
        }
    }
    Ok(())
}

/// Whether a block is the beginning of these data; behind their end are zeros.
fn begins(block: &[u8], data: &[u8]) -> bool {
    let (common, rest) = block.split_at(block.len().min(data.len()));
    data.starts_with(common) && rest.iter().all(|&byte| byte == 0)
}

/// O3: a durable write that has ended is within the file, unless that was shortened since.
fn long_enough(
    run: &Run,
    bounds: Bounds,
    steps: usize,
    path: &str,
    size: u64,
) -> Result<(), Violation> {
    let id = model(run, steps)
        .find(path)
        .map_err(|_| "O4: no such path")?;
    for nth in bounds.synced..bounds.ended {
        let Action::Write {
            path: written,
            at,
            len,
            dsync: true,
            ..
        } = &run.steps[nth].action
        else {
            continue;
        };
        let same = model(run, nth).find(written) == Ok(id);
        let mut later = run.steps[nth + 1..bounds.begun].iter();
        let shortened = later.any(|step| matches!(step.action, Action::Truncate(..)));
        if same && size < at + len && !shortened {
            return Err(format!(
                "O3: {path}: {size} bytes, and a durable write went further"
            ));
        }
    }
    Ok(())
}

/// The last step that has ended and wrote all of these bytes of a file durably; steps count from 1.
fn durable_write(run: &Run, bounds: Bounds, id: u32, from: u64, bytes: u64) -> Option<usize> {
    (bounds.synced..bounds.ended)
        .rev()
        .find(|&nth| match &run.steps[nth].action {
            Action::Write {
                path,
                at,
                len,
                dsync: true,
                ..
            } => {
                let same = model(run, nth).find(path) == Ok(id);
                same && *at <= from && from + bytes <= at + len
            }
            _ => false,
        })
        .map(|nth| nth + 1)
}

/// Whether a step made a file grow.
fn grew(run: &Run, step: usize, id: u32) -> bool {
    let len = |steps| model(run, steps).data(id).map(|data| data.len());
    len(step) > len(step - 1)
}

/// O7: the volume can be used, and what is freed is free.
fn usable(fs: &Fs, io: &mut Io) -> Result<(), Violation> {
    let text = |error| format!("O7: {error}");
    let free = fs.statfs().free_blocks;
    let options = OpenOptions::new().read(true).write(true).create(0o600);
    let full = free < 4;
    let file = fs.open("/.usable", options).map_err(text)?;
    if !full {
        io.write(&file, 0, &[7; 5000]).map_err(text)?;
        io.fsync(&file).map_err(text)?;
    }
    drop(file);
    fs.unlink("/.usable").map_err(text)?;
    fs.sync().map_err(text)?;
    fs.pump();
    let after = fs.statfs().free_blocks;
    if after != free {
        return Err(format!("O7: {free} blocks were free, now {after}"));
    }
    sound(fs)
}

/// O8: who mounts to read writes nothing.
fn read_only(run: &Run, image: &Overlay, domain: &DmaDomain) -> Result<(), Violation> {
    let contents = Contents::Overlay(image.clone());
    let rig = Rig::over(contents, run.shape.volatile_cache, 0, domain);
    let fs = rig
        .mount(LoadMode::ReadOnly)
        .map_err(|error| format!("O8: {}", chain(&error)))?;
    sound(&fs)?;
    fs.unmount().map_err(|error| format!("O8: {error}"))?;
    let counts = rig.drive.counts();
    match counts.writes + counts.zeroes + counts.discards + counts.flushes {
        0 => Ok(()),
        writes => Err(format!("O8: {writes} commands that change something")),
    }
}
