//! What is in memory of an inode and of a directory.

use super::extents::ExtentMap;
use crate::format::op::{Ino, Kind, NewInode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Extended attributes by name.
pub(super) type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// What an inode is and what it has by being that.
#[derive(Debug)]
pub(super) enum Body {
    File(ExtentMap),
    Directory(Directory),
    /// Where it leads; empty until it is set.
    Symlink(Box<[u8]>),
}

#[derive(Debug)]
pub(super) struct Inode {
    /// As it was created, and changed since: what a checkpoint keeps.
    pub(super) core: NewInode,
    pub(super) body: Body,
    /// Absent for most.
    pub(super) xattrs: Option<Box<Xattrs>>,
    /// Directory entries that lead here, counted.
    pub(super) names: u32,
    /// The directories of those entries, in one exclusive-or: with one name left it is the parent.
    pub(super) parents: Ino,
}

impl Inode {
    pub(super) fn new(core: NewInode) -> Self {
        Self {
            core,
            body: match core.kind {
                Kind::File => Body::File(ExtentMap::default()),
                Kind::Directory => Body::Directory(Directory::default()),
                Kind::Symlink => Body::Symlink(Box::default()),
            },
            xattrs: None,
            names: 0,
            parents: 0,
        }
    }

    /// A copy with the names in it left out; extents are shared.
    pub(super) fn without_names(&self) -> Self {
        Self {
            core: self.core,
            body: match &self.body {
                Body::File(extents) => Body::File(extents.clone()),
                Body::Directory(_) => Body::Directory(Directory::default()),
                Body::Symlink(target) => Body::Symlink(target.clone()),
            },
            xattrs: self.xattrs.clone(),
            names: self.names,
            parents: self.parents,
        }
    }

    pub(super) const fn directory(&self) -> Option<&Directory> {
        match &self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(super) const fn file(&self) -> Option<&ExtentMap> {
        match &self.body {
            Body::File(extents) => Some(extents),
            _ => None,
        }
    }

    /// Its extended attributes, in order.
    pub(super) fn xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let xattrs = self.xattrs.as_deref().into_iter().flatten();
        xattrs.map(|(name, value)| (&**name, &**value))
    }
}

/// Where a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ino: Ino,
    pub(super) kind: Kind,
    pub(super) cookie: u64,
}

/// Cookies 1 and 2 are left for "." and "..", for those who show them.
const FIRST_COOKIE: u64 = 3;

/// Names, and the order in which they are listed.
#[derive(Debug)]
pub(super) struct Directory {
    names: BTreeMap<Arc<[u8]>, Entry>,
    /// Entries by age: who lists and who removes at the same time do not disturb each other.
    order: BTreeMap<u64, Arc<[u8]>>,
    next_cookie: u64,
    /// Directories among the entries.
    pub(super) subdirs: u32,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            subdirs: 0,
        }
    }
}

impl Directory {
    pub(super) fn get(&self, name: &[u8]) -> Option<Entry> {
        self.names.get(name).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The cookie of the entry that is added next.
    pub(super) const fn next_cookie(&self) -> u64 {
        self.next_cookie
    }

    /// A name that is not there yet, as the youngest.
    pub(super) fn add(&mut self, name: &[u8], ino: Ino, kind: Kind) {
        let cookie = self.next_cookie;
        self.next_cookie = cookie.saturating_add(1);
        self.put(name, Entry { ino, kind, cookie });
    }

    /// An entry at its place in the order: one that was there before, or leads elsewhere now.
    pub(super) fn put(&mut self, name: &[u8], entry: Entry) {
        let name: Arc<[u8]> = Arc::from(name);
        self.order.insert(entry.cookie, Arc::clone(&name));
        self.names.insert(name, entry);
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.names.remove(name) {
            self.order.remove(&entry.cookie);
        }
    }

    /// The entries by name.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        self.names.iter().map(|(name, &entry)| (&**name, entry))
    }

    /// The entries that were added after the one with `cookie`, the oldest first.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], Entry)> {
        let from = cookie.saturating_add(1);
        self.order
            .range(from..)
            .filter_map(|(_, name)| Some((&**name, self.get(name)?)))
    }
}
