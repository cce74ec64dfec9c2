//! What attaching a controller will take, and what stands in the way, before anything is opened.

use super::error::SetupError;
use super::facts::{Driver, FunctionFacts, GroupMember, Host, NVME_CLASS, permission_error};
use super::memlock::Memlock;
use crate::transport::pci::PciAddress;
use rustix::fs::{Access, AtFlags, CWD};
use std::fmt;
use std::io;
use std::path::Path;

/// What attaching a controller will take; made by [`preflight`]. Its `Display` is for people.
#[derive(Debug)]
#[non_exhaustive]
pub struct Preflight {
    /// The function.
    pub address: PciAddress,
    /// Its driver.
    pub driver: Driver,
    /// Number of its IOMMU group.
    pub group: Option<u32>,
    /// The members of its IOMMU group.
    pub members: Vec<GroupMember>,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u32>,
    /// Bytes that will be locked, in whole pages.
    pub will_lock: u64,
    /// Bytes that this process may lock; `None`: as many as it likes.
    pub memlock_limit: Option<u64>,
    /// Bytes that this process has locked already.
    pub locked: u64,
    /// Everything that is known to stand in the way, the most basic first.
    pub obstacles: Vec<SetupError>,
}

/// Says what attaching `address` with `dma_bytes` of DMA memory will take.
///
/// It opens nothing and needs no privileges. What can be known only by opening the device (another
/// user's process that holds it, the IOMMU's aperture) may still come up then.
///
/// # Errors
/// [`SetupError::NoSuchDevice`], or why sysfs could not be read. Everything else is an entry of
/// [`Preflight::obstacles`].
pub fn preflight(address: PciAddress, dma_bytes: u64) -> Result<Preflight, SetupError> {
    preflight_on(&Host::default(), address, dma_bytes)
}

pub(super) fn preflight_on(
    host: &Host,
    address: PciAddress,
    dma_bytes: u64,
) -> Result<Preflight, SetupError> {
    let facts = host.function(address)?;
    let page = rustix::param::page_size() as u64;
    let will_lock = dma_bytes
        .checked_next_multiple_of(page)
        .unwrap_or(dma_bytes);
    let memlock = Memlock::of_this_process(host);
    let mut obstacles = function_obstacles(&facts);
    obstacles.extend(file_obstacles(host, &facts));
    obstacles.extend(memlock.check(will_lock).err());
    let FunctionFacts {
        driver,
        group,
        members,
        numa_node,
        ..
    } = facts;
    let Memlock {
        limit: memlock_limit,
        locked,
    } = memlock;
    Ok(Preflight {
        address,
        driver,
        group,
        members,
        numa_node,
        will_lock,
        memlock_limit,
        locked,
        obstacles,
    })
}

/// What is wrong with the function itself, the most basic first.
pub(super) fn function_obstacles(facts: &FunctionFacts) -> Vec<SetupError> {
    let address = facts.address;
    let mut obstacles = Vec::new();
    if facts.class != NVME_CLASS {
        obstacles.push(SetupError::NotNvme {
            address,
            class: facts.class,
        });
    }
    if facts.group.is_none() {
        obstacles.push(SetupError::NoIommuGroup { address });
    }
    if !matches!(facts.driver, Driver::Vfio(_)) {
        let driver = facts.driver.clone();
        obstacles.push(SetupError::BoundToOtherDriver { address, driver });
    }
    obstacles
}

/// What is wrong with the group and with the files that hand it out.
fn file_obstacles(host: &Host, facts: &FunctionFacts) -> Vec<SetupError> {
    let address = facts.address;
    let mut obstacles = Vec::new();
    let others = facts
        .members
        .iter()
        .filter(|member| member.name != address.to_string());
    if let Some(group) = facts.group
        && others.into_iter().any(GroupMember::blocks_group)
    {
        let members = facts.members.clone();
        obstacles.push(SetupError::GroupNotViable {
            address,
            group,
            members,
        });
    }
    obstacles.extend(access(&host.container_file()));
    if let (Some(group), Driver::Vfio(_)) = (facts.group, &facts.driver) {
        let file = host.group_file(group);
        obstacles.extend(access(&file));
        let holders = host.holders(&file);
        if !holders.is_empty() {
            obstacles.push(SetupError::DeviceInUse {
                address,
                group,
                holders,
            });
        }
    }
    obstacles
}

/// Why this user could not open `path`, without opening it.
fn access(path: &Path) -> Option<SetupError> {
    let wanted = Access::READ_OK | Access::WRITE_OK;
    match rustix::fs::accessat(CWD, path, wanted, AtFlags::EACCESS).map_err(io::Error::from) {
        Ok(()) => None,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => permission_error(path),
        Err(source) => Some(SetupError::VfioMissing {
            path: path.to_owned(),
            source,
        }),
    }
}

impl Preflight {
    /// Whether nothing is known to stand in the way.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.obstacles.is_empty()
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.address)?;
        writeln!(f, "  driver        {}", self.driver)?;
        match self.group {
            Some(group) => writeln!(f, "  IOMMU group   {group}")?,
            None => writeln!(f, "  IOMMU group   none")?,
        }
        for member in &self.members {
            writeln!(f, "    member      {member}")?;
        }
        match self.numa_node {
            Some(node) => writeln!(f, "  NUMA node     {node}")?,
            None => writeln!(f, "  NUMA node     not known")?,
        }
        writeln!(f, "  will lock     {} KiB", self.will_lock / 1024)?;
        match self.memlock_limit {
            Some(limit) => {
                let locked = self.locked / 1024;
                writeln!(
                    f,
                    "  may lock      {} KiB, {locked} KiB locked already",
                    limit / 1024
                )?;
            }
            None => writeln!(f, "  may lock      without limit")?,
        }
        if self.is_clear() {
            return write!(f, "  nothing stands in the way");
        }
        write!(f, "  in the way:")?;
        for (number, obstacle) in self.obstacles.iter().enumerate() {
            write!(f, "\n    {}. {obstacle}", number + 1)?;
        }
        Ok(())
    }
}
