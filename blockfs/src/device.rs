//! The drive as the filesystem sees it: blocks, limits, and commands that end in a poll.
//!
//! blockfs knows nothing of VFIO or registers. A [`BlockDevice`] is one thread's way to a drive: it is
//! polled by its owner and moves owned DMA buffers.

use driver::controller::{Controller, ControllerError, QueueOptions};
use driver::memory::{DmaBuf, DmaDomain};
use driver::namespace::{BlockRange, IoFlags, Lba, Namespace};
use driver::queue::{Completion, QueuePair, Rejected, SubmitError};
use driver::spec::identify::IdentifyController;

/// What a drive can, as far as a filesystem needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Logical blocks in all.
    pub blocks: u64,
    /// Size of a logical block in bytes: the most that is written whole in a power cut.
    pub block_size: u32,
    /// Whether completed writes are lost in a power cut unless flushed or written with FUA.
    pub volatile_cache: bool,
    /// Whether it zeroes blocks by itself.
    pub write_zeroes: bool,
    /// Whether it wants to know which blocks are not needed.
    pub discard: bool,
}

/// One thread's way to a drive.
///
/// Requests are submitted with a context `T`, become visible with [`BlockDevice::ring`], and end in
/// [`BlockDevice::poll`], in any order.
///
/// # Examples
///
/// ```
/// use blockfs::device::{BlockDevice, DriverDevice};
/// use driver::controller::{Controller, ControllerOptions, QueueOptions};
/// use driver::memory::DmaDomain;
/// use driver::namespace::Lba;
/// use nvme_emulator::Emulator;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let drive = Emulator::builder().start()?;
/// let domain = DmaDomain::new();
/// let controller = Controller::attach(drive.transport(), &domain, &ControllerOptions::default())?;
/// let mut device = DriverDevice::<&str>::open(&controller, 1, &QueueOptions::default())?;
///
/// let buf = domain.alloc(device.limits().block_size as usize)?;
/// device.write(Lba(0), buf, true, "the superblock")?;
/// device.ring();
/// let mut ended = None;
/// while ended.is_none() {
///     device.poll(|done| ended = Some(done.ctx));
/// }
/// assert_eq!(ended, Some("the superblock"));
/// # Ok(())
/// # }
/// ```
pub trait BlockDevice<T> {
    /// What the drive can.
    fn limits(&self) -> Limits;

    /// Reads into all of `buf` from `lba` on.
    ///
    /// # Errors
    /// [`Rejected`] gives buffer and context back.
    fn read(&mut self, lba: Lba, buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>>;

    /// Writes all of `buf` from `lba` on; with `fua` it ends when the data are on the medium.
    ///
    /// # Errors
    /// [`Rejected`] gives buffer and context back.
    fn write(&mut self, lba: Lba, buf: DmaBuf, fua: bool, ctx: T) -> Result<(), Rejected<T>>;

    /// Makes every write that has ended survive a power cut.
    ///
    /// # Errors
    /// [`Rejected`] gives the context back.
    fn flush(&mut self, ctx: T) -> Result<(), Rejected<T>>;

    /// Zeroes `blocks` logical blocks from `lba` on.
    ///
    /// # Errors
    /// [`Rejected`] gives the context back.
    fn write_zeroes(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>>;

    /// Tells the drive that `blocks` logical blocks from `lba` on are not needed: until they are
    /// written again they may read as anything.
    ///
    /// # Errors
    /// [`Rejected`] gives the context back.
    fn discard(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>>;

    /// Makes everything submitted visible to the drive.
    fn ring(&mut self);

    /// Hands every request that has ended to `each`; says how many. Never waits.
    fn poll(&mut self, each: impl FnMut(Completion<T>)) -> usize;
}

/// A queue pair and a namespace of the driver.
#[derive(Debug)]
pub struct DriverDevice<T> {
    queue: QueuePair<T>,
    namespace: Namespace,
    limits: Limits,
    /// For the lists that discards take.
    domain: DmaDomain,
}

impl<T> DriverDevice<T> {
    /// A new queue pair for the namespace with the number `nsid`.
    ///
    /// # Errors
    /// [`ControllerError`]: no such namespace, no queue left, a device that does not answer.
    pub fn open(
        controller: &Controller,
        nsid: u32,
        options: &QueueOptions,
    ) -> Result<Self, ControllerError> {
        Ok(Self {
            queue: controller.queue_pair(options)?,
            namespace: controller.namespace(nsid)?,
            limits: Self::limits_of(controller, nsid)?,
            domain: controller.domain().clone(),
        })
    }

    /// What the namespace with the number `nsid` can.
    ///
    /// # Errors
    /// As [`DriverDevice::open`].
    pub fn limits_of(controller: &Controller, nsid: u32) -> Result<Limits, ControllerError> {
        let namespace = controller.namespace(nsid)?;
        let optional = controller.identify().oncs.get();
        Ok(Limits {
            blocks: namespace.blocks(),
            block_size: namespace.block_size(),
            volatile_cache: controller.volatile_cache()?,
            write_zeroes: optional & IdentifyController::ONCS_WRITE_ZEROES != 0,
            discard: optional & IdentifyController::ONCS_DSM != 0,
        })
    }

    /// The queue pair.
    #[must_use]
    pub const fn queue(&self) -> &QueuePair<T> {
        &self.queue
    }
}

/// Logical blocks of one range of a discard.
const DISCARD_RANGE: u64 = 1 << 30;

impl<T> BlockDevice<T> for DriverDevice<T> {
    #[inline]
    fn limits(&self) -> Limits {
        self.limits
    }

    // A call costs a third of what is in it, so these are part of the caller, whatever its size.
    #[inline(always)]
    fn read(&mut self, lba: Lba, buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>> {
        self.namespace.read(&mut self.queue, lba, buf, ctx)
    }

    #[inline(always)]
    fn write(&mut self, lba: Lba, buf: DmaBuf, fua: bool, ctx: T) -> Result<(), Rejected<T>> {
        let flags = if fua { IoFlags::FUA } else { IoFlags::NONE };
        self.namespace
            .write_with(&mut self.queue, lba, buf, flags, ctx)
    }

    fn flush(&mut self, ctx: T) -> Result<(), Rejected<T>> {
        self.namespace.flush(&mut self.queue, ctx)
    }

    fn write_zeroes(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>> {
        self.namespace
            .write_zeroes(&mut self.queue, lba, blocks, ctx)
    }

    fn discard(&mut self, lba: Lba, blocks: u64, ctx: T) -> Result<(), Rejected<T>> {
        let mut ranges = Vec::new();
        let (mut at, mut left) = (lba.0, blocks);
        while left > 0 {
            let now = left.min(DISCARD_RANGE);
            ranges.push(BlockRange {
                lba: Lba(at),
                // At most DISCARD_RANGE.
                blocks: u32::try_from(now).unwrap_or(0),
            });
            at += now;
            left -= now;
        }
        match self.domain.alloc(ranges.len().max(1) * 16) {
            Ok(buf) => self
                .namespace
                .deallocate(&mut self.queue, &ranges, buf, ctx),
            // It is a hint; but who asked wants to hear of its end.
            Err(_) => Err(Rejected {
                reason: SubmitError::Full,
                buf: None,
                ctx,
            }),
        }
    }

    #[inline]
    fn ring(&mut self) {
        self.queue.ring();
    }

    #[inline]
    fn poll(&mut self, each: impl FnMut(Completion<T>)) -> usize {
        self.queue.poll(each)
    }
}
