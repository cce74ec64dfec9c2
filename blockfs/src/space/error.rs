//! What can go wrong with free space.

use super::Used;
use crate::format::geometry::BlockRange;
use crate::format::op::Ino;

/// An error of the free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// Two extents claim a block.
    #[error(
        "inode {} has {} blocks from {} and inode {} has {} blocks from {}: they overlap; run fsck",
        first.ino, first.blocks.blocks, first.blocks.start,
        second.ino, second.blocks.blocks, second.blocks.start
    )]
    Overlap {
        /// Who starts first.
        first: Used,
        /// Who starts inside.
        second: Used,
    },
    /// Blocks that no file can have.
    #[error(
        "{} blocks from {} (inode {ino:?}) are not inside the data area, {} blocks from {}",
        range.blocks, range.start, data.blocks, data.start
    )]
    OutOfRange {
        /// The blocks; none is an error too.
        range: BlockRange,
        /// Where they would have to be.
        data: BlockRange,
        /// Whose, if it is known.
        ino: Option<Ino>,
    },
    /// Blocks are to be freed that nobody has.
    #[error(
        "{} blocks from {} are to be freed, but {} blocks from {} are not in use",
        range.blocks, range.start, found.blocks, found.start
    )]
    NotInUse {
        /// What was to be freed.
        range: BlockRange,
        /// What is free already, in limbo, or twice in the list.
        found: BlockRange,
    },
    /// A token of another volume.
    #[error("the token does not belong to this volume")]
    UnknownToken,
    /// Not enough is free.
    #[error("no space: {least} blocks are needed, {available} are available; delete something")]
    NoSpace {
        /// Blocks that are needed at least.
        least: u64,
        /// Blocks that there are.
        available: u64,
    },
    /// Enough is free, but not in one piece.
    #[error("no space in one piece: {least} blocks are needed, the longest free run has {longest}")]
    Fragmented {
        /// Blocks that are needed at least.
        least: u64,
        /// Blocks of the longest run.
        longest: u64,
    },
    /// A data area cannot become smaller.
    #[error("the data area would shrink from {} to {} blocks", from.blocks, to.blocks)]
    Shrinks {
        /// What it is.
        from: BlockRange,
        /// What it was to be.
        to: BlockRange,
    },
    /// Groups of no blocks.
    #[error("an allocation group has one block at least")]
    Options,
}
