//! Log pages: what Get Log Page returns, and what an asynchronous event says.

use bitfield_struct::bitfield;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_values! {
    /// LID: a log page identifier ("Log Page Identifiers").
    LogId: u8, "log page" {
        SUPPORTED = 0x00, "Supported Log Pages";
        ERROR = 0x01, "Error Information";
        SMART = 0x02, "SMART / Health Information";
        FIRMWARE_SLOT = 0x03, "Firmware Slot Information";
        CHANGED_NAMESPACES = 0x04, "Changed Attached Namespace List";
        COMMANDS_SUPPORTED = 0x05, "Commands Supported and Effects";
        DEVICE_SELF_TEST = 0x06, "Device Self-test";
        TELEMETRY_HOST = 0x07, "Telemetry Host-Initiated";
        TELEMETRY_CONTROLLER = 0x08, "Telemetry Controller-Initiated";
        SANITIZE_STATUS = 0x81, "Sanitize Status";
    }
}

/// SMART / Health Information log page, 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SmartLog {
    /// Critical Warning bits: see [`SmartLog::WARN_TEMPERATURE`] and the like.
    pub critical_warning: u8,
    /// Composite Temperature in kelvins.
    pub composite_temperature_kelvin: U16,
    /// Available Spare in percent.
    pub available_spare_percent: u8,
    /// Available Spare Threshold in percent.
    pub available_spare_threshold_percent: u8,
    /// Percentage Used of the drive's life; may exceed 100.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_critical_warning: u8,
    reserved_7: [u8; 25],
    /// Data Units Read, in thousands of 512-byte units, rounded up.
    pub data_units_read: U128,
    /// Data Units Written, in thousands of 512-byte units, rounded up.
    pub data_units_written: U128,
    /// Host Read Commands.
    pub host_read_commands: U128,
    /// Host Write Commands.
    pub host_write_commands: U128,
    /// Controller Busy Time in minutes.
    pub controller_busy_minutes: U128,
    /// Power Cycles.
    pub power_cycles: U128,
    /// Power On Hours.
    pub power_on_hours: U128,
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: U128,
    /// Media and Data Integrity Errors.
    pub media_errors: U128,
    /// Number of Error Information Log Entries over the life of the controller.
    pub error_log_entries: U128,
    /// Warning Composite Temperature Time in minutes.
    pub warning_temperature_minutes: U32,
    /// Critical Composite Temperature Time in minutes.
    pub critical_temperature_minutes: U32,
    /// Temperature Sensors 1 to 8 in kelvins; 0: not implemented.
    pub temperature_sensors_kelvin: [U16; 8],
    reserved_216: [u8; 296],
}

impl SmartLog {
    /// Critical Warning: the available spare is below its threshold.
    pub const WARN_SPARE: u8 = 1 << 0;
    /// Critical Warning: a temperature is beyond a threshold.
    pub const WARN_TEMPERATURE: u8 = 1 << 1;
    /// Critical Warning: reliability is degraded.
    pub const WARN_RELIABILITY: u8 = 1 << 2;
    /// Critical Warning: all media are read only.
    pub const WARN_READ_ONLY: u8 = 1 << 3;
    /// Critical Warning: the volatile memory backup has failed.
    pub const WARN_BACKUP: u8 = 1 << 4;

    /// The composite temperature in degrees Celsius. `None`: the device reports none.
    #[must_use]
    pub fn composite_celsius(&self) -> Option<i32> {
        match self.composite_temperature_kelvin.get() {
            0 => None,
            kelvin => Some(i32::from(kelvin) - 273),
        }
    }
}

/// An entry of the Error Information log page, 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error Count: a unique number of this error; 0: the entry is unused.
    pub error_count: U64,
    /// Submission Queue ID of the command; FFFFh: not specific to one.
    pub sqid: U16,
    /// Command ID of the command; FFFFh: not specific to one.
    pub cid: U16,
    /// The status word of the completion, phase tag included.
    pub status: U16,
    /// Parameter Error Location: byte in bits 7:0, bit in bits 10:8; FFFFh: none.
    pub parameter_location: U16,
    /// The first LBA that failed.
    pub lba: U64,
    /// The namespace of the command.
    pub nsid: U32,
    /// Log page with vendor specific information; 0: none.
    pub vendor_log: u8,
    /// Transport Type.
    pub transport_type: u8,
    /// Command Set Indicator of the opcode.
    pub csi: u8,
    /// Opcode of the command.
    pub opcode: u8,
    /// Command Specific Information.
    pub command_specific: U64,
    /// Transport Type Specific Information.
    pub transport_specific: U16,
    reserved_42: [u8; 22],
}

/// Firmware Slot Information log page, 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active Firmware Info: the active slot in bits 2:0, the next one in bits 6:4.
    pub afi: u8,
    reserved_1: [u8; 7],
    /// Firmware Revisions of slots 1 to 7, ASCII; zeros: an empty slot.
    pub revisions: [[u8; 8]; 7],
    reserved_64: [u8; 448],
}

/// Dword 0 of the completion of an Asynchronous Event Request.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEvent {
    /// AET: the event's type, `AsyncEvent::TYPE_*`.
    #[bits(3)]
    pub event_type: u8,
    #[bits(5)]
    __: u8,
    /// AEI: what happened, by type.
    pub info: u8,
    /// LID: the log page to read, which also re-arms the event.
    pub log_page: u8,
    __: u8,
}

impl AsyncEvent {
    /// Error Status.
    pub const TYPE_ERROR: u8 = 0;
    /// SMART / Health Status.
    pub const TYPE_SMART: u8 = 1;
    /// Notice.
    pub const TYPE_NOTICE: u8 = 2;
    /// I/O command specific status.
    pub const TYPE_IO_COMMAND: u8 = 6;
    /// Vendor specific.
    pub const TYPE_VENDOR: u8 = 7;

    /// Error Status: a doorbell of a queue that does not exist was written.
    pub const ERROR_INVALID_DOORBELL_REGISTER: u8 = 0;
    /// Error Status: an impossible value was written to a doorbell.
    pub const ERROR_INVALID_DOORBELL_VALUE: u8 = 1;
    /// Error Status: diagnostic failure.
    pub const ERROR_DIAGNOSTIC: u8 = 2;
    /// Error Status: persistent internal error.
    pub const ERROR_PERSISTENT_INTERNAL: u8 = 3;
    /// Error Status: transient internal error.
    pub const ERROR_TRANSIENT_INTERNAL: u8 = 4;
    /// SMART / Health Status: a temperature is beyond its threshold.
    pub const SMART_TEMPERATURE: u8 = 1;
    /// Notice: the namespace list or a namespace's attributes changed.
    pub const NOTICE_NAMESPACE_CHANGED: u8 = 0;
}

const _: () = assert!(size_of::<SmartLog>() == 512);
const _: () = assert!(std::mem::offset_of!(SmartLog, composite_temperature_kelvin) == 1);
const _: () = assert!(std::mem::offset_of!(SmartLog, data_units_read) == 32);
const _: () = assert!(std::mem::offset_of!(SmartLog, error_log_entries) == 176);
const _: () = assert!(std::mem::offset_of!(SmartLog, temperature_sensors_kelvin) == 200);
const _: () = assert!(size_of::<ErrorEntry>() == 64);
const _: () = assert!(std::mem::offset_of!(ErrorEntry, lba) == 16);
const _: () = assert!(std::mem::offset_of!(ErrorEntry, command_specific) == 32);
const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);
const _: () = assert!(size_of::<AsyncEvent>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    /// The temperature is taken from the unaligned bytes 1 and 2, and zero means none.
    #[test]
    fn the_composite_temperature() {
        let mut page = [0u8; 512];
        assert_eq!(
            SmartLog::ref_from_bytes(&page).unwrap().composite_celsius(),
            None
        );
        page[1..3].copy_from_slice(&310u16.to_le_bytes());
        assert_eq!(
            SmartLog::ref_from_bytes(&page).unwrap().composite_celsius(),
            Some(37)
        );
    }
}
