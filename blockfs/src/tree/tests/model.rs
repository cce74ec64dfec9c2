//! Random requests against a model without any of the tree's structures: the same answers, names,
//! links, sizes and blocks.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

#[derive(Clone, Debug)]
enum Node {
    /// Size in bytes; each block, and whether it is written.
    File(u64, BTreeMap<u64, bool>),
    Dir(BTreeMap<Vec<u8>, Ino>),
    Link(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Model {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
}

type Done = Result<(), i32>;

fn fail(error: PosixError) -> Done {
    Err(error.errno())
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Dir(BTreeMap::new()))]),
            next: 2,
        }
    }

    fn dir(&self, ino: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>, i32> {
        match self.nodes.get(&ino) {
            Some(Node::Dir(entries)) => Ok(entries),
            Some(_) => Err(20),
            None => Err(2),
        }
    }

    fn entries(&mut self, ino: Ino) -> &mut BTreeMap<Vec<u8>, Ino> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Dir(entries)) => entries,
            other => panic!("{other:?}"),
        }
    }

    fn file(&mut self, ino: Ino) -> Result<(&mut u64, &mut BTreeMap<u64, bool>), i32> {
        match self.nodes.get_mut(&ino) {
            Some(Node::File(size, blocks)) => Ok((size, blocks)),
            Some(Node::Dir(_)) => Err(21),
            Some(Node::Link(_)) => Err(22),
            None => Err(2),
        }
    }

    fn count(&self, ino: Ino) -> u64 {
        let dirs = self.nodes.keys().filter_map(|&dir| self.dir(dir).ok());
        dirs.flat_map(BTreeMap::values)
            .filter(|&&to| to == ino)
            .count() as u64
    }

    fn is_dir(&self, ino: Ino) -> bool {
        self.dir(ino).is_ok()
    }

    fn nlink(&self, ino: Ino) -> u64 {
        let names = self.count(ino);
        match self.dir(ino) {
            Ok(entries) if ino == ROOT || names > 0 => {
                2 + entries.values().filter(|&&to| self.is_dir(to)).count() as u64
            }
            _ => names,
        }
    }

    fn alive(&self, ino: Ino) -> bool {
        ino == ROOT || self.count(ino) > 0
    }

    /// Whether `ino` is `dir` or somewhere under it.
    fn contains(&self, dir: Ino, ino: Ino) -> bool {
        let Ok(entries) = self.dir(dir) else {
            return false;
        };
        dir == ino || entries.values().any(|&below| self.contains(below, ino))
    }

    fn vacant(&self, dir: Ino, name: &[u8]) -> Done {
        if self.dir(dir)?.contains_key(name) {
            return fail(PosixError::Exists);
        }
        if self.alive(dir) {
            Ok(())
        } else {
            fail(PosixError::NotFound)
        }
    }

    fn create(&mut self, dir: Ino, name: &[u8], node: Node) -> Done {
        self.vacant(dir, name)?;
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        self.entries(dir).insert(name.to_vec(), ino);
        Ok(())
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Done {
        match self.nodes.get(&ino) {
            None => return fail(PosixError::NotFound),
            Some(Node::Dir(_)) => return fail(PosixError::LinkToDirectory),
            Some(_) => self.vacant(dir, name)?,
        }
        if self.count(ino) == 0 {
            return fail(PosixError::NotFound);
        }
        self.entries(dir).insert(name.to_vec(), ino);
        Ok(())
    }

    fn dropped(&mut self, ino: Ino, open: bool) {
        if self.count(ino) == 0 && !open {
            self.nodes.remove(&ino);
        }
    }

    fn remove(&mut self, dir: Ino, name: &[u8], directory: bool, salt: u64) -> Done {
        let ino = *self.dir(dir)?.get(name).ok_or(2)?;
        match (directory, self.dir(ino)) {
            (false, Ok(_)) => return fail(PosixError::IsDirectory),
            (true, Err(_)) => return fail(PosixError::NotDirectory),
            (true, Ok(entries)) if !entries.is_empty() => return fail(PosixError::NotEmpty),
            _ => {}
        }
        self.entries(dir).remove(name);
        self.dropped(ino, is_open(ino, salt));
        Ok(())
    }

    fn rename(
        &mut self,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
        salt: u64,
    ) -> Done {
        let source = *self.dir(from)?.get(from_name).ok_or(2)?;
        let target = self.dir(to)?.get(to_name).copied();
        if !self.alive(to) {
            return fail(PosixError::NotFound);
        }
        if self.contains(source, to) {
            return fail(PosixError::Invalid(""));
        }
        let replaced = match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return fail(PosixError::Exists),
            (RenameMode::Exchange, None) => return fail(PosixError::NotFound),
            (RenameMode::Exchange, Some(target)) => {
                if self.contains(target, from) {
                    return fail(PosixError::Invalid(""));
                }
                self.entries(to).insert(to_name.to_vec(), source);
                self.entries(from).insert(from_name.to_vec(), target);
                return Ok(());
            }
            (_, target) => target,
        };
        if replaced == Some(source) {
            return Ok(());
        }
        if let Some(target) = replaced {
            match (self.is_dir(source), self.dir(target)) {
                (true, Err(_)) => return fail(PosixError::NotDirectory),
                (false, Ok(_)) => return fail(PosixError::IsDirectory),
                (true, Ok(entries)) if !entries.is_empty() => return fail(PosixError::NotEmpty),
                _ => {}
            }
        }
        self.entries(from).remove(from_name);
        self.entries(to).insert(to_name.to_vec(), source);
        if let Some(target) = replaced {
            self.dropped(target, is_open(target, salt));
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: u64, len: u64) -> Done {
        let (size, blocks) = self.file(ino)?;
        if len > 0 {
            let range = offset / BLOCK..(offset + len).div_ceil(BLOCK);
            blocks.extend(range.map(|block| (block, true)));
            *size = (*size).max(offset + len);
        }
        Ok(())
    }

    fn truncate(&mut self, ino: Ino, to: u64) -> Done {
        let (size, blocks) = self.file(ino)?;
        if to <= *size {
            blocks.retain(|&block, _| block < to.div_ceil(BLOCK));
        }
        *size = to;
        Ok(())
    }

    fn fallocate(&mut self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Done {
        let (size, blocks) = self.file(ino)?;
        if len == 0 {
            return fail(PosixError::Invalid(""));
        }
        let end = offset + len;
        let inner = offset.div_ceil(BLOCK)..end / BLOCK;
        if mode == Fallocate::Punch {
            blocks.retain(|block, _| !inner.contains(block));
            return Ok(());
        }
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let zero = matches!(mode, Fallocate::Zero | Fallocate::ZeroKeepSize);
            let written = blocks.entry(block).or_insert(false);
            *written = *written && !(zero && inner.contains(&block));
        }
        if matches!(mode, Fallocate::Reserve | Fallocate::Zero) {
            *size = (*size).max(end);
        }
        Ok(())
    }

    fn compare(&self, tree: &Tree) {
        let inodes: Vec<Ino> = tree.inodes().collect();
        assert_eq!(inodes, self.nodes.keys().copied().collect::<Vec<_>>());
        let orphans: Vec<Ino> = inodes.into_iter().filter(|&ino| !self.alive(ino)).collect();
        assert_eq!(tree.orphans().collect::<Vec<_>>(), orphans);
        for (&ino, node) in &self.nodes {
            let stat = tree.stat(ino).expect("it is there");
            assert_eq!(u64::from(stat.nlink), self.nlink(ino), "links of {ino}");
            match node {
                Node::Dir(entries) => {
                    let listed = tree.readdir(ino, 0).expect("a directory");
                    let listed: BTreeMap<_, _> = listed
                        .map(|entry| (entry.name.to_vec(), entry.ino))
                        .collect();
                    assert_eq!(&listed, entries);
                }
                Node::Link(target) => assert_eq!(tree.readlink(ino), Ok(&target[..])),
                Node::File(size, blocks) => {
                    assert_eq!((stat.size, stat.blocks), (*size, blocks.len() as u64));
                    compare_blocks(tree, ino, *size, blocks);
                }
            }
        }
    }
}

fn compare_blocks(tree: &Tree, ino: Ino, size: u64, blocks: &BTreeMap<u64, bool>) {
    let mut found = BTreeMap::new();
    let mut at = 0;
    for segment in tree.segments(ino, 0, 1000).expect("a file") {
        let (lblk, len) = match segment {
            Segment::Hole { lblk, len } => (lblk, len),
            Segment::Extent(extent) => {
                let range = extent.lblk..extent.lblk + extent.len;
                found.extend(range.map(|block| (u64::from(block), !extent.unwritten)));
                (extent.lblk, extent.len)
            }
        };
        assert_eq!(lblk, at, "no gap");
        at += len;
    }
    assert_eq!(at, 1000);
    assert_eq!(&found, blocks);
    let data = |block: u64| blocks.get(&block) == Some(&true);
    for offset in (0..size.min(80 * BLOCK)).step_by(1357) {
        let seek = |wanted: bool| {
            let all = offset / BLOCK..size.div_ceil(BLOCK);
            let found = all.into_iter().find(|&block| data(block) == wanted);
            found.map(|block| (block * BLOCK).max(offset))
        };
        assert_eq!(
            tree.seek_data(ino, offset).ok(),
            seek(true),
            "data from {offset}"
        );
        assert_eq!(tree.seek_hole(ino, offset), Ok(seek(false).unwrap_or(size)));
    }
    assert_eq!(tree.seek_hole(ino, size), Err(PosixError::NoData));
    assert_eq!(tree.seek_data(ino, size), Err(PosixError::NoData));
}

/// Which inodes somebody has open.
fn is_open(ino: Ino, salt: u64) -> bool {
    (ino + salt).is_multiple_of(3)
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    what: u8,
    inodes: [u64; 2],
    names: [u8; 2],
    salt: u64,
    bytes: (u64, u64),
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0..200_000u64, (0..48u64).prop_map(|block| block * BLOCK)];
    let len = prop_oneof![0..50_000u64, (0..12u64).prop_map(|block| block * BLOCK)];
    (
        0..24u8,
        any::<[u64; 2]>(),
        [0..5u8, 0..5u8],
        0..6u64,
        (offset, len),
    )
        .prop_map(|(what, inodes, names, salt, bytes)| Step {
            what,
            inodes,
            names,
            salt,
            bytes,
        })
}

const FALLOCATE: [Fallocate; 5] = [
    Fallocate::Reserve,
    Fallocate::ReserveKeepSize,
    Fallocate::Punch,
    Fallocate::Zero,
    Fallocate::ZeroKeepSize,
];

pub(super) fn run(world: &mut World, model: &mut Model, step: &Step) {
    let [a, b] = step.inodes.map(|ino| 1 + ino % model.next);
    let texts = step.names.map(|name| vec![b'a' + name]);
    let (x, y) = (&texts[0][..], &texts[1][..]);
    let (salt, now) = (step.salt, world.now);
    let open = |ino| is_open(ino, salt);
    let node = world.node();
    let tree = &world.tree;
    let (offset, len) = step.bytes;
    let modes = [
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
    ];
    let mode = modes[usize::try_from(salt % 3).expect("small")];
    let fallocate = FALLOCATE[usize::try_from(salt % 5).expect("small")];
    let (plan, expected) = match step.what {
        0..=2 => {
            let file = Node::File(0, BTreeMap::new());
            (tree.plan_create(a, x, node), model.create(a, x, file))
        }
        3..=5 => (
            tree.plan_mkdir(a, x, node),
            model.create(a, x, Node::Dir(BTreeMap::new())),
        ),
        6 => (
            tree.plan_symlink(a, x, y, node),
            model.create(a, x, Node::Link(y.to_vec())),
        ),
        7..=8 => (tree.plan_link(b, a, x, now), model.link(b, a, x)),
        9..=10 => (
            tree.plan_unlink(a, x, open, now),
            model.remove(a, x, false, salt),
        ),
        11 => (
            tree.plan_rmdir(a, x, open, now),
            model.remove(a, x, true, salt),
        ),
        12..=17 => {
            let expected = model.rename((a, x), (b, y), mode, salt);
            (tree.plan_rename((a, x), (b, y), mode, open, now), expected)
        }
        18 => {
            let orphan = model.nodes.contains_key(&a) && !model.alive(a);
            if orphan {
                model.nodes.remove(&a);
            }
            let expected = if orphan { Ok(()) } else { Err(2) };
            (tree.plan_reap(a), expected)
        }
        19..=20 => {
            let done = world.write(a, offset, len).map(|_| Plan::default());
            (done, model.write(a, offset, len))
        }
        21 => {
            let done = world.truncate(a, offset).map(|_| Plan::default());
            (done, model.truncate(a, offset))
        }
        _ => {
            let done = world
                .fallocate(a, fallocate, step.bytes)
                .map(|_| Plan::default());
            (done, model.fallocate(a, fallocate, offset, len))
        }
    };
    assert_eq!(
        plan.as_ref().map(|_| ()).map_err(|error| error.errno()),
        expected,
        "{step:?}"
    );
    if let Ok(plan) = plan {
        world.commit(&plan);
        assert_eq!(world.tree.next_ino(), model.next);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The model, the replayed records and the checkpoint all agree with the tree, and the free
    /// space with its extents.
    #[test]
    fn same_as_the_model(steps in proptest::collection::vec(any_step(), 1..160), piece in 1..9u64) {
        let mut world = World::new();
        world.piece = piece;
        let mut model = Model::new();
        for (nth, step) in steps.iter().enumerate() {
            run(&mut world, &mut model, step);
            if nth % 32 == 0 {
                model.compare(&world.tree);
            }
        }
        model.compare(&world.tree);
        world.verify();
    }

    /// A record that goes wrong somewhere leaves everything as it was.
    #[test]
    fn a_bad_record_changes_nothing(
        steps in proptest::collection::vec(any_step(), 1..60),
        more in proptest::collection::vec(any_step(), 1..12),
    ) {
        let mut world = World::new();
        let mut model = Model::new();
        for step in &steps {
            run(&mut world, &mut model, step);
        }
        let mut copy = reload(&world.tree);
        let (hash, totals) = (copy.state_hash(), copy.totals());
        let from = world.log.len();
        for step in &more {
            run(&mut world, &mut model, step);
        }
        // All of that as one record, and then something impossible.
        let mut ops: Vec<Op<'_>> = decode(&world.log[from..]);
        ops.push(Op::FreeInode { ino: ROOT });
        prop_assert_eq!(copy.apply(&ops), Err(TreeError::InUse { ino: ROOT }));
        prop_assert_eq!(copy.state_hash(), hash);
        prop_assert_eq!(copy.totals(), totals);
        prop_assert_eq!(reload(&copy).state_hash(), hash);
        // Without it, the record does what the single ones did.
        ops.pop();
        copy.apply(&ops).expect("they applied one by one");
        prop_assert_eq!(copy.state_hash(), world.tree.state_hash());
        world.verify();
    }
}
