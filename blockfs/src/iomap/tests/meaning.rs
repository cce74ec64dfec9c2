//! The rules of what mappings mean, S16 to S23: one table a rule.

use super::{Failure, Leave, Script, Turn, body, walk, walk_script};
use crate::iomap::{
    Begun, Corruption, IomapIter, MapError, MapOps, Mapping, MappingFlags, MappingKind, OpFlags,
    Request,
};
use std::cell::{Cell, RefCell};

const WRITE: OpFlags = OpFlags::WRITE;

fn corrupt(what: Corruption) -> Result<(), Failure> {
    Err(Failure::Map(MapError::Corrupt { pos: 0, what }))
}

/// S16: existing data come from the source if there is a real one, and never in direct I/O; only
/// what is shared and has mapped data is worth unsharing.
#[test]
fn s16_source() {
    let here = Mapping::mapped(1000, 0, 8);
    let shared = here.with_flags(MappingFlags::SHARED);
    let there = Mapping::mapped(2000, 0, 8);
    let table = [
        (Turn::new(here), WRITE, here, false),
        (Turn::new(here).source(there), WRITE, there, false),
        (
            Turn::new(here).source(Mapping::hole(0, 8)),
            WRITE,
            here,
            false,
        ),
        (
            Turn::new(here).source(there),
            WRITE | OpFlags::DIRECT,
            here,
            false,
        ),
        (
            Turn::new(shared).source(there),
            WRITE | OpFlags::UNSHARE,
            there,
            true,
        ),
        (Turn::new(shared), WRITE | OpFlags::UNSHARE, shared, false),
        (
            Turn::new(shared).source(Mapping::hole(0, 8)),
            WRITE | OpFlags::UNSHARE,
            shared,
            false,
        ),
        (
            Turn::new(shared).source(Mapping::unwritten(2000, 0, 8)),
            WRITE | OpFlags::UNSHARE,
            Mapping::unwritten(2000, 0, 8),
            false,
        ),
    ];
    for (turn, op, read_from, unshare) in table {
        let mut script = Script::<true>::new(&[turn]);
        let mut iter = IomapIter::new(&mut script, 0, 8, op).unwrap();
        let step = iter.next_step().unwrap().unwrap();
        assert_eq!(
            (*step.read_from(), step.wants_unshare()),
            (read_from, unshare),
            "{turn:?}"
        );
    }
}

/// Ops that answer with one mapping and lend some inline data.
struct Inline(Mapping, &'static [u8]);

impl MapOps for Inline {
    type Error = MapError;
    type Private = ();
    type Held = &'static [u8];
    const HAS_END: bool = false;

    fn size(&self) -> u64 {
        self.0.length()
    }

    fn begin(&mut self, _: Request) -> Result<Begun<(), &'static [u8]>, MapError> {
        Ok(Begun {
            mapping: self.0,
            source: None,
            private: (),
            held: self.1,
        })
    }

    fn inline_data<'s>(held: &'s &'static [u8]) -> &'s [u8] {
        held
    }
}

/// S17: only mapped and unwritten have an address; a write is never answered with a hole; inline
/// data are bounded by their buffer.
#[test]
fn s17_kinds() {
    let all = [
        (Mapping::hole(0, 8), None),
        (Mapping::delalloc(0, 8), None),
        (Mapping::mapped(500, 0, 8), Some(503)),
        (Mapping::unwritten(500, 0, 8), Some(503)),
        (Mapping::inline(0, 8), None),
    ];
    for (mapping, addr) in all {
        assert_eq!(mapping.device_addr(3), addr, "{mapping:?}");
        assert_eq!(mapping.addr().is_some(), addr.is_some());
        assert_eq!(mapping.kind().has_address(), addr.is_some());
    }

    let hole = Turn::new(Mapping::hole(0, 8));
    let table = [
        (OpFlags::READ, Ok(())),
        (OpFlags::REPORT, Ok(())),
        (OpFlags::ZERO, Ok(())),
        (WRITE, corrupt(Corruption::HoleForWrite)),
        (WRITE | OpFlags::DIRECT, corrupt(Corruption::HoleForWrite)),
        (WRITE | OpFlags::ZERO, Ok(())),
        (WRITE | OpFlags::UNSHARE, Ok(())),
    ];
    for (op, result) in table {
        let outcome = walk::<true>(&[hole], (0, 8, op), &[body(&[8], Leave::Drop)]);
        assert_eq!(outcome.result, result, "{op:?}");
    }

    for (length, pos, data) in [
        (6, 0, Some("inline")),
        (6, 2, Some("line")),
        (5, 1, Some("nlin")),
        (7, 0, None),
    ] {
        let ops = Inline(Mapping::inline(0, length), b"inline");
        let mut iter = IomapIter::new(ops, pos, 100, OpFlags::READ).unwrap();
        match (iter.next_step(), data) {
            (Ok(Some(mut step)), Some(data)) => {
                assert_eq!(step.inline_data(), Some(data.as_bytes()));
                step.advance(1).unwrap();
                assert_eq!(step.inline_data(), Some(&data.as_bytes()[1..]));
            }
            (Err(MapError::Corrupt { what, .. }), None) => {
                assert_eq!(what, Corruption::InlineTooLong);
            }
            (other, _) => panic!("{length} {pos}: {other:?}"),
        }
    }
    let mut iter =
        IomapIter::new(Inline(Mapping::hole(0, 6), b"inline"), 0, 6, OpFlags::READ).unwrap();
    assert_eq!(iter.next_step().unwrap().unwrap().inline_data(), None);
}

/// S18: without waiting means all of it in one mapping, or "would block".
#[test]
fn s18_nowait() {
    let table = [
        (OpFlags::NOWAIT, 8, Ok(())),
        (OpFlags::NOWAIT, 100, Ok(())),
        (OpFlags::NOWAIT, 7, Err(Failure::Map(MapError::WouldBlock))),
        (
            WRITE | OpFlags::NOWAIT,
            7,
            Err(Failure::Map(MapError::WouldBlock)),
        ),
        (WRITE, 7, Ok(())),
    ];
    for (op, length, result) in table {
        let turns = [
            Turn::new(Mapping::mapped(0, 0, length)),
            Turn::new(Mapping::mapped(0, 7, 1)),
        ];
        let bodies = [body(&[length.min(8)], Leave::Drop), body(&[1], Leave::Drop)];
        let outcome = walk::<true>(&turns, (0, 8, op), &bodies);
        assert_eq!(outcome.result, result, "{op:?} {length}");
        if result.is_err() {
            assert_eq!(
                (outcome.pos, outcome.begins().len()),
                (0, 1),
                "nothing happened"
            );
        }
    }
}

/// S19: data over data within the file, or "would block".
#[test]
fn s19_overwrite_only() {
    let op = WRITE | OpFlags::OVERWRITE_ONLY;
    let mapped = Mapping::mapped(0, 0, 8);
    let table = [
        (mapped, true),
        (mapped.with_flags(MappingFlags::DIRTY), true),
        (mapped.with_flags(MappingFlags::NEW), false),
        (mapped.with_flags(MappingFlags::SHARED), false),
        (Mapping::unwritten(0, 0, 8), false),
        (Mapping::delalloc(0, 8), false),
    ];
    let would_block = Err(Failure::Map(MapError::WouldBlock));
    for (mapping, fine) in table {
        let outcome = walk::<true>(
            &[Turn::new(mapping)],
            (0, 8, op),
            &[body(&[8], Leave::Drop)],
        );
        assert_eq!(
            outcome.result,
            if fine { Ok(()) } else { would_block },
            "{mapping:?}"
        );
    }
    // Beyond the end of the file it does not even begin.
    for (size, op, fine) in [
        (8, op, true),
        (7, op, false),
        (0, op, false),
        (0, WRITE, true),
    ] {
        let mut script = Script::<true>::new(&[Turn::new(mapped)]);
        script.size = size;
        let made = IomapIter::new(&mut script, 0, 8, op).map(drop);
        assert_eq!(
            made,
            if fine {
                Ok(())
            } else {
                Err(MapError::WouldBlock)
            },
            "{size}"
        );
        assert!(script.log.take().is_empty());
    }
}

/// S20: one mapping, one command, the whole length, or an error.
#[test]
fn s20_atomic() {
    let op = WRITE | OpFlags::ATOMIC;
    let error = |covered| MapError::NotAtomic { wanted: 8, covered };
    for length in [1, 7] {
        let outcome = walk::<true>(&[Turn::new(Mapping::mapped(0, 0, length))], (0, 8, op), &[]);
        assert_eq!(outcome.result, Err(Failure::Map(error(length))));
    }
    let table: [(&[u64], u64, Vec<MapError>); 3] = [
        (&[8], 8, vec![]),
        (&[0, 8], 8, vec![]),
        (&[4, 4], 0, vec![error(4), error(4)]),
    ];
    for (advances, pos, refused) in table {
        let turn = Turn::new(Mapping::mapped(0, 0, 9));
        let outcome = walk::<true>(&[turn], (0, 8, op), &[body(advances, Leave::Drop)]);
        assert_eq!(
            (outcome.pos, outcome.refused),
            (pos, refused),
            "{advances:?}"
        );
    }
}

/// S21: a cookie that is not the current one makes the mapping stale; it cannot be advanced over,
/// and is looked up again.
#[test]
fn s21_cookie() {
    for (current, valid) in [(5, true), (6, false), (0, false)] {
        let old = Turn::new(Mapping::mapped(0, 0, 8).with_cookie(5));
        let new = Turn::new(Mapping::mapped(0, 0, 8).with_cookie(current));
        let mut script = Script::<true>::new(&[old, new]);
        let mut iter = IomapIter::new(&mut script, 0, 8, OpFlags::READ).unwrap();
        let mut step = iter.next_step().unwrap().unwrap();
        assert_eq!(step.revalidate(current), valid);
        if valid {
            assert_eq!(step.advance(8), Ok(()));
            drop(step);
            assert!(matches!(iter.next_step(), Ok(None)));
        } else {
            assert_eq!(step.advance(8), Err(MapError::AdvanceStale));
            drop(step);
            let mut step = iter.next_step().unwrap().unwrap();
            assert!(step.revalidate(current));
            assert_eq!(step.pos(), 0);
        }
    }
}

/// A file whose map has a lock, and a count of I/O in flight.
#[derive(Default)]
struct Locked {
    map: RefCell<u64>,
    in_flight: Cell<u32>,
}

struct Flight<'a>(&'a Cell<u32>);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Locked {
    fn fly(&self) -> Flight<'_> {
        self.in_flight.set(self.in_flight.get() + 1);
        Flight(&self.in_flight)
    }

    /// Moves the file's blocks, unless I/O is in flight.
    fn punch(&self) -> bool {
        let mut map = self.map.try_borrow_mut().expect("the map's lock is free");
        let quiet = self.in_flight.get() == 0;
        *map += u64::from(quiet);
        quiet
    }
}

impl MapOps for &Locked {
    type Error = MapError;
    type Private = ();
    type Held = ();
    const HAS_END: bool = true;

    fn size(&self) -> u64 {
        8
    }

    fn begin(&mut self, request: Request) -> Result<Begun, MapError> {
        let map = self.map.try_borrow_mut().expect("the map's lock is free");
        Ok(Mapping::mapped(*map * 100, request.pos, 1).into())
    }
}

/// S22: nothing is locked between `begin` and `end`; what keeps blocks in place is the count of I/O
/// in flight.
#[test]
fn s22_no_lock_between_begin_and_end() {
    let file = Locked::default();
    for flying in [true, false] {
        let flight = flying.then(|| file.fly());
        let before = *file.map.borrow();
        let mut iter = IomapIter::new(&file, 0, 8, OpFlags::DIRECT).unwrap();
        while let Some(mut step) = iter.next_step().unwrap() {
            assert_eq!(
                file.punch(),
                !flying,
                "the lock was free, the count decided"
            );
            step.advance(1).unwrap();
        }
        assert_eq!(*file.map.borrow() - before, if flying { 0 } else { 8 });
        drop(flight);
        assert_eq!(file.in_flight.get(), 0);
    }
}

/// S23: I/O goes on in the next mapping only if it is contiguous and alike and no boundary is
/// between; having been merged for a report makes no difference.
#[test]
fn s23_boundaries_and_merging() {
    let a = Mapping::mapped(1000, 0, 8);
    let b = Mapping::mapped(1008, 8, 8);
    let flag = |mapping: Mapping, flags| mapping.with_flags(flags);
    let table = [
        (a, b, true),
        (flag(a, MappingFlags::MERGED), b, true),
        (a, flag(b, MappingFlags::MERGED), true),
        (flag(a, MappingFlags::BOUNDARY), b, true),
        (a, flag(b, MappingFlags::BOUNDARY), false),
        (
            flag(a, MappingFlags::BOUNDARY),
            flag(b, MappingFlags::BOUNDARY),
            false,
        ),
        (flag(a, MappingFlags::NEW), b, false),
        (flag(a, MappingFlags::NEW), flag(b, MappingFlags::NEW), true),
        (a, Mapping::mapped(1009, 8, 8), false),
        (a, Mapping::mapped(1008, 9, 8), false),
        (a, Mapping::unwritten(1008, 8, 8), false),
        (Mapping::hole(0, 8), Mapping::hole(8, 8), true),
        (Mapping::hole(0, 8), Mapping::hole(9, 8), false),
        (
            Mapping::mapped(u64::MAX, 0, 8),
            Mapping::mapped(7, 8, 8),
            false,
        ),
    ];
    for (first, second, goes_on) in table {
        assert_eq!(first.continues_in(&second), goes_on, "{first:?} {second:?}");
    }
    assert_eq!(a.kind(), MappingKind::Mapped);
    // The iterator itself never merges: each answer is a step of its own.
    let bodies = [body(&[8], Leave::Drop), body(&[8], Leave::Drop)];
    let mut script = Script::<true>::new(&[Turn::new(a), Turn::new(b)]);
    let outcome = walk_script(&mut script, (0, 16, OpFlags::READ), &bodies);
    assert_eq!(outcome.begins(), [(0, 16), (8, 8)]);
}
