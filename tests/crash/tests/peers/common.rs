//! Volumes for the tests, and several queues whose operations interleave as a seed says.

use blockfs::file::{Blocking, Done, IoQueue, Tag};
use blockfs::format::geometry::LayoutOptions;
use blockfs::fs::{File, FsError, MkfsOptions, MountOptions, OpenOptions, mkfs};
use blockfs::journal::MetaTag;
use crash::contents::Contents;
use crash::model::data_of;
use crash::run::{Fs, Io};
use crash::sim::{SimNvme, SimOptions, SimQueue};
use driver::memory::{DmaBuf, DmaDomain};
use nvme_emulator::media::{Media, Store};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use uuid::Uuid;

/// What a test comes to.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Opens for reading and writing; creates.
pub(crate) const RW: OpenOptions = OpenOptions::new().read(true).write(true).create(0o644);
/// Opens for reading.
pub(crate) const READ: OpenOptions = OpenOptions::new().read(true);

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

/// A mounted volume on a simulated drive.
pub(crate) struct Volume {
    /// The drive.
    pub(crate) drive: SimNvme,
    /// Its memory.
    pub(crate) domain: DmaDomain,
    /// The filesystem.
    pub(crate) fs: Fs,
    /// A queue that is waited for.
    pub(crate) io: Io,
}

impl Volume {
    /// An empty volume of `bytes`, of which a MiB is not for data.
    pub(crate) fn new(bytes: u64, lba: u32, volatile_cache: bool) -> Outcome<Self> {
        let cache = volatile_cache.then_some(64 << 20);
        let media = Media::new(Store::ram(bytes)?, lba, cache)?;
        let options = SimOptions {
            volatile_cache,
            ..SimOptions::default()
        };
        let drive = SimNvme::new(Contents::Media(Box::new(media)), options);
        let domain = DmaDomain::new();
        let mut make = MkfsOptions::new(Uuid::from_u128(9));
        make.layout = LayoutOptions {
            journal_bytes: Some(64 << 10),
            checkpoint_bytes: Some(if bytes > 2 << 20 { 512 << 10 } else { 64 << 10 }),
        };
        mkfs(&mut drive.queue(), &domain, &options_of(&drive), &make)?;
        Self::mount(drive, domain)
    }

    /// Mounts what is on the drive.
    pub(crate) fn mount(drive: SimNvme, domain: DmaDomain) -> Outcome<Self> {
        let fs = Fs::mount(drive.queue(), &domain, options_of(&drive));
        let fs = fs.map_err(|failed| failed.error)?;
        let io = Blocking::new(fs.queue(drive.queue(), Default::default())?);
        Ok(Self {
            drive,
            domain,
            fs,
            io,
        })
    }

    /// Unmounts and mounts; nothing contradicts itself, before and after.
    pub(crate) fn remount(self) -> Outcome<Self> {
        crash::check::sound(&self.fs)?;
        let hash = self.fs.state_hash();
        let Self {
            drive,
            domain,
            fs,
            io,
        } = self;
        drop(io);
        drop(fs.unmount()?);
        let again = Self::mount(drive, domain)?;
        crash::check::sound(&again.fs)?;
        assert_eq!(again.fs.state_hash(), hash, "another state after a mount");
        Ok(again)
    }

    /// A queue of another thread.
    pub(crate) fn other_io(&self) -> Outcome<Io> {
        let queue = self.fs.queue(self.drive.queue(), Default::default())?;
        Ok(Blocking::new(queue))
    }

    /// Several queues.
    pub(crate) fn lanes(&self, count: usize, seed: u64) -> Outcome<Lanes> {
        let queue = |_| self.fs.queue(self.drive.queue(), Default::default());
        let queues: Result<Vec<Queue>, FsError> = (0..count).map(queue).collect();
        Ok(Lanes {
            queues: queues?,
            rng: fastrand::Rng::with_seed(seed),
            next: 0,
            done: BTreeMap::new(),
        })
    }

    /// Opens, and creates.
    pub(crate) fn file(&self, path: &str) -> Outcome<File> {
        Ok(self.fs.open(path, RW)?)
    }

    /// All of a file.
    pub(crate) fn contents(&mut self, file: &File) -> Outcome<Vec<u8>> {
        let size = self.fs.fstat(file)?.size;
        let mut data = vec![0; usize::try_from(size)?];
        let read = self.io.read(file, 0, &mut data)?;
        assert_eq!(read, data.len());
        Ok(data)
    }

    /// The names in a directory.
    pub(crate) fn names(&self, path: &str) -> Outcome<Vec<String>> {
        let entries = self.fs.readdir(path, 0, usize::MAX)?;
        let names = entries.into_iter().map(|e| String::from_utf8(e.name));
        let mut names = names.collect::<Result<Vec<_>, _>>()?;
        names.sort();
        Ok(names)
    }

    /// Free blocks, when nothing is on its way any more.
    pub(crate) fn free(&self) -> Outcome<u64> {
        self.fs.sync()?;
        self.fs.pump();
        Ok(self.fs.statfs().free_blocks)
    }
}

fn options_of(drive: &SimNvme) -> MountOptions {
    MountOptions {
        clock: drive.clock(),
        // Time passes as fast as threads wait.
        limit: Duration::from_secs(1 << 40),
        ..MountOptions::default()
    }
}

/// Does `test` on an empty volume of each kind: logical blocks of 512 and 4096 bytes, with a volatile
/// cache and without.
pub(crate) fn on_each_kind(bytes: u64, test: impl Fn(Volume, u64) -> Outcome) -> Outcome {
    for lba in [512, 4096] {
        for volatile_cache in [true, false] {
            let volume = Volume::new(bytes, lba, volatile_cache)?;
            let done = test(volume, u64::from(lba));
            done.map_err(|error| format!("{lba} bytes, volatile {volatile_cache}: {error}"))?;
        }
    }
    Ok(())
}

/// The errno of what failed, 0 of what did not.
pub(crate) fn errno<T>(done: Result<T, FsError>) -> i32 {
    done.err().map_or(0, |error| error.errno())
}

/// Bytes that tell where and by which write they were written.
pub(crate) fn pattern(fill: u32, at: u64, len: u64) -> Vec<u8> {
    data_of(fill, at, len)
}

/// A queue whose operations have numbers.
pub(crate) type Queue = IoQueue<SimQueue<Tag<u64>>, u64, SimQueue<MetaTag>>;

/// Several queues, polled in an order that a seed decides: what threads may do, and it repeats.
pub(crate) struct Lanes {
    queues: Vec<Queue>,
    /// Decides.
    pub(crate) rng: fastrand::Rng,
    next: u64,
    done: BTreeMap<u64, Done<u64>>,
}

impl Lanes {
    /// Submits something on a lane; its number.
    pub(crate) fn submit(
        &mut self,
        lane: usize,
        submit: impl FnOnce(&mut Queue, u64) -> Result<(), blockfs::fs::Refused<u64>>,
    ) -> Outcome<u64> {
        let number = self.next;
        self.next += 1;
        submit(&mut self.queues[lane], number).map_err(|refused| refused.reason)?;
        self.queues[lane].ring();
        Ok(number)
    }

    /// A write of `data`.
    pub(crate) fn write(
        &mut self,
        lane: usize,
        domain: &DmaDomain,
        file: &File,
        at: u64,
        data: &[u8],
    ) -> Outcome<u64> {
        let mut buf = domain.alloc(data.len())?;
        buf.write_at(0, data)?;
        let flags = blockfs::file::WriteFlags::NONE;
        self.submit(lane, |queue, n| queue.write_at(file, at, buf, flags, n))
    }

    /// A read of `len` bytes.
    pub(crate) fn read(
        &mut self,
        lane: usize,
        domain: &DmaDomain,
        file: &File,
        at: u64,
        len: usize,
    ) -> Outcome<u64> {
        let buf = domain.alloc(len)?;
        self.submit(lane, |queue, n| queue.read_at(file, at, buf, n))
    }

    /// Polls one lane or another, once.
    pub(crate) fn poll(&mut self) {
        let lane = self.rng.usize(0..self.queues.len());
        let done = &mut self.done;
        self.queues[lane].poll(|ended| drop(done.insert(ended.ctx, ended)));
    }

    /// Polls until an operation has ended, others meanwhile.
    pub(crate) fn wait(&mut self, number: u64) -> Outcome<Done<u64>> {
        for _ in 0..10_000_000u32 {
            if let Some(done) = self.done.remove(&number) {
                return Ok(done);
            }
            self.poll();
        }
        Err(format!("operation {number} does not end").into())
    }

    /// What an operation that has ended came to, if it has.
    pub(crate) fn take(&mut self, number: u64) -> Option<Done<u64>> {
        self.done.remove(&number)
    }

    /// Waits for an operation that succeeds; the bytes.
    pub(crate) fn finish(&mut self, number: u64) -> Outcome<u64> {
        Ok(self.wait(number)?.result?)
    }

    /// Waits for a read; what it found.
    pub(crate) fn found(&mut self, number: u64) -> Outcome<Vec<u8>> {
        bytes_of(self.wait(number)?)
    }
}

/// What a read found.
pub(crate) fn bytes_of(done: Done<u64>) -> Outcome<Vec<u8>> {
    let bytes = usize::try_from(done.result?)?;
    let buf: DmaBuf = done.buf.ok_or("no buffer")?;
    let mut data = vec![0; bytes];
    buf.read_at(0, &mut data)?;
    Ok(data)
}
