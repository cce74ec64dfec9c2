//! Scripts that read fio's JSON read ours: the keys are those of fio 3.33, and no others.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use std::collections::BTreeSet;

/// Keys of an entry of `jobs`.
const JOB: &str = "jobname groupid error eta elapsed job_options read write trim sync job_runtime \
    usr_cpu sys_cpu ctx majf minf iodepth_level iodepth_submit iodepth_complete latency_ns \
    latency_us latency_ms latency_depth latency_target latency_percentile latency_window";
/// Keys of a direction.
const DIRECTION: &str = "io_bytes io_kbytes bw_bytes bw iops runtime total_ios short_ios drop_ios \
    slat_ns clat_ns lat_ns bw_min bw_max bw_agg bw_mean bw_dev bw_samples iops_min iops_max \
    iops_mean iops_stddev iops_samples";
/// Keys of a latency.
const LATENCY: &str = "min max mean stddev N";
/// Keys of the depths and of the batches.
const LEVELS: &str = "1 2 4 8 16 32 >=64";
const BATCHES: &str = "0 4 8 16 32 64 >=64";
/// Keys of the latency's distribution; milliseconds have two more.
const STEPS: &str = "2 4 10 20 50 100 250 500 750 1000";
/// Percentiles without a list of one's own.
const PERCENTILES: &str = "1.000000 5.000000 10.000000 20.000000 30.000000 40.000000 50.000000 \
    60.000000 70.000000 80.000000 90.000000 95.000000 99.000000 99.500000 99.900000 99.950000 \
    99.990000";

fn document(line: &str) -> Value {
    let mut command = cargo_bin_cmd!("nvme-perf");
    let output = command.args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Exactly these keys; an underscore stands for a blank, as in "job options".
fn check(value: &Value, keys: &str) {
    let plain = |key: &str| key.replace(' ', "_");
    let found: BTreeSet<String> = value
        .as_object()
        .unwrap()
        .keys()
        .map(|key| plain(key))
        .collect();
    assert_eq!(found, keys.split_whitespace().map(str::to_owned).collect());
}

/// The sum of an object's shares in percent.
fn sum(value: &Value) -> f64 {
    value
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_f64)
        .sum()
}

/// The document has fio's keys at every level, and our own under one.
#[test]
fn the_keys_are_those_of_fio() {
    let document = document("emu:size=64m -t 0.2 -w randrw --output-format json");
    check(
        &document,
        "timestamp timestamp_ms global_options jobs nvme-perf",
    );
    let job = &document["jobs"][0];
    check(job, JOB);
    assert!(job["job options"].is_object());
    for direction in ["read", "write", "trim"] {
        let figures = &job[direction];
        check(figures, DIRECTION);
        check(&figures["slat_ns"], LATENCY);
        check(&figures["lat_ns"], LATENCY);
        if direction != "trim" {
            check(&figures["clat_ns"], &format!("{LATENCY} percentile"));
            check(&figures["clat_ns"]["percentile"], PERCENTILES);
        }
    }
    check(&job["sync"], "total_ios lat_ns");
    check(&job["sync"]["lat_ns"], LATENCY);
    check(&job["iodepth_level"], LEVELS);
    check(&job["iodepth_submit"], BATCHES);
    check(&job["iodepth_complete"], BATCHES);
    check(&job["latency_ns"], STEPS);
    check(&job["latency_us"], STEPS);
    check(&job["latency_ms"], &format!("{STEPS} 2000 >=2000"));
}

/// Shares add up to all commands.
#[test]
fn shares_add_up() {
    let document = document("emu:size=64m -d 20000 --output-format json");
    let job = &document["jobs"][0];
    let latencies = ["latency_ns", "latency_us", "latency_ms"];
    let all: f64 = latencies.iter().map(|unit| sum(&job[unit])).sum();
    assert!((all - 100.0).abs() < 1e-6, "{all}");
    for key in ["iodepth_level", "iodepth_submit", "iodepth_complete"] {
        let all = sum(&job[key]);
        assert!((all - 100.0).abs() < 1e-6, "{key}: {all}");
    }
}
