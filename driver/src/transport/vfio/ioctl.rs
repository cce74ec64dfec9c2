//! The VFIO ioctls that vfio-ioctls has no wrapper for, or whose wrapper loses the reason of a
//! failure.
//!
//! vfio-ioctls' `VfioDevice` is not used: when dropped it closes the device and then unwraps a look
//! into sysfs, where a drive that has just been pulled is no longer found; it does not tell why a group
//! was refused; and it takes its groups out of the container, and so all mappings, with the last device.
#![expect(unsafe_code, reason = "an ioctl hands raw memory to the kernel")]

use super::caps::{IommuInfo, RegionInfo};
use super::error::SetupError;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use vfio_bindings::bindings::vfio as abi;
use zerocopy::{FromBytes, IntoBytes};

/// An ioctl's number. VFIO's carry neither direction nor size (linux/vfio.h).
const fn number(nr: u32) -> libc::Ioctl {
    libc::_IO(abi::VFIO_TYPE as u32, abi::VFIO_BASE + nr)
}

const SET_IOMMU: libc::Ioctl = number(2);
const GROUP_GET_STATUS: libc::Ioctl = number(3);
const GROUP_SET_CONTAINER: libc::Ioctl = number(4);
const GROUP_UNSET_CONTAINER: libc::Ioctl = number(5);
const GROUP_GET_DEVICE_FD: libc::Ioctl = number(6);
const DEVICE_GET_INFO: libc::Ioctl = number(7);
const DEVICE_GET_REGION_INFO: libc::Ioctl = number(8);
const DEVICE_RESET: libc::Ioctl = number(11);
const IOMMU_GET_INFO: libc::Ioctl = number(12);
const IOMMU_UNMAP_DMA: libc::Ioctl = number(14);

/// The longest answer that is believed, in bytes, and how often one that grows is asked for again.
const ANSWER_MAX: usize = 1 << 20;
const ASK_AGAIN: usize = 4;

/// Size of a structure as its `argsz` field takes it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the structures are some dozens of bytes long"
)]
const fn argsz<T>() -> u32 {
    size_of::<T>() as u32
}

/// What an ioctl returned, or why it failed.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Issues an ioctl whose argument is no pointer.
fn plain(fd: RawFd, nr: libc::Ioctl, value: u32) -> io::Result<libc::c_int> {
    // SAFETY: the ioctls that come here take a number or nothing, and reach no memory of ours.
    check(unsafe { libc::ioctl(fd, nr, libc::c_ulong::from(value)) })
}

/// Issues an ioctl that reads and writes `argument`, and nothing of ours beside it.
///
/// # Safety
/// `argument` must be the structure that `nr` takes, with an `argsz` of at most its size.
unsafe fn with<T>(fd: RawFd, nr: libc::Ioctl, argument: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the caller promises that the kernel stays inside `argument`.
    check(unsafe { libc::ioctl(fd, nr, std::ptr::from_mut(argument)) })
}

/// Issues an ioctl whose answer has a fixed part and a chain of capabilities behind it.
///
/// The answer is asked for again with more room, as the kernel says that it needs it.
///
/// # Safety
/// `nr` must take a structure that starts as `head` does, with `argsz` as its first field.
unsafe fn with_caps(fd: RawFd, nr: libc::Ioctl, head: &[u32]) -> io::Result<Vec<u8>> {
    let mut len = size_of_val(head);
    for _ in 0..ASK_AGAIN {
        // Words of eight bytes, so that the structure is aligned.
        let mut answer = vec![0u64; len.div_ceil(size_of::<u64>())];
        let bytes = answer.as_mut_bytes();
        let room = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let words = head
            .iter()
            .enumerate()
            .map(|(at, word)| if at == 0 { room } else { *word });
        for (place, word) in bytes.chunks_exact_mut(size_of::<u32>()).zip(words) {
            place.copy_from_slice(word.as_bytes());
        }
        // SAFETY: the caller promises that the kernel stays inside `argsz` bytes, which there are.
        check(unsafe { libc::ioctl(fd, nr, answer.as_mut_ptr()) })?;
        let bytes = answer.as_bytes();
        let need = u32::read_from_prefix(bytes).map_or(0, |(argsz, _)| argsz);
        let need = usize::try_from(need).unwrap_or(usize::MAX);
        if need <= bytes.len() {
            return Ok(bytes.to_vec());
        }
        if need > ANSWER_MAX {
            break;
        }
        len = need;
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel's answer grows without end",
    ))
}

/// Gives the container its IOMMU: type1, version 2. Its first group must be in it.
pub(super) fn set_iommu(container: &impl AsRawFd) -> io::Result<()> {
    plain(container.as_raw_fd(), SET_IOMMU, abi::VFIO_TYPE1v2_IOMMU).map(drop)
}

/// What the container's IOMMU can do.
pub(super) fn iommu_info(container: &impl AsRawFd) -> Result<IommuInfo, SetupError> {
    let head = [0u32; size_of::<abi::vfio_iommu_type1_info>() / 4];
    // SAFETY: VFIO_IOMMU_GET_INFO takes a `vfio_iommu_type1_info`, of which this is a zeroed one.
    let answer = unsafe { with_caps(container.as_raw_fd(), IOMMU_GET_INFO, &head) }
        .map_err(|error| SetupError::os("asking what the IOMMU can do", error))?;
    IommuInfo::parse(&answer).map_err(|source| SetupError::BadAnswer {
        what: "VFIO_IOMMU_GET_INFO",
        source,
    })
}

/// Takes back a mapping. Returns the bytes that the kernel says it unmapped.
pub(super) fn unmap(container: &impl AsRawFd, iova: u64, len: u64) -> io::Result<u64> {
    let mut argument = abi::vfio_iommu_type1_dma_unmap {
        argsz: argsz::<abi::vfio_iommu_type1_dma_unmap>(),
        iova,
        size: len,
        ..Default::default()
    };
    // SAFETY: it is the structure of VFIO_IOMMU_UNMAP_DMA; without flags nothing follows it. Taking
    // access away from a device endangers nobody.
    unsafe { with(container.as_raw_fd(), IOMMU_UNMAP_DMA, &mut argument) }?;
    Ok(argument.size)
}

/// Whether all members of the group are free for a user to take.
pub(super) fn group_is_viable(group: &File) -> io::Result<bool> {
    let mut status = abi::vfio_group_status {
        argsz: argsz::<abi::vfio_group_status>(),
        flags: 0,
    };
    // SAFETY: it is the structure of VFIO_GROUP_GET_STATUS.
    unsafe { with(group.as_raw_fd(), GROUP_GET_STATUS, &mut status) }?;
    Ok(status.flags & abi::VFIO_GROUP_FLAGS_VIABLE != 0)
}

/// Puts the group into the container.
pub(super) fn join(group: &File, container: &impl AsRawFd) -> io::Result<()> {
    let mut fd = container.as_raw_fd();
    // SAFETY: VFIO_GROUP_SET_CONTAINER reads one descriptor.
    unsafe { with(group.as_raw_fd(), GROUP_SET_CONTAINER, &mut fd) }.map(drop)
}

/// Takes the group out of its container.
pub(super) fn leave(group: &File) -> io::Result<()> {
    plain(group.as_raw_fd(), GROUP_UNSET_CONTAINER, 0).map(drop)
}

/// Opens a function of the group.
pub(super) fn open_device(group: &File, name: &str) -> io::Result<File> {
    let name = CString::new(name)?;
    // SAFETY: VFIO_GROUP_GET_DEVICE_FD reads a string that ends with a zero byte.
    let fd = check(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD, name.as_ptr()) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Flags of the device: whether it is a PCI function, whether it can be reset.
pub(super) fn device_flags(device: &File) -> io::Result<u32> {
    let mut info = abi::vfio_device_info {
        argsz: argsz::<abi::vfio_device_info>(),
        ..Default::default()
    };
    // SAFETY: it is the structure of VFIO_DEVICE_GET_INFO.
    unsafe { with(device.as_raw_fd(), DEVICE_GET_INFO, &mut info) }?;
    Ok(info.flags)
}

/// One region of the device.
pub(super) fn region_info(device: &File, index: u32) -> Result<RegionInfo, SetupError> {
    let mut head = [0u32; size_of::<abi::vfio_region_info>() / 4];
    // `index` is the third word, behind `argsz` and `flags`.
    head[2] = index;
    const { assert!(std::mem::offset_of!(abi::vfio_region_info, index) == 8) };
    // SAFETY: VFIO_DEVICE_GET_REGION_INFO takes a `vfio_region_info`, of which this is one.
    let answer = unsafe { with_caps(device.as_raw_fd(), DEVICE_GET_REGION_INFO, &head) }
        .map_err(|error| SetupError::os(format!("asking for region {index}"), error))?;
    RegionInfo::parse(&answer).map_err(|source| SetupError::BadAnswer {
        what: "VFIO_DEVICE_GET_REGION_INFO",
        source,
    })
}

/// Resets the function.
pub(super) fn reset(device: &File) -> io::Result<()> {
    plain(device.as_raw_fd(), DEVICE_RESET, 0).map(drop)
}
