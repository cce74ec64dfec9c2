//! The status of a completion ("Status Field Definition" of the base specification).

use std::fmt;

/// The 15-bit status field of a completion: code type, code, retry delay, More and Do Not Retry.
///
/// Two statuses are equal if all bits are. To ask for a certain error whatever the flags, compare
/// [`Status::code`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

/// SCT: generic command status.
pub const SCT_GENERIC: u8 = 0;
/// SCT: command specific status.
pub const SCT_COMMAND: u8 = 1;
/// SCT: media and data integrity errors.
pub const SCT_MEDIA: u8 = 2;
/// SCT: path related status.
pub const SCT_PATH: u8 = 3;

const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;

impl Status {
    /// A status of code type `sct` (three bits) and code `sc`, without flags.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }

    /// The status in the low 15 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether the command completed without error.
    #[inline]
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// SC: the status code.
    #[must_use]
    pub const fn sc(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// SCT: the status code type.
    #[must_use]
    pub const fn sct(self) -> u8 {
        self.0.to_le_bytes()[1] & 7
    }

    /// CRD: which of the controller's retry delays to keep before a retry; 0: none.
    #[must_use]
    pub const fn crd(self) -> u8 {
        self.0.to_le_bytes()[1] >> 3 & 3
    }

    /// M: the Error Information log holds more about this one.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// DNR: the same command would fail again.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// This status without retry delay and flags, for comparing with the constants.
    #[must_use]
    pub const fn code(self) -> Self {
        Self(self.0 & 0x7ff)
    }

    /// This status with Do Not Retry set.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// This status with More set.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }
}

macro_rules! statuses {
    ($($constant:ident = $sct:ident, $sc:literal, $text:literal;)+) => {
        impl Status {
            $(
                #[doc = $text]
                pub const $constant: Self = Self::new($sct, $sc);
            )+

            /// The name that the specification gives to this code, if it is one known here.
            #[must_use]
            pub const fn known_name(self) -> Option<&'static str> {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => Some($text),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = SCT_GENERIC, 0x00, "Successful Completion";
    INVALID_OPCODE = SCT_GENERIC, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = SCT_GENERIC, 0x02, "Invalid Field in Command";
    CID_CONFLICT = SCT_GENERIC, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = SCT_GENERIC, 0x04, "Data Transfer Error";
    ABORTED_POWER_LOSS = SCT_GENERIC, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = SCT_GENERIC, 0x06, "Internal Error";
    ABORT_REQUESTED = SCT_GENERIC, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = SCT_GENERIC, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = SCT_GENERIC, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = SCT_GENERIC, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = SCT_GENERIC, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE = SCT_GENERIC, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = SCT_GENERIC, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = SCT_GENERIC, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH = SCT_GENERIC, 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH = SCT_GENERIC, 0x10, "Metadata SGL Length Invalid";
    SGL_TYPE = SCT_GENERIC, 0x11, "SGL Descriptor Type Invalid";
    INVALID_CMB_USE = SCT_GENERIC, 0x12, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = SCT_GENERIC, 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT = SCT_GENERIC, 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = SCT_GENERIC, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = SCT_GENERIC, 0x16, "SGL Offset Invalid";
    KEEP_ALIVE_EXPIRED = SCT_GENERIC, 0x19, "Keep Alive Timeout Expired";
    KEEP_ALIVE_INVALID = SCT_GENERIC, 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = SCT_GENERIC, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = SCT_GENERIC, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = SCT_GENERIC, 0x1d, "Sanitize In Progress";
    WRITE_PROTECTED = SCT_GENERIC, 0x20, "Namespace is Write Protected";
    INTERRUPTED = SCT_GENERIC, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT = SCT_GENERIC, 0x22, "Transient Transport Error";
    MEDIA_NOT_READY = SCT_GENERIC, 0x24, "Admin Command Media Not Ready";
    LBA_OUT_OF_RANGE = SCT_GENERIC, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = SCT_GENERIC, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = SCT_GENERIC, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = SCT_GENERIC, 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = SCT_GENERIC, 0x84, "Format In Progress";
    CQ_INVALID = SCT_COMMAND, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_ID = SCT_COMMAND, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = SCT_COMMAND, 0x02, "Invalid Queue Size";
    ABORT_LIMIT = SCT_COMMAND, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT = SCT_COMMAND, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = SCT_COMMAND, 0x06, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = SCT_COMMAND, 0x07, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = SCT_COMMAND, 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = SCT_COMMAND, 0x09, "Invalid Log Page";
    INVALID_FORMAT = SCT_COMMAND, 0x0a, "Invalid Format";
    FIRMWARE_NEEDS_RESET = SCT_COMMAND, 0x0b,
        "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = SCT_COMMAND, 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = SCT_COMMAND, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = SCT_COMMAND, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE = SCT_COMMAND, 0x0f, "Feature Not Namespace Specific";
    OVERLAPPING_RANGE = SCT_COMMAND, 0x14, "Overlapping Range";
    CONFLICTING_ATTRIBUTES = SCT_COMMAND, 0x80, "Conflicting Attributes";
    INVALID_PROTECTION = SCT_COMMAND, 0x81, "Invalid Protection Information";
    WRITE_TO_READ_ONLY = SCT_COMMAND, 0x82, "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT = SCT_COMMAND, 0x83, "Command Size Limit Exceeded";
    WRITE_FAULT = SCT_MEDIA, 0x80, "Write Fault";
    UNRECOVERED_READ = SCT_MEDIA, 0x81, "Unrecovered Read Error";
    GUARD_CHECK = SCT_MEDIA, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK = SCT_MEDIA, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK = SCT_MEDIA, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = SCT_MEDIA, 0x85, "Compare Failure";
    ACCESS_DENIED = SCT_MEDIA, 0x86, "Access Denied";
    DEALLOCATED_BLOCK = SCT_MEDIA, 0x87, "Deallocated or Unwritten Logical Block";
    INTERNAL_PATH = SCT_PATH, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = SCT_PATH, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = SCT_PATH, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = SCT_PATH, 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATHING = SCT_PATH, 0x60, "Controller Pathing Error";
    HOST_PATHING = SCT_PATH, 0x70, "Host Pathing Error";
    ABORTED_BY_HOST = SCT_PATH, 0x71, "Command Aborted By Host";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.known_name(), self.sct()) {
            (Some(name), _) => f.write_str(name)?,
            (None, SCT_GENERIC) => f.write_str("unknown generic status")?,
            (None, SCT_COMMAND) => f.write_str("unknown command specific status")?,
            (None, SCT_MEDIA) => f.write_str("unknown media status")?,
            (None, SCT_PATH) => f.write_str("unknown path status")?,
            (None, _) => f.write_str("vendor specific or reserved status")?,
        }
        write!(f, " (sct {:#x}, sc {:#04x}", self.sct(), self.sc())?;
        f.write_str(if self.dnr() { ", do not retry)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:#06x}, {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part of the field sits at its bits, and flags do not change the code.
    #[test]
    fn the_parts_of_a_status() {
        let status = Status::from_bits(0b111_1010_1000_0001);
        assert_eq!(
            (status.sct(), status.sc(), status.crd()),
            (SCT_MEDIA, 0x81, 3)
        );
        assert!(status.more() && status.dnr() && !status.is_success());
        assert_eq!(status.code(), Status::UNRECOVERED_READ);
        assert!(Status::SUCCESS.with_dnr().is_success());
    }

    /// Any 15 bits print, known or not.
    #[test]
    fn every_status_prints() {
        for bits in 0..=u16::MAX {
            assert!(!Status::from_bits(bits).to_string().is_empty());
        }
        let text = Status::INVALID_FIELD.with_dnr().to_string();
        assert_eq!(
            text,
            "Invalid Field in Command (sct 0x0, sc 0x02, do not retry)"
        );
    }
}
