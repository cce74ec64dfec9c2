//! Power cuts: the state is always one that a prefix of the records leaves, none before the last durable.

use super::fake::Random;
use super::*;
use crate::tree::PosixError;

/// One random change; a volume that is full of metadata gets none.
fn change(volume: &mut Volume, random: &mut Random) {
    let tree = &volume.tree;
    let name = format!("name-{}", random.below(6));
    let value = vec![
        u8::try_from(random.below(256)).unwrap();
        usize::try_from(random.below(3000)).unwrap()
    ];
    let root = ROOT_INO;
    let plan = match random.below(6) {
        0 | 1 => tree.plan_create(root, name.as_bytes(), NODE),
        2 => tree.plan_unlink(root, name.as_bytes(), |_| false, 3),
        3 => tree.plan_label(name.as_bytes()),
        _ => tree
            .resolve(root, name.as_bytes(), true)
            .and_then(|ino| tree.plan_set_xattr(ino, (b"user.a", &value), XattrMode::Set, 4)),
    };
    match plan {
        Ok(plan) if !plan.ops.is_empty() => drop(volume.change(&plan)),
        Ok(_) | Err(PosixError::NotFound | PosixError::Exists | PosixError::NoSpace) => {}
        Err(error) => panic!("{error}"),
    }
}

fn step(volume: &mut Volume, random: &mut Random) {
    match random.below(16) {
        0 => drop(volume.journal.checkpoint()),
        1 => volume.journal.data_written(),
        2 => drop(volume.journal.flush()),
        3 => volume.fake.hold(random.below(2) == 0),
        4 | 5 => volume.journal.commit(),
        6 => (0..random.below(40)).for_each(|_| change(volume, random)),
        7..10 => change(volume, random),
        _ => (0..random.below(12)).for_each(|_| volume.pump()),
    }
}

/// One volume, used and cut off again and again. Says how many records were replayed, and torn.
fn lives(seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let lba_bytes = [512, 4096][usize::try_from(random.below(2)).unwrap()];
    let mut volume = fresh(lba_bytes, random.below(3) > 0, seed);
    let (mut replayed, mut torn) = (0, 0);
    for life in 0..8 {
        for _ in 0..random.below(120) {
            step(&mut volume, &mut random);
        }
        let reader = mount(volume.cut(&mut random), LoadMode::ReadOnly)
            .unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
        let state = reader.tree.state_hash();
        assert!(
            volume.may_leave(state),
            "seed {seed}, life {life}: no prefix"
        );

        let fake = volume.cut(&mut random);
        fake.hold(false);
        let next = mount(fake, LoadMode::ReadWrite)
            .unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
        assert!(
            volume.may_leave(next.tree.state_hash()),
            "seed {seed}, life {life}"
        );
        assert!(
            next.journal.durable() >= volume.journal.durable(),
            "seed {seed}, life {life}"
        );
        // The power goes again, right after the mount.
        let again = mount(next.cut(&mut random), LoadMode::ReadOnly)
            .unwrap_or_else(|error| panic!("seed {seed}, life {life}, again: {error}"));
        assert_eq!(
            again.tree.state_hash(),
            next.tree.state_hash(),
            "seed {seed}, life {life}"
        );
        replayed += next.report.records;
        torn += u64::from(next.report.torn);
        volume = next;
    }
    (replayed, torn)
}

/// Random volumes with eight lives each.
#[test]
fn any_cut_leaves_a_prefix() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(1..60, |seed: u64| seed..seed + 1);
    let mut sum = (0, 0);
    for seed in seeds {
        let (replayed, torn) = lives(seed);
        sum = (sum.0 + replayed, sum.1 + torn);
    }
    assert!(
        sum.0 > 0 && (seed.is_some() || sum.1 > 0),
        "{sum:?}: this proves nothing"
    );
    println!("{} records replayed, {} torn", sum.0, sum.1);
}

/// A power cut in mkfs leaves what was there, no volume, or the new one.
#[test]
fn a_cut_in_mkfs() {
    let mut random = Random::new(20);
    let mut seen = [0; 3];
    for seed in 0..60 {
        let mut volume = fresh(512, true, seed);
        volume.create("old");
        let fake = volume.close();
        // A limit of some turns of the waiting loop: mkfs gives up in its middle.
        fake.hold(false);
        let steps = random.below(12);
        fake.fail(Some(fake::Failing {
            kind: [fake::Kind::Write, fake::Kind::Flush][usize::try_from(seed % 2).unwrap()],
            after: steps,
            status: driver::spec::Status::INTERNAL_ERROR,
        }));
        let made = mkfs(&mut fake.clone(), domain(), &Ticking::default(), &options());
        let image = fake.cut(&mut random);
        let found = mount(Fake::new(image, 512, true, seed), LoadMode::ReadOnly);
        let what = match found {
            Ok(found) if found.tree.totals().inodes == 2 => 0,
            Ok(_) => 2,
            Err(_) => 1,
        };
        assert!(
            made.is_err() || what == 2,
            "seed {seed}: done, and not there"
        );
        seen[what] += 1;
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}
