//! Which actions are tried, alone, in pairs, in threes, and in long random runs.

use crate::run::Action;
use blockfs::tree::RenameMode;

fn text(path: &str) -> String {
    path.into()
}

/// What the short workloads start with, after the file set of ACE: a few directories and files.
#[must_use]
pub fn setup() -> Vec<Action> {
    let write = |path: &str, at, len, fill| Action::Write {
        path: text(path),
        at,
        len,
        fill,
        dsync: false,
    };
    vec![
        Action::Mkdir(text("/A")),
        Action::Mkdir(text("/B")),
        Action::Mkdir(text("/A/C")),
        Action::Create(text("/foo")),
        write("/foo", 0, 5000, 1),
        Action::Create(text("/A/foo")),
        write("/A/foo", 0, 8192, 2),
        write("/A/foo", 16_384, 3000, 3),
        Action::Create(text("/A/bar")),
        write("/A/bar", 0, 4096, 4),
        Action::Create(text("/B/bar")),
        Action::Symlink(text("foo"), text("/A/link")),
        Action::SetXattr(text("/foo"), text("user.a"), vec![1; 20]),
    ]
}

/// Every operation with the parameters that matter.
#[must_use]
pub fn singles() -> Vec<Action> {
    let mut all = Vec::new();
    let mut fill = 100;
    for path in ["/foo", "/A/foo", "/A/bar", "/B/bar"] {
        // Appending, overlapping ends and starts, inside, aligned and not, in a hole, behind the end.
        for (at, len) in [
            (0, 4096),
            (0, 100),
            (2048, 4096),
            (4096, 4096),
            (4000, 1500),
            (8192, 8192),
            (30_000, 2000),
            (512, 512),
        ] {
            fill += 1;
            let path = text(path);
            let dsync = fill % 4 == 0;
            all.push(Action::Write {
                path,
                at,
                len,
                fill,
                dsync,
            });
        }
        for len in [4096, 700, 9000] {
            fill += 1;
            let path = text(path);
            all.push(Action::Append { path, len, fill });
        }
        for size in [0, 100, 2048, 4096, 5000, 12_288, 40_000] {
            all.push(Action::Truncate(text(path), size));
        }
        for (at, len) in [(0, 4096), (1000, 2000), (4096, 16_384), (3000, 6000)] {
            all.push(Action::Punch(text(path), at, len));
            all.push(Action::Zero(text(path), at, len, true));
            all.push(Action::Zero(text(path), at, len, false));
            all.push(Action::Reserve(text(path), at, len, false));
            all.push(Action::WriteZeroes(text(path), at, len));
        }
        all.push(Action::Reserve(text(path), 20_000, 20_000, true));
        all.push(Action::Unlink(text(path)));
        all.push(Action::SetXattr(text(path), text("user.b"), vec![2; 300]));
        all.push(Action::Chmod(text(path), 0o600));
    }
    all.push(Action::RemoveXattr(text("/foo"), text("user.a")));
    for path in ["/new", "/A/new", "/A/C/new", "/B/new"] {
        all.push(Action::Create(text(path)));
        all.push(Action::Mkdir(text(path)));
        all.push(Action::Symlink(text("/foo"), text(path)));
        all.push(Action::Link(text("/foo"), text(path)));
        all.push(Action::Link(text("/A/bar"), text(path)));
    }
    for path in ["/A/C", "/B", "/A"] {
        all.push(Action::Rmdir(text(path)));
    }
    let names = [
        "/foo", "/A/foo", "/A/bar", "/B/bar", "/A/C", "/B", "/A", "/A/link", "/A/C/new",
    ];
    for from in names {
        for to in [
            "/foo", "/A/bar", "/B/bar", "/B/new", "/A/C/new", "/B", "/A/C", "/A/link",
        ] {
            if from != to {
                all.push(Action::Rename(text(from), text(to), RenameMode::Replace));
            }
        }
    }
    for (from, to) in [
        ("/foo", "/A/foo"),
        ("/A", "/B"),
        ("/A/C", "/foo"),
        ("/A/bar", "/B/bar"),
    ] {
        all.push(Action::Rename(text(from), text(to), RenameMode::Exchange));
        all.push(Action::Rename(text(from), text(to), RenameMode::NoReplace));
    }
    all.push(Action::Checkpoint);
    all.push(Action::Trim);
    all
}

/// What makes things durable.
#[must_use]
pub fn syncs() -> Vec<Action> {
    let mut all: Vec<_> = ["/foo", "/A/foo", "/A/bar", "/B/bar", "/A", "/B"]
        .into_iter()
        .map(|path| Action::Fsync(text(path)))
        .collect();
    all.push(Action::Sync);
    all.push(Action::Checkpoint);
    all
}

/// Workloads that found bugs in other filesystems, by the name under which they are known.
#[must_use]
pub fn regressions() -> Vec<(&'static str, Vec<Action>)> {
    let fsync = |path: &str| Action::Fsync(text(path));
    let rename = |from: &str, to: &str| Action::Rename(text(from), text(to), RenameMode::Replace);
    let create = |path: &str| Action::Create(text(path));
    let write = |path: &str, at, len, fill| Action::Write {
        path: text(path),
        at,
        len,
        fill,
        dsync: false,
    };
    let xattr = |path: &str, name: &str| Action::SetXattr(text(path), text(name), vec![5; 1200]);
    vec![
        (
            "a record of several logical blocks, torn",
            vec![
                xattr("/foo", "user.b"),
                xattr("/A/foo", "user.cc"),
                xattr("/A/bar", "user.ddd"),
                xattr("/B/bar", "user.eeee"),
                fsync("/foo"),
            ],
        ),
        (
            "crashmonkey: rename over a synced file, sync of its sibling",
            vec![fsync("/A/bar"), rename("/foo", "/A/bar"), fsync("/A/foo")],
        ),
        (
            "crashmonkey: a chain of renames of directories",
            vec![
                rename("/A/C", "/B/C"),
                rename("/B/bar", "/A/new"),
                rename("/A", "/new"),
                fsync("/new"),
            ],
        ),
        (
            "crashmonkey: a link into a new directory, sync of that",
            vec![
                Action::Mkdir(text("/new")),
                Action::Link(text("/foo"), text("/new/foo")),
                fsync("/new"),
            ],
        ),
        (
            "crashmonkey: rename of a directory, then a file in it",
            vec![rename("/A", "/new"), create("/new/x"), fsync("/new/x")],
        ),
        (
            "crashmonkey: two links, sync of both",
            vec![
                Action::Link(text("/foo"), text("/B/l1")),
                Action::Link(text("/foo"), text("/B/l2")),
                fsync("/B/l1"),
                fsync("/B/l2"),
            ],
        ),
        (
            "crashmonkey: reserved behind the end, then synced",
            vec![
                Action::Reserve(text("/foo"), 8192, 16_384, true),
                fsync("/foo"),
                write("/foo", 8192, 4096, 50),
                fsync("/foo"),
            ],
        ),
        (
            "crashmonkey: zeroed keeping the size, then synced",
            vec![Action::Zero(text("/foo"), 4000, 9000, true), fsync("/foo")],
        ),
        (
            "generic/104: links, unlink, and a new file of the old name",
            vec![
                Action::Link(text("/foo"), text("/B/l1")),
                fsync("/foo"),
                Action::Unlink(text("/foo")),
                create("/foo"),
                fsync("/foo"),
            ],
        ),
        (
            "generic/321: rename between directories, sync of the file",
            vec![rename("/A/foo", "/B/foo"), fsync("/B/foo")],
        ),
        (
            "generic/341: a directory of that name again",
            vec![
                rename("/A/C", "/B/C"),
                Action::Mkdir(text("/A/C")),
                create("/A/C/x"),
                fsync("/A/C/x"),
            ],
        ),
        (
            "ext4 c8fdfe29: a write that spans the end is not pure overwriting",
            vec![
                fsync("/foo"),
                Action::Write {
                    path: text("/foo"),
                    at: 4096,
                    len: 4096,
                    fill: 51,
                    dsync: true,
                },
            ],
        ),
        (
            "generic/609: a durable write where the mapping is not durable yet",
            vec![
                write("/B/bar", 0, 4096, 60),
                Action::Write {
                    path: text("/B/bar"),
                    at: 0,
                    len: 4096,
                    fill: 61,
                    dsync: true,
                },
                write("/foo", 0, 4096, 62),
            ],
        ),
        (
            "generic/044: overwritten in place, then synced",
            vec![
                fsync("/A/bar"),
                write("/A/bar", 0, 4096, 63),
                fsync("/A/bar"),
                write("/A/bar", 0, 4096, 64),
            ],
        ),
        (
            "generic/536: no stale data behind the end",
            vec![
                write("/A/bar", 0, 4096, 52),
                Action::Truncate(text("/A/bar"), 100),
                Action::Truncate(text("/A/bar"), 8000),
                fsync("/A/bar"),
            ],
        ),
        (
            "spdk 3431: freed blocks in another file's hands",
            vec![
                fsync("/foo"),
                Action::Unlink(text("/A/foo")),
                write("/B/bar", 0, 20_000, 53),
                fsync("/B/bar"),
            ],
        ),
        (
            "the same where nothing else is free",
            full(&[
                Action::Unlink(text("/A/foo")),
                write("/B/bar", 0, 8192, 70),
                fsync("/B/bar"),
            ]),
        ),
        (
            "part of a block that was another file's",
            full(&[
                Action::Unlink(text("/A/foo")),
                Action::Sync,
                write("/B/bar", 100, 300, 71),
                write("/B/bar", 5000, 300, 72),
                fsync("/B/bar"),
            ]),
        ),
        (
            "spdk 279: the size is synced with the data",
            vec![
                Action::Append {
                    path: text("/B/bar"),
                    len: 5000,
                    fill: 54,
                },
                fsync("/B/bar"),
            ],
        ),
        (
            "replace via rename: the old or the new, never nothing",
            vec![
                create("/new"),
                write("/new", 0, 6000, 55),
                fsync("/new"),
                rename("/new", "/foo"),
                Action::Sync,
            ],
        ),
    ]
}

/// Every block is taken before the actions.
fn full(actions: &[Action]) -> Vec<Action> {
    let mut all = Vec::new();
    let (mut at, mut len) = (8192, 512 << 10);
    while len >= 4096 {
        all.push(Action::Reserve(text("/A/bar"), at, len, true));
        (at, len) = (at + len, len / 2);
    }
    all.push(Action::Sync);
    all.extend_from_slice(actions);
    all
}

/// A long random workload.
#[must_use]
pub fn random(rng: &mut fastrand::Rng, actions: usize) -> Vec<Action> {
    let singles = singles();
    // Checkpoints come by themselves when the journal is half full.
    let mut syncs = syncs();
    syncs.retain(|sync| !matches!(sync, Action::Checkpoint));
    let paths = [
        "/foo", "/A/foo", "/A/bar", "/B/bar", "/new", "/A/new", "/B/new",
    ];
    let mut all = Vec::new();
    for nth in 0..actions {
        let path = text(rng.choice(paths).unwrap_or("/foo"));
        let fill = 1000 + u32::try_from(nth).unwrap_or(0);
        let (at, len) = (rng.u64(0..60_000), rng.u64(1..20_000));
        all.push(match rng.u32(0..100) {
            0..30 => Action::Write {
                path,
                at,
                len,
                fill,
                dsync: rng.u32(0..8) == 0,
            },
            30..40 => Action::Append { path, len, fill },
            40..46 => Action::Truncate(path, at),
            46..52 => Action::Punch(path, at, len),
            52..55 => Action::Zero(path, at, len, rng.bool()),
            55..58 => Action::Create(path),
            58..60 => Action::Unlink(path),
            60..75 => syncs[rng.usize(0..syncs.len())].clone(),
            _ => singles[rng.usize(0..singles.len())].clone(),
        });
    }
    all
}
