//! Where things lie on a volume: pure arithmetic on 4 KiB blocks.

use super::{BLOCK_BYTES, FormatError, LbaSize, MAX_VOLUME_BLOCKS, Twin};
use driver::namespace::Lba;

#[cfg(test)]
mod tests;

/// The block of superblock copy B: 1 MiB from the start.
pub const SUPERBLOCK_B_BLOCK: u64 = (1 << 20) / BLOCK_BYTES;
/// The least journal: four records of 16 KiB.
pub const MIN_JOURNAL_BYTES: u64 = 64 << 10;
/// The largest journal: what a mount can be asked to read.
pub const MAX_JOURNAL_BYTES: u64 = 1 << 30;
/// The least checkpoint slot.
pub const MIN_CHECKPOINT_BYTES: u64 = 64 << 10;
/// The largest checkpoint slot: pages are counted in 32 bits.
pub const MAX_CHECKPOINT_BYTES: u64 = 1 << 40;
/// The longest journal record.
pub const MAX_RECORD_BYTES: u32 = 128 << 10;

/// Volumes from this size on start their data area at a multiple of [`DATA_ALIGN_BLOCKS`].
const ALIGN_DATA_FROM_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;
/// 1 MiB: a multiple of what drives prefer to write.
const DATA_ALIGN_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES;

/// Consecutive 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub start: u64,
    /// How many.
    pub blocks: u64,
}

impl BlockRange {
    /// The first block after it.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.blocks)
    }

    /// Whether a block is in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.blocks > 0 && other.blocks > 0 && self.start < other.end() && other.start < self.end()
    }

    /// Whether all of `other` is inside.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        match other.start.checked_add(other.blocks) {
            Some(end) => self.start <= other.start && end <= self.end(),
            None => false,
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.blocks.saturating_mul(BLOCK_BYTES)
    }
}

/// What mkfs may be asked for; what is `None` follows the volume's size.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayoutOptions {
    /// The journal ring in bytes: by default 1/2048 of the volume, from 4 to 16 MiB: a mount
    /// after a crash reads it all and replays up to half of it and more.
    pub journal_bytes: Option<u64>,
    /// Each of the two checkpoint slots in bytes, the limit of the metadata: by default 1/512 of the
    /// volume, from 8 MiB to 4 GiB.
    pub checkpoint_bytes: Option<u64>,
}

/// The layout of a volume.
///
/// # Examples
///
/// ```
/// use blockfs::format::LbaSize;
/// use blockfs::format::geometry::{Geometry, LayoutOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A drive of 8 GiB with logical blocks of 512 bytes.
/// let layout = Geometry::plan(LbaSize::B512, 16 << 20, &LayoutOptions::default())?;
/// assert_eq!(layout.journal.bytes(), 4 << 20);
/// assert_eq!(layout.data.start % 256, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of the drive's logical blocks.
    pub lba_size: LbaSize,
    /// Blocks of the volume, all included.
    pub volume_blocks: u64,
    /// The journal ring.
    pub journal: BlockRange,
    /// The checkpoint slots, of one size.
    pub slots: [BlockRange; 2],
    /// What files are made of.
    pub data: BlockRange,
}

impl Geometry {
    /// Lays out a volume on a drive of `device_lbas` logical blocks.
    ///
    /// Journal and slots go before copy B of the superblock as long as they fit there, so that small
    /// volumes waste nothing. By default journal and slots of a small volume take at most 1/16 and
    /// 1/8 of it.
    ///
    /// # Errors
    /// [`FormatError::VolumeTooSmall`] with the size that these options need,
    /// [`FormatError::VolumeTooLarge`], [`FormatError::Setting`] for an impossible option.
    pub fn plan(
        lba_size: LbaSize,
        device_lbas: u64,
        options: &LayoutOptions,
    ) -> Result<Self, FormatError> {
        let volume_blocks = volume_blocks(lba_size, device_lbas)?;
        let journal_blocks = match options.journal_bytes {
            Some(bytes) => setting("a journal", bytes, MIN_JOURNAL_BYTES, MAX_JOURNAL_BYTES)?,
            None => (volume_blocks / 2048)
                .clamp(blocks_of(4 << 20), blocks_of(16 << 20))
                .min(volume_blocks / 16)
                .max(blocks_of(MIN_JOURNAL_BYTES)),
        };
        let slot_blocks = match options.checkpoint_bytes {
            Some(bytes) => setting(
                "a checkpoint slot",
                bytes,
                MIN_CHECKPOINT_BYTES,
                MAX_CHECKPOINT_BYTES,
            )?,
            None => (volume_blocks / 512)
                .clamp(blocks_of(8 << 20), blocks_of(4 << 30))
                .min(volume_blocks / 8)
                .max(blocks_of(MIN_CHECKPOINT_BYTES)),
        };
        let mut gaps = Gaps::new();
        let journal = gaps.place(journal_blocks);
        let slots = [gaps.place(slot_blocks), gaps.place(slot_blocks)];
        let mut data_start = gaps.high;
        if volume_blocks >= ALIGN_DATA_FROM_BLOCKS {
            data_start = data_start.next_multiple_of(DATA_ALIGN_BLOCKS);
        }
        // One block of data at least, and the geometry copy.
        if volume_blocks < data_start + 2 {
            return Err(FormatError::VolumeTooSmall {
                blocks: volume_blocks,
                needed: data_start + 2,
            });
        }
        Ok(Self {
            lba_size,
            volume_blocks,
            journal,
            slots,
            data: BlockRange {
                start: data_start,
                blocks: volume_blocks - 1 - data_start,
            },
        })
    }

    /// The same volume on a drive that has grown to `device_lbas`: only the data area and the geometry
    /// copy's place change.
    ///
    /// # Errors
    /// [`FormatError::VolumeTooSmall`] if the drive is now smaller than the volume,
    /// [`FormatError::VolumeTooLarge`].
    pub fn grown(&self, device_lbas: u64) -> Result<Self, FormatError> {
        let volume_blocks = volume_blocks(self.lba_size, device_lbas)?;
        let more =
            volume_blocks
                .checked_sub(self.volume_blocks)
                .ok_or(FormatError::VolumeTooSmall {
                    blocks: volume_blocks,
                    needed: self.volume_blocks,
                })?;
        let mut grown = *self;
        grown.volume_blocks = volume_blocks;
        grown.data.blocks = grown.data.blocks.saturating_add(more);
        Ok(grown)
    }

    /// Checks that the volume fits a drive of `device_lbas`.
    ///
    /// # Errors
    /// [`FormatError::VolumeTooSmall`] if the drive is smaller than the volume.
    pub fn check_device(&self, device_lbas: u64) -> Result<(), FormatError> {
        let blocks = device_lbas / self.lba_size.per_block();
        if blocks < self.volume_blocks {
            return Err(FormatError::VolumeTooSmall {
                blocks,
                needed: self.volume_blocks,
            });
        }
        Ok(())
    }

    /// The block of the geometry copy: the volume's last. A superblock is left there by mkfs and grow,
    /// for salvage only.
    #[must_use]
    pub const fn geometry_copy_block(&self) -> u64 {
        self.volume_blocks.saturating_sub(1)
    }

    /// The logical block of the geometry copy.
    #[must_use]
    pub const fn geometry_copy_lba(&self) -> Lba {
        self.lba_size.lba_of(self.geometry_copy_block())
    }

    /// The logical block of a copy of the superblock.
    #[must_use]
    pub const fn superblock_lba(lba_size: LbaSize, copy: Twin) -> Lba {
        match copy {
            Twin::A => Lba(0),
            Twin::B => lba_size.lba_of(SUPERBLOCK_B_BLOCK),
        }
    }

    /// A checkpoint slot.
    #[must_use]
    pub const fn slot(&self, slot: Twin) -> BlockRange {
        match slot {
            Twin::A => self.slots[0],
            Twin::B => self.slots[1],
        }
    }

    /// The longest journal record in bytes: a quarter of the ring, at most [`MAX_RECORD_BYTES`].
    #[must_use]
    pub fn max_record_bytes(&self) -> u32 {
        let quarter = self.journal.blocks / 4;
        let bytes = quarter.saturating_mul(BLOCK_BYTES);
        u32::try_from(bytes).map_or(MAX_RECORD_BYTES, |bytes| bytes.min(MAX_RECORD_BYTES))
    }

    /// Checks what a superblock says: every area inside the volume, none over another.
    ///
    /// # Errors
    /// [`FormatError::Layout`], [`FormatError::VolumeTooLarge`].
    pub fn check(&self) -> Result<(), FormatError> {
        if self.volume_blocks > MAX_VOLUME_BLOCKS {
            return Err(FormatError::VolumeTooLarge {
                blocks: self.volume_blocks,
                max: MAX_VOLUME_BLOCKS,
            });
        }
        let single = |start| BlockRange { start, blocks: 1 };
        let areas = [
            ("superblock A", single(0)),
            ("superblock B", single(SUPERBLOCK_B_BLOCK)),
            ("journal", self.journal),
            ("checkpoint slot A", self.slots[0]),
            ("checkpoint slot B", self.slots[1]),
            ("data area", self.data),
            ("geometry copy", single(self.geometry_copy_block())),
        ];
        let volume = BlockRange {
            start: 0,
            blocks: self.volume_blocks,
        };
        for (nth, &(what, range)) in areas.iter().enumerate() {
            let problem = if range.blocks == 0 {
                "is empty"
            } else if !volume.contains(range) {
                "is not inside the volume"
            } else if areas
                .iter()
                .take(nth)
                .any(|(_, other)| range.overlaps(*other))
            {
                "lies over another area"
            } else {
                continue;
            };
            return Err(layout(what, range, problem));
        }
        for (what, range, min, max) in [
            (
                "journal",
                self.journal,
                MIN_JOURNAL_BYTES,
                MAX_JOURNAL_BYTES,
            ),
            (
                "checkpoint slot A",
                self.slots[0],
                MIN_CHECKPOINT_BYTES,
                MAX_CHECKPOINT_BYTES,
            ),
            (
                "checkpoint slot B",
                self.slots[1],
                MIN_CHECKPOINT_BYTES,
                MAX_CHECKPOINT_BYTES,
            ),
        ] {
            if !(min..=max).contains(&range.bytes()) {
                return Err(layout(what, range, "has an impossible size"));
            }
        }
        if self.data.end() != self.geometry_copy_block() {
            return Err(layout(
                "data area",
                self.data,
                "does not end at the volume's last block",
            ));
        }
        Ok(())
    }
}

fn layout(what: &'static str, range: BlockRange, problem: &'static str) -> FormatError {
    FormatError::Layout {
        what,
        start: range.start,
        blocks: range.blocks,
        problem,
    }
}

/// What is free before and after copy B of the superblock.
struct Gaps {
    low: u64,
    high: u64,
}

impl Gaps {
    const fn new() -> Self {
        Self {
            low: 1,
            high: SUPERBLOCK_B_BLOCK + 1,
        }
    }

    /// Takes `blocks` (at most 2^28, so that nothing overflows).
    fn place(&mut self, blocks: u64) -> BlockRange {
        let gap = if self.low + blocks <= SUPERBLOCK_B_BLOCK {
            &mut self.low
        } else {
            &mut self.high
        };
        let start = *gap;
        *gap += blocks;
        BlockRange { start, blocks }
    }
}

const fn blocks_of(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES
}

fn volume_blocks(lba_size: LbaSize, device_lbas: u64) -> Result<u64, FormatError> {
    let blocks = device_lbas / lba_size.per_block();
    if blocks > MAX_VOLUME_BLOCKS {
        return Err(FormatError::VolumeTooLarge {
            blocks,
            max: MAX_VOLUME_BLOCKS,
        });
    }
    Ok(blocks)
}

/// An option's size in blocks.
fn setting(setting: &'static str, bytes: u64, min: u64, max: u64) -> Result<u64, FormatError> {
    if bytes.is_multiple_of(BLOCK_BYTES) && (min..=max).contains(&bytes) {
        return Ok(blocks_of(bytes));
    }
    Err(FormatError::Setting {
        setting,
        bytes,
        min,
        max,
    })
}
