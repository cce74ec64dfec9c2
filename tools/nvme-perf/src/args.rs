//! The command line: `spdk_nvme_perf`'s letters, fio's long names.

use super::cpus::CpuList;
use super::plan::Mode;
use clap::{ArgAction, Parser, ValueEnum};
use device::{DeviceString, parse_size};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Measures an NVMe drive through Doorbell's userspace driver.
///
/// Without arguments it measures 4 KiB random reads at depth 32 for 5 seconds on the software
/// controller in this process. It only reads unless told otherwise.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "nvme-perf",
    version,
    max_term_width = 100,
    after_help = NOTES,
    after_long_help = NOTES
)]
pub struct Args {
    /// What to measure: a PCI address, emu[:KEY=VALUE,...] or vfio-user:path=SOCKET
    #[arg(value_name = "DEVICE", default_value = "emu")]
    pub device: DeviceString,

    /// Kind of work
    #[arg(
        short = 'w', long = "rw", visible_alias = "io-pattern", alias = "readwrite",
        value_name = "MODE", default_value = "randread", help_heading = WORK
    )]
    pub mode: Mode,

    /// Bytes of one command; the driver splits what the drive cannot take in one
    #[arg(
        short = 'o', visible_short_alias = 'b', long = "bs", visible_alias = "io-size",
        alias = "blocksize", value_name = "SIZE", default_value = "4k",
        value_parser = block_bytes, help_heading = WORK
    )]
    pub block_bytes: u32,

    /// Commands that each job keeps outstanding
    #[arg(
        short = 'q', long = "iodepth", visible_alias = "io-depth", value_name = "N",
        default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4095),
        help_heading = WORK
    )]
    pub depth: u16,

    /// Reads among 100 commands of rw and randrw
    #[arg(
        short = 'M', long = "rwmixread", value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u8).range(0..=100), help_heading = WORK
    )]
    pub read_percent: u8,

    /// Where the range begins: bytes, or percent of the namespace
    #[arg(long, value_name = "SIZE|N%", default_value = "0", help_heading = WORK)]
    pub offset: Extent,

    /// Length of the range: bytes, or percent of the namespace [default: all that follows the offset]
    #[arg(long, value_name = "SIZE|N%", help_heading = WORK)]
    pub size: Option<Extent>,

    /// Write with Force Unit Access: a write ends when it is on the medium
    #[arg(long, alias = "writefua", help_heading = WORK)]
    pub fua: bool,

    /// What random choices start from: the same seed makes the same run
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = WORK)]
    pub randseed: u64,

    /// Write although the drive holds something
    #[arg(long, help_heading = WORK)]
    pub force: bool,

    /// Open the drive, say what would be done, and end
    #[arg(long, help_heading = WORK)]
    pub dry_run: bool,

    /// Seconds to measure; or with a unit: ms, s, m, h [default: 5, or no limit with --number-ios]
    #[arg(
        short = 't', long, visible_alias = "time", value_name = "TIME", value_parser = duration,
        help_heading = LENGTH
    )]
    pub runtime: Option<Duration>,

    /// Seconds to work before anything is counted
    #[arg(
        short = 'a', long, visible_alias = "warmup-time", value_name = "TIME", default_value = "0",
        value_parser = duration, help_heading = LENGTH
    )]
    pub ramp_time: Duration,

    /// Commands that each job runs, exactly
    #[arg(
        short = 'd', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
        help_heading = LENGTH
    )]
    pub number_ios: Option<u64>,

    /// Jobs: threads with a queue pair each
    #[arg(
        short = 'j', long = "numjobs", visible_alias = "threads", value_name = "N",
        default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024),
        help_heading = QUEUES
    )]
    pub jobs: u16,

    /// Processors for the jobs, dealt out in turn, as in 0-3,5 [default: wherever the kernel likes]
    #[arg(long, value_name = "LIST", help_heading = QUEUES)]
    pub cpus_allowed: Option<CpuList>,

    /// Entries of each queue's rings [default: as many as the depth needs]
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=4096),
        help_heading = QUEUES
    )]
    pub io_queue_size: Option<u16>,

    /// Commands that one doorbell tells of at most [default: all that can be submitted]
    #[arg(
        short = 's', long, visible_alias = "iodepth-batch", value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..), help_heading = QUEUES
    )]
    pub batch_submit: Option<u16>,

    /// Completions that one poll takes at most [default: all that there are]
    #[arg(
        short = 'C', long, visible_alias = "iodepth-batch-complete-max", value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..), help_heading = QUEUES
    )]
    pub max_completion_per_poll: Option<u16>,

    /// Print the distribution of latencies as well
    #[arg(
        short = 'L', long, visible_alias = "enable-sw-latency-tracking", action = ArgAction::Count,
        help_heading = OUTPUT
    )]
    pub latency: u8,

    /// Do not record latencies: the loop reads no clock
    #[arg(
        long, visible_alias = "gtod-reduce", alias = "disable-lat", conflicts_with = "latency",
        help_heading = OUTPUT
    )]
    pub no_latency: bool,

    /// Percentiles to report, separated by colons
    #[arg(
        long, value_name = "LIST",
        default_value = "1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99",
        hide_default_value = true, help_heading = OUTPUT
    )]
    pub percentile_list: Percentiles,

    /// For people, or in JSON with fio's keys
    #[arg(long, value_name = "FORMAT", default_value = "normal", help_heading = OUTPUT)]
    pub output_format: OutputFormat,

    /// Write the report to a file instead of standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,

    /// Name of the job in the report
    #[arg(long, value_name = "NAME", default_value = "nvme-perf", help_heading = OUTPUT)]
    pub name: String,

    /// Show the live line on standard error: auto means on a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = OUTPUT)]
    pub eta: Eta,
}

const WORK: &str = "Work";
const LENGTH: &str = "Length";
const QUEUES: &str = "Threads and queues";
const OUTPUT: &str = "Output";

const NOTES: &str = "\
Sizes take k, m, g, t for powers of 1,024. Latencies run from just before a batch is written to
its ring until the poll that finds the completion.

Settings of emu: size, file, backing=ram|null, ns, namespaces, lba, mqes, dstrd, mpsmin, mdts,
queues, latency_us, iops, vwc=on|off, cpu. backing=null completes commands without moving data.
file=F is used at its length; size=N makes F if it is missing or empty, and never resizes it.

Examples:
  nvme-perf                                    the software controller, 4 KiB random reads
  nvme-perf 0000:01:00.0 -q 128 -t 60 -a 5     a drive on vfio-pci, a minute after 5 s of warm-up
  nvme-perf 0000:01:00.0,ns=2 -w randrw -M 70 --force
  nvme-perf emu:backing=null,cpu=1 --cpus-allowed 0 -q 1
  nvme-perf --output-format json | jq '.jobs[0].read.iops'

Ctrl-C (SIGINT) or SIGTERM ends the run early, with its report; a second one kills it.

Exit status: 0 measured, 1 set-up or I/O error, 2 wrong usage.";

/// A number of bytes, or a share of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes.
    Bytes(u64),
    /// Percent.
    Percent(u8),
}

impl FromStr for Extent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(percent) = text.strip_suffix('%') else {
            return parse_size(text)
                .map(Self::Bytes)
                .map_err(|error| error.to_string());
        };
        match percent.parse() {
            Ok(percent) if percent <= 100 => Ok(Self::Percent(percent)),
            _ => Err("a share is a whole number from 0% to 100%".to_owned()),
        }
    }
}

/// How the report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Normal,
    /// JSON with fio's keys
    Json,
}

/// When the live line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Eta {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Percentiles to report.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles(pub Vec<f64>);

impl FromStr for Percentiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percentile = |item: &str| {
            // The report's keys have as many decimals: fio's six.
            let short = item.split_once('.').is_none_or(|(_, rest)| rest.len() <= 6);
            let plain = item
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.');
            let value = item
                .parse()
                .ok()
                .filter(|value| short && plain && *value > 0.0 && *value <= 100.0);
            value.ok_or(format!(
                "{item:?} is no percentile: write 50:99:99.9, above 0, up to 100, six decimals"
            ))
        };
        let mut list = text
            .split(':')
            .map(percentile)
            .collect::<Result<Vec<f64>, _>>()?;
        list.sort_by(f64::total_cmp);
        list.dedup();
        Ok(Self(list))
    }
}

/// The bytes of one command.
fn block_bytes(text: &str) -> Result<u32, String> {
    const MAX: u64 = 1 << 30;
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let fits = u32::try_from(bytes)
        .ok()
        .filter(|_| (1..=MAX).contains(&bytes));
    fits.ok_or_else(|| "from the drive's block size to 1 GiB".to_owned())
}

/// A time: seconds, or with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [
        ("ms", 1e-3),
        ("us", 1e-6),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let found = UNITS.iter().find_map(|(unit, scale)| {
        let number = text.strip_suffix(unit)?;
        Some((number, *scale))
    });
    let (number, scale) = found.unwrap_or((text, 1.0));
    let seconds = number
        .trim()
        .parse::<f64>()
        .ok()
        .map(|number| number * scale);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "a time is seconds, or a number with ms, s, m or h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("nvme-perf").chain(line.split_whitespace()))
    }

    /// clap finds no contradiction in the definition.
    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    /// Both schools' spellings reach the same settings.
    #[test]
    fn spdk_and_fio_spell_the_same() {
        let spdk =
            parse("0000:01:00.0 -q 64 -o 8192 -w randrw -M 70 -t 60 -a 5 -d 1000 -j 2").unwrap();
        let fio = "0000:01:00.0 --iodepth=64 --bs=8k --rw=randrw --rwmixread=70 --runtime=1m \
                   --ramp-time=5s --number-ios=1000 --numjobs=2";
        let fio = parse(fio).unwrap();
        for args in [
            spdk,
            fio,
            parse(
                "0000:01:00.0 -q 64 -b 8k -w randrw -M 70 --time 60000ms \
            --warmup-time 5 -d 1000 --threads 2",
            )
            .unwrap(),
        ] {
            assert_eq!(
                (args.depth, args.block_bytes, args.mode),
                (64, 8192, Mode::RandRw)
            );
            assert_eq!(
                (args.read_percent, args.jobs, args.number_ios),
                (70, 2, Some(1000))
            );
            assert_eq!(args.runtime, Some(Duration::from_secs(60)));
            assert_eq!(args.ramp_time, Duration::from_secs(5));
        }
        assert_eq!(parse("--rw readwrite").unwrap().mode, Mode::Rw);
    }

    /// Without arguments it is 4 KiB random reads at depth 32 on the software controller.
    #[test]
    fn the_defaults_read_from_the_emulator() {
        let args = parse("").unwrap();
        assert_eq!(args.device.to_string(), "emu");
        assert_eq!(
            (args.mode, args.block_bytes, args.depth),
            (Mode::RandRead, 4096, 32)
        );
        assert!(args.percentile_list.0.contains(&99.0));
    }

    /// What makes no sense is refused while parsing.
    #[test]
    fn nonsense_is_refused() {
        let lines = [
            "nvme0",
            "-q 0",
            "-q 5000",
            "-o 0",
            "-o 2g",
            "-w sideways",
            "-M 101",
            "-t soon",
            "--percentile-list 0",
            "--percentile-list 50:x",
            "--percentile-list 99.9999999",
            "--percentile-list 1e-9",
            "--offset 101%",
            "--cpus-allowed x",
            "-d 0",
            "--no-latency -L",
            "--verify crc32c",
        ];
        for line in lines {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    /// Times are seconds unless they have a unit.
    #[test]
    fn times_have_units() {
        let cases = [
            ("0.2", 200),
            ("5", 5_000),
            ("250ms", 250),
            ("2s", 2_000),
            ("1.5m", 90_000),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(
                duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        assert!(duration("-1").is_err() && duration("").is_err() && duration("1e999").is_err());
    }
}
