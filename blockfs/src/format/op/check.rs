//! What every operation must satisfy, on the way out and on the way in.

use super::codec::Head;
use super::{
    Attrs, MAX_EXTENT_BLOCKS, MAX_FILE_BLOCKS, MAX_FILE_BYTES, MAX_NAME_BYTES, MAX_SYMLINK_BYTES,
    MAX_XATTR_BYTES, Op,
};
use crate::format::superblock::MAX_LABEL_BYTES;
use crate::format::{FormatError, MAX_VOLUME_BLOCKS};

/// Refuses bits of the head that `op` does not use.
pub(super) fn check_unused(op: &Op<'_>, head: &Head, at: u64) -> Result<(), FormatError> {
    let (flags, short, long) = match op {
        Op::CreateInode(_) | Op::MapExtent { .. } => (true, true, true),
        Op::SetAttr { .. } => (true, false, false),
        Op::AddDirent(_) | Op::ReplaceDirent(_) => (true, true, false),
        Op::SetXattr { .. } => (false, true, true),
        Op::RemoveDirent { .. }
        | Op::SetSymlink { .. }
        | Op::RemoveXattr { .. }
        | Op::SetLabel { .. } => (false, true, false),
        _ => (false, false, false),
    };
    let unused =
        (!flags && head.flags != 0) || (!short && head.short != 0) || (!long && head.long != 0);
    if unused {
        let value =
            u64::from(head.flags) | u64::from(head.short) << 16 | u64::from(head.long) << 32;
        return Err(bad(op.name(), "what is unused of the head", value, at));
    }
    Ok(())
}

/// Refuses values that an operation must not have.
pub(super) fn check(op: &Op<'_>, at: u64) -> Result<(), FormatError> {
    let ensure = |holds: bool, field: &'static str, value: u64| {
        if holds {
            Ok(())
        } else {
            Err(bad(op.name(), field, value, at))
        }
    };
    let ino = |ino: u64| ensure(ino != 0, "the inode", ino);
    let mode = |mode: u16| ensure(mode <= 0o7777, "the mode", mode.into());
    let size = |size: u64| ensure(size <= MAX_FILE_BYTES, "the size", size);
    let bytes = |what: &'static str, bytes: &[u8], min: usize, max: usize| {
        let fits = (min..=max).contains(&bytes.len()) && !bytes.contains(&0);
        ensure(fits, what, bytes.len() as u64)
    };
    let name = |name: &[u8]| {
        bytes("the name's length", name, 1, MAX_NAME_BYTES)?;
        let plain = !name.contains(&b'/') && name != b"." && name != b"..";
        ensure(plain, "the name's length", name.len() as u64)
    };
    let range = |lblk: u32, len: u32| {
        ensure(len != 0, "the length", len.into())?;
        let end = u64::from(lblk) + u64::from(len);
        ensure(end <= MAX_FILE_BLOCKS.into(), "the end in the file", end)
    };
    match *op {
        Op::CreateInode(ref new) => ino(new.ino).and(mode(new.mode)).and(size(new.size)),
        Op::SetAttr { ino: of, ref attrs } => {
            ensure(*attrs != Attrs::default(), "what is set", 0)?;
            size(attrs.size.unwrap_or(0))?;
            mode(attrs.mode.unwrap_or(0)).and(ino(of))
        }
        Op::AddDirent(ref dirent) | Op::ReplaceDirent(ref dirent) => {
            ino(dirent.dir).and(ino(dirent.ino)).and(name(dirent.name))
        }
        Op::RemoveDirent { dir, name: removed } => ino(dir).and(name(removed)),
        Op::MapExtent { ino: of, extent } => {
            ino(of)?;
            range(extent.lblk, extent.len)?;
            ensure(
                extent.len <= MAX_EXTENT_BLOCKS,
                "the length",
                extent.len.into(),
            )?;
            let end = extent.pblk.saturating_add(extent.len.into());
            ensure(end <= MAX_VOLUME_BLOCKS, "the end on the volume", end)
        }
        Op::UnmapRange { ino: of, lblk, len } | Op::ConvertRange { ino: of, lblk, len } => {
            ino(of).and(range(lblk, len))
        }
        Op::SetSymlink { ino: of, target } => {
            ino(of).and(bytes("the target's length", target, 1, MAX_SYMLINK_BYTES))
        }
        Op::SetXattr {
            ino: of,
            name,
            value,
        } => {
            ino(of).and(bytes("the name's length", name, 1, MAX_NAME_BYTES))?;
            let len = value.len() as u64;
            ensure(value.len() <= MAX_XATTR_BYTES, "the value's length", len)
        }
        Op::RemoveXattr { ino: of, name } => {
            ino(of).and(bytes("the name's length", name, 1, MAX_NAME_BYTES))
        }
        Op::SetLabel { label } => bytes("the label's length", label, 0, MAX_LABEL_BYTES),
        Op::Grow { blocks } => ensure(
            (1..=MAX_VOLUME_BLOCKS).contains(&blocks),
            "the size in blocks",
            blocks,
        ),
        Op::FreeInode { ino: of }
        | Op::AddOrphan { ino: of }
        | Op::RemoveOrphan { ino: of }
        | Op::NextInode { ino: of } => ino(of),
    }
}

pub(super) fn bad(op: &'static str, field: &'static str, value: u64, at: u64) -> FormatError {
    FormatError::BadOp {
        op,
        field,
        value,
        at,
    }
}
