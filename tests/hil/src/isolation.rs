//! Memory of one controller is out of another's reach: the driver refuses, and the IOMMU enforces.
#![expect(
    unsafe_code,
    reason = "raw commands name memory that their controller must not reach"
)]

use crate::machine::{self, Attached};
use crate::test::{Context, Outcome, Test};
use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::{DmaBuf, DmaDomain};
use driver::namespace::{BlockingIo, IoError, Lba, Namespace};
use driver::queue::{Completion, QueuePair, RawData, SubmitError};
use driver::spec::Sqe;
use driver::spec::opcode::IoOpcode;
use hil::boots::{LBA512, TWIN};
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "isolation::strange_buffer_is_refused",
            BOOTS,
            strange_buffer_is_refused,
        ),
        Test::new(
            "isolation::iommu_stops_a_device_that_writes",
            BOOTS,
            device_that_writes,
        ),
        Test::new(
            "isolation::iommu_stops_a_device_that_reads",
            BOOTS,
            device_that_reads,
        ),
        Test::new(
            "isolation::one_domain_serves_two_controllers",
            BOOTS,
            one_domain_for_two,
        ),
    ]
}

const BOOTS: &[&str] = &["plain", "hugepages", "narrow"];

/// Bytes of each transfer: one page, so that PRP1 alone names it.
const LEN: usize = 4096;
const BLOCKS: u32 = 8;
/// What lies in the memory that must not change, and what the drive holds.
const MEMORY: u8 = 0x4d;
const DISK: u8 = 0xd1;

/// Two controllers, each with memory of its own, and a drive full of [`DISK`] behind the second.
struct Pair {
    first: Attached,
    second: Attached,
    namespace: Namespace,
    queue: QueuePair<u8>,
}

impl Pair {
    fn new() -> Result<Self, Box<dyn Error>> {
        let (first, second) = (machine::attach(&LBA512)?, machine::attach(&TWIN)?);
        let namespace = second.controller.namespace(1)?;
        fill_disk(&second.controller, &second.domain, DISK)?;
        let queue = second.controller.queue_pair(&QueueOptions::default())?;
        Ok(Self {
            first,
            second,
            namespace,
            queue,
        })
    }

    /// Makes the second controller move one page between its drive and whatever `iova` names, without
    /// a check.
    fn force(&mut self, opcode: IoOpcode, iova: u64) -> Result<Completion<u8>, Box<dyn Error>> {
        let sqe = Sqe {
            opcode: opcode.0,
            nsid: self.namespace.id(),
            prp1: iova,
            cdw12: BLOCKS - 1,
            ..Sqe::default()
        };
        // SAFETY: either the IOMMU stops the transfer, or it moves a page from or to the start of a
        // buffer of at least that length, which the caller does not touch meanwhile.
        unsafe { self.queue.submit_raw(sqe, None, RawData::AsGiven, 1) }?;
        let mut ended = None;
        if !self
            .queue
            .drain(Duration::from_secs(20), |done| ended = Some(done))
        {
            return Err("the controller did not answer".into());
        }
        ended.ok_or_else(|| "no completion".into())
    }
}

fn filled(domain: &DmaDomain, byte: u8) -> Result<DmaBuf, Box<dyn Error>> {
    let mut buf = domain.alloc(LEN)?;
    buf.fill(byte);
    Ok(buf)
}

fn holds_only(buf: &DmaBuf, byte: u8) -> Result<bool, Box<dyn Error>> {
    let mut bytes = vec![0; buf.len()];
    buf.read_at(0, &mut bytes)?;
    Ok(bytes.iter().all(|found| *found == byte))
}

fn fill_disk(controller: &Controller, domain: &DmaDomain, byte: u8) -> Outcome {
    let queue = controller.queue_pair(&QueueOptions::default())?;
    let mut io = BlockingIo::new(queue, controller.namespace(1)?);
    io.write(Lba(0), filled(domain, byte)?)?;
    Ok(())
}

fn disk_holds_only(attached: &Attached, byte: u8) -> Result<bool, Box<dyn Error>> {
    let queue = attached.controller.queue_pair(&QueueOptions::default())?;
    let mut io = BlockingIo::new(queue, attached.controller.namespace(1)?);
    let buf = io.read(Lba(0), filled(&attached.domain, 0)?)?;
    holds_only(&buf, byte)
}

/// A buffer of the first controller given to the second is refused and comes back unharmed; so is a
/// namespace of the first on a queue of the second.
fn strange_buffer_is_refused(_: &Context) -> Outcome {
    let mut pair = Pair::new()?;
    let buf = filled(&pair.first.domain, MEMORY)?;
    let rejected = pair
        .namespace
        .read(&mut pair.queue, Lba(0), buf, 7)
        .expect_err("accepted");
    assert_eq!(rejected.reason, SubmitError::WrongDomain);
    assert_eq!(rejected.ctx, 7);
    assert!(holds_only(
        &rejected.buf.ok_or("the buffer is lost")?,
        MEMORY
    )?);
    assert_eq!(pair.queue.outstanding(), 0);

    let strange = pair.first.controller.namespace(1)?;
    let buf = filled(&pair.second.domain, MEMORY)?;
    let rejected = strange
        .read(&mut pair.queue, Lba(0), buf, 8)
        .expect_err("accepted");
    assert_eq!(rejected.reason, SubmitError::WrongController);
    Ok(())
}

/// A read command on the second controller that names memory of the first changes no memory: the
/// IOMMU stops the write. The same command with memory of its own does.
fn device_that_writes(_: &Context) -> Outcome {
    let mut pair = Pair::new()?;
    let own = filled(&pair.second.domain, MEMORY)?;
    let done = pair.force(IoOpcode::READ, own.iova())?;
    assert!(
        done.status.is_success(),
        "with its own memory: {}",
        done.status
    );
    assert!(
        holds_only(&own, DISK)?,
        "the command does what the test thinks it does"
    );

    let strange = filled(&pair.first.domain, MEMORY)?;
    let mut kernel_log = KernelLog::open()?;
    let done = pair.force(IoOpcode::READ, strange.iova())?;
    println!("the device says: {}", done.status);
    assert!(
        holds_only(&strange, MEMORY)?,
        "the IOMMU let a device write strange memory"
    );
    assert!(
        kernel_log.tells_of_a_fault(strange.iova())?,
        "the IOMMU reported no fault"
    );
    // And nothing that belongs to the second controller was hit instead.
    assert!(holds_only(&own, DISK)?);
    works(&pair.first)?;
    works(&pair.second)
}

/// A write command on the second controller that names memory of the first does not get that memory
/// onto its drive.
fn device_that_reads(_: &Context) -> Outcome {
    let mut pair = Pair::new()?;
    let strange = filled(&pair.first.domain, MEMORY)?;
    let mut kernel_log = KernelLog::open()?;
    let done = pair.force(IoOpcode::WRITE, strange.iova())?;
    println!("the device says: {}", done.status);
    assert!(
        !disk_holds_only(&pair.second, MEMORY)?,
        "the IOMMU let a device read strange memory"
    );
    assert!(
        kernel_log.tells_of_a_fault(strange.iova())?,
        "the IOMMU reported no fault"
    );

    let own = filled(&pair.second.domain, MEMORY)?;
    let done = pair.force(IoOpcode::WRITE, own.iova())?;
    assert!(
        done.status.is_success(),
        "with its own memory: {}",
        done.status
    );
    assert!(
        disk_holds_only(&pair.second, MEMORY)?,
        "the command does what the test thinks it does"
    );
    works(&pair.first)
}

/// Two controllers attached to one domain, the second when there is memory already, both reach all
/// of it: a buffer that one has filled the other writes.
fn one_domain_for_two(_: &Context) -> Outcome {
    let domain = DmaDomain::new();
    let options = ControllerOptions::default();
    let first = Controller::open_pci(LBA512.address().parse()?, &domain, &options)?;
    fill_disk(&first, &domain, 0x11)?;
    let early = filled(&domain, 0)?;
    let second = Controller::open_pci(TWIN.address().parse()?, &domain, &options)?;
    assert_eq!(
        domain.stats().targets,
        1,
        "they share a container, and each mapping is made once"
    );

    let mut io = BlockingIo::new(
        first.queue_pair(&QueueOptions::default())?,
        first.namespace(1)?,
    );
    let buf = io.read(Lba(0), early)?;
    assert!(holds_only(&buf, 0x11)?);
    let mut io = BlockingIo::new(
        second.queue_pair(&QueueOptions::default())?,
        second.namespace(1)?,
    );
    let mut buf = io.write(Lba(0), buf)?;
    buf.fill(0);
    let buf = io.read(Lba(0), buf)?;
    assert!(holds_only(&buf, 0x11)?);
    Ok(())
}

/// A controller still reads and writes.
fn works(attached: &Attached) -> Result<(), Box<dyn Error>> {
    fill_disk(&attached.controller, &attached.domain, 0x77)?;
    if disk_holds_only(attached, 0x77)? {
        Ok(())
    } else {
        Err(Box::new(IoError::TimedOut {
            limit: Duration::ZERO,
        }))
    }
}

/// What the kernel says from now on.
struct KernelLog(File);

impl KernelLog {
    fn open() -> Result<Self, Box<dyn Error>> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options()
            .read(true)
            .custom_flags(nonblocking)
            .open("/dev/kmsg")?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
        Ok(Self(file))
    }

    /// Whether the IOMMU's driver reports a fault at `iova`.
    fn tells_of_a_fault(&mut self, iova: u64) -> Result<bool, Box<dyn Error>> {
        let address = format!("fault addr {iova:#x}");
        let found = machine::wait_for("report of the fault", || {
            // One read is one record; none left is an error here (EAGAIN).
            let mut record = [0; 8192];
            let len = self.0.read(&mut record).ok()?;
            let text = String::from_utf8_lossy(&record[..len]).into_owned();
            (text.contains("DMAR") && text.contains(&address)).then_some(())
        });
        Ok(found.is_ok())
    }
}
