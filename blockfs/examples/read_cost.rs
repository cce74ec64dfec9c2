//! What blockfs adds to a random 4 KiB read: the same reads of one drive through a mapped file and
//! through the raw driver, in batches that alternate.
//!
//! The drive is stepped, so it works between the parts that are measured, on this thread. It prints
//! nanoseconds. `tests/cost` runs it under callgrind, which counts the instructions of the
//! functions `cost_raw_` and `cost_file_`, and looks at what they are made of.
//!
//!     cargo run --release -p doorbell-blockfs --example read_cost
#![expect(clippy::print_stdout, reason = "its output is a measurement")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use blockfs::device::{BlockDevice, DriverDevice};
use blockfs::file::{Blocking, IoQueue, Tag};
use blockfs::fs::{Blockfs, File, MkfsOptions, MountOptions, OpenOptions, mkfs};
use blockfs::journal::MetaTag;
use driver::clock::Clock;
use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::{DmaBuf, DmaDomain};
use driver::namespace::{Lba, Namespace};
use driver::queue::QueuePair;
use nvme_emulator::{Emulator, Namespace as Drive};
use std::env;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

type Meta = DriverDevice<MetaTag>;
type Files = IoQueue<DriverDevice<Tag<u32>>, u32, Meta>;

const BLOCK: u64 = 4096;
/// Blocks of the file, and extents of the one that is in pieces.
const BLOCKS: u64 = 1000;
/// Reads of a batch; the test knows it, and the number of batches under callgrind, too.
const BATCH: usize = 50;
const COUNTED: usize = 20;
/// Batches of one measurement, and pairs of measurements.
const BATCHES: usize = 400;
const PAIRS: usize = 60;

const DRIVE_BYTES: u64 = 64 << 20;

/// Lets both drives work whenever somebody waits.
#[derive(Debug)]
struct Both(Arc<dyn Clock>, Arc<dyn Clock>);

impl Clock for Both {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn pause(&self, duration: Duration) {
        self.0.pause(duration);
        self.1.pause(duration);
    }
}

/// The raw driver, its buffers, and the logical blocks to read.
struct Raw {
    queue: QueuePair<u32>,
    namespace: Namespace,
    bufs: Vec<DmaBuf>,
    places: Vec<u64>,
}

/// A file, its buffers, and the offsets to read.
struct Mapped {
    queue: Files,
    file: File,
    bufs: Vec<DmaBuf>,
    places: Vec<u64>,
}

#[inline(never)]
fn cost_raw_submit(raw: &mut Raw, from: usize) -> usize {
    let mut sent = 0;
    for &lba in raw.places.iter().skip(from).take(BATCH) {
        let Some(buf) = raw.bufs.pop() else { break };
        let taken = raw.namespace.read(&mut raw.queue, Lba(lba), buf, 7);
        sent += usize::from(taken.is_ok());
    }
    raw.queue.ring();
    sent
}

#[inline(never)]
fn cost_raw_poll(raw: &mut Raw) -> u32 {
    let (queue, bufs, mut sum) = (&mut raw.queue, &mut raw.bufs, 0);
    queue.poll(|done| {
        sum += done.ctx + u32::from(!done.status.is_success());
        if let Some(buf) = done.buf
            && bufs.len() < bufs.capacity()
        {
            bufs.push(buf);
        }
    });
    sum
}

#[inline(never)]
fn cost_file_submit(mapped: &mut Mapped, from: usize) -> usize {
    let mut sent = 0;
    for &offset in mapped.places.iter().skip(from).take(BATCH) {
        let Some(buf) = mapped.bufs.pop() else { break };
        let taken = mapped.queue.read_at(&mapped.file, offset, buf, 7);
        sent += usize::from(taken.is_ok());
    }
    mapped.queue.ring();
    sent
}

#[inline(never)]
fn cost_file_poll(mapped: &mut Mapped) -> u32 {
    let (queue, bufs, mut sum) = (&mut mapped.queue, &mut mapped.bufs, 0);
    queue.poll(|done| {
        sum += done.ctx + u32::from(done.result.is_err());
        if let Some(buf) = done.buf
            && bufs.len() < bufs.capacity()
        {
            bufs.push(buf);
        }
    });
    sum
}

/// Runs batches; says how many nanoseconds the host's part of one read took.
#[inline(always)]
fn batches<Q>(
    drive: &Emulator,
    queue: &mut Q,
    count: usize,
    submit: fn(&mut Q, usize) -> usize,
    poll: fn(&mut Q) -> u32,
) -> Result<f64, &'static str> {
    let mut nanos = 0;
    for batch in 0..count {
        let start = Instant::now();
        let sent = submit(queue, batch * BATCH % BLOCKS as usize);
        nanos += start.elapsed().as_nanos();
        drive.step();
        let start = Instant::now();
        let sum = poll(queue);
        nanos += start.elapsed().as_nanos();
        if sent != BATCH || sum != 7 * BATCH as u32 {
            return Err("not every read succeeded");
        }
    }
    Ok(nanos as f64 / (count * BATCH) as f64)
}

fn buffers(domain: &DmaDomain) -> Result<Vec<DmaBuf>, Box<dyn Error>> {
    let bufs: Result<Vec<_>, _> = (0..BATCH).map(|_| domain.alloc(BLOCK as usize)).collect();
    Ok(bufs?)
}

/// All blocks in an order without pattern.
fn shuffled() -> Vec<u64> {
    // A step that shares no factor with the number of blocks goes through all of them.
    (0..BLOCKS).map(|nth| nth * 617 % BLOCKS).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let extents: Vec<u64> = env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let counting = env::args().any(|word| word == "count");
    for &extents in if extents.is_empty() {
        &[1, BLOCKS][..]
    } else {
        &extents
    } {
        measure(extents, counting)?;
    }
    Ok(())
}

fn measure(extents: u64, counting: bool) -> Result<(), Box<dyn Error>> {
    // What the drive moves would push what the host needs out of the caches, which DMA does not: so
    // the data are on one that moves none, and only the metadata on one that does.
    let (domain, options) = (DmaDomain::new(), QueueOptions::default());
    let attach = |namespace| -> Result<(Emulator, Controller), Box<dyn Error>> {
        let drive = Emulator::builder().namespace(namespace).stepped()?;
        let controller =
            Controller::attach(drive.transport(), &domain, &ControllerOptions::default())?;
        Ok((drive, controller))
    };
    let (metadata, for_metadata) = attach(Drive::ram(DRIVE_BYTES))?;
    let (drive, controller) = attach(Drive::null(DRIVE_BYTES))?;
    let mount = MountOptions {
        clock: Arc::new(Both(
            metadata.transport().clock(),
            drive.transport().clock(),
        )),
        ..MountOptions::default()
    };
    let mut device = DriverDevice::open(&for_metadata, 1, &options)?;
    let make = MkfsOptions::new(Uuid::from_u128(1));
    mkfs(&mut device, &domain, &mount, &make)?;
    let fs = Blockfs::mount(device, &domain, mount)?;
    let device = DriverDevice::open(&controller, 1, &options)?;
    let mut io = Blocking::new(fs.queue(device, Default::default())?);
    let file = filled(&fs, &mut io, extents)?;
    let device = DriverDevice::open(&controller, 1, &options)?;
    let queue: Files = fs.queue(device, Default::default())?;
    let places = shuffled();
    let mut raw = Raw {
        queue: controller.queue_pair(&options)?,
        namespace: controller.namespace(1)?,
        bufs: buffers(&domain)?,
        places: places.iter().map(|block| block * 8).collect(),
    };
    let mut mapped = Mapped {
        queue,
        file,
        bufs: buffers(&domain)?,
        places: places.iter().map(|block| block * BLOCK).collect(),
    };
    if counting {
        batches(&drive, &mut raw, COUNTED, cost_raw_submit, cost_raw_poll)?;
        batches(
            &drive,
            &mut mapped,
            COUNTED,
            cost_file_submit,
            cost_file_poll,
        )?;
        return Ok(());
    }
    let mut more = Vec::new();
    let (mut raws, mut files) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let one = |raw: &mut Raw| batches(&drive, raw, BATCHES, cost_raw_submit, cost_raw_poll);
        let other = |mapped: &mut Mapped| {
            batches(&drive, mapped, BATCHES, cost_file_submit, cost_file_poll)
        };
        let (raw, file) = match pair % 2 {
            0 => (one(&mut raw)?, other(&mut mapped)?),
            _ => {
                let file = other(&mut mapped)?;
                (one(&mut raw)?, file)
            }
        };
        more.push(file - raw);
        raws.push(raw);
        files.push(file);
    }
    let (least, median, most) = interval(more);
    println!(
        "{extents:>5} extents: raw {:.1} ns, file {:.1} ns a read; {median:.1} ns more ({least:.1} to {most:.1}, \
         95 % interval of the median of {PAIRS} pairs)",
        interval(raws).1,
        interval(files).1
    );
    black_box(&mapped);
    Ok(())
}

/// The median of differences, between the ends of its 95 % interval by order statistics.
fn interval(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    let half = 0.98 * (all.len() as f64).sqrt();
    let middle = all.len() as f64 / 2.0;
    let at = |index: f64| {
        all.get(index.max(0.0) as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    (at(middle - half), at(middle), at(middle + half))
}

/// A file of so many extents.
fn filled<Q: BlockDevice<Tag<()>>>(
    fs: &Blockfs<Meta>,
    io: &mut Blocking<Q, Meta>,
    extents: u64,
) -> Result<File, Box<dyn Error>> {
    let options = OpenOptions::new().read(true).write(true).create(0o600);
    let (file, other) = (fs.open("/file", options)?, fs.open("/other", options)?);
    let piece = BLOCKS / extents;
    let data = vec![1; usize::try_from(piece * BLOCK)?];
    for nth in 0..extents {
        io.write(&file, nth * piece * BLOCK, &data)?;
        // So that the next is not behind it.
        io.write(&other, nth * BLOCK, &[2; BLOCK as usize])?;
    }
    let found = fs.fiemap(&file, 0, u64::MAX)?.len();
    if found as u64 != extents {
        return Err(format!("{found} extents instead of {extents}").into());
    }
    Ok(file)
}
