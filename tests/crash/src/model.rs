//! A reference filesystem in memory: as simple as it can be, and slow.

use crate::run::Action;
use blockfs::tree::RenameMode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a path leads to, as one can see it from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub what: What,
    /// Its link count.
    pub nlink: u32,
    /// Permission bits.
    pub mode: u16,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A file of this size.
    File(u64),
    /// A directory.
    Dir,
    /// A symbolic link.
    Link(Vec<u8>),
}

/// Everything that one can see, by path.
pub type Sight = BTreeMap<String, Seen>;

#[derive(Clone, Debug)]
enum Body {
    File(Arc<Vec<u8>>),
    Dir(BTreeMap<String, u32>),
    Link(String),
}

#[derive(Clone, Debug)]
struct Node {
    body: Body,
    mode: u16,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The reference.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<u32, Node>,
    next: u32,
}

/// Numbers of errors, as Linux has them.
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;
const EPERM: i32 = 1;

const ROOT: u32 = 1;

/// The byte that the write number `fill` puts at `offset`: every write is recognised anywhere.
#[must_use]
pub fn poison(fill: u32, offset: u64) -> u8 {
    let mixed = (offset ^ u64::from(fill) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never zero: zeros mean that nothing was written.
    u8::try_from(mixed >> 57).unwrap_or(0) | 0x80
}

/// The data of a write.
#[must_use]
pub fn data_of(fill: u32, offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| poison(fill, at)).collect()
}

impl Default for Model {
    fn default() -> Self {
        let root = Node {
            body: Body::Dir(BTreeMap::new()),
            mode: 0o755,
            xattrs: BTreeMap::new(),
        };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
        }
    }
}

impl Model {
    /// What one can see.
    #[must_use]
    pub fn sight(&self) -> Sight {
        let mut sight = Sight::new();
        self.see(ROOT, "", &mut sight);
        sight
    }

    fn see(&self, id: u32, path: &str, sight: &mut Sight) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let what = match &node.body {
            Body::File(data) => What::File(data.len() as u64),
            Body::Dir(_) => What::Dir,
            Body::Link(target) => What::Link(target.clone().into_bytes()),
        };
        let seen = Seen {
            what,
            nlink: self.links(id),
            mode: node.mode,
            xattrs: node.xattrs.clone(),
        };
        sight.insert(if path.is_empty() { "/" } else { path }.into(), seen);
        if let Body::Dir(names) = &node.body {
            for (name, &id) in names {
                self.see(id, &format!("{path}/{name}"), sight);
            }
        }
    }

    fn links(&self, id: u32) -> u32 {
        let mut names = u32::from(id == ROOT);
        let mut below = 0;
        for (&dir, node) in &self.nodes {
            if let Body::Dir(entries) = &node.body {
                for &target in entries.values() {
                    names += u32::from(target == id);
                    below += u32::from(dir == id && self.is_dir(target));
                }
            }
        }
        if self.is_dir(id) {
            names + 1 + below
        } else {
            names
        }
    }

    fn is_dir(&self, id: u32) -> bool {
        self.nodes
            .get(&id)
            .is_some_and(|node| matches!(node.body, Body::Dir(_)))
    }

    /// Whether a path leads to a symbolic link.
    #[must_use]
    pub fn is_link(&self, path: &str) -> bool {
        let node = self.find(path).ok().and_then(|id| self.nodes.get(&id));
        node.is_some_and(|node| matches!(node.body, Body::Link(_)))
    }

    /// The contents of a file.
    #[must_use]
    pub fn data(&self, id: u32) -> Option<&Arc<Vec<u8>>> {
        match &self.nodes.get(&id)?.body {
            Body::File(data) => Some(data),
            _ => None,
        }
    }

    /// The number of what a path leads to; it is the same in all models of one run.
    ///
    /// # Errors
    /// The number of the error.
    pub fn find(&self, path: &str) -> Result<u32, i32> {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match self.nodes.get(&at).map(|node| &node.body) {
                Some(Body::Dir(names)) => at = *names.get(name).ok_or(ENOENT)?,
                _ => return Err(ENOTDIR),
            }
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(u32, &'p str), i32> {
        let (dir, name) = path.rsplit_once('/').ok_or(ENOENT)?;
        let dir = self.find(dir)?;
        if !self.is_dir(dir) {
            return Err(ENOTDIR);
        }
        Ok((dir, name))
    }

    fn names(&mut self, dir: u32) -> Result<&mut BTreeMap<String, u32>, i32> {
        match self.nodes.get_mut(&dir).map(|node| &mut node.body) {
            Some(Body::Dir(names)) => Ok(names),
            _ => Err(ENOTDIR),
        }
    }

    fn add(&mut self, path: &str, body: Body, mode: u16) -> Result<(), i32> {
        let (dir, name) = self.parent(path)?;
        let id = self.next;
        let names = self.names(dir)?;
        if names.contains_key(name) {
            return Err(EEXIST);
        }
        names.insert(name.into(), id);
        self.next += 1;
        let xattrs = BTreeMap::new();
        self.nodes.insert(id, Node { body, mode, xattrs });
        Ok(())
    }

    fn file(&mut self, path: &str) -> Result<&mut Vec<u8>, i32> {
        let id = self.find(path)?;
        match self.nodes.get_mut(&id).map(|node| &mut node.body) {
            Some(Body::File(data)) => Ok(Arc::make_mut(data)),
            Some(Body::Dir(_)) => Err(EISDIR),
            _ => Err(ENOENT),
        }
    }

    fn collect(&mut self) {
        let used: Vec<u32> = self
            .nodes
            .values()
            .filter_map(|node| match &node.body {
                Body::Dir(names) => Some(names.values().copied()),
                _ => None,
            })
            .flatten()
            .collect();
        self.nodes.retain(|id, _| *id == ROOT || used.contains(id));
    }

    /// Does what `action` says.
    ///
    /// # Errors
    /// The number of the error; nothing has changed then.
    pub fn apply(&mut self, action: &Action) -> Result<(), i32> {
        match action {
            Action::Create(path) => self.add(path, Body::File(Arc::default()), 0o644),
            Action::Mkdir(path) => self.add(path, Body::Dir(BTreeMap::new()), 0o755),
            Action::Symlink(target, path) => self.add(path, Body::Link(target.clone()), 0o777),
            Action::Write {
                path,
                at,
                len,
                fill,
                ..
            } => {
                let data = self.file(path)?;
                put(data, *at, &data_of(*fill, *at, *len));
                Ok(())
            }
            Action::Append { path, len, fill } => {
                let data = self.file(path)?;
                let at = data.len() as u64;
                put(data, at, &data_of(*fill, at, *len));
                Ok(())
            }
            Action::Truncate(path, size) => {
                self.file(path)?.resize(small(*size), 0);
                Ok(())
            }
            Action::Punch(path, at, len) | Action::Zero(path, at, len, true) => {
                let data = self.file(path)?;
                let end = data.len().min(small(at + len));
                data.get_mut(small(*at)..end).unwrap_or_default().fill(0);
                Ok(())
            }
            Action::Zero(path, at, len, false) | Action::WriteZeroes(path, at, len) => {
                let data = self.file(path)?;
                put(data, *at, &vec![0; small(*len)]);
                Ok(())
            }
            Action::Reserve(path, at, len, keep) => {
                let data = self.file(path)?;
                let end = small(at + len);
                if !keep && end > data.len() {
                    data.resize(end, 0);
                }
                Ok(())
            }
            Action::Rename(from, to, mode) => self.rename(from, to, *mode),
            Action::Link(from, to) => {
                let id = self.find(from)?;
                if self.is_dir(id) {
                    return Err(EPERM);
                }
                let (dir, name) = self.parent(to)?;
                let names = self.names(dir)?;
                if names.contains_key(name) {
                    return Err(EEXIST);
                }
                names.insert(name.into(), id);
                Ok(())
            }
            Action::Unlink(path) => {
                let id = self.find(path)?;
                if self.is_dir(id) {
                    return Err(EISDIR);
                }
                let (dir, name) = self.parent(path)?;
                self.names(dir)?.remove(name);
                self.collect();
                Ok(())
            }
            Action::Rmdir(path) => {
                let id = self.find(path)?;
                if !self.names(id)?.is_empty() {
                    return Err(ENOTEMPTY);
                }
                let (dir, name) = self.parent(path)?;
                self.names(dir)?.remove(name);
                self.collect();
                Ok(())
            }
            Action::SetXattr(path, name, value) => {
                let id = self.find(path)?;
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.xattrs.insert(name.clone().into_bytes(), value.clone());
                }
                Ok(())
            }
            Action::RemoveXattr(path, name) => {
                let id = self.find(path)?;
                let node = self.nodes.get_mut(&id).ok_or(ENOENT)?;
                node.xattrs.remove(name.as_bytes()).map(drop).ok_or(ENODATA)
            }
            Action::Chmod(path, mode) => {
                let id = self.find(path)?;
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.mode = *mode;
                }
                Ok(())
            }
            Action::Fsync(path) => {
                let id = self.find(path)?;
                match self.is_dir(id) || self.data(id).is_some() {
                    true => Ok(()),
                    false => Err(ENOENT),
                }
            }
            Action::Sync | Action::Checkpoint | Action::Trim => Ok(()),
        }
    }

    fn rename(&mut self, from: &str, to: &str, mode: RenameMode) -> Result<(), i32> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let source = self.find(from)?;
        let target = self.find(to).ok();
        if self.is_under(to_dir, source) {
            return Err(EINVAL);
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(EEXIST),
            (RenameMode::Exchange, None) => return Err(ENOENT),
            (RenameMode::Exchange, Some(target)) => {
                if self.is_under(from_dir, target) {
                    return Err(EINVAL);
                }
                self.names(to_dir)?.insert(to_name.into(), source);
                self.names(from_dir)?.insert(from_name.into(), target);
                return Ok(());
            }
            (_, Some(target)) if target == source => return Ok(()),
            (_, Some(target)) => match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.names(target)?.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            },
            (_, None) => {}
        }
        if source == ROOT {
            return Err(EBUSY);
        }
        self.names(from_dir)?.remove(from_name);
        self.names(to_dir)?.insert(to_name.into(), source);
        self.collect();
        Ok(())
    }

    /// Whether `dir` is `above` or somewhere below it.
    fn is_under(&self, dir: u32, above: u32) -> bool {
        if dir == above {
            return true;
        }
        match self.nodes.get(&above).map(|node| &node.body) {
            Some(Body::Dir(names)) => names
                .values()
                .any(|&id| self.is_dir(id) && self.is_under(dir, id)),
            _ => false,
        }
    }
}

fn put(data: &mut Vec<u8>, at: u64, new: &[u8]) {
    let (from, to) = (small(at), small(at) + new.len());
    if data.len() < to {
        data.resize(to, 0);
    }
    if let Some(place) = data.get_mut(from..to) {
        place.copy_from_slice(new);
    }
}

/// A number of bytes in memory.
#[must_use]
pub fn small(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
