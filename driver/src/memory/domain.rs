//! A DMA domain: memory, and the controllers that reach it.
#![expect(
    unsafe_code,
    reason = "the caller's memory is registered on the caller's word"
)]

use super::buf::DmaBuf;
use super::error::MemoryError;
use super::lock;
use super::pages::{HUGE_PAGE, Pages, system_page};
use super::region::{DmaRegion, checked_shape, default_align};
use super::table::{DmaStats, DomainId, Table};
use super::target::DmaTarget;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// The least that [`DmaDomain::alloc`] maps, and so locks, at a time, in bytes.
pub const SLAB_BYTES: usize = HUGE_PAGE;

/// The most that it maps at a time beyond what was asked for.
const SLAB_MAX_BYTES: usize = 64 << 20;

/// A pool of DMA memory for any number of controllers.
///
/// All memory of the domain can be reached by all controllers attached to it, also by those attached
/// later. Cheap to clone; the pool itself lives as long as a clone or a buffer.
#[derive(Debug, Clone)]
pub struct DmaDomain {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Arc<Table>,
    /// Regions that [`DmaDomain::alloc`] cuts buffers from. They keep the table alive, but not the
    /// domain, so that the last handle's drop lets go of them.
    slabs: Mutex<Vec<DmaRegion>>,
}

impl Default for DmaDomain {
    fn default() -> Self {
        Self::new()
    }
}

impl DmaDomain {
    /// A domain without memory or controllers.
    #[must_use]
    pub fn new() -> Self {
        let (table, slabs) = (Arc::new(Table::new()), Mutex::default());
        Self {
            shared: Arc::new(Shared { table, slabs }),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> DomainId {
        self.shared.table.id
    }

    /// Lets the controllers behind `target` reach all memory of the domain, present and future. A
    /// target that is attached already is shared.
    ///
    /// # Errors
    /// [`MemoryError::Target`] if a region could not be mapped, [`MemoryError::OutsideAperture`],
    /// [`MemoryError::TooManyRegions`], [`MemoryError::NotAligned`] (IOMMU pages larger than a
    /// region's). Nothing stays mapped then.
    pub fn attach(&self, target: Arc<dyn DmaTarget>) -> Result<Attachment, MemoryError> {
        self.shared.table.attach(&target)?;
        Ok(Attachment {
            table: Arc::clone(&self.shared.table),
            target,
        })
    }

    /// An attached target of the type `T`, to be shared by another controller.
    #[must_use]
    pub fn target<T: DmaTarget>(&self) -> Option<Arc<T>> {
        self.shared.table.target()
    }

    /// A region of `len` bytes or a little more, of huge pages if there are any and it is long enough.
    ///
    /// # Errors
    /// [`MemoryError::Mmap`] if there is no memory, [`MemoryError::ApertureTooNarrow`],
    /// [`MemoryError::Target`] if a controller's mapping failed, [`MemoryError::Empty`].
    pub fn region(&self, len: usize) -> Result<DmaRegion, MemoryError> {
        self.region_aligned(len, 1)
    }

    fn region_aligned(&self, len: usize, align: usize) -> Result<DmaRegion, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        let table = &self.shared.table;
        DmaRegion::new(table, Pages::allocate(len, table.granule())?, align as u64)
    }

    /// Makes a region of the caller's memory, whole pages of it. `keeper` is whatever keeps it alive:
    /// it is dropped when the region has been unmapped, and never if the region had to be parked.
    ///
    /// # Safety
    /// The `len` bytes at `memory` must be initialised and writable, and stay so until `keeper` is
    /// dropped. For as long no reference into them may exist, nor may anything but the region's
    /// buffers access them.
    ///
    /// # Errors
    /// [`MemoryError::NotAligned`] if address or length are not multiples of the page,
    /// [`MemoryError::Empty`], and as [`DmaDomain::region`].
    pub unsafe fn register(
        &self,
        memory: NonNull<u8>,
        len: usize,
        keeper: impl Any + Send + Sync,
    ) -> Result<DmaRegion, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        let page = system_page();
        let places = [
            ("the address of the memory to register", memory.addr().get()),
            ("the length of the memory to register", len),
        ];
        for (what, value) in places {
            if !value.is_multiple_of(page) {
                let (value, align) = (value as u64, page as u64);
                return Err(MemoryError::NotAligned { what, value, align });
            }
        }
        DmaRegion::new(
            &self.shared.table,
            Pages::callers(memory, len, Box::new(keeper)),
            1,
        )
    }

    /// A buffer, page-aligned if it is a page or longer. The contents are whatever was there.
    ///
    /// It is cut from regions of [`SLAB_BYTES`] or more that the domain makes on demand and keeps.
    ///
    /// # Errors
    /// As [`DmaDomain::alloc_aligned`].
    pub fn alloc(&self, len: usize) -> Result<DmaBuf, MemoryError> {
        self.alloc_aligned(len, default_align(len))
    }

    /// A buffer whose I/O address is a multiple of `align` bytes, a power of two.
    ///
    /// # Errors
    /// As [`DmaDomain::region`], and [`MemoryError::TooLarge`] from 4 GiB on,
    /// [`MemoryError::AlignNotPowerOfTwo`].
    pub fn alloc_aligned(&self, len: usize, align: usize) -> Result<DmaBuf, MemoryError> {
        checked_shape(len, align)?;
        let mut slabs = lock(&self.shared.slabs);
        for slab in slabs.iter() {
            match slab.alloc_aligned(len, align) {
                Err(MemoryError::RegionFull { .. }) => {}
                outcome => return outcome,
            }
        }
        let slab = self.slab(&slabs, len, align)?;
        let buf = slab.alloc_aligned(len, align)?;
        slabs.push(slab);
        Ok(buf)
    }

    /// One more slab. They grow with what there is, because the number of mappings is limited (65535
    /// by default in vfio_iommu_type1), but where a limit is near, the least will do.
    fn slab(
        &self,
        slabs: &[DmaRegion],
        len: usize,
        align: usize,
    ) -> Result<DmaRegion, MemoryError> {
        let total: usize = slabs.iter().map(DmaRegion::len).sum();
        let least = len.max(SLAB_BYTES);
        let growth = (total / 4).min(SLAB_MAX_BYTES).max(least);
        let ample = growth.checked_next_multiple_of(SLAB_BYTES).unwrap_or(least);
        match self.region_aligned(ample, align) {
            Err(_) if ample > least => self.region_aligned(least, align),
            outcome => outcome,
        }
    }

    /// What the domain holds now.
    #[must_use]
    pub fn stats(&self) -> DmaStats {
        self.shared.table.stats()
    }
}

/// A controller's share in a domain; dropping it takes the controller's access away.
///
/// Drop it only when the controller is known to be silent. If that is not known, use
/// [`Attachment::abandon`].
#[derive(Debug)]
#[must_use = "dropping it detaches the controller"]
pub struct Attachment {
    table: Arc<Table>,
    target: Arc<dyn DmaTarget>,
}

impl Attachment {
    /// The number of the domain.
    #[must_use]
    pub fn domain(&self) -> DomainId {
        self.table.id
    }

    /// Lets go of a controller that may still do DMA. All regions of the domain are parked: their
    /// memory is neither unmapped from this controller nor freed nor used under another address, for
    /// the life of the process.
    ///
    /// Buffers go on as they are. Those that the controller may still touch must be forgotten
    /// ([`std::mem::forget`]), not dropped: a range that is dropped will be handed out again.
    pub fn abandon(self) {
        self.table.abandon(&self.target);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.table.detach(&self.target);
    }
}
