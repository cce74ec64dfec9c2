//! Names and paths.

use super::*;

/// A tree with /a/b/f, /a/to-f -> b/f and /abs -> /a.
fn small() -> (World, [Ino; 3]) {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a");
    let b = world.mkdir(a, "b");
    let f = world.create(b, "f");
    world.symlink(a, "to-f", "b/f");
    world.symlink(ROOT, "abs", "/a");
    (world, [a, b, f])
}

/// Paths lead where POSIX says.
#[test]
fn paths() {
    let (mut world, [a, b, f]) = small();
    world.symlink(ROOT, "up", "a/b/../..");
    world.symlink(a, "dangling", "nowhere");
    let to_f = world.tree.lookup(a, b"to-f").expect("there");
    let abs = world.tree.lookup(ROOT, b"abs").expect("there");
    let find = |path: &str, follow| world.tree.resolve(b, path.as_bytes(), follow);
    for (path, ino) in [
        ("/", ROOT),
        ("//a//b", b),
        ("/a/b/", b),
        (".", b),
        ("f", f),
        ("./../../a/b/./f", f),
        ("../../../../..", ROOT),
        ("/a/to-f", f),
        ("/abs/to-f", f),
        ("/abs/b/../to-f", f),
        ("/up/a", a),
        ("/abs/.", a),
    ] {
        assert_eq!(find(path, true), Ok(ino), "{path}");
    }
    assert_eq!(find("/a/to-f", false), Ok(to_f), "the link itself");
    assert_eq!(find("/abs", false), Ok(abs));
    assert_eq!(find("/abs/", false), Ok(a), "the slash follows it");
    for (path, error) in [
        ("", PosixError::NotFound),
        ("/x", PosixError::NotFound),
        ("/a/dangling", PosixError::NotFound),
        ("/a/dangling/x", PosixError::NotFound),
        ("f/", PosixError::NotDirectory),
        ("f/.", PosixError::NotDirectory),
        ("f/..", PosixError::NotDirectory),
        ("/a/to-f/", PosixError::NotDirectory),
        ("/a/to-f/x", PosixError::NotDirectory),
    ] {
        assert_eq!(find(path, true), Err(error), "{path}");
    }
    let long = "n".repeat(256);
    assert_eq!(find(&long, true), Err(PosixError::NameTooLong));
    assert_eq!(find(&"./".repeat(2048), true), Err(PosixError::NameTooLong));
}

/// The last name of a path, and what has none.
#[test]
fn parents_of_paths() {
    let (world, [a, b, _]) = small();
    let find = |path: &'static str| {
        let found = world.tree.resolve_parent(b, path.as_bytes());
        found.map(|found| (found.dir, found.name, found.directory))
    };
    assert_eq!(find("new"), Ok((b, &b"new"[..], false)));
    assert_eq!(find("/abs/new//"), Ok((a, &b"new"[..], true)));
    assert_eq!(
        find("/abs"),
        Ok((ROOT, &b"abs"[..], false)),
        "the last is not followed"
    );
    assert_eq!(find("../new"), Ok((a, &b"new"[..], false)));
    for path in ["/", "//", ".", "a/..", "../."] {
        assert_eq!(find(path), Err(PosixError::Exists), "{path}");
    }
    assert_eq!(find(""), Err(PosixError::NotFound));
    assert_eq!(find("f/x"), Err(PosixError::NotDirectory));
    assert_eq!(find("nothing/x"), Err(PosixError::NotFound));
}

/// Forty links are followed, the next is one too many; a link to itself ends as well.
#[test]
fn links_are_followed_so_far() {
    let mut world = World::new();
    let f = world.create(ROOT, "l0");
    for nth in 1..=41 {
        world.symlink(ROOT, &format!("l{nth}"), &format!("l{}", nth - 1));
    }
    world.symlink(ROOT, "self", "self/x");
    let find = |path: &str| world.tree.resolve(ROOT, path.as_bytes(), true);
    assert_eq!(find("/l40"), Ok(f));
    assert_eq!(find("/l41"), Err(PosixError::Loop));
    assert_eq!(find("/self"), Err(PosixError::Loop));
}

/// Who lists goes on where he was, whatever comes and goes meanwhile, and a checkpoint keeps the
/// order.
#[test]
fn cookies_are_stable() {
    let mut world = World::new();
    for name in ["c", "a", "d", "b"] {
        world.create(ROOT, name);
    }
    assert_eq!(names(&world.tree, ROOT), ["c", "a", "d", "b"]);
    let mut listed = world.tree.readdir(ROOT, 0).expect("root");
    let second = listed.nth(1).expect("a").cookie;
    drop(listed);
    assert!(second > 2, "1 and 2 are for the dots");
    for name in ["a", "d"] {
        let plan = world.tree.plan_unlink(ROOT, name.as_bytes(), |_| false, 9);
        let plan = plan.expect("there");
        world.commit(&plan);
    }
    world.create(ROOT, "a");
    let rest = world.tree.readdir(ROOT, second).expect("root");
    let rest: Vec<_> = rest.map(|entry| entry.name.to_vec()).collect();
    assert_eq!(rest, [b"b", b"a"]);
    assert_eq!(names(&reload(&world.tree), ROOT), ["c", "b", "a"]);
}

/// A file that is removed while it is open stays until it is reaped; its blocks as well.
#[test]
fn orphans() {
    let (mut world, [_, b, f]) = small();
    world.write(f, 0, 10_000).expect("room");
    let used = world.space.stats().used;
    let plan = world.tree.plan_unlink(b, b"f", |_| true, 5).expect("there");
    world.commit(&plan);
    assert_eq!(world.tree.orphans().collect::<Vec<_>>(), [f]);
    assert_eq!(world.tree.stat(f).map(|stat| stat.nlink), Ok(0));
    assert_eq!(world.space.stats().used, used);
    assert_eq!(world.tree.check(), [Finding::Orphan { ino: f }]);
    let again = world.tree.plan_link(f, b, b"g", 6);
    assert_eq!(again, Err(PosixError::NotFound));
    world.verify();
    let plan = world.tree.plan_reap(f).expect("an orphan");
    world.commit(&plan);
    assert_eq!(world.space.stats().used, 0);
    assert_eq!(world.tree.check(), []);
    assert_eq!(world.tree.plan_reap(f), Err(PosixError::NotFound));
}

/// In a removed directory that somebody still has open nothing can be made.
#[test]
fn removed_directories() {
    let mut world = World::new();
    let gone = world.mkdir(ROOT, "gone");
    world.create(ROOT, "f");
    let plan = world
        .tree
        .plan_rmdir(ROOT, b"gone", |_| true, 5)
        .expect("empty");
    world.commit(&plan);
    let node = world.node();
    let made = world.tree.plan_create(gone, b"x", node);
    assert_eq!(made, Err(PosixError::NotFound));
    let (from, to) = ((ROOT, &b"f"[..]), (gone, &b"f"[..]));
    let moved = world
        .tree
        .plan_rename(from, to, RenameMode::Replace, |_| false, 6);
    assert_eq!(moved, Err(PosixError::NotFound));
    assert_eq!(
        world.tree.resolve(gone, b"..", true),
        Err(PosixError::NotFound)
    );
    assert_eq!(world.tree.parent_of(gone), Err(PosixError::NotFound));
}

/// Impossible names are refused before anything else.
#[test]
fn impossible_names() {
    let mut world = World::new();
    let node = world.node();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let made = world.tree.plan_create(ROOT, name, node);
        assert_eq!(made.map_err(PosixError::errno), Err(22), "{name:?}");
    }
    let long = [b'n'; 256];
    let made = world.tree.plan_create(ROOT, &long, node);
    assert_eq!(made, Err(PosixError::NameTooLong));
    assert!(world.tree.plan_create(ROOT, &long[..255], node).is_ok());
    let target = vec![b't'; 4096];
    let made = world.tree.plan_symlink(ROOT, b"l", &target, node);
    assert_eq!(made, Err(PosixError::NameTooLong));
    let made = world.tree.plan_symlink(ROOT, b"l", b"", node);
    assert_eq!(made, Err(PosixError::NotFound));
}

/// Extended attributes: by mode, by size, and gone with the last.
#[test]
fn xattrs() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    let set = |world: &mut World, pair: (&[u8], &[u8]), mode| {
        let plan = world.tree.plan_set_xattr(f, pair, mode, 3)?;
        world.commit(&plan);
        Ok::<(), PosixError>(())
    };
    let (name, one, two) = (&b"user.a"[..], &b"1"[..], &b"22"[..]);
    let missing = set(&mut world, (name, one), XattrMode::Replace);
    assert_eq!(missing, Err(PosixError::NoAttribute));
    assert_eq!(set(&mut world, (name, one), XattrMode::Create), Ok(()));
    let twice = set(&mut world, (name, two), XattrMode::Create);
    assert_eq!(twice, Err(PosixError::Exists));
    assert_eq!(set(&mut world, (name, two), XattrMode::Set), Ok(()));
    assert_eq!(world.tree.xattr(f, name), Ok(two));
    let large = vec![7; 4096];
    for nth in 0..15u8 {
        assert_eq!(
            set(&mut world, (&[nth + 1], &large), XattrMode::Set),
            Ok(())
        );
    }
    let full = set(&mut world, (b"one more", &large), XattrMode::Set);
    assert_eq!(full, Err(PosixError::NoSpace));
    let huge = vec![7; 4097];
    let refused = set(&mut world, (name, &huge), XattrMode::Set);
    assert_eq!(refused.map_err(PosixError::errno), Err(22));
    world.verify();
    let listed: Vec<_> = world
        .tree
        .xattrs(f)
        .expect("there")
        .map(|(n, _)| n.to_vec())
        .collect();
    assert_eq!(listed.len(), 16);
    for name in listed {
        let plan = world.tree.plan_remove_xattr(f, &name, 4).expect("there");
        world.commit(&plan);
    }
    let gone = world.tree.plan_remove_xattr(f, name, 5);
    assert_eq!(gone, Err(PosixError::NoAttribute));
    world.verify();
}

/// Attributes change what they say and no more.
#[test]
fn attributes() {
    let mut world = World::new();
    let f = world.create(ROOT, "f");
    let before = world.tree.stat(f).expect("there");
    let set = SetAttr {
        mode: Some(0o17_755),
        uid: Some(5),
        mtime_ns: Some(-7),
        ..SetAttr::default()
    };
    let plan = world.tree.plan_setattr(f, set, 50).expect("there");
    world.commit(&plan);
    let expected = Stat {
        mode: 0o7755,
        uid: 5,
        mtime_ns: -7,
        ctime_ns: 50,
        ..before
    };
    assert_eq!(world.tree.stat(f), Ok(expected));
    let plan = world.tree.plan_label(b"my disk").expect("short");
    world.commit(&plan);
    assert_eq!(world.tree.label(), b"my disk");
    assert_eq!(
        world
            .tree
            .plan_label(&[b'x'; 65])
            .map_err(PosixError::errno),
        Err(22)
    );
    let plan = world.tree.plan_grow(VOLUME + 5).expect("larger");
    assert_eq!(world.commit(&plan).grown, Some(VOLUME + 5));
    assert_eq!(
        world.tree.plan_grow(VOLUME).map_err(PosixError::errno),
        Err(22)
    );
    world.verify();
}
