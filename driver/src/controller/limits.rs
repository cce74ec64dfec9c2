//! What the device can: read from it, none of it assumed.

use super::error::ControllerError;
use super::options::MAX_TRANSFER;
use crate::spec::registers::{self, Cap, Cc};
use std::time::Duration;

/// The controller's limits, from its Capabilities register (NVMe 2.x base, "CAP").
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Entries that an I/O queue may have (CAP.MQES + 1).
    pub queue_entries_max: u32,
    /// Bytes from one doorbell to the next (4 << CAP.DSTRD).
    pub doorbell_stride: usize,
    pub(super) dstrd: u8,
    /// The memory page that the driver uses, the device's smallest, as a shift.
    pub page_shift: u32,
    /// How long the device may take to become ready (CAP.TO, or CRTO where it is longer).
    pub ready_limit: Duration,
    /// The command set selection for CC.CSS.
    pub(super) css: u8,
}

impl Limits {
    /// Reads the limits from CAP; `crto` is CRTO where the device has it.
    pub(super) fn new(cap: Cap, crto_500ms: u16, floor: Duration) -> Result<Self, ControllerError> {
        let css = if cap.css_nvm() {
            Cc::CSS_NVM
        } else if cap.css_iocs() {
            Cc::CSS_ALL
        } else if cap.css_admin_only() {
            Cc::CSS_ADMIN_ONLY
        } else {
            let what = format!("a command set that the driver knows ({cap:?})");
            return Err(ControllerError::Unsupported { what });
        };
        let (min, max) = (12 + u32::from(cap.mpsmin()), 12 + u32::from(cap.mpsmax()));
        if min > max {
            let what = format!("a memory page size (2^{min} to 2^{max} bytes offered)");
            return Err(ControllerError::Unsupported { what });
        }
        let half_seconds = u32::from(cap.to()).max(u32::from(crto_500ms));
        Ok(Self {
            queue_entries_max: u32::from(cap.mqes()) + 1,
            doorbell_stride: 4 << cap.dstrd(),
            dstrd: cap.dstrd(),
            page_shift: min,
            ready_limit: (Duration::from_millis(500) * half_seconds).max(floor),
            css,
        })
    }

    /// Byte offset of a doorbell in the doorbell window (NVMe over PCIe Transport, "SQyTDBL" and
    /// "CQyHDBL").
    pub(super) fn doorbell_offset(&self, queue: u16, completion: bool) -> usize {
        if completion {
            registers::cq_head_doorbell(queue, self.dstrd)
        } else {
            registers::sq_tail_doorbell(queue, self.dstrd)
        }
    }
}

/// The part of a limit that one command of the driver makes use of.
pub(super) fn usable_transfer(device: u64, wanted: u32) -> u32 {
    let wanted = wanted.clamp(1 << 12, MAX_TRANSFER);
    u32::try_from(device).map_or(wanted, |device| device.min(wanted))
}
