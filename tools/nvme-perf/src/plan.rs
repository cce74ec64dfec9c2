//! What is to be measured: the same for every job.

use super::args::{Args, Extent};
use super::cpus::CpuList;
use super::pattern::Range;
use device::format_size;
use driver::namespace::{IoFlags, Lba};
use std::time::Duration;

/// The kind of work, by fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Mode {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    RandRead,
    /// Random writes
    RandWrite,
    /// Sequential reads and writes, mixed
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads and writes, mixed
    RandRw,
    /// Sequential deallocations
    Trim,
    /// Random deallocations
    RandTrim,
}

impl Mode {
    /// Whether it changes what is on the drive.
    #[must_use]
    pub fn is_destructive(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether it reads.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandRead) || self.is_mixed()
    }

    /// Whether it reads and writes.
    #[must_use]
    pub fn is_mixed(self) -> bool {
        matches!(self, Self::Rw | Self::RandRw)
    }

    /// Its name, as fio has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
            Self::Trim => "trim",
            Self::RandTrim => "randtrim",
        }
    }
}

/// What each job does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of work.
    pub mode: Mode,
    /// Reads among 100 commands of a mixed mode.
    pub read_percent: u8,
    /// Where it works, in places of one transfer each.
    pub range: Range,
    /// Bytes of one transfer.
    pub block_bytes: u32,
    /// Commands outstanding at a time.
    pub depth: u16,
    /// Commands a doorbell tells of at most.
    pub batch_submit: usize,
    /// Completion entries that a poll looks at, at most.
    pub poll_max: usize,
    /// Commands that the queue takes at a time, at least `depth`.
    pub queue_commands: u16,
    /// Commands to run; without it, until the time is up.
    pub ios: Option<u64>,
    /// What the random choices start from.
    pub seed: u64,
    /// Whether each command's latency is recorded.
    pub latency: bool,
    /// Flags of writes.
    pub write_flags: IoFlags,
    /// Number of jobs, each with a thread and a queue pair of its own.
    pub jobs: usize,
    /// Time until the jobs are stopped.
    pub runtime: Option<Duration>,
    /// Time before anything is counted.
    pub ramp: Duration,
    /// Processors for the jobs' threads.
    pub cpus: Option<CpuList>,
}

/// Why a plan does not fit the drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The transfer is not whole blocks.
    #[error("--bs {bytes} is not a multiple of the drive's {block} byte blocks")]
    BlockSize {
        /// Bytes of one transfer.
        bytes: u32,
        /// Bytes of a block.
        block: u32,
    },
    /// The offset is not whole blocks.
    #[error("--offset {bytes} is not a multiple of the drive's {block} byte blocks")]
    Offset {
        /// The offset in bytes.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The range reaches beyond the namespace.
    #[error(
        "the range of {size} at offset {offset} reaches beyond the namespace of {capacity}: lower \
         --size or --offset"
    )]
    Beyond {
        /// The offset.
        offset: String,
        /// Its length.
        size: String,
        /// The namespace's length.
        capacity: String,
    },
    /// The rings are too short for the depth.
    #[error(
        "--io-queue-size {entries} is too short for a depth of {depth}: a ring holds one command \
         less than it has entries; raise it to {depth} and one, or lower --iodepth"
    )]
    QueueSize {
        /// Entries of a ring.
        entries: u16,
        /// Commands to keep outstanding.
        depth: u16,
    },
    /// The range has no room for one transfer.
    #[error(
        "the range of {size} has no room for one transfer of {transfer}: raise --size or lower --bs"
    )]
    Room {
        /// Its length.
        size: String,
        /// Length of a transfer.
        transfer: String,
    },
}

/// How long is measured if nothing is said.
const RUNTIME: Duration = Duration::from_secs(5);

impl Plan {
    /// The plan that the command line asks for, on a namespace of `blocks` blocks of `block` bytes.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(args: &Args, block: u32, blocks: u64) -> Result<Self, PlanError> {
        let depth = args.depth;
        let most = |limit: Option<u16>| usize::from(limit.unwrap_or(u16::MAX));
        let default_runtime = args.number_ios.is_none().then_some(RUNTIME);
        if let Some(entries) = args.io_queue_size.filter(|entries| *entries <= depth) {
            return Err(PlanError::QueueSize { entries, depth });
        }
        let flags = if args.fua {
            IoFlags::FUA
        } else {
            IoFlags::NONE
        };
        Ok(Self {
            mode: args.mode,
            read_percent: args.read_percent,
            range: range(args, block, blocks)?,
            block_bytes: args.block_bytes,
            depth,
            batch_submit: most(args.batch_submit),
            poll_max: most(args.max_completion_per_poll),
            // A ring of N entries takes N - 1 commands.
            queue_commands: args.io_queue_size.map_or(depth, |entries| entries - 1),
            ios: args.number_ios,
            seed: args.randseed,
            latency: !args.no_latency,
            write_flags: flags,
            jobs: usize::from(args.jobs),
            runtime: args.runtime.or(default_runtime),
            ramp: args.ramp_time,
            cpus: args.cpus_allowed.clone(),
        })
    }
}

/// The part of the namespace to work on.
fn range(args: &Args, block: u32, blocks: u64) -> Result<Range, PlanError> {
    let (transfer, capacity) = (
        u64::from(args.block_bytes),
        blocks.saturating_mul(block.into()),
    );
    if !args.block_bytes.is_multiple_of(block) {
        let bytes = args.block_bytes;
        return Err(PlanError::BlockSize { bytes, block });
    }
    let bytes = |extent| match extent {
        Extent::Bytes(bytes) => bytes,
        // Shares begin and end on whole transfers.
        Extent::Percent(percent) => capacity / 100 * u64::from(percent) / transfer * transfer,
    };
    let offset = bytes(args.offset);
    if !offset.is_multiple_of(block.into()) {
        return Err(PlanError::Offset {
            bytes: offset,
            block,
        });
    }
    let rest = capacity.saturating_sub(offset);
    let size = args.size.map_or(rest, bytes);
    if offset > capacity || size > rest {
        return Err(PlanError::Beyond {
            offset: format_size(offset),
            size: format_size(size),
            capacity: format_size(capacity),
        });
    }
    if size < transfer {
        let (size, transfer) = (format_size(size), format_size(transfer));
        return Err(PlanError::Room { size, transfer });
    }
    Ok(Range {
        first: Lba(offset / u64::from(block)),
        places: size / transfer,
        blocks: args.block_bytes / block,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn plan(line: &str) -> Result<Plan, PlanError> {
        let line = std::iter::once("nvme-perf").chain(line.split_whitespace());
        // 1 MiB in blocks of 512 bytes.
        Plan::new(&Args::parse_from(line), 512, 2048)
    }

    /// Offset and size bound the range, in bytes or as shares.
    #[test]
    fn the_range_is_bounded() {
        let range = |line| plan(line).map(|plan| (plan.range.first.0, plan.range.places));
        assert_eq!(range(""), Ok((0, 256)));
        assert_eq!(range("--offset 512k"), Ok((1024, 128)));
        assert_eq!(range("--offset 512 --size 9k"), Ok((1, 2)));
        assert_eq!(range("--offset 50% --size 25% -b 64k"), Ok((896, 3)));
        let errors = [
            "--offset 100",
            "-b 1000",
            "--size 2m",
            "--offset 2m",
            "--size 1k",
        ];
        for line in errors {
            assert!(range(line).is_err(), "{line}");
        }
    }

    /// A count replaces the default time but not one that was given.
    #[test]
    fn a_count_replaces_the_default_time() {
        assert_eq!(plan("").unwrap().runtime, Some(RUNTIME));
        assert_eq!(plan("-d 10").unwrap().runtime, None);
        assert_eq!(
            plan("-d 10 -t 1").unwrap().runtime,
            Some(Duration::from_secs(1))
        );
    }

    /// The queue holds the depth: a shorter one is refused.
    #[test]
    fn the_queue_holds_the_depth() {
        assert_eq!(plan("-q 64").unwrap().queue_commands, 64);
        for entries in [16, 64] {
            let refused = plan(&format!("-q 64 --io-queue-size {entries}")).unwrap_err();
            assert_eq!(refused, PlanError::QueueSize { entries, depth: 64 });
        }
        assert_eq!(plan("-q 64 --io-queue-size 65").unwrap().queue_commands, 64);
        assert_eq!(
            plan("-q 64 --io-queue-size 1024").unwrap().queue_commands,
            1023
        );
    }
}
