//! Bring-up: from an unknown state to a controller that answers.
//!
//! NVMe 2.x base, section 3.5.1 ("Memory-based Controller Initialization").

use super::admin::{AdminCommand, AdminQueue};
use super::claim::Claim;
use super::limits::Limits;
use super::options::{ADMIN_COMMANDS, ADMIN_MAX_TRANSFER};
use super::registers::Registers;
use super::shared::{Shared, Times};
use super::{Controller, ControllerError, ControllerOptions};
use crate::memory::DmaDomain;
use crate::queue::{ControllerId, Core, CoreSetup, QueueSize};
use crate::spec::feature::QueueCounts;
use crate::spec::identify::{Cns, IdentifyController};
use crate::spec::registers::{Aqa, Cap, Cc};
use crate::spec::{Cqe, Sqe, command};
use crate::transport::pci::PciAddress;
use crate::transport::vfio::{VfioTarget, VfioTransport};
use crate::transport::{Doorbell, DoorbellWindow, Transport};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use zerocopy::FromBytes;

impl Controller {
    /// Opens the PCI function at `address`, which is bound to vfio-pci, and takes control of it.
    ///
    /// Controllers opened with one domain share a container: their memory is locked once. What stands
    /// in the way can be asked before with [`preflight`](crate::transport::vfio::preflight).
    ///
    /// # Errors
    /// [`ControllerError::Setup`] says what stands in the way and what to do about it; otherwise as
    /// [`Controller::attach`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use driver::controller::{Controller, ControllerOptions};
    /// use driver::memory::DmaDomain;
    ///
    /// let domain = DmaDomain::new();
    /// let address = "0000:01:00.0".parse()?;
    /// let controller = Controller::open_pci(address, &domain, &ControllerOptions::default())?;
    /// println!("{}", controller.identify().model());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_pci(
        address: PciAddress,
        domain: &DmaDomain,
        options: &ControllerOptions,
    ) -> Result<Self, ControllerError> {
        let transport = VfioTransport::open(address, domain.target::<VfioTarget>())?;
        Self::attach(Arc::new(transport), domain, options)
    }

    /// Takes control of the controller behind `transport`: disables it, sets up its admin queue,
    /// enables it and reads what it is. Buffers of `domain` can then be used with it.
    ///
    /// # Errors
    /// [`ControllerError::InUse`] where another controller of this process has it; [`ControllerError`]:
    /// the device is disabled and its memory given back then.
    pub fn attach(
        transport: Arc<dyn Transport>,
        domain: &DmaDomain,
        options: &ControllerOptions,
    ) -> Result<Self, ControllerError> {
        let claim = Claim::of(&transport)?;
        let registers = Registers::new(Arc::clone(&transport));
        let (cap, version) = registers.capabilities()?;
        // CRTO is there where CAP.CRMS says so; the driver waits for the media (CC.CRIME 0).
        let crto = if cap.crwms() {
            registers.ready_timeouts()?.crwmt()
        } else {
            0
        };
        let limits = Limits::new(cap, crto, options.ready_limit_min)?;
        let shared = Arc::new(set_up(claim, domain, options, cap, &limits)?);
        // From here on, dropping `shared` stops the controller.
        enable(&shared, &limits)?;
        let identify: Box<IdentifyController> = read_structure(
            &shared,
            "Identify Controller",
            command::identify(Cns::CONTROLLER, 0),
        )?;
        check_entry_sizes(&identify)?;
        shared.set_shutdown_limit(Duration::from_micros(identify.rtd3e_us.get().into()));
        let queues_granted = negotiate_queues(&shared, options.io_queues)?;
        let max_transfer = identify
            .max_transfer_bytes(cap.mpsmin())
            .unwrap_or(u64::MAX);
        Ok(Self {
            shared,
            limits,
            version,
            identify,
            max_transfer,
            queues_granted,
        })
    }
}

/// Makes the admin queue and disables the controller, whatever state it was left in.
fn set_up(
    claim: Claim,
    domain: &DmaDomain,
    options: &ControllerOptions,
    cap: Cap,
    limits: &Limits,
) -> Result<Shared, ControllerError> {
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    let id = ControllerId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
    let attachment = domain.attach(claim.transport().dma())?;
    let doorbells = claim.transport().doorbells();
    // The admin queue's limit is AQA's 12 bits, not CAP.MQES; a device with tiny queues is not tried.
    let size = queue_size(ADMIN_COMMANDS, u32::from(cap.mqes()).max(1) + 1)?;
    let core = Core::new(CoreSetup {
        domain,
        controller: id,
        size,
        page_shift: limits.page_shift,
        max_transfer: ADMIN_MAX_TRANSFER.max(1 << limits.page_shift),
        sq_doorbell: doorbell(&doorbells, limits, 0, false)?,
        cq_doorbell: doorbell(&doorbells, limits, 0, true)?,
    })?;
    let times = Times {
        admin: options.admin_limit,
        ready: limits.ready_limit,
        shutdown: options.shutdown_limit,
    };
    let shared = Shared::new(id, claim, domain, times, AdminQueue::new(core), attachment);
    shared.disable()?;
    let zero_based = size.zero_based();
    let attributes = Aqa::new().with_asqs(zero_based).with_acqs(zero_based);
    let (sq, cq) = shared.admin_iovas();
    shared.registers.set_admin_queues(attributes, sq, cq)?;
    Ok(shared)
}

/// Configures and enables the controller, and waits until it is ready.
fn enable(shared: &Shared, limits: &Limits) -> Result<(), ControllerError> {
    shared.registers.mask_interrupts()?;
    let page = u8::try_from(limits.page_shift - 12).unwrap_or_default();
    let cc = Cc::new()
        .with_css(limits.css)
        .with_mps(page)
        .with_iosqes(Sqe::SIZE_LOG2)
        .with_iocqes(Cqe::SIZE_LOG2);
    // Everything else first, EN last: nothing but EN may change with it.
    shared.registers.set_configuration(cc)?;
    shared.registers.set_configuration(cc.with_en(true))?;
    let (clock, limit) = (&**shared.clock(), limits.ready_limit);
    shared
        .registers
        .wait_status(clock, limit, "enabling the controller", true, |c| c.rdy())
}

/// Asks for I/O queue pairs and reads how many were granted.
fn negotiate_queues(shared: &Shared, wanted: u16) -> Result<u16, ControllerError> {
    let wanted = NonZeroU16::new(wanted).unwrap_or(NonZeroU16::MIN);
    let sqe = command::set_queue_count(wanted);
    let command = AdminCommand::plain("Set Features (Number of Queues)", sqe);
    let counts = QueueCounts::from_bits(shared.admin(command, shared.times.admin)?.result);
    // 0's based; a queue identifier has 16 bits and 0 is the admin queue.
    let granted = counts
        .submission()
        .min(counts.completion())
        .saturating_add(1);
    shared.set_queues(granted);
    Ok(granted)
}

/// Refuses a device whose entries are not the standard ones (SQES and CQES: minimum in bits 3:0,
/// maximum in bits 7:4).
fn check_entry_sizes(identify: &IdentifyController) -> Result<(), ControllerError> {
    let offers = |field: u8, size: u8| (field & 0xf) <= size && size <= field >> 4;
    if offers(identify.sqes, Sqe::SIZE_LOG2) && offers(identify.cqes, Cqe::SIZE_LOG2) {
        return Ok(());
    }
    let (sqes, cqes) = (identify.sqes, identify.cqes);
    let what = format!("64- and 16-byte queue entries (SQES {sqes:#x}, CQES {cqes:#x})");
    Err(ControllerError::Unsupported { what })
}

/// A ring for `commands` commands within what the device can.
pub(super) fn queue_size(commands: u16, device_max: u32) -> Result<QueueSize, ControllerError> {
    QueueSize::for_commands(commands, device_max).ok_or_else(|| ControllerError::Unsupported {
        what: format!("queues of two entries (CAP.MQES allows {device_max})"),
    })
}

/// The doorbell of a queue.
pub(super) fn doorbell(
    window: &DoorbellWindow,
    limits: &Limits,
    queue: u16,
    completion: bool,
) -> Result<Doorbell, ControllerError> {
    let offset = limits.doorbell_offset(queue, completion);
    window
        .doorbell(offset)
        .ok_or_else(|| ControllerError::Unsupported {
            what: format!(
                "a doorbell for queue {queue}: offset {offset:#x} in a window of {:#x} bytes",
                window.len()
            ),
        })
}

/// Runs an admin command that returns `len` bytes.
pub(super) fn read_bytes(
    shared: &Shared,
    name: &'static str,
    sqe: Sqe,
    len: usize,
) -> Result<Vec<u8>, ControllerError> {
    let mut data = shared.domain.alloc(len)?;
    // A device may return less than it should: what it leaves out reads as zero.
    data.fill(0);
    let command = AdminCommand::with_data(name, sqe, data);
    let done = shared.admin(command, shared.times.admin)?;
    let mut bytes = vec![0; len];
    if let Some(data) = done.buf {
        data.read_at(0, &mut bytes)?;
    }
    Ok(bytes)
}

/// Runs an admin command that returns one structure.
pub(super) fn read_structure<S: FromBytes>(
    shared: &Shared,
    name: &'static str,
    sqe: Sqe,
) -> Result<Box<S>, ControllerError> {
    let bytes = read_bytes(shared, name, sqe, size_of::<S>())?;
    S::read_from_bytes(&bytes)
        .map(Box::new)
        .map_err(|_| ControllerError::Unsupported {
            what: format!("{name} data of {} bytes", size_of::<S>()),
        })
}
