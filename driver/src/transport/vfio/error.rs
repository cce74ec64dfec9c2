//! Everything that can stand between a person and a controller on VFIO, and what to do about it.

use super::facts::{Driver, GroupMember, Holder};
use crate::transport::pci::PciAddress;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a controller cannot be attached through VFIO.
///
/// Each message says what was found and what a person can do about it, with commands where there are
/// any. `docs/running-as-a-user.md` walks through the whole set-up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no PCI function at the address.
    #[error("there is no PCI device {address}: `lspci -D` lists those that there are")]
    NoSuchDevice {
        /// The address asked for.
        address: PciAddress,
    },
    /// The function is something else than an NVMe controller.
    #[error(
        "{address} is not an NVMe controller (its PCI class is {class:06x}, NVMe is 010802): \
         `lspci -D -d ::0108` lists the NVMe controllers"
    )]
    NotNvme {
        /// The function.
        address: PciAddress,
        /// Its class code: base class, sub-class, programming interface.
        class: u32,
    },
    /// No IOMMU translates for the function.
    #[error(
        "{address} is in no IOMMU group, and DMA goes through an IOMMU always: switch on VT-d, \
         AMD-Vi or SMMU in the firmware, and on Intel add intel_iommu=on to the kernel's command \
         line, then boot again"
    )]
    NoIommuGroup {
        /// The function.
        address: PciAddress,
    },
    /// The function is bound to another driver, or to none.
    #[error("{}", bound_to_other_driver(address, driver))]
    BoundToOtherDriver {
        /// The function.
        address: PciAddress,
        /// The driver that has it.
        driver: Driver,
    },
    /// Another function of the IOMMU group is still in the hands of the kernel.
    #[error("{}", group_not_viable(address, *group, members))]
    GroupNotViable {
        /// The function.
        address: PciAddress,
        /// Number of its IOMMU group.
        group: u32,
        /// All members of the group.
        members: Vec<GroupMember>,
    },
    /// The kernel's VFIO is not there.
    #[error("{} cannot be opened: load VFIO with `modprobe vfio-pci`", path.display())]
    VfioMissing {
        /// The file that is missing.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// This user may not open a file of VFIO's.
    #[error(
        "no permission to open {path}: it belongs to uid {owner} and gid {group} with mode \
         {mode:04o}, and this process runs as uid {uid}. Give the file to this user with \
         `chown {uid} {path}` as root, or for good with the udev rule in docs/running-as-a-user.md",
        path = path.display()
    )]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// User that owns the file.
        owner: u32,
        /// Group that owns the file.
        group: u32,
        /// Permission bits of the file.
        mode: u32,
        /// Effective user of this process.
        uid: u32,
    },
    /// Somebody else has the IOMMU group open.
    #[error("{}", device_in_use(address, *group, holders))]
    DeviceInUse {
        /// The function.
        address: PciAddress,
        /// Number of its IOMMU group.
        group: u32,
        /// The processes that have the group open, as far as this user can see.
        holders: Vec<Holder>,
    },
    /// The locked-memory limit is too low for the memory wanted.
    #[error(
        "{need} bytes are to be locked for DMA, but RLIMIT_MEMLOCK allows {limit} bytes of which \
         {locked} are locked already: raise it to {} KiB or more with `ulimit -l`, LimitMEMLOCK= \
         in the service's unit, or a memlock line in /etc/security/limits.conf",
        need.saturating_add(*locked).div_ceil(1024)
    )]
    MemlockTooLow {
        /// Bytes that are to be locked.
        need: u64,
        /// The limit in bytes.
        limit: u64,
        /// Bytes that this process has locked already.
        locked: u64,
    },
    /// The IOMMU translates fewer addresses than are wanted.
    #[error(
        "{need} bytes of I/O addresses are wanted, but the IOMMU's aperture holds {have}: use \
         less DMA memory, or several containers"
    )]
    ApertureTooNarrow {
        /// Bytes wanted.
        need: u64,
        /// Bytes that the permitted ranges hold.
        have: u64,
    },
    /// The container's quota of mappings is used up.
    #[error(
        "the container has no DMA mapping left: use fewer, larger regions, or load \
         vfio_iommu_type1 with a larger dma_entry_limit"
    )]
    QuotaUsedUp,
    /// The platform cannot confine the device's interrupts.
    #[error(
        "the kernel refuses to hand out IOMMU group {group}: interrupt remapping is off. Switch it \
         on in the firmware (x2APIC or VT-d settings) and do not boot with intremap=off"
    )]
    NoInterruptRemapping {
        /// Number of the IOMMU group.
        group: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The group cannot join the container of the other controllers.
    #[error(
        "IOMMU group {group} of {address} cannot join the container of the other controllers, \
         whose mappings it may not be able to reach: give it a DMA domain of its own"
    )]
    ContainerRefused {
        /// The function.
        address: PciAddress,
        /// Number of its IOMMU group.
        group: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel lacks something that is needed.
    #[error("this kernel's VFIO does not {what}: Linux 5.4 or later is needed")]
    KernelTooOld {
        /// What it does not do.
        what: &'static str,
    },
    /// The kernel's answer makes no sense.
    #[error("VFIO's answer to {what} makes no sense")]
    BadAnswer {
        /// What was asked.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: super::caps::CapsError,
    },
    /// The register window is too small for an NVMe controller.
    #[error(
        "BAR0 of {address} gives {have:#x} bytes of registers, an NVMe controller needs {need:#x} \
         at least"
    )]
    BarTooSmall {
        /// The function.
        address: PciAddress,
        /// Bytes needed.
        need: u64,
        /// Bytes that can be mapped.
        have: u64,
    },
    /// The function does not answer.
    #[error(
        "{address} does not answer (its configuration space reads all ones): it is powered off, \
         asleep or pulled. If it sleeps: `echo on > /sys/bus/pci/devices/{address}/power/control`, \
         or load vfio-pci with disable_idle_d3=1"
    )]
    NotResponding {
        /// The function.
        address: PciAddress,
    },
    /// A setting in configuration space did not take.
    #[error("{address} did not take {what}: {wanted:#06x} wanted, {got:#06x} read back")]
    ConfigRejected {
        /// The function.
        address: PciAddress,
        /// What was set.
        what: &'static str,
        /// The bits wanted.
        wanted: u16,
        /// The bits read back.
        got: u16,
    },
    /// The operating system refused for another reason.
    #[error("{what} failed")]
    Os {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl SetupError {
    pub(super) fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os {
            what: what.into(),
            source: source.into(),
        }
    }
}

/// The commands that bind a function to vfio-pci.
fn bind_commands(address: impl fmt::Display, bound: bool) -> String {
    let device = format!("/sys/bus/pci/devices/{address}");
    let unbind = if bound {
        format!("echo {address} > {device}/driver/unbind; ")
    } else {
        String::new()
    };
    format!(
        "`modprobe vfio-pci; echo vfio-pci > {device}/driver_override; {unbind}echo {address} > \
         /sys/bus/pci/drivers_probe`"
    )
}

fn bound_to_other_driver(address: &PciAddress, driver: &Driver) -> String {
    match driver {
        Driver::Bound(name) => format!(
            "{address} is bound to the driver `{name}`: unmount what is on it and bind it to \
             vfio-pci, as root: {}",
            bind_commands(address, true)
        ),
        _ => format!(
            "{address} is bound to no driver: bind it to vfio-pci, as root: {}",
            bind_commands(address, false)
        ),
    }
}

fn group_not_viable(address: &PciAddress, group: u32, members: &[GroupMember]) -> String {
    let list: Vec<_> = members.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{address} shares IOMMU group {group} with functions that the kernel still uses (members: \
         {}): a group is handed out as a whole",
        list.join(", ")
    );
    let commands: Vec<_> = members
        .iter()
        .filter(|member| member.blocks_group())
        .map(|member| bind_commands(&member.name, true))
        .collect();
    if !commands.is_empty() {
        text += ". Bind the others to vfio-pci too, as root: ";
        text += &commands.join(" and ");
    }
    text
}

fn device_in_use(address: &PciAddress, group: u32, holders: &[Holder]) -> String {
    let by = match holders {
        [] => {
            "a process that this user cannot see (as root: `fuser -v /dev/vfio/".to_owned()
                + &group.to_string()
                + "`)"
        }
        _ => holders
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    };
    let mut text = format!("{address} is in use: IOMMU group {group} is held by {by}");
    if holders
        .iter()
        .any(|holder| holder.pid == std::process::id())
    {
        text += ". Attach further controllers of the group to the DMA domain that has it already";
    } else {
        text += ". Stop that process, or use another controller";
    }
    text
}
