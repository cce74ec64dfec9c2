//! An exerciser in the manner of fsx: random operations on two files of a small volume, against a
//! reference in memory that knows every byte and what each block is.
//!
//! A run is one volume and a few thousand operations; its seed repeats it.
//!
//! | file | what |
//! |---|---|
//! | `op.rs` | operations, and how they are chosen |
//! | `reference.rs` | a file in memory |
//! | `mod.rs` | both side by side |

mod op;
mod reference;

pub use op::{Op, Range};
pub use reference::{Block, Reference};

use crate::check::chain;
use crate::model::data_of;
use crate::run::{Fs, Io, Rig, Shape};
use blockfs::file::WriteFlags;
use blockfs::fs::{File, FsError, OpenOptions};
use blockfs::journal::LoadMode;
use blockfs::tree::{PosixError, RenameMode, Severity};
use driver::memory::DmaDomain;
use std::collections::VecDeque;
use std::fmt;

/// Operations of one run.
pub const RUN: u64 = 10_000;

/// The files.
const PATHS: [&str; 2] = ["/a", "/b"];

const RW: OpenOptions = OpenOptions::new().read(true).write(true);

/// A difference between the filesystem and the reference.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the operation, from 0.
    pub operation: u64,
    /// What is wrong.
    pub what: String,
    /// The last operations, the failed one at the end.
    pub last: Vec<(usize, Op)>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "operation {}: {}", self.operation, self.what)?;
        for (file, op) in &self.last {
            writeln!(f, "    {}: {op:?}", PATHS.get(*file).unwrap_or(&"?"))?;
        }
        write!(f, "repeat with --fsx {} --seed {}", RUN, self.seed)
    }
}

impl std::error::Error for Failure {}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// Bytes that were compared.
    pub compared: u64,
    /// Operations that found no space, and changed nothing.
    pub no_space: u64,
    /// Mounts.
    pub mounts: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.compared += other.compared;
        self.no_space += other.no_space;
        self.mounts += other.mounts;
    }
}

/// Runs `operations` operations on a new volume: 512-byte or 4 KiB logical blocks, a volatile cache or
/// none, and for some seeds files that do not fit, all as `seed` says.
///
/// # Errors
/// The first difference.
pub fn exercise(seed: u64, operations: u64, domain: &DmaDomain) -> Result<Tally, Box<Failure>> {
    let mut last = VecDeque::new();
    let mut done = 0;
    let tried = Exerciser::new(seed, domain).and_then(|mut exerciser| {
        for _ in 0..operations {
            let (file, op) = exerciser.choose();
            last.push_back((file, op));
            if last.len() > 24 {
                last.pop_front();
            }
            exerciser.act(file, op)?;
            done += 1;
        }
        exerciser.finish()
    });
    tried.map_err(|what| {
        Box::new(Failure {
            seed,
            operation: done,
            what,
            last: last.into(),
        })
    })
}

/// The filesystem and the reference.
struct Exerciser {
    rig: Rig,
    mounted: Option<(Fs, Io, [File; 2])>,
    files: [Reference; 2],
    chooser: op::Chooser,
    lba: u64,
    fills: u32,
    tally: Tally,
}

/// What is wrong.
type Outcome<T = ()> = Result<T, String>;

fn text(error: &FsError) -> String {
    format!("{} (errno {})", chain(error), error.errno())
}

impl Exerciser {
    fn new(seed: u64, domain: &DmaDomain) -> Outcome<Self> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shape = Shape {
            lba: if rng.bool() { 512 } else { 4096 },
            volatile_cache: rng.bool(),
            bytes: 1280 << 10,
        };
        // A volume has 248 KiB for data.
        let most = if rng.u32(0..4) == 0 { 160 } else { 96 } << 10;
        let rig = Rig::new(shape, rng.u64(..), domain).map_err(|error| error.to_string())?;
        let mut exerciser = Self {
            rig,
            mounted: None,
            files: [Reference::default(), Reference::default()],
            chooser: op::Chooser::new(rng, u64::from(shape.lba), most),
            lba: u64::from(shape.lba),
            fills: 0,
            tally: Tally::default(),
        };
        exerciser.mount()?;
        Ok(exerciser)
    }

    fn choose(&mut self) -> (usize, Op) {
        let sizes = [self.files[0].size(), self.files[1].size()];
        self.chooser.choose(sizes)
    }

    fn mount(&mut self) -> Outcome {
        let fs = self.rig.mount(LoadMode::ReadWrite);
        let fs = fs.map_err(|error| format!("mount: {}", text(&error)))?;
        let io = self.rig.io(&fs).map_err(|error| text(&error))?;
        let open = |path| fs.open(path, RW.create(0o644)).map_err(|e| text(&e));
        let files = [open(PATHS[0])?, open(PATHS[1])?];
        self.mounted = Some((fs, io, files));
        self.tally.mounts += 1;
        self.compare(0)?;
        self.compare(1)
    }

    fn parts(&mut self) -> Outcome<(&Fs, &mut Io, &mut [File; 2])> {
        match &mut self.mounted {
            Some((fs, io, files)) => Ok((fs, io, files)),
            None => Err("nothing is mounted".into()),
        }
    }

    fn finish(&mut self) -> Outcome<Tally> {
        self.act(0, Op::Remount { clean: true })?;
        Ok(self.tally)
    }

    /// Does `op` on both, and compares what it may have changed.
    fn act(&mut self, file: usize, op: Op) -> Outcome {
        self.tally.operations += 1;
        match op {
            Op::Read(range) => return self.read(file, range),
            Op::Remount { clean } => return self.remount(clean),
            Op::Swap => return self.swap(),
            Op::Replace => return self.replace(file),
            Op::Compare => return self.compare(file),
            _ => {}
        }
        self.fills += 1;
        let fill = self.fills;
        let (fs, io, files) = self.parts()?;
        let done = on_filesystem(fs, io, &files[file], PATHS[file], op, fill);
        match done {
            Ok(()) => self.files[file].apply(op, fill),
            Err(FsError::NoSpace { .. } | FsError::Posix(PosixError::NoSpace)) if op.takes() => {
                self.tally.no_space += 1;
                return self.compare(file);
            }
            Err(FsError::Alignment { .. }) if op.is_refused(self.lba) => {}
            Err(error) => return Err(text(&error)),
        }
        let size = self.files[file].size();
        let (fs, _, files) = self.parts()?;
        let stat = fs.fstat(&files[file]).map_err(|error| text(&error))?;
        if stat.size != size {
            return Err(format!("{} bytes instead of {size}", stat.size));
        }
        match op.range(size) {
            // What is around it too, every other time: a later read may find it as well.
            Some(Range { at, len }) if fill.is_multiple_of(2) => self.read(
                file,
                Range {
                    at: at.saturating_sub(self.lba + 1),
                    len: len + 2 * (self.lba + 1),
                },
            ),
            _ => Ok(()),
        }
    }

    /// Reads a range, and compares it with the reference; what is behind the end is zeroed.
    fn read(&mut self, file: usize, range: Range) -> Outcome {
        let Range { at, len } = range;
        let expected = self.files[file].read(at, len);
        let bytes = crate::model::small(len);
        let domain = self.rig.domain.clone();
        let (_, io, files) = self.parts()?;
        let mut buf = domain.alloc(bytes).map_err(|error| error.to_string())?;
        buf.fill(0xaa);
        let read = io.read_dma(&files[file], at, buf);
        let (buf, read) = read.map_err(|error| format!("read of {range:?}: {}", text(&error)))?;
        if read != expected.len() as u64 {
            let expected = expected.len();
            return Err(format!("read of {range:?}: {read} bytes, not {expected}"));
        }
        let mut found = vec![0; bytes];
        buf.read_at(0, &mut found).map_err(|e| e.to_string())?;
        self.tally.compared += len;
        let (head, tail) = found.split_at(expected.len());
        if head == expected && tail.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let wanted = expected.iter().copied().chain(std::iter::repeat(0));
        let wrong = found.iter().zip(wanted).position(|(&a, b)| a != b);
        let nth = wrong.unwrap_or(0);
        Err(format!(
            "read of {range:?}: at {}: {:x?}, not {:x?}",
            at + nth as u64,
            found.get(nth..bytes.min(nth + 8)),
            expected.get(nth..expected.len().min(nth + 8)),
        ))
    }

    /// Everything about a file: size, contents, blocks, what is a hole.
    fn compare(&mut self, file: usize) -> Outcome {
        let reference = self.files[file].clone();
        let (size, blocks) = (reference.size(), reference.blocks());
        let (fs, _, files) = self.parts()?;
        let handle = &files[file];
        let stat = fs.fstat(handle).map_err(|error| text(&error))?;
        let taken = blocks.iter().filter(|&&block| block != Block::Hole);
        let taken = taken.count() as u64;
        if (stat.size, stat.blocks) != (size, taken) {
            return Err(format!(
                "{} bytes in {} blocks, not {size} in {taken}",
                stat.size, stat.blocks
            ));
        }
        let extents = fs.fiemap(handle, 0, u64::MAX).map_err(|e| text(&e))?;
        let mut found = vec![Block::Hole; blocks.len()];
        for extent in &extents {
            let from = extent.lblk as usize;
            let state = match extent.unwritten {
                true => Block::Reserved,
                false => Block::Written,
            };
            let part = found.get_mut(from..from + extent.len as usize);
            let part = part.ok_or_else(|| format!("{extent:?} is behind what there is"))?;
            part.fill(state);
        }
        if let Some(at) = (0..found.len()).find(|&at| found[at] != blocks[at]) {
            return Err(format!(
                "block {at} is {:?}, not {:?}",
                found[at], blocks[at]
            ));
        }
        holes(fs, handle, &reference)?;
        match size {
            0 => Ok(()),
            _ => self.read(
                file,
                Range {
                    at: 0,
                    len: size + 1,
                },
            ),
        }
    }

    /// Mounts again, after unmounting, or after everything was synced and the process died.
    fn remount(&mut self, clean: bool) -> Outcome {
        let Some((fs, io, files)) = self.mounted.take() else {
            return Err("nothing is mounted".into());
        };
        // A file that was open without a name may wait to be freed.
        let mut found = fs.check().into_iter();
        if let Some(finding) = found.find(|finding| finding.severity() > Severity::Warning) {
            return Err(format!("check: {finding}"));
        }
        if !clean {
            fs.sync().map_err(|error| text(&error))?;
        }
        drop((io, files));
        match clean {
            true => drop(fs.unmount().map_err(|error| text(&error))?),
            false => drop(fs),
        }
        self.mount()
    }

    /// The files change their names.
    fn swap(&mut self) -> Outcome {
        let (fs, _, files) = self.parts()?;
        let done = fs.rename(PATHS[0], PATHS[1], RenameMode::Exchange);
        done.map_err(|error| text(&error))?;
        files.swap(0, 1);
        self.files.swap(0, 1);
        Ok(())
    }

    /// The file goes while it is open; another takes its name, and what was freed.
    fn replace(&mut self, file: usize) -> Outcome {
        let path = PATHS[file];
        let (fs, ..) = self.parts()?;
        fs.unlink(path).map_err(|error| text(&error))?;
        // It can still be read.
        self.compare(file)?;
        let (fs, _, files) = self.parts()?;
        let new = fs.open(path, RW.create(0o644).exclusive(true));
        files[file] = new.map_err(|error| text(&error))?;
        self.files[file] = Reference::default();
        self.compare(file)
    }
}

/// `SEEK_DATA` and `SEEK_HOLE` say what the reference says.
fn holes(fs: &Fs, handle: &File, reference: &Reference) -> Outcome {
    let mut at = 0;
    loop {
        let data = match fs.seek_data(handle, at) {
            Ok(data) => Some(data),
            Err(FsError::Posix(PosixError::NoData)) => None,
            Err(error) => return Err(text(&error)),
        };
        let expected = reference.next(at, |block| block == Block::Written);
        if data != expected {
            return Err(format!("data from {at} on: {data:?}, not {expected:?}"));
        }
        let Some(data) = data else { return Ok(()) };
        let hole = fs.seek_hole(handle, data).map_err(|error| text(&error))?;
        let expected = reference.next(data, |block| block != Block::Written);
        let expected = expected.unwrap_or(reference.size());
        if hole != expected {
            return Err(format!("a hole from {data} on: {hole}, not {expected}"));
        }
        at = hole;
        if at >= reference.size() {
            return Ok(());
        }
    }
}

fn on_filesystem(
    fs: &Fs,
    io: &mut Io,
    file: &File,
    path: &str,
    op: Op,
    fill: u32,
) -> Result<(), FsError> {
    match op {
        Op::Write {
            range: Range { at, len },
            dsync,
            direct,
        } => {
            let flags = match dsync {
                true => WriteFlags::DSYNC,
                false => WriteFlags::NONE,
            };
            let data = data_of(fill, at, len);
            match direct {
                true => io.write_with(&fs.open(path, RW.direct(true))?, at, &data, flags),
                false => io.write_with(file, at, &data, flags),
            }
        }
        Op::Append { len } => {
            let file = fs.open(path, RW.append(true))?;
            let at = fs.fstat(&file)?.size;
            io.write(&file, 0, &data_of(fill, at, len))
        }
        Op::Truncate(size) => io.truncate(file, size),
        Op::Allocate(mode, Range { at, len }) => io.fallocate(file, mode, at, len),
        Op::WriteZeroes(Range { at, len }) => io.write_zeroes(file, at, len),
        Op::Fsync => io.fsync(file),
        Op::Fdatasync => io.fdatasync(file),
        Op::Sync => io.sync(),
        Op::Checkpoint => fs.checkpoint(),
        Op::Trim => io.trim().map(drop),
        Op::Read(_) | Op::Remount { .. } | Op::Swap | Op::Replace | Op::Compare => Ok(()),
    }
}
