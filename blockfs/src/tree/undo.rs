//! What takes operations back, the last first. The totals are put back by whoever undoes.

use super::Tree;
use super::inode::{Body, Entry, Inode, Xattrs};
use crate::format::op::{Extent, Ino, NewInode};

/// What an operation changed, as it was before.
#[derive(Debug)]
pub(super) enum Undo {
    Created {
        ino: Ino,
        next: Ino,
    },
    Freed {
        ino: Ino,
        inode: Box<Inode>,
        orphan: bool,
    },
    Core(NewInode),
    Entry {
        dir: Ino,
        name: Box<[u8]>,
        old: Option<Entry>,
    },
    /// From the first block of the range to the one after it.
    Extents {
        ino: Ino,
        range: (u64, u64),
        old: Vec<Extent>,
    },
    /// It had none.
    Target {
        ino: Ino,
    },
    Xattr {
        ino: Ino,
        name: Box<[u8]>,
        old: Option<Box<[u8]>>,
    },
    Orphan {
        ino: Ino,
        orphan: bool,
    },
    Label(Box<[u8]>),
    Blocks(u64),
    NextIno(Ino),
}

impl Tree {
    pub(super) fn undo(&mut self, changes: Vec<Undo>) {
        for change in changes.into_iter().rev() {
            self.undo_one(change);
        }
    }

    fn undo_one(&mut self, change: Undo) {
        match change {
            Undo::Created { ino, next } => {
                self.inodes.remove(&ino);
                self.next_ino = next;
            }
            Undo::Freed { ino, inode, orphan } => {
                self.inodes.insert(ino, inode);
                if orphan {
                    self.orphans.insert(ino);
                }
            }
            Undo::Core(old) => {
                if let Ok(inode) = self.known(old.ino) {
                    inode.core = old;
                }
            }
            Undo::Entry { dir, name, old } => self.undo_entry(dir, &name, old),
            Undo::Extents { ino, range, old } => {
                if let Ok(Body::File(extents)) = self.known(ino).map(|inode| &mut inode.body) {
                    extents.unmap(range.0, range.1);
                    old.into_iter().for_each(|extent| extents.insert(extent));
                }
            }
            Undo::Target { ino } => {
                if let Ok(Body::Symlink(target)) = self.known(ino).map(|inode| &mut inode.body) {
                    *target = Box::default();
                }
            }
            Undo::Xattr { ino, name, old } => {
                if let Ok(inode) = self.known(ino) {
                    let xattrs: &mut Xattrs = inode.xattrs.get_or_insert_default();
                    match old {
                        Some(old) => xattrs.insert(name, old),
                        None => xattrs.remove(&name),
                    };
                    inode.xattrs.take_if(|xattrs| xattrs.is_empty());
                }
            }
            Undo::Orphan { ino, orphan: true } => {
                self.orphans.insert(ino);
            }
            Undo::Orphan { ino, orphan: false } => {
                self.orphans.remove(&ino);
            }
            Undo::Label(old) => self.label = old,
            Undo::Blocks(old) => self.limits.volume_blocks = old,
            Undo::NextIno(old) => self.next_ino = old,
        }
    }

    fn undo_entry(&mut self, dir: Ino, name: &[u8], old: Option<Entry>) {
        let Ok(Body::Directory(directory)) = self.known(dir).map(|inode| &mut inode.body) else {
            return;
        };
        let now = directory.get(name);
        match old {
            Some(old) => directory.put(name, old),
            None => directory.remove(name),
        }
        if let Some(now) = now {
            self.detach(dir, now);
        }
        if let Some(old) = old {
            self.attach(dir, old.ino, old.kind);
        }
    }
}
