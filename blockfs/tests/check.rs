//! fsck on a drive whose metadata rot: every answer is a report or a typed error, and what is salvaged
//! is what was written.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use blockfs::check::{check, repair};
use blockfs::device::DriverDevice;
use blockfs::file::Blocking;
use blockfs::format::op::Kind;
use blockfs::fs::{Blockfs, MkfsOptions, MountOptions, OpenOptions, mkfs};
use blockfs::journal::{LoadMode, MetaTag};
use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::DmaDomain;
use driver::namespace::{BlockingIo, Lba};
use nvme_emulator::{Emulator, Namespace};
use uuid::Uuid;

const BLOCK: u64 = 4096;
const BYTES: u64 = 8 << 20;

struct Bench {
    domain: DmaDomain,
    controller: Controller,
    _drive: Emulator,
}

impl Bench {
    fn new() -> Self {
        let drive = Emulator::builder()
            .namespace(Namespace::ram(BYTES))
            .start()
            .unwrap();
        let domain = DmaDomain::new();
        let options = ControllerOptions::default();
        let controller = Controller::attach(drive.transport(), &domain, &options).unwrap();
        Self {
            domain,
            controller,
            _drive: drive,
        }
    }

    fn device<T>(&self) -> DriverDevice<T> {
        DriverDevice::open(&self.controller, 1, &QueueOptions::default()).unwrap()
    }

    fn mount(&self, mode: LoadMode) -> Result<Blockfs<DriverDevice<MetaTag>>, String> {
        let options = MountOptions {
            mode,
            ..MountOptions::default()
        };
        let mounted = Blockfs::mount(self.device(), &self.domain, options);
        mounted.map_err(|error| error.error.to_string())
    }

    fn blocks(&self) -> BlockingIo {
        let queue = self
            .controller
            .queue_pair(&QueueOptions::default())
            .unwrap();
        BlockingIo::new(queue, self.controller.namespace(1).unwrap())
    }

    /// What is in a block.
    fn read(&self, io: &mut BlockingIo, block: u64) -> Vec<u8> {
        let buf = self.domain.alloc(4096).unwrap();
        let buf = io.read(Lba(block * 8), buf).unwrap();
        let mut bytes = vec![0; 4096];
        buf.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn write(&self, io: &mut BlockingIo, block: u64, bytes: &[u8]) {
        let mut buf = self.domain.alloc(4096).unwrap();
        buf.write_at(0, bytes).unwrap();
        io.write(Lba(block * 8), buf).unwrap();
    }
}

/// What file number `nth` holds.
fn contents(nth: u8) -> Vec<u8> {
    vec![nth; 1000 * usize::from(nth)]
}

/// A volume with files, left as it was before an unmount if it `crashed`.
fn filled(crashed: bool) -> Bench {
    let bench = Bench::new();
    let options = MountOptions::default();
    let make = MkfsOptions::new(Uuid::from_u128(42));
    mkfs(&mut bench.device(), &bench.domain, &options, &make).unwrap();
    let fs = bench.mount(LoadMode::ReadWrite).unwrap();
    let mut io = Blocking::new(fs.queue(bench.device(), blockfs::iostat::Off).unwrap());
    for dir in ["/a", "/a/b"] {
        fs.mkdir(dir, 0o755).unwrap();
        for nth in 0..20 {
            let path = format!("{dir}/{nth}");
            let file = fs
                .open(&path, OpenOptions::new().write(true).create(0o644))
                .unwrap();
            io.write(&file, 0, &contents(nth)).unwrap();
        }
        fs.sync().unwrap();
    }
    drop(io);
    if crashed {
        drop(fs);
    } else {
        fs.unmount().unwrap();
    }
    bench
}

fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What a mounted volume still has: each file that can be read is what was written.
fn look(bench: &Bench, fs: &Blockfs<DriverDevice<MetaTag>>, what: &str) -> usize {
    let found = fs.salvaged();
    let mut io = Blocking::new(fs.queue(bench.device(), blockfs::iostat::Off).unwrap());
    for found in found.iter().filter(|found| found.stat.kind == Kind::File) {
        let file = fs.open_salvaged(found).unwrap();
        let mut bytes = vec![0; usize::try_from(found.stat.size).unwrap()];
        io.read(&file, 0, &mut bytes).unwrap();
        let name = String::from_utf8(found.path.clone()).unwrap();
        let nth: u8 = name.rsplit('/').next().unwrap().parse().unwrap();
        // Of a file whose last records are lost less may be there, but nothing else.
        assert!(contents(nth).starts_with(&bytes), "{what}: {name}");
    }
    found.len()
}

/// A sound volume has no problems, and all of it is found.
#[test]
fn a_sound_volume_is_clean() {
    let bench = filled(false);
    let options = MountOptions::default();
    let (report, device) = check(bench.device(), &bench.domain, &options).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let counts = report.counts.unwrap();
    assert_eq!(
        (counts.files, counts.directories, counts.names),
        (40, 3, 42)
    );
    let (again, _) = check(device, &bench.domain, &options).unwrap();
    assert_eq!(again.counts, Some(counts));
    let fs = bench.mount(LoadMode::Salvage).unwrap();
    assert_eq!(look(&bench, &fs, "sound"), 42);
}

/// After a crash there is something to repair, and after the repair nothing.
#[test]
fn a_crash_is_repaired() {
    let bench = filled(true);
    let options = MountOptions::default();
    let (report, device) = check(bench.device(), &bench.domain, &options).unwrap();
    let codes: Vec<_> = report
        .problems
        .iter()
        .map(|problem| problem.code())
        .collect();
    assert_eq!(codes, ["not-unmounted"]);
    assert!(report.is_repairable());
    let device = repair(device, &bench.domain, &options).unwrap();
    let (after, _) = check(device, &bench.domain, &options).unwrap();
    assert!(after.is_clean(), "{after:?}");
}

/// Bytes rot in the metadata, in a few places at a time: the check ends, says so unless nobody reads
/// the place any more, and agrees with a mount about what can be mounted; nothing wrong is salvaged.
#[test]
fn rot_is_told_from_health() {
    let seed = std::env::var("DOORBELL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mut state = seed.unwrap_or(1);
    eprintln!("DOORBELL_SEED={state}");
    let (mut found, mut unusable) = (0, 0);
    for round in 0..60 {
        let bench = filled(round % 2 == 0);
        let mut io = bench.blocks();
        // Superblock, the journal's first blocks, both checkpoints' first, superblock B, the last.
        let places: Vec<u64> = (0..12)
            .chain(128..132)
            .chain(250..270)
            .chain([BYTES / BLOCK - 1])
            .collect();
        let mut what = format!("round {round}:");
        for _ in 0..=next(&mut state) % 3 {
            let block = places[usize::try_from(next(&mut state)).unwrap() % places.len()];
            let mut bytes = bench.read(&mut io, block);
            // Where there is something, mostly.
            let used = bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(4096, |last| last + 1);
            let at = usize::try_from(next(&mut state)).unwrap() % used;
            bytes[at] ^= 1 << (next(&mut state) % 8);
            what = format!("{what} block {block} byte {at}");
            bench.write(&mut io, block, &bytes);
        }
        let options = MountOptions::default();
        let (report, _) = check(bench.device(), &bench.domain, &options)
            .unwrap_or_else(|error| panic!("{what}: {}", error.error));
        let mountable = bench.mount(LoadMode::ReadOnly).is_ok();
        let fatal = report
            .problems
            .iter()
            .any(|problem| problem.code() == "unusable");
        assert_eq!(mountable, !fatal, "{what}: {report:?}");
        found += usize::from(!report.is_clean());
        unusable += usize::from(fatal);
        match bench.mount(LoadMode::Salvage) {
            Ok(fs) => assert!(look(&bench, &fs, &what) <= 42),
            Err(error) => assert!(fatal, "{what}: {error}"),
        }
        if report.is_repairable() {
            let device = repair(bench.device(), &bench.domain, &options);
            let device = device.unwrap_or_else(|(error, _)| panic!("{what}: {error}"));
            let (after, _) = check(device, &bench.domain, &options).unwrap();
            assert!(after.is_clean(), "{what}: {after:?}");
        }
    }
    assert!(
        found > 30 && unusable > 3,
        "{found} found, {unusable} of them unusable"
    );
}
