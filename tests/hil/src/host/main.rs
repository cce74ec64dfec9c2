//! Builds the guest, boots it once for each set of options, and reports its tests as its own.
//!
//! `tests/run hil` calls it with everything in place; `cargo run -p doorbell-hil --bin hil-host` works
//! by hand with qemu-system-x86_64 on the path and DOORBELL_GUEST_KERNEL set.
#![expect(clippy::print_stdout, reason = "its output is a test report")]

mod cuts;
mod guest;
mod initramfs;
mod kernel;
mod write_log;

use clap::Parser;
use hil::boots::{self, BOOTS, Boot, CUTS};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Runs the tests that need a real kernel's VFIO and IOMMU, in a QEMU guest.
#[derive(Debug, Parser)]
struct Options {
    /// Run only tests whose name contains one of these
    filters: Vec<String>,
    /// Run only this boot; may be given several times: each line of output begins with its name
    #[arg(long = "boot", value_name = "NAME", value_parser = find_boot)]
    boots: Vec<&'static Boot>,
    /// Instead of running the boots, cut the power so many times
    #[arg(long, value_name = "NUMBER")]
    cuts: Option<usize>,
    /// Only judge the log of a cut again, with the boot and the seed that were named with it
    #[arg(long, value_name = "FILE", requires = "boots", requires = "seed")]
    replay: Option<PathBuf>,
    /// Start the random numbers here, to repeat a failing run
    #[arg(long, env = "DOORBELL_SEED")]
    seed: Option<u64>,
    /// The guest's kernel: a vmlinuz-VERSION, its modules in ../lib/modules/VERSION
    #[arg(long, env = "DOORBELL_GUEST_KERNEL", value_name = "FILE")]
    kernel: PathBuf,
    /// Where programs are built and consoles are kept
    #[arg(long, default_value = "target/hil", value_name = "DIR")]
    work: PathBuf,
}

fn find_boot(name: &str) -> Result<&'static Boot, String> {
    let names: Vec<_> = BOOTS.iter().chain(CUTS).map(|boot| boot.name).collect();
    boots::boot(name).ok_or_else(|| format!("the boots are {}", names.join(", ")))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    let start = Instant::now();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}: repeat with DOORBELL_SEED={seed}");

    if let (Some(log), [boot]) = (&options.replay, &options.boots[..]) {
        return Ok(match cuts::replay(boot, seed, log)? {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }

    let programs = build_programs(&options.work)?;
    let modules = kernel::modules(&options.kernel, &["vfio_iommu_type1", "vfio-pci", "nvme"])?;
    let initramfs = options.work.join("initramfs.cpio");
    initramfs::write(&initramfs, &programs, &modules, &trees())?;

    let all = if options.cuts.is_some() { CUTS } else { BOOTS };
    let boots = match &options.boots[..] {
        [] => all.iter().collect(),
        chosen => chosen.to_vec(),
    };
    if let Some(boot) = boots
        .iter()
        .find(|boot| all.iter().all(|a| a.name != boot.name))
    {
        return Err(format!("the boot {} is for power cuts, or for none", boot.name).into());
    }
    let total = match options.cuts {
        Some(cuts) => cuts::run(&cuts::Plan {
            kernel: &options.kernel,
            initramfs: &initramfs,
            work: &options.work,
            seed,
            boots: &boots,
            cuts,
        })?,
        None => run_all(&boots, &options, &initramfs, seed)?,
    };
    // Options that select nothing must not look like success.
    let good = total.failed == 0 && total.passed > 0;
    println!(
        "\ntest result: {}. {} passed; {} failed; finished in {:.2}s",
        if good { "ok" } else { "FAILED" },
        total.passed,
        total.failed,
        start.elapsed().as_secs_f64()
    );
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the boots. Answers what their tests came to.
fn run_all(
    boots: &[&'static Boot],
    options: &Options,
    initramfs: &Path,
    seed: u64,
) -> Result<guest::Tally, Box<dyn Error>> {
    let tallies = side_by_side(boots.len(), |nth| {
        let guest = guest::Guest {
            boot: boots[nth],
            kernel: &options.kernel,
            initramfs,
            work: &options.work,
            seed,
            filters: &options.filters,
            logged: false,
        };
        guest.run().map_err(|error| error.to_string())
    })?;
    let mut total = guest::Tally::default();
    for tally in tallies {
        total += tally;
    }
    Ok(total)
}

/// Does `work` for 0 up to `count`, as many at a time as there are processors. Answers in that order.
fn side_by_side<R: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<R, String> + Sync,
) -> Result<Vec<R>, Box<dyn Error>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= count {
                return Ok::<_, String>(done);
            }
            done.push((nth, work(nth)?));
        }
    };
    let workers = thread::available_parallelism()?.get().min(count);
    let mut all = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| "a thread panicked")??);
        }
        Ok::<_, Box<dyn Error>>(all)
    })?;
    all.sort_by_key(|(nth, _)| *nth);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

/// Builds what runs in the guest, linked statically: there is no C library in it.
fn build_programs(work: &Path) -> Result<Vec<initramfs::Program>, Box<dyn Error>> {
    const TRIPLE: &str = "x86_64-unknown-linux-gnu";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // With --target the flags reach our programs but neither build scripts nor procedural macros,
    // which cannot be linked statically. A target folder of its own keeps those flags from
    // invalidating every other build.
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--locked",
            "--profile",
            "test",
            "--target",
            TRIPLE,
        ])
        // Every instruction of the guest is emulated: what moves the data is optimised, and what is loaded
        // for each test is small.
        .args(["--config", "profile.test.package.vm-memory.opt-level=2"])
        .args(["--config", "profile.test.strip='debuginfo'"])
        .args(["-p", "doorbell-hil", "--bin", "hil-guest"])
        .args(["-p", "nvme-perf", "--bin", "nvme-perf"])
        .args(["-p", "doorbell-blockfs-tools", "--bins"])
        .arg("--target-dir")
        .arg(work)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .status()?;
    if !status.success() {
        return Err("building the guest's programs failed".into());
    }
    let built = work.join(TRIPLE).join("debug");
    let programs = [
        ("init", "hil-guest"),
        ("bin/nvme-perf", "nvme-perf"),
        ("bin/blockfs", "blockfs"),
        ("bin/mkfs.blockfs", "mkfs-blockfs"),
        ("bin/fsck.blockfs", "fsck-blockfs"),
    ];
    let program = |(path, name)| initramfs::Program {
        path,
        file: built.join(name),
    };
    Ok(programs.map(program).into())
}

/// What the guest copies into a volume and out again: sources of this project, which every clone has.
fn trees() -> Vec<initramfs::Tree> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = |name| initramfs::Tree {
        path: format!("source/{name}"),
        folder: project.join(name),
    };
    ["blockfs", "docs", "driver", "tools"].map(tree).into()
}
