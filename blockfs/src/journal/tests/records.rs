//! Records, flushes, checkpoints, unmounting, on a drive that works.

use super::fake::{Fake, Kind, Random, Ticking};
use super::*;
use crate::device::BlockDevice;
use crate::format::geometry::MAX_RECORD_BYTES;
use crate::format::op::{Extent, MAX_NAME_BYTES, Op};
use crate::format::{LbaSize, Twin};
use crate::journal::JournalError;

fn kinds(fake: &Fake) -> Vec<Kind> {
    fake.take_log().into_iter().map(|(kind, ..)| kind).collect()
}

/// A new volume has a root and its label, was unmounted, and has nothing to replay.
#[test]
fn a_new_volume_loads() {
    for (lba_bytes, cache) in [(512, true), (4096, false)] {
        let volume = mount(made(lba_bytes, cache, 1), LoadMode::ReadOnly).unwrap();
        assert_eq!(volume.tree.label(), b"first");
        assert_eq!(volume.tree.totals().inodes, 1);
        assert!(volume.report.clean && volume.report.twin_valid);
        assert_eq!(volume.report.records, 0);
    }
}

/// A new volume on a drive that had one of the same UUID has nothing of it, not even records.
#[test]
fn a_second_mkfs_leaves_nothing_of_the_first() {
    for lba_bytes in [512, 4096] {
        let mut volume = fresh(lba_bytes, true, 2);
        let ino = volume.create("old");
        for byte in 0..40 {
            volume.fill(ino, 2000, byte);
            volume.commit();
        }
        let mut fake = volume.fake.clone();
        mkfs(&mut fake, domain(), &Ticking::default(), &options()).unwrap();
        let volume = mount(fake.clone(), LoadMode::ReadWrite).unwrap();
        drop(volume.journal);
        // Not unmounted: now the ring is looked at.
        let volume = mount(fake, LoadMode::ReadWrite).unwrap();
        assert_eq!((volume.report.records, volume.tree.totals().inodes), (0, 1));
    }
}

/// What was committed is replayed; mounting twice gives the same.
#[test]
fn records_are_replayed() {
    for (lba_bytes, cache) in [(512, true), (4096, false)] {
        let mut volume = fresh(lba_bytes, cache, 3);
        for name in ["a", "b", "c"] {
            volume.create(name);
            volume.commit();
        }
        let state = volume.tree.state_hash();
        for _ in 0..2 {
            let again = volume.reader();
            assert_eq!((again.report.records, again.tree.state_hash()), (3, state));
            assert_eq!(again.journal.durable(), volume.journal.durable());
        }
    }
}

/// The order and the number of commands: data written: flush, and the record when it has ended; none:
/// the record alone; FUA with a volatile cache; neither without one.
#[test]
fn a_commit_is_a_flush_if_needed_and_a_record() {
    let mut volume = fresh(512, true, 4);
    volume.fake.take_log();
    volume.create("a");
    volume.commit();
    assert_eq!(kinds(&volume.fake), [Kind::Fua]);

    volume.journal.data_written();
    volume.create("b");
    let flush = volume.journal.flush();
    volume.fake.hold(true);
    volume.journal.commit();
    for _ in 0..10 {
        volume.pump();
    }
    assert_eq!(
        kinds(&volume.fake),
        [Kind::Flush],
        "no record before the data"
    );
    volume.fake.hold(false);
    volume.commit();
    assert!(volume.journal.flushed(flush));
    assert_eq!(
        kinds(&volume.fake),
        [Kind::Fua],
        "the record's flush was enough"
    );

    let mut volume = fresh(512, false, 4);
    volume.fake.take_log();
    volume.journal.data_written();
    volume.create("a");
    let flush = volume.journal.flush();
    assert!(volume.journal.flushed(flush));
    volume.commit();
    assert_eq!(kinds(&volume.fake), [Kind::Write]);
}

/// A record whose data were flushed does not wait for somebody else's flush.
#[test]
fn a_record_waits_for_its_own_flush_only() {
    let mut volume = fresh(512, true, 5);
    volume.journal.data_written();
    let first = volume.journal.flush();
    volume.until(|journal| journal.flushed(first));
    volume.fake.take_log();
    volume.fake.hold(true);
    volume.journal.data_written();
    let second = volume.journal.flush();
    volume.pump();
    volume.journal.checkpoint();
    assert_eq!(kinds(&volume.fake), [Kind::Flush]);
    volume.create("a");
    volume.journal.commit();
    volume.pump();
    assert!(
        kinds(&volume.fake).iter().all(|kind| *kind == Kind::Write),
        "pages at most"
    );
    volume.fake.hold(false);
    volume.commit();
    assert!(volume.journal.flushed(second));

    volume.checkpoint();
    volume.fake.take_log();
    volume.fake.hold(true);
    // A flush without data before it, as a checkpoint has.
    volume.journal.begin_flush().unwrap();
    volume.create("b");
    volume.journal.commit();
    volume.pump();
    assert_eq!(kinds(&volume.fake), [Kind::Flush, Kind::Fua]);
}

/// Changes made while a record is on its way go into the next one together, and in order.
#[test]
fn group_commit() {
    let mut volume = fresh(512, true, 6);
    volume.create("first");
    volume.fake.hold(true);
    volume.journal.commit();
    volume.pump();
    volume.fake.take_log();
    for name in ["a", "b", "c", "d"] {
        volume.create(name);
        volume.journal.commit();
        volume.pump();
    }
    assert_eq!(kinds(&volume.fake), [], "one record is under way at a time");
    volume.fake.hold(false);
    volume.commit();
    assert_eq!(kinds(&volume.fake), [Kind::Fua]);
    let again = volume.reader();
    assert_eq!(again.report.records, 2);
    assert_eq!(again.tree.state_hash(), volume.tree.state_hash());
}

/// Read only and salvage write nothing, whatever there is to replay, and refuse changes.
#[test]
fn reading_writes_nothing() {
    let mut volume = fresh(512, true, 7);
    volume.create("a");
    volume.commit();
    let before = volume.fake.image();
    for mode in [LoadMode::ReadOnly, LoadMode::Salvage] {
        volume.fake.take_log();
        let mut reader = mount(volume.fake.clone(), mode).unwrap();
        let refused = reader.journal.append(&[Op::AddOrphan { ino: 2 }]);
        assert!(matches!(refused, Err(JournalError::ReadOnly)));
        reader.pump();
        reader.close();
        assert!(kinds(&volume.fake).iter().all(|kind| *kind == Kind::Read));
        assert_eq!(volume.fake.image(), before);
    }
}

/// A mount for writing flushes what a process may have left in the cache before it calls it known.
#[test]
fn a_mount_flushes_before_its_superblock() {
    for (cache, wanted) in [
        (true, &[Kind::Flush, Kind::Fua][..]),
        (false, &[Kind::Write]),
    ] {
        let volume = fresh(512, cache, 17);
        volume.fake.take_log();
        drop(mount(volume.fake.clone(), LoadMode::ReadWrite).unwrap());
        let mut found = kinds(&volume.fake);
        found.retain(|kind| *kind != Kind::Read);
        assert_eq!(found, wanted);
    }
}

/// The ring is used again and again; the state is right after each of many turns, and checkpoints
/// start by themselves.
#[test]
fn the_ring_wraps() {
    for lba_bytes in [512, 4096] {
        let mut volume = fresh(lba_bytes, true, 8);
        let ino = volume.create("a");
        let mut random = Random::new(8);
        for turn in 0..300_u64 {
            let bytes = usize::try_from(random.below(4000)).unwrap();
            volume.fill(ino, bytes, u8::try_from(turn % 251).unwrap());
            volume.commit();
            if turn % 37 == 0 {
                let again = volume.reader();
                assert_eq!(again.tree.state_hash(), volume.tree.state_hash());
            }
        }
        let generation = volume.journal.superblock().generation;
        assert!(generation > 10, "{generation} superblocks");
        let state = volume.tree.state_hash();
        let fake = volume.close();
        let again = mount(fake, LoadMode::ReadOnly).unwrap();
        assert!(again.report.clean);
        assert_eq!((again.report.records, again.tree.state_hash()), (0, state));
    }
}

/// Superblocks alternate: even generations at copy A, odd ones at copy B, one at a time.
#[test]
fn superblocks_alternate() {
    let mut volume = fresh(512, true, 9);
    let places = [Twin::A, Twin::B].map(|copy| Geometry::superblock_lba(LbaSize::B512, copy).0);
    volume.fake.take_log();
    let mut written = Vec::new();
    for name in ["a", "b", "c", "d"] {
        volume.create(name);
        volume.checkpoint();
        let superblock = volume.journal.superblock();
        let place = places[usize::try_from(superblock.generation % 2).unwrap()];
        written.push(place);
    }
    let log = volume.fake.take_log();
    let superblocks: Vec<u64> = log
        .iter()
        .filter(|(kind, lba, _)| *kind == Kind::Fua && places.contains(&(*lba as u64)))
        .map(|(_, lba, _)| *lba as u64)
        .collect();
    assert_eq!(superblocks, written);
    assert!(written.windows(2).all(|pair| pair[0] != pair[1]));
}

/// What is changed while a checkpoint is on its way is not in it, and not lost.
#[test]
fn changes_during_a_checkpoint() {
    let mut volume = fresh(512, true, 10);
    for nth in 0..60 {
        volume.create(&format!("{nth}-{}", "n".repeat(100)));
        volume.commit();
    }
    let wanted = volume.journal.checkpoint();
    volume.pump();
    let mut meanwhile = 0;
    while !volume.journal.checkpointed(wanted) {
        volume.create(&format!("meanwhile-{meanwhile}"));
        volume.journal.commit();
        volume.pump();
        meanwhile += 1;
    }
    volume.commit();
    assert!(meanwhile > 2, "{meanwhile}");
    let again = volume.reader();
    assert_eq!(again.tree.state_hash(), volume.tree.state_hash());
    assert!(again.report.records > 0);
}

/// More than the ring holds is appended at once: the checkpoint has it, no record follows the gap
/// before the superblock says so, and all of it is durable in the end.
#[test]
fn more_than_the_ring_holds() {
    let mut volume = fresh(512, true, 11);
    let inos = [volume.create("a"), volume.create("b")];
    volume.commit();
    for byte in 0..60 {
        volume.fill(inos[usize::from(byte % 2)], 3900, byte);
    }
    volume.create("small");
    assert!(volume.journal.must_wait());
    volume.commit();
    let again = volume.reader();
    assert_eq!(again.tree.state_hash(), volume.tree.state_hash());
    assert!(!volume.journal.must_wait());
}

/// A record that would fit the ring behind records that were dropped is not written before the
/// superblock is on the medium: a power cut in between leaves no gap.
#[test]
fn no_record_behind_a_gap() {
    let mut volume = fresh(512, true, 18);
    let ino = volume.create("a");
    volume.commit();
    for byte in 0..60 {
        volume.fill(ino, 3900, byte);
    }
    volume.journal.commit();
    let has_gap = |journal: &Journal<Fake>| {
        let checkpoint = journal.checkpoint.as_ref();
        checkpoint.is_some_and(|checkpoint| checkpoint.has_gap())
    };
    volume.until(has_gap);
    volume.fake.hold(true);
    volume.create("small");
    volume.journal.commit();
    for _ in 0..10 {
        volume.pump();
    }
    let mut random = Random::new(18);
    for _ in 0..20 {
        let left = mount(volume.cut(&mut random), LoadMode::ReadOnly).unwrap();
        assert!(volume.may_leave(left.tree.state_hash()));
    }
    volume.fake.hold(false);
    volume.commit();
    assert_eq!(volume.reader().tree.state_hash(), volume.tree.state_hash());
}

/// Near its end the ring lets fewer and fewer changes pass, not none at once; and never for good.
#[test]
fn the_throttle_is_gradual() {
    let mut volume = fresh(512, true, 12);
    for name in 0..100 {
        volume.create(&format!("{name}-{}", "n".repeat(MAX_NAME_BYTES - 10)));
        volume.commit();
    }
    let ino = volume.create("a");
    volume.checkpoint();
    let polls = 100;
    volume.fake.slow(polls);
    let (mut waits, mut longest) = (0, 0);
    for byte in 0..1000_u64 {
        let mut turns = 0;
        while volume.journal.must_wait() {
            volume.pump();
            turns += 1;
            assert!(turns < 10_000);
        }
        waits += u32::from(turns > 0);
        longest = longest.max(turns);
        volume.fill(ino, 300, u8::try_from(byte % 251).unwrap());
        volume.journal.commit();
        volume.pump();
    }
    assert!(waits > 0, "nothing ever waited: this proves nothing");
    assert!(longest < 3 * polls, "{longest}");
    println!("{waits} waits in 1000 changes, the longest {longest} pumps");
}

/// A queue of one command is enough.
#[test]
fn a_narrow_queue() {
    let fake = made(512, true, 13);
    fake.depth(1);
    let mut volume = mount(fake, LoadMode::ReadWrite).unwrap();
    let ino = volume.create("a");
    for byte in 0..100 {
        volume.journal.data_written();
        volume.fill(ino, 3000, byte);
        let flush = volume.journal.flush();
        volume.commit();
        volume.until(|journal| journal.flushed(flush));
    }
    let state = volume.tree.state_hash();
    let again = mount(volume.close(), LoadMode::ReadOnly).unwrap();
    assert_eq!(again.tree.state_hash(), state);
}

/// Operations that no record can take are known before, and would stop the journal.
#[test]
fn what_does_not_fit_a_record() {
    let mut volume = fresh(512, true, 14);
    let ino = volume.create("a");
    let room = volume.geometry.max_record_bytes();
    assert!(room < MAX_RECORD_BYTES);
    let extents: Vec<Op<'_>> = (0..room / 24)
        .map(|nth| Op::MapExtent {
            ino,
            extent: Extent {
                lblk: nth * 2,
                pblk: 1000 + u64::from(nth) * 2,
                len: 1,
                unwritten: false,
            },
        })
        .collect();
    assert!(volume.journal.fits(&extents).is_err());
    assert!(volume.journal.fits(&extents[..extents.len() / 2]).is_ok());
    volume.journal.fits(&[Op::AddOrphan { ino }]).unwrap();
    assert!(volume.journal.append(&extents).is_err());
    assert!(volume.journal.failed().is_some());
}

/// The volume grows: by the record alone, and with its geometry copy after the next checkpoint.
#[test]
fn growing() {
    let image = made(512, true, 15).image();
    let mut larger = image.clone();
    larger.resize(image.len() + (64 << 10), 0);
    let fake = Fake::new(larger, 512, true, 15);
    let mut volume = mount(fake.clone(), LoadMode::ReadWrite).unwrap();
    let grown = volume.geometry.grown(fake.limits().blocks).unwrap();
    let plan = volume.tree.plan_grow(grown.volume_blocks).unwrap();
    volume.change(&plan);
    volume.journal.set_geometry(grown);
    volume.commit();
    let again = mount(Fake::new(fake.image(), 512, true, 1), LoadMode::ReadWrite).unwrap();
    assert_eq!((again.geometry, again.report.records), (grown, 1));
    let again = again.close();
    for fake in [again, volume.close()] {
        let last = usize::try_from(grown.geometry_copy_lba().0).unwrap();
        let copy = &fake.image()[last * 512..][..512];
        let copy = crate::format::superblock::Superblock::decode(
            copy,
            grown.geometry_copy_lba(),
            LbaSize::B512,
        );
        assert_eq!(copy.unwrap().geometry, grown);
        let volume = mount(fake, LoadMode::ReadOnly).unwrap();
        assert_eq!(volume.geometry, grown);
        assert!(volume.report.clean);
    }
}

/// Files of many extents come back from a checkpoint as they were, and can be changed.
#[test]
fn many_extents() {
    let mut volume = fresh(512, true, 16);
    let extents = |ino, step: u32| {
        let extents = (0..600).map(move |nth| Extent {
            lblk: nth * step,
            pblk: 300 - u64::from(nth % 40),
            len: 1,
            unwritten: true,
        });
        extents
            .map(move |extent| Op::MapExtent { ino, extent })
            .collect::<Vec<_>>()
    };
    for (name, step) in [("a", 2), ("b", 3), ("c", 1)] {
        let ino = volume.create(name);
        let ops = extents(ino, step);
        volume.tree.apply(&ops).unwrap();
        volume.journal.append(&ops).unwrap();
        volume.commit();
    }
    volume.checkpoint();
    let mut reader = volume.reader();
    assert_eq!(reader.report.records, 0);
    assert_eq!(reader.tree.totals(), volume.tree.totals());
    assert_eq!(reader.tree.state_hash(), volume.tree.state_hash());
    let [ino, lblk, len] = [2, 501, 100];
    let ops = [Op::UnmapRange {
        ino: ino.into(),
        lblk,
        len,
    }];
    for tree in [&mut reader.tree, &mut volume.tree] {
        tree.apply(&ops).unwrap();
    }
    assert_eq!(reader.tree.state_hash(), volume.tree.state_hash());
}
