//! A small volume with everything that version 1 has, built from fixed values.

use blockfs::format::checkpoint::{CheckpointWriter, Place, Written};
use blockfs::format::geometry::{Geometry, LayoutOptions};
use blockfs::format::op::{Attrs, Dirent, Extent, Kind, NewInode, Op, ROOT_INO};
use blockfs::format::record::{RecordBuilder, Stamp};
use blockfs::format::ring::{Ring, RingPos, RingShape};
use blockfs::format::superblock::{
    ActiveCheckpoint, Features, JournalStart, Label, SUPERBLOCK_BYTES, Superblock,
};
use blockfs::format::{BLOCK_BYTES, FormatError, Identity, LbaSize, Twin, uuid32};
use driver::namespace::Lba;
use uuid::Uuid;

pub(crate) const BLOCKS: u64 = 300;
/// 2026-01-02 03:04:05 UTC.
const NOW_NS: i64 = 1_767_323_045_000_000_000;

const ZEROS: [u8; 4096] = [0; 4096];

fn uuid() -> Uuid {
    Uuid::from_u128(0x5d41_402a_bc4b_4a76_b971_9d91_1017_c592)
}

fn inode(ino: u64, kind: Kind, size: u64) -> Op<'static> {
    Op::CreateInode(NewInode {
        ino,
        kind,
        mode: 0o755,
        nlink: 1,
        uid: 1000,
        gid: 100,
        size,
        atime_ns: NOW_NS,
        mtime_ns: NOW_NS + 1,
        ctime_ns: NOW_NS + 2,
        btime_ns: -1,
    })
}

fn dirent(dir: u64, ino: u64, kind: Kind, name: &[u8]) -> Dirent<'_> {
    Dirent {
        dir,
        ino,
        kind,
        name,
    }
}

fn map(ino: u64, lblk: u32, pblk: u64, unwritten: bool) -> Op<'static> {
    let extent = Extent {
        lblk,
        pblk,
        len: 2,
        unwritten,
    };
    Op::MapExtent { ino, extent }
}

/// What the checkpoint in force holds.
pub(crate) fn checkpoint_ops() -> Vec<Op<'static>> {
    vec![
        Op::SetLabel { label: b"golden" },
        Op::NextInode { ino: 20 },
        inode(ROOT_INO, Kind::Directory, 0),
        inode(2, Kind::File, 16_000),
        inode(3, Kind::Symlink, 4),
        inode(4, Kind::File, 0),
        Op::AddDirent(dirent(ROOT_INO, 2, Kind::File, b"file")),
        Op::AddDirent(dirent(ROOT_INO, 3, Kind::Symlink, "Verknüpfung".as_bytes())),
        map(2, 0, 257, false),
        map(2, 2, 270, true),
        Op::SetSymlink {
            ino: 3,
            target: b"file",
        },
        Op::SetXattr {
            ino: 2,
            name: b"user.origin",
            value: b"test",
        },
        Op::AddOrphan { ino: 4 },
    ]
}

/// What follows it in the journal, by records: every operation there is.
pub(crate) fn journal_ops() -> [Vec<Op<'static>>; 4] {
    [
        vec![
            inode(20, Kind::Directory, 0),
            Op::AddDirent(dirent(ROOT_INO, 20, Kind::Directory, b"dir")),
        ],
        // More than what is left of the ring: this record starts at its beginning.
        vec![Op::SetXattr {
            ino: 20,
            name: b"user.zeros",
            value: &ZEROS,
        }],
        vec![
            Op::SetAttr {
                ino: 2,
                attrs: Attrs {
                    size: Some(16_384),
                    atime_ns: Some(NOW_NS + 3),
                    mtime_ns: Some(NOW_NS + 4),
                    ctime_ns: Some(NOW_NS + 5),
                    mode: Some(0o4711),
                    uid: Some(1),
                    gid: Some(2),
                    nlink: Some(3),
                },
            },
            Op::RemoveDirent {
                dir: ROOT_INO,
                name: b"file",
            },
            Op::ReplaceDirent(dirent(20, 2, Kind::File, b"file")),
            Op::UnmapRange {
                ino: 2,
                lblk: 0,
                len: 1,
            },
            Op::ConvertRange {
                ino: 2,
                lblk: 2,
                len: 2,
            },
        ],
        vec![
            Op::RemoveXattr {
                ino: 2,
                name: b"user.origin",
            },
            Op::RemoveOrphan { ino: 4 },
            Op::FreeInode { ino: 4 },
            Op::Grow { blocks: 512 },
        ],
    ]
}

pub(crate) fn geometry(lba_size: LbaSize) -> Result<Geometry, FormatError> {
    let options = LayoutOptions {
        journal_bytes: Some(64 << 10),
        checkpoint_bytes: Some(64 << 10),
    };
    Geometry::plan(lba_size, BLOCKS * lba_size.per_block(), &options)
}

/// The image of the whole volume.
pub(crate) fn build(lba_size: LbaSize) -> Result<Vec<u8>, FormatError> {
    let geometry = geometry(lba_size)?;
    let identity = Identity {
        uuid32: uuid32(&uuid()),
        lba_size,
    };
    let bytes = usize::try_from(BLOCKS * BLOCK_BYTES).expect("small");
    let mut image = Image {
        lba_size,
        bytes: vec![0; bytes],
    };
    // What mkfs left: a root directory alone, and the superblock that says so.
    let first = image.checkpoint(
        identity,
        &geometry,
        Twin::A,
        1,
        &[inode(1, Kind::Directory, 0)],
    )?;
    let offset = geometry.journal.bytes() - 2 * u64::from(lba_size.bytes());
    let mut superblock = Superblock {
        uuid: uuid(),
        label: Label::new(b"golden").expect("short"),
        features: Features::default(),
        generation: 0,
        geometry,
        created_ns: NOW_NS,
        clean: true,
        epoch: 1,
        checkpoint: active(Twin::A, 1, &first),
        journal: JournalStart {
            txid: 1,
            epoch: 1,
            offset: 0,
            prev_crc: 0,
            known_txid: 0,
        },
    };
    image.put(
        lba_size.lba_of(geometry.geometry_copy_block()),
        &superblock.encode(lba_size.lba_of(geometry.geometry_copy_block()))?,
    );
    superblock.generation = 2;
    superblock.clean = false;
    image.superblock(&superblock)?;
    // Then a checkpoint with more, and records after it, one of them known to have been written.
    let second = image.checkpoint(identity, &geometry, Twin::B, 2, &checkpoint_ops())?;
    superblock.generation = 3;
    superblock.epoch = 3;
    superblock.checkpoint = active(Twin::B, 2, &second);
    superblock.journal = JournalStart {
        txid: 10,
        epoch: 2,
        offset,
        prev_crc: 0x1234_5678,
        known_txid: 10,
    };
    image.superblock(&superblock)?;
    image.journal(identity, &geometry, &superblock.journal)?;
    Ok(image.bytes)
}

fn active(slot: Twin, epoch: u64, written: &Written) -> ActiveCheckpoint {
    ActiveCheckpoint {
        slot,
        pages: written.pages,
        root_crc: written.root_crc,
        epoch,
    }
}

struct Image {
    lba_size: LbaSize,
    bytes: Vec<u8>,
}

impl Image {
    fn put(&mut self, lba: Lba, bytes: &[u8]) {
        let at = usize::try_from(lba.0 * u64::from(self.lba_size.bytes())).expect("small");
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn superblock(&mut self, superblock: &Superblock) -> Result<(), FormatError> {
        let lba = Geometry::superblock_lba(self.lba_size, superblock.copy());
        let bytes: [u8; SUPERBLOCK_BYTES] = superblock.encode(lba)?;
        self.put(lba, &bytes);
        Ok(())
    }

    fn checkpoint(
        &mut self,
        identity: Identity,
        geometry: &Geometry,
        slot: Twin,
        epoch: u64,
        ops: &[Op<'_>],
    ) -> Result<Written, FormatError> {
        let slot = geometry.slot(slot);
        let mut writer = CheckpointWriter::new(Place {
            identity,
            epoch,
            slot,
        });
        for op in ops {
            writer.push(op)?;
        }
        writer.finish();
        let mut block = slot.start;
        while let Some(page) = writer.page() {
            self.put(self.lba_size.lba_of(block), page);
            block += 1;
        }
        Ok(writer.written().expect("finished"))
    }

    fn journal(
        &mut self,
        identity: Identity,
        geometry: &Geometry,
        start: &JournalStart,
    ) -> Result<(), FormatError> {
        let from = RingPos(start.offset);
        let mut ring = Ring::new(RingShape::new(geometry), from, from);
        let mut builder = RecordBuilder::new(identity, geometry.max_record_bytes());
        let mut prev_crc = start.prev_crc;
        for (txid, ops) in (start.txid..).zip(journal_ops()) {
            builder.clear();
            assert_eq!(builder.push(&ops), Ok(true));
            let pos = ring.reserve(builder.sealed_bytes() as u64).expect("room");
            let stamp = Stamp {
                // The first was written while the checkpoint was on its way.
                epoch: if txid == start.txid { 2 } else { 3 },
                txid,
                prev_crc,
                lba: ring.shape().lba(pos),
            };
            let sealed = builder.seal(&stamp)?;
            prev_crc = sealed.crc;
            self.put(stamp.lba, sealed.bytes);
        }
        Ok(())
    }
}
