//! The kernel's answers that carry a chain of capabilities: what the IOMMU can do, what of a region
//! can be mapped.
//!
//! A chain is walked with every offset checked, forwards only, so that it always ends.

use std::ops::{Range, RangeInclusive};
use vfio_bindings::bindings::vfio as abi;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapsError {
    /// The answer ends before what it announces.
    #[error("it ends before the structure at byte {offset}")]
    Truncated {
        /// Byte offset of the structure.
        offset: usize,
    },
    /// A capability points at itself, backwards, or into the fixed part.
    #[error("the capability chain leads to byte {offset}, which does not lie ahead")]
    NotAhead {
        /// Byte offset that it leads to.
        offset: usize,
    },
}

/// `struct vfio_info_cap_header`.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct CapHeader {
    id: u16,
    version: u16,
    next: u32,
}

/// A structure at byte `offset` of the answer.
fn read<T: FromBytes>(answer: &[u8], offset: usize) -> Result<T, CapsError> {
    answer
        .get(offset..)
        .and_then(|rest| T::read_from_prefix(rest).ok())
        .map(|(value, _)| value)
        .ok_or(CapsError::Truncated { offset })
}

/// An array of `count` structures at byte `offset` of the answer.
fn read_array<T: FromBytes>(answer: &[u8], offset: usize, count: u32) -> Result<Vec<T>, CapsError> {
    let truncated = CapsError::Truncated { offset };
    let count = usize::try_from(count).map_err(|_| truncated)?;
    let bytes = count.checked_mul(size_of::<T>()).ok_or(truncated)?;
    let end = offset
        .checked_add(bytes)
        .filter(|end| *end <= answer.len())
        .ok_or(truncated)?;
    (offset..end)
        .step_by(size_of::<T>())
        .map(|at| read(answer, at))
        .collect()
}

/// Calls `visit` with the id and the offset of each capability of a chain that begins at `first`.
fn walk(
    answer: &[u8],
    fixed: usize,
    first: u32,
    mut visit: impl FnMut(u32, usize) -> Result<(), CapsError>,
) -> Result<(), CapsError> {
    let mut ahead = fixed;
    let mut next = first;
    while next != 0 {
        let offset = usize::try_from(next).unwrap_or(usize::MAX);
        if offset < ahead {
            return Err(CapsError::NotAhead { offset });
        }
        let header: CapHeader = read(answer, offset)?;
        visit(u32::from(header.id), offset)?;
        ahead = offset + size_of::<CapHeader>();
        next = header.next;
    }
    Ok(())
}

/// Two 64-bit numbers: `struct vfio_iova_range` (start, end) and `struct
/// vfio_region_sparse_mmap_area` (offset, size).
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Pair(u64, u64);

/// Size of the fixed part of the arrays' capabilities: header, count, reserved.
const ARRAY_CAP: usize = size_of::<abi::vfio_iommu_type1_info_cap_iova_range>();
const _: () = assert!(ARRAY_CAP == size_of::<abi::vfio_region_info_cap_sparse_mmap>());

/// The entries of an array capability at byte `offset`.
fn read_pairs(answer: &[u8], offset: usize) -> Result<Vec<Pair>, CapsError> {
    let count = read::<u32>(answer, offset + size_of::<CapHeader>())?;
    read_array(answer, offset + ARRAY_CAP, count)
}

/// What a container's IOMMU can do (`VFIO_IOMMU_GET_INFO`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct IommuInfo {
    /// Page sizes that can be mapped, one bit each; zero: not told.
    pub page_sizes: u64,
    /// I/O virtual addresses that can be mapped; `None`: not told.
    pub ranges: Option<Vec<RangeInclusive<u64>>>,
    /// Mappings that can still be made; `None`: not told.
    pub mappings_left: Option<u64>,
}

/// `struct vfio_iommu_type1_info`.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct IommuInfoHead {
    argsz: u32,
    flags: u32,
    page_sizes: u64,
    cap_offset: u32,
    _pad: u32,
}
const _: () = assert!(size_of::<IommuInfoHead>() == size_of::<abi::vfio_iommu_type1_info>());

impl IommuInfo {
    /// Reads the kernel's answer.
    pub(super) fn parse(answer: &[u8]) -> Result<Self, CapsError> {
        let head: IommuInfoHead = read(answer, 0)?;
        let mut info = Self::default();
        if head.flags & abi::VFIO_IOMMU_INFO_PGSIZES != 0 {
            info.page_sizes = head.page_sizes;
        }
        if head.flags & abi::VFIO_IOMMU_INFO_CAPS == 0 {
            return Ok(info);
        }
        walk(
            answer,
            size_of::<IommuInfoHead>(),
            head.cap_offset,
            |id, offset| {
                match id {
                    abi::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => {
                        info.ranges = Some(disjoint(read_pairs(answer, offset)?));
                    }
                    abi::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => {
                        let left = read::<u32>(answer, offset + size_of::<CapHeader>())?;
                        info.mappings_left = Some(u64::from(left));
                    }
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(info)
    }
}

/// The ranges in ascending order, overlapping ones merged and empty ones left out.
fn disjoint(mut pairs: Vec<Pair>) -> Vec<RangeInclusive<u64>> {
    pairs.retain(|pair| pair.0 <= pair.1);
    pairs.sort_by_key(|pair| pair.0);
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::with_capacity(pairs.len());
    for Pair(start, end) in pairs {
        match ranges.last_mut() {
            Some(last) if start <= *last.end() => *last = *last.start()..=end.max(*last.end()),
            _ => ranges.push(start..=end),
        }
    }
    ranges
}

/// One region of a device (`VFIO_DEVICE_GET_REGION_INFO`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegionInfo {
    /// Flags: readable, writable, mappable.
    pub flags: u32,
    /// Length in bytes.
    pub size: u64,
    /// Where the region lies in the device's file.
    pub offset: u64,
    /// The parts that can be mapped, where not all of it can.
    pub mappable: Option<Vec<Range<u64>>>,
}

/// `struct vfio_region_info`.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RegionInfoHead {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}
const _: () = assert!(size_of::<RegionInfoHead>() == size_of::<abi::vfio_region_info>());

impl RegionInfo {
    /// Reads the kernel's answer.
    pub(super) fn parse(answer: &[u8]) -> Result<Self, CapsError> {
        let head: RegionInfoHead = read(answer, 0)?;
        let mut mappable = None;
        if head.flags & abi::VFIO_REGION_INFO_FLAG_CAPS != 0 {
            walk(
                answer,
                size_of::<RegionInfoHead>(),
                head.cap_offset,
                |id, offset| {
                    if id == abi::VFIO_REGION_INFO_CAP_SPARSE_MMAP {
                        let areas = read_pairs(answer, offset)?;
                        let range = |area: &Pair| area.0..area.0.saturating_add(area.1);
                        mappable = Some(areas.iter().map(range).collect());
                    }
                    Ok(())
                },
            )?;
        }
        let RegionInfoHead {
            flags,
            size,
            offset,
            ..
        } = head;
        Ok(Self {
            flags,
            size,
            offset,
            mappable,
        })
    }

    /// How many bytes from the start of the region on can be mapped in one piece.
    pub(super) fn mappable_from_start(&self) -> u64 {
        if self.flags & abi::VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return 0;
        }
        let Some(areas) = &self.mappable else {
            return self.size;
        };
        let mut areas = areas.clone();
        areas.sort_by_key(|area| area.start);
        let reach = areas.iter().fold(0, |reach, area| {
            if area.start <= reach {
                area.end.max(reach)
            } else {
                reach
            }
        });
        reach.min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of an answer, built word by word.
    #[derive(Default)]
    struct Answer(Vec<u8>);

    impl Answer {
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel's interface is in host order"
        )]
        fn u32(mut self, value: u32) -> Self {
            self.0.extend(value.to_ne_bytes());
            self
        }
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel's interface is in host order"
        )]
        fn u64(mut self, value: u64) -> Self {
            self.0.extend(value.to_ne_bytes());
            self
        }
        /// A capability header. Version 1 is in the upper half of the first word (little-endian).
        fn header(self, id: u32, next: u32) -> Self {
            self.u32(id | 1 << 16).u32(next)
        }
        fn iommu(cap_offset: u32) -> Self {
            Self::default()
                .u32(24)
                .u32(3)
                .u64(0x4020_1000)
                .u32(cap_offset)
                .u32(0)
        }
    }

    /// The answer of a real kernel: page sizes, two ranges around the MSI window, mappings left.
    #[test]
    fn a_good_answer_is_understood() {
        let answer = Answer::iommu(24)
            .header(1, 72)
            .u32(2)
            .u32(0)
            .u64(0)
            .u64(0xfedf_ffff)
            .u64(0xfef0_0000)
            .u64(0x7f_ffff_ffff)
            .header(3, 0)
            .u32(65535);
        let info = IommuInfo::parse(&answer.0).unwrap();
        assert_eq!(info.page_sizes, 0x4020_1000);
        assert_eq!(
            info.ranges,
            Some(vec![0..=0xfedf_ffff, 0xfef0_0000..=0x7f_ffff_ffff])
        );
        assert_eq!(info.mappings_left, Some(65535));
    }

    /// A chain that points at itself, backwards or into the fixed part ends with an error.
    #[test]
    fn a_chain_that_does_not_lead_ahead_is_refused() {
        let itself = Answer::iommu(24).header(9, 24);
        assert_eq!(
            IommuInfo::parse(&itself.0),
            Err(CapsError::NotAhead { offset: 24 })
        );
        let back = Answer::iommu(24).header(9, 32).header(9, 24);
        assert_eq!(
            IommuInfo::parse(&back.0),
            Err(CapsError::NotAhead { offset: 24 })
        );
        let fixed = Answer::iommu(8).header(9, 0);
        assert_eq!(
            IommuInfo::parse(&fixed.0),
            Err(CapsError::NotAhead { offset: 8 })
        );
    }

    /// Offsets and counts past the end, and answers cut short, are refused.
    #[test]
    fn an_answer_cut_short_is_refused() {
        assert_eq!(
            IommuInfo::parse(&[0; 23]),
            Err(CapsError::Truncated { offset: 0 })
        );
        for beyond in [32, 25, u32::MAX] {
            let answer = Answer::iommu(beyond).header(9, 0);
            assert!(IommuInfo::parse(&answer.0).is_err(), "{beyond}");
        }
        let many = Answer::iommu(24)
            .header(1, 0)
            .u32(u32::MAX)
            .u32(0)
            .u64(0)
            .u64(1);
        assert_eq!(
            IommuInfo::parse(&many.0),
            Err(CapsError::Truncated { offset: 40 })
        );
        let no_count = Answer::iommu(24).header(3, 0);
        assert_eq!(
            IommuInfo::parse(&no_count.0),
            Err(CapsError::Truncated { offset: 32 })
        );
    }

    /// What is not announced by a flag is not read; unknown capabilities are passed over.
    #[test]
    fn what_is_not_announced_is_not_read() {
        let answer = Answer::default()
            .u32(24)
            .u32(0)
            .u64(77)
            .u32(24)
            .u32(0)
            .header(1, 24);
        assert_eq!(IommuInfo::parse(&answer.0), Ok(IommuInfo::default()));
        let unknown = Answer::iommu(24).header(2, 0);
        assert_eq!(IommuInfo::parse(&unknown.0).unwrap().ranges, None);
    }

    /// Ranges come out ascending and disjoint, whatever order they came in.
    #[test]
    fn ranges_are_put_in_order() {
        let pairs = vec![
            Pair(50, 60),
            Pair(9, 3),
            Pair(0, 10),
            Pair(5, 20),
            Pair(60, 61),
        ];
        assert_eq!(disjoint(pairs), [0..=20, 50..=61]);
    }

    fn region(flags: u32, areas: &[(u64, u64)]) -> RegionInfo {
        let count = u32::try_from(areas.len()).unwrap();
        let mut answer = Answer::default()
            .u32(32)
            .u32(flags)
            .u32(0)
            .u32(32)
            .u64(0x4000)
            .u64(1);
        answer = answer.header(1, 0).u32(count).u32(0);
        for (offset, size) in areas {
            answer = answer.u64(*offset).u64(*size);
        }
        RegionInfo::parse(&answer.0).unwrap()
    }

    /// Only the piece that begins at the region's start and has no hole is mapped.
    #[test]
    fn the_mappable_piece_ends_at_the_first_hole() {
        assert_eq!(region(0x7, &[]).mappable_from_start(), 0x4000);
        assert_eq!(region(0x3, &[]).mappable_from_start(), 0);
        assert_eq!(region(0xf, &[]).mappable_from_start(), 0);
        assert_eq!(
            region(0xf, &[(0x3000, 0x1000), (0, 0x2000)]).mappable_from_start(),
            0x2000
        );
        assert_eq!(
            region(0xf, &[(0x1000, u64::MAX), (0, 0x1000)]).mappable_from_start(),
            0x4000
        );
        assert_eq!(region(0xf, &[(0x1000, 0x3000)]).mappable_from_start(), 0);
    }

    proptest! {
        /// No answer at all causes a panic or an endless walk.
        #[test]
        fn any_bytes_end_in_an_answer(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), first in 0u8..=64,
        ) {
            if let Some(head) = bytes.get_mut(..24) {
                head[4] = 0xff;
                head[12..16].copy_from_slice(&[first, 0, 0, 0]);
                head[16..20].copy_from_slice(&[first, 0, 0, 0]);
            }
            let _ = IommuInfo::parse(&bytes);
            if let Ok(region) = RegionInfo::parse(&bytes) {
                prop_assert!(region.mappable_from_start() <= region.size);
            }
        }
    }
}
