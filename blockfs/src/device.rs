//! The drive as the filesystem sees it: blocks, limits, and commands that end in a poll.
//!
//! blockfs knows nothing of VFIO or registers. A [`BlockDevice`] is one thread's way to a drive: it is
//! polled by its owner and moves owned DMA buffers.

use driver::memory::DmaBuf;
use driver::namespace::{IoFlags, Lba, Namespace};
use driver::queue::{Completion, QueuePair, Rejected};

/// What a drive can, as far as a filesystem needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Logical blocks in all.
    pub blocks: u64,
    /// Size of a logical block in bytes: the most that is written whole in a power cut.
    pub block_size: u32,
    /// Whether completed writes are lost in a power cut unless flushed or written with FUA.
    pub volatile_cache: bool,
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
/// let cache = controller.volatile_cache()?;
/// let queue = controller.queue_pair::<&str>(&QueueOptions::default())?;
/// let mut device = DriverDevice::new(queue, controller.namespace(1)?, cache);
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
    volatile_cache: bool,
}

impl<T> DriverDevice<T> {
    /// Commands on `namespace` through `queue`; `volatile_cache` as the controller says.
    #[must_use]
    pub fn new(queue: QueuePair<T>, namespace: Namespace, volatile_cache: bool) -> Self {
        Self {
            queue,
            namespace,
            volatile_cache,
        }
    }
}

impl<T> BlockDevice<T> for DriverDevice<T> {
    fn limits(&self) -> Limits {
        Limits {
            blocks: self.namespace.blocks(),
            block_size: self.namespace.block_size(),
            volatile_cache: self.volatile_cache,
        }
    }

    #[inline]
    fn read(&mut self, lba: Lba, buf: DmaBuf, ctx: T) -> Result<(), Rejected<T>> {
        self.namespace.read(&mut self.queue, lba, buf, ctx)
    }

    #[inline]
    fn write(&mut self, lba: Lba, buf: DmaBuf, fua: bool, ctx: T) -> Result<(), Rejected<T>> {
        let flags = if fua { IoFlags::FUA } else { IoFlags::NONE };
        self.namespace
            .write_with(&mut self.queue, lba, buf, flags, ctx)
    }

    fn flush(&mut self, ctx: T) -> Result<(), Rejected<T>> {
        self.namespace.flush(&mut self.queue, ctx)
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
