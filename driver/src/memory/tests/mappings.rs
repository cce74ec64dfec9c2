//! Every region is mapped for every controller of its domain, or nothing is.

use super::super::fake::FakeTarget;
use super::super::{DmaDomain, DmaRegion, DmaTargetError, MemoryError};
use super::{LEN, held, registered};
use std::sync::Arc;

fn place(region: &DmaRegion) -> (u64, usize) {
    (region.iova(), region.len())
}

/// No I/O address belongs to two regions, whatever domain they are in.
#[test]
fn addresses_are_unique_in_the_process() {
    let domains = [DmaDomain::new(), DmaDomain::new()];
    assert_ne!(domains[0].id(), domains[1].id());
    let regions: Vec<_> = (1..40)
        .flat_map(|n| {
            domains
                .iter()
                .map(move |domain| domain.region(n * 8192).unwrap())
        })
        .collect();
    let mut places: Vec<_> = regions.iter().map(place).collect();
    places.sort_unstable();
    assert!(
        places
            .windows(2)
            .all(|pair| pair[0].0 + pair[0].1 as u64 <= pair[1].0)
    );
    assert!(
        places
            .iter()
            .all(|(iova, _)| *iova >= 1 << 20 && iova.is_multiple_of(64 << 10))
    );
}

/// A controller attached later gets all regions, new regions go to all controllers, and a region
/// that is dropped leaves all of them.
#[test]
fn all_controllers_reach_all_memory() {
    let domain = DmaDomain::new();
    let early = FakeTarget::shared();
    let _early = domain.attach(early.clone()).unwrap();
    let first = domain.region(LEN).unwrap();
    assert_eq!(early.mapped(), [place(&first)]);
    let late = FakeTarget::shared();
    let _late = domain.attach(late.clone()).unwrap();
    assert_eq!(late.mapped(), [place(&first)]);
    let second = domain.region(3 * LEN).unwrap();
    for target in [&early, &late] {
        let mut expected = [place(&first), place(&second)];
        expected.sort_unstable();
        assert_eq!(target.mapped(), expected);
    }
    let stats = domain.stats();
    assert_eq!(
        (stats.targets, stats.regions, stats.region_bytes),
        (2, 2, 4 * LEN as u64)
    );
    let place_of_second = place(&second);
    drop(first);
    assert_eq!(early.mapped(), [place_of_second]);
    assert_eq!(late.mapped(), [place_of_second]);
}

/// A region that one controller refuses is mapped for none, and its memory is let go of.
#[test]
fn a_region_is_mapped_everywhere_or_nowhere() {
    let domain = DmaDomain::new();
    let (good, bad) = (FakeTarget::shared(), FakeTarget::shared());
    let _good = domain.attach(good.clone()).unwrap();
    let _bad = domain.attach(bad.clone()).unwrap();
    bad.fail_maps_after(0);
    let (refused, alive) = registered(&domain, LEN);
    let error = refused.unwrap_err();
    let refusal = MemoryError::Target {
        source: DmaTargetError::QuotaUsedUp { len: LEN },
    };
    assert_eq!(error.to_string(), refusal.to_string());
    assert!(good.mapped().is_empty() && bad.mapped().is_empty());
    assert!(!held(&alive));
    let stats = domain.stats();
    assert_eq!((stats.regions, stats.parked_bytes), (0, 0));
}

/// A controller that refuses one region gets none, at whichever region it refuses.
#[test]
fn attaching_maps_everything_or_nothing() {
    for good in 0..5 {
        let domain = DmaDomain::new();
        let _regions: Vec<_> = (0..5).map(|_| domain.region(LEN).unwrap()).collect();
        let target = FakeTarget::shared();
        target.fail_maps_after(good);
        assert!(domain.attach(target.clone()).is_err());
        assert!(target.mapped().is_empty());
        assert_eq!(
            (domain.stats().targets, domain.stats().parked_bytes),
            (0, 0)
        );
    }
}

/// Controllers behind one container share its mappings; the last one to leave takes them away.
#[test]
fn a_shared_target_is_mapped_once() {
    let domain = DmaDomain::new();
    let region = domain.region(LEN).unwrap();
    let target = FakeTarget::shared();
    let first = domain.attach(target.clone()).unwrap();
    let found: Arc<FakeTarget> = domain.target().unwrap();
    assert!(Arc::ptr_eq(&found, &target));
    let second = domain.attach(found).unwrap();
    assert_eq!(domain.stats().targets, 1);
    drop(first);
    assert_eq!(target.mapped(), [place(&region)]);
    drop(second);
    assert!(target.mapped().is_empty());
    assert_eq!(domain.stats().targets, 0);
    assert!(domain.target::<FakeTarget>().is_none());
    assert_eq!(Arc::strong_count(&target), 1);
}

/// I/O addresses come from what all controllers permit; what is too narrow says so.
#[test]
fn addresses_lie_where_all_controllers_reach() {
    let narrow = |ranges| {
        Arc::new(FakeTarget {
            ranges,
            ..FakeTarget::default()
        })
    };
    let domain = DmaDomain::new();
    let base = 0x55_0000_0000_u64;
    let a = narrow(vec![0..=0xfff, base..=base + 0x1f_ffff]);
    let b = narrow(vec![base + 0x10_0000..=u64::MAX]);
    let _a = domain.attach(a).unwrap();
    let _b = domain.attach(b).unwrap();
    let region = domain.region(LEN).unwrap();
    assert!((base + 0x10_0000..base + 0x20_0000).contains(&region.iova()));
    let error = domain.region(1 << 20).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no free I/O addresses for 0x100000 bytes aligned to 0x10000; the ranges that all attached \
         controllers can reach are 0x5500100000-0x55001fffff: use less DMA memory, or a domain of \
         its own for the controller with the narrow IOMMU"
    );
    // Domains without a controller start low, where this one cannot reach.
    let other = DmaDomain::new();
    let _low = other.region(LEN).unwrap();
    let error = other
        .attach(narrow(vec![base..=base + 0xffff]))
        .unwrap_err();
    assert!(
        matches!(error, MemoryError::OutsideAperture { len: LEN, .. }),
        "{error}"
    );
}

/// A quota too small for the regions there are is seen before anything is mapped.
#[test]
fn a_small_quota_is_seen_on_attach() {
    let domain = DmaDomain::new();
    let _regions: Vec<_> = (0..3).map(|_| domain.region(LEN).unwrap()).collect();
    let quota = |left| {
        let mappings_left = Some(left);
        Arc::new(FakeTarget {
            mappings_left,
            ..FakeTarget::default()
        })
    };
    let error = domain.attach(quota(2)).unwrap_err();
    assert!(
        matches!(error, MemoryError::TooManyRegions { need: 3, left: 2 }),
        "{error}"
    );
    assert!(domain.attach(quota(3)).is_ok());
}

/// Regions made after the controller came suit an IOMMU with larger pages; ones made before are
/// refused instead of mapped in part.
#[test]
fn regions_suit_the_iommu_page() {
    let coarse = || {
        Arc::new(FakeTarget {
            page_size: 64 << 10,
            ..FakeTarget::default()
        })
    };
    let domain = DmaDomain::new();
    let small = domain.region(4096).unwrap();
    let error = domain.attach(coarse()).unwrap_err();
    assert!(
        matches!(
            error,
            MemoryError::NotAligned {
                align: 0x1_0000,
                ..
            }
        ),
        "{error}"
    );
    drop(small);
    let target = coarse();
    let _attachment = domain.attach(target.clone()).unwrap();
    let region = domain.region(4096).unwrap();
    assert_eq!(target.mapped(), [(region.iova(), 64 << 10)]);
}

/// Many small allocations make few mappings, and all of them go with the last handle.
#[test]
fn allocations_share_few_mappings() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    let attachment = domain.attach(target.clone()).unwrap();
    let bufs: Vec<_> = (0..4096).map(|_| domain.alloc(8192).unwrap()).collect();
    assert!(target.mapped().len() <= 11, "{:?}", target.mapped());
    let large = domain.alloc(61 << 20).unwrap();
    let odd = domain.alloc_aligned(100, 8 << 20).unwrap();
    assert!(odd.iova().is_multiple_of(8 << 20));
    drop(domain);
    drop((bufs, odd));
    assert_eq!(target.mapped().len(), 1);
    drop(large);
    assert!(target.mapped().is_empty());
    drop(attachment);
}

/// What a large buffer leaves of its mapping serves others.
#[test]
fn the_rest_of_a_slab_is_used() {
    let domain = DmaDomain::new();
    let _bufs = [
        domain.alloc(3 << 20).unwrap(),
        domain.alloc(1 << 20).unwrap(),
    ];
    let stats = domain.stats();
    assert_eq!((stats.regions, stats.region_bytes), (1, 4 << 20));
}
