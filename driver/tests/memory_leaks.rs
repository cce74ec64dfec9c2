//! A thousand controllers come and go: no I/O address, mapping or memory is left over.
//!
//! A process of its own, because the I/O addresses in use are counted for the whole process.
#![expect(unsafe_code, reason = "it implements the border to IOMMUs")]
#![expect(
    clippy::unwrap_used,
    reason = "a test may fail loudly, its helpers too"
)]

use driver::memory::{DmaDomain, DmaTarget, DmaTargetError, PrpLists};
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Counts the bytes that are mapped.
#[derive(Debug, Default)]
struct Counting {
    mapped: AtomicI64,
    refuses: AtomicBool,
}

// SAFETY: there is no device behind it.
unsafe impl DmaTarget for Counting {
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        vec![0..=(1 << 39) - 1]
    }
    fn page_size(&self) -> u64 {
        4096
    }
    fn mappings_left(&self) -> Option<u64> {
        Some(65535)
    }
    fn isolates(&self) -> bool {
        true
    }
    unsafe fn map(&self, _: u64, _: NonNull<u8>, len: usize) -> Result<(), DmaTargetError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(DmaTargetError::QuotaUsedUp { len });
        }
        self.mapped
            .fetch_add(i64::try_from(len).unwrap(), Ordering::Relaxed);
        Ok(())
    }
    fn unmap(&self, _: u64, len: usize) -> Result<(), DmaTargetError> {
        self.mapped
            .fetch_sub(i64::try_from(len).unwrap(), Ordering::Relaxed);
        Ok(())
    }
}

/// One controller's life: its own domain, or a share in one that stays.
fn round(target: &Arc<Counting>, domain: &DmaDomain) {
    let attachment = domain.attach(target.clone()).unwrap();
    let lists = PrpLists::new(domain, 64, 1 << 20, 12).unwrap();
    let bufs: Vec<_> = (1..20).map(|n| domain.alloc(n * 1000).unwrap()).collect();
    let region = domain.region(64 << 10).unwrap();
    let part = region.alloc(512).unwrap();
    assert!(target.mapped.load(Ordering::Relaxed) >= 2 << 20);
    target.refuses.store(true, Ordering::Relaxed);
    assert!(domain.region(64 << 10).is_err());
    target.refuses.store(false, Ordering::Relaxed);
    drop((region, lists, bufs, attachment));
    drop(part);
    assert_eq!(target.mapped.load(Ordering::Relaxed), 0);
}

/// Address space of this process in pages.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse().unwrap()
}

/// What is in use after ten rounds is in use after a thousand more, and nothing in the end.
#[test]
fn a_thousand_rounds_leak_nothing() {
    let target = Arc::new(Counting::default());
    let stays = DmaDomain::new();
    let rounds = |n| {
        for _ in 0..n {
            round(&target, &stays);
            round(&target, &DmaDomain::new());
        }
        (stays.stats(), address_space())
    };
    let (stats_before, space_before) = rounds(10);
    let (stats_after, space_after) = rounds(1000);
    assert_eq!(stats_before, stats_after);
    // A leak of one region a round would be 16000 pages.
    assert!(
        space_after < space_before + 4000,
        "{space_before} then {space_after} pages"
    );
    drop(stays);
    let end = DmaDomain::new().stats();
    assert_eq!((end.process_iova_bytes, end.parked_bytes), (0, 0));
    assert_eq!(Arc::strong_count(&target), 1);
}
