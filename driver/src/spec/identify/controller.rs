//! Identify Controller.

use super::{IDENTIFY_LEN, ascii};
use zerocopy::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Identify Controller data structure (CNS 01h), 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyController {
    /// VID: PCI vendor.
    pub vid: U16,
    /// SSVID: PCI subsystem vendor.
    pub ssvid: U16,
    /// SN: serial number, ASCII padded with spaces. See [`ascii`].
    pub sn: [u8; 20],
    /// MN: model number, ASCII padded with spaces.
    pub mn: [u8; 40],
    /// FR: firmware revision, ASCII padded with spaces.
    pub fr: [u8; 8],
    /// RAB: recommended arbitration burst.
    pub rab: u8,
    /// IEEE: organisation's identifier.
    pub ieee: [u8; 3],
    /// CMIC: multi-path and sharing capabilities.
    pub cmic: u8,
    /// MDTS: the largest transfer is 2^MDTS pages of CAP.MPSMIN; 0: no limit.
    pub mdts: u8,
    /// CNTLID: the controller's identifier in the subsystem.
    pub cntlid: U16,
    /// VER: the version, as the VS register.
    pub ver: U32,
    /// RTD3R: RTD3 resume latency in microseconds; 0: not reported.
    pub rtd3r_us: U32,
    /// RTD3E: RTD3 entry latency in microseconds, the time to allow for a shutdown; 0: not
    /// reported.
    pub rtd3e_us: U32,
    /// OAES: optional asynchronous events.
    pub oaes: U32,
    /// CTRATT: controller attributes.
    pub ctratt: U32,
    /// RRLS: read recovery levels.
    pub rrls: U16,
    reserved_102: [u8; 9],
    /// CNTRLTYPE: 1: I/O controller, 2: discovery, 3: administrative; 0: not reported.
    pub cntrltype: u8,
    /// FGUID: FRU identifier.
    pub fguid: [u8; 16],
    /// CRDT1 to CRDT3: command retry delays in units of 100 ms.
    pub crdt: [U16; 3],
    reserved_134: [u8; 122],
    /// OACS: optional admin commands.
    pub oacs: U16,
    /// ACL: Abort commands outstanding at a time, less one.
    pub acl: u8,
    /// AERL: Asynchronous Event Requests outstanding at a time, less one.
    pub aerl: u8,
    /// FRMW: firmware slots.
    pub frmw: u8,
    /// LPA: log page attributes.
    pub lpa: u8,
    /// ELPE: entries of the Error Information log, less one.
    pub elpe: u8,
    /// NPSS: power states, less one.
    pub npss: u8,
    /// AVSCC: admin vendor specific command configuration.
    pub avscc: u8,
    /// APSTA: autonomous power state transitions.
    pub apsta: u8,
    /// WCTEMP: warning composite temperature in kelvins; 0: not reported.
    pub wctemp_kelvin: U16,
    /// CCTEMP: critical composite temperature in kelvins; 0: not reported.
    pub cctemp_kelvin: U16,
    /// MTFA: longest time for firmware activation, in units of 100 ms.
    pub mtfa: U16,
    /// HMPRE: preferred host memory buffer, in units of 4 KiB.
    pub hmpre: U32,
    /// HMMIN: smallest host memory buffer, in units of 4 KiB.
    pub hmmin: U32,
    /// TNVMCAP: capacity of the subsystem in bytes; 0: not reported.
    pub tnvmcap: U128,
    /// UNVMCAP: unallocated capacity in bytes.
    pub unvmcap: U128,
    /// RPMBS: replay protected memory.
    pub rpmbs: U32,
    /// EDSTT: time of an extended self-test in minutes.
    pub edstt: U16,
    /// DSTO: self-test options.
    pub dsto: u8,
    /// FWUG: firmware update granularity, in units of 4 KiB.
    pub fwug: u8,
    /// KAS: granularity of the keep alive timer, in units of 100 ms; 0: none.
    pub kas: U16,
    /// HCTMA: host controlled thermal management.
    pub hctma: U16,
    /// MNTMT: lowest thermal management temperature in kelvins.
    pub mntmt: U16,
    /// MXTMT: highest thermal management temperature in kelvins.
    pub mxtmt: U16,
    /// SANICAP: sanitize capabilities.
    pub sanicap: U32,
    /// HMMINDS: smallest descriptor of the host memory buffer, in units of 4 KiB.
    pub hmminds: U32,
    /// HMMAXD: most descriptors of the host memory buffer.
    pub hmmaxd: U16,
    /// NSETIDMAX: largest NVM set identifier.
    pub nsetidmax: U16,
    /// ENDGIDMAX: largest endurance group identifier.
    pub endgidmax: U16,
    /// ANATT: time of an asymmetric access transition in seconds.
    pub anatt: u8,
    /// ANACAP: asymmetric access capabilities.
    pub anacap: u8,
    /// ANAGRPMAX: largest asymmetric access group.
    pub anagrpmax: U32,
    /// NANAGRPID: number of asymmetric access groups.
    pub nanagrpid: U32,
    /// PELS: persistent event log size, in units of 64 KiB.
    pub pels: U32,
    reserved_356: [u8; 156],
    /// SQES: log2 of the I/O submission entry, required size in bits 3:0, largest in bits 7:4.
    pub sqes: u8,
    /// CQES: log2 of the I/O completion entry, required size in bits 3:0, largest in bits 7:4.
    pub cqes: u8,
    /// MAXCMD: most outstanding commands of a queue; 0: not reported.
    pub maxcmd: U16,
    /// NN: the largest valid namespace identifier.
    pub nn: U32,
    /// ONCS: optional NVM commands: see [`IdentifyController::ONCS_COMPARE`] and the like.
    pub oncs: U16,
    /// FUSES: fused operations.
    pub fuses: U16,
    /// FNA: format attributes.
    pub fna: u8,
    /// VWC: bit 0: there is a volatile write cache; bits 2:1: flush with NSID FFFFFFFFh.
    pub vwc: u8,
    /// AWUN: atomic write unit, in logical blocks, less one.
    pub awun: U16,
    /// AWUPF: atomic write unit across power failure, in logical blocks, less one.
    pub awupf: U16,
    /// ICSVSCC: I/O vendor specific command configuration.
    pub icsvscc: u8,
    /// NWPC: namespace write protection.
    pub nwpc: u8,
    /// ACWU: atomic compare and write unit, in logical blocks, less one.
    pub acwu: U16,
    /// CDFS: copy descriptor formats.
    pub cdfs: U16,
    /// SGLS: SGL support.
    pub sgls: U32,
    /// MNAN: most namespaces allowed; 0: as NN.
    pub mnan: U32,
    reserved_544: [u8; 224],
    /// SUBNQN: qualified name of the subsystem, UTF-8 ended by zero.
    pub subnqn: [u8; 256],
    reserved_1024: [u8; 1024],
    /// PSD: power state descriptors 0 to 31.
    pub psd: [[u8; 32]; 32],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}

impl IdentifyController {
    /// OACS: Format NVM.
    pub const OACS_FORMAT: u16 = 1 << 1;
    /// OACS: Doorbell Buffer Config.
    pub const OACS_DOORBELL_BUFFER: u16 = 1 << 8;
    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    /// ONCS: Write Uncorrectable.
    pub const ONCS_WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// ONCS: Dataset Management.
    pub const ONCS_DSM: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS: save and select of features.
    pub const ONCS_SAVE_SELECT: u16 = 1 << 4;
    /// ONCS: Timestamp.
    pub const ONCS_TIMESTAMP: u16 = 1 << 6;
    /// ONCS: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// VWC: there is a volatile write cache.
    pub const VWC_PRESENT: u8 = 1 << 0;
    /// VWC bits 2:1: Flush takes NSID FFFFFFFFh.
    pub const VWC_FLUSH_ALL: u8 = 3 << 1;
    /// LPA: the SMART log is kept for each namespace.
    pub const LPA_SMART_PER_NAMESPACE: u8 = 1 << 0;
    /// LPA: Get Log Page takes extended data (offsets and upper dword count).
    pub const LPA_EXTENDED_DATA: u8 = 1 << 2;

    /// The largest transfer in bytes for the smallest page of `2^(12 + mpsmin)` bytes (CAP.MPSMIN).
    /// `None`: no limit, or one beyond 64 bits.
    #[must_use]
    pub fn max_transfer_bytes(&self, mpsmin: u8) -> Option<u64> {
        if self.mdts == 0 {
            return None;
        }
        let shift = u32::from(self.mdts) + 12 + u32::from(mpsmin);
        1u64.checked_shl(shift)
    }

    /// The serial number without its padding.
    #[must_use]
    pub fn serial(&self) -> String {
        ascii(&self.sn)
    }

    /// The model number without its padding.
    #[must_use]
    pub fn model(&self) -> String {
        ascii(&self.mn)
    }

    /// The firmware revision without its padding.
    #[must_use]
    pub fn firmware(&self) -> String {
        ascii(&self.fr)
    }

    /// Whether there is a volatile write cache.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.vwc & Self::VWC_PRESENT != 0
    }
}

const _: () = assert!(size_of::<IdentifyController>() == IDENTIFY_LEN);
const _: () = assert!(std::mem::offset_of!(IdentifyController, mdts) == 77);
const _: () = assert!(std::mem::offset_of!(IdentifyController, ctratt) == 96);
const _: () = assert!(std::mem::offset_of!(IdentifyController, cntrltype) == 111);
const _: () = assert!(std::mem::offset_of!(IdentifyController, oacs) == 256);
const _: () = assert!(std::mem::offset_of!(IdentifyController, wctemp_kelvin) == 266);
const _: () = assert!(std::mem::offset_of!(IdentifyController, tnvmcap) == 280);
const _: () = assert!(std::mem::offset_of!(IdentifyController, kas) == 320);
const _: () = assert!(std::mem::offset_of!(IdentifyController, pels) == 352);
const _: () = assert!(std::mem::offset_of!(IdentifyController, sqes) == 512);
const _: () = assert!(std::mem::offset_of!(IdentifyController, vwc) == 525);
const _: () = assert!(std::mem::offset_of!(IdentifyController, sgls) == 536);
const _: () = assert!(std::mem::offset_of!(IdentifyController, subnqn) == 768);
const _: () = assert!(std::mem::offset_of!(IdentifyController, psd) == 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// MDTS is taken in 64 bits, and an absurd one is no limit instead of an overflow.
    #[test]
    fn max_transfer_is_computed_in_64_bits() {
        let mut id = IdentifyController::new_zeroed();
        assert_eq!(id.max_transfer_bytes(0), None);
        id.mdts = 5;
        assert_eq!(id.max_transfer_bytes(0), Some(128 << 10));
        id.mdts = 20;
        assert_eq!(id.max_transfer_bytes(4), Some(1 << 36));
        id.mdts = 255;
        assert_eq!(id.max_transfer_bytes(15), None);
    }
}
