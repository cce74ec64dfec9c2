//! What is copied, in which order: directories before what is in them, their attributes after it.

use super::side::{Node, Side, What};
use super::transfer::{Job, Transfer};
use crate::error::ToolError;
use crate::output;
use crate::volume::join;
use blockfs::fs::FsError;
use blockfs::tree::PosixError;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is left to be done.
enum Task {
    /// To copy something; whether it was named on the command line.
    Enter {
        from: Vec<u8>,
        to: Vec<u8>,
        named: bool,
    },
    /// To give a directory its attributes.
    Leave { to: Vec<u8>, node: Node },
}

/// A copy of some trees.
pub(super) struct Walk<'v> {
    from: Side<'v>,
    to: Side<'v>,
    recursive: bool,
    json: bool,
    pub(super) transfer: Transfer<'v>,
    interrupt: Arc<AtomicBool>,
    /// The copies of files that have several names.
    copies: HashMap<(u64, u64), Vec<u8>>,
    /// The directory that the copy is in, if it is made in a tree that it may be a part of.
    inside: Option<(u64, u64)>,
    pub(super) directories: u64,
    pub(super) links: u64,
    pub(super) failed: u64,
}

/// Whether nothing more can be done after this.
fn is_final(error: &ToolError) -> bool {
    match error {
        ToolError::Volume { source, .. } => matches!(
            source,
            FsError::NoSpace { .. }
                | FsError::Posix(PosixError::NoSpace)
                | FsError::Stopped(_)
                | FsError::TimedOut { .. }
                | FsError::ReadOnly
                | FsError::Memory(_)
        ),
        ToolError::Host { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
        ToolError::Memory(_) | ToolError::Silent { .. } | ToolError::Interrupted => true,
        _ => false,
    }
}

impl<'v> Walk<'v> {
    pub(super) fn new(
        (from, to): (Side<'v>, Side<'v>),
        transfer: Transfer<'v>,
        (recursive, json): (bool, bool),
        interrupt: Arc<AtomicBool>,
    ) -> Self {
        Self {
            from,
            to,
            recursive,
            json,
            transfer,
            interrupt,
            copies: HashMap::new(),
            inside: None,
            directories: 0,
            links: 0,
            failed: 0,
        }
    }

    /// Copies `from` to the name `to`.
    ///
    /// # Errors
    /// [`ToolError`]: no more can be copied. Other failures are told and counted.
    pub(super) fn copy(&mut self, from: Vec<u8>, to: Vec<u8>) -> Result<(), ToolError> {
        self.inside = None;
        let named = true;
        let mut left = vec![Task::Enter { from, to, named }];
        while let Some(task) = left.pop() {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(ToolError::Interrupted);
            }
            let done = match task {
                Task::Enter { from, to, named } => self.enter(from, to, named, &mut left),
                Task::Leave { to, node } => self.to.set_attrs(&to, &node),
            };
            self.judge(done)?;
            self.settle()?;
        }
        Ok(())
    }

    /// Waits for everything that is under way.
    ///
    /// # Errors
    /// As [`Walk::copy`].
    pub(super) fn end(&mut self) -> Result<(), ToolError> {
        let waited = self.transfer.wait(0);
        let settled = self.settle();
        self.transfer.progress.end();
        waited.and(settled)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.transfer.progress.seconds()
    }

    /// What has ended meanwhile.
    fn settle(&mut self) -> Result<(), ToolError> {
        let mut result = Ok(());
        for error in std::mem::take(&mut self.transfer.failures) {
            let judged = self.judge(Err(error));
            result = result.and(judged);
        }
        result
    }

    /// Tells and counts what is wrong with one file.
    fn judge(&mut self, done: Result<(), ToolError>) -> Result<(), ToolError> {
        match done {
            Ok(()) => Ok(()),
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                self.failed += 1;
                let json = self.json;
                self.transfer
                    .progress
                    .aside(|| output::tell("blockfs", json, &error));
                Ok(())
            }
        }
    }

    fn enter(
        &mut self,
        from: Vec<u8>,
        to: Vec<u8>,
        named: bool,
        left: &mut Vec<Task>,
    ) -> Result<(), ToolError> {
        // As cp does it: what is named is followed, unless trees are copied.
        let node = self.from.get(&from, !self.recursive)?;
        // What is in the place of the copy; a link that was found there is not followed.
        let there = self.to.find(&to, named)?;
        match node.what {
            What::Directory => self.directory(from, to, (node, there), left),
            What::Symlink => {
                self.make_room(&to, there)?;
                let target = self.from.read_link(&from)?;
                self.to.make_link(&target, &to)?;
                self.links += 1;
                self.to.set_attrs(&to, &node)
            }
            What::File => self.file(from, to, (node, there)),
            What::Other => Err(ToolError::Refused {
                place: self.from.place(&from),
                problem: "neither a file, a directory nor a symbolic link: left out",
            }),
        }
    }

    fn directory(
        &mut self,
        from: Vec<u8>,
        to: Vec<u8>,
        (node, there): (Node, Option<Node>),
        left: &mut Vec<Task>,
    ) -> Result<(), ToolError> {
        let refused = |side: Side<'_>, path: &[u8], problem| {
            let place = side.place(path);
            Err(ToolError::Refused { place, problem })
        };
        if !self.recursive {
            let problem = "is a directory: give -r to copy it with all that is in it";
            return refused(self.from, &from, problem);
        }
        if self.inside == Some(node.id) {
            return refused(self.from, &from, "a directory is not copied into itself");
        }
        match there {
            None => self.to.make_dir(&to)?,
            Some(there) if there.what == What::Directory => {}
            Some(_) => {
                let problem = "is in the place of a directory: remove it first";
                return refused(self.to, &to, problem);
            }
        }
        if self.same_side() && self.inside.is_none() {
            self.inside = Some(self.to.get(&to, false)?.id);
            if self.inside == Some(node.id) {
                return refused(self.from, &from, "both are the same directory");
            }
        }
        self.directories += 1;
        // Listed after the copy was made: that it is in there shows now.
        let names = self.from.list(&from)?;
        left.push(Task::Leave {
            to: to.clone(),
            node,
        });
        for name in names.iter().rev() {
            left.push(Task::Enter {
                from: join(&from, name),
                to: join(&to, name),
                named: false,
            });
        }
        Ok(())
    }

    fn file(
        &mut self,
        from: Vec<u8>,
        to: Vec<u8>,
        (node, there): (Node, Option<Node>),
    ) -> Result<(), ToolError> {
        if self.same_side() && there.is_some_and(|there| there.id == node.id) {
            let problem = "both are the same file";
            let place = self.to.place(&to);
            return Err(ToolError::Refused { place, problem });
        }
        if node.links > 1 {
            if let Some(first) = self.copies.get(&node.id) {
                let first = first.clone();
                self.make_room(&to, there)?;
                return self.to.hard_link(&first, &to);
            }
            self.copies.insert(node.id, to.clone());
        }
        if there.is_some_and(|there| there.what == What::Symlink) {
            self.to.remove(&to)?;
        }
        let source = self.from.open(&from)?;
        let target = self.to.create(&to, &node)?;
        self.transfer.copy(Job {
            source,
            target,
            from,
            to,
            node,
        })
    }

    /// Takes away what is in the place of a link.
    fn make_room(&self, to: &[u8], there: Option<Node>) -> Result<(), ToolError> {
        match there {
            None => match self.to.find(to, false)? {
                // A link that leads nowhere.
                Some(_) => self.to.remove(to),
                None => Ok(()),
            },
            Some(there) if there.what == What::Directory => Err(ToolError::Refused {
                place: self.to.place(to),
                problem: "a directory is in the place of a file: remove it first",
            }),
            Some(_) => self.to.remove(to),
        }
    }

    fn same_side(&self) -> bool {
        match (self.from, self.to) {
            (Side::Volume(a), Side::Volume(b)) => std::ptr::eq(a, b),
            _ => false,
        }
    }
}
