//! Identify Namespace and its LBA formats.

use super::IDENTIFY_LEN;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A logical block format, one of the 64 of Identify Namespace.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbaFormat {
    /// MS: bytes of metadata a block.
    pub ms: U16,
    /// LBADS: log2 of the block's data bytes; 0: the format is not available.
    pub lbads: u8,
    /// RP: relative performance in bits 1:0; 0 is best.
    pub rp: u8,
}

/// Identify Namespace data structure of the NVM command set (CNS 00h), 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// NSZE: size in logical blocks; 0: no such active namespace.
    pub nsze: U64,
    /// NCAP: capacity in logical blocks.
    pub ncap: U64,
    /// NUSE: logical blocks in use.
    pub nuse: U64,
    /// NSFEAT: features: see [`IdentifyNamespace::NSFEAT_OPTPERF`] and the like.
    pub nsfeat: u8,
    /// NLBAF: LBA formats, less one.
    pub nlbaf: u8,
    /// FLBAS: the format in use, index in bits 3:0 and, from 16 formats on, 6:5.
    pub flbas: u8,
    /// MC: metadata capabilities.
    pub mc: u8,
    /// DPC: protection capabilities.
    pub dpc: u8,
    /// DPS: protection in use.
    pub dps: u8,
    /// NMIC: multi-path and sharing.
    pub nmic: u8,
    /// RESCAP: reservations.
    pub rescap: u8,
    /// FPI: format progress.
    pub fpi: u8,
    /// DLFEAT: what deallocated blocks read as, in bits 2:0; 1: zeros.
    pub dlfeat: u8,
    /// NAWUN: atomic write unit of this namespace, less one.
    pub nawun: U16,
    /// NAWUPF: atomic write unit across power failure of this namespace, less one.
    pub nawupf: U16,
    /// NACWU: atomic compare and write unit of this namespace, less one.
    pub nacwu: U16,
    /// NABSN: atomic boundary size, less one.
    pub nabsn: U16,
    /// NABO: atomic boundary offset.
    pub nabo: U16,
    /// NABSPF: atomic boundary size across power failure, less one.
    pub nabspf: U16,
    /// NOIOB: optimal I/O boundary in logical blocks; 0: none.
    pub noiob: U16,
    /// NVMCAP: bytes allocated to this namespace.
    pub nvmcap: U128,
    /// NPWG: preferred write granularity, less one.
    pub npwg: U16,
    /// NPWA: preferred write alignment, less one.
    pub npwa: U16,
    /// NPDG: preferred deallocate granularity, less one.
    pub npdg: U16,
    /// NPDA: preferred deallocate alignment, less one.
    pub npda: U16,
    /// NOWS: optimal write size, less one.
    pub nows: U16,
    /// MSSRL: longest single source range of Copy.
    pub mssrl: U16,
    /// MCL: longest Copy.
    pub mcl: U32,
    /// MSRC: most source ranges of Copy, less one.
    pub msrc: u8,
    reserved_81: [u8; 11],
    /// ANAGRPID: asymmetric access group.
    pub anagrpid: U32,
    reserved_96: [u8; 3],
    /// NSATTR: attributes; bit 0: write protected.
    pub nsattr: u8,
    /// NVMSETID: NVM set.
    pub nvmsetid: U16,
    /// ENDGID: endurance group.
    pub endgid: U16,
    /// NGUID: globally unique identifier; zeros: none.
    pub nguid: [u8; 16],
    /// EUI64: extended unique identifier; zeros: none.
    pub eui64: [u8; 8],
    /// LBAF: the LBA formats.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}

impl IdentifyNamespace {
    /// NSFEAT: thin provisioning.
    pub const NSFEAT_THIN: u8 = 1 << 0;
    /// NSFEAT: NAWUN, NAWUPF and NACWU hold for this namespace.
    pub const NSFEAT_ATOMICS: u8 = 1 << 1;
    /// NSFEAT: deallocated blocks may be reported as errors.
    pub const NSFEAT_DEALLOCATED_ERROR: u8 = 1 << 2;
    /// NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS hold.
    pub const NSFEAT_OPTPERF: u8 = 1 << 4;

    /// The index of the LBA format in use.
    #[must_use]
    pub fn format_index(&self) -> usize {
        let low = usize::from(self.flbas & 0xf);
        // Bits 6:5 hold the upper bits only if there are more than 16 formats.
        if self.nlbaf < 16 {
            low
        } else {
            low | usize::from(self.flbas >> 5 & 3) << 4
        }
    }

    /// The LBA format in use. `None`: the device points beyond its own formats.
    #[must_use]
    pub fn format(&self) -> Option<LbaFormat> {
        let index = self.format_index();
        let count = usize::from(self.nlbaf).saturating_add(1);
        if index >= count {
            None
        } else {
            self.lbaf.get(index).copied()
        }
    }
}

const _: () = assert!(size_of::<LbaFormat>() == 4);
const _: () = assert!(size_of::<IdentifyNamespace>() == IDENTIFY_LEN);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, dlfeat) == 33);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, noiob) == 46);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, npwg) == 64);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, anagrpid) == 92);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, nguid) == 104);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, lbaf) == 128);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, vendor) == 384);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// A format index beyond the formats that the device claims is refused.
    #[test]
    fn a_format_beyond_the_list_is_none() {
        let mut ns = IdentifyNamespace::new_zeroed();
        ns.lbaf[0].lbads = 9;
        assert_eq!(ns.format().unwrap().lbads, 9);
        ns.flbas = 1;
        assert_eq!(ns.format(), None);
        ns.nlbaf = 63;
        ns.flbas = 0x62;
        ns.lbaf[0x32].lbads = 12;
        assert_eq!(ns.format().unwrap().lbads, 12);
        ns.nlbaf = 255;
        assert!(ns.format().is_some());
    }
}
