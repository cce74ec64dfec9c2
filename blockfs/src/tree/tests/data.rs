//! Contents: what a record has of writes, truncates and fallocates, and what is left to zero.

use super::*;

const BLOCK: u64 = 4096;

/// The one range that is to be zeroed.
fn only(plan: &Plan<'_>) -> std::ops::Range<u64> {
    let [range] = &plan.zero[..] else {
        panic!("{:?}", plan.zero);
    };
    range.clone()
}

fn extents(tree: &Tree, ino: Ino) -> Vec<(u32, u32, bool)> {
    let all = tree.fiemap(ino, 0, u64::MAX).expect("a file");
    all.map(|extent| (extent.lblk, extent.len, extent.unwritten))
        .collect()
}

/// An append is one record with the mapping and the size; an overwrite is none.
#[test]
fn one_record_a_write() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    let plan = world.write(f, 0, 5000).expect("room");
    assert!(
        matches!(plan.ops[..], [Op::MapExtent { .. }, Op::SetAttr { .. }]),
        "{:?}",
        plan.ops
    );
    assert_eq!(only(&plan), 5000..8192, "the rest of a new block");
    assert_eq!(world.tree.stat(f).map(|stat| stat.size), Ok(5000));
    assert_eq!(
        world.write(f, 100, 4900),
        Ok(Plan::default()),
        "mapped, and inside the file"
    );
    let plan = world.write(f, 5000, 10).expect("room");
    assert!(
        matches!(plan.ops[..], [Op::SetAttr { .. }]),
        "only the size"
    );
    assert_eq!(
        plan.zero,
        [],
        "what is behind the end of a written block is zero already"
    );
    assert_eq!(world.write(f, 9, 0), Ok(Plan::default()));
    let plan = world.write(f, 5 * BLOCK + 7, 1).expect("room");
    assert_eq!(
        plan.zero,
        [5 * BLOCK..5 * BLOCK + 7, 5 * BLOCK + 8..6 * BLOCK]
    );
    world.verify();
}

/// A write into reserved blocks converts just them.
#[test]
fn conversion() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    world
        .fallocate(f, Fallocate::ReserveKeepSize, (0, 10 * BLOCK))
        .expect("room");
    assert_eq!(
        world.tree.stat(f).map(|stat| (stat.size, stat.blocks)),
        Ok((0, 10))
    );
    let plan = world.write(f, 3 * BLOCK + 5, BLOCK).expect("room");
    assert_eq!(
        plan.zero,
        [3 * BLOCK..3 * BLOCK + 5, 4 * BLOCK + 5..5 * BLOCK]
    );
    assert_eq!(
        extents(&world.tree, f),
        [(0, 3, true), (3, 2, false), (5, 5, true)]
    );
    assert_eq!(world.tree.stat(f).map(|stat| stat.size), Ok(4 * BLOCK + 5));
    world.verify();
    // Growing needs nothing, shrinking gives back what was reserved behind the end.
    world.truncate(f, 7 * BLOCK).expect("it grows");
    let plan = world.truncate(f, 3 * BLOCK + 1).expect("it shrinks");
    assert_eq!(only(&plan), 3 * BLOCK + 1..4 * BLOCK);
    assert_eq!(extents(&world.tree, f), [(0, 3, true), (3, 1, false)]);
    let plan = world.truncate(f, 2 * BLOCK + 1).expect("it shrinks");
    assert_eq!(plan.zero, [], "what is unwritten reads as zeros");
    world.verify();
}

/// A hole in the middle of an extent; its ragged ends are to be zeroed.
#[test]
fn punching() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    world.write(f, 0, 10 * BLOCK).expect("room");
    let plan = world
        .fallocate(f, Fallocate::Punch, (BLOCK + 100, 3 * BLOCK))
        .expect("a file");
    assert_eq!(
        plan.zero,
        [BLOCK + 100..2 * BLOCK, 4 * BLOCK..4 * BLOCK + 100]
    );
    assert_eq!(extents(&world.tree, f), [(0, 2, false), (4, 6, false)]);
    assert_eq!(world.space.stats().used, 8);
    let plan = world
        .fallocate(f, Fallocate::Punch, (10, 20))
        .expect("a file");
    assert_eq!(only(&plan), 10..30);
    assert!(
        matches!(plan.ops[..], [Op::SetAttr { .. }]),
        "the times change"
    );
    let again = world.fallocate(f, Fallocate::Punch, (2 * BLOCK, 2 * BLOCK));
    assert_eq!(again, Ok(Plan::default()), "a hole already");
    world.verify();
}

/// Zeroing keeps the blocks that are there: nothing is freed or allocated for them.
#[test]
fn zeroing() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    world.write(f, 0, 4 * BLOCK).expect("room");
    let (offset, len) = (BLOCK + 1, 5 * BLOCK);
    let new = world.blocks_for(f, (offset, len)).expect("a file");
    let plan = world
        .tree
        .plan_fallocate(f, Fallocate::Zero, (offset, len), &new, 9);
    let plan = plan.expect("room");
    assert_eq!(only(&plan), BLOCK + 1..2 * BLOCK);
    let effects = world.commit(&plan);
    assert_eq!(effects.freed, []);
    let allocated: u64 = effects.allocated.iter().map(|range| range.blocks).sum();
    assert_eq!(allocated, 3);
    assert_eq!(world.tree.stat(f).map(|stat| stat.size), Ok(offset + len));
    assert_eq!(world.tree.seek_hole(f, 0), Ok(2 * BLOCK));
    assert_eq!(world.tree.seek_data(f, 2 * BLOCK), Err(PosixError::NoData));
    world.verify();
}

/// A plan for another map than there is, is refused.
#[test]
fn stale_plans() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    let new = world.blocks_for(f, (0, 3 * BLOCK)).expect("a file");
    let plan =
        |world: &World, bytes, new: &[Extent]| world.tree.plan_write(f, bytes, new, 1).map(|_| ());
    assert_eq!(plan(&world, (0, 3 * BLOCK), &new), Ok(()));
    assert_eq!(
        plan(&world, (0, 4 * BLOCK), &new),
        Err(PosixError::Stale),
        "one is missing"
    );
    assert_eq!(
        plan(&world, (0, 2 * BLOCK), &new),
        Err(PosixError::Stale),
        "one too many"
    );
    assert_eq!(plan(&world, (0, 3 * BLOCK), &[]), Err(PosixError::Stale));
    let mut moved = new.clone();
    moved[0].lblk = 1;
    assert_eq!(plan(&world, (0, 3 * BLOCK), &moved), Err(PosixError::Stale));
    world.write(f, BLOCK, BLOCK).expect("room");
    assert_eq!(
        plan(&world, (0, 3 * BLOCK), &new),
        Err(PosixError::Stale),
        "filled meanwhile"
    );
}

/// The largest file, and one byte more.
#[test]
fn the_largest_file() {
    use crate::format::op::MAX_FILE_BYTES;
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    world
        .truncate(f, MAX_FILE_BYTES)
        .expect("as large as can be");
    world
        .write(f, MAX_FILE_BYTES - 10, 10)
        .expect("its last bytes");
    assert_eq!(
        world.truncate(f, MAX_FILE_BYTES + 1),
        Err(PosixError::FileTooLarge)
    );
    for (offset, len) in [(MAX_FILE_BYTES, 1), (u64::MAX, 1), (1, u64::MAX)] {
        assert_eq!(world.write(f, offset, len), Err(PosixError::FileTooLarge));
        let punched = world
            .tree
            .plan_fallocate(f, Fallocate::Punch, (offset, len), &[], 1);
        assert_eq!(punched, Err(PosixError::FileTooLarge));
    }
    assert_eq!(world.tree.seek_data(f, 0), Ok(MAX_FILE_BYTES - BLOCK));
    assert_eq!(world.tree.seek_data(f, u64::MAX), Err(PosixError::NoData));
    world.verify();
    world.truncate(f, 0).expect("it shrinks");
    assert_eq!(world.space.stats().used, 0);
}

/// When the metadata are full, requests are refused cleanly, and everything can be deleted.
#[test]
fn full_metadata() {
    let limits = Limits {
        metadata_bytes: 8 << 10,
        kept_bytes: 1 << 10,
        volume_blocks: VOLUME,
    };
    let mut world = World::with(limits);
    let f = world.create(ROOT, "big");
    world.write(f, 0, 1000 * BLOCK).expect("room");
    let mut made = 0;
    let full = loop {
        let name = format!("file-{made}");
        let node = world.node();
        match world.tree.plan_create(ROOT, name.as_bytes(), node) {
            Ok(plan) => drop(world.commit(&plan)),
            Err(error) => break error,
        }
        made += 1;
    };
    assert_eq!(full, PosixError::NoSpace);
    assert!(made > 40 && world.tree.totals().metadata_bytes <= 7 << 10);
    // Punching makes extents: it may use what is kept, and no more.
    let mut punched = 0;
    while world
        .fallocate(f, Fallocate::Punch, ((2 * punched + 1) * BLOCK, BLOCK))
        .is_ok()
    {
        punched += 1;
    }
    assert!(punched > 20 && world.tree.totals().metadata_bytes <= 8 << 10);
    world.verify();
    world.truncate(f, 0).expect("it frees");
    for nth in 0..made {
        let name = format!("file-{nth}");
        let plan = world
            .tree
            .plan_unlink(ROOT, name.as_bytes(), |_| true, 9)
            .expect("there");
        let ino = world.tree.lookup(ROOT, name.as_bytes()).expect("there");
        world.commit(&plan);
        let plan = world.tree.plan_reap(ino).expect("an orphan");
        world.commit(&plan);
    }
    assert_eq!(names(&world.tree, ROOT), ["big"]);
    world.verify();
}

/// The short look-up of a file's map gives the answers of the iterator, wherever its extents are and
/// however many.
#[test]
fn short_as_the_iterator() {
    use crate::iomap::{IomapIter, MappingKind, OpFlags, SimpleError, SimpleLimits, read_simple};
    use crate::tree::extents::ExtentMap;
    let limits = SimpleLimits::new(512, 4096).expect("powers of two");
    for count in [
        0, 1, 2, 7, 8, 9, 255, 256, 257, 400, 511, 512, 513, 767, 768, 1000, 1600,
    ] {
        let mut world = World::new();
        let ino = world.create(ROOT, "f");
        let mut extents = ExtentMap::default();
        for n in 0..count {
            let extent = Extent {
                lblk: 2 + n * 5,
                pblk: 200 + u64::from(n) * 8,
                len: 1 + n % 4,
                unwritten: n % 7 == 3,
            };
            extents.insert(extent);
            let ops = [Op::MapExtent { ino, extent }];
            world.commit(&Plan {
                ops: ops.to_vec(),
                ..Plan::default()
            });
        }
        let blocks = u64::from(count) * 5 + 10;
        world.truncate(ino, blocks * 4096 - 512).expect("longer");
        let map = world.tree.file_map(ino).expect("a file");
        let mut mapped = 0;
        for pos in (0..blocks * 8).map(|n| n * 512) {
            let short = read_simple(&mut &map, (), limits, pos, 512, OpFlags::DIRECT);
            let short = short.map(|read| read.addr);
            let mut iter = IomapIter::new(&map, pos, 512, OpFlags::DIRECT).expect("a range");
            let step = iter.next_step().expect("a map");
            let step = step.filter(|step| step.mapping().kind() == MappingKind::Mapped);
            let addr = step.and_then(|step| step.device_addr());
            assert_eq!(short, addr.ok_or(SimpleError::NotSimple), "{count}: {pos}");
            mapped += u64::from(short.is_ok());
        }
        let written = (0..count)
            .filter(|n| n % 7 != 3)
            .map(|n| u64::from(1 + n % 4));
        assert_eq!(mapped, written.sum::<u64>() * 8);
        // Behind the end, wherever that cuts an extent, and where the numbers end, nothing is simple.
        for size in [3 * 4096 - 1024, blocks * 4096 / 3, blocks * 4096 - 5000] {
            let map = FileMap::new(size, &extents);
            let far = [1 << 44, (1 << 44) + 8192, u64::MAX - 511].into_iter();
            for pos in (size / 512 * 512..blocks * 4096).step_by(512).chain(far) {
                let short = read_simple(&mut &map, (), limits, pos, 512, OpFlags::DIRECT);
                assert_eq!(short.err(), Some(SimpleError::NotSimple), "{count}: {pos}");
            }
        }
    }
}
