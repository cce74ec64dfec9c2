//! How long a mount takes after a crash: a volume with 1,000,000 extents, and an empty one of 2^48 blocks.
//!
//! Both are on drives in memory that are executed on this thread, so the drive's part is in the figure.
//! Nothing was unmounted: what is in the journal is replayed. It ends by itself.
//!
//!     cargo bench -p doorbell-blockfs --bench mount
#![expect(clippy::print_stdout, reason = "its output is a measurement")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use blockfs::device::{BlockDevice, DriverDevice, Limits};
use blockfs::file::Blocking;
use blockfs::fs::{Blockfs, MkfsOptions, MountOptions, OpenOptions, mkfs};
use blockfs::journal::MetaTag;
use blockfs::tree::Fallocate;
use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::{DmaBuf, DmaDomain};
use driver::namespace::Lba;
use driver::queue::{Completion, Rejected};
use driver::spec::Status;
use nvme_emulator::{Emulator, Namespace};
use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};
use uuid::Uuid;

const ROUNDS: usize = 15;
const BLOCK: u64 = 4096;
/// Extents, and files that have them.
const EXTENTS: u64 = 1_000_000;
const FILES: u64 = 1000;

/// A drive in memory of any size: blocks that were written, by number. Every command ends at once.
#[derive(Clone, Default)]
struct Sparse(Rc<RefCell<HashMap<u64, Vec<u8>>>>);

struct SparseQueue<T> {
    drive: Sparse,
    ended: Vec<Completion<T>>,
}

impl<T> SparseQueue<T> {
    fn end(&mut self, buf: Option<DmaBuf>, ctx: T) -> Result<(), Rejected<T>> {
        self.ended.push(Completion {
            ctx,
            buf,
            status: Status::SUCCESS,
            result: 0,
        });
        Ok(())
    }
}

impl<T> BlockDevice<T> for SparseQueue<T> {
    fn limits(&self) -> Limits {
        Limits {
            blocks: 1 << 48,
            block_size: BLOCK as u32,
            volatile_cache: true,
            write_zeroes: false,
            discard: false,
        }
    }

    fn read(&mut self, lba: Lba, mut buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>> {
        let zeros = vec![0; BLOCK as usize];
        let blocks = self.drive.0.borrow();
        for nth in 0..buf.len() as u64 / BLOCK {
            let block = blocks.get(&(lba.0 + nth)).unwrap_or(&zeros);
            // It is as long as that.
            let _ = buf.write_at((nth * BLOCK) as usize, block);
        }
        drop(blocks);
        self.end(Some(buf), ctx)
    }

    fn write(&mut self, lba: Lba, buf: DmaBuf, _: bool, ctx: T) -> Result<(), Rejected<T>> {
        for nth in 0..buf.len() as u64 / BLOCK {
            let mut block = vec![0; BLOCK as usize];
            let _ = buf.read_at((nth * BLOCK) as usize, &mut block);
            self.drive.0.borrow_mut().insert(lba.0 + nth, block);
        }
        self.end(Some(buf), ctx)
    }

    fn flush(&mut self, ctx: T) -> Result<(), Rejected<T>> {
        self.end(None, ctx)
    }

    fn write_zeroes(&mut self, _: Lba, _: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.end(None, ctx)
    }

    fn discard(&mut self, _: Lba, _: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.end(None, ctx)
    }

    fn ring(&mut self) {}

    fn poll(&mut self, each: impl FnMut(Completion<T>)) -> usize {
        let ended = std::mem::take(&mut self.ended);
        let count = ended.len();
        ended.into_iter().for_each(each);
        count
    }
}

/// An empty volume of 2^48 blocks.
fn largest() -> Result<(), Box<dyn Error>> {
    let (drive, domain) = (Sparse::default(), DmaDomain::new());
    let queue = || SparseQueue {
        drive: drive.clone(),
        ended: Vec::new(),
    };
    let make = MkfsOptions::new(Uuid::from_u128(1));
    mkfs(&mut queue(), &domain, &MountOptions::default(), &make)?;
    measure(
        "an empty volume of 2^48 blocks",
        queue,
        &domain,
        &MountOptions::default(),
    )
}

/// What one mount after the other takes; nothing is ever unmounted.
fn measure<D: BlockDevice<MetaTag>>(
    what: &str,
    mut device: impl FnMut() -> D,
    domain: &DmaDomain,
    options: &MountOptions,
) -> Result<(), Box<dyn Error>> {
    let mut took = Vec::new();
    let mut report = None;
    for _ in 0..ROUNDS {
        let device = device();
        let start = Instant::now();
        let fs: Blockfs<_> =
            Blockfs::mount(device, domain, options.clone()).map_err(|error| error.error)?;
        took.push(start.elapsed());
        report = Some(fs.report().clone());
    }
    took.sort();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let report = report.ok_or("no round")?;
    println!(
        "{what}: {:.2} ms (least {:.2}, most {:.2} of {ROUNDS}); {} pages of a checkpoint, {} records",
        ms(took.get(ROUNDS / 2)),
        ms(took.first()),
        ms(took.last()),
        report.checkpoint_pages,
        report.records
    );
    Ok(())
}

/// A drive, and a way to it.
struct Rig {
    drive: Emulator,
    controller: Controller,
    domain: DmaDomain,
}

impl Rig {
    fn new(bytes: u64) -> Result<Self, Box<dyn Error>> {
        let namespace = Namespace::ram(bytes).block_size(4096);
        let drive = Emulator::builder().namespace(namespace).stepped()?;
        let domain = DmaDomain::new();
        let options = ControllerOptions::default();
        let controller = Controller::attach(drive.transport(), &domain, &options)?;
        let rig = Self {
            drive,
            controller,
            domain,
        };
        let make = MkfsOptions::new(Uuid::from_u128(1));
        mkfs(&mut rig.device()?, &rig.domain, &rig.options(), &make)?;
        Ok(rig)
    }

    fn device<T>(&self) -> Result<DriverDevice<T>, Box<dyn Error>> {
        let options = QueueOptions::default();
        Ok(DriverDevice::open(&self.controller, 1, &options)?)
    }

    fn options(&self) -> MountOptions {
        MountOptions {
            clock: self.drive.transport().clock(),
            ..MountOptions::default()
        }
    }

    fn mount(&self) -> Result<Blockfs<DriverDevice<MetaTag>>, Box<dyn Error>> {
        Ok(Blockfs::mount(
            self.device()?,
            &self.domain,
            self.options(),
        )?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    largest()?;
    let full = Rig::new(32 << 30)?;
    {
        let fs = full.mount()?;
        let mut io = Blocking::new(fs.queue(full.device()?, Default::default())?);
        for file in 0..FILES {
            let options = OpenOptions::new().write(true).create(0o600);
            let file = fs.open(format!("/{file}"), options)?;
            for nth in 0..EXTENTS / FILES {
                io.fallocate(&file, Fallocate::Reserve, nth * 2 * BLOCK, BLOCK)?;
            }
        }
        fs.sync()?;
        println!("{:?}", fs.statfs());
    }
    let options = QueueOptions::default();
    let device = || DriverDevice::open(&full.controller, 1, &options);
    let mut devices: Vec<_> = (0..ROUNDS).map(|_| device()).collect::<Result<_, _>>()?;
    let next = || devices.pop().unwrap_or_else(|| unreachable!("one a round"));
    measure("1,000,000 extents", next, &full.domain, &full.options())
}
