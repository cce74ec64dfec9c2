//! The state of one moment, handed out in steps while records go on: what a checkpoint writes.
//!
//! Nothing is copied at the start. An operation that changes what has not been handed out yet keeps
//! it first, as it was: an inode without its names (its extents are shared), a directory entry, an
//! orphan. What is newer than the moment is passed over: inodes by their number, entries by their
//! cookie. What is kept is right whatever becomes of the record that it was kept for, so that a
//! record that is undone needs nothing here.

use super::cost;
use super::inode::{Entry, Inode};
use super::snapshot::node;
use super::{Tree, extents};
use crate::format::op::{Dirent, Ino, Op};
use std::collections::BTreeMap;

/// Work for an inode that is passed over, in bytes of operations.
const PASSED: u64 = 8;

type Named = (Box<[u8]>, Entry);

/// Where it is. The stages come in this order.
#[derive(Debug)]
enum Stage {
    /// Inodes from `next` on, after the rest of a file's extents.
    Nodes {
        next: Ino,
        file: Option<(Ino, extents::ExtentMap, u64)>,
    },
    /// The entries of `dir` with cookies after `after`, and of the directories behind it.
    Names { dir: Ino, after: u64 },
    /// Orphans from `next` on.
    Orphans { next: Ino },
    /// The label and the next inode number.
    Rest,
    /// Nothing is left.
    Done,
}

/// A state that is being handed out.
#[derive(Debug)]
pub(super) struct Frozen {
    stage: Stage,
    /// The next inode number then: from there on inodes are newer.
    limit: Ino,
    label: Box<[u8]>,
    /// Inodes as they were.
    nodes: BTreeMap<Ino, Inode>,
    /// The cookie from which on a directory's entries are newer, where there are any.
    newer: BTreeMap<Ino, u64>,
    /// Entries as they were, by directory and cookie.
    entries: BTreeMap<(Ino, u64), Named>,
    /// Whether these were orphans.
    orphans: BTreeMap<Ino, bool>,
}

impl Tree {
    /// Takes the state as it is now, to be handed out by [`Tree::continue_snapshot`] whatever is
    /// applied in between. An earlier one that is not finished is forgotten.
    pub fn begin_snapshot(&mut self) {
        self.frozen = Some(Box::new(Frozen {
            stage: Stage::Nodes {
                next: 0,
                file: None,
            },
            limit: self.next_ino,
            label: self.label.clone(),
            nodes: BTreeMap::new(),
            newer: BTreeMap::new(),
            entries: BTreeMap::new(),
            orphans: BTreeMap::new(),
        }));
    }

    /// Hands out the next operations of that state, about `budget_bytes` of them; whether these were
    /// the last. They are those of [`Tree::snapshot`], in the same order.
    ///
    /// # Errors
    /// What `each` returns. Operations may come a second time after that: begin anew.
    pub fn continue_snapshot<E>(
        &mut self,
        budget_bytes: usize,
        mut each: impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Some(mut frozen) = self.frozen.take() else {
            return Ok(true);
        };
        let mut left = budget_bytes as u64;
        let mut result = Ok(());
        while left > 0 && result.is_ok() && !matches!(frozen.stage, Stage::Done) {
            result = frozen.advance(self, &mut left, &mut each);
        }
        let all = matches!(frozen.stage, Stage::Done);
        self.frozen = Some(frozen).filter(|_| !all);
        result.map(|()| all)
    }

    /// Before an inode changes, its names and those in it aside.
    pub(super) fn keep_node(&mut self, ino: Ino) {
        let Some(frozen) = &mut self.frozen else {
            return;
        };
        if let Stage::Nodes { next, .. } = frozen.stage
            && (next..frozen.limit).contains(&ino)
            && let Some(inode) = self.inodes.get(&ino)
        {
            let kept = frozen.nodes.entry(ino);
            kept.or_insert_with(|| inode.without_names());
        }
    }

    /// Before `dir` gets a new entry.
    pub(super) fn keep_end(&mut self, dir: Ino) {
        let directory = self.inodes.get(&dir).and_then(|inode| inode.directory());
        if let (Some(frozen), Some(directory)) = (&mut self.frozen, directory)
            && dir < frozen.limit
        {
            let newer = frozen.newer.entry(dir);
            newer.or_insert_with(|| directory.next_cookie());
        }
    }

    /// Before an entry goes or leads elsewhere.
    pub(super) fn keep_entry(&mut self, dir: Ino, name: &[u8], entry: Entry) {
        let Some(frozen) = &mut self.frozen else {
            return;
        };
        let key = (dir, entry.cookie);
        let ahead = match frozen.stage {
            Stage::Nodes { .. } => true,
            Stage::Names { dir, after } => key > (dir, after),
            _ => false,
        };
        if ahead && dir < frozen.limit && frozen.is_old(dir, entry.cookie) {
            let kept = frozen.entries.entry(key);
            kept.or_insert_with(|| (name.into(), entry));
        }
    }

    /// Before an inode becomes an orphan or ceases to be one.
    pub(super) fn keep_orphan(&mut self, ino: Ino) {
        let Some(frozen) = &mut self.frozen else {
            return;
        };
        let ahead = match frozen.stage {
            Stage::Nodes { .. } | Stage::Names { .. } => true,
            Stage::Orphans { next } => ino >= next,
            Stage::Rest | Stage::Done => false,
        };
        if ahead && ino < frozen.limit {
            let was = self.orphans.contains(&ino);
            frozen.orphans.entry(ino).or_insert(was);
        }
    }
}

impl Frozen {
    fn is_old(&self, dir: Ino, cookie: u64) -> bool {
        self.newer.get(&dir).is_none_or(|&newer| cookie < newer)
    }

    /// Hands out something of the stage, or goes to the next one.
    fn advance<E>(
        &mut self,
        tree: &Tree,
        left: &mut u64,
        each: &mut impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match &mut self.stage {
            Stage::Nodes { file: Some(_), .. } => self.extents(left, each),
            Stage::Nodes { .. } => self.inode(tree, left, each),
            Stage::Names { .. } => self.names(tree, left, each),
            Stage::Orphans { .. } => self.orphan(tree, left, each),
            Stage::Rest => {
                each(&Op::SetLabel { label: &self.label })?;
                each(&Op::NextInode { ino: self.limit })?;
                self.stage = Stage::Done;
                Ok(())
            }
            Stage::Done => Ok(()),
        }
    }

    /// The next inode, without its extents.
    fn inode<E>(
        &mut self,
        tree: &Tree,
        left: &mut u64,
        each: &mut impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Stage::Nodes { next, .. } = self.stage else {
            return Ok(());
        };
        let live = tree.inodes.range(next..self.limit.max(next)).next();
        let kept = self.nodes.first_key_value();
        let (ino, inode) = match (live, kept) {
            (Some((&live, inode)), kept) if kept.is_none_or(|(&kept, _)| live < kept) => {
                (live, &**inode)
            }
            (_, Some((&ino, inode))) => (ino, inode),
            (_, None) => {
                self.stage = Stage::Names { dir: 0, after: 0 };
                return Ok(());
            }
        };
        for op in node(ino, inode) {
            each(&op)?;
        }
        spend(left, cost::node(inode));
        let extents = inode.file().filter(|file| file.count() > 0).cloned();
        self.nodes.remove(&ino);
        self.stage = Stage::Nodes {
            next: ino + 1,
            file: extents.map(|extents| (ino, extents, 0)),
        };
        Ok(())
    }

    /// The next extents of the file.
    fn extents<E>(
        &mut self,
        left: &mut u64,
        each: &mut impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Stage::Nodes { file, .. } = &mut self.stage else {
            return Ok(());
        };
        if let Some((ino, extents, lblk)) = file {
            for extent in extents.from(*lblk) {
                if *left == 0 {
                    return Ok(());
                }
                each(&Op::MapExtent { ino: *ino, extent })?;
                *lblk = extents::end(&extent);
                spend(left, cost::EXTENT);
            }
        }
        *file = None;
        Ok(())
    }

    /// The next entries of the directory.
    fn names<E>(
        &mut self,
        tree: &Tree,
        left: &mut u64,
        each: &mut impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Stage::Names { dir, after } = self.stage else {
            return Ok(());
        };
        let directory = tree.inodes.get(&dir).and_then(|inode| inode.directory());
        let live = directory.into_iter().flat_map(|d| d.after(after));
        let newer = self.newer.get(&dir).copied().unwrap_or(u64::MAX);
        let mut live = live
            .take_while(|(_, entry)| entry.cookie < newer)
            .peekable();
        while *left > 0 {
            let kept = self.entries.first_entry();
            let kept = kept.filter(|kept| kept.key().0 == dir);
            let next = live.peek().copied();
            let before = |(_, entry): &(&[u8], Entry)| {
                let kept = kept.as_ref().map(|kept| kept.key().1);
                kept.is_none_or(|kept| entry.cookie < kept)
            };
            let (name, entry) = match (next.filter(before), &kept) {
                (Some(live), _) => live,
                (None, Some(kept)) => (&*kept.get().0, kept.get().1),
                (None, None) => {
                    self.next_directory(tree, dir, left);
                    return Ok(());
                }
            };
            each(&Op::AddDirent(Dirent {
                dir,
                ino: entry.ino,
                kind: entry.kind,
                name,
            }))?;
            spend(left, cost::dirent(name));
            self.stage = Stage::Names {
                dir,
                after: entry.cookie,
            };
            live.next_if(|(_, live)| live.cookie == entry.cookie);
            if let Some(kept) = kept.filter(|kept| kept.key().1 == entry.cookie) {
                kept.remove();
            }
        }
        Ok(())
    }

    /// Goes on to the first directory after `dir`.
    fn next_directory(&mut self, tree: &Tree, dir: Ino, left: &mut u64) {
        let kept = self.entries.keys().next().map(|&(dir, _)| dir);
        let stop = kept.unwrap_or(self.limit).max(dir + 1);
        for (&ino, inode) in tree.inodes.range(dir + 1..stop) {
            spend(left, PASSED);
            if *left == 0 || inode.directory().is_some() {
                self.stage = Stage::Names { dir: ino, after: 0 };
                return;
            }
        }
        self.stage = match kept {
            Some(dir) => Stage::Names { dir, after: 0 },
            None => Stage::Orphans { next: 0 },
        };
    }

    /// The next orphan.
    fn orphan<E>(
        &mut self,
        tree: &Tree,
        left: &mut u64,
        each: &mut impl FnMut(&Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Stage::Orphans { next } = self.stage else {
            return Ok(());
        };
        let live = tree.orphans.range(next..self.limit.max(next)).next();
        let kept = self.orphans.first_key_value();
        let (ino, was) = match (live, kept) {
            (Some(&live), kept) if kept.is_none_or(|(&kept, _)| live < kept) => (live, true),
            (_, Some((&ino, &was))) => (ino, was),
            (_, None) => {
                self.stage = Stage::Rest;
                return Ok(());
            }
        };
        if was {
            each(&Op::AddOrphan { ino })?;
        }
        spend(left, cost::ORPHAN);
        self.orphans.remove(&ino);
        self.stage = Stage::Orphans { next: ino + 1 };
        Ok(())
    }
}

/// What is left of a budget.
fn spend(left: &mut u64, bytes: u64) {
    *left = left.saturating_sub(bytes);
}
