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

/// Where what has no name goes.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl<D: BlockDevice<MetaTag>, S: IoStat> Blockfs<D, S> {
    /// Everything that the volume has, each directory once, whatever contradicts itself. Files that were
    /// removed and not freed yet are left out. Directories come before what is in them.
    #[must_use]
    pub fn salvaged(&self) -> Vec<Salvaged> {
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
    found: Vec<Salvaged>,
}

impl<'t> Walk<'t> {
    fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            seen: BTreeSet::new(),
            found: Vec::new(),
        }
    }

    fn all(mut self) -> Vec<Salvaged> {
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
        self.found
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
        // No name leads to an inode that is not there: such a checkpoint is not loaded.
        if let Ok(stat) = self.tree.stat(ino) {
            let target = self.tree.readlink(ino).ok().map(<[u8]>::to_vec);
            self.found.push(Salvaged { path, stat, target });
        }
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        [] => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::op::{Dirent, NewInode, Op};
    use crate::tree::{Limits, plan_format};

    /// A tree of inodes (number, kind) and names (directory, name, where it leads), with no regard to
    /// what fits together.
    fn tree(inodes: &[(Ino, Kind)], names: &[(Ino, &str, Ino)]) -> Tree {
        let mut tree = Tree::new(Limits::new(1 << 20, 1 << 20));
        for op in plan_format(0o755, 0, 0, 0).ops {
            tree.load(&op).expect("a root");
        }
        let Some(&Op::CreateInode(root)) = plan_format(0o755, 0, 0, 0).ops.first() else {
            panic!("no root");
        };
        for &(ino, kind) in inodes {
            let new = NewInode { ino, kind, ..root };
            tree.load(&Op::CreateInode(new)).expect("an inode");
        }
        let kind = |ino| inodes.iter().find(|(one, _)| *one == ino).expect("known").1;
        for &(dir, name, ino) in names {
            let dirent = Dirent {
                dir,
                name: name.as_bytes(),
                ino,
                kind: kind(ino),
            };
            tree.load(&Op::AddDirent(dirent)).expect("a name");
        }
        tree
    }

    fn paths(tree: &Tree) -> Vec<String> {
        let found = Walk::new(tree).all();
        let text = |found: Salvaged| String::from_utf8(found.path).expect("text");
        let mut paths: Vec<String> = found.into_iter().map(text).collect();
        paths.sort_unstable();
        paths
    }

    const D: Kind = Kind::Directory;
    const F: Kind = Kind::File;

    /// In a sound tree everything is found under its name, a file under each that it has.
    #[test]
    fn all_names_are_found() {
        let tree = tree(
            &[(2, D), (3, F), (4, F)],
            &[(1, "dir", 2), (2, "a", 3), (1, "a", 3), (2, "b", 4)],
        );
        assert_eq!(paths(&tree), ["a", "dir", "dir/a", "dir/b"]);
    }

    /// What has no name is found in `lost+found`, and what is in it under its name there.
    #[test]
    fn what_has_no_name_is_found() {
        let tree = tree(
            &[(2, D), (3, D), (4, F), (5, F)],
            &[(2, "sub", 3), (3, "a", 4)],
        );
        let expected = [
            "lost+found/2",
            "lost+found/2/sub",
            "lost+found/2/sub/a",
            "lost+found/5",
        ];
        assert_eq!(paths(&tree), expected);
    }

    /// Circles end, and a directory with two names is listed once.
    #[test]
    fn circles_end() {
        let circle = tree(
            &[(2, D), (3, D), (4, F)],
            &[(2, "b", 3), (3, "a", 2), (3, "f", 4)],
        );
        assert_eq!(
            paths(&circle),
            ["lost+found/2", "lost+found/2/b", "lost+found/2/b/f"]
        );
        let twice = tree(&[(2, D), (3, F)], &[(1, "a", 2), (1, "b", 2), (2, "f", 3)]);
        assert_eq!(paths(&twice), ["a", "a/f"]);
        let itself = tree(&[(2, D)], &[(1, "a", 2), (2, "again", 2)]);
        assert_eq!(paths(&itself), ["a"]);
    }

    /// What was removed and not freed yet is left out.
    #[test]
    fn removed_files_are_left_out() {
        let mut tree = tree(&[(2, F), (3, F)], &[(1, "a", 3)]);
        tree.load(&Op::AddOrphan { ino: 2 }).expect("an orphan");
        assert_eq!(paths(&tree), ["a"]);
    }
}
