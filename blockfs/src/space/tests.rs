//! Free space: what goes wrong and how, case by case.

mod against_model;

use super::*;

const START: u64 = 50;

fn range(start: u64, blocks: u64) -> BlockRange {
    BlockRange { start, blocks }
}

fn options(group_blocks: u64, kept_blocks: u64) -> Options {
    Options {
        group_blocks,
        kept_blocks,
    }
}

fn used(start: u64, blocks: u64, ino: Ino) -> Used {
    Used {
        blocks: range(start, blocks),
        ino,
    }
}

fn empty(blocks: u64) -> Space {
    Space::build(range(START, blocks), options(64, 0), []).expect("nothing is wrong with it")
}

fn near(goal: u64, wanted: u64, least: u64) -> Request {
    Request {
        goal: Goal::Near(goal),
        wanted,
        least,
    }
}

/// Damaged extents are refused by name.
#[test]
fn damaged_extents() {
    let data = range(START, 100);
    let build = |extents: Vec<Used>| Space::build(data, options(8, 0), extents).err();
    let (a, b) = (used(60, 10, 1), used(69, 2, 2));
    assert_eq!(
        build(vec![b, a]),
        Some(SpaceError::Overlap {
            first: a,
            second: b
        })
    );
    assert_eq!(build(vec![used(60, 9, 1), b]), None, "side by side");
    for outside in [
        used(149, 2, 3),
        used(49, 1, 3),
        used(60, 0, 3),
        used(u64::MAX, 2, 3),
        used(0, u64::MAX, 3),
    ] {
        let error = build(vec![outside]);
        let expected = SpaceError::OutOfRange {
            range: outside.blocks,
            data,
            ino: Some(3),
        };
        assert_eq!(error, Some(expected));
    }
    let none = Space::build(data, options(0, 0), []).err();
    assert_eq!(none, Some(SpaceError::Options));
}

/// A list that names a block twice, or one outside, changes nothing.
#[test]
fn freeing_is_all_or_nothing() {
    let mut space = empty(100);
    let got = space
        .allocate(near(START, 20, 20), Source::Ordinary)
        .expect("free");
    let before = space.stats();
    for list in [
        vec![got, range(got.start + 3, 1)],
        vec![range(got.start, 5), range(START + 99, 2)],
        vec![range(got.start, 5), range(got.end(), 1)],
        vec![range(got.start, 0)],
    ] {
        assert!(space.free(&list).is_err(), "{list:?}");
        assert_eq!(space.stats(), before);
    }
}

/// A file that grows goes on where it ends, and near its goal otherwise.
#[test]
fn contiguous_first() {
    // 10 free at 50, 5 at 70, 100 at 200.
    let taken = [used(60, 10, 1), used(75, 125, 2)];
    let mut space = Space::build(range(START, 250), options(64, 0), taken).expect("disjoint");
    let mut get = |goal, wanted, least| {
        let request = Request {
            goal,
            wanted,
            least,
        };
        space
            .allocate(request, Source::Ordinary)
            .map(|got| (got.start, got.blocks))
    };
    assert_eq!(
        get(Goal::Continue(70), 8, 1),
        Ok((70, 5)),
        "a part, but without a new extent"
    );
    assert_eq!(
        get(Goal::Near(50), 20, 1),
        Ok((200, 20)),
        "in one piece rather than near"
    );
    assert_eq!(get(Goal::Near(280), 10, 1), Ok((280, 10)), "at the goal");
    assert_eq!(
        get(Goal::Near(230), 500, 1),
        Ok((220, 60)),
        "the longest if none is long enough"
    );
    assert!(matches!(
        get(Goal::Near(50), 500, 11),
        Err(SpaceError::Fragmented { .. })
    ));
}

/// What is kept is for the filesystem itself, what is promised for nobody else.
#[test]
fn kept_and_promised() {
    let mut space = Space::build(range(START, 100), options(64, 10), []).expect("empty");
    let promise = space.reserve(50).expect("free");
    assert_eq!(space.available(), 40);
    let got = space
        .allocate(near(START, 90, 1), Source::Ordinary)
        .expect("40 are left");
    assert_eq!(got.blocks, 40);
    let none = space.allocate(near(START, 1, 1), Source::Ordinary);
    assert_eq!(
        none,
        Err(SpaceError::NoSpace {
            least: 1,
            available: 0
        })
    );
    let own = space
        .allocate(near(START, 90, 1), Source::Internal)
        .expect("the kept ones");
    assert_eq!(own.blocks, 10);
    assert_eq!(
        space.take_for_discard(0, 1, 100),
        None,
        "the rest is promised"
    );
    space.unreserve(promise);
    assert_eq!(space.available(), 40);
}

/// The largest volume costs one run; directories are spread over its groups.
#[test]
fn the_largest_volume() {
    let blocks = crate::format::MAX_VOLUME_BLOCKS - START;
    let mut space = Space::build(range(START, blocks), Options::default(), []).expect("empty");
    assert_eq!(space.stats().runs, 1);
    let mut groups: Vec<u64> = (1..=1000)
        .map(|dir| match space.directory_goal(dir) {
            Goal::Near(at) | Goal::Continue(at) => (at - START) / GROUP_BLOCKS,
        })
        .collect();
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups.len(), 1000);
    let whole = space
        .allocate(near(0, u64::MAX, blocks), Source::Ordinary)
        .expect("all of it");
    assert_eq!(whole.blocks, blocks);
    let other = Space::build(range(START, 5), Options::default(), []).expect("empty");
    let error = space.grow(other.data()).expect_err("it shrinks");
    assert!(matches!(error, SpaceError::Shrinks { .. }));
}

/// A token of another volume is refused.
#[test]
fn foreign_tokens() {
    let mut one = empty(10);
    let got = one
        .allocate(near(START, 3, 3), Source::Ordinary)
        .expect("free");
    let token = one.free(&[got]).expect("in use");
    assert_eq!(empty(10).release(token), Err(SpaceError::UnknownToken));
}
