//! Finding a checkpoint that no superblock names: pages say themselves what they are.

use super::{MAGIC_PAGE, MAGIC_TRAILER, PAGE_BYTES, RawPage, RawTrailer};
use crate::format::geometry::BlockRange;
use crate::format::superblock::ActiveCheckpoint;
use crate::format::{Identity, Twin};
use zerocopy::{FromBytes, IntoBytes};

/// What a page means for a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// It belongs to a checkpoint whose end was not seen yet.
    More,
    /// It is the last page of this whole checkpoint.
    Whole(ActiveCheckpoint),
    /// It does not belong to the pages before it: there is no whole checkpoint.
    Broken,
}

/// Takes the pages of a slot, one after the other from its start.
///
/// Only salvage goes by this: whether the checkpoint was ever in force nobody knows.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointScan {
    identity: Identity,
    slot: Twin,
    range: BlockRange,
    epoch: Option<u64>,
    seq: u32,
    pages_crc: u32,
}

impl CheckpointScan {
    /// A scan of the slot `slot`, which lies at `range`.
    #[must_use]
    pub const fn new(identity: Identity, slot: Twin, range: BlockRange) -> Self {
        Self {
            identity,
            slot,
            range,
            epoch: None,
            seq: 0,
            pages_crc: 0,
        }
    }

    /// Takes the next page.
    pub fn page(&mut self, bytes: &[u8; PAGE_BYTES]) -> Scan {
        let Ok(page) = RawPage::ref_from_bytes(bytes) else {
            return Scan::Broken;
        };
        let magic = page.magic.get();
        let block = self.range.start.saturating_add(self.seq.into());
        let epoch = *self.epoch.get_or_insert(page.epoch.get());
        let belongs = (magic == MAGIC_PAGE || magic == MAGIC_TRAILER)
            && page.checksum() == page.crc.get()
            && page.uuid32.get() == self.identity.uuid32
            && page.self_lba.get() == self.identity.lba_size.lba_of(block).0
            && page.epoch.get() == epoch
            && page.seq.get() == self.seq;
        if !belongs {
            return Scan::Broken;
        }
        let before = self.pages_crc;
        self.pages_crc = crc32c::crc32c_append(before, page.crc.as_bytes());
        self.seq = self.seq.saturating_add(1);
        if magic == MAGIC_PAGE {
            return Scan::More;
        }
        let trailer: RawTrailer = zerocopy::transmute!(page.payload);
        match trailer.pages_crc.get() == before {
            true => Scan::Whole(ActiveCheckpoint {
                slot: self.slot,
                pages: self.seq.into(),
                root_crc: self.pages_crc,
                epoch,
            }),
            false => Scan::Broken,
        }
    }
}
