//! The journal against a small drive in memory that loses its cache and fails.

mod cuts;
mod damage;
mod errors;
mod fake;
mod records;

use super::{Journal, LoadMode, LoadOptions, LoadReport, Loaded, MkfsOptions, Txid, load, mkfs};
use crate::device::BlockDevice;
use crate::format::geometry::{Geometry, LayoutOptions};
use crate::format::op::{Ino, ROOT_INO};
use crate::format::superblock::Label;
use crate::tree::{NewNode, Plan, Tree, XattrMode};
use driver::memory::DmaDomain;
use fake::{Fake, Random, Ticking};
use std::sync::LazyLock;
use std::time::Duration;
use uuid::Uuid;

/// Bytes of the volumes here: the least, and some data.
const VOLUME_BYTES: usize = (1 << 20) + (256 << 10);
const LIMIT: Duration = Duration::from_secs(10);
const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 0,
    gid: 0,
    now_ns: 1,
};

/// One for all tests: making one maps and touches megabytes.
fn domain() -> &'static DmaDomain {
    static DOMAIN: LazyLock<DmaDomain> = LazyLock::new(DmaDomain::new);
    &DOMAIN
}

fn options() -> MkfsOptions {
    MkfsOptions {
        label: Label::new(b"first").unwrap(),
        layout: LayoutOptions {
            journal_bytes: Some(64 << 10),
            checkpoint_bytes: Some(64 << 10),
        },
        limit: LIMIT,
        ..MkfsOptions::new(Uuid::from_u128(7))
    }
}

/// What a mounted volume consists of here.
struct Volume {
    fake: Fake,
    clock: Ticking,
    tree: Tree,
    journal: Journal<Fake>,
    geometry: Geometry,
    report: LoadReport,
    /// The state after each record, by its number; the first is what was loaded.
    states: Vec<(Txid, u64)>,
}

fn mount(fake: Fake, mode: LoadMode) -> Result<Volume, super::JournalError> {
    let clock = Ticking::default();
    let options = LoadOptions { mode, limit: LIMIT };
    let loaded = load(fake.clone(), domain(), &clock, &options);
    let Loaded {
        tree,
        journal,
        geometry,
        report,
    } = loaded.map_err(|(error, _)| error)?;
    let states = vec![(journal.durable(), tree.state_hash())];
    Ok(Volume {
        fake,
        clock,
        tree,
        journal,
        geometry,
        report,
        states,
    })
}

/// A new volume that was never mounted.
fn made(lba_bytes: usize, volatile_cache: bool, seed: u64) -> Fake {
    let mut fake = Fake::new(vec![0; VOLUME_BYTES], lba_bytes, volatile_cache, seed);
    mkfs(&mut fake, domain(), &Ticking::default(), &options()).unwrap();
    fake
}

/// A new volume, mounted.
fn fresh(lba_bytes: usize, volatile_cache: bool, seed: u64) -> Volume {
    mount(made(lba_bytes, volatile_cache, seed), LoadMode::ReadWrite).unwrap()
}

impl Volume {
    fn change(&mut self, plan: &Plan<'_>) -> Txid {
        self.tree.apply(&plan.ops).unwrap();
        let txid = self.journal.append(&plan.ops).unwrap();
        let state = (txid, self.tree.state_hash());
        match self.states.last_mut() {
            Some(last) if last.0 == txid => *last = state,
            _ => self.states.push(state),
        }
        txid
    }

    fn create(&mut self, name: &str) -> Ino {
        let plan = self
            .tree
            .plan_create(ROOT_INO, name.as_bytes(), NODE)
            .unwrap();
        self.change(&plan);
        plan.created.unwrap()
    }

    /// Sets an attribute of `bytes` bytes: a record gets as long.
    fn fill(&mut self, ino: Ino, bytes: usize, byte: u8) -> Txid {
        let value = vec![byte; bytes];
        let plan = self
            .tree
            .plan_set_xattr(ino, (b"user.fill", &value), XattrMode::Set, 2);
        self.change(&plan.unwrap())
    }

    fn pump(&mut self) {
        self.journal.pump(&mut self.tree).unwrap();
    }

    /// Pumps until `done`.
    fn until(&mut self, done: impl Fn(&Journal<Fake>) -> bool) {
        for _ in 0..100_000 {
            self.pump();
            if done(&self.journal) {
                return;
            }
        }
        let journal = &self.journal;
        panic!(
            "nothing goes on: durable {:?} of {:?}, {:?}, ring used {}, checkpoints {:?}, idle {}",
            journal.durable(),
            journal.last(),
            journal.flushes,
            journal.ring.used(),
            journal.checkpoints,
            journal.is_idle()
        );
    }

    fn commit(&mut self) {
        self.journal.commit();
        let last = self.journal.last();
        self.until(|journal| journal.durable() >= last);
    }

    fn checkpoint(&mut self) {
        let wanted = self.journal.checkpoint();
        self.until(|journal| journal.checkpointed(wanted));
    }

    /// What a reader finds on a drive with the same contents.
    fn reader(&self) -> Volume {
        let limits = self.fake.limits();
        let image = self.fake.image();
        let lba_bytes = limits.block_size as usize;
        let copy = Fake::new(image, lba_bytes, limits.volatile_cache, 1);
        mount(copy, LoadMode::ReadOnly).unwrap()
    }

    fn close(mut self) -> Fake {
        let closed = self.journal.close(&mut self.tree, &self.clock, LIMIT);
        closed.unwrap_or_else(|(error, _)| panic!("{error}"))
    }

    /// Whether `hash` is a state that a power cut may leave now.
    fn may_leave(&self, hash: u64) -> bool {
        let durable = self.journal.durable();
        let base = self.states.iter().rposition(|(txid, _)| *txid <= durable);
        self.states[base.unwrap()..]
            .iter()
            .any(|(_, state)| *state == hash)
    }

    /// What a power cut leaves now, and the drive's own kind.
    fn cut(&self, random: &mut Random) -> Fake {
        let limits = self.fake.limits();
        let image = self.fake.cut(random);
        Fake::new(
            image,
            limits.block_size as usize,
            limits.volatile_cache,
            random.0,
        )
    }
}
