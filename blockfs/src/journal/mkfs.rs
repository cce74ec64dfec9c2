//! Making a volume.

use super::wire::Wire;
use super::{JournalError, MetaTag};
use crate::device::BlockDevice;
use crate::format::checkpoint::{CheckpointWriter, Place};
use crate::format::geometry::{Geometry, LayoutOptions};
use crate::format::superblock::{
    ActiveCheckpoint, Features, JournalStart, Label, SUPERBLOCK_BYTES, Superblock,
};
use crate::format::{Identity, LbaSize, Twin, uuid32};
use crate::tree::{Limits, Tree, plan_format};
use driver::clock::Clock;
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use std::time::Duration;
use uuid::Uuid;

/// How a volume is made.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The volume's UUID.
    pub uuid: Uuid,
    /// The volume's label.
    pub label: Label,
    /// How large journal and checkpoints are.
    pub layout: LayoutOptions,
    /// The volume's size in logical blocks, if not all of the drive.
    pub device_blocks: Option<u64>,
    /// Permission bits of the root directory.
    pub mode: u16,
    /// The root directory's owner and group.
    pub owner: (u32, u32),
    /// Now: nanoseconds since 1970.
    pub now_ns: i64,
    /// How long each transfer may take.
    pub limit: Duration,
}

impl MkfsOptions {
    /// The defaults, for a volume with this UUID.
    #[must_use]
    pub const fn new(uuid: Uuid) -> Self {
        Self {
            uuid,
            label: Label::EMPTY,
            layout: LayoutOptions {
                journal_bytes: None,
                checkpoint_bytes: None,
            },
            device_blocks: None,
            mode: 0o755,
            owner: (0, 0),
            now_ns: 0,
            limit: Duration::from_secs(30),
        }
    }
}

/// The bytes of a superblock's logical block.
pub(super) fn superblock_block(superblock: &Superblock, lba: Lba) -> Result<Vec<u8>, JournalError> {
    let mut block = vec![0; superblock.geometry.lba_size.bytes() as usize];
    let bytes = superblock.encode(lba)?;
    if let Some(start) = block.get_mut(..SUPERBLOCK_BYTES) {
        start.copy_from_slice(&bytes);
    }
    Ok(block)
}

/// Makes an empty volume. Both superblocks are cleared first, so that a power cut leaves the old
/// volume, none, or the new one.
///
/// # Errors
/// [`JournalError`]: a drive that is too small, or fails.
pub fn mkfs<D: BlockDevice<MetaTag>>(
    device: &mut D,
    domain: &DmaDomain,
    clock: &dyn Clock,
    options: &MkfsOptions,
) -> Result<Superblock, JournalError> {
    let limits = device.limits();
    let lba_size = LbaSize::from_bytes(limits.block_size)?;
    let blocks = options.device_blocks.unwrap_or(limits.blocks);
    let geometry = Geometry::plan(lba_size, blocks.min(limits.blocks), &options.layout)?;
    let mut wire = Wire {
        device,
        domain,
        clock,
        limit: options.limit,
    };
    let zeros = vec![0; lba_size.bytes() as usize];
    for copy in [Twin::A, Twin::B] {
        wire.write(Geometry::superblock_lba(lba_size, copy), &zeros, false)?;
    }
    wire.flush()?;
    // Records of an older volume that had the same UUID would be taken for this one's.
    let ring = geometry.journal;
    wire.zero(
        lba_size.lba_of(ring.start),
        ring.blocks * lba_size.per_block(),
    )?;

    let identity = Identity {
        uuid32: uuid32(&options.uuid),
        lba_size,
    };
    let place = Place {
        identity,
        epoch: 1,
        slot: geometry.slot(Twin::A),
    };
    let mut tree = Tree::new(tree_limits(&geometry));
    let (uid, gid) = options.owner;
    tree.apply(&plan_format(options.mode, uid, gid, options.now_ns).ops)?;
    tree.apply(&[crate::format::op::Op::SetLabel {
        label: options.label.as_bytes(),
    }])?;
    let mut writer = CheckpointWriter::new(place);
    let mut pages = Vec::new();
    for op in tree.snapshot() {
        writer.push(&op)?;
    }
    writer.finish();
    while let Some(page) = writer.page() {
        pages.extend_from_slice(page);
    }
    wire.write(lba_size.lba_of(place.slot.start), &pages, false)?;
    let written = writer.written().ok_or(JournalError::TooLong)?;

    let mut superblock = Superblock {
        uuid: options.uuid,
        label: options.label,
        features: Features::default(),
        generation: 1,
        geometry,
        created_ns: options.now_ns,
        clean: true,
        epoch: 1,
        checkpoint: ActiveCheckpoint {
            slot: Twin::A,
            pages: written.pages,
            root_crc: written.root_crc,
            epoch: 1,
        },
        journal: JournalStart {
            txid: 1,
            epoch: 1,
            offset: 0,
            prev_crc: 0,
            known_txid: 0,
        },
    };
    let lba = geometry.geometry_copy_lba();
    wire.write(lba, &superblock_block(&superblock, lba)?, false)?;
    wire.flush()?;
    // The older copy first, so that there is never a newer one without the other.
    for generation in [1, 2] {
        superblock.generation = generation;
        let lba = Geometry::superblock_lba(lba_size, superblock.copy());
        wire.write(lba, &superblock_block(&superblock, lba)?, false)?;
        wire.flush()?;
    }
    Ok(superblock)
}

/// What limits the tree of a volume.
pub(super) fn tree_limits(geometry: &Geometry) -> Limits {
    let pages = geometry.slots[0].blocks.saturating_sub(1);
    let bytes = pages.saturating_mul(crate::format::checkpoint::PAYLOAD_BYTES as u64);
    Limits::new(bytes, geometry.volume_blocks)
}
