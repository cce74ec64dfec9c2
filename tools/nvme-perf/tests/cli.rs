//! The built program on the software controller: every mode, both formats, counts, errors.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

use assert_cmd::cargo::cargo_bin_cmd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

fn run(line: &str) -> Output {
    let mut command = cargo_bin_cmd!("nvme-perf");
    command.args(line.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs with JSON output and expects success.
fn json(line: &str) -> Value {
    let output = run(&format!("--output-format json {line}"));
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    assert_eq!(
        stderr, "",
        "{line}: no status line where there is no terminal"
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs and expects failure with this exit status; gives what was said on standard error.
fn fails(line: &str, status: i32) -> String {
    let output = run(line);
    assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
    text(&output.stderr)
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Every mode does what it says and nothing else, and its rates and latencies make sense.
#[test]
fn every_mode_measures() {
    let modes = [
        ("read", [true, false, false]),
        ("write", [false, true, false]),
        ("randread", [true, false, false]),
        ("randwrite", [false, true, false]),
        ("rw", [true, true, false]),
        ("readwrite", [true, true, false]),
        ("randrw", [true, true, false]),
        ("trim", [false, false, true]),
        ("randtrim", [false, false, true]),
    ];
    for (mode, expected) in modes {
        let document = json(&format!("emu:size=64m -t 0.2 -w {mode}"));
        let job = &document["jobs"][0];
        for (direction, works) in ["read", "write", "trim"].into_iter().zip(expected) {
            let figures = &job[direction];
            let iops = number(&figures["iops"]);
            assert_eq!(iops > 0.0, works, "{mode}: {direction}");
            assert_eq!(
                number(&figures["io_bytes"]) > 0.0,
                works,
                "{mode}: {direction}"
            );
            let latency = &figures["clat_ns"];
            assert_eq!(latency["N"], figures["total_ios"], "{mode}: {direction}");
            if works {
                let p99 = number(&latency["percentile"]["99.000000"]);
                assert!(number(&latency["min"]) <= p99 && p99 <= number(&latency["max"]));
            }
        }
        assert_eq!(document["nvme-perf"]["errors"], 0, "{mode}");
    }
}

/// The report for people has the table, the block of the direction and its percentiles.
#[test]
fn the_normal_report_has_table_and_percentiles() {
    let output = run("-t 0.2 -L --percentile-list 50:99.9");
    assert!(output.status.success());
    let report = text(&output.stdout);
    let parts = [
        "Doorbell software NVMe",
        "Device Information",
        "IOPS",
        "MiB/s",
        "Average",
        "Total",
        "read: IOPS=",
        "BW=",
        "clat percentiles",
        "50.00th=[",
        "99.90th=[",
        "doorbells=",
        "up to (us)",
        "warning: only 0 B of 1 GiB",
    ];
    for part in parts {
        assert!(report.contains(part), "no {part:?} in:\n{report}");
    }
    assert!(!report.contains("99.00th"), "{report}");
}

/// A count is kept exactly, by every job, also with splits, short queues and small batches.
#[test]
fn number_ios_is_exact() {
    let lines = [
        ("emu:size=64m -d 1000", 1000),
        ("emu:size=64m -d 1 -q 128", 1),
        ("emu:size=64m -d 5000 -j 3 -q 7", 15_000),
        ("emu:size=64m,mdts=1 -d 100 -b 64k -q 8", 100),
        ("emu:size=64m,mqes=7 -d 1000 -q 32", 1000),
        ("emu:size=64m -d 1000 -s 3 -C 2", 1000),
        ("emu:size=64m -d 1000 --no-latency", 1000),
        ("emu:size=64m -d 1000 -a 0.1", 1000),
        ("emu:size=64m,lba=4096 -d 1000 -w randrw -M 30 --fua", 1000),
    ];
    for (line, expected) in lines {
        let job = &json(line)["jobs"][0];
        let total = number(&job["read"]["total_ios"]) + number(&job["write"]["total_ios"]);
        assert!((total - f64::from(expected)).abs() < 0.5, "{line}: {total}");
    }
}

/// Writing a range once fills all of it and nothing else: sequential writes skip nothing, split or
/// not, however short the queue.
#[test]
fn sequential_writes_fill_the_range() {
    for shape in ["", ",mdts=1", ",mqes=3"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive.img");
        let file = path.display();
        json(&format!(
            "emu:file={file},size=4m{shape} -w write -b 64k -q 16 -d 48 --offset 1m"
        ));
        let bytes = std::fs::read(&path).unwrap();
        let holds_data = |chunk: &[u8]| chunk.iter().any(|byte| *byte != 0);
        assert!(!bytes[..1 << 20].chunks(4096).any(holds_data), "{shape}");
        assert!(bytes[1 << 20..].chunks(4096).all(holds_data), "{shape}");
    }
}

/// A run that only reads leaves every byte of the drive as it was.
#[test]
fn reads_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    let before: Vec<u8> = (0..1_u32 << 20)
        .map(|n| n.to_le_bytes()[0] ^ 0x5a)
        .collect();
    std::fs::write(&path, &before).unwrap();
    for mode in ["read", "randread"] {
        json(&format!("emu:file={} -t 0.2 -w {mode}", path.display()));
        assert!(std::fs::read(&path).unwrap() == before, "{mode}");
    }
}

/// A size that is not the file's is refused before anything is touched; a dry run and a run that
/// only reads leave the file alone, and make a missing one only where its size is given.
#[test]
fn a_file_keeps_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    let before: Vec<u8> = (0..1_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    std::fs::write(&path, &before).unwrap();
    let file = format!("emu:file={}", path.display());
    for size in ["512k", "2m"] {
        for rest in ["--dry-run", "-t 0.1", "-t 0.1 -w randwrite --force"] {
            let error = fails(&format!("{file},size={size} {rest}"), 1);
            assert!(
                error.contains("1048576") && error.contains("resized"),
                "{error}"
            );
            assert!(std::fs::read(&path).unwrap() == before, "{size} {rest}");
        }
    }
    for line in [
        format!("{file} --dry-run"),
        format!("{file},size=1m -t 0.1"),
    ] {
        assert!(run(&line).status.success(), "{line}");
        assert!(std::fs::read(&path).unwrap() == before, "{line}");
    }
    std::fs::remove_file(&path).unwrap();
    fails(&format!("{file} --dry-run"), 1);
    assert!(!path.exists());
    assert!(run(&format!("{file},size=1m --dry-run")).status.success());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

/// A file that holds something is written with --force only, and the error says so.
#[test]
fn a_drive_with_contents_is_guarded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    let mut bytes = vec![0; 4 << 20];
    bytes[512..520].copy_from_slice(b"EFI PART");
    std::fs::write(&path, &bytes).unwrap();
    let device = format!("emu:file={}", path.display());
    for mode in ["write", "randwrite", "rw", "trim"] {
        let error = fails(&format!("{device} -t 0.2 -w {mode}"), 1);
        assert!(
            error.contains("a GPT partition table") && error.contains("--force"),
            "{error}"
        );
    }
    assert!(std::fs::read(&path).unwrap() == bytes);
    json(&format!("{device} -t 0.2 -w randwrite --force"));
    assert!(std::fs::read(&path).unwrap() != bytes);
}

/// What lies elsewhere than at the edges is found too: anywhere in a small drive, where the writing
/// begins, and by the drive's own count of what is in use. The error says where.
#[test]
fn contents_anywhere_are_guarded() {
    use std::os::unix::fs::FileExt;
    let cases = [
        (8 << 20, (5 << 20) + 77, "", "data at byte 5242957"),
        (
            1 << 30,
            (513 << 20) + 7777,
            "--offset 513m",
            "data at byte 537927265",
        ),
        (
            1 << 30,
            (515 << 20) + 7777,
            "",
            "in use by the drive's word",
        ),
    ];
    for (len, at, rest, hint) in cases {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(len).unwrap();
        file.as_file().write_at(&[1], at).unwrap();
        let device = format!("emu:file={} -w randwrite -d 1", file.path().display());
        let error = fails(&format!("{device} {rest}"), 1);
        assert!(error.contains(hint) && error.contains("--force"), "{error}");
        json(&format!("{device} --force"));
    }
}

/// Starts a run, waits until it shows its live line, and sends the signal.
fn interrupted(line: &str, signal: Signal) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nvme-perf"))
        .args(line.split_whitespace())
        .args(["--output-format", "json", "--eta", "always"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = [0];
    child
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut shown)
        .unwrap();
    kill_process(Pid::from_child(&child), signal).unwrap();
    child
}

/// A signal ends the run early with a whole report and success, and what a ramp did is not in it.
#[test]
fn a_signal_ends_the_run_with_its_report() {
    let cases = [
        ("-t 600", Signal::INT, true),
        ("-t 600 -w randrw -j 2", Signal::TERM, true),
        ("-t 600 -a 600", Signal::INT, false),
    ];
    for (line, signal, measured) in cases {
        let child = interrupted(&format!("emu:size=64m {line}"), signal);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ios = number(&document["jobs"][0]["read"]["total_ios"]);
        assert_eq!(ios > 0.0, measured, "{line}: {ios}");
        let warnings = document["nvme-perf"]["warnings"].to_string();
        assert!(warnings.contains("a signal ended"), "{line}: {warnings}");
    }
}

/// A second signal does not wait for what is outstanding.
#[test]
fn a_second_signal_kills() {
    let mut child = interrupted("emu:size=64m,latency_us=10000000 -t 600", Signal::INT);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for its commands"
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
}

/// Wrong usage ends with 2 and says what is allowed; what cannot be opened ends with 1 and says why.
#[test]
fn errors_have_their_exit_status() {
    let usage = [
        ("--verify crc32c", "--verify"),
        ("nvme0n1", "expected a PCI address"),
        ("emu:colour=red", "it takes size, file"),
        ("-w sideways", "randread"),
        ("-q 64 --io-queue-size 64", "too short for a depth of 64"),
        ("--percentile-list 99.9999999", "six decimals"),
        ("-b 1000", "not a multiple of the drive's 512 byte blocks"),
        ("emu:size=1m --offset 2m", "reaches beyond the namespace"),
    ];
    for (line, hint) in usage {
        let error = fails(line, 2);
        assert!(error.contains(hint), "{line}: {error}");
    }
    let set_up = [
        ("fffe:00:00.0", "lspci"),
        ("vfio-user:path=/run/none.sock", "not built yet"),
        ("emu:file=/nowhere/at/all", "because: "),
        ("emu:size=1m,ns=2", "namespace 2 is not active"),
        ("--cpus-allowed 1023 -t 0.1", "cannot run on processor 1023"),
        ("-b 1g -q 4095 -j 1024", "lower --bs"),
        ("--output /nowhere/at/all", "cannot be written"),
        ("emu:size=1m,queues=1 -j 2 -t 0.1", "queue pairs"),
    ];
    for (line, hint) in set_up {
        let error = fails(line, 1);
        assert!(error.contains(hint), "{line}: {error}");
    }
}

/// With JSON output errors are one JSON object, with a stable code.
#[test]
fn json_errors_are_objects() {
    let error = fails("--output-format json fffe:00:00.0", 1);
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["code"], "setup");
    assert!(error["message"].is_string() && error["causes"].is_array());
    let error = fails("--output-format json -b 1000", 2);
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["code"], "usage");
}

/// The report can go to a file, a dry run runs nothing, and the live line comes if it is asked for.
#[test]
fn output_goes_where_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let output = run(&format!(
        "-t 0.2 --output-format json --output {}",
        path.display()
    ));
    assert!(output.status.success() && output.stdout.is_empty());
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(number(&document["jobs"][0]["read"]["iops"]) > 0.0);

    let output = run("--dry-run -w randwrite");
    assert!(output.status.success() && text(&output.stdout).contains("would run randwrite"));

    let plan = json("--dry-run -w randwrite -q 7");
    assert_eq!(
        (&plan["rw"], &plan["iodepth"]),
        (&"randwrite".into(), &7.into())
    );
    assert_eq!(plan["drive"]["model"], "Doorbell software NVMe");

    let output = run("-t 0.2 --eta always");
    assert!(text(&output.stderr).contains("IOPS"));
}

/// The drive and the job are named in the JSON, and reads of an empty drive are warned of.
#[test]
fn the_drive_is_named() {
    let document = json("emu:size=64m,lba=4096,vwc=off -t 0.1 --name night");
    let drive = &document["nvme-perf"]["drive"];
    assert_eq!(drive["model"], "Doorbell software NVMe");
    assert_eq!(drive["lba_bytes"], 4096);
    assert_eq!(drive["capacity_bytes"], 64 << 20);
    assert_eq!(drive["volatile_cache"], false);
    assert!(drive["temperature_celsius"].is_i64() && drive["serial"].is_string());
    assert_eq!(document["jobs"][0]["jobname"], "night");
    let warning = document["nvme-perf"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("never"), "{warning}");
}
