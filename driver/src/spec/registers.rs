//! Controller properties: the registers at the start of BAR0.
//!
//! NVMe base 2.x, "Controller Properties" and, for the doorbells, the NVMe over PCIe transport
//! specification. Offsets are bytes from the start of BAR0. Setters ending in `_checked` refuse a
//! value that is too wide for its field; the plain ones are for values known to fit.

use bitfield_struct::bitfield;

/// Controller Capabilities, 64 bits: see [`Cap`].
pub const CAP: usize = 0x00;
/// Version, 32 bits: see [`Version`].
pub const VS: usize = 0x08;
/// Interrupt Mask Set.
pub const INTMS: usize = 0x0c;
/// Interrupt Mask Clear.
pub const INTMC: usize = 0x10;
/// Controller Configuration, 32 bits: see [`Cc`].
pub const CC: usize = 0x14;
/// Controller Status, 32 bits: see [`Csts`].
pub const CSTS: usize = 0x1c;
/// NVM Subsystem Reset.
pub const NSSR: usize = 0x20;
/// Admin Queue Attributes, 32 bits: see [`Aqa`].
pub const AQA: usize = 0x24;
/// Admin Submission Queue Base Address, 64 bits.
pub const ASQ: usize = 0x28;
/// Admin Completion Queue Base Address, 64 bits.
pub const ACQ: usize = 0x30;
/// Controller Memory Buffer Location.
pub const CMBLOC: usize = 0x38;
/// Controller Memory Buffer Size.
pub const CMBSZ: usize = 0x3c;
/// Boot Partition Information.
pub const BPINFO: usize = 0x40;
/// Boot Partition Read Select.
pub const BPRSEL: usize = 0x44;
/// Boot Partition Memory Buffer Location, 64 bits.
pub const BPMBL: usize = 0x48;
/// Controller Memory Buffer Memory Space Control, 64 bits.
pub const CMBMSC: usize = 0x50;
/// Controller Memory Buffer Status.
pub const CMBSTS: usize = 0x58;
/// NVM Subsystem Shutdown.
pub const NSSD: usize = 0x64;
/// Controller Ready Timeouts, 32 bits: see [`Crto`].
pub const CRTO: usize = 0x68;
/// Where the doorbells begin.
pub const DOORBELLS: usize = 0x1000;

/// Byte offset of the Submission Queue Tail doorbell of queue `qid` from [`DOORBELLS`], at the
/// doorbell stride `dstrd` that [`Cap::dstrd`] gives.
#[must_use]
pub const fn sq_tail_doorbell(qid: u16, dstrd: u8) -> usize {
    // 2 * 65535 << (2 + 15) fits 64 bits with room; the field has four bits.
    (2 * qid as usize) << (2 + (dstrd & 0xf) as usize)
}

/// Byte offset of the Completion Queue Head doorbell of queue `qid` from [`DOORBELLS`].
#[must_use]
pub const fn cq_head_doorbell(qid: u16, dstrd: u8) -> usize {
    (2 * qid as usize + 1) << (2 + (dstrd & 0xf) as usize)
}

/// Controller Capabilities (CAP).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// MQES: entries of the largest queue, less one.
    pub mqes: u16,
    /// CQR: queues must be physically contiguous.
    pub cqr: bool,
    /// AMS: arbitration mechanisms beyond round robin.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    __: u8,
    /// TO: the longest wait for CSTS.RDY to follow CC.EN, in units of 500 ms.
    pub to: u8,
    /// DSTRD: doorbells lie 2^(2 + DSTRD) bytes apart.
    #[bits(4)]
    pub dstrd: u8,
    /// NSSRS: NVM Subsystem Reset is supported.
    pub nssrs: bool,
    /// CSS bit 0: the NVM command set.
    pub css_nvm: bool,
    #[bits(5)]
    __: u8,
    /// CSS bit 6: one or more I/O command sets, chosen by Identify I/O Command Set.
    pub css_iocs: bool,
    /// CSS bit 7: no I/O command set, admin commands only.
    pub css_admin_only: bool,
    /// BPS: boot partitions are supported.
    pub bps: bool,
    /// CPS: controller power scope.
    #[bits(2)]
    pub cps: u8,
    /// MPSMIN: the smallest memory page is 2^(12 + MPSMIN) bytes.
    #[bits(4)]
    pub mpsmin: u8,
    /// MPSMAX: the largest memory page is 2^(12 + MPSMAX) bytes.
    #[bits(4)]
    pub mpsmax: u8,
    /// PMRS: a persistent memory region is supported.
    pub pmrs: bool,
    /// CMBS: a controller memory buffer is supported.
    pub cmbs: bool,
    /// NSSS: NVM Subsystem Shutdown is supported.
    pub nsss: bool,
    /// CRMS bit 0 (CRWMS): Controller Ready With Media; CRTO.CRWMT then holds.
    pub crwms: bool,
    /// CRMS bit 1 (CRIMS): Controller Ready Independent of Media.
    pub crims: bool,
    #[bits(3)]
    __: u8,
}

/// Version (VS), also the VER field of Identify Controller.
#[bitfield(u32)]
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// TER: tertiary version number.
    pub tertiary: u8,
    /// MNR: minor version number.
    pub minor: u8,
    /// MJR: major version number.
    pub major: u16,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.tertiary())
    }
}

/// Controller Configuration (CC).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// EN: enable.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// CSS: I/O command set selected.
    #[bits(3)]
    pub css: u8,
    /// MPS: the memory page is 2^(12 + MPS) bytes.
    #[bits(4)]
    pub mps: u8,
    /// AMS: arbitration mechanism selected.
    #[bits(3)]
    pub ams: u8,
    /// SHN: shutdown notification, one of `Cc::SHN_NORMAL` and `Cc::SHN_ABRUPT`.
    #[bits(2)]
    pub shn: u8,
    /// IOSQES: an I/O submission entry is 2^IOSQES bytes.
    #[bits(4)]
    pub iosqes: u8,
    /// IOCQES: an I/O completion entry is 2^IOCQES bytes.
    #[bits(4)]
    pub iocqes: u8,
    /// CRIME: ready independent of media.
    pub crime: bool,
    #[bits(7)]
    __: u8,
}

impl Cc {
    /// SHN: no notification.
    pub const SHN_NONE: u8 = 0;
    /// SHN: normal shutdown.
    pub const SHN_NORMAL: u8 = 1;
    /// SHN: abrupt shutdown.
    pub const SHN_ABRUPT: u8 = 2;
    /// CSS: the NVM command set.
    pub const CSS_NVM: u8 = 0;
    /// CSS: all I/O command sets that the controller supports.
    pub const CSS_ALL: u8 = 6;
    /// CSS: admin commands only.
    pub const CSS_ADMIN_ONLY: u8 = 7;
}

/// Controller Status (CSTS).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// RDY: ready for submission queue doorbells.
    pub rdy: bool,
    /// CFS: controller fatal status.
    pub cfs: bool,
    /// SHST: shutdown status, `Csts::SHST_*`.
    #[bits(2)]
    pub shst: u8,
    /// NSSRO: an NVM subsystem reset occurred.
    pub nssro: bool,
    /// PP: processing paused.
    pub pp: bool,
    /// ST: the shutdown is one of the NVM subsystem.
    pub st: bool,
    #[bits(25)]
    __: u32,
}

impl Csts {
    /// SHST: no shutdown was requested.
    pub const SHST_NORMAL: u8 = 0;
    /// SHST: shutdown processing goes on.
    pub const SHST_OCCURRING: u8 = 1;
    /// SHST: shutdown processing is complete.
    pub const SHST_COMPLETE: u8 = 2;
    /// What a register of a function that is gone reads as.
    pub const GONE: u32 = u32::MAX;
}

/// Admin Queue Attributes (AQA).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// ASQS: entries of the admin submission queue, less one.
    #[bits(12)]
    pub asqs: u16,
    #[bits(4)]
    __: u8,
    /// ACQS: entries of the admin completion queue, less one.
    #[bits(12)]
    pub acqs: u16,
    #[bits(4)]
    __: u8,
}

/// Controller Ready Timeouts (CRTO).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Crto {
    /// CRWMT: the longest wait until ready with media, in units of 500 ms.
    pub crwmt: u16,
    /// CRIMT: the longest wait until ready independent of media, in units of 500 ms.
    pub crimt: u16,
}

const _: () = assert!(size_of::<Cap>() == 8);
const _: () = assert!(size_of::<Version>() == 4);
const _: () = assert!(size_of::<Cc>() == 4);
const _: () = assert!(size_of::<Csts>() == 4);
const _: () = assert!(size_of::<Aqa>() == 4);
const _: () = assert!(size_of::<Crto>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of the capabilities sits at the bits that the specification gives it.
    #[test]
    fn capability_bits() {
        // MQES 2047, CQR, TO 20 (10 s), DSTRD 4, CSS NVM, MPSMAX 4, CRWMS.
        let raw = 2047 | 1 << 16 | 20 << 24 | 4 << 32 | 1 << 37 | 4 << 52 | 1 << 59;
        let cap = Cap::from_bits(raw);
        assert_eq!((cap.mqes(), cap.to(), cap.dstrd()), (2047, 20, 4));
        assert!(cap.cqr() && cap.css_nvm() && cap.crwms() && !cap.crims());
        assert_eq!((cap.mpsmin(), cap.mpsmax()), (0, 4));
        assert!(Cap::from_bits(1 << 43).css_iocs());
        assert!(Cap::from_bits(1 << 44).css_admin_only());
        assert!(Cap::from_bits(1 << 57).cmbs());
    }

    /// The configuration that a driver writes is the word that the specification spells.
    #[test]
    fn configuration_bits() {
        let cc = Cc::new()
            .with_en(true)
            .with_iosqes(6)
            .with_iocqes(4)
            .with_shn(Cc::SHN_NORMAL);
        assert_eq!(u32::from(cc), 0x0046_4001);
        assert_eq!(Csts::from_bits(0b1010).shst(), Csts::SHST_COMPLETE);
        assert!(Csts::from_bits(0b10).cfs());
        assert_eq!(
            u32::from(Aqa::new().with_asqs(31).with_acqs(63)),
            0x003f_001f
        );
        assert_eq!(Version::from_bits(0x0002_0100).to_string(), "2.1.0");
    }

    /// Doorbells interleave tail and head at the stride, without overflow at the extremes.
    #[test]
    fn doorbell_offsets() {
        assert_eq!(sq_tail_doorbell(0, 0), 0);
        assert_eq!(cq_head_doorbell(0, 0), 4);
        assert_eq!(sq_tail_doorbell(3, 4), 6 * 64);
        assert_eq!(cq_head_doorbell(u16::MAX, 15), (2 * 65535 + 1) << 17);
    }
}
