//! The report for people: the five-column device table first, then fio-like blocks.

use super::stats::{DirectionStats, Spread};
use super::{Report, quantity};
use crate::histogram::Latencies;
use crate::pattern::Direction;
use crate::run::JobResult;
use device::format_size;
use std::io::{self, Write};

const MIB: f64 = 1_048_576.0;
/// Width of the first column.
const NAME: usize = 40;

pub(super) fn write(report: &Report<'_>, to: &mut dyn Write) -> io::Result<()> {
    drive(report, to)?;
    table(report, to)?;
    for direction in Direction::ALL {
        let stats = DirectionStats::new(report, direction);
        if stats.ios > 0 {
            writeln!(to)?;
            block(report, direction, &stats, to)?;
        }
    }
    writeln!(to)?;
    counters(report, to)?;
    if report.args.latency > 0 {
        distribution(report, to)?;
    }
    for warning in report.warnings() {
        writeln!(to, "\nwarning: {warning}")?;
    }
    Ok(())
}

/// What the drive is, and what was measured.
fn drive(report: &Report<'_>, to: &mut dyn Write) -> io::Result<()> {
    let (drive, plan) = (report.drive, report.plan);
    let temperature = drive
        .temperature_celsius
        .map(|celsius| format!(", {celsius} C"));
    let cache = match drive.volatile_cache {
        Some(true) => ", volatile write cache on",
        Some(false) => ", no volatile write cache",
        None => "",
    };
    writeln!(
        to,
        "{}: {}, firmware {}, serial {}",
        drive.device, drive.model, drive.firmware, drive.serial
    )?;
    writeln!(
        to,
        "namespace {}: {} in {} byte blocks (format {}){cache}{}",
        drive.nsid,
        format_size(drive.capacity_bytes),
        drive.lba_bytes,
        drive.lba_format,
        temperature.unwrap_or_default()
    )?;
    let mix = if plan.mode.is_mixed() {
        format!(" ({} % reads)", plan.read_percent)
    } else {
        String::new()
    };
    writeln!(
        to,
        "{}: {}{mix}, {} a command, depth {}, {} job{}, {:.3} s\n",
        report.args.name,
        plan.mode.name(),
        format_size(plan.block_bytes.into()),
        plan.depth,
        plan.jobs,
        if plan.jobs == 1 { "" } else { "s" },
        report.outcome.elapsed().as_secs_f64()
    )
}

/// The table: a row a job, and all together.
fn table(report: &Report<'_>, to: &mut dyn Write) -> io::Result<()> {
    let outcome = report.outcome;
    writeln!(to, "{:NAME$}   {:>23} {:>32}", "", "", "Latency (us)")?;
    writeln!(
        to,
        "{:NAME$} : {:>12} {:>10} {:>10} {:>10} {:>10}",
        "Device Information", "IOPS", "MiB/s", "Average", "min", "max"
    )?;
    let row = |to: &mut dyn Write, name: &str, jobs: &[JobResult]| {
        let of_job = |job| {
            Direction::ALL
                .map(|d| outcome.iops_of(job, d))
                .iter()
                .sum::<f64>()
        };
        let iops: f64 = jobs.iter().map(of_job).sum();
        line(
            to,
            name,
            iops,
            report,
            &outcome.latencies(jobs, &Direction::ALL),
        )
    };
    let device = format!("{} NSID {}", report.drive.device, report.drive.nsid);
    for (number, job) in outcome.jobs.iter().enumerate() {
        row(
            to,
            &format!("{device} job {number}"),
            std::slice::from_ref(job),
        )?;
    }
    row(to, "Total", &outcome.jobs)
}

fn line(
    to: &mut dyn Write,
    name: &str,
    iops: f64,
    report: &Report<'_>,
    latencies: &Latencies,
) -> io::Result<()> {
    let mib = iops * f64::from(report.plan.block_bytes) / MIB;
    write!(to, "{name:NAME$} : {iops:>12.2} {mib:>10.2}")?;
    if !report.plan.latency {
        return writeln!(to, " {0:>10} {0:>10} {0:>10}", "-");
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    let us = |ns: u64| ns as f64 / 1e3;
    writeln!(
        to,
        " {:>10.2} {:>10.2} {:>10.2}",
        latencies.mean_ns() / 1e3,
        us(latencies.min_ns()),
        us(latencies.max_ns())
    )
}

/// One direction, as fio shows it.
fn block(
    report: &Report<'_>,
    direction: Direction,
    stats: &DirectionStats,
    to: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        to,
        "  {}: IOPS={}, BW={:.1}MiB/s ({:.0}MB/s)({}/{}msec)",
        direction.name(),
        quantity(stats.iops),
        stats.bytes_per_second / MIB,
        stats.bytes_per_second / 1e6,
        format_size(stats.bytes),
        report.outcome.elapsed().as_millis()
    )?;
    if report.plan.latency {
        latency(report, &stats.latencies, to)?;
    }
    let scale = f64::from(report.plan.block_bytes) / MIB;
    let spread = stats.iops_spread;
    let bandwidth = Spread {
        min: spread.min * scale,
        max: spread.max * scale,
        mean: spread.mean * scale,
        stddev: spread.stddev * scale,
        ..spread
    };
    for (name, spread) in [("bw (MiB/s)", bandwidth), ("iops", spread)] {
        writeln!(
            to,
            "    {name:<11}: min={:.1}, max={:.1}, avg={:.2}, stdev={:.2}, samples={}",
            spread.min, spread.max, spread.mean, spread.stddev, spread.samples
        )?;
    }
    Ok(())
}

fn latency(report: &Report<'_>, latencies: &Latencies, to: &mut dyn Write) -> io::Result<()> {
    // Microseconds once nanoseconds would be too many digits.
    let (unit, scale) = if latencies.mean_ns() < 100_000.0 {
        ("nsec", 1)
    } else {
        ("usec", 1000)
    };
    #[expect(clippy::cast_precision_loss, reason = "a unit's scale")]
    let divisor = scale as f64;
    writeln!(
        to,
        "    clat ({unit}): min={}, max={}, avg={:.2}, stdev={:.2}",
        latencies.min_ns() / scale,
        latencies.max_ns() / scale,
        latencies.mean_ns() / divisor,
        latencies.stddev_ns() / divisor
    )?;
    writeln!(to, "    clat percentiles ({unit}):")?;
    let values = report.args.percentile_list.0.iter();
    let cells: Vec<(f64, u64)> = values
        .map(|percent| (*percent, latencies.percentile_ns(*percent) / scale))
        .collect();
    let width = cells
        .iter()
        .map(|(_, value)| value.to_string().len())
        .max()
        .unwrap_or(1);
    for row in cells.chunks(4) {
        let cell = |(percent, value): &(f64, u64)| format!("{percent:>6.2}th=[{value:>width$}]");
        writeln!(
            to,
            "     | {}",
            row.iter().map(cell).collect::<Vec<_>>().join(", ")
        )?;
    }
    Ok(())
}

/// What the queues did.
fn counters(report: &Report<'_>, to: &mut dyn Write) -> io::Result<()> {
    let jobs = &report.outcome.jobs;
    let sum = |of: fn(&JobResult) -> u64| jobs.iter().map(of).sum::<u64>();
    let doorbells = sum(|job| job.tally.submitted.iter().sum());
    let polls = sum(|job| job.tally.completed.iter().sum());
    let idle = sum(|job| job.tally.completed.first().copied().unwrap_or(0));
    let ios: u64 = Direction::ALL
        .iter()
        .map(|direction| report.outcome.ios(*direction))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = ios as f64 / doorbells.max(1) as f64;
    writeln!(
        to,
        "  queues: doorbells={doorbells} ({ratio:.1} commands each), polls={polls} ({idle} idle), \
         errors={}",
        report.outcome.errors()
    )
}

/// The distribution of all latencies, in ranges that double.
fn distribution(report: &Report<'_>, to: &mut dyn Write) -> io::Result<()> {
    let all = report
        .outcome
        .latencies(&report.outcome.jobs, &Direction::ALL);
    let total = all.count().max(1);
    writeln!(
        to,
        "\n  {:>16} {:>11} {:>14}",
        "up to (us)", "cumulative", "commands"
    )?;
    let mut cumulative = 0;
    for (end, count) in all.doubling() {
        cumulative += count;
        #[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
        let (us, share) = (end as f64 / 1e3, cumulative as f64 * 100.0 / total as f64);
        writeln!(to, "  {us:>16.3} {share:>10.4}% {count:>14}")?;
    }
    Ok(())
}
