//! Features: identifiers and the values that Get and Set Features carry in a dword.

use bitfield_struct::bitfield;

open_values! {
    /// FID: a feature identifier ("Feature Identifiers").
    FeatureId: u8, "feature" {
        ARBITRATION = 0x01, "Arbitration";
        POWER_MANAGEMENT = 0x02, "Power Management";
        TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
        ERROR_RECOVERY = 0x05, "Error Recovery";
        VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
        NUMBER_OF_QUEUES = 0x07, "Number of Queues";
        INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
        INTERRUPT_VECTOR_CONFIGURATION = 0x09, "Interrupt Vector Configuration";
        WRITE_ATOMICITY_NORMAL = 0x0a, "Write Atomicity Normal";
        ASYNC_EVENT_CONFIGURATION = 0x0b, "Asynchronous Event Configuration";
        AUTONOMOUS_POWER_STATES = 0x0c, "Autonomous Power State Transition";
        HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
        TIMESTAMP = 0x0e, "Timestamp";
        KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer";
        HOST_BEHAVIOR = 0x16, "Host Behavior Support";
        HOST_IDENTIFIER = 0x81, "Host Identifier";
    }
}

open_values! {
    /// SEL: which value Get Features asks for.
    Select: u8, "feature value" {
        CURRENT = 0, "Current";
        DEFAULT = 1, "Default";
        SAVED = 2, "Saved";
        SUPPORTED = 3, "Supported Capabilities";
    }
}

/// Number of Queues: asked for in dword 11 of Set Features, granted in dword 0 of its completion.
/// Both counts are less one.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QueueCounts {
    /// NSQR or NSQA: I/O submission queues, less one.
    pub submission: u16,
    /// NCQR or NCQA: I/O completion queues, less one.
    pub completion: u16,
}

/// Temperature Threshold, dword 11.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// TMPTH: the threshold in kelvins.
    pub kelvin: u16,
    /// TMPSEL: the sensor; 0: the composite temperature, 15: all.
    #[bits(4)]
    pub sensor: u8,
    /// THSEL: 0: over temperature, 1: under temperature.
    #[bits(2)]
    pub kind: u8,
    #[bits(10)]
    __: u16,
}

const _: () = assert!(size_of::<QueueCounts>() == 4);
const _: () = assert!(size_of::<TemperatureThreshold>() == 4);
