//! What sysfs and procfs tell about a PCI function, without privileges and without opening it.

use super::SetupError;
use crate::transport::pci::PciAddress;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Base class 01h (storage), sub-class 08h (non-volatile memory), interface 02h (NVMe I/O
/// controller): NVMe over PCIe Transport, "Class Code".
pub(super) const NVME_CLASS: u32 = 0x01_08_02;

/// The driver that a function is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Driver {
    /// No driver.
    None,
    /// A driver of VFIO's, by name: vfio-pci or a relative.
    Vfio(String),
    /// Any other driver, by name.
    Bound(String),
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no driver"),
            Self::Vfio(name) | Self::Bound(name) => f.write_str(name),
        }
    }
}

/// A device in an IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// The device's name: a PCI address as a rule.
    pub name: String,
    /// Its driver.
    pub driver: Driver,
}

impl GroupMember {
    /// Whether this member keeps its group from being handed out, as far as a name can tell.
    ///
    /// The kernel lets VFIO's own drivers, pci-stub and the PCIe port driver coexist with a user.
    #[must_use]
    pub fn blocks_group(&self) -> bool {
        match &self.driver {
            Driver::None | Driver::Vfio(_) => false,
            Driver::Bound(name) => !matches!(name.as_str(), "pci-stub" | "pcieport"),
        }
    }
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name, self.driver)
    }
}

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = if self.pid == std::process::id() {
            ", this process"
        } else {
            ""
        };
        write!(f, "{} (pid {}{own})", self.name, self.pid)
    }
}

/// What is known about one PCI function.
#[derive(Debug, Clone)]
pub(super) struct FunctionFacts {
    pub address: PciAddress,
    pub class: u32,
    pub driver: Driver,
    pub group: Option<u32>,
    pub members: Vec<GroupMember>,
    pub numa_node: Option<u32>,
}

/// Where the kernel's own file systems are mounted. Tests build a false host in a directory.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub sys: PathBuf,
    pub dev: PathBuf,
    pub proc: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            proc: "/proc".into(),
        }
    }
}

impl Host {
    /// Reads all that sysfs says about a function.
    pub(super) fn function(&self, address: PciAddress) -> Result<FunctionFacts, SetupError> {
        let dir = self.sys.join("bus/pci/devices").join(address.to_string());
        let class = match fs::read_to_string(dir.join("class")) {
            Ok(text) => parse_class(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SetupError::NoSuchDevice { address });
            }
            Err(error) => return Err(SetupError::os(format!("reading {}", dir.display()), error)),
        };
        let class = class.ok_or_else(|| {
            SetupError::os(
                format!("reading the class of {address}"),
                io::ErrorKind::InvalidData,
            )
        })?;
        let group = link_name(&dir.join("iommu_group")).and_then(|name| name.parse().ok());
        let numa_node = fs::read_to_string(dir.join("numa_node"))
            .ok()
            // The kernel says -1 where there is no such thing as a node.
            .and_then(|text| text.trim().parse().ok());
        Ok(FunctionFacts {
            address,
            class,
            driver: driver_of(&dir),
            group,
            members: group.map(|group| self.members(group)).unwrap_or_default(),
            numa_node,
        })
    }

    /// The members of an IOMMU group, by name. What cannot be read is left out.
    pub(super) fn members(&self, group: u32) -> Vec<GroupMember> {
        let dir = self
            .sys
            .join("kernel/iommu_groups")
            .join(group.to_string())
            .join("devices");
        let mut members: Vec<_> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| GroupMember {
                name: entry.file_name().to_string_lossy().into_owned(),
                driver: driver_of(&entry.path()),
            })
            .collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// The file through which VFIO hands out an IOMMU group.
    pub(super) fn group_file(&self, group: u32) -> PathBuf {
        self.dev.join("vfio").join(group.to_string())
    }

    /// The file through which VFIO hands out containers.
    pub(super) fn container_file(&self) -> PathBuf {
        self.dev.join("vfio/vfio")
    }

    /// Whether the group is one that VFIO made up, without an IOMMU behind it.
    pub(super) fn is_noiommu(&self, group: u32) -> bool {
        self.dev.join(format!("vfio/noiommu-{group}")).exists()
    }

    /// The processes that have `file` open, as far as this user may look.
    pub(super) fn holders(&self, file: &Path) -> Vec<Holder> {
        let holds = |dir: &Path| {
            let fds = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
            fds.into_iter()
                .any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file))
        };
        let mut holders = Vec::new();
        for entry in fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if holds(&entry.path()) {
                let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                holders.push(Holder {
                    pid,
                    name: name.trim_end().to_owned(),
                });
            }
        }
        holders
    }
}

/// Describes why `path` could not be opened: no permission, or `None` if it is not about that.
pub(super) fn permission_error(path: &Path) -> Option<SetupError> {
    let meta = fs::metadata(path).ok()?;
    Some(SetupError::NoPermission {
        path: path.to_owned(),
        owner: meta.uid(),
        group: meta.gid(),
        mode: meta.mode() & 0o7777,
        uid: rustix::process::geteuid().as_raw(),
    })
}

/// The last part of a symbolic link's target.
fn link_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    target
        .file_name()
        .map(OsStr::to_string_lossy)
        .map(Into::into)
}

fn driver_of(device: &Path) -> Driver {
    match link_name(&device.join("driver")) {
        None => Driver::None,
        Some(name) if name.contains("vfio") => Driver::Vfio(name),
        Some(name) => Driver::Bound(name),
    }
}

/// The class as sysfs prints it: `0x010802`.
fn parse_class(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}
