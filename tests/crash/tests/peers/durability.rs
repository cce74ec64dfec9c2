//! What survives: power cuts at every point of a workload, in every state that they may leave.

use crate::common::{BLOCK, Outcome, READ, RW, errno, on_each_kind, pattern};
use blockfs::journal::LoadMode;
use blockfs::tree::{Fallocate, XattrMode};
use crash::check::{Bounds, check, sound};
use crash::contents::{Contents, Overlay};
use crash::run::{Action, Fs, Io, Rig, Shape, run};
use crash::states::{Event, Log, Moment};
use crash::workloads;
use driver::memory::DmaDomain;
use std::cell::Cell;
use std::collections::HashSet;

/// Which events of a run are cut after.
type Points<'a> = &'a dyn Fn(&Event) -> bool;

/// States of one point at most; any, if there are more.
const STATES: usize = 40;

const ALL: Points<'static> = &|_| true;

/// Runs `actions` on a volume of each kind and cuts the power: all that the campaign checks is checked
/// of each state, and then whatever `then` wants to see of it. Says how many states.
fn cut(
    setup: &[Action],
    actions: &[Action],
    points: Points<'_>,
    then: impl Fn(&Fs, &mut Io, Bounds) -> Outcome,
) -> Outcome<u64> {
    let domain = DmaDomain::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut states = 0;
    for seed in 0..4 {
        let shape = Shape {
            lba: if seed % 2 == 0 { 512 } else { 4096 },
            volatile_cache: seed < 2,
            bytes: 1280 << 10,
        };
        let run = run(shape, seed, &domain, setup, actions)?;
        assert_eq!(run.steps.len(), actions.len(), "every step is done");
        let mut moment = Moment::new(&run.log);
        let mut seen = HashSet::new();
        for (nth, event) in run.log.events.iter().enumerate() {
            moment.advance(event);
            if !points(event) {
                continue;
            }
            let bounds = Bounds::at(&run, nth + 1);
            let mut choices = moment.choices(&mut rng, 4);
            rng.shuffle(&mut choices);
            for choice in choices.into_iter().take(STATES) {
                if !seen.insert((moment.fingerprint(&choice), bounds)) {
                    continue;
                }
                states += 1;
                let image = moment.image(&choice);
                let place = |error: &dyn std::fmt::Display| format!("after event {nth}: {error}");
                check(&run, bounds, image.clone(), &domain, false).map_err(|e| place(&e))?;
                let rig = Rig::over(Contents::Overlay(image), shape.volatile_cache, 0, &domain);
                let fs = rig.mount(LoadMode::ReadWrite)?;
                let mut io = rig.io(&fs)?;
                then(&fs, &mut io, bounds).map_err(|error| place(&error))?;
                sound(&fs)?;
            }
        }
    }
    assert!(states > 0);
    Ok(states)
}

fn text(path: &str) -> String {
    path.into()
}

fn create(path: &str) -> Action {
    Action::Create(text(path))
}

fn fsync(path: &str) -> Action {
    Action::Fsync(text(path))
}

fn write(path: &str, at: u64, len: u64, fill: u32) -> Action {
    Action::Write {
        path: text(path),
        at,
        len,
        fill,
        dsync: false,
    }
}

/// Empties a directory and removes it.
fn clear(fs: &Fs, dir: &str) -> Outcome {
    for entry in fs.readdir(dir, 0, usize::MAX)? {
        fs.unlink(format!("{dir}/{}", String::from_utf8(entry.name)?))?;
    }
    Ok(fs.rmdir(dir)?)
}

/// A synced directory from which names were removed and added can be emptied and removed after a cut.
#[test]
fn generic_034_a_synced_directory_can_be_removed() -> Outcome {
    let setup = [
        Action::Mkdir(text("/d")),
        create("/d/foo"),
        create("/d/bar"),
    ];
    let actions = [
        Action::Unlink(text("/d/foo")),
        create("/d/new"),
        fsync("/d"),
        Action::Unlink(text("/d/bar")),
    ];
    cut(&setup, &actions, ALL, |fs, _, _| clear(fs, "/d")).map(drop)
}

/// A hole within blocks, synced, is a hole to the byte after a cut.
#[test]
fn generic_059_a_synced_hole_of_parts_of_blocks() -> Outcome {
    let setup = [create("/f"), write("/f", 0, 20_000, 1)];
    let actions = [
        Action::Punch(text("/f"), 1000, 2000),
        fsync("/f"),
        Action::Punch(text("/f"), 4000, 9000),
        fsync("/f"),
    ];
    cut(&setup, &actions, ALL, |fs, io, bounds| {
        if bounds.synced < 2 {
            return Ok(());
        }
        let file = fs.open("/f", READ)?;
        let mut data = vec![1; 20_000];
        io.read(&file, 0, &mut data)?;
        let mut expected = pattern(1, 0, 20_000);
        expected[1000..3000].fill(0);
        if bounds.synced == 4 {
            expected[4000..13_000].fill(0);
            assert_eq!(fs.fstat(&file)?.blocks, 3);
        }
        match bounds.begun {
            // Punching had not begun, or was synced.
            2 | 4 if bounds.synced == bounds.begun => assert!(data == expected),
            _ => {}
        }
        Ok(())
    })
    .map(drop)
}

/// After a cut, a file that was synced with several links has as many as it says, and all of them and
/// their directories can be removed.
#[test]
fn generic_104_link_counts_after_a_sync() -> Outcome {
    let setup = [
        Action::Mkdir(text("/a")),
        Action::Mkdir(text("/b")),
        create("/a/f"),
        Action::Link(text("/a/f"), text("/a/f2")),
    ];
    let actions = [
        Action::Link(text("/a/f"), text("/b/f3")),
        write("/a/f", 0, 100, 1),
        fsync("/a/f"),
        Action::Unlink(text("/a/f2")),
        fsync("/b/f3"),
        Action::Unlink(text("/a/f")),
    ];
    cut(&setup, &actions, ALL, |fs, _, _| {
        clear(fs, "/a")?;
        clear(fs, "/b")?;
        assert_eq!(fs.statfs().inodes, 1);
        Ok(())
    })
    .map(drop)
}

/// A sync of a new directory, of a file in it, or of one that was moved to it keeps both.
#[test]
fn generic_321_syncs_of_directories() -> Outcome {
    let setup = [Action::Mkdir(text("/a")), create("/a/f")];
    let rename = |from: &str, to: &str| {
        Action::Rename(text(from), text(to), blockfs::tree::RenameMode::Replace)
    };
    let actions = [
        Action::Mkdir(text("/new")),
        create("/new/g"),
        fsync("/new"),
        rename("/a/f", "/new/f"),
        fsync("/new/f"),
        rename("/new", "/a/moved"),
        fsync("/a"),
    ];
    cut(&setup, &actions, ALL, |fs, _, bounds| {
        let there = |path: &str| errno(fs.lstat(path)) == 0;
        // Which may be there under their next names.
        assert!(bounds.synced < 3 || there("/new/g") || there("/a/moved/g"));
        assert!(bounds.synced < 5 || there("/new/f") || there("/a/moved/f"));
        assert!(bounds.synced < 7 || there("/a/moved"));
        assert!(there("/a/f") ^ there("/new/f") ^ there("/a/moved/f"));
        Ok(())
    })
    .map(drop)
}

/// Random operations on one file, with syncs between.
fn file_operations(rng: &mut fastrand::Rng, count: u32) -> Vec<Action> {
    let mut actions = Vec::new();
    for fill in 0..count {
        let (at, len) = (rng.u64(0..30_000), rng.u64(1..9_000));
        let path = text("/f");
        actions.push(match rng.u32(0..9) {
            0..3 => write("/f", at, len, 100 + fill),
            3 => Action::Truncate(path, at),
            4 => Action::Punch(path, at, len),
            5 => Action::Zero(path, at, len, rng.bool()),
            6 => Action::Reserve(path, at, len, rng.bool()),
            7 => Action::WriteZeroes(path, at, len),
            _ => fsync("/f"),
        });
    }
    actions
}

/// Random operations on a file; at each of its syncs, whatever the drive's cache held, it is what it
/// was then.
#[test]
fn generic_455_replayed_to_each_sync() -> Outcome {
    let mut rng = fastrand::Rng::with_seed(455);
    let setup = [create("/f"), write("/f", 0, 30_000, 1)];
    for _ in 0..2 {
        let mut actions = file_operations(&mut rng, 16);
        actions.push(fsync("/f"));
        // A sync ends with the record, or with a flush.
        let ends: Points<'_> = &|event| matches!(event, Event::End { .. });
        cut(&setup, &actions, ends, |_, _, _| Ok(()))?;
    }
    Ok(())
}

/// Random operations of all kinds; at each write that is durable at once and at each flush the volume
/// is sound.
#[test]
fn generic_482_replayed_to_each_durable_write() -> Outcome {
    for seed in 0..3 {
        let mut rng = fastrand::Rng::with_seed(482 + seed);
        let domain = DmaDomain::new();
        let shape = Shape::of(seed + 1);
        let actions = workloads::random(&mut rng, 60);
        let run = run(shape, seed, &domain, &workloads::setup(), &actions)?;
        let mut moment = Moment::new(&run.log);
        let mut marks = HashSet::new();
        for (nth, event) in run.log.events.iter().enumerate() {
            moment.advance(event);
            let (number, begins) = match event {
                Event::Write { number, fua, .. } => (*number, *fua),
                Event::Flush { number } => (*number, true),
                Event::End { number, .. } => (*number, false),
            };
            if begins {
                marks.insert(number);
            }
            if !marks.contains(&number) {
                continue;
            }
            let bounds = Bounds::at(&run, nth + 1);
            let choices = moment.choices(&mut rng, 2);
            for choice in choices.iter().step_by(choices.len().div_ceil(12)) {
                check(&run, bounds, moment.image(choice), &domain, false)
                    .map_err(|violation| format!("seed {seed}, event {nth}: {violation}"))?;
            }
        }
    }
    Ok(())
}

/// What was reserved behind the end of a file, keeping its size, is reserved after a sync and a cut;
/// what was punched there is not.
#[test]
fn generic_483_synced_reservations_behind_the_end() -> Outcome {
    let path = || text("/f");
    let setup = [create("/f"), write("/f", 0, 5000, 1)];
    let actions = [
        Action::Reserve(path(), 8192, 32_768, true),
        fsync("/f"),
        Action::Punch(path(), 16_384, 8192),
        fsync("/f"),
        Action::Truncate(path(), 5000),
        fsync("/f"),
    ];
    cut(&setup, &actions, ALL, |fs, _, bounds| {
        let stat = fs.stat("/f")?;
        assert_eq!(stat.size, 5000);
        let blocks = [2, 10, 10, 8, 8, 2, 2];
        let possible = &blocks[bounds.synced..=bounds.begun];
        assert!(possible.contains(&stat.blocks), "{bounds:?}: {stat:?}");
        Ok(())
    })
    .map(drop)
}

/// A file that ends within a block and grows shows nothing of what its blocks held before, wherever
/// the power goes.
#[test]
fn generic_536_no_old_data_behind_the_end() -> Outcome {
    let setup = [
        // What freed blocks hold.
        create("/old"),
        write("/old", 0, 200_000, 9),
        Action::Unlink(text("/old")),
        Action::Sync,
        create("/f"),
        write("/f", 0, 3000, 1),
    ];
    let actions = [
        Action::Append {
            path: text("/f"),
            len: 2000,
            fill: 2,
        },
        Action::Truncate(text("/f"), 20_000),
        write("/f", 12_000, 100, 3),
        fsync("/f"),
        Action::Truncate(text("/f"), 4500),
        Action::Truncate(text("/f"), 9000),
        write("/f", 8500, 10, 4),
    ];
    let turn = Cell::new(0);
    cut(&setup, &actions, ALL, |fs, io, _| {
        let file = fs.open("/f", RW)?;
        let size = fs.fstat(&file)?.size;
        // What is behind the end of the file is not to be seen when it grows now, in whatever way.
        turn.set(turn.get() + 1);
        match turn.get() % 5 {
            0 => io.truncate(&file, size + 10_000)?,
            1 => io.write(&file, size + 700, &[5; 100])?,
            2 => io.write(&file, (size + 700).next_multiple_of(4096), &[5; 4096])?,
            3 => io.fallocate(&file, Fallocate::Reserve, size + 700, 9000)?,
            _ => io.write_zeroes(&file, size + 700, 9000)?,
        }
        let mut data = vec![1; 700];
        io.read(&file, size, &mut data)?;
        assert!(data.iter().all(|&byte| byte == 0), "behind {size}");
        Ok(())
    })
    .map(drop)
}

/// The states that a cut after the whole of a log may leave.
fn each_end(log: &Log, mut each: impl FnMut(Overlay) -> Outcome) -> Outcome {
    let mut moment = Moment::new(log);
    for event in &log.events {
        moment.advance(event);
    }
    for choice in moment.choices(&mut fastrand::Rng::with_seed(1), 16) {
        each(moment.image(&choice))?;
    }
    Ok(())
}

/// A file that has blocks reserved behind its end, then an extended attribute, then grows into them, has
/// its data and its size after an fdatasync and a cut.
#[test]
fn generic_748_fdatasync_of_growth_into_reserved_blocks() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let file = volume.file("/f")?;
        volume.io.write(&file, 0, &pattern(1, 0, BLOCK))?;
        volume.io.fsync(&file)?;
        volume.drive.start_log();
        let mode = Fallocate::ReserveKeepSize;
        volume.io.fallocate(&file, mode, BLOCK, 15 * BLOCK)?;
        volume.io.fsync(&file)?;
        volume
            .fs
            .set_xattr("/f", b"user.foo", b"bar", XattrMode::Set)?;
        volume
            .io
            .write(&file, BLOCK, &pattern(1, BLOCK, BLOCK + 100))?;
        volume.io.fdatasync(&file)?;
        let log = volume.drive.take_log().ok_or("no log")?;
        each_end(&log, |image| {
            let contents = Contents::Overlay(image);
            let rig = Rig::over(contents, log.volatile_cache, 0, &volume.domain);
            let fs = rig.mount(LoadMode::ReadWrite)?;
            let mut io = rig.io(&fs)?;
            let file = fs.open("/f", READ)?;
            let mut data = vec![0; 10_000];
            let read = io.read(&file, 0, &mut data)?;
            assert!(
                data[..read] == pattern(1, 0, 2 * BLOCK + 100),
                "{read} bytes"
            );
            assert_eq!(fs.fstat(&file)?.blocks, 16);
            sound(&fs)?;
            Ok(())
        })
    })
}
