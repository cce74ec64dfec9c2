//! Statistics that are off cost nothing: counted instruction by instruction, under callgrind.
//!
//! Needs valgrind (`apt-get install valgrind`; tests/run does that). It builds the example
//! `iostat_cost` in the release profile, as users would.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often the example calls each function.
const CALLS: u64 = 1000;

/// The example, built for release into the target directory that this test comes from.
fn example() -> Result<PathBuf, Box<dyn Error>> {
    let me = env::current_exe()?;
    // TARGET/PROFILE/deps/TEST
    let target = me.ancestors().nth(3).ok_or("no target directory")?;
    let output = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--release", "--example", "iostat_cost"])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .env_remove("CARGO_BUILD_TARGET")
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(target.join("release/examples/iostat_cost"))
}

/// The instructions of all calls of one function and what it calls.
fn instructions(example: &Path, function: &str) -> Result<u64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(example)
        .output()
        .map_err(|error| format!("valgrind: {error}; install the package valgrind"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected :"));
    match collected {
        Some((_, count)) if output.status.success() => Ok(count.trim().parse()?),
        _ => Err(format!("{function}: {report}").into()),
    }
}

/// `Off` runs exactly as many instructions as a path that was written without statistics; what the
/// others cost is printed, and shows that the measurement would notice.
#[test]
fn off_costs_no_instruction() {
    let example = example().unwrap();
    let count = |function| {
        let all = instructions(&example, function).unwrap();
        assert!(all >= CALLS, "{function} was not found in the example");
        all
    };
    let hand_written = count("cost_handwritten");
    let off = count("cost_off");
    println!("instructions a 4 KiB read, look-up, submission and completion:");
    let show = |what, all: u64| {
        let more = i128::from(all) - i128::from(hand_written);
        let per_call = |n: i128| n as f64 / CALLS as f64;
        println!(
            "  {what:24} {:7.2}  {:+7.2}",
            per_call(all.into()),
            per_call(more)
        );
    };
    show("written without", hand_written);
    show("Off", off);
    let switched_off = count("cost_switched_off");
    show("Switchable, off", switched_off);
    let per_queue = count("cost_per_queue");
    show("PerQueue, without clock", per_queue);
    show("without, by the iterator", count("cost_iterator"));

    assert_eq!(
        off, hand_written,
        "statistics that are off cost instructions"
    );
    assert!(switched_off > hand_written && per_queue > switched_off);
}
