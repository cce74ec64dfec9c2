//! Operations of the exerciser, and how they are chosen: often at the ends of blocks and of the file.

use blockfs::tree::Fallocate;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub at: u64,
    /// How many.
    pub len: u64,
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read(Range),
    /// Writes.
    Write {
        /// Where.
        range: Range,
        /// Whether it is durable when it ends.
        dsync: bool,
        /// Whether only direct I/O is asked for.
        direct: bool,
    },
    /// Writes at the end.
    Append {
        /// Bytes.
        len: u64,
    },
    /// Sets the size.
    Truncate(u64),
    /// Reserves, punches, zeroes.
    Allocate(Fallocate, Range),
    /// Writes zeros.
    WriteZeroes(Range),
    /// Makes the file durable.
    Fsync,
    /// Makes its data durable.
    Fdatasync,
    /// Makes everything durable.
    Sync,
    /// Makes everything durable in a checkpoint.
    Checkpoint,
    /// Tells the drive what is free.
    Trim,
    /// Mounts again.
    Remount {
        /// After it was unmounted; otherwise, after a sync, the process dies.
        clean: bool,
    },
    /// The files change their names.
    Swap,
    /// A new file takes the name; the old one was open.
    Replace,
    /// Compares everything.
    Compare,
}

impl Op {
    /// Whether it takes space.
    pub(super) const fn takes(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Append { .. } | Self::WriteZeroes(_) | Self::Allocate(..)
        )
    }

    /// Whether a handle for direct I/O refuses it.
    pub(super) const fn is_refused(self, lba: u64) -> bool {
        match self {
            Self::Write {
                range,
                direct: true,
                ..
            } => !range.at.is_multiple_of(lba) || !range.len.is_multiple_of(lba),
            _ => false,
        }
    }

    /// What it may have changed, in a file that has `size` bytes now.
    pub(super) const fn range(self, size: u64) -> Option<Range> {
        match self {
            Self::Write { range, .. } | Self::WriteZeroes(range) | Self::Allocate(_, range) => {
                Some(range)
            }
            Self::Append { len } => Some(Range {
                at: size.saturating_sub(len),
                len,
            }),
            Self::Truncate(size) => Some(Range { at: size, len: 1 }),
            _ => None,
        }
    }
}

/// Chooses operations.
#[derive(Debug)]
pub(super) struct Chooser {
    rng: fastrand::Rng,
    lba: u64,
    /// Bytes of a file at most.
    most: u64,
}

impl Chooser {
    pub(super) const fn new(rng: fastrand::Rng, lba: u64, most: u64) -> Self {
        Self { rng, lba, most }
    }

    /// A position: near the end, at a block's end, or anywhere.
    fn position(&mut self, size: u64) -> u64 {
        let rng = &mut self.rng;
        let at = match rng.u32(0..10) {
            0 => size,
            1 => size.saturating_sub(rng.u64(0..6000)),
            2 => size + rng.u64(0..6000),
            3 => size / BLOCK * BLOCK,
            4 | 5 => rng.u64(0..=self.most / BLOCK) * BLOCK,
            6 => rng.u64(0..=self.most / self.lba) * self.lba,
            7 => (rng.u64(1..=self.most / BLOCK) * BLOCK).saturating_add_signed(rng.i64(-2..3)),
            _ => rng.u64(0..=self.most),
        };
        at.min(self.most - 1)
    }

    /// A range; at least one byte.
    fn place(&mut self, size: u64) -> Range {
        let at = self.position(size);
        let rng = &mut self.rng;
        let len = match rng.u32(0..10) {
            0 => rng.u64(1..17),
            1 | 2 => rng.u64(1..=4) * self.lba,
            3 | 4 => rng.u64(1..=4) * BLOCK,
            5 => rng.u64(1..12_000),
            6 => rng.u64(1..=8) * BLOCK,
            // Up to the end of the file, and to a block's end.
            7 => size.saturating_sub(at),
            8 => (at / BLOCK + rng.u64(1..4)) * BLOCK - at,
            _ => rng.u64(1..5000),
        };
        let len = len.clamp(1, 49_152).min(self.most - at);
        Range { at, len }
    }

    pub(super) fn choose(&mut self, sizes: [u64; 2]) -> (usize, Op) {
        let file = self.rng.usize(0..2);
        let size = sizes[file];
        let op = match self.rng.u32(0..1000) {
            0..200 => Op::Read(self.place(size)),
            200..460 => Op::Write {
                range: self.place(size),
                dsync: self.rng.u32(0..10) == 0,
                direct: self.rng.u32(0..4) == 0,
            },
            460..500 => Op::Append {
                len: self
                    .place(size)
                    .len
                    .min(self.most.saturating_sub(size))
                    .max(1),
            },
            500..540 => Op::Truncate(self.position(size)),
            540..580 => Op::Truncate(self.rng.u64(0..=size)),
            580..660 => Op::Allocate(Fallocate::Punch, self.place(size)),
            660..710 => Op::Allocate(Fallocate::Zero, self.place(size)),
            710..760 => Op::Allocate(Fallocate::ZeroKeepSize, self.place(size)),
            760..810 => Op::WriteZeroes(self.place(size)),
            810..850 => Op::Allocate(Fallocate::Reserve, self.place(size)),
            850..890 => Op::Allocate(Fallocate::ReserveKeepSize, self.place(size)),
            890..915 => Op::Fsync,
            915..935 => Op::Fdatasync,
            935..945 => Op::Sync,
            945..950 => Op::Checkpoint,
            950..956 => Op::Trim,
            956..960 => Op::Remount {
                clean: self.rng.bool(),
            },
            960..964 => Op::Swap,
            964..967 => Op::Replace,
            967..975 => Op::Compare,
            _ => Op::Read(self.place(size)),
        };
        (file, op)
    }
}
