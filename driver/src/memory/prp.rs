//! PRP lists: how a command names the pages of its buffer (NVMe 2.x base, "Physical Region Page
//! Entry and List").
//!
//! PRP1 is the buffer's address and may start anywhere in a page; every further entry is the start
//! of a page. With up to two pages PRP2 is the second one, with more it points to a list of the rest.
//! Where a list is longer than a page, the last entry of each list page but the last points to the
//! next list page.
//!
//! Every slot of a queue has its list memory from the start, so describing a buffer allocates
//! nothing. Buffers are contiguous in I/O addresses, so the entries are an arithmetic series.
#![expect(unsafe_code, reason = "list entries are written through raw pointers")]

use super::buf::DmaBuf;
use super::domain::DmaDomain;
use super::error::MemoryError;

/// Bytes of a PRP entry.
const ENTRY: u64 = 8;
/// The least room that a list gets; some controllers fetch lists in units of this.
const LEAST_AREA: u64 = 512;

/// The list memory of one queue.
#[derive(Debug)]
pub struct PrpLists {
    /// `page_bytes - 1`.
    page_mask: u64,
    page_shift: u32,
    /// Entries of the longest list.
    most_entries: u64,
    slots: u16,
    /// Distance from one slot's list to the next.
    area_bytes: u64,
    /// One area a slot; `None` if no transfer needs a list.
    lists: Option<DmaBuf>,
}

/// What list memory one slot needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Area {
    most_entries: u64,
    /// A power of two from 512 bytes up to a page, or whole pages.
    bytes: u64,
}

impl Area {
    fn of(max_transfer: u32, page_shift: u32) -> Result<Self, MemoryError> {
        if !(12..=27).contains(&page_shift) {
            return Err(MemoryError::PageSize { shift: page_shift });
        }
        let page = 1_u64 << page_shift;
        // The worst buffer starts at the last dword of a page: that page is PRP1, and the list takes
        // ceil((max_transfer - 4) / page) entries.
        let most_entries = u64::from(max_transfer).saturating_sub(4).div_ceil(page);
        let list_bytes = most_entries * ENTRY;
        let bytes = if most_entries < 2 {
            0
        } else if list_bytes <= page {
            list_bytes.next_power_of_two().max(LEAST_AREA)
        } else {
            // Each page but the last holds one entry less, for the pointer to the next.
            (most_entries - 1).div_ceil(page / ENTRY - 1) * page
        };
        Ok(Self {
            most_entries,
            bytes,
        })
    }
}

impl PrpLists {
    /// List memory for `slots` commands of up to `max_transfer` bytes each, for a controller with
    /// device pages (CC.MPS) of 2^`page_shift` bytes.
    ///
    /// # Errors
    /// [`MemoryError::PageSize`], and as [`DmaDomain::alloc_aligned`].
    pub fn new(
        domain: &DmaDomain,
        slots: u16,
        max_transfer: u32,
        page_shift: u32,
    ) -> Result<Self, MemoryError> {
        let area = Area::of(max_transfer, page_shift)?;
        let page = 1_u64 << page_shift;
        let total = u64::from(slots) * area.bytes;
        let lists = if total == 0 {
            None
        } else {
            let too_large = |_| MemoryError::TooLarge {
                len: total,
                max: u64::from(u32::MAX),
            };
            let len = usize::try_from(total).map_err(too_large)?;
            let align = usize::try_from(area.bytes.min(page)).map_err(too_large)?;
            Some(domain.alloc_aligned(len, align)?)
        };
        Ok(Self {
            page_mask: page - 1,
            page_shift,
            most_entries: area.most_entries,
            slots,
            area_bytes: area.bytes,
            lists,
        })
    }

    /// The DMA memory that [`PrpLists::new`] takes for the same arguments, in bytes.
    ///
    /// # Errors
    /// [`MemoryError::PageSize`].
    pub fn bytes(slots: u16, max_transfer: u32, page_shift: u32) -> Result<u64, MemoryError> {
        Ok(u64::from(slots) * Area::of(max_transfer, page_shift)?.bytes)
    }

    /// PRP1 and PRP2 of a command in `slot` on `len` bytes at `iova`, a multiple of four.
    ///
    /// The list of the slot is overwritten: the slot's last command must be over. The caller has
    /// checked `slot` and `len` against what the lists were made for. If it has not, PRP2 is zero, an
    /// address at which nothing is ever mapped: the command fails, and nothing else happens.
    #[inline]
    #[must_use]
    pub fn describe(&self, slot: u16, iova: u64, len: u32) -> (u64, u64) {
        // From the start of the first page to the end of the buffer.
        let span = (iova & self.page_mask) + u64::from(len);
        if span <= self.page_mask + 1 {
            return (iova, 0);
        }
        let second = (iova | self.page_mask).wrapping_add(1);
        if span <= (self.page_mask + 1) << 1 {
            (iova, second)
        } else {
            (iova, self.fill(slot, second, (span - 1) >> self.page_shift))
        }
    }

    /// Gives the memory away, for a device that may still read it. No list is written afterwards.
    pub(crate) fn take_memory(&mut self) -> Option<DmaBuf> {
        self.lists.take()
    }

    /// Writes the list of the `entries` pages from `second` on and answers its address.
    #[inline(never)]
    fn fill(&self, slot: u16, second: u64, entries: u64) -> u64 {
        let Some(lists) = &self.lists else { return 0 };
        if slot >= self.slots || entries > self.most_entries {
            return 0;
        }
        let page = self.page_mask + 1;
        let per_page = page / ENTRY;
        let start = u64::from(slot) * self.area_bytes;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it lies within a buffer in memory"
        )]
        let first = lists.as_ptr().wrapping_add(start as usize);
        let mut at = first.cast_mut().cast::<u64>();
        let mut push = |entry: u64| {
            // SAFETY: the area of a slot has room for the longest list, page pointers included, and
            // `slot` and `entries` were checked; areas are aligned; the lists are owned alone.
            unsafe { at.write_volatile(entry.to_le()) };
            at = at.wrapping_add(1);
        };
        let (mut target, mut left, mut list_page) = (second, entries, lists.iova() + start);
        while left > per_page {
            for _ in 1..per_page {
                push(target);
                target = target.wrapping_add(page);
            }
            list_page += page;
            push(list_page);
            left -= per_page - 1;
        }
        for _ in 0..left {
            push(target);
            target = target.wrapping_add(page);
        }
        lists.iova() + start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Addresses and lengths of the pieces that a device accesses for a command, found the way a
    /// device does: entry by entry, knowing nothing but the two PRPs, the length and the page size.
    fn walk(lists: &PrpLists, slot: u16, prp: (u64, u64), len: u32) -> Vec<(u64, u64)> {
        let page = lists.page_mask + 1;
        let mut left = u64::from(len);
        let mut pieces = vec![(prp.0, left.min(page - prp.0 % page))];
        left -= pieces[0].1;
        if left == 0 {
            assert_eq!(prp.1, 0, "an unused PRP2 is reserved");
        } else if left <= page {
            pieces.push((prp.1, left));
        } else {
            let buf = lists.lists.as_ref().unwrap();
            let area = buf.iova() + u64::from(slot) * lists.area_bytes;
            assert!(area.is_multiple_of(lists.area_bytes.min(page)));
            let mut at = prp.1;
            assert!(at.is_multiple_of(ENTRY));
            while left > 0 {
                assert!(
                    (area..area + lists.area_bytes).contains(&at),
                    "the list leaves its area"
                );
                let mut entry = [0; 8];
                buf.read_at(usize::try_from(at - buf.iova()).unwrap(), &mut entry)
                    .unwrap();
                let entry = u64::from_le_bytes(entry);
                if at % page == page - ENTRY && left > page {
                    assert!(
                        entry.is_multiple_of(page),
                        "a list page does not start a page"
                    );
                    at = entry;
                    continue;
                }
                pieces.push((entry, left.min(page)));
                left -= left.min(page);
                at += ENTRY;
            }
        }
        assert!(
            pieces[1..]
                .iter()
                .all(|(address, _)| address.is_multiple_of(page))
        );
        pieces
    }

    /// Describes a buffer and checks that a device would access exactly its bytes, in order.
    fn check(lists: &PrpLists, slot: u16, iova: u64, len: u32) {
        let prp = lists.describe(slot, iova, len);
        let mut at = iova;
        for (address, bytes) in walk(lists, slot, prp, len) {
            assert_eq!(address, at, "iova {iova:#x} len {len:#x}");
            at += bytes;
        }
        assert_eq!(at, iova + u64::from(len));
    }

    /// Lengths in the neighbourhood of what a list page, or several, can name.
    fn lengths(shift: u32) -> impl Strategy<Value = u32> {
        let page = 1_u32 << shift;
        let per_list = page / 8;
        let near = move |pages: u32| {
            (0..9_u32).prop_map(move |d| (pages.saturating_mul(page)).saturating_add(d).max(5) - 4)
        };
        prop_oneof![
            (0..6_u32).prop_flat_map(near),
            (0..4_u32, 0..5_u32)
                .prop_map(move |(lists, d)| (lists * (per_list - 1) + d).min((64 << 20) >> shift))
                .prop_flat_map(near),
            1..(4 * page),
            1..(8_u32 << 20),
        ]
    }

    fn cases() -> impl Strategy<Value = (u32, u64, u32, u32, u16)> {
        (12..18_u32).prop_flat_map(|shift| {
            let page = 1_u64 << shift;
            let offset = prop_oneof![
                Just(0),
                Just(4),
                Just(page - 4),
                Just(page / 2),
                (0..page / 4).prop_map(|dword| dword * 4),
            ];
            (Just(shift), offset, lengths(shift), 0..2_u32, 0..3_u16)
        })
    }

    proptest! {
        /// Any dword offset, any length and page size: the device finds exactly the buffer, within
        /// the list memory of the slot, also where the lists are made for just that length.
        #[test]
        fn a_device_finds_the_buffer((shift, offset, len, spare, slot) in cases()) {
            let domain = DmaDomain::new();
            let _so_that_the_lists_do_not_start_the_slab = domain.alloc(4).unwrap();
            let lists = PrpLists::new(&domain, 3, len + spare * 4096, shift).unwrap();
            check(&lists, slot, (0x77 << 32) + offset, len);
        }

        /// Whatever is asked for, no other slot's list changes, and what does not fit has no PRP2.
        #[test]
        fn nothing_is_written_elsewhere(
            max in 0..(8_u32 << 20), slot in 0..5_u16, iova: u64, len: u32, shift in 12..15_u32,
        ) {
            let mut lists = PrpLists::new(&DmaDomain::new(), 3, max, shift).unwrap();
            if let Some(buf) = lists.lists.as_mut() {
                buf.fill(0xee);
            }
            let (_, prp2) = lists.describe(slot, iova & !3, len);
            let span = (iova & !3 & lists.page_mask) + u64::from(len);
            if span > 2 << shift && (slot >= 3 || len > max + (1 << shift)) {
                prop_assert_eq!(prp2, 0);
            }
            if let Some(buf) = &lists.lists {
                let mut bytes = vec![0; buf.len()];
                buf.read_at(0, &mut bytes).unwrap();
                let area = usize::try_from(lists.area_bytes).unwrap();
                for (index, area) in bytes.chunks(area).enumerate() {
                    let own = index == usize::from(slot);
                    prop_assert!(own || area.iter().all(|&byte| byte == 0xee));
                }
            }
        }
    }

    /// Every length up to five pages and a bit, at offsets near both ends and the middle of a page.
    #[test]
    fn small_buffers_exhaustively() {
        let lists = PrpLists::new(&DmaDomain::new(), 1, 24 << 10, 12).unwrap();
        for offset in [0, 4, 8, 508, 512, 2044, 2048, 4084, 4088, 4092] {
            for len in 1..=(5 * 4096 + 8) {
                check(&lists, 0, (1 << 40) + offset, len);
            }
        }
    }

    /// Every number of pages through three list pages, at the lengths where the number changes.
    #[test]
    fn list_page_boundaries_exhaustively() {
        let lists = PrpLists::new(&DmaDomain::new(), 2, 1600 << 12, 12).unwrap();
        for pages in 2..=1600_u32 {
            for (offset, len) in [
                (0, pages << 12),
                (4, (pages << 12) - 4),
                (4092, ((pages - 1) << 12) + 4),
                (4, pages << 12),
            ] {
                check(&lists, 1, (1 << 40) + offset, len);
            }
        }
    }

    /// The longest transfer that a controller without a limit is given, chained through 129 pages.
    #[test]
    fn a_quarter_gibibyte() {
        let lists = PrpLists::new(&DmaDomain::new(), 2, 256 << 20, 12).unwrap();
        assert_eq!(lists.area_bytes, 129 << 12);
        check(&lists, 1, (1 << 40) + 4092, 256 << 20);
        check(&lists, 0, 1 << 40, 256 << 20);
    }

    /// Pages of 128 MiB, the largest that CC.MPS can express.
    #[test]
    fn the_largest_pages() {
        let lists = PrpLists::new(&DmaDomain::new(), 2, 1 << 30, 27).unwrap();
        assert_eq!(lists.area_bytes, 512);
        check(&lists, 1, (1 << 40) + 100, 1 << 30);
        for shift in [0, 11, 28, 64] {
            let error = PrpLists::new(&DmaDomain::new(), 1, 4096, shift).unwrap_err();
            assert!(matches!(error, MemoryError::PageSize { .. }), "{error}");
        }
    }

    /// The memory is what was announced: none where two PRPs do, half a KiB for 128 KiB transfers.
    #[test]
    fn memory_is_as_announced() {
        assert_eq!(PrpLists::bytes(1024, 4096, 12).unwrap(), 0);
        assert_eq!(PrpLists::bytes(1024, 128 << 10, 12).unwrap(), 512 << 10);
        assert_eq!(PrpLists::bytes(3, 2 << 20, 12).unwrap(), 3 << 12);
        assert_eq!(PrpLists::bytes(3, (2 << 20) + 5, 12).unwrap(), 6 << 12);
        assert!(PrpLists::bytes(u16::MAX, u32::MAX, 12).unwrap() > 1 << 32);
        let lists = PrpLists::new(&DmaDomain::new(), 7, 128 << 10, 12).unwrap();
        assert_eq!(lists.lists.unwrap().len(), 7 * 512);
        let error = PrpLists::new(&DmaDomain::new(), u16::MAX, u32::MAX, 12).unwrap_err();
        assert!(matches!(error, MemoryError::TooLarge { .. }), "{error}");
    }
}
