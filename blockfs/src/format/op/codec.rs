//! Operations to bytes and back.
//!
//! Each operation is a whole number of 8-byte words. The first is its head: the tag, a byte of flags, a
//! 16-bit and a 32-bit argument. What a layout does not use is zero, and is checked, so that every
//! operation has exactly one form in bytes.

use super::check::{bad, check, check_unused};
use super::{
    Attrs, Dirent, Extent, Kind, MAX_EXTENT_BLOCKS, MAX_FILE_BLOCKS, MAX_SYMLINK_BYTES,
    MAX_XATTR_BYTES, NewInode, Op,
};
use crate::format::{FormatError, MAX_VOLUME_BLOCKS};

const CREATE_INODE: u8 = 1;
const FREE_INODE: u8 = 2;
const SET_ATTR: u8 = 3;
const ADD_DIRENT: u8 = 4;
const REMOVE_DIRENT: u8 = 5;
const REPLACE_DIRENT: u8 = 6;
const MAP_EXTENT: u8 = 7;
const UNMAP_RANGE: u8 = 8;
const CONVERT_RANGE: u8 = 9;
const SET_SYMLINK: u8 = 10;
const SET_XATTR: u8 = 11;
const REMOVE_XATTR: u8 = 12;
const ADD_ORPHAN: u8 = 13;
const REMOVE_ORPHAN: u8 = 14;
const SET_LABEL: u8 = 15;
const GROW: u8 = 16;
const NEXT_INODE: u8 = 17;

/// Flag of [`MAP_EXTENT`].
const UNWRITTEN: u8 = 1;

const WORD: usize = 8;

/// The first word of an operation.
pub(super) struct Head {
    pub(super) tag: u8,
    pub(super) flags: u8,
    pub(super) short: u16,
    pub(super) long: u32,
}

impl Head {
    const fn new(tag: u8) -> Self {
        Self {
            tag,
            flags: 0,
            short: 0,
            long: 0,
        }
    }

    const fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// The length of a name or a target, which [`check`] has bounded below 2^16.
    fn short(mut self, len: usize) -> Self {
        self.short = u16::try_from(len).unwrap_or(u16::MAX);
        self
    }

    const fn long(mut self, long: u32) -> Self {
        self.long = long;
        self
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.tag, self.flags]);
        out.extend_from_slice(&self.short.to_le_bytes());
        out.extend_from_slice(&self.long.to_le_bytes());
    }
}

impl<'a> Op<'a> {
    /// Appends its bytes to `out`.
    ///
    /// # Errors
    /// [`FormatError::BadOp`] if a field has a value that [`Op::decode`] would refuse; `out` is then
    /// as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        check(self, 0)?;
        match *self {
            Self::CreateInode(ref inode) => put_inode(inode, out),
            Self::FreeInode { ino } => put_words(Head::new(FREE_INODE), &[ino], out),
            Self::SetAttr { ino, ref attrs } => put_attrs(ino, attrs, out),
            Self::AddDirent(ref dirent) => put_dirent(ADD_DIRENT, dirent, out),
            Self::ReplaceDirent(ref dirent) => put_dirent(REPLACE_DIRENT, dirent, out),
            Self::RemoveDirent { dir, name } => {
                put_words(Head::new(REMOVE_DIRENT).short(name.len()), &[dir], out);
                put_padded(&[name], out);
            }
            Self::MapExtent { ino, extent } => {
                let mut head = Head::new(MAP_EXTENT).flags(u8::from(extent.unwritten));
                // 48 bits, the low 16 in the short argument.
                let [a, b, c, d, e, f, ..] = extent.pblk.to_le_bytes();
                head.short = u16::from_le_bytes([a, b]);
                head.long = u32::from_le_bytes([c, d, e, f]);
                put_words(head, &[ino, pair(extent.lblk, extent.len)], out);
            }
            Self::UnmapRange { ino, lblk, len } => {
                put_words(Head::new(UNMAP_RANGE), &[ino, pair(lblk, len)], out);
            }
            Self::ConvertRange { ino, lblk, len } => {
                put_words(Head::new(CONVERT_RANGE), &[ino, pair(lblk, len)], out);
            }
            Self::SetSymlink { ino, target } => {
                put_words(Head::new(SET_SYMLINK).short(target.len()), &[ino], out);
                put_padded(&[target], out);
            }
            Self::SetXattr { ino, name, value } => {
                let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
                let head = Head::new(SET_XATTR).short(name.len()).long(len);
                put_words(head, &[ino], out);
                put_padded(&[name, value], out);
            }
            Self::RemoveXattr { ino, name } => {
                put_words(Head::new(REMOVE_XATTR).short(name.len()), &[ino], out);
                put_padded(&[name], out);
            }
            Self::AddOrphan { ino } => put_words(Head::new(ADD_ORPHAN), &[ino], out),
            Self::RemoveOrphan { ino } => put_words(Head::new(REMOVE_ORPHAN), &[ino], out),
            Self::SetLabel { label } => {
                put_words(Head::new(SET_LABEL).short(label.len()), &[], out);
                put_padded(&[label], out);
            }
            Self::Grow { blocks } => put_words(Head::new(GROW), &[blocks], out),
            Self::NextInode { ino } => put_words(Head::new(NEXT_INODE), &[ino], out),
        }
        Ok(())
    }

    /// Reads the operation at the start of `bytes`; says how many of them it takes. `at` is where
    /// `bytes` starts, for errors.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], [`FormatError::UnknownOp`], [`FormatError::BadOp`].
    pub fn decode(bytes: &'a [u8], at: u64) -> Result<(Self, usize), FormatError> {
        if let Some(extent) = bytes.first_chunk().and_then(sound_extent) {
            return Ok((extent, size_of::<[u64; 3]>()));
        }
        let mut cursor = Cursor { bytes, pos: 0, at };
        let [tag, flags, s0, s1, l0, l1, l2, l3] = cursor.word()?;
        let head = Head {
            tag,
            flags,
            short: u16::from_le_bytes([s0, s1]),
            long: u32::from_le_bytes([l0, l1, l2, l3]),
        };
        let op = read(&head, &mut cursor)?;
        check_unused(&op, &head, at)?;
        check(&op, at)?;
        Ok((op, cursor.pos))
    }
}

fn read<'a>(head: &Head, from: &mut Cursor<'a>) -> Result<Op<'a>, FormatError> {
    let short = usize::from(head.short);
    Ok(match head.tag {
        CREATE_INODE => read_inode(head, from)?,
        FREE_INODE => Op::FreeInode { ino: from.u64()? },
        SET_ATTR => Op::SetAttr {
            ino: from.u64()?,
            attrs: read_attrs(head.flags, from)?,
        },
        ADD_DIRENT => Op::AddDirent(read_dirent(head, "add name", from)?),
        REPLACE_DIRENT => Op::ReplaceDirent(read_dirent(head, "replace name", from)?),
        REMOVE_DIRENT => Op::RemoveDirent {
            dir: from.u64()?,
            name: from.padded("remove name", short, 0)?.0,
        },
        MAP_EXTENT => read_extent(head, from)?,
        UNMAP_RANGE => {
            let (ino, (lblk, len)) = (from.u64()?, from.pair()?);
            Op::UnmapRange { ino, lblk, len }
        }
        CONVERT_RANGE => {
            let (ino, (lblk, len)) = (from.u64()?, from.pair()?);
            Op::ConvertRange { ino, lblk, len }
        }
        SET_SYMLINK => Op::SetSymlink {
            ino: from.u64()?,
            target: from.padded("set symlink", short, 0)?.0,
        },
        SET_XATTR => {
            let ino = from.u64()?;
            // A length that no memory has is refused as too long for the input.
            let len = usize::try_from(head.long).unwrap_or(usize::MAX);
            let (name, value) = from.padded("set xattr", short, len)?;
            Op::SetXattr { ino, name, value }
        }
        REMOVE_XATTR => Op::RemoveXattr {
            ino: from.u64()?,
            name: from.padded("remove xattr", short, 0)?.0,
        },
        ADD_ORPHAN => Op::AddOrphan { ino: from.u64()? },
        REMOVE_ORPHAN => Op::RemoveOrphan { ino: from.u64()? },
        SET_LABEL => Op::SetLabel {
            label: from.padded("set label", short, 0)?.0,
        },
        GROW => Op::Grow {
            blocks: from.u64()?,
        },
        NEXT_INODE => Op::NextInode { ino: from.u64()? },
        tag => return Err(FormatError::UnknownOp { tag, at: from.at }),
    })
}

const fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::Symlink => 3,
    }
}

fn kind_of(code: u8, op: &'static str, at: u64) -> Result<Kind, FormatError> {
    match code {
        1 => Ok(Kind::File),
        2 => Ok(Kind::Directory),
        3 => Ok(Kind::Symlink),
        _ => Err(bad(op, "the kind", code.into(), at)),
    }
}

/// Two 32-bit values in a word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn put_words(head: Head, words: &[u64], out: &mut Vec<u8>) {
    head.put(out);
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// The pieces without a gap, then zeros up to a whole word.
fn put_padded(pieces: &[&[u8]], out: &mut Vec<u8>) {
    let mut len = 0;
    for piece in pieces {
        out.extend_from_slice(piece);
        len += piece.len();
    }
    out.resize(out.len() + (len.next_multiple_of(WORD) - len), 0);
}

fn put_dirent(tag: u8, dirent: &Dirent<'_>, out: &mut Vec<u8>) {
    let head = Head::new(tag)
        .flags(kind_code(dirent.kind))
        .short(dirent.name.len());
    put_words(head, &[dirent.dir, dirent.ino], out);
    put_padded(&[dirent.name], out);
}

fn read_dirent<'a>(
    head: &Head,
    op: &'static str,
    from: &mut Cursor<'a>,
) -> Result<Dirent<'a>, FormatError> {
    Ok(Dirent {
        kind: kind_of(head.flags, op, from.at)?,
        dir: from.u64()?,
        ino: from.u64()?,
        name: from.padded(op, head.short.into(), 0)?.0,
    })
}

fn put_inode(inode: &NewInode, out: &mut Vec<u8>) {
    let head = Head::new(CREATE_INODE)
        .flags(kind_code(inode.kind))
        .short(inode.mode.into())
        .long(inode.nlink);
    let words = [
        inode.ino,
        pair(inode.uid, inode.gid),
        inode.size,
        inode.atime_ns.cast_unsigned(),
        inode.mtime_ns.cast_unsigned(),
        inode.ctime_ns.cast_unsigned(),
        inode.btime_ns.cast_unsigned(),
    ];
    put_words(head, &words, out);
}

fn read_inode<'a>(head: &Head, from: &mut Cursor<'_>) -> Result<Op<'a>, FormatError> {
    let kind = kind_of(head.flags, "create inode", from.at)?;
    let ino = from.u64()?;
    let (uid, gid) = from.pair()?;
    Ok(Op::CreateInode(NewInode {
        ino,
        kind,
        mode: head.short,
        nlink: head.long,
        uid,
        gid,
        size: from.u64()?,
        atime_ns: from.u64()?.cast_signed(),
        mtime_ns: from.u64()?.cast_signed(),
        ctime_ns: from.u64()?.cast_signed(),
        btime_ns: from.u64()?.cast_signed(),
    }))
}

/// A checkpoint consists of extents for the most part: one that is sound, without detours. `None` for
/// anything else, and the general way says what it is.
#[inline]
fn sound_extent<'a>(bytes: &[u8; 24]) -> Option<Op<'a>> {
    let (words, _) = bytes.as_chunks::<WORD>();
    let [head, ino, range] = *words else {
        return None;
    };
    let [tag, flags, pblk @ ..] = head;
    let [a, b, c, d, e, f] = pblk;
    let [l0, l1, l2, l3, n0, n1, n2, n3] = range;
    let ino = u64::from_le_bytes(ino);
    let extent = Extent {
        lblk: u32::from_le_bytes([l0, l1, l2, l3]),
        pblk: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        len: u32::from_le_bytes([n0, n1, n2, n3]),
        unwritten: flags == UNWRITTEN,
    };
    let sound = tag == MAP_EXTENT
        && flags <= UNWRITTEN
        && ino != 0
        && extent.len != 0
        && extent.len <= MAX_EXTENT_BLOCKS
        && u64::from(extent.lblk) + u64::from(extent.len) <= MAX_FILE_BLOCKS.into()
        && extent.pblk + u64::from(extent.len) <= MAX_VOLUME_BLOCKS;
    sound.then_some(Op::MapExtent { ino, extent })
}

fn read_extent<'a>(head: &Head, from: &mut Cursor<'_>) -> Result<Op<'a>, FormatError> {
    if head.flags & !UNWRITTEN != 0 {
        return Err(bad("map extent", "the flags", head.flags.into(), from.at));
    }
    let ino = from.u64()?;
    let (lblk, len) = from.pair()?;
    let extent = Extent {
        lblk,
        pblk: u64::from(head.short) | u64::from(head.long) << 16,
        len,
        unwritten: head.flags & UNWRITTEN != 0,
    };
    Ok(Op::MapExtent { ino, extent })
}

/// A word for each attribute that is set, in the order of their bits.
fn put_attrs(ino: u64, attrs: &Attrs, out: &mut Vec<u8>) {
    let values = [
        attrs.size,
        attrs.atime_ns.map(i64::cast_unsigned),
        attrs.mtime_ns.map(i64::cast_unsigned),
        attrs.ctime_ns.map(i64::cast_unsigned),
        attrs.mode.map(u64::from),
        attrs.uid.map(u64::from),
        attrs.gid.map(u64::from),
        attrs.nlink.map(u64::from),
    ];
    let mask = values.iter().enumerate().fold(0, |mask, (bit, value)| {
        mask | u8::from(value.is_some()) << bit
    });
    put_words(Head::new(SET_ATTR).flags(mask), &[ino], out);
    for value in values.into_iter().flatten() {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn read_attrs(mask: u8, from: &mut Cursor<'_>) -> Result<Attrs, FormatError> {
    let at = from.at;
    let mut next = |bit: u8| (mask & 1 << bit != 0).then(|| from.u64()).transpose();
    let small = |value: Option<u64>, field| match value.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(bad("set attributes", field, value.unwrap_or(0), at)),
    };
    let size = next(0)?;
    let atime_ns = next(1)?.map(u64::cast_signed);
    let mtime_ns = next(2)?.map(u64::cast_signed);
    let ctime_ns = next(3)?.map(u64::cast_signed);
    let mode = next(4)?;
    let mode = match mode.map(u16::try_from) {
        None => None,
        Some(Ok(mode)) => Some(mode),
        Some(Err(_)) => return Err(bad("set attributes", "the mode", mode.unwrap_or(0), at)),
    };
    Ok(Attrs {
        size,
        atime_ns,
        mtime_ns,
        ctime_ns,
        mode,
        uid: small(next(5)?, "the owner")?,
        gid: small(next(6)?, "the group")?,
        nlink: small(next(7)?, "the number of names")?,
    })
}

/// Reads words; whatever is missing is an error with what is needed.
struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    at: u64,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let end = self.pos.saturating_add(len);
        let Some(taken) = self.bytes.get(self.pos..end) else {
            return Err(FormatError::Truncated {
                at: self.at,
                needed: end as u64,
                found: self.bytes.len() as u64,
            });
        };
        self.pos = end;
        Ok(taken)
    }

    fn word(&mut self) -> Result<[u8; WORD], FormatError> {
        let mut word = [0; WORD];
        word.copy_from_slice(self.take(WORD)?);
        Ok(word)
    }

    fn u64(&mut self) -> Result<u64, FormatError> {
        self.word().map(u64::from_le_bytes)
    }

    fn pair(&mut self) -> Result<(u32, u32), FormatError> {
        let [a, b, c, d, e, f, g, h] = self.word()?;
        Ok((
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        ))
    }

    /// Two pieces and the zeros after them.
    fn padded(
        &mut self,
        op: &'static str,
        first: usize,
        second: usize,
    ) -> Result<(&'a [u8], &'a [u8]), FormatError> {
        // No operation is that long, and a stream must not wait for more to come.
        if second > MAX_XATTR_BYTES {
            return Err(bad(op, "the value's length", second as u64, self.at));
        }
        if first > MAX_SYMLINK_BYTES {
            return Err(bad(op, "the length", first as u64, self.at));
        }
        let len = first + second;
        let bytes = self.take(len.next_multiple_of(WORD))?;
        let (used, padding) = bytes.split_at(len);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(bad(op, "the padding", 1, self.at));
        }
        Ok(used.split_at(first))
    }
}
