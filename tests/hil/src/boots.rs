//! The boots of the guest and the controllers that it finds in each.
//!
//! The host makes QEMU's command line from these tables, the guest looks its devices up in them: a
//! test names a controller and never a PCI address.

/// One way to start the guest.
#[derive(Debug)]
pub struct Boot {
    /// The name that tests and people select it by.
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Options of QEMU's `intel-iommu` device, each with a leading comma.
    pub iommu_options: &'static str,
    /// Words on the kernel's command line.
    pub kernel_options: &'static str,
    /// The controllers that are plugged in.
    pub controllers: &'static [&'static Controller],
}

/// One emulated NVMe controller.
#[derive(Debug)]
pub struct Controller {
    /// Its name, which is its serial number too.
    pub name: &'static str,
    /// Its device number on the root bus.
    pub slot: u8,
    /// Its function number. Functions of one slot share an IOMMU group.
    pub function: u8,
    /// Options of QEMU's `nvme` device, each with a leading comma.
    pub options: &'static str,
    /// Bytes of a logical block, in every namespace.
    pub lba_bytes: u64,
    /// The namespaces, from 1 on, by their sizes in MiB.
    pub namespaces_mib: &'static [u64],
    /// The largest transfer in bytes; `None`: the controller sets no limit.
    pub max_transfer: Option<u64>,
    /// Entries that a queue may have.
    pub queue_entries: u32,
    /// I/O queue pairs that the controller grants.
    pub io_queues: u16,
}

impl Controller {
    /// The PCI address in the guest.
    #[must_use]
    pub fn address(&self) -> String {
        format!("0000:00:{:02x}.{}", self.slot, self.function)
    }
}

/// What QEMU does unless it is told otherwise.
const DEFAULT: Controller = Controller {
    name: "",
    slot: 0,
    function: 0,
    options: "",
    lba_bytes: 512,
    namespaces_mib: &[64],
    max_transfer: Some(512 << 10),
    queue_entries: 2048,
    io_queues: 64,
};

/// 512-byte blocks.
pub const LBA512: Controller = Controller {
    name: "lba512",
    slot: 0x10,
    ..DEFAULT
};
/// A second one of the same shape, for what takes two.
pub const TWIN: Controller = Controller {
    name: "twin",
    slot: 0x11,
    ..DEFAULT
};
/// 4096-byte blocks.
pub const LBA4096: Controller = Controller {
    name: "lba4096",
    slot: 0x12,
    lba_bytes: 4096,
    ..DEFAULT
};
/// The smallest transfer limit that there is: two pages.
pub const MDTS_8K: Controller = Controller {
    name: "mdts8k",
    slot: 0x13,
    options: ",mdts=1",
    max_transfer: Some(8 << 10),
    ..DEFAULT
};
/// A transfer limit that fills a page of PRP entries to the last.
pub const MDTS_2M: Controller = Controller {
    name: "mdts2m",
    slot: 0x14,
    options: ",mdts=9",
    max_transfer: Some(2 << 20),
    ..DEFAULT
};
/// No transfer limit of the controller's own: the longest transfers take chained PRP lists.
pub const MDTS_NONE: Controller = Controller {
    name: "mdtsnone",
    slot: 0x15,
    options: ",mdts=0",
    max_transfer: None,
    ..DEFAULT
};
/// Queues of eight entries.
pub const SMALL_QUEUES: Controller = Controller {
    name: "smallqueues",
    slot: 0x16,
    options: ",mqes=7",
    queue_entries: 8,
    ..DEFAULT
};
/// Two I/O queue pairs.
pub const TWO_QUEUES: Controller = Controller {
    name: "twoqueues",
    slot: 0x17,
    options: ",max_ioqpairs=2",
    io_queues: 2,
    ..DEFAULT
};
/// Three namespaces of different sizes.
pub const THREE_NAMESPACES: Controller = Controller {
    name: "threens",
    slot: 0x18,
    namespaces_mib: &[48, 32, 16],
    ..DEFAULT
};
/// The first of two functions that share an IOMMU group.
pub const GROUP_FIRST: Controller = Controller {
    name: "groupfirst",
    slot: 5,
    options: ",multifunction=on",
    ..DEFAULT
};
/// The second of them.
pub const GROUP_SECOND: Controller = Controller {
    name: "groupsecond",
    slot: 5,
    function: 1,
    ..DEFAULT
};

/// The controllers that data is written to and read from.
pub const SHAPES: &[&Controller] = &[
    &LBA512,
    &LBA4096,
    &MDTS_8K,
    &MDTS_2M,
    &MDTS_NONE,
    &SMALL_QUEUES,
    &TWO_QUEUES,
    &THREE_NAMESPACES,
];

const EVERYTHING: &[&Controller] = &[
    &LBA512,
    &TWIN,
    &LBA4096,
    &MDTS_8K,
    &MDTS_2M,
    &MDTS_NONE,
    &SMALL_QUEUES,
    &TWO_QUEUES,
    &THREE_NAMESPACES,
    &GROUP_FIRST,
    &GROUP_SECOND,
];

/// Every boot, in the order in which they run.
pub const BOOTS: &[Boot] = &[
    Boot {
        name: "plain",
        purpose: "an IOMMU of 48 bits, ordinary pages",
        iommu_options: "",
        kernel_options: "intel_iommu=on",
        controllers: EVERYTHING,
    },
    // A machine like the one before, for the longest tests: two boots run side by side.
    Boot {
        name: "transfers",
        purpose: "as plain; transfers of every offset and length, and a thousand rounds",
        iommu_options: "",
        kernel_options: "intel_iommu=on",
        controllers: EVERYTHING,
    },
    Boot {
        name: "hugepages",
        purpose: "sixteen huge pages of 2 MiB",
        iommu_options: "",
        kernel_options: "intel_iommu=on hugepages=16",
        controllers: EVERYTHING,
    },
    Boot {
        name: "narrow",
        purpose: "an IOMMU of 39 bits",
        iommu_options: ",aw-bits=39",
        kernel_options: "intel_iommu=on",
        controllers: &[&LBA512, &TWIN],
    },
    Boot {
        name: "no-iommu",
        purpose: "no IOMMU in use, so no IOMMU groups",
        iommu_options: "",
        kernel_options: "intel_iommu=off",
        controllers: &[&LBA512],
    },
    Boot {
        name: "no-intremap",
        purpose: "an IOMMU that does not remap interrupts",
        iommu_options: ",intremap=off",
        kernel_options: "intel_iommu=on",
        controllers: &[&LBA512],
    },
];

/// The names of [`CUTS`].
pub const CUT_BOOTS: &[&str] = &["cut512", "cut4096"];

/// The boots that end in a power cut: one drive, whose writes are logged.
pub const CUTS: &[Boot] = &[
    Boot {
        name: "cut512",
        purpose: "power cuts, blocks of 512 bytes",
        iommu_options: "",
        kernel_options: "intel_iommu=on",
        controllers: &[&Controller {
            namespaces_mib: &[2],
            ..LBA512
        }],
    },
    Boot {
        name: "cut4096",
        purpose: "power cuts, blocks of 4096 bytes",
        iommu_options: "",
        kernel_options: "intel_iommu=on",
        controllers: &[&Controller {
            namespaces_mib: &[2],
            ..LBA4096
        }],
    },
];

/// The boot of that name.
#[must_use]
pub fn boot(name: &str) -> Option<&'static Boot> {
    BOOTS.iter().chain(CUTS).find(|boot| boot.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Names and PCI addresses tell controllers apart, and boots by their names.
    #[test]
    fn names_and_addresses_are_unique() {
        for boot in BOOTS.iter().chain(CUTS) {
            let names: HashSet<_> = boot.controllers.iter().map(|c| c.name).collect();
            let addresses: HashSet<_> = boot.controllers.iter().map(|c| c.address()).collect();
            assert_eq!(names.len(), boot.controllers.len(), "{}", boot.name);
            assert_eq!(addresses.len(), boot.controllers.len(), "{}", boot.name);
        }
        let names: HashSet<_> = BOOTS.iter().chain(CUTS).map(|boot| boot.name).collect();
        assert_eq!(names.len(), BOOTS.len() + CUTS.len());
        assert!(
            CUTS.iter()
                .map(|boot| boot.name)
                .eq(CUT_BOOTS.iter().copied())
        );
    }
}
