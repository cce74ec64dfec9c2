//! A volume on a simulated drive, through the public interface: what each operation costs, and that
//! what was written is there after it was mounted again.
#![expect(
    clippy::cast_possible_truncation,
    reason = "patterns of bytes, and numbers that are small"
)]

use blockfs::device::BlockDevice;
use blockfs::file::{Blocking, Tag, WriteFlags};
use blockfs::format::geometry::LayoutOptions;
use blockfs::fs::{Blockfs, MkfsOptions, MountOptions, OpenOptions, mkfs};
use blockfs::journal::{LoadMode, MetaTag};
use blockfs::tree::{Fallocate, RenameMode};
use crash::contents::Contents;
use crash::sim::{SimNvme, SimOptions, SimQueue};
use driver::memory::DmaDomain;
use nvme_emulator::media::{Media, Store};
use uuid::Uuid;

type Outcome = Result<(), Box<dyn std::error::Error>>;
type Fs = Blockfs<SimQueue<MetaTag>>;
type Io = Blocking<SimQueue<Tag<()>>, SimQueue<MetaTag>>;

struct Rig {
    drive: SimNvme,
    domain: DmaDomain,
}

impl Rig {
    fn new(bytes: u64, lba: u32, volatile_cache: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let media = Media::new(Store::ram(bytes)?, lba, volatile_cache.then_some(64 << 20))?;
        let options = SimOptions {
            volatile_cache,
            ..SimOptions::default()
        };
        let drive = SimNvme::new(Contents::Media(Box::new(media)), options);
        let rig = Self {
            drive,
            domain: DmaDomain::new(),
        };
        let mut make = MkfsOptions::new(Uuid::from_u128(7));
        make.layout = LayoutOptions {
            journal_bytes: Some(64 << 10),
            checkpoint_bytes: Some(64 << 10),
        };
        let mut queue = rig.drive.queue();
        mkfs(&mut queue, &rig.domain, &rig.options(), &make)?;
        Ok(rig)
    }

    fn options(&self) -> MountOptions {
        MountOptions {
            clock: self.drive.clock(),
            ..MountOptions::default()
        }
    }

    fn mount(&self) -> Result<(Fs, Io), Box<dyn std::error::Error>> {
        let fs = Fs::mount(self.drive.queue(), &self.domain, self.options())?;
        let io = Blocking::new(fs.queue(self.drive.queue(), Default::default())?);
        Ok((fs, io))
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ seed ^ (at >> 8) as u8)
        .collect()
}

const RW: OpenOptions = OpenOptions::new().read(true).write(true).create(0o644);

/// Data, names and holes survive unmounting, for every alignment of a write.
#[test]
fn what_was_written_is_there_again() -> Outcome {
    for (lba, cache) in [(512, true), (512, false), (4096, true), (4096, false)] {
        let rig = Rig::new(4 << 20, lba, cache)?;
        let (fs, mut io) = rig.mount()?;
        fs.mkdir("/dir", 0o755)?;
        let mut expected = Vec::new();
        for (nth, (offset, len)) in [
            (0, 4096),
            (1, 1),
            (4095, 2),
            (10_000, 7000),
            (40_960, 8192),
            (511, 514),
            (60_000, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("/dir/file{nth}");
            let file = fs.open(&name, RW)?;
            let data = pattern(nth as u8, len);
            io.write(&file, offset, &data)?;
            // Again over a part of it.
            io.write(&file, offset + len as u64 / 2, &pattern(99, len / 4))?;
            let mut whole = vec![0; offset as usize + len];
            whole[offset as usize..].copy_from_slice(&data);
            let half = offset as usize + len / 2;
            whole[half..half + len / 4].copy_from_slice(&pattern(99, len / 4));
            expected.push((name, whole));
        }
        fs.rename("/dir/file0", "/moved", RenameMode::Replace)?;
        expected[0].0 = "/moved".into();
        drop(io);
        fs.unmount()?;
        let (fs, mut io) = rig.mount()?;
        assert!(fs.report().clean);
        for (name, whole) in expected {
            let file = fs.open(&name, OpenOptions::new().read(true))?;
            assert_eq!(fs.fstat(&file)?.size, whole.len() as u64, "{name}");
            let mut found = vec![1; whole.len() + 100];
            assert_eq!(io.read(&file, 0, &mut found)?, whole.len(), "{name}");
            assert!(found[..whole.len()] == whole, "{name} with {lba}");
        }
    }
    Ok(())
}

/// An append and its fsync are one data write, one flush if the cache is volatile, and one record; an
/// overwrite of mapped blocks with DSYNC is one FUA write.
#[test]
fn durability_costs_no_more_than_it_must() -> Outcome {
    for cache in [true, false] {
        let rig = Rig::new(4 << 20, 4096, cache)?;
        let (fs, mut io) = rig.mount()?;
        let file = fs.open("/log", RW)?;
        io.write(&file, 0, &pattern(1, 4096))?;
        io.fsync(&file)?;
        let before = rig.drive.counts();
        let log = fs.open("/log", OpenOptions::new().append(true))?;
        io.write(&log, 0, &pattern(2, 4096))?;
        io.fsync(&log)?;
        let after = rig.drive.counts();
        assert_eq!(after.writes - before.writes, 2, "data and record");
        assert_eq!(after.flushes - before.flushes, u64::from(cache));
        assert_eq!(after.fua - before.fua, u64::from(cache), "the record");
        assert_eq!(after.reads, before.reads);
        let before = after;
        io.write_with(&file, 0, &pattern(3, 4096), WriteFlags::DSYNC)?;
        let after = rig.drive.counts();
        assert_eq!(after.writes - before.writes, 1);
        assert_eq!(after.fua - before.fua, u64::from(cache));
        assert_eq!(after.flushes, before.flushes);
        // Nothing is left to be made durable.
        let before = after;
        io.fsync(&file)?;
        assert_eq!(rig.drive.counts(), before);
    }
    Ok(())
}

/// The journal wraps many times, with checkpoints beside it, and the state is that of the end.
#[test]
fn the_journal_wraps() -> Outcome {
    let rig = Rig::new(4 << 20, 512, true)?;
    let (fs, mut io) = rig.mount()?;
    for turn in 0..2000u32 {
        let name = format!("/f{}", turn % 40);
        if turn % 3 == 2 {
            let _ = fs.unlink(&name);
        } else {
            let file = fs.open(&name, RW)?;
            io.write(
                &file,
                u64::from(turn % 5) * 4096,
                &pattern(turn as u8, 4096),
            )?;
            io.fsync(&file)?;
        }
    }
    let mut names: Vec<_> = fs
        .readdir("/", 0, 100)?
        .into_iter()
        .map(|e| e.name)
        .collect();
    names.sort();
    drop(io);
    // As a power cut leaves it.
    drop(fs);
    let (fs, _io) = rig.mount()?;
    let mut again: Vec<_> = fs
        .readdir("/", 0, 100)?
        .into_iter()
        .map(|e| e.name)
        .collect();
    again.sort();
    assert!(!fs.report().clean);
    assert_eq!(names, again);
    Ok(())
}

/// Truncation, punching and zeroing leave zeros, aligned or not; sizes and holes are as POSIX says.
#[test]
fn ranges_are_zeroed_to_the_byte() -> Outcome {
    for lba in [512, 4096] {
        let rig = Rig::new(4 << 20, lba, true)?;
        let (fs, mut io) = rig.mount()?;
        let file = fs.open("/f", RW)?;
        let mut model = pattern(5, 30_000);
        io.write(&file, 0, &model)?;
        io.fallocate(&file, Fallocate::Punch, 5000, 9001)?;
        model[5000..14_001].fill(0);
        io.fallocate(&file, Fallocate::ZeroKeepSize, 16_383, 4098)?;
        model[16_383..20_481].fill(0);
        io.truncate(&file, 25_001)?;
        model.truncate(25_001);
        io.truncate(&file, 28_000)?;
        model.resize(28_000, 0);
        io.write_zeroes(&file, 100, 1000)?;
        model[100..1100].fill(0);
        io.fallocate(&file, Fallocate::Reserve, 27_000, 20_000)?;
        model.resize(47_000, 0);
        let mut found = vec![1; 50_000];
        let read = io.read(&file, 0, &mut found)?;
        assert_eq!(read, model.len());
        assert!(found[..read] == model);
        assert_eq!(fs.seek_hole(&file, 0)?, 8192);
        assert_eq!(fs.seek_data(&file, 8192)?, 12_288);
    }
    Ok(())
}

/// A volume that is mounted to be read is not written to, and refuses changes.
#[test]
fn read_only_writes_nothing() -> Outcome {
    let rig = Rig::new(4 << 20, 512, true)?;
    let (fs, mut io) = rig.mount()?;
    let file = fs.open("/f", RW)?;
    io.write(&file, 0, b"text")?;
    io.fsync(&file)?;
    drop((io, file, fs));
    let before = rig.drive.counts();
    let mut options = rig.options();
    options.mode = LoadMode::ReadOnly;
    let fs = Fs::mount(rig.drive.queue(), &rig.domain, options)?;
    let mut io: Io = Blocking::new(fs.queue(rig.drive.queue(), Default::default())?);
    let file = fs.open("/f", OpenOptions::new().read(true))?;
    let mut text = [0; 4];
    io.read(&file, 0, &mut text)?;
    assert_eq!(&text, b"text");
    assert!(fs.mkdir("/d", 0o755).is_err());
    assert!(fs.open("/f", RW).is_err());
    drop((io, file));
    fs.unmount()?;
    let after = rig.drive.counts();
    assert_eq!(
        (after.writes, after.flushes),
        (before.writes, before.flushes)
    );
    let mut queue: SimQueue<u8> = rig.drive.queue();
    assert_eq!(queue.poll(|_| {}), 0);
    Ok(())
}

/// A sample of the power-cut campaign: each set, a few workloads, every state.
#[test]
fn a_sample_of_the_campaign_finds_nothing() {
    let domain = DmaDomain::new();
    for set in crash::campaign::Set::ALL {
        for number in 0..2 {
            if set != crash::campaign::Set::D {
                let tried = crash::campaign::try_workload(set, number, 1, &domain);
                assert!(tried.is_ok(), "{tried:?}");
            }
        }
    }
}
