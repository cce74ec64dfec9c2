//! All that a volume still has: what names lead to, and what has lost its name.

use crate::device::BlockDevice;
use crate::format::op::{Ino, Kind, ROOT_INO};
use crate::fs::{Blockfs, File, FsError, OpenOptions};
use crate::iostat::IoStat;
use crate::journal::MetaTag;
use crate::tree::{PosixError, Stat, Tree};
use std::collections::BTreeSet;

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// Its path, without a leading `/`. What has no name is in `lost+found`, named after its inode.
    pub path: Vec<u8>,
    /// Its attributes.
    pub stat: Stat,
    /// Where a symbolic link leads.
    pub target: Option<Vec<u8>>,
}

/// A name that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its path.
    pub path: Vec<u8>,
    /// The inode that is not there.
    pub ino: Ino,
}

/// What is left of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wreck {
    /// What is there; directories before what is in them.
    pub found: Vec<Salvaged>,
    /// Names that lead nowhere.
    pub lost: Vec<Lost>,
}

/// Where what has no name goes.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl<D: BlockDevice<MetaTag>, S: IoStat> Blockfs<D, S> {
    /// Everything that the volume has, each directory once, whatever contradicts itself. Files that were
    /// removed and not freed yet are left out.
    #[must_use]
    pub fn wreck(&self) -> Wreck {
        Walk::new(&self.shared.lock().tree).all()
    }

    /// Opens something that was found, to read it.
    ///
    /// # Errors
    /// [`FsError::Posix`] if it is no file, or not there any more.
    pub fn open_salvaged(&self, found: &Salvaged) -> Result<File, FsError> {
        let mut core = self.shared.lock();
        match core.tree.stat(found.stat.ino)?.kind {
            Kind::File => {}
            Kind::Directory => return Err(PosixError::IsDirectory.into()),
            Kind::Symlink => return Err(PosixError::Loop.into()),
        }
        let options = OpenOptions::new().read(true);
        Ok(self.handle(&mut core, found.stat.ino, options))
    }
}

struct Walk<'t> {
    tree: &'t Tree,
    seen: BTreeSet<Ino>,
    wreck: Wreck,
}

impl<'t> Walk<'t> {
    fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            seen: BTreeSet::new(),
            wreck: Wreck::default(),
        }
    }

    fn all(mut self) -> Wreck {
        if self.seen.insert(ROOT_INO) {
            self.below(Vec::new(), ROOT_INO);
        }
        let removed: BTreeSet<Ino> = self.tree.orphans().collect();
        let left = |walk: &Self| -> Vec<Ino> {
            let all = walk.tree.inodes().filter(|ino| !removed.contains(ino));
            all.filter(|ino| !walk.seen.contains(ino)).collect()
        };
        // First what no name leads to at all, so that what is in such directories keeps its name.
        let named: BTreeSet<Ino> = left(&self)
            .into_iter()
            .filter_map(|dir| self.tree.readdir(dir, 0).ok())
            .flat_map(|entries| entries.map(|entry| entry.ino))
            .collect();
        for ino in left(&self) {
            if !named.contains(&ino) {
                self.nameless(ino);
            }
        }
        // Then what is in circles.
        for ino in left(&self) {
            self.nameless(ino);
        }
        self.wreck
    }

    fn nameless(&mut self, ino: Ino) {
        if self.seen.contains(&ino) {
            return;
        }
        let path = join(LOST_AND_FOUND, ino.to_string().as_bytes());
        self.one(path.clone(), ino);
        if self.seen.insert(ino) {
            self.below(path, ino);
        }
    }

    /// Everything in the directory `dir`, if it is one.
    fn below(&mut self, path: Vec<u8>, dir: Ino) {
        let mut left = vec![(path, dir)];
        while let Some((path, dir)) = left.pop() {
            let Ok(entries) = self.tree.readdir(dir, 0) else {
                continue;
            };
            for entry in entries {
                let path = join(&path, entry.name);
                let is_directory = self
                    .tree
                    .stat(entry.ino)
                    .is_ok_and(|stat| stat.kind == Kind::Directory);
                let first = self.seen.insert(entry.ino);
                // A file may have several names, a directory has one place.
                if is_directory && !first {
                    continue;
                }
                self.one(path.clone(), entry.ino);
                if is_directory {
                    left.push((path, entry.ino));
                }
            }
        }
    }

    fn one(&mut self, path: Vec<u8>, ino: Ino) {
        match self.tree.stat(ino) {
            Ok(stat) => {
                let target = self.tree.readlink(ino).ok();
                let target = target.map(<[u8]>::to_vec);
                self.wreck.found.push(Salvaged { path, stat, target });
            }
            Err(_) => self.wreck.lost.push(Lost { path, ino }),
        }
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        [] => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}
