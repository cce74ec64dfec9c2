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
