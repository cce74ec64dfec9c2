//! Work that ends when the host kills QEMU. The host finds out afterwards what a power cut may have left.

use crate::machine;
use crate::test::{Context, Outcome, Test};
use blockfs::device::{BlockDevice, DriverDevice, Limits};
use blockfs::file::Blocking;
use blockfs::format::geometry::LayoutOptions;
use blockfs::fs::{Blockfs, MkfsOptions, MountOptions, mkfs};
use blockfs::journal::MetaTag;
use crash::act::both;
use crash::check::chain;
use crash::model::Model;
use crash::workloads;
use driver::controller::QueueOptions;
use driver::memory::{DmaBuf, DmaDomain};
use driver::namespace::{BlockingIo, Lba};
use driver::queue::{Completion, Rejected};
use driver::spec::Status;
use hil::boots::CUT_BOOTS;
use hil::cuts::{self, Mark};
use hil::data::Attached;
use hil::report::Line;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

pub(crate) fn tests() -> Vec<Test> {
    let test = |name, forgetful| {
        Test::new(name, CUT_BOOTS, move |context| work(context, forgetful))
            .within(Duration::from_secs(240))
    };
    vec![test(cuts::HONEST, false), test(cuts::FORGETFUL, true)]
}

/// Works until the power goes.
fn work(context: &Context, forgetful: bool) -> Outcome {
    let [controller] = context.boot.controllers else {
        return Err("not one controller".into());
    };
    let attached = machine::attach(controller)?;
    let drive = Drive {
        marks: Rc::new(RefCell::new(Marks::new(&attached)?)),
        forgetful: Rc::new(Cell::new(false)),
    };
    let (lba, options) = (drive.marks.borrow().lba, MountOptions::default());
    let mut make = MkfsOptions::new(Uuid::from_u128(1));
    make.layout = LayoutOptions {
        journal_bytes: Some(64 << 10),
        checkpoint_bytes: Some(64 << 10),
    };
    make.device_blocks = Some(lba.0);
    let domain = &attached.domain;
    mkfs(&mut drive.queue(&attached)?, domain, &options, &make)?;
    let fs = Blockfs::mount(drive.queue::<MetaTag>(&attached)?, domain, options)
        .map_err(|error| chain(&error))?;
    let mut io = Blocking::new(fs.queue(drive.queue(&attached)?, Default::default())?);
    let mut model = Model::default();
    let failed = |error: Box<dyn Error + Send + Sync>| -> Box<dyn Error> { error };
    for action in workloads::setup() {
        both(&fs, &mut io, &mut model, &action).map_err(failed)?;
    }
    fs.sync()?;
    drive.marks.borrow_mut().write(Mark::Ready)?;
    drive.forgetful.set(forgetful);
    let mut report = File::options().write(true).open(crate::init::REPORT)?;
    for (step, action) in (0..).zip(cuts::actions(context.seed)) {
        drive.marks.borrow_mut().write(Mark::Begin { step })?;
        let changed = both(&fs, &mut io, &mut model, &action).map_err(failed)?;
        drive
            .marks
            .borrow_mut()
            .write(Mark::End { step, changed })?;
        if changed && cuts::is_durable(&action) {
            let steps = usize::try_from(step)? + 1;
            writeln!(report, "{}", Line::Durable { steps })?;
        }
    }
    Err("the power stayed on".into())
}

/// Writes marks, on a queue of its own.
#[derive(Debug)]
struct Marks {
    io: BlockingIo,
    domain: DmaDomain,
    lba: Lba,
    block: Vec<u8>,
}

impl Marks {
    fn new(attached: &Attached) -> Result<Self, Box<dyn Error>> {
        let namespace = attached.controller.namespace(1)?;
        let queue = attached.controller.queue_pair(&QueueOptions::default())?;
        Ok(Self {
            io: BlockingIo::new(queue, namespace),
            domain: attached.domain.clone(),
            lba: Lba(namespace.blocks() - 1),
            block: vec![0; usize::try_from(namespace.block_size())?],
        })
    }

    fn write(&mut self, mark: Mark) -> Outcome {
        mark.encode(&mut self.block);
        Ok(self
            .io
            .write_from_slice(&self.domain, self.lba, &self.block)?)
    }
}

/// What the queues of the drive share.
#[derive(Debug)]
struct Drive {
    marks: Rc<RefCell<Marks>>,
    forgetful: Rc<Cell<bool>>,
}

impl Drive {
    fn queue<T>(&self, attached: &Attached) -> Result<Queue<T>, Box<dyn Error>> {
        Ok(Queue {
            device: DriverDevice::open(&attached.controller, 1, &QueueOptions::default())?,
            marks: Rc::clone(&self.marks),
            forgetful: Rc::clone(&self.forgetful),
            forgotten: Vec::new(),
        })
    }
}

/// A queue of the driver's that says which writes have the FUA bit, and forgets flushes if it is told to.
#[derive(Debug)]
struct Queue<T> {
    device: DriverDevice<T>,
    marks: Rc<RefCell<Marks>>,
    forgetful: Rc<Cell<bool>>,
    /// Flushes that end with the next poll.
    forgotten: Vec<T>,
}

impl<T> BlockDevice<T> for Queue<T> {
    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&mut self, lba: Lba, buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>> {
        self.device.read(lba, buf, ctx)
    }

    fn write(&mut self, lba: Lba, buf: DmaBuf, fua: bool, ctx: T) -> Result<(), Rejected<T>> {
        if fua {
            let blocks = buf.len() as u64 / u64::from(self.limits().block_size);
            let mark = Mark::Fua { lba: lba.0, blocks };
            let marked = self.marks.borrow_mut().write(mark);
            marked.expect("the drive takes marks");
        }
        self.device.write(lba, buf, fua, ctx)
    }

    fn flush(&mut self, ctx: T) -> Result<(), Rejected<T>> {
        if self.forgetful.get() {
            self.forgotten.push(ctx);
            return Ok(());
        }
        self.device.flush(ctx)
    }

    fn write_zeroes(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.device.write_zeroes(lba, blocks, ctx)
    }

    fn discard(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.device.discard(lba, blocks, ctx)
    }

    fn ring(&mut self) {
        self.device.ring();
    }

    fn poll(&mut self, mut each: impl FnMut(Completion<T>)) -> usize {
        let forgotten = self.forgotten.len();
        for ctx in self.forgotten.drain(..) {
            each(Completion {
                ctx,
                buf: None,
                status: Status::SUCCESS,
                result: 0,
            });
        }
        forgotten + self.device.poll(each)
    }
}
