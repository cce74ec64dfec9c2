//! The filesystem on a PCI controller: random operations against a reference, and the tools.

use crate::machine;
use crate::test::{Outcome, Test};
use hil::blockfs_files;
use hil::boots::{Controller, LBA512, LBA4096};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Rounds of the random operations: some thousands of these.
const ROUNDS: usize = 10;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for shape in [&LBA512, &LBA4096] {
        for (cache, name) in [(true, "cached"), (false, "uncached")] {
            let name = format!("blockfs::random::{}::{name}", shape.name);
            let test = Test::new(name, &["plain"], move |context| {
                blockfs_files::random(&machine::attach(shape)?, cache, context.seed, ROUNDS)
            });
            tests.push(test.within(Duration::from_secs(240)));
        }
        let name = format!("blockfs::tree_in_and_out::{}", shape.name);
        let test = Test::new(name, &["plain"], |_| tree_in_and_out(shape));
        tests.push(test.within(Duration::from_secs(240)));
    }
    tests
}

fn run(program: &str, arguments: &[&str]) -> Outcome {
    let output = Command::new(program).args(arguments).output()?;
    println!("{program} {}", arguments.join(" "));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", output.status).into()),
    }
}

/// Files that a tree of sources lacks: a long hole between data, nothing at all, links.
fn oddities(folder: &Path) -> Outcome {
    fs::create_dir_all(folder.join("empty folder"))?;
    fs::write(folder.join("empty file"), "")?;
    let holes = File::create(folder.join("holes"))?;
    holes.write_all_at(&[1; 5000], 3 << 20)?;
    holes.set_len((100 << 20) + 1)?;
    fs::write(folder.join("twice"), "two names")?;
    fs::hard_link(folder.join("twice"), folder.join("again"))?;
    Ok(symlink("holes", folder.join("link"))?)
}

/// Trees of sources, of programs, and of oddities are byte-identical after `blockfs cp -r` has copied them
/// into a volume and out of it, which `fsck.blockfs` has found sound.
fn tree_in_and_out(shape: &'static Controller) -> Outcome {
    let address = shape.address();
    let (root, out) = (format!("{address}:/"), Path::new("/tmp/out"));
    oddities(Path::new("/tmp/odd"))?;
    let trees = ["/source", "/bin", "/tmp/odd"];
    run("/bin/mkfs.blockfs", &["--force", &address])?;
    run(
        "/bin/blockfs",
        &[&["cp", "-r"], &trees[..], &[&root]].concat(),
    )?;
    run("/bin/fsck.blockfs", &["-n", &address])?;
    fs::create_dir(out)?;
    for tree in trees {
        let name = Path::new(tree).file_name().ok_or("a tree without a name")?;
        let copy = format!("{root}{}", name.to_string_lossy());
        run("/bin/blockfs", &["cp", "-r", &copy, "/tmp/out"])?;
        let mut files = 0;
        identical(Path::new(tree), &out.join(name), &mut files)?;
        println!("{tree}: {files} files are identical");
        assert!(files > 0);
    }
    let [first, second] = ["twice", "again"].map(|name| fs::metadata(out.join("odd").join(name)));
    assert_eq!(first?.ino(), second?.ino(), "one file with two names");
    let holes = fs::metadata(out.join("odd/holes"))?;
    assert!(holes.blocks() * 512 < 1 << 20, "{} blocks", holes.blocks());
    fs::remove_dir_all(out)?;
    Ok(fs::remove_dir_all("/tmp/odd")?)
}

/// Fails unless two trees have the same names, kinds, permissions, dates and contents. Counts files.
fn identical(one: &Path, other: &Path, files: &mut usize) -> Outcome {
    let failed = |what: &str| -> Box<dyn Error> { format!("{}: {what}", one.display()).into() };
    let (left, right) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    if left.mode() != right.mode() || left.uid() != right.uid() || left.gid() != right.gid() {
        return Err(failed("another mode or owner"));
    }
    if left.modified()? != right.modified()? {
        return Err(failed("another date"));
    }
    if left.is_symlink() {
        return match fs::read_link(one)? == fs::read_link(other)? {
            true => Ok(()),
            false => Err(failed("another target")),
        };
    }
    if left.is_file() {
        *files += 1;
        return match fs::read(one)? == fs::read(other)? {
            true => Ok(()),
            false => Err(failed("other contents")),
        };
    }
    let names = |folder: &Path| -> std::io::Result<BTreeSet<_>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    };
    let (left, right) = (names(one)?, names(other)?);
    if left != right {
        return Err(failed(&format!("{left:?} and {right:?}")));
    }
    for name in left {
        identical(&one.join(&name), &other.join(&name), files)?;
    }
    Ok(())
}
