//! A target for tests: it records what is mapped and fails when told to.
#![expect(unsafe_code, reason = "it implements the border to IOMMUs")]

use super::lock;
use super::target::{DmaTarget, DmaTargetError};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Its settings are fixed, what is mapped and which calls fail change.
#[derive(Debug)]
pub(super) struct FakeTarget {
    pub(super) ranges: Vec<RangeInclusive<u64>>,
    pub(super) page_size: u64,
    pub(super) mappings_left: Option<u64>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// I/O address to address and length.
    mapped: BTreeMap<u64, (usize, usize)>,
    /// `map` calls that still succeed; `None`: all.
    good_maps: Option<usize>,
    unmap_fails: bool,
}

impl Default for FakeTarget {
    fn default() -> Self {
        let state = Mutex::default();
        Self {
            ranges: vec![0..=u64::MAX],
            page_size: 4096,
            mappings_left: None,
            state,
        }
    }
}

impl FakeTarget {
    pub(super) fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Lets `good` more mappings succeed and all after them fail.
    pub(super) fn fail_maps_after(&self, good: usize) {
        lock(&self.state).good_maps = Some(good);
    }

    /// Lets unmapping fall short from now on, or work again.
    pub(super) fn unmap_fails(&self, fails: bool) {
        lock(&self.state).unmap_fails = fails;
    }

    /// I/O address and length of all mappings, ascending.
    pub(super) fn mapped(&self) -> Vec<(u64, usize)> {
        lock(&self.state)
            .mapped
            .iter()
            .map(|(&iova, &(_, len))| (iova, len))
            .collect()
    }
}

// SAFETY: there is no device behind it.
unsafe impl DmaTarget for FakeTarget {
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.ranges.clone()
    }

    fn page_size(&self) -> u64 {
        self.page_size
    }

    fn mappings_left(&self) -> Option<u64> {
        self.mappings_left
    }

    fn isolates(&self) -> bool {
        true
    }

    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaTargetError> {
        let mut state = lock(&self.state);
        match state.good_maps.as_mut() {
            Some(0) => return Err(DmaTargetError::QuotaUsedUp { len }),
            Some(good) => *good -= 1,
            None => {}
        }
        let end = iova + len as u64;
        let before = state.mapped.range(..end).next_back();
        if before.is_some_and(|(&other, &(_, other_len))| other + other_len as u64 > iova) {
            return Err(DmaTargetError::AddressRefused { iova, len });
        }
        state.mapped.insert(iova, (memory.addr().get(), len));
        Ok(())
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaTargetError> {
        let mut state = lock(&self.state);
        let known = state
            .mapped
            .get(&iova)
            .is_some_and(|&(_, mapped)| mapped == len);
        if state.unmap_fails || !known {
            return Err(DmaTargetError::UnmappedShort {
                iova,
                len,
                removed: 0,
            });
        }
        state.mapped.remove(&iova);
        Ok(())
    }
}
