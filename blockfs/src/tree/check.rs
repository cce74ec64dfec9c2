//! The structural rules of fsck, over the state in memory.

use super::apply::links;
use super::extents::{ExtentMap, end};
use super::inode::{Body, Inode};
use super::{Totals, Tree, cost};
use crate::format::BLOCK_BYTES;
use crate::format::geometry::BlockRange;
use crate::format::op::{Ino, ROOT_INO};
use crate::space::{Space, Used};
use std::collections::BTreeSet;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong, but somebody may want to know.
    Warning,
    /// Something is wrong; the rest can be read.
    Error,
    /// Nothing can be found.
    Fatal,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// The root directory is missing.
    #[error("there is no root directory")]
    NoRoot,
    /// A link count that is not the number of names.
    #[error("inode {ino} says that its link count is {nlink}, but it is {counted}")]
    LinkCount {
        /// Which.
        ino: Ino,
        /// What it says.
        nlink: u32,
        /// What there is.
        counted: u64,
    },
    /// An inode that no name leads to, and that is no orphan.
    #[error("inode {ino} has no name")]
    Lost {
        /// Which.
        ino: Ino,
    },
    /// An orphan that has a name.
    #[error("inode {ino} is an orphan, but has a name")]
    NamedOrphan {
        /// Which.
        ino: Ino,
    },
    /// An orphan, as a power cut leaves it; the next mount for writing frees it.
    #[error("inode {ino} has no name and waits to be freed")]
    Orphan {
        /// Which.
        ino: Ino,
    },
    /// A directory that cannot be reached from the root, or in two ways.
    #[error("directory {ino} is not in the tree in exactly one place")]
    NotATree {
        /// Which.
        ino: Ino,
    },
    /// A symbolic link without a target, or of another size than it.
    #[error("symbolic link {ino} has a size of {size}, but a target of {target}")]
    Target {
        /// Which.
        ino: Ino,
        /// Its size in bytes.
        size: u64,
        /// Its target's.
        target: u64,
    },
    /// Written blocks behind the end of the file.
    #[error("inode {ino} has written blocks from {lblk} on, behind its end at {size} bytes")]
    BehindTheEnd {
        /// Which.
        ino: Ino,
        /// The first such block.
        lblk: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// Blocks that no file can have.
    #[error(
        "inode {} has {} blocks from {}, not inside the data area",
        used.ino, used.blocks.blocks, used.blocks.start
    )]
    OutOfRange {
        /// Which, and whose.
        used: Used,
    },
    /// Blocks that two extents have.
    #[error(
        "inode {} has {} blocks from {} and inode {} has {} blocks from {}: they overlap",
        first.ino, first.blocks.blocks, first.blocks.start,
        second.ino, second.blocks.blocks, second.blocks.start
    )]
    Overlap {
        /// Who starts first.
        first: Used,
        /// Who starts inside.
        second: Used,
    },
    /// Blocks in use that count as free.
    #[error(
        "{} blocks from {} are free or in limbo, but inode {} has them",
        used.blocks.blocks, used.blocks.start, used.ino
    )]
    UsedAndFree {
        /// Which, and whose.
        used: Used,
    },
    /// Blocks that nobody has and that are not free either.
    #[error("{counted} blocks count as used, but files have {used}")]
    Leak {
        /// What the free space leaves.
        counted: u64,
        /// What files have.
        used: u64,
    },
    /// A total that is not the sum: a defect of this program.
    #[error("the totals say {said:?}, but it is {counted:?}")]
    Totals {
        /// What was kept.
        said: Totals,
        /// What there is.
        counted: Totals,
    },
}

impl Finding {
    /// A stable name for scripts.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoRoot => "no-root",
            Self::LinkCount { .. } => "link-count",
            Self::Lost { .. } => "lost",
            Self::NamedOrphan { .. } => "named-orphan",
            Self::Orphan { .. } => "orphan",
            Self::NotATree { .. } => "not-a-tree",
            Self::Target { .. } => "target",
            Self::BehindTheEnd { .. } => "behind-the-end",
            Self::OutOfRange { .. } => "out-of-range",
            Self::Overlap { .. } => "overlap",
            Self::UsedAndFree { .. } => "used-and-free",
            Self::Leak { .. } => "leak",
            Self::Totals { .. } => "totals",
        }
    }

    /// How bad it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::NoRoot => Severity::Fatal,
            Self::Orphan { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl Tree {
    /// Everything that must hold between records, but for the blocks; after [`Tree::load`] has
    /// taken a whole checkpoint, this is what says that it is sound. Takes time by the size of the
    /// metadata.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.dir(ROOT_INO).is_err() {
            found.push(Finding::NoRoot);
        }
        let reached = self.reached();
        for (&ino, inode) in &self.inodes {
            self.check_inode(ino, inode, &reached, &mut found);
        }
        let counted = self.counted();
        if counted != self.totals {
            let said = self.totals;
            found.push(Finding::Totals { said, counted });
        }
        found
    }

    /// The blocks: each inside `data`, none twice; with `space`, none free, and none lost.
    #[must_use]
    pub fn check_blocks(&self, data: BlockRange, space: Option<&Space>) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut all: Vec<Used> = self.used().collect();
        all.sort_unstable_by_key(|used| used.blocks.start);
        // Who has the highest end so far: a long extent can lie over several.
        let mut highest: Option<Used> = None;
        for &used in &all {
            if !data.contains(used.blocks) {
                found.push(Finding::OutOfRange { used });
            }
            if let Some(first) = highest.filter(|first| first.blocks.overlaps(used.blocks)) {
                let second = used;
                found.push(Finding::Overlap { first, second });
            }
            if highest.is_none_or(|first| first.blocks.end() < used.blocks.end()) {
                highest = Some(used);
            }
            if space.is_some_and(|space| space.not_in_use(used.blocks).is_some()) {
                found.push(Finding::UsedAndFree { used });
            }
        }
        if let Some(space) = space {
            let counted = space.stats().used;
            let used = self.totals.blocks;
            if counted != used {
                found.push(Finding::Leak { counted, used });
            }
        }
        found
    }

    /// The directories that are under the root.
    fn reached(&self) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::from([ROOT_INO]);
        let mut left = vec![ROOT_INO];
        while let Some(dir) = left.pop() {
            let entries = self.dir(dir).ok().into_iter().flat_map(|d| d.by_name());
            for (_, entry) in entries {
                if self.dir(entry.ino).is_ok() && reached.insert(entry.ino) {
                    left.push(entry.ino);
                }
            }
        }
        reached
    }

    fn check_inode(
        &self,
        ino: Ino,
        inode: &Inode,
        reached: &BTreeSet<Ino>,
        found: &mut Vec<Finding>,
    ) {
        let nlink = inode.core.nlink;
        let counted = links(ino, inode);
        if u64::from(nlink) != counted {
            found.push(Finding::LinkCount {
                ino,
                nlink,
                counted,
            });
        }
        let named = inode.names > 0 || ino == ROOT_INO;
        match (self.orphans.contains(&ino), named) {
            (true, true) => found.push(Finding::NamedOrphan { ino }),
            (true, false) => found.push(Finding::Orphan { ino }),
            (false, false) => found.push(Finding::Lost { ino }),
            (false, true) => {}
        }
        match &inode.body {
            Body::Directory(directory) => {
                let once = inode.names == u32::from(ino != ROOT_INO) && reached.contains(&ino);
                let gone = inode.names == 0 && directory.is_empty();
                if !once && !gone {
                    found.push(Finding::NotATree { ino });
                }
            }
            Body::Symlink(target) => {
                let (size, target) = (inode.core.size, target.len() as u64);
                if size != target || target == 0 {
                    found.push(Finding::Target { ino, size, target });
                }
            }
            Body::File(extents) => {
                let size = inode.core.size;
                if let Some(lblk) = written_behind(extents, size) {
                    found.push(Finding::BehindTheEnd { ino, lblk, size });
                }
            }
        }
    }

    fn counted(&self) -> Totals {
        let mut counted = Totals {
            inodes: self.inodes.len() as u64,
            metadata_bytes: cost::NEXT_INODE
                + cost::label(&self.label)
                + self.orphans.len() as u64 * cost::ORPHAN,
            ..Totals::default()
        };
        for inode in self.inodes.values() {
            counted.metadata_bytes += cost::inode(inode);
            if let Some(extents) = inode.file() {
                counted.extents += extents.count();
                counted.blocks += extents.blocks();
            }
            let names = inode.directory().into_iter().flat_map(|d| d.by_name());
            for (name, _) in names {
                counted.dirents += 1;
                counted.metadata_bytes += cost::dirent(name);
            }
        }
        counted
    }
}

/// The first written block behind the end.
fn written_behind(extents: &ExtentMap, size: u64) -> Option<u64> {
    let first = size.div_ceil(BLOCK_BYTES);
    let mut written = extents.from(first).filter(|extent| !extent.unwritten);
    let extent = written.next().filter(|extent| end(extent) > first)?;
    Some(first.max(extent.lblk.into()))
}
