//! blockfs cp: trees go in and out again and are the same.

use super::{Bench, Run, blockfs, fsck, mkfs, noise};
use assert_cmd::cargo::cargo_bin;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A tree with everything that a tree can have.
fn make_tree(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("deep/er/and/deeper")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    File::create(at("nothing")).unwrap();
    for (nth, bytes) in [
        1, 511, 512, 513, 4095, 4096, 4097, 262_143, 262_144, 262_145, 3_000_001,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(at(&format!("deep/{bytes}")), noise(bytes, nth as u64)).unwrap();
    }
    // Holes: at the start, in the middle, at the end; nothing but one.
    let sparse = File::create(at("deep/er/sparse")).unwrap();
    sparse.write_all_at(&noise(10_000, 50), 1_000_000).unwrap();
    sparse.write_all_at(&noise(5000, 51), 9_000_001).unwrap();
    sparse.set_len(50_000_003).unwrap();
    File::create(at("hole")).unwrap().set_len(1 << 30).unwrap();
    symlink("deep/4096", at("link")).unwrap();
    symlink("/no/where", at("dangling")).unwrap();
    symlink("..", at("deep/up")).unwrap();
    fs::hard_link(at("deep/513"), at("deep/er/hard")).unwrap();
    fs::write(at(&"n".repeat(255)), "long name").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"\xff\xfe no text")), "x").unwrap();
    for many in 0..300 {
        fs::write(at(&format!("deep/er/and/{many}")), many.to_string()).unwrap();
    }
    let old = SystemTime::UNIX_EPOCH - Duration::new(86_400, 1);
    let new = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    for (name, mode, time) in [
        ("deep/1", 0o4755, old),
        ("deep/512", 0o400, new),
        ("empty", 0o700, new),
    ] {
        let file = File::open(at(name)).unwrap();
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
}

/// Everything below `root`: kind and permissions, size, time, names, whether it has holes, target.
type Attributes = (u32, u64, (i64, i64), u64, bool, Option<PathBuf>);
fn attributes(root: &Path) -> BTreeMap<PathBuf, Attributes> {
    let mut all = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let size = if found.is_dir() { 0 } else { found.len() };
        let nlink = if found.is_dir() { 0 } else { found.nlink() };
        if found.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let holes = found.is_file() && found.blocks() * 512 < size / 2;
        let time = (found.mtime(), found.mtime_nsec());
        let target = fs::read_link(&path).ok();
        let name = path.strip_prefix(root).unwrap().to_owned();
        all.insert(name, (found.mode(), size, time, nlink, holes, target));
    }
    all
}

/// What diff says of two trees.
fn same(a: &Path, b: &Path) {
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([a, b])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&diff.stdout);
    assert!(
        diff.status.success(),
        "{}{said}",
        String::from_utf8_lossy(&diff.stderr)
    );
}

/// A tree goes in, within, to another volume and out again, and is the same in all that is kept.
#[test]
fn a_tree_goes_in_and_out() {
    let bench = Bench::with_volume("256m");
    make_tree(&bench.path("tree"));
    let copied = blockfs(["--json", "cp", "-r", &bench.host("tree"), &bench.at("/in")]);
    let copied = copied.passes("").json();
    // A hard link is a name and no file; holes are not moved.
    assert_eq!(
        (&copied["files"], &copied["links"]),
        (&316.into(), &3.into())
    );
    assert!(copied["bytes"].as_u64().unwrap() < 6_000_000, "{copied}");
    let df = blockfs(["df", "--json", &bench.disk()]).json();
    assert!(df["used_blocks"].as_u64().unwrap() < 2000, "{df}");

    blockfs(["cp", "-r", &bench.at("/in"), &bench.at("/within")]).passes("");
    let other = format!("{},lba=4096", bench.device("other.img"));
    mkfs(["-q", &format!("{other},size=128m")]).passes("");
    let volume = format!("{other}:/there");
    blockfs(["cp", "-r", &bench.at("/within"), &volume]).passes("");
    blockfs(["cp", "-r", &volume, &bench.host("out")]).passes("");

    same(&bench.path("tree"), &bench.path("out"));
    assert_eq!(
        attributes(&bench.path("tree")),
        attributes(&bench.path("out"))
    );
    for device in [bench.disk(), other] {
        fsck([&device]).passes("clean");
    }
}

/// Something real.
#[test]
fn a_real_tree_goes_in_and_out() {
    let real = Path::new("/usr/share/doc");
    let Some(real) = smallish(real) else {
        return;
    };
    let bench = Bench::with_volume("1g");
    let real = real.display().to_string();
    blockfs(["cp", "-r", &real, &bench.at("/doc")]).passes("");
    blockfs(["cp", "-r", &bench.at("/doc"), &bench.host("out")]).passes("");
    same(Path::new(&real), &bench.path("out"));
    fsck([&bench.disk()]).passes("clean");
}

/// `root`, or where that is large, the largest folder in it that is not.
fn smallish(root: &Path) -> Option<PathBuf> {
    const MOST: u64 = 16 << 20;
    let bytes =
        |path: &Path| -> u64 { attributes(path).values().map(|found| found.1 + 4096).sum() };
    if !root.is_dir() {
        return None;
    }
    if bytes(root) <= MOST {
        return Some(root.to_owned());
    }
    let folders = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir() && !path.is_symlink());
    let fitting = folders
        .map(|path| (bytes(&path), path))
        .filter(|(bytes, _)| *bytes <= MOST);
    fitting.max().map(|(_, path)| path)
}

/// The rules for names are those of cp(1).
#[test]
fn names_are_those_of_cp() {
    let bench = Bench::with_volume("64m");
    let at = |path: &str| bench.at(path);
    fs::create_dir(bench.path("dir")).unwrap();
    fs::write(bench.path("dir/a"), "first").unwrap();
    fs::write(bench.path("b"), "second").unwrap();
    let (dir, b) = (bench.host("dir"), bench.host("b"));
    blockfs(["cp", &dir, &at("/dir")]).fails(1, "give -r");
    blockfs(["cp", "-r", &dir, &at("/dir")]).passes("");
    // It is there now: the copy goes into it.
    blockfs(["cp", "-r", &dir, &b, &at("/dir")]).passes("");
    blockfs(["ls", &at("/dir")]).passes("a\nb\ndir\n");
    blockfs(["cp", "-rT", &dir, &at("/dir/dir")]).passes("");
    blockfs(["ls", &at("/dir/dir")]).passes("a\n");
    blockfs(["cp", "-r", &format!("{dir}/."), &at("/")]).passes("");
    blockfs(["cp", &b, &at("/a")]).passes("");
    blockfs(["cat", &at("/a")]).passes("second");
    blockfs(["cp", &dir, &b, &at("/a")]).refuses(1, "is no directory");
    blockfs(["cp", &b, &at("/none/c")]).fails(1, "no such file");
    blockfs(["cp", &bench.host("none"), &at("/")]).fails(1, "none: ");
    // Out, to a folder.
    blockfs(["cp", &at("/a"), &at("/dir/b"), &bench.host("dir")]).passes("");
    assert_eq!(fs::read_to_string(bench.path("dir/a")).unwrap(), "second");
}

/// Nothing is copied onto or into itself, and no directory takes a file's place.
#[test]
fn impossible_copies_are_refused() {
    let bench = Bench::with_volume("64m");
    let at = |path: &str| bench.at(path);
    fs::create_dir(bench.path("dir")).unwrap();
    fs::write(bench.path("dir/a"), "text").unwrap();
    blockfs(["cp", "-r", &bench.host("dir"), &at("/dir")]).passes("");
    blockfs(["cp", &at("/dir/a"), &at("/dir/a")]).fails(1, "the same file");
    blockfs(["cp", "-rT", &at("/dir"), &at("/dir")]).fails(1, "the same directory");
    blockfs(["cp", "-r", &at("/dir"), &at("/dir/in")]).fails(1, "into itself");
    blockfs(["ls", "-R", &at("/dir")]).passes("/dir:\na\nin\n\n/dir/in:\na\n");
    blockfs(["cp", "-rT", &bench.host("dir"), &at("/dir/a")])
        .fails(1, "in the place of a directory");
    fsck([&bench.disk()]).passes("clean, 2 files");
}

/// What cannot be copied is told, and everything else is copied.
#[test]
fn the_rest_is_copied() {
    let bench = Bench::with_volume("64m");
    fs::create_dir(bench.path("dir")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("dir/m")).unwrap();
    fs::write(bench.path("dir/z"), "text").unwrap();
    let run = blockfs(["cp", "-r", &bench.host("dir"), &bench.at("/dir")]);
    let run = run.fails(1, "dir/m: neither a file, a directory nor a symbolic link");
    assert!(
        run.stderr.contains("1 of 3 were not done"),
        "{}",
        run.stderr
    );
    blockfs(["cat", &bench.at("/dir/z")]).passes("text");
}

/// A full volume is told, and stays in order: what was removed can be used again.
#[test]
fn a_full_volume_is_told() {
    let bench = Bench::with_volume("16m");
    fs::write(bench.path("big"), noise(20 << 20, 3)).unwrap();
    blockfs(["cp", &bench.host("big"), &bench.at("/big")]).refuses(1, "no space is left");
    fsck([&bench.disk()]).passes("clean");
    blockfs(["rm", &bench.at("/big")]).passes("");
    fs::write(bench.path("small"), noise(8 << 20, 3)).unwrap();
    blockfs(["cp", &bench.host("small"), &bench.at("/small")]).passes("");
    fsck([&bench.disk()]).passes("clean, 1 files");
}

/// Starts a copy on a slow drive, and sends it a signal once some of the data are there.
fn slow_copy(bench: &Bench, signal: Signal) -> std::process::Output {
    fs::write(bench.path("big"), vec![7; 96 << 20]).unwrap();
    let blocks = || fs::metadata(bench.path("disk.img")).unwrap().blocks();
    let before = blocks();
    // Without a cache what was written is in the file at once.
    let to = format!("{},latency_us=50000,vwc=off:/big", bench.disk());
    let child = Command::new(cargo_bin("blockfs"))
        .args(["cp", &bench.host("big"), &to])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while blocks() < before + 2048 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "nothing is copied"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    child.wait_with_output().unwrap()
}

/// SIGTERM ends a copy in order: the volume is unmounted.
#[test]
fn an_interrupted_copy_leaves_a_clean_volume() {
    let bench = Bench::with_volume("256m");
    let output = slow_copy(&bench, Signal::TERM);
    Run::new("cp".to_owned(), output).refuses(130, "interrupted");
    fsck([&bench.disk()]).passes("clean");
}

/// A copy that is killed leaves what a power cut leaves: nothing that a mount does not put in order.
#[test]
fn a_killed_copy_is_recovered() {
    let bench = Bench::with_volume("256m");
    let output = slow_copy(&bench, Signal::KILL);
    assert_eq!(output.status.code(), None);
    fsck(["-n", &bench.disk()]).ends(4).says("not-unmounted");
    fsck(["-y", &bench.disk()]).ends(1).says("corrected");
    fsck(["-n", &bench.disk()]).passes("clean");
}
