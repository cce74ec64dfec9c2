//! Links, renames, directories.

use crate::common::{Outcome, READ, RW, Volume, errno, on_each_kind, pattern};
use blockfs::format::op::Kind;
use blockfs::fs::FsError;
use blockfs::tree::RenameMode;
use crash::act::act;
use crash::workloads;
use std::collections::BTreeSet;
use std::sync::Barrier;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const ENOTEMPTY: i32 = 39;

/// A link count follows the names that come and go, and the last name takes the file with it.
#[test]
fn generic_002_link_counts() -> Outcome {
    on_each_kind(4 << 20, |volume, _| {
        let fs = &volume.fs;
        drop(volume.file("/f")?);
        for nth in 1..=100u32 {
            fs.link("/f", format!("/l{nth}"))?;
            assert_eq!(fs.stat("/f")?.nlink, nth + 1);
        }
        let volume = volume.remount()?;
        let fs = &volume.fs;
        fs.unlink("/f")?;
        for nth in 1..=100u32 {
            let path = format!("/l{nth}");
            assert_eq!(fs.stat(&path)?.nlink, 101 - nth);
            fs.unlink(&path)?;
            assert_eq!(errno(fs.stat(&path)), ENOENT);
        }
        assert_eq!(volume.names("/")?, Vec::<String>::new());
        volume.remount().map(drop)
    })
}

/// Names created and unlinked in any order are there or not, and so says a listing in parts.
#[test]
fn generic_007_a_heap_of_names() -> Outcome {
    let mut volume = Volume::new(4 << 20, 512, true)?;
    let mut there = BTreeSet::new();
    let mut rng = fastrand::Rng::with_seed(7);
    volume.fs.mkdir("/d", 0o755)?;
    for turn in 0..6_000 {
        let name = format!("name{}", rng.u32(0..300));
        let path = format!("/d/{name}");
        if rng.bool() {
            let done = volume.fs.open(&path, RW.exclusive(true));
            let expected = if there.insert(name) { 0 } else { EEXIST };
            assert_eq!(errno(done), expected, "{path}");
        } else {
            let expected = if there.remove(&name) { 0 } else { ENOENT };
            assert_eq!(errno(volume.fs.unlink(&path)), expected, "{path}");
        }
        if turn % 1500 == 0 {
            volume = volume.remount()?;
        }
    }
    let (mut listed, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let part = volume.fs.readdir("/d", cookie, 7)?;
        let Some(last) = part.last() else { break };
        cookie = last.cookie;
        for entry in part {
            let name = String::from_utf8(entry.name)?;
            assert!(listed.insert(name.clone()), "{name} is listed twice");
        }
    }
    assert_eq!(listed, there);
    Ok(())
}

/// Several threads fill and empty directories, each its own and all a common one.
#[test]
fn generic_011_directories_under_stress() -> Outcome {
    const THREADS: u32 = 4;
    let volume = Volume::new(4 << 20, 4096, true)?;
    volume.fs.mkdir("/common", 0o755)?;
    let (free, fs) = (volume.free()?, &volume.fs);
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        let work = |thread: u32| {
            start.wait();
            for turn in 0..5 {
                let own = format!("/t{thread}");
                fs.mkdir(&own, 0o755)?;
                for nth in 0..30 {
                    for dir in [own.as_str(), "/common"] {
                        let path = format!("{dir}/{thread}-{nth}");
                        match nth % 3 {
                            0 => drop(fs.open(&path, RW.exclusive(true))?),
                            1 => fs.mkdir(&path, 0o700)?,
                            _ => fs.symlink(format!("{turn}"), &path)?,
                        }
                    }
                }
                for nth in 0..30 {
                    for dir in [own.as_str(), "/common"] {
                        let path = format!("{dir}/{thread}-{nth}");
                        match nth % 3 {
                            1 => fs.rmdir(&path)?,
                            _ => fs.unlink(&path)?,
                        }
                    }
                }
                fs.rmdir(&own)?;
            }
            Ok::<(), FsError>(())
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a panic")??;
        }
        Outcome::Ok(())
    })?;
    assert_eq!(volume.names("/")?, ["common"]);
    assert_eq!(volume.names("/common")?, Vec::<String>::new());
    assert_eq!(volume.free()?, free);
    volume.remount().map(drop)
}

/// Several threads do anything at all to the same files; what fails says so as POSIX has it, and the
/// volume is sound.
#[test]
fn generic_013_anything_from_several_threads() -> Outcome {
    let mut volume = Volume::new(4 << 20, 512, true)?;
    for action in workloads::setup() {
        act(&volume.fs, &mut volume.io, &action)?;
    }
    let seed = 13;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (fs, io) = (&volume.fs, volume.other_io());
                scope.spawn(move || {
                    let mut io = io?;
                    let mut rng = fastrand::Rng::with_seed(seed + thread);
                    for action in workloads::random(&mut rng, 500) {
                        match act(fs, &mut io, &action) {
                            Ok(()) | Err(FsError::Posix(_) | FsError::NoSpace { .. }) => {}
                            Err(error) => return Err(format!("{action:?}: {error}").into()),
                        }
                    }
                    Outcome::Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a panic")??;
        }
        Outcome::Ok(())
    })?;
    volume.fs.pump();
    volume.remount().map(drop)
}

/// What a name can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Nothing,
    File,
    Link,
    Empty,
    Full,
}

impl What {
    const ALL: [Self; 5] = [
        Self::Nothing,
        Self::File,
        Self::Link,
        Self::Empty,
        Self::Full,
    ];

    const fn is_dir(self) -> bool {
        matches!(self, Self::Empty | Self::Full)
    }

    /// Makes one; `mark` tells it from others.
    fn make(self, volume: &mut Volume, path: &str, mark: u32) -> Outcome {
        match self {
            Self::Nothing => {}
            Self::File => {
                let file = volume.file(path)?;
                volume.io.write(&file, 0, &pattern(mark, 0, 100))?;
            }
            Self::Link => volume.fs.symlink(format!("to {mark}"), path)?,
            Self::Empty => volume.fs.mkdir(path, u16::try_from(mark)?)?,
            Self::Full => {
                volume.fs.mkdir(path, u16::try_from(mark)?)?;
                drop(volume.file(&format!("{path}/inside"))?);
            }
        }
        Ok(())
    }

    /// That `path` leads to the one with `mark`.
    fn is_at(self, volume: &mut Volume, path: &str, mark: u32) -> Outcome {
        if self == Self::Nothing {
            assert_eq!(errno(volume.fs.lstat(path)), ENOENT, "{path}");
            return Ok(());
        }
        let stat = volume.fs.lstat(path)?;
        match self {
            Self::File => {
                assert_eq!(stat.kind, Kind::File);
                let file = volume.fs.open(path, READ)?;
                assert!(volume.contents(&file)? == pattern(mark, 0, 100));
            }
            Self::Link => {
                let target = volume.fs.readlink(path)?;
                assert_eq!(target, format!("to {mark}").into_bytes());
            }
            _ => {
                assert_eq!((stat.kind, u32::from(stat.mode)), (Kind::Directory, mark));
                let inside = usize::from(self == Self::Full);
                assert_eq!(volume.names(path)?.len(), inside);
            }
        }
        Ok(())
    }

    fn remove(self, volume: &Volume, path: &str) -> Outcome {
        match self {
            Self::Nothing => {}
            Self::File | Self::Link => volume.fs.unlink(path)?,
            Self::Empty => volume.fs.rmdir(path)?,
            Self::Full => {
                volume.fs.unlink(format!("{path}/inside"))?;
                volume.fs.rmdir(path)?;
            }
        }
        Ok(())
    }
}

/// Renames everything over everything, within a directory and between two; what is there afterwards is
/// as `expected` says: an error that leaves both, or what the names lead to then.
fn renames(mode: RenameMode, expected: impl Fn(What, What) -> i32) -> Outcome {
    let mut volume = Volume::new(4 << 20, 4096, true)?;
    volume.fs.mkdir("/a", 0o755)?;
    volume.fs.mkdir("/b", 0o755)?;
    for (from, to) in [("/a/from", "/a/to"), ("/a/from", "/b/to")] {
        for source in What::ALL {
            for target in What::ALL {
                source.make(&mut volume, from, 0o701)?;
                target.make(&mut volume, to, 0o702)?;
                let errno = errno(volume.fs.rename(from, to, mode));
                assert_eq!(errno, expected(source, target), "{source:?} to {target:?}");
                let ((old, old_mark), (new, new_mark)) = match (errno, mode) {
                    (0, RenameMode::Exchange) => ((target, 0o702), (source, 0o701)),
                    (0, _) => ((What::Nothing, 0), (source, 0o701)),
                    _ => ((source, 0o701), (target, 0o702)),
                };
                old.is_at(&mut volume, from, old_mark)?;
                new.is_at(&mut volume, to, new_mark)?;
                // A directory that moved counts where it is now.
                for dir in ["/a", "/b"] {
                    let subdirs = volume.fs.readdir(dir, 0, 10)?;
                    let subdirs = subdirs.iter().filter(|e| e.kind == Kind::Directory);
                    let nlink = u32::try_from(2 + subdirs.count())?;
                    assert_eq!(volume.fs.stat(dir)?.nlink, nlink);
                }
                old.remove(&volume, from)?;
                new.remove(&volume, to)?;
            }
        }
    }
    volume.remount().map(drop)
}

/// A rename replaces what it may replace, and says of the rest why not.
#[test]
fn generic_023_rename_replaces() -> Outcome {
    renames(RenameMode::Replace, |source, target| {
        match (source, target) {
            (What::Nothing, _) => ENOENT,
            (_, What::Nothing) => 0,
            (source, target) if source.is_dir() => match target {
                What::Empty => 0,
                What::Full => ENOTEMPTY,
                _ => ENOTDIR,
            },
            (_, target) if target.is_dir() => EISDIR,
            _ => 0,
        }
    })
}

/// With NOREPLACE nothing is replaced.
#[test]
fn generic_024_rename_without_replacing() -> Outcome {
    renames(RenameMode::NoReplace, |source, target| {
        match (source, target) {
            (What::Nothing, _) => ENOENT,
            (_, What::Nothing) => 0,
            _ => EEXIST,
        }
    })
}

/// EXCHANGE swaps any two things.
#[test]
fn generic_025_rename_exchanges() -> Outcome {
    renames(RenameMode::Exchange, |source, target| {
        match (source, target) {
            (What::Nothing, _) | (_, What::Nothing) => ENOENT,
            _ => 0,
        }
    })
}

/// What is replaced by a rename while it is open has no name any more, and can be read until it is
/// closed; then its blocks are free.
#[test]
fn generic_035_a_replaced_file_stays_while_open() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let empty = volume.free()?;
        let (from, to) = (volume.file("/from")?, volume.file("/to")?);
        volume.io.write(&from, 0, &pattern(1, 0, 9000))?;
        volume.io.write(&to, 0, &pattern(2, 0, 5000))?;
        volume.fs.rename("/from", "/to", RenameMode::Replace)?;
        assert_eq!(volume.fs.fstat(&to)?.nlink, 0);
        assert_eq!(volume.fs.fstat(&from)?.nlink, 1);
        assert!(volume.contents(&to)? == pattern(2, 0, 5000));
        volume.io.write(&to, 5000, &pattern(2, 5000, 5000))?;
        assert!(volume.contents(&to)? == pattern(2, 0, 10_000));
        volume.fs.mkdir("/d1", 0o755)?;
        volume.fs.mkdir("/d2", 0o755)?;
        let dir = volume.fs.open("/d2", READ)?;
        volume.fs.rename("/d1", "/d2", RenameMode::Replace)?;
        assert_eq!(volume.fs.fstat(&dir)?.nlink, 0);
        drop((from, to, dir));
        volume.fs.unlink("/to")?;
        volume.fs.rmdir("/d2")?;
        let volume = volume.remount()?;
        assert_eq!(volume.free()?, empty);
        Ok(())
    })
}
