//! Open files: what a handle is, and the table of what is open.

use super::core::VolumeId;
use crate::format::op::Ino;
use crate::grace::{Periods, Published};
use crate::journal::Txid;
use crate::tree::FileMap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a file is opened.
///
/// # Examples
///
/// ```
/// use blockfs::fs::OpenOptions;
///
/// let log = OpenOptions::new().write(true).append(true).create(0o644);
/// let table = OpenOptions::new().read(true);
/// assert_ne!(log, table);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: Option<u16>,
    pub(crate) exclusive: bool,
    pub(crate) direct: bool,
    pub(crate) no_follow: bool,
    pub(crate) owner: (u32, u32),
}

impl OpenOptions {
    /// Nothing is allowed yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: None,
            exclusive: false,
            direct: false,
            no_follow: false,
            owner: (0, 0),
        }
    }

    /// Whether it may be read.
    #[must_use]
    pub const fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Whether it may be written.
    #[must_use]
    pub const fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Whether every write goes to the end.
    #[must_use]
    pub const fn append(mut self, append: bool) -> Self {
        self.append = append;
        self.write |= append;
        self
    }

    /// Whether what is in it goes.
    #[must_use]
    pub const fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// It is created with these permission bits if it is not there.
    #[must_use]
    pub const fn create(mut self, mode: u16) -> Self {
        self.create = Some(mode);
        self
    }

    /// It must not be there, and is created.
    #[must_use]
    pub const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Whether reads and writes that are not whole logical blocks are refused, instead of going
    /// through a buffer.
    #[must_use]
    pub const fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Whether a symbolic link at the end of the path is refused (ELOOP).
    #[must_use]
    pub const fn no_follow(mut self, no_follow: bool) -> Self {
        self.no_follow = no_follow;
        self
    }

    /// Whose a created file is.
    #[must_use]
    pub const fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }
}

/// An open file. Clones are the same open file; it is closed with the last of them.
///
/// A file without names stays as long as it is open.
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) inode: Arc<OpenInode>,
    /// The volume, or none: so one compare says whether a queue may read it.
    pub(crate) readable_on: VolumeId,
    /// The same of writing.
    pub(crate) writable_on: VolumeId,
    pub(crate) append: bool,
    pub(crate) direct: bool,
}

impl File {
    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }
}

/// What handles of one inode share.
#[derive(Debug)]
pub(crate) struct OpenInode {
    pub(crate) volume: VolumeId,
    pub(crate) ino: Ino,
    /// Where its contents are, as of the last change; of directories and links it is empty.
    pub(crate) map: Published<FileMap>,
    /// The record of the last change of that map.
    pub(crate) map_txid: AtomicU64,
}

/// An inode in the table.
#[derive(Debug)]
struct Entry {
    inode: Arc<OpenInode>,
    /// Operations that keep writers off the hot path.
    slow: u32,
    appends: Appends,
}

/// Appends on their way: each has its place from the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Appends {
    under_way: u32,
    end: u64,
}

/// The inodes that are open, and a few that were.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    table: HashMap<Ino, Entry>,
    /// When to look for closed ones again.
    sweep_at: usize,
}

/// The table is swept when it has twice as many inodes as were left by the last sweep, and this many.
const SWEEP: usize = 64;

impl OpenFiles {
    /// Opens an inode; `map` is asked for if it is not open.
    pub(crate) fn open(
        &mut self,
        volume: VolumeId,
        ino: Ino,
        map: impl FnOnce() -> FileMap,
        txid: Txid,
    ) -> Arc<OpenInode> {
        if self.table.len() >= self.sweep_at.max(SWEEP) {
            self.table.retain(|_, entry| in_use(entry));
            self.sweep_at = self.table.len() * 2;
        }
        let entry = self.table.entry(ino).or_insert_with(|| Entry {
            inode: Arc::new(OpenInode {
                volume,
                ino,
                map: Published::new(map()),
                map_txid: AtomicU64::new(txid.0),
            }),
            slow: 0,
            appends: Appends::default(),
        });
        Arc::clone(&entry.inode)
    }

    /// Whether somebody has it open. Only who has a handle can make another, so it stays closed
    /// until it is opened again.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.table.get(&ino).is_some_and(in_use)
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.table.values().filter(|entry| in_use(entry)).count()
    }

    /// The inode is gone.
    pub(crate) fn forget(&mut self, ino: Ino) {
        self.table.remove(&ino);
    }

    /// The inode was changed by the record `txid`.
    pub(crate) fn publish(
        &mut self,
        ino: Ino,
        map: Option<FileMap>,
        txid: Txid,
        periods: &mut Periods,
    ) {
        let Some(entry) = self.table.get_mut(&ino) else {
            return;
        };
        let map = map.unwrap_or_default().with_slow_writes(entry.slow > 0);
        periods.retire(entry.inode.map.replace(map));
        entry.inode.map_txid.store(txid.0, Ordering::Release);
    }

    /// Keeps writers of a file off the hot path, or lets them on it again. Between the two calls all
    /// writes take the locked path.
    pub(crate) fn slow(&mut self, ino: Ino, slow: bool, map: FileMap, periods: &mut Periods) {
        if let Some(entry) = self.table.get_mut(&ino) {
            entry.slow = match slow {
                true => entry.slow.saturating_add(1),
                false => entry.slow.saturating_sub(1),
            };
            let map = map.with_slow_writes(entry.slow > 0);
            periods.retire(entry.inode.map.replace(map));
        }
    }

    /// The place of an append of `len` bytes to a file of `size`.
    pub(crate) fn begin_append(&mut self, ino: Ino, size: u64, len: u64) -> u64 {
        let Some(entry) = self.table.get_mut(&ino) else {
            return size;
        };
        let appends = &mut entry.appends;
        if appends.under_way == 0 {
            appends.end = size;
        }
        let at = appends.end.max(size);
        appends.under_way += 1;
        appends.end = at.saturating_add(len);
        at
    }

    /// An append has ended; one that failed and was the last gives its place back.
    pub(crate) fn end_append(&mut self, ino: Ino, (at, len): (u64, u64), ok: bool) {
        if let Some(entry) = self.table.get_mut(&ino) {
            let appends = &mut entry.appends;
            appends.under_way = appends.under_way.saturating_sub(1);
            if !ok && appends.end == at.saturating_add(len) {
                appends.end = at;
            }
        }
    }
}

fn in_use(entry: &Entry) -> bool {
    Arc::strong_count(&entry.inode) > 1
}
