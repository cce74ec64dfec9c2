//! Syncs of several threads, and how long they take while checkpoints run, in virtual time.

use blockfs::file::{Blocking, IoQueue, Tag, WriteFlags};
use blockfs::format::geometry::LayoutOptions;
use blockfs::fs::{Blockfs, File, MkfsOptions, MountOptions, OpenOptions, mkfs};
use blockfs::journal::MetaTag;
use crash::contents::Contents;
use crash::sim::{SimNvme, SimOptions, SimQueue};
use driver::memory::DmaDomain;
use nvme_emulator::media::{Media, Store};
use std::time::Duration;
use uuid::Uuid;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Fs = Blockfs<SimQueue<MetaTag>>;
type Io = Blocking<SimQueue<Tag<()>>, SimQueue<MetaTag>>;

/// What a poll takes.
const POLL: Duration = Duration::from_nanos(200);

struct Rig {
    drive: SimNvme,
    domain: DmaDomain,
    fs: Fs,
}

impl Rig {
    /// A volume of 64 MiB on a drive whose commands take 20 to 30 microseconds.
    fn new(journal_bytes: u64) -> Outcome<Self> {
        let media = Media::new(Store::ram(64 << 20)?, 512, Some(64 << 20))?;
        let options = SimOptions {
            poll: Some(POLL),
            ..SimOptions::default()
        };
        let drive = SimNvme::new(Contents::Media(Box::new(media)), options);
        let domain = DmaDomain::new();
        let options = MountOptions {
            clock: drive.clock(),
            ..MountOptions::default()
        };
        let mut make = MkfsOptions::new(Uuid::from_u128(7));
        make.layout = LayoutOptions {
            journal_bytes: Some(journal_bytes),
            checkpoint_bytes: Some(8 << 20),
        };
        mkfs(&mut drive.queue(), &domain, &options, &make)?;
        let fs = Fs::mount(drive.queue(), &domain, options).map_err(|error| error.error)?;
        Ok(Self { drive, domain, fs })
    }

    fn io(&self) -> Outcome<Io> {
        let queue = self.fs.queue(self.drive.queue(), Default::default())?;
        Ok(Blocking::new(queue))
    }

    fn file(&self, path: &str) -> Outcome<File> {
        let options = OpenOptions::new().read(true).write(true).create(0o644);
        Ok(self.fs.open(path, options)?)
    }

    fn now(&self) -> Duration {
        self.drive.clock().now()
    }
}

/// A thread whose sync is under way is never polled again, wherever it was; another thread's sync ends.
#[test]
fn who_began_a_commit_may_be_parked_for_ever() -> Outcome {
    for polls in 0..40 {
        let rig = Rig::new(64 << 10)?;
        let (first, second) = (rig.file("/first")?, rig.file("/second")?);
        let mut parked: IoQueue<SimQueue<Tag<()>>, (), _> =
            rig.fs.queue(rig.drive.queue(), Default::default())?;
        let buf = rig.domain.alloc(4096)?;
        parked
            .write_at(&first, 0, buf, WriteFlags::DSYNC, ())
            .map_err(|refused| refused.reason)?;
        let _ = parked.fsync(&first, ());
        parked.ring();
        for _ in 0..polls {
            parked.poll(|_| {});
        }
        let mut io = rig.io()?;
        io.write(&second, 0, &[2; 5000])?;
        let before = rig.now();
        io.fsync(&second)?;
        assert!(rig.now() - before < Duration::from_millis(1), "{polls}");
        drop(parked);
    }
    Ok(())
}

/// What fsyncs after a write of a new block take, in order of length.
fn fsyncs(rig: &Rig, count: u64, checkpoints: bool) -> Outcome<Vec<Duration>> {
    let (mut io, file) = (rig.io()?, rig.file("/file")?);
    let mut took = Vec::new();
    for nth in 0..count {
        if checkpoints {
            rig.fs.begin_checkpoint()?;
        }
        io.write(&file, nth % 2000 * 4096, &[1; 4096])?;
        let before = rig.now();
        io.fsync(&file)?;
        took.push(rig.now() - before);
        if nth % 2000 == 1999 {
            io.truncate(&file, 0)?;
        }
    }
    took.sort_unstable();
    Ok(took)
}

fn percentile(sorted: &[Duration], per_mille: usize) -> Duration {
    let at = (sorted.len() * per_mille / 1000).min(sorted.len() - 1);
    sorted[at]
}

/// Files enough that a checkpoint has megabytes.
fn populate(rig: &Rig) -> Outcome {
    for nth in 0..6000 {
        rig.fs.open(
            format!("/a file with a name of some length, number {nth}"),
            OpenOptions::new().write(true).create(0o600),
        )?;
    }
    rig.fs.checkpoint()?;
    Ok(())
}

/// p99.9 of fsync while checkpoints run without a pause is at most twice that without any.
#[test]
fn checkpoints_do_not_hold_up_syncs() -> Outcome {
    const COUNT: u64 = 4000;
    let rig = Rig::new(32 << 20)?;
    populate(&rig)?;
    let before = rig.fs.statfs();
    let writes = || rig.drive.counts().writes;
    let start = writes();
    let without = fsyncs(&rig, COUNT, false)?;
    let middle = writes();
    let with = fsyncs(&rig, COUNT, true)?;
    let more = (writes() - middle) - (middle - start);
    println!("{more} writes more while checkpoints ran");
    assert!(more > 2 * COUNT, "checkpoints paused");
    let show = |what, times: &[Duration]| {
        println!(
            "fsync {what}: p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}",
            percentile(times, 500),
            percentile(times, 990),
            percentile(times, 999),
            percentile(times, 1000)
        );
    };
    println!("a checkpoint has {} bytes", before.metadata_bytes);
    show("without checkpoints", &without);
    show("while checkpoints run", &with);
    assert!(percentile(&with, 999) <= 2 * percentile(&without, 999));
    Ok(())
}

/// With a ring that is always nearly full, changes wait a little each, and none for a whole checkpoint.
#[test]
fn a_full_journal_slows_everybody_a_little() -> Outcome {
    let rig = Rig::new(128 << 10)?;
    populate(&rig)?;
    let started = rig.now();
    rig.fs.checkpoint()?;
    let checkpoint = rig.now() - started;
    let mut took = Vec::new();
    for nth in 0..6000 {
        let before = rig.now();
        rig.fs.open(
            format!("/one more with a name of some length, number {nth}"),
            OpenOptions::new().write(true).create(0o600),
        )?;
        took.push(rig.now() - before);
    }
    took.sort_unstable();
    let waited = took.iter().filter(|took| **took > POLL).count();
    let longest = percentile(&took, 1000);
    println!(
        "a checkpoint alone takes {checkpoint:?}; of {} changes {waited} waited: p99 {:?}, p99.9 {:?}, longest {longest:?}",
        took.len(),
        percentile(&took, 990),
        percentile(&took, 999)
    );
    assert!(waited > 0, "the ring was never full");
    Ok(())
}
