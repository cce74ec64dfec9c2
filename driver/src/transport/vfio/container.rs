//! An IOMMU container: the IOMMU groups in it, and the translation that their functions share.
#![expect(unsafe_code, reason = "an IOMMU mapping is a promise about raw memory")]

use super::SetupError;
use super::facts::{FunctionFacts, Host, permission_error};
use super::ioctl;
use super::memlock::Memlock;
use crate::memory::{DmaTarget, DmaTargetError};
use crate::transport::pci::PciAddress;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::process;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfio_ioctls::{VfioContainer, VfioError};

/// The memory map of the controllers that are attached through one VFIO container.
///
/// Each [`VfioTransport::open`](super::VfioTransport::open) makes one, or joins one that is there: then
/// one mapping serves all of them. An IOMMU group is given back when its last function is closed;
/// only the last group stays until the target is dropped, because the mappings stay with it.
pub struct VfioTarget {
    groups: Mutex<HashMap<u32, Group>>,
    container: VfioContainer,
    host: Host,
    /// The process that made it. A forked child shares the container and must not change it.
    owner: u32,
}

/// An IOMMU group in the container.
#[derive(Debug)]
struct Group {
    file: File,
    open: HashSet<PciAddress>,
}

/// A function's place in its target's group. Dropped after the device's file has been closed.
#[derive(Debug)]
pub(super) struct Membership {
    target: Arc<VfioTarget>,
    group: u32,
    address: PciAddress,
}

impl Membership {
    pub(super) fn target(&self) -> &Arc<VfioTarget> {
        &self.target
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut groups = self.target.lock();
        if let Some(group) = groups.get_mut(&self.group) {
            group.open.remove(&self.address);
        }
        self.target.release_idle(&mut groups);
    }
}

impl VfioTarget {
    /// A container without groups.
    pub(super) fn new(host: Host) -> Result<Self, SetupError> {
        let container = VfioContainer::new(None).map_err(|error| container_error(error, &host))?;
        let groups = Mutex::default();
        Ok(Self {
            groups,
            container,
            host,
            owner: process::id(),
        })
    }

    /// Whether `dma_bytes` more can be mapped here, as far as can be told beforehand.
    ///
    /// # Errors
    /// [`SetupError::ApertureTooNarrow`], [`SetupError::MemlockTooLow`], [`SetupError::QuotaUsedUp`],
    /// or why the kernel could not be asked.
    pub fn check_room(&self, dma_bytes: u64) -> Result<(), SetupError> {
        let info = ioctl::iommu_info(&self.container)?;
        let have = bytes_in(&info.ranges.unwrap_or_default());
        if dma_bytes > have {
            return Err(SetupError::ApertureTooNarrow {
                need: dma_bytes,
                have,
            });
        }
        if info.mappings_left == Some(0) {
            return Err(SetupError::QuotaUsedUp);
        }
        let page = rustix::param::page_size() as u64;
        let need = dma_bytes
            .checked_next_multiple_of(page)
            .unwrap_or(dma_bytes);
        Memlock::of_this_process(&self.host).check(need)
    }

    /// Opens a function in this container.
    pub(super) fn attach(
        self: &Arc<Self>,
        function: &FunctionFacts,
        group: u32,
    ) -> Result<(File, Membership), SetupError> {
        let address = function.address;
        let mut groups = self.lock();
        if !groups.contains_key(&group) {
            let file = self.open_group(function, group)?;
            self.join(&file, function, group, groups.is_empty())?;
            groups.insert(
                group,
                Group {
                    file,
                    open: HashSet::new(),
                },
            );
        }
        let opened = match groups.get_mut(&group) {
            Some(entry) if !entry.open.contains(&address) => {
                let device = ioctl::open_device(&entry.file, &address.to_string());
                if device.is_ok() {
                    entry.open.insert(address);
                }
                device.map_err(|error| SetupError::os(format!("opening {address}"), error))
            }
            _ => Err(self.in_use(function, group)),
        };
        // Either the group kept for its mappings is no longer needed, or this one was in vain.
        self.release_idle(&mut groups);
        let device = opened?;
        Ok((
            device,
            Membership {
                target: Arc::clone(self),
                group,
                address,
            },
        ))
    }

    fn open_group(&self, function: &FunctionFacts, group: u32) -> Result<File, SetupError> {
        let path = self.host.group_file(group);
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| {
                // What stands in the way of everybody is told before what stands in this user's way.
                match error.raw_os_error() {
                    Some(libc::EBUSY) => self.in_use(function, group),
                    _ if function.members.iter().any(|member| member.blocks_group()) => {
                        not_viable(function, group)
                    }
                    Some(libc::EACCES | libc::EPERM) => {
                        permission_error(&path).unwrap_or_else(|| {
                            SetupError::os(format!("opening {}", path.display()), error)
                        })
                    }
                    Some(libc::ENOENT) if self.host.is_noiommu(group) => SetupError::NoIommuGroup {
                        address: function.address,
                    },
                    Some(libc::ENOENT) => SetupError::VfioMissing {
                        path: path.clone(),
                        source: error,
                    },
                    _ => SetupError::os(format!("opening {}", path.display()), error),
                }
            })?;
        match ioctl::group_is_viable(&file) {
            Ok(true) => Ok(file),
            Ok(false) => Err(not_viable(function, group)),
            Err(error) => Err(SetupError::os(
                format!("asking for group {group}'s state"),
                error,
            )),
        }
    }

    fn join(
        &self,
        file: &File,
        function: &FunctionFacts,
        group: u32,
        first: bool,
    ) -> Result<(), SetupError> {
        let address = function.address;
        // With the first group the container gets its IOMMU; a further one is attached to it at once.
        let refused = |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM) => SetupError::NoInterruptRemapping { group, source },
            Some(libc::EBUSY) => self.in_use(function, group),
            _ if !first => SetupError::ContainerRefused {
                address,
                group,
                source,
            },
            _ => SetupError::os(
                format!("putting IOMMU group {group} into a container"),
                source,
            ),
        };
        ioctl::join(file, &self.container).map_err(refused)?;
        if !first {
            return Ok(());
        }
        ioctl::set_iommu(&self.container).map_err(refused)?;
        match ioctl::iommu_info(&self.container)?.ranges {
            Some(_) => Ok(()),
            None => Err(SetupError::KernelTooOld {
                what: "tell which I/O addresses may be used",
            }),
        }
    }

    fn in_use(&self, function: &FunctionFacts, group: u32) -> SetupError {
        let holders = self.host.holders(&self.host.group_file(group));
        SetupError::DeviceInUse {
            address: function.address,
            group,
            holders,
        }
    }

    /// Gives back the groups of which nothing is open, all but the last.
    fn release_idle(&self, groups: &mut HashMap<u32, Group>) {
        if self.is_foreign() {
            return;
        }
        let idle: Vec<_> = groups
            .iter()
            .filter(|(_, group)| group.open.is_empty())
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            if groups.len() == 1 {
                break;
            }
            // Closing the group's file takes it out of the container too, so a refusal costs nothing.
            if let Some(group) = groups.remove(&id) {
                let _ = ioctl::leave(&group.file);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is a forked child of the one that made the target.
    pub(super) fn is_foreign(&self) -> bool {
        process::id() != self.owner
    }

    fn refuse_foreign(
        &self,
        what: &'static str,
        iova: u64,
        len: usize,
    ) -> Result<(), DmaTargetError> {
        if self.is_foreign() {
            let source = io::Error::other("the container belongs to the parent process");
            return Err(DmaTargetError::Os {
                what,
                iova,
                len,
                source,
            });
        }
        Ok(())
    }
}

/// The bytes that a list of disjoint ranges holds.
fn bytes_in(ranges: &[RangeInclusive<u64>]) -> u64 {
    let len = |range: &RangeInclusive<u64>| (range.end() - range.start()).saturating_add(1);
    ranges.iter().map(len).fold(0, u64::saturating_add)
}

fn not_viable(function: &FunctionFacts, group: u32) -> SetupError {
    let members = function.members.clone();
    SetupError::GroupNotViable {
        address: function.address,
        group,
        members,
    }
}

fn container_error(error: VfioError, host: &Host) -> SetupError {
    let path = host.container_file();
    match error {
        VfioError::OpenContainer(source) => match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => permission_error(&path)
                .unwrap_or_else(|| SetupError::os(format!("opening {}", path.display()), source)),
            _ => SetupError::VfioMissing { path, source },
        },
        VfioError::VfioExtension => SetupError::KernelTooOld {
            what: "offer the type1 IOMMU (module vfio_iommu_type1)",
        },
        other => SetupError::os("making a VFIO container", io::Error::other(other)),
    }
}

impl fmt::Debug for VfioTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioTarget")
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

// SAFETY: the IOMMU lets the functions of the container reach what is mapped and nothing else. The
// container has a group, and so keeps its mappings, from the first attach until it is dropped. A
// mapping is taken for gone only if the kernel says that it unmapped all of it.
unsafe impl DmaTarget for VfioTarget {
    /// Empty if the kernel does not answer.
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        ioctl::iommu_info(&self.container)
            .ok()
            .and_then(|info| info.ranges)
            .unwrap_or_default()
    }

    fn page_size(&self) -> u64 {
        let sizes = ioctl::iommu_info(&self.container).map_or(0, |info| info.page_sizes);
        match sizes {
            0 => rustix::param::page_size() as u64,
            sizes => 1 << sizes.trailing_zeros(),
        }
    }

    fn mappings_left(&self) -> Option<u64> {
        ioctl::iommu_info(&self.container).ok()?.mappings_left
    }

    fn isolates(&self) -> bool {
        true
    }

    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaTargetError> {
        self.refuse_foreign("mapping", iova, len)?;
        // SAFETY: the caller keeps the memory valid, and free of references, until it is unmapped.
        let result = unsafe { self.container.vfio_dma_map(iova, len, memory.as_ptr()) };
        let source = match result {
            Ok(()) => return Ok(()),
            Err(VfioError::IommuDmaMap(errno)) => io::Error::from(errno),
            Err(other) => io::Error::other(other),
        };
        Err(match source.raw_os_error() {
            Some(libc::ENOMEM) => match Memlock::of_this_process(&self.host).check(len as u64) {
                Err(SetupError::MemlockTooLow {
                    need,
                    limit,
                    locked,
                }) => DmaTargetError::MemlockLimit {
                    need,
                    limit,
                    locked,
                },
                _ => DmaTargetError::Os {
                    what: "mapping",
                    iova,
                    len,
                    source,
                },
            },
            Some(libc::ENOSPC) => DmaTargetError::QuotaUsedUp { len },
            Some(libc::EEXIST | libc::EINVAL) => DmaTargetError::AddressRefused { iova, len },
            _ => DmaTargetError::Os {
                what: "mapping",
                iova,
                len,
                source,
            },
        })
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaTargetError> {
        self.refuse_foreign("unmapping", iova, len)?;
        let removed = ioctl::unmap(&self.container, iova, len as u64).map_err(|source| {
            DmaTargetError::Os {
                what: "unmapping",
                iova,
                len,
                source,
            }
        })?;
        if removed != len as u64 {
            return Err(DmaTargetError::UnmappedShort { iova, len, removed });
        }
        Ok(())
    }
}
