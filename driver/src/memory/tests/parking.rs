//! Memory that a device may still reach is never freed, and never meant by another address.

use super::super::fake::FakeTarget;
use super::super::{DmaDomain, DmaTarget};
use super::{LEN, held, registered};
use std::sync::Arc;

/// Detaching in order frees everything.
#[test]
fn memory_that_no_device_reaches_is_freed() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    let attachment = domain.attach(target.clone()).unwrap();
    let (region, alive) = registered(&domain, LEN);
    drop(attachment);
    assert!(target.mapped().is_empty() && held(&alive));
    drop(region);
    assert!(!held(&alive));
    assert_eq!(domain.stats().parked_regions, 0);
}

/// What an abandoned controller reaches stays mapped there and is not freed, whoever lets go of it;
/// another controller of the domain goes on and gives its mappings back.
#[test]
fn abandoned_memory_is_parked() {
    let domain = DmaDomain::new();
    let (lost, good) = (FakeTarget::shared(), FakeTarget::shared());
    let abandoned = domain.attach(lost.clone()).unwrap();
    let attachment = domain.attach(good.clone()).unwrap();
    let (region, alive) = registered(&domain, LEN);
    let region = region.unwrap();
    let place = (region.iova(), region.len());
    abandoned.abandon();
    let later = domain.region(LEN).unwrap();
    assert_eq!(lost.mapped(), [place]);
    assert_eq!(good.mapped().len(), 2);
    let stats = domain.stats();
    assert_eq!(
        (stats.targets, stats.parked_regions, stats.parked_bytes),
        (1, 1, LEN as u64)
    );
    drop((region, later));
    assert!(good.mapped().is_empty());
    drop((attachment, domain));
    assert_eq!(lost.mapped(), [place]);
    assert!(held(&alive));
}

/// A controller that leaves in order gives up parked memory too.
#[test]
fn parked_memory_leaves_with_the_other_controllers() {
    let domain = DmaDomain::new();
    let (lost, good) = (FakeTarget::shared(), FakeTarget::shared());
    let abandoned = domain.attach(lost.clone()).unwrap();
    let attachment = domain.attach(good.clone()).unwrap();
    let _region = domain.region(LEN).unwrap();
    abandoned.abandon();
    drop(attachment);
    assert_eq!((lost.mapped().len(), good.mapped().len()), (1, 0));
}

/// A container that an abandoned controller shares keeps what was there then, also after its other
/// controller has left, and only that.
#[test]
fn a_shared_target_keeps_what_was_abandoned() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    let first = domain.attach(target.clone()).unwrap();
    let second = domain.attach(target.clone()).unwrap();
    let old = domain.region(LEN).unwrap();
    let dropped = domain.region(LEN).unwrap();
    first.abandon();
    let new = domain.region(LEN).unwrap();
    drop(dropped);
    assert_eq!(target.mapped().len(), 3);
    drop(second);
    assert_eq!(target.mapped().len(), 2);
    assert!(target.mapped().contains(&(old.iova(), LEN)));
    assert!(!target.mapped().contains(&(new.iova(), LEN)));
    assert_eq!(domain.stats().parked_regions, 2);
}

/// A region whose unmapping fails is parked, and its address is not used again.
#[test]
fn a_region_that_stays_mapped_is_parked() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    let _attachment = domain.attach(target.clone()).unwrap();
    let good = FakeTarget::shared();
    let _good = domain.attach(good.clone()).unwrap();
    let (region, alive) = registered(&domain, LEN);
    target.unmap_fails(true);
    drop(region);
    assert!(held(&alive) && good.mapped().is_empty());
    let stats = domain.stats();
    assert_eq!(
        (stats.regions, stats.parked_regions, stats.parked_bytes),
        (0, 1, LEN as u64)
    );
    // The fake refuses what overlaps the mapping that stayed.
    target.unmap_fails(false);
    let _regions: Vec<_> = (0..50).map(|_| domain.region(LEN).unwrap()).collect();
}

/// The same when a controller leaves, when attaching is undone and when a new region is undone.
#[test]
fn every_failed_unmapping_parks() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    let (kept, alive) = registered(&domain, LEN);
    let attachment = domain.attach(target.clone()).unwrap();
    target.unmap_fails(true);
    drop(attachment);
    assert_eq!(domain.stats().parked_regions, 1);
    drop(kept);
    assert!(held(&alive));

    let (region, alive) = registered(&domain, LEN);
    let _second = domain.region(LEN).unwrap();
    let target = FakeTarget::shared();
    target.unmap_fails(true);
    target.fail_maps_after(1);
    assert!(domain.attach(target.clone()).is_err());
    assert_eq!(
        (target.mapped().len(), domain.stats().parked_regions),
        (1, 2)
    );
    // Which of the two regions it is depends on their addresses.
    let region = region.unwrap();
    let parked = target.mapped()[0].0 == region.iova();
    drop(region);
    assert_eq!(held(&alive), parked);

    let domain = DmaDomain::new();
    let targets = [FakeTarget::shared(), FakeTarget::shared()];
    let attach =
        |target: &Arc<FakeTarget>| domain.attach(Arc::<FakeTarget>::clone(target)).unwrap();
    let _attachments = targets.each_ref().map(attach);
    targets[0].unmap_fails(true);
    targets[1].fail_maps_after(0);
    let (refused, alive) = registered(&domain, LEN);
    assert!(refused.is_err() && held(&alive));
    assert_eq!(
        (domain.stats().regions, domain.stats().parked_regions),
        (0, 1)
    );
}

/// A forgotten buffer keeps its region mapped, whatever else is dropped.
#[test]
fn a_forgotten_buffer_keeps_its_memory() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    let attachment = domain.attach(target.clone()).unwrap();
    let (region, alive) = registered(&domain, LEN);
    std::mem::forget(region.unwrap().alloc(512).unwrap());
    drop(domain);
    assert!(held(&alive));
    assert_eq!(target.mapped().len(), 1);
    assert!(target.isolates());
    drop(attachment);
    assert!(held(&alive));
}
