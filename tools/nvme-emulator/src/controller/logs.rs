//! Log pages: errors, health, firmware.

use super::features::WARNING_KELVIN;
use super::{Answer, Controller};
use driver::spec::identify::NSID_ALL;
use driver::spec::log::{AsyncEvent, ErrorEntry, FirmwareSlotLog, LogId, SmartLog};
use driver::spec::opcode::IoOpcode;
use driver::spec::{Sqe, Status};
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

/// Entries of the Error Information log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// Get Log Page: Retain Asynchronous Event.
const RETAIN: u32 = 1 << 15;

#[derive(Debug)]
pub(super) struct Logs {
    /// Newest first.
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
    pub(super) temperature_kelvin: u16,
}

impl Default for Logs {
    fn default() -> Self {
        // 310 K, 37 degrees.
        Self {
            errors: VecDeque::new(),
            error_count: 0,
            temperature_kelvin: 310,
        }
    }
}

impl Logs {
    pub(super) fn push_error(&mut self, qid: u16, sqe: &Sqe, status: Status) {
        self.error_count += 1;
        let mut entry = ErrorEntry::new_zeroed();
        entry.error_count = self.error_count.into();
        entry.sqid = qid.into();
        entry.cid = sqe.cid.into();
        entry.status = (status.bits() << 1).into();
        entry.parameter_location = u16::MAX.into();
        entry.lba = if qid == 0 { 0 } else { sqe.slba() }.into();
        entry.nsid = sqe.nsid.into();
        self.errors.truncate(ERROR_ENTRIES - 1);
        self.errors.push_front(entry);
    }
}

impl Controller {
    /// Sets the composite temperature; beyond a threshold it is an event.
    pub(crate) fn set_temperature(&mut self, kelvin: u16) {
        self.logs.temperature_kelvin = kelvin;
        self.check_temperature();
    }

    pub(super) fn check_temperature(&mut self) {
        // A host asks for each health warning that it wants to be told.
        let wanted = self.features.wants_event(SmartLog::WARN_TEMPERATURE);
        if wanted && self.is_beyond_threshold() {
            let info = AsyncEvent::SMART_TEMPERATURE;
            self.raise(AsyncEvent::TYPE_SMART, info, LogId::SMART);
        }
    }

    fn is_beyond_threshold(&self) -> bool {
        let kelvin = self.logs.temperature_kelvin;
        kelvin >= self.features.threshold(0) || kelvin <= self.features.threshold(1)
    }

    pub(super) fn get_log_page(&mut self, sqe: &Sqe) -> Answer {
        let [id, ..] = sqe.cdw10.to_le_bytes();
        let log = LogId(id);
        if sqe.nsid != 0 && sqe.nsid != NSID_ALL {
            // There are no logs of single namespaces.
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        let dwords = u64::from(sqe.cdw10 >> 16 | sqe.cdw11 << 16) + 1;
        let offset = u64::from(sqe.cdw12) | u64::from(sqe.cdw13) << 32;
        let page = match log {
            LogId::ERROR => self.error_log(),
            LogId::SMART => self.smart_log().as_bytes().to_vec(),
            LogId::FIRMWARE_SLOT => firmware_log().as_bytes().to_vec(),
            _ => return Err(Status::INVALID_LOG_PAGE.with_dnr()),
        };
        let offset = usize::try_from(offset)
            .ok()
            .filter(|at| at.is_multiple_of(4));
        let rest = offset
            .and_then(|at| page.get(at..))
            .ok_or(Status::INVALID_FIELD.with_dnr())?;
        let len = dwords * 4;
        if len > self.max_transfer() {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        // What lies beyond the page is undefined by the specification; here it is left as it was.
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
        self.reply(sqe, rest.get(..len).unwrap_or(rest))?;
        if sqe.cdw10 & RETAIN == 0 {
            self.rearm(log);
        }
        Ok(0)
    }

    fn error_log(&self) -> Vec<u8> {
        let mut page: Vec<u8> = self
            .logs
            .errors
            .iter()
            .flat_map(|entry| entry.as_bytes())
            .copied()
            .collect();
        page.resize(ERROR_ENTRIES * size_of::<ErrorEntry>(), 0);
        page
    }

    fn smart_log(&self) -> SmartLog {
        // Thousands of 512-byte units, rounded up.
        let units = |bytes: u64| u128::from(bytes.div_ceil(512 * 1000)).into();
        let stats = &self.stats;
        let writes = [IoOpcode::WRITE, IoOpcode::WRITE_ZEROES].map(|opcode| stats.io(opcode));
        let reads = [IoOpcode::READ, IoOpcode::COMPARE].map(|opcode| stats.io(opcode));
        let mut log = SmartLog::new_zeroed();
        if self.is_beyond_threshold() {
            log.critical_warning = SmartLog::WARN_TEMPERATURE;
        }
        log.composite_temperature_kelvin = self.logs.temperature_kelvin.into();
        log.available_spare_percent = 100;
        log.available_spare_threshold_percent = 10;
        log.data_units_read = units(stats.bytes_read);
        log.data_units_written = units(stats.bytes_written);
        log.host_read_commands = u128::from(reads.iter().sum::<u64>()).into();
        log.host_write_commands = u128::from(writes.iter().sum::<u64>()).into();
        log.power_cycles = u128::from(1 + stats.power_cuts).into();
        log.unsafe_shutdowns = u128::from(stats.power_cuts).into();
        log.error_log_entries = u128::from(self.logs.error_count).into();
        log
    }
}

/// One slot, which cannot be written.
fn firmware_log() -> FirmwareSlotLog {
    let mut log = FirmwareSlotLog::new_zeroed();
    log.afi = 1;
    if let Some(first) = log.revisions.first_mut() {
        *first = super::identify::firmware_revision();
    }
    log
}

/// The temperatures that Identify Controller warns of.
pub(super) const WCTEMP_KELVIN: u16 = WARNING_KELVIN;
pub(super) const CCTEMP_KELVIN: u16 = 358;
