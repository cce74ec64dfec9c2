//! The state of one moment, handed out while records go on.

use super::model::{Model, Step, any_step, run};
use super::*;
use proptest::prelude::*;
use std::convert::Infallible;

/// The next operations of the snapshot, encoded; whether they were the last.
fn hand_out(tree: &mut Tree, budget: usize, into: &mut Vec<u8>) -> bool {
    let done = tree.continue_snapshot(budget, |op| {
        op.encode(into).expect("valid");
        Ok::<(), Infallible>(())
    });
    done.unwrap_or_else(|never| match never {})
}

fn encoded(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    for op in tree.snapshot() {
        op.encode(&mut bytes).expect("valid");
    }
    bytes
}

/// Records that random steps make, after those that make `world`.
fn records(world: &mut World, model: &mut Model, steps: &[Step]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for step in steps {
        let from = world.log.len();
        run(world, model, step);
        records.push(world.log[from..].to_vec());
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Whatever is applied in between, or fails to apply: what is handed out is the state at the
    /// beginning, operation for operation, in pieces that keep to the budget.
    #[test]
    fn the_state_as_it_was(
        before in proptest::collection::vec(any_step(), 1..80),
        during in proptest::collection::vec((any_step(), 1..400usize, any::<[bool; 3]>()), 1..80),
        piece in 1..9u64,
    ) {
        let mut world = World::new();
        world.piece = piece;
        let mut model = Model::new();
        records(&mut world, &mut model, &before);
        let mut tree = reload(&world.tree);
        let steps: Vec<Step> = during.iter().map(|(step, ..)| step.clone()).collect();
        let records = records(&mut world, &mut model, &steps);
        tree.apply(&[Op::SetLabel { label: b"then" }]).expect("a label");

        let expected = encoded(&tree);
        tree.begin_snapshot();
        let (mut got, mut all) = (Vec::new(), false);
        for (nth, (_, budget, [fails, marks, waits])) in during.iter().enumerate() {
            if *fails {
                let bytes = records[nth..].iter().take(3).flatten().copied().collect::<Vec<_>>();
                let mut ops = decode(&bytes);
                ops.push(Op::FreeInode { ino: ROOT });
                prop_assert!(tree.apply(&ops).is_err());
            }
            let ops = decode(&records[nth]);
            let effects = tree.apply(&ops).expect("as in the world");
            if *marks {
                let ino = effects.touched.iter().copied().find(|&ino| tree.stat(ino).is_ok());
                let ino = ino.unwrap_or(ROOT);
                let (name, value) = (&b"user.now"[..], &budget.to_le_bytes()[..]);
                let mut ops = vec![Op::SetXattr { ino, name, value }, Op::SetLabel { label: b"now" }];
                if tree.xattr(ino, name).is_ok() {
                    ops.insert(0, Op::RemoveXattr { ino, name });
                }
                tree.apply(&ops).expect("an attribute");
            }
            if !waits && !all {
                let from = got.len();
                all = hand_out(&mut tree, *budget, &mut got);
                // The last operations may be longer than what is left.
                prop_assert!(got.len() - from <= budget + 700, "{} bytes", got.len() - from);
            }
        }
        while !all {
            all = hand_out(&mut tree, 100, &mut got);
        }
        prop_assert_eq!(decode(&got), decode(&expected));
        prop_assert!(hand_out(&mut tree, 1, &mut got), "nothing is left");
        // The tree itself did not notice.
        let mut again = Tree::new(tree.limits());
        for op in decode(&encoded(&tree)) {
            again.load(&op).expect("it builds");
        }
        prop_assert_eq!(again.state_hash(), tree.state_hash());
    }
}

/// An error of the callback ends the call and comes back; a new beginning forgets the old one.
#[test]
fn begins_anew_after_an_error() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.create(ROOT, name);
    }
    world.tree.begin_snapshot();
    let mut calls = 0;
    let result = world.tree.continue_snapshot(usize::MAX, |_| {
        calls += 1;
        if calls == 3 { Err("full") } else { Ok(()) }
    });
    assert_eq!((result, calls), (Err("full"), 3));
    world.create(ROOT, "d");
    let expected = encoded(&world.tree);
    world.tree.begin_snapshot();
    world.create(ROOT, "e");
    let mut got = Vec::new();
    assert!(hand_out(&mut world.tree, usize::MAX, &mut got));
    assert_eq!(decode(&got), decode(&expected));
}

/// A long file comes in pieces, and a record that changes it meanwhile copies what it changes only.
#[test]
fn a_long_file_comes_in_pieces() {
    let mut world = World::new();
    world.piece = 1;
    let ino = world.create(ROOT, "long");
    world.write(ino, 0, 4096 * 2000).expect("it can");
    let extents = world.tree.totals().extents;
    assert!(extents > 1000);
    let expected = encoded(&world.tree);
    world.tree.begin_snapshot();
    let (mut got, mut calls) = (Vec::new(), 0);
    loop {
        let from = got.len();
        let all = hand_out(&mut world.tree, 2400, &mut got);
        assert!(got.len() - from <= 2600);
        calls += 1;
        if all {
            break;
        }
        let at = calls * 4096 * 7 % (4096 * 2000);
        let punch = Fallocate::Punch;
        world.fallocate(ino, punch, (at, 4096 * 3)).expect("it can");
    }
    assert!(calls > extents * 24 / 2600);
    assert_eq!(decode(&got), decode(&expected));
    world.verify();
}
