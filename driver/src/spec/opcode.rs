//! Command opcodes of the admin command set and the NVM command set.

open_values! {
    /// An admin command's opcode ("Opcodes for Admin Commands").
    AdminOpcode: u8, "admin opcode" {
        DELETE_IO_SQ = 0x00, "Delete I/O Submission Queue";
        CREATE_IO_SQ = 0x01, "Create I/O Submission Queue";
        GET_LOG_PAGE = 0x02, "Get Log Page";
        DELETE_IO_CQ = 0x04, "Delete I/O Completion Queue";
        CREATE_IO_CQ = 0x05, "Create I/O Completion Queue";
        IDENTIFY = 0x06, "Identify";
        ABORT = 0x08, "Abort";
        SET_FEATURES = 0x09, "Set Features";
        GET_FEATURES = 0x0a, "Get Features";
        ASYNC_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
        NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
        FIRMWARE_COMMIT = 0x10, "Firmware Commit";
        FIRMWARE_DOWNLOAD = 0x11, "Firmware Image Download";
        DEVICE_SELF_TEST = 0x14, "Device Self-test";
        NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
        KEEP_ALIVE = 0x18, "Keep Alive";
        DOORBELL_BUFFER_CONFIG = 0x7c, "Doorbell Buffer Config";
        FORMAT_NVM = 0x80, "Format NVM";
        SECURITY_SEND = 0x81, "Security Send";
        SECURITY_RECEIVE = 0x82, "Security Receive";
        SANITIZE = 0x84, "Sanitize";
    }
}

open_values! {
    /// An I/O command's opcode ("Opcodes for NVM Commands").
    IoOpcode: u8, "I/O opcode" {
        FLUSH = 0x00, "Flush";
        WRITE = 0x01, "Write";
        READ = 0x02, "Read";
        WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
        COMPARE = 0x05, "Compare";
        WRITE_ZEROES = 0x08, "Write Zeroes";
        DATASET_MANAGEMENT = 0x09, "Dataset Management";
        VERIFY = 0x0c, "Verify";
        RESERVATION_REGISTER = 0x0d, "Reservation Register";
        RESERVATION_REPORT = 0x0e, "Reservation Report";
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        RESERVATION_RELEASE = 0x15, "Reservation Release";
        COPY = 0x19, "Copy";
    }
}

/// Which way data moves, by the low two bits of any opcode ("Data Transfer (DTD)").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    None,
    /// Host to controller.
    HostToController,
    /// Controller to host.
    ControllerToHost,
    /// Both ways.
    Both,
}

impl Transfer {
    /// The direction that `opcode` says.
    #[must_use]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 3 {
            0 => Self::None,
            1 => Self::HostToController,
            2 => Self::ControllerToHost,
            _ => Self::Both,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known opcodes print their name, unknown ones their number.
    #[test]
    fn opcodes_print() {
        assert_eq!(IoOpcode::READ.to_string(), "Read");
        assert_eq!(AdminOpcode(0xd5).to_string(), "admin opcode 0xd5");
        assert_eq!(Transfer::of(IoOpcode::WRITE.0), Transfer::HostToController);
        assert_eq!(Transfer::of(IoOpcode::READ.0), Transfer::ControllerToHost);
    }
}
