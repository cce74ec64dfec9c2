//! Operations that do not fit: each is refused by name, and nothing changes; and what a check finds
//! in a checkpoint that is damaged though its checksums hold.

use super::*;
use crate::format::op::{Attrs, Dirent, NewInode};

fn inode(ino: Ino, kind: Kind, nlink: u32) -> Op<'static> {
    Op::CreateInode(NewInode {
        ino,
        kind,
        mode: 0o700,
        nlink,
        uid: 0,
        gid: 0,
        size: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
    })
}

fn dirent(dir: Ino, name: &[u8], ino: Ino, kind: Kind) -> Dirent<'_> {
    Dirent {
        dir,
        ino,
        kind,
        name,
    }
}

fn add(dir: Ino, name: &[u8], ino: Ino, kind: Kind) -> Op<'_> {
    Op::AddDirent(dirent(dir, name, ino, kind))
}

fn nlink(ino: Ino, nlink: u32) -> Op<'static> {
    let attrs = Attrs {
        nlink: Some(nlink),
        ..Attrs::default()
    };
    Op::SetAttr { ino, attrs }
}

fn extent(ino: Ino, lblk: u32, pblk: u64, len: u32) -> Op<'static> {
    let extent = Extent {
        lblk,
        pblk,
        len,
        unwritten: false,
    };
    Op::MapExtent { ino, extent }
}

/// 2 is /d, 3 is /d/e, 4 is /f with blocks 10 to 20, 5 is /l, 6 an orphan.
fn world() -> World {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d");
    world.mkdir(d, "e");
    let f = world.create(ROOT, "f");
    world.write(f, 10 * 4096, 10 * 4096).expect("room");
    world.symlink(ROOT, "l", "f");
    world.create(ROOT, "o");
    let plan = world
        .tree
        .plan_unlink(ROOT, b"o", |_| true, 7)
        .expect("there");
    world.commit(&plan);
    world
}

/// Applies a record that must be refused, and returns why.
fn refused(ops: &[Op<'_>]) -> TreeError {
    let mut world = world();
    let (hash, totals) = (world.tree.state_hash(), world.tree.totals());
    let error = world.tree.apply(ops).expect_err("it does not fit");
    assert_eq!(
        (world.tree.state_hash(), world.tree.totals()),
        (hash, totals),
        "{error}"
    );
    world.verify();
    error
}

/// Operations on what is not there, or of another kind.
#[test]
fn unknown_and_wrong() {
    let (file, dir, link) = (Kind::File, Kind::Directory, Kind::Symlink);
    let none = TreeError::NoInode { ino: 99 };
    for op in [
        nlink(99, 1),
        add(99, b"x", 4, file),
        add(ROOT, b"x", 99, file),
        Op::FreeInode { ino: 99 },
        extent(99, 0, 500, 1),
        Op::UnmapRange {
            ino: 99,
            lblk: 0,
            len: 1,
        },
        Op::SetXattr {
            ino: 99,
            name: b"x",
            value: b"",
        },
        Op::AddOrphan { ino: 99 },
    ] {
        assert_eq!(refused(&[op]), none, "{op:?}");
    }
    for op in [
        add(4, b"x", 4, file),
        add(ROOT, b"x", 4, dir),
        add(ROOT, b"x", 5, file),
        extent(2, 0, 500, 1),
        Op::ConvertRange {
            ino: 5,
            lblk: 0,
            len: 1,
        },
        Op::SetSymlink {
            ino: 4,
            target: b"x",
        },
        Op::SetAttr {
            ino: 2,
            attrs: Attrs {
                size: Some(1),
                ..Attrs::default()
            },
        },
    ] {
        assert!(
            matches!(refused(&[op]), TreeError::WrongKind { .. }),
            "{op:?}"
        );
    }
    let malformed = refused(&[add(ROOT, b"a/b", 4, file)]);
    assert!(matches!(malformed, TreeError::Malformed(_)), "{malformed}");
    let target = Op::SetSymlink {
        ino: 5,
        target: b"x",
    };
    assert_eq!(refused(&[target]), TreeError::TargetSet { ino: 5 });
    let lonely = [inode(7, link, 1), add(ROOT, b"x", 7, link)];
    assert_eq!(refused(&lonely), TreeError::NoTarget { ino: 7 });
}

/// Names twice, missing, or too many; inode numbers that come again.
#[test]
fn names_and_numbers() {
    let file = Kind::File;
    let twice = refused(&[add(ROOT, b"f", 4, file)]);
    assert_eq!(
        twice,
        TreeError::NameExists {
            dir: ROOT,
            name: (*b"f").into()
        }
    );
    let missing = TreeError::NoName {
        dir: ROOT,
        name: (*b"x").into(),
    };
    assert_eq!(
        refused(&[Op::RemoveDirent {
            dir: ROOT,
            name: b"x"
        }]),
        missing
    );
    assert_eq!(
        refused(&[Op::ReplaceDirent(dirent(ROOT, b"x", 4, file))]),
        missing
    );
    let again = TreeError::InodeNumber { ino: 6, next: 7 };
    assert_eq!(refused(&[inode(6, file, 1)]), again);
    let last = refused(&[inode(Ino::MAX, file, 1)]);
    assert_eq!(
        last,
        TreeError::InodeNumber {
            ino: Ino::MAX,
            next: 7
        }
    );
    for (op, from, to) in [
        (Op::NextInode { ino: 6 }, 7, 6),
        (Op::Grow { blocks: VOLUME - 1 }, VOLUME, VOLUME - 1),
    ] {
        let error = refused(&[op]);
        assert!(
            matches!(error, TreeError::Backwards { from: f, to: t, .. } if (f, t) == (from, to)),
            "{error}"
        );
    }
    let no_xattr = refused(&[Op::RemoveXattr { ino: 4, name: b"x" }]);
    assert_eq!(
        no_xattr,
        TreeError::NoXattr {
            ino: 4,
            name: (*b"x").into()
        }
    );
}

/// Blocks over others of the file, and outside the volume.
#[test]
fn blocks() {
    for (lblk, len) in [(10, 1), (5, 6), (19, 3), (0, 30), (12, 2)] {
        let error = refused(&[extent(4, lblk, 5000, len)]);
        assert!(
            matches!(error, TreeError::AlreadyMapped { ino: 4, .. }),
            "{lblk} {len}: {error}"
        );
    }
    let outside = TreeError::OutOfVolume {
        ino: 4,
        end: VOLUME + 1,
        blocks: VOLUME,
    };
    assert_eq!(refused(&[extent(4, 30, VOLUME - 1, 2)]), outside);
}

/// Every kind of operation is taken back when a later one of its record fails.
#[test]
fn taken_back() {
    let (file, link) = (Kind::File, Kind::Symlink);
    let root = TreeError::InUse { ino: ROOT };
    for ops in [
        &[
            inode(9, link, 1),
            Op::SetSymlink {
                ino: 9,
                target: b"x",
            },
            nlink(9, 7),
        ][..],
        &[Op::FreeInode { ino: 6 }],
        &[
            add(2, b"x", 4, file),
            Op::RemoveDirent {
                dir: ROOT,
                name: b"f",
            },
        ],
        &[
            Op::ReplaceDirent(dirent(ROOT, b"f", 6, file)),
            Op::FreeInode { ino: 4 },
        ],
        &[
            extent(4, 20, 900, 5),
            Op::UnmapRange {
                ino: 4,
                lblk: 12,
                len: 3,
            },
        ],
        &[
            Op::ConvertRange {
                ino: 4,
                lblk: 0,
                len: 90,
            },
            extent(4, 0, 900, 10),
        ],
        &[Op::SetXattr {
            ino: 2,
            name: b"x",
            value: b"1",
        }],
        &[
            Op::SetXattr {
                ino: 2,
                name: b"x",
                value: b"1",
            },
            Op::SetXattr {
                ino: 2,
                name: b"x",
                value: b"2",
            },
            Op::RemoveXattr { ino: 2, name: b"x" },
        ],
        &[Op::AddOrphan { ino: 4 }, Op::RemoveOrphan { ino: 6 }],
        &[
            Op::SetLabel { label: b"new" },
            Op::Grow { blocks: VOLUME + 1 },
        ],
        &[Op::NextInode { ino: 50 }],
    ] {
        let mut ops = ops.to_vec();
        ops.push(Op::FreeInode { ino: ROOT });
        assert_eq!(refused(&ops), root, "{ops:?}");
    }
}

/// What holds only at the end of a record is asked for there.
#[test]
fn settled_at_the_end() {
    let (file, dir) = (Kind::File, Kind::Directory);
    let count = |ino, nlink, counted| TreeError::LinkCount {
        ino,
        nlink,
        counted,
    };
    assert_eq!(refused(&[add(ROOT, b"g", 4, file)]), count(4, 1, 2));
    assert_eq!(refused(&[nlink(4, 2)]), count(4, 2, 1));
    assert_eq!(
        refused(&[Op::RemoveDirent {
            dir: ROOT,
            name: b"f"
        }]),
        count(4, 1, 0)
    );
    let lost = [
        Op::RemoveDirent {
            dir: ROOT,
            name: b"f",
        },
        nlink(4, 0),
    ];
    assert_eq!(refused(&lost), TreeError::OrphanState { ino: 4 });
    assert_eq!(
        refused(&[Op::AddOrphan { ino: 4 }]),
        TreeError::OrphanState { ino: 4 }
    );
    assert_eq!(
        refused(&[Op::RemoveOrphan { ino: 6 }]),
        TreeError::OrphanState { ino: 6 }
    );
    let already = refused(&[Op::AddOrphan { ino: 6 }]);
    assert_eq!(
        already,
        TreeError::Orphan {
            ino: 6,
            orphan: true
        }
    );
    assert_eq!(
        refused(&[Op::FreeInode { ino: 4 }]),
        TreeError::InUse { ino: 4 }
    );
    assert_eq!(
        refused(&[Op::FreeInode { ino: ROOT }]),
        TreeError::InUse { ino: ROOT }
    );
    // A directory in two places, in itself, and around in a circle.
    let two = [add(ROOT, b"e", 3, dir), nlink(ROOT, 4), nlink(3, 3)];
    assert_eq!(refused(&two), TreeError::NotATree { ino: 3 });
    let gone = Op::RemoveDirent {
        dir: ROOT,
        name: b"d",
    };
    let itself = [gone, add(2, b"d", 2, dir), nlink(ROOT, 2), nlink(2, 4)];
    assert_eq!(refused(&itself), TreeError::NotATree { ino: 2 });
    let circle = [gone, add(3, b"d", 2, dir), nlink(ROOT, 2), nlink(3, 3)];
    assert_eq!(refused(&circle), TreeError::NotATree { ino: 2 });
    let root = refused(&[add(2, b"root", ROOT, dir)]);
    assert_eq!(root, TreeError::NotATree { ino: ROOT });
    // With entries, but without a name.
    let adrift = [gone, nlink(ROOT, 2), nlink(2, 0), Op::AddOrphan { ino: 2 }];
    assert_eq!(refused(&adrift), TreeError::NotATree { ino: 2 });
}

/// A record that a checkpoint could not hold is refused.
#[test]
fn too_large() {
    let mut world = World::with(Limits::new(300, VOLUME));
    let large = Op::SetXattr {
        ino: ROOT,
        name: b"x",
        value: &[1; 300],
    };
    let error = world.tree.apply(&[large]).expect_err("too large");
    assert!(
        matches!(error, TreeError::TooLarge { limit: 300, .. }),
        "{error}"
    );
    world.verify();
}

/// Loads a checkpoint and says what is wrong with it.
fn findings(ops: &[Op<'_>]) -> Vec<Finding> {
    let mut tree = Tree::new(Limits::new(1 << 20, VOLUME));
    for op in ops {
        tree.load(op).expect("it can be loaded");
    }
    tree.check()
}

/// Every structural fault of a checkpoint is found, and nothing else.
#[test]
fn damaged_checkpoints() {
    let (file, dir, link) = (Kind::File, Kind::Directory, Kind::Symlink);
    let root = inode(ROOT, dir, 2);
    let f = inode(2, file, 1);
    let name = add(ROOT, b"f", 2, file);
    let orphan = Op::AddOrphan { ino: 2 };
    assert_eq!(findings(&[root, f, name]), []);
    assert_eq!(findings(&[]), [Finding::NoRoot]);
    assert_eq!(Finding::NoRoot.severity(), Severity::Fatal);
    let count = |ino, nlink, counted| Finding::LinkCount {
        ino,
        nlink,
        counted,
    };
    assert_eq!(findings(&[root, inode(2, file, 3), name]), [count(2, 3, 1)]);
    assert_eq!(
        findings(&[root, inode(2, file, 0)]),
        [Finding::Lost { ino: 2 }]
    );
    assert_eq!(
        findings(&[root, f, name, orphan]),
        [Finding::NamedOrphan { ino: 2 }]
    );
    let waits = findings(&[root, inode(2, file, 0), orphan]);
    assert_eq!(waits, [Finding::Orphan { ino: 2 }]);
    assert_eq!(waits[0].severity(), Severity::Warning);
    let behind = findings(&[root, f, extent(2, 3, 500, 2), name]);
    assert_eq!(
        behind,
        [Finding::BehindTheEnd {
            ino: 2,
            lblk: 3,
            size: 0
        }]
    );
    assert_eq!(behind[0].severity(), Severity::Error);
    let no_target = findings(&[root, inode(2, link, 1), add(ROOT, b"l", 2, link)]);
    assert_eq!(
        no_target,
        [Finding::Target {
            ino: 2,
            size: 0,
            target: 0
        }]
    );
    // Two directories that have each other, and nothing else has them.
    let circle = [
        root,
        inode(2, dir, 3),
        inode(3, dir, 3),
        add(2, b"x", 3, dir),
        add(3, b"y", 2, dir),
    ];
    let expected = [Finding::NotATree { ino: 2 }, Finding::NotATree { ino: 3 }];
    assert_eq!(findings(&circle), expected);
}

/// Blocks that two files have, outside the data area, free though used, or lost.
#[test]
fn damaged_blocks() {
    let root = inode(ROOT, Kind::Directory, 2);
    let mut tree = Tree::new(Limits::new(1 << 20, VOLUME));
    for op in [root, inode(2, Kind::File, 1), inode(3, Kind::File, 1)] {
        tree.load(&op).expect("it can be loaded");
    }
    for op in [
        extent(2, 0, 500, 100),
        extent(3, 0, 510, 5),
        extent(3, 50, 520, 5),
    ] {
        tree.load(&op).expect("it can be loaded");
    }
    let used = |ino, start, blocks| {
        let blocks = BlockRange { start, blocks };
        crate::space::Used { blocks, ino }
    };
    let long = used(2, 500, 100);
    let overlap = |second| Finding::Overlap {
        first: long,
        second,
    };
    let twice = [overlap(used(3, 510, 5)), overlap(used(3, 520, 5))];
    assert_eq!(tree.check_blocks(DATA, None), twice);
    assert!(Space::build(DATA, Options::default(), tree.used()).is_err());
    let mut world = world();
    assert_eq!(world.tree.check_blocks(DATA, Some(&world.space)), []);
    let mine = world.tree.used().next().expect("one extent");
    let early = BlockRange {
        start: 0,
        blocks: mine.blocks.start,
    };
    let outside = world.tree.check_blocks(early, None);
    assert_eq!(outside, [Finding::OutOfRange { used: mine }]);
    let part = BlockRange {
        start: mine.blocks.start + 2,
        blocks: 3,
    };
    let _token = world.space.free(&[part]).expect("in use");
    let found = world.tree.check_blocks(DATA, Some(&world.space));
    let leak = Finding::Leak {
        counted: 7,
        used: 10,
    };
    assert_eq!(found, [Finding::UsedAndFree { used: mine }, leak]);
}
