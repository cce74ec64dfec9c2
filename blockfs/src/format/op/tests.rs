//! Tests of the operations' codec, and operations for the tests of what carries them.

use super::*;
use crate::format::MAX_VOLUME_BLOCKS;
use proptest::prelude::*;

/// What any operation can be made of.
#[derive(Clone, Debug)]
pub(in crate::format) struct Parts {
    which: u8,
    ino: Ino,
    other: Ino,
    blocks: u64,
    lblk: u32,
    len: u32,
    bits: u32,
    time: i64,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Parts {
    pub(in crate::format) fn op(&self) -> Op<'_> {
        let &Self {
            ino, time, bits, ..
        } = self;
        let kind = [Kind::File, Kind::Directory, Kind::Symlink][bits as usize % 3];
        let mode = u16::try_from(bits >> 20).expect("12 bits");
        let lblk = self.lblk;
        let len = self.len.clamp(1, MAX_FILE_BLOCKS - lblk);
        let name = self.name.as_slice();
        let dirent = Dirent {
            dir: self.other,
            ino,
            kind,
            name,
        };
        let size = self.blocks % (MAX_FILE_BYTES + 1);
        let set = |bit: u32| bits >> bit & 1 == 1;
        match self.which % 17 {
            0 => Op::CreateInode(NewInode {
                ino,
                kind,
                mode,
                nlink: bits,
                uid: lblk,
                gid: len,
                size,
                atime_ns: time,
                mtime_ns: time ^ 1,
                ctime_ns: -(time / 2),
                btime_ns: time / 3,
            }),
            1 => Op::FreeInode { ino },
            2 => Op::SetAttr {
                ino,
                attrs: Attrs {
                    size: set(0).then_some(size),
                    atime_ns: set(1).then_some(time),
                    mtime_ns: set(2).then_some(time / 7),
                    ctime_ns: Some(-(time / 2)),
                    mode: set(4).then_some(mode),
                    uid: set(5).then_some(lblk),
                    gid: set(6).then_some(len),
                    nlink: set(7).then_some(bits),
                },
            },
            3 => Op::AddDirent(dirent),
            4 => Op::RemoveDirent { dir: ino, name },
            5 => Op::ReplaceDirent(dirent),
            6 => {
                let len = len.min(MAX_EXTENT_BLOCKS);
                Op::MapExtent {
                    ino,
                    extent: Extent {
                        lblk,
                        pblk: self.blocks % (MAX_VOLUME_BLOCKS - u64::from(len) + 1),
                        len,
                        unwritten: set(0),
                    },
                }
            }
            7 => Op::UnmapRange { ino, lblk, len },
            8 => Op::ConvertRange { ino, lblk, len },
            9 => Op::SetSymlink { ino, target: name },
            10 => Op::SetXattr {
                ino,
                name,
                value: &self.value,
            },
            11 => Op::RemoveXattr { ino, name },
            12 => Op::AddOrphan { ino },
            13 => Op::RemoveOrphan { ino },
            14 => Op::SetLabel {
                label: &name[..name.len().min(64)],
            },
            15 => Op::Grow {
                blocks: self.blocks % MAX_VOLUME_BLOCKS + 1,
            },
            _ => Op::NextInode { ino },
        }
    }
}

prop_compose! {
    pub(in crate::format) fn any_parts()(
        which: u8,
        ino in 1..=u64::MAX,
        other in 1..=u64::MAX,
        blocks: u64,
        lblk in 0..MAX_FILE_BLOCKS,
        len: u32,
        bits: u32,
        time: i64,
        name in proptest::collection::vec((1u8..=254).prop_map(|b| if b == b'/' { 255 } else { b }), 1..=255),
        value in prop_oneof![
            4 => proptest::collection::vec(any::<u8>(), 0..64),
            1 => proptest::collection::vec(any::<u8>(), 0..=4096),
        ],
    ) -> Parts {
        let name = if name.iter().all(|&byte| byte == b'.') { b"x".to_vec() } else { name };
        Parts { which, ino, other, blocks, lblk, len, bits, time, name, value }
    }
}

fn encoded(op: &Op<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    op.encode(&mut bytes).expect("a valid operation");
    bytes
}

fn extent(lblk: u32, pblk: u64, len: u32) -> Op<'static> {
    let extent = Extent {
        lblk,
        pblk,
        len,
        unwritten: false,
    };
    Op::MapExtent { ino: 1, extent }
}

proptest! {
    /// What is written is read again, in whole words, and no longer than the limit.
    #[test]
    fn round_trip(parts in any_parts()) {
        let op = parts.op();
        let bytes = encoded(&op);
        prop_assert_eq!(bytes.len() % 8, 0);
        prop_assert!(bytes.len() <= MAX_OP_BYTES);
        prop_assert_eq!(Op::decode(&bytes, 0), Ok((op, bytes.len())));
    }

    /// Every proper part of an operation says how much it lacks, so that a stream can wait for it.
    #[test]
    fn a_part_is_truncated(parts in any_parts(), cut: proptest::sample::Index) {
        let bytes = encoded(&parts.op());
        let cut = cut.index(bytes.len());
        match Op::decode(&bytes[..cut], 40) {
            Err(FormatError::Truncated { at: 40, needed, found }) => {
                prop_assert_eq!(found, cut as u64);
                prop_assert!(needed > found && needed <= bytes.len() as u64);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    /// Every operation has one form: bytes that can be read are written the same again.
    #[test]
    fn one_form(parts in any_parts(), at: proptest::sample::Index, value: u8) {
        let mut bytes = encoded(&parts.op());
        let at = at.index(bytes.len().min(32));
        bytes[at] = value;
        if let Ok((op, len)) = Op::decode(&bytes, 0) {
            prop_assert_eq!(encoded(&op), &bytes[..len]);
        }
    }

    /// A list gives back its operations and accepts neither fewer nor more than were announced.
    #[test]
    fn lists_are_counted(list in proptest::collection::vec(any_parts(), 1..12)) {
        let bytes: Vec<u8> = list.iter().flat_map(|parts| encoded(&parts.op())).collect();
        let count = u32::try_from(list.len()).expect("few");
        let read: Result<Vec<_>, _> = Ops::new(&bytes, count).collect();
        let ops: Vec<_> = list.iter().map(Parts::op).collect();
        prop_assert_eq!(read, Ok(ops));
        for wrong in [count - 1, count + 1] {
            let mut ops = Ops::new(&bytes, wrong);
            let last = ops.by_ref().last();
            prop_assert!(matches!(last, Some(Err(FormatError::Count { .. }))), "{last:?}");
            prop_assert!(ops.next().is_none());
        }
    }
}

/// The bytes of an extent, as the document draws them.
#[test]
fn an_extent_to_the_byte() {
    let op = Op::MapExtent {
        ino: 0x0102_0304_0506_0708,
        extent: Extent {
            lblk: 0x1122_3344,
            pblk: 0xa1b2_c3d4_e5f6,
            len: 0x0000_0010,
            unwritten: true,
        },
    };
    #[rustfmt::skip]
    let expected = [
        7, 1, 0xf6, 0xe5, 0xd4, 0xc3, 0xb2, 0xa1,
        8, 7, 6, 5, 4, 3, 2, 1,
        0x44, 0x33, 0x22, 0x11, 0x10, 0, 0, 0,
    ];
    assert_eq!(encoded(&op), expected);
}

/// Values outside their bounds are refused on the way out, and nothing is written.
#[test]
fn bounds_on_the_way_out() {
    let long = [b'n'; 256];
    let dirent = |name| Op::RemoveDirent { dir: 1, name };
    let refused = [
        Op::FreeInode { ino: 0 },
        dirent(b""),
        dirent(b"a/b"),
        dirent(b"a\0b"),
        dirent(b"."),
        dirent(b".."),
        dirent(&long),
        extent(0, 0, 0),
        extent(0, 0, MAX_EXTENT_BLOCKS + 1),
        extent(u32::MAX, 0, 1),
        extent(0, MAX_VOLUME_BLOCKS - 1, 2),
        extent(0, u64::MAX, 2),
        Op::SetAttr {
            ino: 1,
            attrs: Attrs::default(),
        },
        Op::SetAttr {
            ino: 1,
            attrs: Attrs {
                mode: Some(0o10000),
                ..Attrs::default()
            },
        },
        Op::SetAttr {
            ino: 1,
            attrs: Attrs {
                size: Some(MAX_FILE_BYTES + 1),
                ..Attrs::default()
            },
        },
        Op::SetSymlink {
            ino: 1,
            target: &[b't'; 4096],
        },
        Op::SetXattr {
            ino: 1,
            name: b"user.x",
            value: &[0; 4097],
        },
        Op::SetLabel { label: &[b'l'; 65] },
        Op::Grow { blocks: 0 },
        Op::Grow {
            blocks: MAX_VOLUME_BLOCKS + 1,
        },
    ];
    for op in refused {
        let mut out = vec![1, 2, 3];
        let answer = op.encode(&mut out);
        assert!(
            matches!(answer, Err(FormatError::BadOp { .. })),
            "{op:?}: {answer:?}"
        );
        assert_eq!(out, [1, 2, 3]);
    }
    for op in [
        extent(u32::MAX - 1, MAX_VOLUME_BLOCKS - 1, 1),
        Op::UnmapRange {
            ino: 1,
            lblk: 0,
            len: u32::MAX,
        },
        dirent(&long[..255]),
        dirent(b"..."),
    ] {
        encoded(&op);
    }
}

/// The same bounds on the way in: each patch makes a valid operation into one that is refused.
#[test]
fn bounds_on_the_way_in() {
    let name = Op::RemoveDirent {
        dir: 1,
        name: b"abc",
    };
    let link = Op::SetXattr {
        ino: 1,
        name: b"n",
        value: b"v",
    };
    let attrs = Op::SetAttr {
        ino: 1,
        attrs: Attrs {
            uid: Some(1),
            mode: Some(1),
            ..Attrs::default()
        },
    };
    for (op, byte, value) in [
        (name, 2, 0u8), // no name
        (name, 16, b'/'),
        (name, 16, 0),
        (name, 19, 1),     // padding
        (name, 1, 1),      // unused flags
        (name, 4, 1),      // unused argument
        (name, 8, 0),      // inode 0
        (name, 3, 0xff),   // longer than any
        (link, 6, 1),      // a value of 64 KiB
        (attrs, 1, 0),     // sets nothing
        (attrs, 18, 1),    // a mode of more than 16 bits
        (attrs, 17, 0xf0), // a mode above 0o7777
        (attrs, 28, 1),    // an owner of more than 32 bits
        (extent(0, 0, 1), 1, 2),
        (extent(0, 0, 1), 20, 0),
        (extent(0, 0, 1), 23, 0x80),
    ] {
        let mut bytes = encoded(&op);
        bytes[byte] = value;
        let answer = Op::decode(&bytes, 8);
        let refused = matches!(answer, Err(FormatError::BadOp { at: 8, .. }));
        assert!(refused, "{op:?}, byte {byte}: {answer:?}");
    }
}

/// A tag of a later version is an error with its place, be it ever so short.
#[test]
fn unknown_tags() {
    for tag in (0..=255).filter(|tag| !(1..=17).contains(tag)) {
        let bytes = [tag, 0, 0, 0, 0, 0, 0, 0];
        let answer = Op::decode(&bytes, 16);
        assert_eq!(answer, Err(FormatError::UnknownOp { tag, at: 16 }));
    }
}
