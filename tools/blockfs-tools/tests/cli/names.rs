//! blockfs, but for cp: what it shows, what it changes, and how it refuses.

use super::{Bench, blockfs, fsck, mkfs, noise};
use serde_json::Value;
use std::fs::{self, OpenOptions};

/// The text of a key in each element.
fn each<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    let list = list.as_array().unwrap();
    list.iter()
        .map(|item| item[key].as_str().unwrap())
        .collect()
}

/// A volume with a few files.
fn filled() -> Bench {
    let bench = Bench::with_volume("64m");
    fs::create_dir(bench.path("tree")).unwrap();
    fs::create_dir(bench.path("tree/sub")).unwrap();
    fs::write(bench.path("tree/a"), "doorbell\n").unwrap();
    fs::write(bench.path("tree/sub/b"), noise(1_500_000, 1)).unwrap();
    std::os::unix::fs::symlink("a", bench.path("tree/link")).unwrap();
    blockfs(["cp", "-r", &bench.host("tree"), &bench.at("/tree")]).passes("");
    bench
}

/// ls shows names in order, long and below; and the same in JSON.
#[test]
fn ls_lists() {
    let bench = filled();
    blockfs(["ls", &bench.at("/tree")]).passes("a\nlink\nsub\n");
    blockfs(["ls", &bench.at("/tree/a")]).passes("a\n");
    blockfs(["ls", "-d", &bench.at("/tree")]).passes("/tree\n");
    let long = blockfs(["ls", "-lR", &bench.at("/")]).passes("");
    for said in [
        "/:\ndrwx",
        "\n/tree:\n-rw",
        " link -> a\n",
        "\n/tree/sub:\n",
        " 1500000 20",
    ] {
        assert!(long.out().contains(said), "no {said:?} in {}", long.out());
    }
    let list = blockfs(["ls", "-R", "--json", &bench.at("/")])
        .passes("")
        .json();
    let paths = ["/tree", "/tree/a", "/tree/link", "/tree/sub", "/tree/sub/b"];
    assert_eq!(each(&list, "path"), paths);
    assert_eq!(list[2]["target"], "a");
    assert_eq!(list[4]["size"], 1_500_000);
}

/// cat writes the bytes, stat the attributes, fiemap the extents, df and info the totals.
#[test]
fn what_is_there_is_shown() {
    let bench = filled();
    let b = bench.at("/tree/sub/b");
    let bytes = noise(1_500_000, 1);
    let cat = blockfs(["cat", &bench.at("/tree/link"), &b]).passes("");
    assert!(cat.stdout == [b"doorbell\n", &bytes[..]].concat());

    let found = blockfs(["stat", "--json", &bench.at("/tree/link"), &b])
        .passes("")
        .json();
    assert_eq!(each(&found, "kind"), ["symlink", "file"]);
    assert_eq!(found[1]["blocks"], 367);
    let followed = blockfs(["stat", "-L", "--json", &bench.at("/tree/link")]).json();
    assert_eq!(followed[0]["size"], 9);
    blockfs(["stat", &bench.at("/tree/link")]).passes("File: /tree/link -> a");

    let map = blockfs(["fiemap", "--json", &b]).passes("").json();
    let extents = map["extents"].as_array().unwrap();
    let sum: u64 = extents
        .iter()
        .map(|extent| extent["length"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, 367 * 4096);
    blockfs(["fiemap", &b]).passes("1500000 bytes");

    let df = blockfs(["df", "--json", &bench.disk()]).passes("").json();
    assert_eq!(
        (&df["used_blocks"], &df["inodes"]),
        (&368.into(), &6.into())
    );
    blockfs(["df", &bench.disk()]).passes("6 inodes");
    let info = blockfs(["info", "--json", &bench.disk()]).passes("").json();
    assert_eq!(
        (&info["unmounted"], &info["replayed_records"]),
        (&true.into(), &0.into())
    );

    let dump = blockfs(["dump", "--json", &bench.disk()]).passes("").json();
    let places = ["superblock A", "superblock B", "the geometry copy"];
    assert_eq!(each(&dump["superblocks"], "place"), places);
    let operations = dump["operations"].as_array().unwrap();
    for (name, times) in [("CreateInode", 6), ("AddDirent", 5), ("MapExtent", 2)] {
        let named = operations
            .iter()
            .filter(|op| op.as_str().unwrap().starts_with(name));
        assert_eq!(named.count(), times, "{name}: {operations:?}");
    }
    blockfs(["dump", &bench.disk()]).passes("AddDirent");
}

/// mkdir, mv and rm do what their letters say, and what they refuse stays as it was.
#[test]
fn names_change() {
    let bench = filled();
    let at = |path: &str| bench.at(path);
    blockfs(["mkdir", &at("/x/y/z")]).refuses(1, "no such file");
    blockfs(["mkdir", "-p", "-m", "700", &at("/x/y/z"), &at("/x/y")]).passes("");
    blockfs(["mkdir", &at("/x")]).refuses(1, "exists");
    let found = blockfs(["stat", "--json", &at("/x/y/z")]).json();
    assert_eq!(found[0]["mode"], "0700");

    blockfs(["mv", &at("/tree/a"), &at("/tree/link"), &at("/x")]).passes("");
    blockfs(["ls", &at("/x")]).passes("a\nlink\ny\n");
    blockfs(["mv", "-n", &at("/x/a"), &at("/x/link")]).refuses(1, "/x/link: the name exists");
    blockfs(["mv", "--exchange", &at("/x/a"), &at("/tree/sub")]).passes("");
    blockfs(["ls", &at("/x/a")]).passes("b\n");
    blockfs(["mv", "-T", &at("/x/y"), &at("/x/a")]).refuses(1, "/x/a: the directory is not empty");
    blockfs(["mv", &at("/x/a"), &at("/x/y"), &at("/none")]).refuses(1, "is no directory");
    blockfs(["mv", &at("/x"), &at("/x/y")]).refuses(1, "/x: ");

    blockfs(["rm", &at("/x")]).refuses(1, "give -r");
    blockfs(["rm", "-r", &at("/")]).refuses(1, "the root directory");
    blockfs(["rm", &at("/none")]).refuses(1, "no such file");
    blockfs(["rm", "-f", &at("/none"), &at("/x/link")]).passes("");
    blockfs(["rm", "-r", &at("/x"), &at("/tree")]).passes("");
    let left = blockfs(["ls", &at("/")]).passes("");
    assert_eq!(left.out(), "");
    fsck(["-n", &bench.disk()]).passes("clean, 0 files, 1 directories");
}

/// What was removed is told to the drive, whose file gives the space back.
#[test]
fn trim_gives_space_back() {
    use std::os::unix::fs::MetadataExt;
    let bench = filled();
    blockfs(["rm", "-r", &bench.at("/tree")]).passes("");
    let used = || fs::metadata(bench.path("disk.img")).unwrap().blocks() * 512;
    let before = used();
    let told = blockfs(["trim", "--json", &bench.disk()]).passes("").json();
    let free = blockfs(["df", "--json", &bench.disk()]).json();
    assert_eq!(
        told["bytes"].as_u64(),
        free["free_blocks"].as_u64().map(|blocks| blocks * 4096)
    );
    assert!(
        used() + 1_000_000 < before,
        "{} and before {before}",
        used()
    );
    fsck([&bench.disk()]).passes("clean");
}

/// A drive that has grown gives the volume more room, and what was there stays.
#[test]
fn a_volume_grows() {
    let bench = filled();
    let file = OpenOptions::new()
        .write(true)
        .open(bench.path("disk.img"))
        .unwrap();
    file.set_len(128 << 20).unwrap();
    drop(file);
    let grown = blockfs(["grow", "--json", &bench.disk()]).passes("").json();
    assert_eq!(grown["blocks"], (128 << 20) / 4096);
    assert_eq!(grown["more_blocks"], (64 << 20) / 4096);
    blockfs(["cat", &bench.at("/tree/a")]).passes("doorbell");
    fsck([&bench.disk()]).passes("clean, 2 files");
    blockfs(["grow", &bench.disk()]).passes("128 MiB, 0 B more");
}

/// Every wrong place is told with what is right.
#[test]
fn wrong_places_are_told() {
    let bench = filled();
    let (disk, root) = (bench.disk(), bench.at("/"));
    blockfs(["ls", &disk]).fails(2, "add a path");
    blockfs(["ls", "/tree"]).fails(2, "write DEVICE:/PATH");
    blockfs(["ls", "emu:colour=red:/"]).fails(2, "it takes size");
    blockfs(["df", &root]).fails(2, "give the device alone");
    blockfs(["cp", "a", "b"]).refuses(2, "write DEVICE:/PATH");
    blockfs(["cp", "a", &disk]).refuses(2, "add a path");
    blockfs(["cp", "a", &root, &root]).refuses(2, "in several places");
    blockfs(["rm", &root, "emu:size=1m:/"]).refuses(2, "several devices");
    blockfs(["ls", &bench.at("/none")]).refuses(1, "/none: no such file or directory");
    blockfs(["ls", &bench.at("/tree/a/b")]).refuses(1, "not a directory");
    blockfs(["cat", &bench.at("/tree")]).fails(1, "is a directory");
    blockfs(["fiemap", &bench.at("/tree")]).refuses(1, "is a directory");
    let missing = format!("{}:/", bench.device("none.img"));
    blockfs(["ls", &missing]).refuses(1, "does not exist: make a volume in it with");
    let missing = format!("{},size=1g:/", bench.device("none.img"));
    blockfs(["ls", &missing]).refuses(1, "does not exist");
    assert!(!bench.path("none.img").exists());
    blockfs(["ls", "emu:size=16m:/"]).refuses(1, "holds no blockfs volume");
    blockfs(["ls", &format!("{disk},queues=1:/")]).refuses(1, "a volume needs two");
    blockfs(["ls", &format!("{disk},lba=4096:/")]).refuses(1, "fsck.blockfs");
    let error = blockfs(["--json", "ls", &bench.at("/none")]).fails(1, "");
    let error: Value = serde_json::from_str(&error.stderr).unwrap();
    assert_eq!(error["code"], "volume");
    assert_eq!(error["causes"][0], "no such file or directory");
}

/// A volume of 4096-byte logical blocks on a drive whose cache is not volatile works the same.
#[test]
fn other_drives_work_the_same() {
    let bench = Bench::new();
    let device = format!("{},lba=4096,vwc=off,mdts=1", bench.disk());
    mkfs(["-q", &format!("{device},size=32m")]).passes("");
    let bytes = noise(700_001, 7);
    fs::write(bench.path("a"), &bytes).unwrap();
    let a = format!("{device}:/a");
    blockfs(["cp", &bench.host("a"), &a]).passes("");
    assert!(blockfs(["cat", &a]).passes("").stdout == bytes);
    fsck([&device]).passes("clean, 1 files");
}
