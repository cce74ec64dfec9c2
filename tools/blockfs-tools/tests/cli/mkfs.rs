//! mkfs.blockfs: what it makes, and what it refuses.

use super::{Bench, blockfs, fsck, mkfs, patch};
use blockfs::journal::LoadMode;
use blockfs_tools::volume::Volume;
use driver::memory::DmaDomain;
use std::fs::File;

/// The choices of the command line are on the volume.
#[test]
fn what_was_asked_for_is_made() {
    let bench = Bench::new();
    let device = format!("{},size=256m,lba=4096", bench.disk());
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let sizes = [
        "--journal-size",
        "1m",
        "--checkpoint-size",
        "2m",
        "--volume-size",
        "128m",
    ];
    let args = ["-L", "logs", "-U", uuid, "--json", &device];
    let made = mkfs(sizes.iter().chain(&args)).passes("").json();
    assert_eq!(made["made"], true);
    assert_eq!(made["uuid"], uuid);
    assert_eq!(made["lba_bytes"], 4096);
    assert_eq!(made["blocks"], (128 << 20) / 4096);
    assert_eq!(made["journal"]["blocks"], (1 << 20) / 4096);
    assert_eq!(made["checkpoints"][1]["blocks"], (2 << 20) / 4096);
    let device = format!("{},lba=4096", bench.disk());
    let info = blockfs(["info", "--json", &device]).passes("").json();
    assert_eq!(
        (&info["label"], &info["uuid"]),
        (&"logs".into(), &uuid.into())
    );
    assert_eq!(info["data_blocks"], made["data"]["blocks"]);
    fsck(["-n", &device]).passes("clean, 0 files, 1 directories");
}

/// Without a UUID each volume gets another.
#[test]
fn uuids_differ() {
    let bench = Bench::new();
    let [a, b] = ["a", "b"].map(|name| {
        let device = format!("{},size=16m", bench.device(name));
        mkfs(["--json", &device]).passes("").json()["uuid"].clone()
    });
    assert_ne!(a, b);
}

/// A known format is named, with its place, and stays; --force makes the volume all the same.
#[test]
fn known_formats_are_refused() {
    const GPT: &str = "a GPT partition table";
    const BYTES: u64 = 8 << 20;
    let formats: [(u64, &[u8], &str); 9] = [
        (510, &[0x55, 0xaa], "an MBR partition table"),
        (512, b"EFI PART", GPT),
        (4096, b"EFI PART", GPT),
        (
            BYTES - 512,
            b"EFI PART",
            "the copy of a GPT partition table",
        ),
        (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 filesystem"),
        (0, b"XFSB", "an XFS filesystem"),
        (65_600, b"_BHRfS_M", "a btrfs filesystem"),
        (512, b"LABELONE", "an LVM physical volume"),
        // The second superblock alone.
        (1 << 20, b"DBELLBFS", "a blockfs volume"),
    ];
    let bench = Bench::new();
    for (nth, (at, bytes, what)) in formats.into_iter().enumerate() {
        let name = format!("{nth}.img");
        let path = bench.path(&name);
        File::create(&path).unwrap().set_len(BYTES).unwrap();
        patch(&path, at, bytes);
        let before = std::fs::read(&path).unwrap();
        let device = bench.device(&name);
        let refused = mkfs([&device]).refuses(1, what);
        assert!(
            refused.stderr.contains(&format!("at byte {at})")),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
        let error = mkfs(["--json", &device]).fails(1, "");
        let error: serde_json::Value = serde_json::from_str(&error.stderr).unwrap();
        assert_eq!(error["code"], "in-use");
        assert!(
            std::fs::read(&path).unwrap() == before,
            "{what}: it was written"
        );
        mkfs(["--force", &device]).passes("made a blockfs volume of 8 MiB");
        mkfs([&device]).refuses(1, "a blockfs volume");
    }
}

/// A dry run says the same, and writes nothing, not even a file.
#[test]
fn a_dry_run_writes_nothing() {
    let bench = Bench::new();
    let device = format!("{},size=64m", bench.disk());
    mkfs(["-n", &device]).passes("would make a blockfs volume of 64 MiB");
    assert!(!bench.path("disk.img").exists());
    mkfs([&device]).passes("made a blockfs volume of 64 MiB");
    let before = std::fs::read(bench.path("disk.img")).unwrap();
    mkfs(["-n", "-f", &device]).passes("would make");
    assert!(std::fs::read(bench.path("disk.img")).unwrap() == before);
}

/// What cannot be made is told with what to do, and leaves no file behind.
#[test]
fn what_cannot_be_made_is_told() {
    let bench = Bench::new();
    let disk = bench.disk();
    mkfs([&disk]).refuses(1, "does not exist");
    mkfs([&disk]).refuses(1, &format!("`mkfs.blockfs {disk},size=1g`"));
    for (size, said) in [("64k", "are needed"), ("1", "are needed")] {
        mkfs([&format!("{disk},size={size}")]).refuses(1, said);
    }
    let device = format!("{disk},size=64m");
    mkfs(["--journal-size", "1", &device]).refuses(1, "choose a multiple of 4096");
    mkfs(["--volume-size", "1g", &device]).refuses(2, "cannot be larger than the device");
    mkfs(["-L", &"x".repeat(65), &device]).refuses(2, "at most 64 bytes");
    mkfs(["--journal-size", "big", &device]).fails(2, "powers of 1,024");
    mkfs(["-U", "no", &device]).fails(2, "--uuid");
    mkfs(["nvme0n1"]).fails(2, "expected a PCI address");
    mkfs(["fffe:00:00.0"]).refuses(1, "fffe:00:00.0");
    assert!(!bench.path("disk.img").exists());
}

/// While one of the tools has a drive, no other one gets it.
#[test]
fn a_drive_in_use_is_refused() {
    let bench = Bench::with_volume("64m");
    let device = bench.disk();
    let held = Volume::open(
        &device.parse().unwrap(),
        &DmaDomain::new(),
        LoadMode::ReadOnly,
    );
    let held = held.unwrap();
    let said = "is in use by another process";
    blockfs(["ls", &bench.at("/")]).refuses(1, said);
    mkfs(["-f", &device]).refuses(1, said);
    fsck([&device]).refuses(8, said);
    held.close().unwrap();
    blockfs(["ls", &bench.at("/")]).passes("");
}
