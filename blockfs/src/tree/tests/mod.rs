//! Tests of the tree, and the world that they share: a tree, a second one that gets every record
//! after it, and the free space.

mod data;
mod frozen;
mod model;
mod names;
mod records;

use super::*;
use crate::format::geometry::BlockRange;
use crate::format::op::{Extent, Kind, Op};
use crate::space::{Goal, Options, Request, Source, Space};

const VOLUME: u64 = 200_000;
const DATA: BlockRange = BlockRange {
    start: 100,
    blocks: VOLUME - 101,
};
const ROOT: Ino = ROOT_INO;

struct World {
    tree: Tree,
    replay: Tree,
    space: Space,
    now: i64,
    /// Pieces that blocks are given in, at most.
    piece: u64,
    /// The operations of all records.
    log: Vec<u8>,
}

impl World {
    fn new() -> Self {
        Self::with(Limits::new(1 << 20, VOLUME))
    }

    fn with(limits: Limits) -> Self {
        let mut world = Self {
            tree: Tree::new(limits),
            replay: Tree::new(limits),
            space: Space::build(DATA, Options::default(), []).expect("empty"),
            now: 1,
            piece: 1 << 20,
            log: Vec::new(),
        };
        world.commit(&plan_format(0o755, 0, 0, 1));
        world
    }

    fn node(&mut self) -> NewNode {
        self.now += 1;
        NewNode {
            mode: 0o644,
            uid: 1,
            gid: 2,
            now_ns: self.now,
        }
    }

    /// Applies a plan to both trees, and lets the space follow.
    fn commit(&mut self, plan: &Plan<'_>) -> Effects {
        let effects = self.tree.apply(&plan.ops).expect("a plan applies");
        assert_eq!(self.replay.apply(&plan.ops), Ok(effects.clone()));
        for op in &plan.ops {
            op.encode(&mut self.log).expect("valid");
        }
        let token = self.space.free(&effects.freed).expect("they were in use");
        self.space.release(token).expect("ours");
        effects
    }

    fn create(&mut self, dir: Ino, name: &str) -> Ino {
        let node = self.node();
        let plan = self
            .tree
            .plan_create(dir, name.as_bytes(), node)
            .expect("it can");
        self.commit(&plan);
        plan.created.expect("new")
    }

    fn mkdir(&mut self, dir: Ino, name: &str) -> Ino {
        let node = self.node();
        let plan = self
            .tree
            .plan_mkdir(dir, name.as_bytes(), node)
            .expect("it can");
        self.commit(&plan);
        plan.created.expect("new")
    }

    fn symlink(&mut self, dir: Ino, name: &str, target: &str) -> Ino {
        let node = self.node();
        let (name, target) = (name.as_bytes(), target.as_bytes());
        let plan = self
            .tree
            .plan_symlink(dir, name, target, node)
            .expect("it can");
        self.commit(&plan);
        plan.created.expect("new")
    }

    /// Blocks for the holes that these bytes need.
    fn blocks_for(&mut self, ino: Ino, bytes: (u64, u64)) -> Result<Vec<Extent>, PosixError> {
        let holes: Vec<_> = self.tree.fallocate_needs(ino, bytes)?.collect();
        let mut extents = Vec::new();
        for (mut lblk, mut left) in holes {
            while left > 0 {
                let wanted = u64::from(left).min(self.piece);
                // Not after one another, so that they do not grow together.
                let goal = Goal::Near(DATA.start + u64::from(lblk) * 7 % 1000);
                let request = Request {
                    goal,
                    wanted,
                    least: 1,
                };
                let got = self
                    .space
                    .allocate(request, Source::Ordinary)
                    .expect("enough");
                let len = u32::try_from(got.blocks).expect("no more than wanted");
                extents.push(Extent {
                    lblk,
                    pblk: got.start,
                    len,
                    unwritten: false,
                });
                lblk += len;
                left -= len;
            }
        }
        Ok(extents)
    }

    fn write(&mut self, ino: Ino, offset: u64, len: u64) -> Result<Plan<'static>, PosixError> {
        self.now += 1;
        let new = self.blocks_for(ino, (offset, len))?;
        let plan = self.tree.plan_write(ino, (offset, len), &new, self.now)?;
        self.commit(&plan);
        Ok(plan)
    }

    fn fallocate(
        &mut self,
        ino: Ino,
        mode: Fallocate,
        bytes: (u64, u64),
    ) -> Result<Plan<'static>, PosixError> {
        self.now += 1;
        let new = match mode {
            Fallocate::Punch => Vec::new(),
            _ if bytes.1 == 0 => Vec::new(),
            _ => self.blocks_for(ino, bytes)?,
        };
        let plan = self.tree.plan_fallocate(ino, mode, bytes, &new, self.now)?;
        self.commit(&plan);
        Ok(plan)
    }

    fn truncate(&mut self, ino: Ino, size: u64) -> Result<Plan<'static>, PosixError> {
        self.now += 1;
        let plan = self.tree.plan_truncate(ino, size, self.now)?;
        self.commit(&plan);
        Ok(plan)
    }

    /// Everything that must hold at any time.
    fn verify(&self) {
        let bad = |finding: &Finding| finding.severity() > Severity::Warning;
        let found: Vec<_> = self.tree.check().into_iter().filter(bad).collect();
        assert_eq!(found, []);
        assert_eq!(self.tree.check_blocks(DATA, Some(&self.space)), []);
        let hash = self.tree.state_hash();
        assert_eq!(
            self.replay.state_hash(),
            hash,
            "the same records, the same state"
        );
        let copy = reload(&self.tree);
        assert_eq!(
            copy.state_hash(),
            hash,
            "a checkpoint builds the same state"
        );
        assert_eq!(copy.totals(), self.tree.totals());
        let mut bytes = Vec::new();
        for op in self.tree.snapshot() {
            op.encode(&mut bytes).expect("valid");
        }
        assert_eq!(self.tree.totals().metadata_bytes, bytes.len() as u64);
    }
}

fn decode(mut bytes: &[u8]) -> Vec<Op<'_>> {
    let mut ops = Vec::new();
    while !bytes.is_empty() {
        let (op, len) = Op::decode(bytes, 0).expect("valid");
        ops.push(op);
        bytes = &bytes[len..];
    }
    ops
}

/// What a checkpoint of `tree` builds.
fn reload(tree: &Tree) -> Tree {
    let mut copy = Tree::new(tree.limits());
    for op in tree.snapshot() {
        assert!(op.builds());
        copy.load(&op).expect("it builds");
    }
    copy
}

fn names(tree: &Tree, dir: Ino) -> Vec<String> {
    let entries = tree.readdir(dir, 0).expect("a directory");
    entries
        .map(|entry| String::from_utf8_lossy(entry.name).into_owned())
        .collect()
}
