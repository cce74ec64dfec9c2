//! fsck.blockfs: exit statuses, repairs, salvage, and damage of every kind.

use super::{Bench, blockfs, fsck, noise, patch};
use blockfs::fs::OpenOptions;
use blockfs::journal::LoadMode;
use blockfs_tools::volume::Volume;
use driver::memory::DmaDomain;
use std::fs;

/// The bytes of superblock B's place, and of the geometry copy's of a volume of 64 MiB.
const B: u64 = 1 << 20;
const GEOMETRY_COPY: u64 = (64 << 20) - 4096;

/// A volume with a tree of files in it.
fn filled() -> Bench {
    let bench = Bench::with_volume("64m");
    fs::create_dir_all(bench.path("tree/sub")).unwrap();
    for nth in 0..20 {
        let name = format!("tree/sub/{nth}");
        fs::write(bench.path(&name), noise(nth * 3000, nth as u64)).unwrap();
    }
    std::os::unix::fs::symlink("sub/1", bench.path("tree/link")).unwrap();
    blockfs(["cp", "-r", &bench.host("tree"), &bench.at("/tree")]).passes("");
    bench
}

/// As a power cut leaves a volume: not unmounted, a removed file open, records in the journal.
fn crashed() -> Bench {
    let bench = filled();
    let device = bench.disk().parse().unwrap();
    let volume = Volume::open(&device, &DmaDomain::new(), LoadMode::ReadWrite).unwrap();
    let file = volume
        .fs()
        .open("/tree/sub/7", OpenOptions::new().read(true))
        .unwrap();
    volume.fs().unlink("/tree/sub/7").unwrap();
    volume.fs().mkdir("/new", 0o755).unwrap();
    volume.fs().sync().unwrap();
    fs::copy(bench.path("disk.img"), bench.path("crashed.img")).unwrap();
    drop(file);
    volume.close().unwrap();
    fs::rename(bench.path("crashed.img"), bench.path("disk.img")).unwrap();
    bench
}

fn codes(report: &serde_json::Value) -> Vec<&str> {
    let problems = report["problems"].as_array().unwrap();
    problems
        .iter()
        .map(|problem| problem["code"].as_str().unwrap())
        .collect()
}

/// Nothing is wrong: 0, with and without -y, and nothing is written.
#[test]
fn a_clean_volume_is_clean() {
    let bench = filled();
    let before = fs::read(bench.path("disk.img")).unwrap();
    for args in [&["-n"][..], &["-y"], &["-p"], &["-fa"], &[]] {
        let device = bench.disk();
        let args = args.iter().copied().chain([device.as_str()]);
        fsck(args).passes("clean, 20 files, 3 directories, 1 symbolic links");
    }
    assert!(fs::read(bench.path("disk.img")).unwrap() == before);
    let report = fsck(["--json", &bench.disk()]).passes("").json();
    assert_eq!(
        (&report["state"], &report["exit"]),
        (&"clean".into(), &0.into())
    );
    assert_eq!(report["counts"]["files"], 20);
}

/// After a power cut: 4 without repair, 1 with, 0 afterwards.
#[test]
fn a_crashed_volume_is_repaired() {
    let bench = crashed();
    let before = fs::read(bench.path("disk.img")).unwrap();
    // Nobody answers at this standard input: nothing is written.
    for args in [&["--json", "-n"][..], &["--json"]] {
        let device = bench.disk();
        let run = fsck(args.iter().copied().chain([device.as_str()])).ends(4);
        let report = run.json();
        assert_eq!(codes(&report), ["not-unmounted", "orphan"]);
        assert_eq!(report["problems"][1]["repairable"], true);
        assert_eq!(report["counts"]["orphans"], 1);
    }
    assert!(fs::read(bench.path("disk.img")).unwrap() == before);
    // A mount to read shows what was synced, and writes nothing either.
    blockfs(["ls", &bench.at("/")]).passes("new\ntree\n");
    assert!(fs::read(bench.path("disk.img")).unwrap() == before);
    fsck([&bench.disk()]).ends(4).says("fsck.blockfs -y");

    let report = fsck(["--json", "-y", &bench.disk()]).ends(1).json();
    assert_eq!(
        (&report["state"], &report["left"]),
        (&"corrected".into(), &0.into())
    );
    assert_eq!(report["counts"]["orphans"], 0);
    fsck([&bench.disk()]).passes("clean, 19 files, 4 directories");
}

/// One damaged superblock, either, or the geometry copy: found, and written anew.
#[test]
fn a_damaged_superblock_is_repaired() {
    for (at, code) in [
        (0, "superblock"),
        (B, "superblock"),
        (GEOMETRY_COPY, "geometry-copy"),
    ] {
        let bench = filled();
        patch(&bench.path("disk.img"), at + 0x30, b"rotten");
        let run = fsck(["--json", "-n", &bench.disk()]).ends(4);
        assert!(codes(&run.json()).contains(&code), "{}", run.out());
        fsck(["-y", &bench.disk()]).ends(1).says("corrected");
        fsck([&bench.disk()]).passes("clean, 20 files");
        blockfs(["cat", &bench.at("/tree/sub/2")]).passes("");
    }
}

/// Both superblocks damaged: nothing repairs that, a mount is refused, and salvage goes by the third.
#[test]
fn two_damaged_superblocks_leave_salvage() {
    let bench = filled();
    for at in [0, B] {
        patch(&bench.path("disk.img"), at + 0x30, b"rotten");
    }
    let before = fs::read(bench.path("disk.img")).unwrap();
    for mode in ["-n", "-y"] {
        let report = fsck(["--json", mode, &bench.disk()]).ends(4).json();
        assert_eq!(codes(&report), ["superblock", "superblock", "unusable"]);
        assert_eq!(report["state"], "uncorrected");
    }
    fsck(["-y", &bench.disk()]).ends(4).says("--salvage DIR");
    blockfs(["ls", &bench.at("/")]).refuses(1, "cannot be mounted: see `fsck.blockfs");
    let out = bench.host("out");
    fsck(["--salvage", &out, &bench.disk()])
        .ends(4)
        .says("exported 20 files, 2 directories");
    assert!(fs::read(bench.path("disk.img")).unwrap() == before);
    let diff = std::process::Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([bench.path("tree"), bench.path("out/tree")])
        .status();
    assert!(diff.unwrap().success());
    fsck(["--salvage", &out, &bench.disk()]).refuses(8, "not empty");
}

/// Where there is no volume and where the command line is wrong there is no check: 8 and 16.
#[test]
fn what_cannot_be_checked_is_told() {
    let bench = Bench::new();
    fsck([&bench.disk()]).refuses(8, "does not exist");
    fs::write(bench.path("disk.img"), vec![0; 8 << 20]).unwrap();
    fsck([&bench.disk()]).refuses(8, "holds no blockfs volume");
    fsck(["-y", &bench.disk()]).refuses(8, "holds no blockfs volume");
    let error = fsck(["--json", &bench.disk()]).fails(8, "");
    let error: serde_json::Value = serde_json::from_str(&error.stderr).unwrap();
    assert_eq!(error["code"], "no-volume");
    fs::write(bench.path("disk.img"), "short").unwrap();
    fsck([&bench.disk()]).fails(8, "");
    for line in [&["--bad"][..], &[], &["-n", "-y", "emu"], &["nvme0n1"]] {
        fsck(line).fails(16, "");
    }
    fsck(["--help"]).passes("Exit status");
    fsck(["--version"]).passes("fsck.blockfs");
}

/// Rot anywhere in the metadata gives a status that says so, and never a panic; what is exported is
/// right or told to be lost.
#[test]
fn rot_is_found() {
    let bench = filled();
    let image = fs::read(bench.path("disk.img")).unwrap();
    let dump = blockfs(["dump", "--json", &bench.disk()]).passes("").json();
    let newest = &dump["superblocks"][0];
    let slot = match newest["checkpoint_slot"].as_str().unwrap() {
        "A" => &newest["slot_a"],
        _ => &newest["slot_b"],
    };
    let slot = slot[0].as_u64().unwrap() * 4096;
    for (nth, at) in [slot, slot + 0x18, slot + 100, slot + 2000]
        .into_iter()
        .enumerate()
    {
        fs::write(bench.path("disk.img"), &image).unwrap();
        patch(&bench.path("disk.img"), at, b"\xa5\x5a\xa5");
        let run = fsck(["-n", &bench.disk()]);
        assert_eq!((run.status, run.stderr.as_str()), (4, ""), "{}", run.out());
        run.says("fatal: the volume cannot be mounted")
            .says("checkpoint");
        fsck(["-y", &bench.disk()]).ends(4);
        let out = bench.host(&format!("out{nth}"));
        fsck(["--salvage", &out, &bench.disk()]).ends(4);
    }
}
