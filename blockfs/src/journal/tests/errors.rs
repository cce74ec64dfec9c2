//! Drives that fail, or do not answer.

use super::fake::{Failing, Kind};
use super::*;
use crate::journal::JournalError;
use driver::spec::Status;

/// After any failed record, flush, page or superblock nothing becomes durable any more, and everybody
/// is told so; what was durable is there.
#[test]
fn a_failure_stops_the_journal() {
    for kind in [Kind::Fua, Kind::Flush, Kind::Write] {
        for after in 0..3 {
            let mut volume = fresh(512, true, after);
            volume.create("safe");
            volume.commit();
            let status = Status::INTERNAL_ERROR;
            volume.fake.fail(Some(Failing {
                kind,
                after,
                status,
            }));
            let mut stopped = false;
            for nth in 0..100 {
                let name = format!("{nth}");
                let plan = volume.tree.plan_create(ROOT_INO, name.as_bytes(), NODE);
                let plan = plan.unwrap().ops;
                volume.tree.apply(&plan).unwrap();
                volume.journal.data_written();
                if let Err(error) = volume.journal.append(&plan) {
                    assert!(
                        matches!(error, JournalError::Device { status: found, .. } if found == status)
                    );
                    stopped = true;
                    break;
                }
                volume.journal.commit();
                volume.journal.checkpoint();
                for _ in 0..20 {
                    let _ = volume.journal.pump(&mut volume.tree);
                }
            }
            assert!(stopped, "{kind:?} {after}");
            volume.fake.fail(None);
            let durable = volume.journal.durable();
            volume.journal.commit();
            for _ in 0..50 {
                assert!(volume.journal.pump(&mut volume.tree).is_err());
            }
            assert_eq!(volume.journal.durable(), durable);
            assert!(
                !volume.journal.must_wait(),
                "nobody waits for what never comes"
            );
            let closed = volume.journal.close(&mut volume.tree, &volume.clock, LIMIT);
            assert!(matches!(closed, Err((JournalError::Device { .. }, _))));
            let again = mount(volume.fake.clone(), LoadMode::ReadWrite).unwrap();
            again.tree.resolve(ROOT_INO, b"safe", true).unwrap();
            assert!(again.journal.durable() >= durable);
        }
    }
}

/// A drive that does not answer costs its limit, and what it answers later is not taken for an answer
/// to something else.
#[test]
fn late_answers_are_nobodys() {
    let fake = made(512, true, 30);
    fake.hold(true);
    let late = mount(fake.clone(), LoadMode::ReadWrite);
    assert!(matches!(late, Err(JournalError::TimedOut { .. })));
    let late = mkfs(&mut fake.clone(), domain(), &Ticking::default(), &options());
    assert!(matches!(late, Err(JournalError::TimedOut { .. })));
    fake.hold(false);
    // The write of zeroes over copy A that mkfs gave up is still under way.
    let mut volume = mount(fake.clone(), LoadMode::ReadWrite).unwrap();
    volume.create("a");
    fake.hold(true);
    volume.journal.commit();
    volume.pump();
    let closed = volume.journal.close(&mut volume.tree, &volume.clock, LIMIT);
    assert!(matches!(closed, Err((JournalError::TimedOut { .. }, _))));
    fake.hold(false);
    let mut volume = mount(fake, LoadMode::ReadWrite).unwrap();
    volume.create("b");
    volume.commit();
    let state = volume.tree.state_hash();
    let again = mount(volume.close(), LoadMode::ReadOnly).unwrap();
    assert_eq!(again.tree.state_hash(), state);
}

/// A read that fails keeps the volume from being mounted; but a superblock that the drive cannot read
/// is what there are two of.
#[test]
fn reads_that_fail() {
    let mut volume = fresh(512, true, 31);
    volume.create("a");
    volume.commit();
    let state = volume.tree.state_hash();
    let ring = usize::try_from(volume.geometry.journal.start * 8).unwrap();
    let newest = volume.journal.superblock().copy();
    let newest = Geometry::superblock_lba(crate::format::LbaSize::B512, newest).0;
    let older = if newest == 0 { 2048 } else { 0 };
    for (lba, good) in [(older, true), (newest, true), (ring as u64, false)] {
        volume.fake.unreadable(&[usize::try_from(lba).unwrap()]);
        let again = mount(volume.fake.clone(), LoadMode::ReadOnly);
        match again {
            Ok(again) => {
                assert!(good, "LBA {lba}");
                assert!(!again.report.twin_valid);
                assert_eq!(again.tree.state_hash(), state);
            }
            Err(error) => assert!(!good, "LBA {lba}: {error}"),
        }
    }
    volume.fake.unreadable(&[ring]);
    let salvaged = mount(volume.fake.clone(), LoadMode::Salvage).unwrap();
    assert_eq!(salvaged.report.records, 0);
    volume.fake.unreadable(&[]);
    let status = Status::INTERNAL_ERROR;
    for after in 0..4 {
        volume.fake.fail(Some(Failing {
            kind: Kind::Read,
            after,
            status,
        }));
        assert!(mount(volume.fake.clone(), LoadMode::ReadOnly).is_err());
    }
}
