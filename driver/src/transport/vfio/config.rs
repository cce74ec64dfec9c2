//! Configuration space: power state, Memory Space, Bus Master, interrupts, read back after each write.

use super::error::SetupError;
use super::facts::NVME_CLASS;
use crate::transport::pci::PciAddress;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

/// Offsets in the header (PCI Local Bus 3.0, section 6.1) and the bits used here.
const VENDOR: u64 = 0x00;
const COMMAND: u64 = 0x04;
const STATUS: u64 = 0x06;
const REVISION_AND_CLASS: u64 = 0x08;
const CAPABILITIES: u64 = 0x34;
const COMMAND_MEMORY_SPACE: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTX_DISABLE: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const ALL_ONES: u16 = 0xffff;

/// Capability ids, and their fields.
const CAP_POWER_MANAGEMENT: u8 = 0x01;
const CAP_MSIX: u8 = 0x11;
const PMCSR: u64 = 4;
const PMCSR_STATE: u16 = 0b11;
const MSIX_TABLE: u64 = 4;
const MSIX_PENDING: u64 = 8;
const MSIX_BAR: u32 = 0b111;

/// No chain is longer: each capability takes four bytes of the 192 behind the header.
const CAPABILITIES_MAX: usize = 48;
/// A function needs ten milliseconds from D3hot to D0 (PCI Power Management, section 5.4).
const WAKE_UP: Duration = Duration::from_millis(10);

/// A function's configuration space, through its VFIO file.
#[derive(Debug)]
pub(super) struct ConfigSpace {
    device: File,
    address: PciAddress,
    /// Where configuration space begins in the file.
    offset: u64,
}

impl ConfigSpace {
    pub(super) fn new(device: File, address: PciAddress, offset: u64) -> Self {
        Self {
            device,
            address,
            offset,
        }
    }

    /// The device's file.
    pub(super) fn device(&self) -> &File {
        &self.device
    }

    fn read<const N: usize>(&self, at: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.device.read_exact_at(&mut bytes, self.offset + at)?;
        Ok(bytes)
    }

    fn read16(&self, at: u64) -> Result<u16, SetupError> {
        self.read(at)
            .map(u16::from_le_bytes)
            .map_err(|error| self.error("reading", error))
    }

    fn read32(&self, at: u64) -> Result<u32, SetupError> {
        self.read(at)
            .map(u32::from_le_bytes)
            .map_err(|error| self.error("reading", error))
    }

    fn write16(&self, at: u64, value: u16) -> Result<(), SetupError> {
        self.device
            .write_all_at(&value.to_le_bytes(), self.offset + at)
            .map_err(|error| self.error("writing", error))
    }

    fn error(&self, verb: &str, error: io::Error) -> SetupError {
        SetupError::os(
            format!("{verb} the configuration space of {}", self.address),
            error,
        )
    }

    /// Fails if the function is off the bus.
    pub(super) fn check_present(&self) -> Result<(), SetupError> {
        if self.read16(VENDOR)? == ALL_ONES {
            return Err(SetupError::NotResponding {
                address: self.address,
            });
        }
        Ok(())
    }

    /// Fails if the function is no NVMe controller.
    pub(super) fn check_class(&self) -> Result<(), SetupError> {
        let class = self.read32(REVISION_AND_CLASS)? >> 8;
        if class != NVME_CLASS {
            return Err(SetupError::NotNvme {
                address: self.address,
                class,
            });
        }
        Ok(())
    }

    /// Wakes the function up, lets it answer to its registers and reach memory, and masks its INTx.
    pub(super) fn enable(&self) -> Result<(), SetupError> {
        self.check_present()?;
        if let Some(pmcsr) = self
            .capability(CAP_POWER_MANAGEMENT)?
            .map(|cap| cap + PMCSR)
        {
            let state = self.read16(pmcsr)?;
            if state & PMCSR_STATE != 0 {
                self.write16(pmcsr, state & !PMCSR_STATE)?;
                thread::sleep(WAKE_UP);
                self.read_back(pmcsr, "power state D0", PMCSR_STATE, 0)?;
            }
        }
        let wanted = COMMAND_MEMORY_SPACE | COMMAND_BUS_MASTER | COMMAND_INTX_DISABLE;
        self.write16(COMMAND, self.read16(COMMAND)? | wanted)?;
        self.read_back(
            COMMAND,
            "Memory Space, Bus Master and Interrupt Disable",
            wanted,
            wanted,
        )
    }

    /// Takes the function's access to memory away.
    pub(super) fn silence(&self) -> Result<(), SetupError> {
        self.check_present()?;
        self.write16(COMMAND, self.read16(COMMAND)? & !COMMAND_BUS_MASTER)?;
        self.read_back(COMMAND, "Bus Master off", COMMAND_BUS_MASTER, 0)
    }

    fn read_back(
        &self,
        at: u64,
        what: &'static str,
        mask: u16,
        wanted: u16,
    ) -> Result<(), SetupError> {
        let got = self.read16(at)?;
        if got == ALL_ONES {
            self.check_present()?;
        }
        if got & mask != wanted {
            let address = self.address;
            return Err(SetupError::ConfigRejected {
                address,
                what,
                wanted,
                got: got & mask,
            });
        }
        Ok(())
    }

    /// Where a capability lies. The chain is followed for as many steps as it can have.
    fn capability(&self, id: u8) -> Result<Option<u64>, SetupError> {
        if self.read16(STATUS)? & STATUS_CAPABILITIES == 0 {
            return Ok(None);
        }
        let mut pointer = self.read16(CAPABILITIES)?.to_le_bytes()[0];
        for _ in 0..CAPABILITIES_MAX {
            let at = pointer & !0b11;
            if at < 0x40 {
                break;
            }
            let [found, next] = self.read16(u64::from(at))?.to_le_bytes();
            if found == id {
                return Ok(Some(u64::from(at)));
            }
            pointer = next;
        }
        Ok(None)
    }

    /// Where the interrupt tables begin in BAR0, if they are there at or behind byte `from`.
    pub(super) fn msix_in_bar0(&self, from: u64) -> Result<Option<u64>, SetupError> {
        let Some(cap) = self.capability(CAP_MSIX)? else {
            return Ok(None);
        };
        let mut first = None;
        for field in [MSIX_TABLE, MSIX_PENDING] {
            let value = self.read32(cap + field)?;
            let at = u64::from(value & !MSIX_BAR);
            if value & MSIX_BAR == 0 && at >= from {
                first = Some(first.map_or(at, |first: u64| first.min(at)));
            }
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration space in a file, which takes every write.
    fn space(set: &[(usize, &[u8])]) -> ConfigSpace {
        let mut bytes = [0u8; 256];
        bytes[..2].copy_from_slice(&[0x36, 0x1b]);
        bytes[0x09..0x0c].copy_from_slice(&[2, 8, 1]);
        for (at, value) in set {
            bytes[*at..*at + value.len()].copy_from_slice(value);
        }
        let file = tempfile::tempfile().unwrap();
        // Away from the file's start, as in a VFIO device.
        file.write_all_at(&bytes, 4096).unwrap();
        ConfigSpace::new(file, "01:00.0".parse().unwrap(), 4096)
    }

    /// Memory Space and Bus Master go on, INTx is masked, the other bits stay; the way back too.
    #[test]
    fn the_command_register_is_set_and_read_back() {
        let config = space(&[(4, &[0x40, 0x01])]);
        config.check_class().unwrap();
        config.enable().unwrap();
        assert_eq!(config.read16(COMMAND).unwrap(), 0x0546);
        config.silence().unwrap();
        assert_eq!(config.read16(COMMAND).unwrap(), 0x0542);
    }

    /// A function in D3hot is woken up, behind another capability in the chain.
    #[test]
    fn a_sleeping_function_is_woken() {
        let config = space(&[
            (6, &[0x10]),
            (0x34, &[0x40]),
            (0x40, &[5, 0x50]),
            (0x50, &[1, 0, 3, 0, 0x0b]),
        ]);
        config.enable().unwrap();
        assert_eq!(config.read16(0x54).unwrap(), 0x0008);
    }

    /// A function that swallows writes is reported, with what did not take.
    #[test]
    fn a_write_that_does_not_take_is_reported() {
        let zeroes = File::options()
            .read(true)
            .write(true)
            .open("/dev/zero")
            .unwrap();
        let config = ConfigSpace::new(zeroes, "01:00.0".parse().unwrap(), 0);
        let error = config.enable().unwrap_err();
        assert!(matches!(
            error,
            SetupError::ConfigRejected {
                wanted: 0x0406,
                got: 0,
                ..
            }
        ));
        assert!(error.to_string().contains("Bus Master"), "{error}");
    }

    /// A function that is gone, of another class or cut short is an error, never a panic.
    #[test]
    fn a_strange_function_is_refused() {
        let gone = space(&[(0, &[0xff; 256])]);
        assert!(matches!(
            gone.enable(),
            Err(SetupError::NotResponding { .. })
        ));
        assert!(matches!(
            gone.silence(),
            Err(SetupError::NotResponding { .. })
        ));
        let other = space(&[(9, &[0, 0, 2])]);
        assert!(matches!(
            other.check_class(),
            Err(SetupError::NotNvme {
                class: 0x02_0000,
                ..
            })
        ));
        let empty = ConfigSpace::new(tempfile::tempfile().unwrap(), "1:0.0".parse().unwrap(), 0);
        assert!(matches!(empty.enable(), Err(SetupError::Os { .. })));
    }

    /// A capability chain that points at itself or into the header ends.
    #[test]
    fn a_capability_chain_ends() {
        let ring = space(&[(6, &[0x10]), (0x34, &[0x40]), (0x40, &[5, 0x40])]);
        assert_eq!(ring.capability(CAP_MSIX).unwrap(), None);
        let header = space(&[(6, &[0x10]), (0x34, &[0x04])]);
        assert_eq!(header.capability(CAP_MSIX).unwrap(), None);
    }

    /// The interrupt tables are found where they lie in BAR0, and only there.
    #[test]
    fn interrupt_tables_in_bar0_are_found() {
        let cap = |table: u32, pending: u32| {
            let (table, pending) = (table.to_le_bytes(), pending.to_le_bytes());
            space(&[
                (6, &[0x10]),
                (0x34, &[0x40]),
                (0x40, &[0x11, 0, 0x40, 0x80]),
                (0x44, &table),
                (0x48, &pending),
            ])
        };
        assert_eq!(
            cap(0x2000, 0x3000).msix_in_bar0(0x1000).unwrap(),
            Some(0x2000)
        );
        assert_eq!(
            cap(0x3000, 0x2800).msix_in_bar0(0x1000).unwrap(),
            Some(0x2800)
        );
        assert_eq!(cap(0x3004, 0x2804).msix_in_bar0(0x1000).unwrap(), None);
        assert_eq!(space(&[]).msix_in_bar0(0x1000).unwrap(), None);
    }
}
