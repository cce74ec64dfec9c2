//! Commands that fail, and volumes that are cut or fail again and again.

use crate::common::{Outcome, Volume, errno, on_each_kind, pattern};
use blockfs::fs::FsError;
use blockfs::journal::LoadMode;
use blockfs::tree::{Fallocate, XattrMode};
use crash::act::act;
use crash::check::{chain, look, sound};
use crash::contents::{Contents, Overlay};
use crash::run::{Action, Rig, Shape, run};
use crash::sim::Fail;
use crash::states::Moment;
use crash::workloads;
use driver::memory::DmaDomain;
use std::sync::Arc;

/// One life of a volume: mounted, used, and cut or failed at a random point. The image that is left,
/// and the number of the last mark that was synced.
fn life(
    image: Vec<u8>,
    lba: u32,
    turn: u32,
    fail: bool,
    rng: &mut fastrand::Rng,
) -> Outcome<(Vec<u8>, Option<u32>)> {
    let domain = DmaDomain::new();
    let overlay = Overlay::new(Arc::new(image), lba as usize);
    let rig = Rig::over(Contents::Overlay(overlay), true, rng.u64(..), &domain);
    rig.drive.start_log();
    let fs = rig.mount(LoadMode::ReadWrite).map_err(|e| chain(&e))?;
    sound(&fs)?;
    look(&fs)?;
    let mut io = rig.io(&fs)?;
    let mut synced = Vec::new();
    if fail {
        rig.drive
            .fail(Fail::From(rig.drive.commands() + rng.u64(0..120)));
    }
    for (nth, action) in workloads::random(rng, 40).iter().enumerate() {
        // What fails, fails: here only what is left counts.
        let _ = act(&fs, &mut io, action);
        if nth % 10 == 5 {
            let mark = turn * 100 + u32::try_from(nth)?;
            let value = mark.to_le_bytes();
            let set = fs.set_xattr("/", b"user.mark", &value, XattrMode::Set);
            if set.is_ok() && fs.sync().is_ok() {
                synced.push((rig.drive.logged(), mark));
            }
        }
    }
    drop(io);
    drop(fs);
    let log = rig.drive.take_log().ok_or("no log")?;
    let upto = match fail {
        true => log.events.len(),
        false => rng.usize(0..=log.events.len()),
    };
    let mut moment = Moment::new(&log);
    for event in &log.events[..upto] {
        moment.advance(event);
    }
    let choices = moment.choices(rng, 4);
    let image = moment.image(&choices[rng.usize(0..choices.len())]);
    let mark = synced.iter().rev().find(|(events, _)| *events <= upto);
    Ok((image.image(), mark.map(|(_, mark)| *mark)))
}

/// Lives one after the other on one volume; each finds what the one before had synced.
fn lives(fail: bool, seed: u64) -> Outcome {
    for lba in [512, 4096] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shape = Shape {
            lba,
            volatile_cache: true,
            bytes: 1280 << 10,
        };
        let domain = DmaDomain::new();
        let setup = workloads::setup();
        let first = run(shape, seed, &domain, &setup, &[Action::Sync])?;
        let mut image = (*first.log.start).clone();
        let mut mark = None;
        for turn in 0..25 {
            let (next, synced) = life(image, lba, turn, fail, &mut rng)
                .map_err(|error| format!("{lba} bytes, seed {seed}, life {turn}: {error}"))?;
            (image, mark) = (next, synced.or(mark));
            let overlay = Overlay::new(Arc::new(image.clone()), lba as usize);
            let rig = Rig::over(Contents::Overlay(overlay), true, 0, &domain);
            let fs = rig.mount(LoadMode::ReadOnly).map_err(|e| chain(&e))?;
            if let Some(mark) = mark {
                let found = fs.xattr("/", b"user.mark")?;
                let found = u32::from_le_bytes(found.try_into().map_err(|_| "no mark")?);
                assert!(found >= mark, "life {turn}: {found} is before {mark}");
            }
        }
    }
    Ok(())
}

/// A volume is cut again and again while it is used; each mount finds it sound, and all that was
/// synced in the lives before.
#[test]
fn generic_388_cut_again_and_again() -> Outcome {
    (0..3).try_for_each(|seed| lives(false, seed))
}

/// The same with a drive that fails from some command on, and is well again after each.
#[test]
fn generic_475_failing_again_and_again() -> Outcome {
    (0..3).try_for_each(|seed| lives(true, seed))
}

/// A write into reserved blocks that the drive fails leaves them reserved: they read as zeros, then and
/// after a mount, and can be written.
#[test]
fn generic_250_failed_writes_into_reserved_blocks() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let old = volume.file("/old")?;
        volume.io.write(&old, 0, &pattern(9, 0, 1_000_000))?;
        drop(old);
        volume.fs.unlink("/old")?;
        volume.fs.sync()?;
        let file = volume.file("/f")?;
        volume.io.fallocate(&file, Fallocate::Reserve, 0, 40_000)?;
        volume.io.fsync(&file)?;
        for (at, len) in [(0, 4096), (8192, 8192), (5000, 9000), (39_000, 3000)] {
            volume.drive.fail(Fail::From(volume.drive.commands()));
            let failed = volume.io.write(&file, at, &pattern(1, at, len));
            volume.drive.fail(Fail::Never);
            assert!(matches!(failed, Err(FsError::Device(_))), "{failed:?}");
            assert_eq!(volume.fs.fstat(&file)?.size, 40_000);
            assert!(volume.contents(&file)? == [0; 40_000]);
        }
        assert_eq!(errno(volume.fs.seek_data(&file, 0)), 6, "all is a hole");
        drop(file);
        let mut volume = volume.remount()?;
        let file = volume.file("/f")?;
        assert!(volume.contents(&file)? == [0; 40_000]);
        volume.io.write(&file, 0, &pattern(1, 0, 40_000))?;
        volume.io.fsync(&file)?;
        assert!(volume.contents(&file)? == pattern(1, 0, 40_000));
        Ok(())
    })
}

/// A sync that fails says so to everybody who syncs, through any handle and ever after; what was synced
/// before is there after the next mount, and syncs succeed again.
#[test]
fn generic_441_every_handle_hears_of_a_failed_sync() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let (one, two) = (volume.file("/f")?, volume.file("/f")?);
        volume.io.write(&one, 0, &pattern(1, 0, 8192))?;
        volume.io.fsync(&one)?;
        volume.io.write(&two, 8192, &pattern(1, 8192, 8192))?;
        volume.drive.fail(Fail::From(volume.drive.commands()));
        for _ in 0..2 {
            assert_eq!(errno(volume.io.fsync(&one)), 5);
            assert_eq!(errno(volume.io.fdatasync(&two)), 5);
        }
        volume.drive.fail(Fail::Never);
        let other = volume.file("/f");
        // The drive is well again; but nobody knows what it lost.
        assert_eq!(errno(volume.io.fsync(&two)), 5);
        assert_eq!(errno(volume.fs.sync()), 5);
        assert_eq!(errno(volume.fs.mkdir("/d", 0o755)), 5);
        assert_eq!(errno(volume.io.write(&two, 0, &pattern(2, 0, 512))), 5);
        let mut data = vec![0; 8192];
        volume.io.read(&one, 0, &mut data)?;
        assert!(data == pattern(1, 0, 8192), "it can be read");
        let Volume {
            drive,
            domain,
            fs,
            io,
        } = volume;
        drop((one, two, other, io, fs));
        let mut volume = Volume::mount(drive, domain)?;
        let file = volume.file("/f")?;
        let data = volume.contents(&file)?;
        assert!(data.len() >= 8192 && data == pattern(1, 0, data.len() as u64));
        volume.io.write(&file, 0, &pattern(3, 0, 4096))?;
        volume.io.fsync(&file)?;
        Ok(())
    })
}
