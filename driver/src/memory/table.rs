//! What is mapped where: the regions and targets of one domain.
//!
//! Between two calls every region in the table is mapped in every target in the table. Memory whose
//! unmapping failed, or that an abandoned controller may still reach, is parked: neither the memory
//! nor its I/O addresses are ever used for anything else.
#![expect(unsafe_code, reason = "mapping memory for a device is unsafe")]

use super::error::{IovaRanges, MemoryError};
use super::pages::{Base, HUGE_PAGE, system_page};
use super::range_set::intersection;
use super::target::{DmaTarget, DmaTargetError};
use super::{iova, lock};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The number of a domain, unique in the process and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainId(u32);

impl DomainId {
    /// What a domain gets once the numbers are used up; it holds no memory then.
    const NONE: Self = Self(u32::MAX);

    fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let step = |id: u32| (id != Self::NONE.0).then(|| id + 1);
        NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
            .map_or(Self::NONE, Self)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a domain holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DmaStats {
    /// Targets attached.
    pub targets: usize,
    /// Regions mapped, in each target.
    pub regions: usize,
    /// Their length in bytes: what is locked, once for each target behind an IOMMU.
    pub region_bytes: u64,
    /// Regions parked for the life of the process.
    pub parked_regions: usize,
    /// Their length in bytes.
    pub parked_bytes: u64,
    /// I/O addresses in use by all domains of the process, parked ones included, in bytes.
    pub process_iova_bytes: u64,
}

/// The table of one domain.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) id: DomainId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    targets: Vec<Attached>,
    /// By I/O address.
    regions: BTreeMap<u64, Record>,
    parked_regions: usize,
    parked_bytes: u64,
}

#[derive(Debug)]
struct Attached {
    target: Arc<dyn DmaTarget>,
    /// Attachments that share it.
    count: usize,
    /// A controller behind it may still do DMA: parked regions stay mapped.
    abandoned: bool,
}

#[derive(Debug)]
struct Record {
    base: Base,
    len: usize,
    parked: bool,
}

/// Why [`Table::add`] failed.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: MemoryError,
    /// A device may reach the memory all the same: it must not be freed.
    pub(super) reachable: bool,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            id: DomainId::next(),
            state: Mutex::default(),
        }
    }

    /// What the length of a region must be a multiple of, in bytes.
    pub(super) fn granule(&self) -> usize {
        let state = lock(&self.state);
        let pages = state
            .targets
            .iter()
            .map(|attached| attached.target.page_size());
        let largest = pages.max().and_then(|size| usize::try_from(size).ok());
        largest.unwrap_or(0).max(system_page())
    }

    /// Gives memory an I/O address, aligned to at least `align`, and maps it into all targets.
    pub(super) fn add(&self, base: Base, len: usize, align: u64) -> Result<u64, Refused> {
        let unmapped = |error| Refused {
            error,
            reachable: false,
        };
        if self.id == DomainId::NONE {
            return Err(unmapped(MemoryError::NoDomainId));
        }
        let mut state = lock(&self.state);
        let permitted = state.permitted();
        let align = align.max(natural_align(len));
        let iova = iova::alloc(len as u64, align, permitted.as_deref()).map_err(unmapped)?;
        let record = Record {
            base,
            len,
            parked: false,
        };
        for (done, attached) in state.targets.iter().enumerate() {
            let Err(error) = record.map(iova, &*attached.target) else {
                continue;
            };
            let reachable = !unmap_all(&state.targets[..done], iova, len);
            if reachable {
                state.count_parked(len);
            } else {
                iova::free(iova, len as u64);
            }
            return Err(Refused { error, reachable });
        }
        state.regions.insert(iova, record);
        Ok(iova)
    }

    /// Unmaps a region from all targets. `false`: a device may still reach it, it must not be freed.
    #[must_use]
    pub(super) fn remove(&self, iova: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(record) = state.regions.remove(&iova) else {
            return false;
        };
        if record.parked {
            // A target that goes on without the region must not keep it: nobody would unmap it later.
            for attached in state.targets.iter().filter(|attached| !attached.abandoned) {
                let _parked_anyway = attached.target.unmap(iova, record.len);
            }
            return false;
        }
        let unmapped = unmap_all(&state.targets, iova, record.len);
        if unmapped {
            iova::free(iova, record.len as u64);
        } else {
            state.count_parked(record.len);
        }
        unmapped
    }

    /// Maps every region into `target`, or counts one more user of it.
    pub(super) fn attach(&self, target: &Arc<dyn DmaTarget>) -> Result<(), MemoryError> {
        let mut state = lock(&self.state);
        if let Some(attached) = state.find(target) {
            attached.count += 1;
            return Ok(());
        }
        state.check(&**target)?;
        let mut mapped = Vec::new();
        let mut outcome = Ok(());
        for (&iova, record) in &state.regions {
            outcome = record.map(iova, &**target);
            if outcome.is_err() {
                break;
            }
            mapped.push(iova);
        }
        if outcome.is_err() {
            for iova in mapped {
                state.unmap_or_park(&**target, iova);
            }
        } else {
            let target = Arc::clone(target);
            state.targets.push(Attached {
                target,
                count: 1,
                abandoned: false,
            });
        }
        outcome
    }

    /// Takes back one [`Table::attach`]; the last one unmaps every region.
    pub(super) fn detach(&self, target: &Arc<dyn DmaTarget>) {
        let mut state = lock(&self.state);
        let Some(index) = state.position(target) else {
            return;
        };
        state.targets[index].count -= 1;
        if state.targets[index].count > 0 {
            return;
        }
        let attached = state.targets.swap_remove(index);
        let stays = |record: &Record| attached.abandoned && record.parked;
        let regions = state.regions.iter().filter(|(_, record)| !stays(record));
        for iova in regions.map(|(&iova, _)| iova).collect::<Vec<_>>() {
            state.unmap_or_park(&*attached.target, iova);
        }
    }

    /// Parks every region, because a controller behind `target` may still touch them.
    pub(super) fn abandon(&self, target: &Arc<dyn DmaTarget>) {
        let mut state = lock(&self.state);
        if let Some(attached) = state.find(target) {
            attached.abandoned = true;
            for iova in state.regions.keys().copied().collect::<Vec<_>>() {
                state.park(iova);
            }
        }
    }

    /// An attached target of the type `T`.
    pub(super) fn target<T: DmaTarget>(&self) -> Option<Arc<T>> {
        lock(&self.state).targets.iter().find_map(|attached| {
            let any: Arc<dyn Any + Send + Sync> = Arc::<dyn DmaTarget>::clone(&attached.target);
            any.downcast().ok()
        })
    }

    pub(super) fn stats(&self) -> DmaStats {
        let state = lock(&self.state);
        DmaStats {
            targets: state.targets.len(),
            regions: state.regions.len(),
            region_bytes: state.regions.values().map(|record| record.len as u64).sum(),
            parked_regions: state.parked_regions,
            parked_bytes: state.parked_bytes,
            process_iova_bytes: iova::bytes_in_use(),
        }
    }
}

impl State {
    fn position(&self, target: &Arc<dyn DmaTarget>) -> Option<usize> {
        self.targets
            .iter()
            .position(|attached| Arc::ptr_eq(&attached.target, target))
    }

    fn find(&mut self, target: &Arc<dyn DmaTarget>) -> Option<&mut Attached> {
        self.targets
            .iter_mut()
            .find(|attached| Arc::ptr_eq(&attached.target, target))
    }

    /// The I/O addresses that all targets can reach; `None` without a target.
    fn permitted(&self) -> Option<Vec<RangeInclusive<u64>>> {
        let ranges = self
            .targets
            .iter()
            .map(|attached| attached.target.iova_ranges());
        ranges.reduce(|a, b| intersection(&a, &b))
    }

    /// Whether `target` can take all regions, as far as can be known before trying.
    fn check(&self, target: &dyn DmaTarget) -> Result<(), MemoryError> {
        let have = target.iova_ranges();
        for (&iova, record) in &self.regions {
            let last = iova + (record.len as u64 - 1);
            if !have
                .iter()
                .any(|range| range.contains(&iova) && range.contains(&last))
            {
                let have = IovaRanges(have);
                return Err(MemoryError::OutsideAperture {
                    iova,
                    len: record.len,
                    have,
                });
            }
        }
        let need = self.regions.len() as u64;
        match target.mappings_left() {
            Some(left) if left < need => Err(MemoryError::TooManyRegions { need, left }),
            _ => Ok(()),
        }
    }

    fn unmap_or_park(&mut self, target: &dyn DmaTarget, iova: u64) {
        if let Some(record) = self.regions.get(&iova)
            && target.unmap(iova, record.len).is_err()
        {
            self.park(iova);
        }
    }

    fn park(&mut self, iova: u64) {
        if let Some(record) = self.regions.get_mut(&iova)
            && !record.parked
        {
            record.parked = true;
            let len = record.len;
            self.count_parked(len);
        }
    }

    fn count_parked(&mut self, len: usize) {
        self.parked_regions += 1;
        self.parked_bytes += len as u64;
    }
}

impl Record {
    fn map(&self, iova: u64, target: &dyn DmaTarget) -> Result<(), MemoryError> {
        let page = target.page_size();
        let places = [
            ("the I/O address of a region", iova),
            ("the address of a region", self.base.0.addr().get() as u64),
            ("the length of a region", self.len as u64),
        ];
        for (what, value) in places {
            if !value.is_multiple_of(page) {
                return Err(MemoryError::NotAligned {
                    what,
                    value,
                    align: page,
                });
            }
        }
        // SAFETY: the memory is freed only after `Table::remove` has unmapped it everywhere (see
        // `Region`'s drop), else it is parked; safe code has no references into it.
        unsafe { target.map(iova, self.base.0, self.len) }.map_err(MemoryError::from)
    }
}

/// Unmaps one region from several targets. `false` if any of them may still reach it.
fn unmap_all(targets: &[Attached], iova: u64, len: usize) -> bool {
    let unmap = |attached: &Attached| attached.target.unmap(iova, len);
    let outcomes: Vec<Result<(), DmaTargetError>> = targets.iter().map(unmap).collect();
    outcomes.iter().all(Result::is_ok)
}

/// The alignment that a region's I/O address gets: large ones such that the IOMMU can use large
/// pages, small ones such that controllers with device pages (CC.MPS) of up to 64 KiB are served.
fn natural_align(len: usize) -> u64 {
    if len >= HUGE_PAGE {
        HUGE_PAGE as u64
    } else {
        64 << 10
    }
}
