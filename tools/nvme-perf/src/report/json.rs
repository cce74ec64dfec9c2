//! The report for scripts: fio's keys, so that what reads fio's JSON reads ours.
//!
//! There is one latency here, from submission to completion: it is both `clat_ns` and `lat_ns`, and
//! `slat_ns` is zero. All jobs are one entry of `jobs`, as with fio's `group_reporting`. Everything
//! that fio has no key for is under `nvme-perf`.

use super::stats::{DirectionStats, shares};
use super::{Report, whole};
use crate::drive::Drive;
use crate::histogram::Latencies;
use crate::pattern::Direction;
use crate::run::JobResult;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    timestamp: u64,
    timestamp_ms: u64,
    #[serde(rename = "global options")]
    global_options: Map<String, Value>,
    jobs: [Job; 1],
    #[serde(rename = "nvme-perf")]
    own: Own<'a>,
}

#[derive(Debug, Serialize)]
struct Job {
    jobname: String,
    groupid: u32,
    error: u32,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Map<String, Value>,
    read: DirectionJson,
    write: DirectionJson,
    trim: DirectionJson,
    sync: Value,
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
    iodepth_level: Value,
    iodepth_submit: Value,
    iodepth_complete: Value,
    latency_ns: Map<String, Value>,
    latency_us: Map<String, Value>,
    latency_ms: Map<String, Value>,
    latency_depth: u64,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
}

#[derive(Debug, Serialize)]
struct DirectionJson {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: LatencyJson,
    clat_ns: LatencyJson,
    lat_ns: LatencyJson,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: usize,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: usize,
}

#[derive(Debug, Default, Serialize)]
struct LatencyJson {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Map<String, Value>>,
}

/// What fio has no key for.
#[derive(Debug, Serialize)]
struct Own<'a> {
    version: &'static str,
    drive: &'a Drive,
    warnings: Vec<String>,
    errors: u64,
    doorbells: u64,
    polls: u64,
    idle_polls: u64,
    stray_completions: u64,
    jobs: Vec<OwnJob>,
}

#[derive(Debug, Serialize)]
struct OwnJob {
    iops: f64,
    depth: usize,
}

const KIB: u64 = 1024;

pub(super) fn document<'a>(report: &Report<'a>) -> Document<'a> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Document {
        timestamp: now.as_secs(),
        timestamp_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        global_options: Map::new(),
        jobs: [job(report)],
        own: own(report),
    }
}

fn job(report: &Report<'_>) -> Job {
    let outcome = report.outcome;
    let usage = |of: fn(&JobResult) -> u64| outcome.jobs.iter().map(of).sum::<u64>();
    let milliseconds = u64::try_from(outcome.elapsed().as_millis()).unwrap_or(u64::MAX);
    let runs = usage(|_| 1);
    #[expect(clippy::cast_precision_loss, reason = "a share in percent")]
    let cpu = |ticks: u64| {
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let available = outcome.elapsed().as_secs_f64() * runs as f64;
        if available > 0.0 {
            (100.0 * seconds / available).min(100.0)
        } else {
            0.0
        }
    };
    let all = outcome.latencies(&outcome.jobs, &Direction::ALL);
    let [read, write, trim] = Direction::ALL.map(|direction| of_direction(report, direction));
    let (latency_ns, latency_us, latency_ms) = latency_shares(&all);
    Job {
        jobname: report.args.name.clone(),
        groupid: 0,
        // EIO, as fio has it.
        error: if outcome.errors() > 0 { 5 } else { 0 },
        eta: 0,
        elapsed: outcome.elapsed().as_secs() + report.plan.ramp.as_secs(),
        options: options(report),
        read,
        write,
        trim,
        sync: json!({ "total_ios": 0, "lat_ns": LatencyJson::default() }),
        job_runtime: milliseconds.saturating_mul(runs),
        usr_cpu: cpu(usage(|job| job.usage.user_ticks)),
        sys_cpu: cpu(usage(|job| job.usage.system_ticks)),
        ctx: usage(|job| job.usage.context_switches),
        majf: usage(|job| job.usage.major_faults),
        minf: usage(|job| job.usage.minor_faults),
        iodepth_level: levels(&add(report, |job| &job.tally.levels)),
        iodepth_submit: batches(&add(report, |job| &job.tally.submitted)),
        iodepth_complete: batches(&add(report, |job| &job.tally.completed)),
        latency_ns,
        latency_us,
        latency_ms,
        latency_depth: report.plan.depth.into(),
        latency_target: 0,
        latency_percentile: 100.0,
        latency_window: 0,
    }
}

/// The options that shape the work, as fio writes them: text.
fn options(report: &Report<'_>) -> Map<String, Value> {
    let (args, plan) = (report.args, report.plan);
    let mut options = Map::new();
    let mut set = |key: &str, value: String| options.insert(key.to_owned(), Value::String(value));
    set("name", args.name.clone());
    set("filename", report.drive.device.clone());
    set("ioengine", "doorbell".to_owned());
    set("rw", plan.mode.name().to_owned());
    set("bs", plan.block_bytes.to_string());
    set("iodepth", plan.depth.to_string());
    set("numjobs", plan.jobs.to_string());
    set("ramp_time", plan.ramp.as_secs_f64().to_string());
    if plan.mode.is_mixed() {
        set("rwmixread", plan.read_percent.to_string());
    }
    if let Some(runtime) = plan.runtime {
        set("runtime", runtime.as_secs_f64().to_string());
    }
    if let Some(ios) = plan.ios {
        set("number_ios", ios.to_string());
    }
    options
}

fn of_direction(report: &Report<'_>, direction: Direction) -> DirectionJson {
    let stats = DirectionStats::new(report, direction);
    let spread = stats.iops_spread;
    let kib = f64::from(report.plan.block_bytes) / 1024.0;
    let runtime = if stats.ios > 0 {
        report.outcome.elapsed().as_millis()
    } else {
        0
    };
    let percentiles = stats.ios > 0 && report.plan.latency;
    DirectionJson {
        io_bytes: stats.bytes,
        io_kbytes: stats.bytes / KIB,
        bw_bytes: whole(stats.bytes_per_second),
        bw: whole(stats.bytes_per_second) / KIB,
        iops: stats.iops,
        runtime: u64::try_from(runtime).unwrap_or(u64::MAX),
        total_ios: stats.ios,
        short_ios: 0,
        drop_ios: 0,
        slat_ns: LatencyJson::default(),
        clat_ns: LatencyJson {
            percentile: percentiles.then(|| percentile(report, &stats.latencies)),
            ..latency(&stats.latencies)
        },
        lat_ns: latency(&stats.latencies),
        bw_min: whole(spread.min * kib),
        bw_max: whole(spread.max * kib),
        bw_agg: if stats.ios > 0 { 100.0 } else { 0.0 },
        bw_mean: spread.mean * kib,
        bw_dev: spread.stddev * kib,
        bw_samples: spread.samples,
        iops_min: whole(spread.min),
        iops_max: whole(spread.max),
        iops_mean: spread.mean,
        iops_stddev: spread.stddev,
        iops_samples: spread.samples,
    }
}

fn latency(latencies: &Latencies) -> LatencyJson {
    LatencyJson {
        min: latencies.min_ns(),
        max: latencies.max_ns(),
        mean: latencies.mean_ns(),
        stddev: latencies.stddev_ns(),
        count: latencies.count(),
        percentile: None,
    }
}

/// Percentiles under fio's keys: text with six decimals.
fn percentile(report: &Report<'_>, latencies: &Latencies) -> Map<String, Value> {
    let list = report.args.percentile_list.0.iter();
    list.map(|percent| {
        (
            format!("{percent:.6}"),
            latencies.percentile_ns(*percent).into(),
        )
    })
    .collect()
}

/// Adds up one kind of counts of all jobs.
fn add(report: &Report<'_>, of: impl Fn(&JobResult) -> &[u64]) -> Vec<u64> {
    let mut sum = Vec::new();
    for job in &report.outcome.jobs {
        let counts = of(job);
        sum.resize(counts.len().max(sum.len()), 0);
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    sum
}

/// Shares of commands by how many were outstanding.
fn levels(counts: &[u64]) -> Value {
    // A key stands for the sizes from it to the next key.
    let (above, [one, two, four, eight, sixteen, thirty_two]) =
        shares(counts, [1, 3, 7, 15, 31, 63]);
    json!({
        "1": one, "2": two, "4": four, "8": eight, "16": sixteen, "32": thirty_two, ">=64": above,
    })
}

/// Shares of batches by how many commands they had.
fn batches(counts: &[u64]) -> Value {
    // A key stands for the sizes above the key before, up to it.
    let (above, [zero, four, eight, sixteen, thirty_two, sixty_four]) =
        shares(counts, [0, 4, 8, 16, 32, 64]);
    json!({
        "0": zero, "4": four, "8": eight, "16": sixteen, "32": thirty_two, "64": sixty_four,
        ">=64": above,
    })
}

type Shares = Map<String, Value>;

/// Shares of commands by latency, in fio's three units.
fn latency_shares(all: &Latencies) -> (Shares, Shares, Shares) {
    const STEPS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    let mut from = 0;
    #[expect(clippy::cast_precision_loss, reason = "a share in percent")]
    let mut share = |end: u64| {
        let count = all.count_between(from, end);
        from = end;
        Value::from(100.0 * count as f64 / all.count().max(1) as f64)
    };
    let mut unit = |scale: u64| {
        STEPS
            .iter()
            .map(|step| (step.to_string(), share(step * scale)))
            .collect::<Shares>()
    };
    let (nanoseconds, microseconds, mut milliseconds) = (unit(1), unit(1_000), unit(1_000_000));
    milliseconds.insert("2000".to_owned(), share(2_000_000_000));
    milliseconds.insert(">=2000".to_owned(), share(u64::MAX - 1));
    (nanoseconds, microseconds, milliseconds)
}

fn own<'a>(report: &Report<'a>) -> Own<'a> {
    let outcome = report.outcome;
    let polls = add(report, |job| &job.tally.completed);
    let of_job = |job: &JobResult| OwnJob {
        iops: Direction::ALL
            .map(|direction| outcome.iops_of(job, direction))
            .iter()
            .sum(),
        depth: job.depth,
    };
    Own {
        version: env!("CARGO_PKG_VERSION"),
        drive: report.drive,
        warnings: report.warnings(),
        errors: outcome.errors(),
        doorbells: add(report, |job| &job.tally.submitted).iter().sum(),
        polls: polls.iter().sum(),
        idle_polls: polls.first().copied().unwrap_or(0),
        stray_completions: outcome
            .jobs
            .iter()
            .map(|job| job.tally.strays.total())
            .sum(),
        jobs: outcome.jobs.iter().map(of_job).collect(),
    }
}
