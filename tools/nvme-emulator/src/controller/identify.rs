//! Identify: what the controller and its namespaces are.

use super::events::AERL;
use super::logs::{CCTEMP_KELVIN, ERROR_ENTRIES, WCTEMP_KELVIN};
use super::registers::VERSION;
use super::{Answer, Controller};
use driver::spec::identify::{
    Cns, IDENTIFY_LEN, IdentifyController, IdentifyNamespace, NIDT_CSI, NIDT_EUI64, NIDT_NGUID,
    NIDT_UUID, NSID_ALL, NamespaceList,
};
use driver::spec::{Cqe, Sqe, Status};
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

impl Controller {
    pub(super) fn identify(&mut self, sqe: &Sqe) -> Answer {
        let [cns, ..] = sqe.cdw10.to_le_bytes();
        match Cns(cns) {
            Cns::NAMESPACE => {
                let data = self.identify_namespace(sqe.nsid)?;
                self.reply(sqe, data.as_bytes())?;
            }
            Cns::CONTROLLER => {
                let data = self.identify_controller();
                self.reply(sqe, data.as_bytes())?;
            }
            Cns::ACTIVE_NAMESPACES => {
                let data = self.active_namespaces(sqe.nsid)?;
                self.reply(sqe, data.as_bytes())?;
            }
            Cns::NAMESPACE_DESCRIPTORS => {
                let data = self.descriptors(sqe.nsid)?;
                self.reply(sqe, &data)?;
            }
            _ => return Err(Status::INVALID_FIELD.with_dnr()),
        }
        Ok(0)
    }

    fn identify_controller(&self) -> IdentifyController {
        let settings = &self.settings;
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut id = IdentifyController::new_zeroed();
        fill(&mut id.sn, &settings.serial);
        fill(&mut id.mn, &settings.model);
        id.fr = firmware_revision();
        id.mdts = settings.mdts;
        id.cntlid = 1.into();
        id.ver = u32::from(VERSION).into();
        id.rtd3e_us = micros(settings.shutdown_delay).into();
        id.cntrltype = 1;
        id.acl = 3;
        id.aerl = AERL;
        // One firmware slot, read only.
        id.frmw = 1 << 1 | 1;
        id.lpa = IdentifyController::LPA_EXTENDED_DATA;
        id.elpe = u8::try_from(ERROR_ENTRIES - 1).unwrap_or(0);
        id.wctemp_kelvin = WCTEMP_KELVIN.into();
        id.cctemp_kelvin = CCTEMP_KELVIN.into();
        let capacity =
            |disk: &super::Disk| u128::from(disk.media.blocks()) << disk.media.block_shift();
        id.tnvmcap = self.disks.iter().map(capacity).sum::<u128>().into();
        id.sqes = Sqe::SIZE_LOG2 << 4 | Sqe::SIZE_LOG2;
        id.cqes = Cqe::SIZE_LOG2 << 4 | Cqe::SIZE_LOG2;
        id.nn = u32::try_from(self.disks.len()).unwrap_or(u32::MAX).into();
        id.oncs = (IdentifyController::ONCS_COMPARE
            | IdentifyController::ONCS_DSM
            | IdentifyController::ONCS_WRITE_ZEROES
            | IdentifyController::ONCS_SAVE_SELECT)
            .into();
        id.vwc = IdentifyController::VWC_FLUSH_ALL;
        if settings.cache_bytes.is_some() {
            id.vwc |= IdentifyController::VWC_PRESENT;
        }
        let nqn = format!("nqn.2014.08.org.nvmexpress:emulator:{}", settings.serial);
        let len = nqn.len().min(id.subnqn.len() - 1);
        id.subnqn
            .iter_mut()
            .zip(nqn.bytes().take(len))
            .for_each(|(to, from)| *to = from);
        id
    }

    fn identify_namespace(&self, nsid: u32) -> Result<IdentifyNamespace, Status> {
        let index = nsid
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let disk = index.and_then(|index| self.disks.get(index));
        let disk = disk.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
        let mut id = IdentifyNamespace::new_zeroed();
        let blocks = disk.media.blocks();
        id.nsze = blocks.into();
        id.ncap = blocks.into();
        id.nuse = disk.media.used_blocks().into();
        // Blocks in use are counted, and deallocated ones read as zeros.
        id.nsfeat = IdentifyNamespace::NSFEAT_THIN;
        id.dlfeat = 1;
        // NSATTR bit 0: write protected.
        id.nsattr = u8::from(!disk.media.is_writable());
        id.noiob = disk.optimal_boundary.into();
        id.nvmcap = (u128::from(blocks) << disk.media.block_shift()).into();
        id.nguid = self.nguid(nsid);
        id.eui64 = self.eui64(nsid);
        if let Some(format) = id.lbaf.first_mut() {
            format.lbads = u8::try_from(disk.media.block_shift()).unwrap_or(0);
        }
        Ok(id)
    }

    fn active_namespaces(&self, after: u32) -> Result<NamespaceList, Status> {
        if after >= NSID_ALL - 1 {
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        }
        let mut list = NamespaceList::new_zeroed();
        let last = u32::try_from(self.disks.len()).unwrap_or(u32::MAX);
        for (slot, nsid) in list.nsid.iter_mut().zip(after + 1..=last) {
            *slot = nsid.into();
        }
        Ok(list)
    }

    fn descriptors(&self, nsid: u32) -> Result<Vec<u8>, Status> {
        if nsid == 0 || usize::try_from(nsid).is_ok_and(|nsid| nsid > self.disks.len()) {
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        }
        let mut uuid = self.nguid(nsid);
        // Version 8 (as its maker likes) and the variant of RFC 9562.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let (nguid, eui64) = (self.nguid(nsid), self.eui64(nsid));
        let ids: [(u8, &[u8]); 4] = [
            (NIDT_EUI64, &eui64),
            (NIDT_NGUID, &nguid),
            (NIDT_UUID, &uuid),
            (NIDT_CSI, &[0]),
        ];
        let mut list = Vec::with_capacity(IDENTIFY_LEN);
        for (kind, id) in ids {
            list.extend([kind, u8::try_from(id.len()).unwrap_or(0), 0, 0]);
            list.extend(id);
        }
        list.resize(IDENTIFY_LEN, 0);
        Ok(list)
    }

    /// An identifier that depends on the serial number and the namespace alone.
    fn eui64(&self, nsid: u32) -> [u8; 8] {
        // FNV-1a: stable over versions and machines.
        let hash = self
            .settings
            .serial
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let [a, b, c, ..] = hash.to_le_bytes();
        let [w, x, y, z] = nsid.to_le_bytes();
        // Bit 1 of the first byte: administered locally.
        [0x02, a, b, c, z, y, x, w]
    }

    fn nguid(&self, nsid: u32) -> [u8; 16] {
        let mut id = [0; 16];
        let (head, tail) = id.split_at_mut(8);
        head.copy_from_slice(b"\x02DBEMU\0\x01");
        tail.copy_from_slice(&self.eui64(nsid));
        id
    }
}

/// FR: the version of this crate.
pub(super) fn firmware_revision() -> [u8; 8] {
    let mut field = [0; 8];
    fill(&mut field, env!("CARGO_PKG_VERSION"));
    field
}

/// Fills an ASCII field, padded with spaces.
fn fill(field: &mut [u8], text: &str) {
    let mut bytes = text.bytes().filter(u8::is_ascii);
    field.fill_with(|| bytes.next().unwrap_or(b' '));
}
