//! The rules about going away from a step, and from the iteration, S11 to S15: one table a rule.

use super::{
    Body, Event, Failure, Leave, READ, Script, Turn, body, drop_after, mapped, walk, walk_script,
};
use crate::iomap::{IomapIter, MapError, Mapping, MappingFlags, MappingKind, OpFlags};
use std::mem;

/// S11: over is over: nothing is called any more, and `end` not twice. (That nobody looks at a
/// mapping after its step is the borrow checker's business.)
#[test]
fn s11_fused() {
    let table = [
        (mapped(0, 8), body(&[8], Leave::Drop)),
        (mapped(0, 8), body(&[], Leave::Drop)),
        (mapped(0, 8), body(&[4], Leave::Fail(1))),
        (mapped(0, 8), body(&[8], Leave::Finish)),
        (mapped(0, 8).end_fails(1), body(&[], Leave::Finish)),
        (mapped(0, 0), body(&[], Leave::Drop)),
        (Turn::begin_fails(1), body(&[], Leave::Drop)),
    ];
    for (turn, body) in table {
        // The walk asks again after its end; the script would fail on a second begin or end.
        let outcome = walk::<true>(&[turn], (0, 8, READ), std::slice::from_ref(&body));
        assert_eq!(outcome.begins().len(), 1, "{turn:?} {body:?}");
        assert!(outcome.ends().len() <= 1, "{turn:?} {body:?}");
    }
    // A leaked step cannot run its end; the next call says so instead of going on.
    let mut script = Script::<true>::new(&[mapped(0, 8)]);
    let mut iter = IomapIter::new(&mut script, 0, 8, READ).unwrap();
    mem::forget(iter.next_step().unwrap().unwrap());
    assert_eq!(
        iter.next_step().err(),
        Some(Failure::Map(MapError::StepLeaked))
    );
    assert!(matches!(iter.next_step(), Ok(None)));
}

/// S12: each begin's mapping is seen as it was answered, nothing of an earlier one shines through,
/// and what is absent is a hole without flags, private value or source.
#[test]
fn s12_nothing_is_left_over() {
    let loud = Mapping::mapped(77, 0, 4)
        .with_flags(MappingFlags::SHARED)
        .with_cookie(9);
    let table = [
        Mapping::hole(4, 4),
        Mapping::delalloc(4, 4),
        Mapping::mapped(5, 4, 4),
        Mapping::unwritten(5, 4, 4),
    ];
    for quiet in table {
        let turns = [
            Turn::new(loud).source(Mapping::mapped(1, 0, 4)),
            Turn::new(quiet),
        ];
        let mut script = Script::<true>::new(&turns);
        let mut iter = IomapIter::new(&mut script, 0, 8, READ).unwrap();
        let mut first = iter.next_step().unwrap().unwrap();
        first.mark_size_changed();
        first.advance(4).unwrap();
        drop(first);
        let second = iter.next_step().unwrap().unwrap();
        assert_eq!(*second.mapping(), quiet);
        assert_eq!(*second.read_from(), quiet, "the source was the first one's");
        assert_eq!(second.mapping().flags(), MappingFlags::NONE);
        assert_eq!(second.mapping().cookie(), 0);
        let has_address = matches!(quiet.kind(), MappingKind::Mapped | MappingKind::Unwritten);
        assert_eq!(second.mapping().addr().is_some(), has_address);
    }
}

/// S13: what a step owns is released on every way out, once, after its `end` and before the next
/// `begin`.
#[test]
fn s13_owned_things_are_released() {
    let two = [mapped(0, 4), mapped(4, 4)];
    let table: [(&str, &[Turn], Body, &[u32]); 11] = [
        ("continue", &two, drop_after(4), &[1, 2]),
        (
            "continue after finish",
            &two,
            body(&[4], Leave::Finish),
            &[1, 2],
        ),
        (
            "stale",
            &[mapped(0, 8); 2],
            body(&[], Leave::Stale),
            &[1, 2],
        ),
        ("done", &[mapped(0, 8)], drop_after(8), &[1]),
        ("no progress", &[mapped(0, 8)], drop_after(0), &[1]),
        (
            "status error",
            &[mapped(0, 8)],
            body(&[4], Leave::Fail(1)),
            &[1],
        ),
        (
            "end error",
            &[mapped(0, 8).end_fails(1)],
            drop_after(0),
            &[1],
        ),
        ("begin error", &[Turn::begin_fails(1)], drop_after(0), &[1]),
        (
            "later begin error",
            &[mapped(0, 4), Turn::begin_fails(1)],
            drop_after(4),
            &[1, 2],
        ),
        ("refused", &[mapped(9, 4)], drop_after(4), &[1]),
        (
            "early break",
            &[mapped(0, 8)],
            body(&[4], Leave::Break),
            &[1],
        ),
    ];
    for (way, turns, body, releases) in &table {
        for has_end in [true, false] {
            let run = if has_end { walk::<true> } else { walk::<false> };
            let outcome = run(turns, (0, 8, READ), std::slice::from_ref(body));
            assert_eq!(outcome.releases(), *releases, "{way}");
            let mut held = 0;
            for event in &outcome.events {
                match event {
                    Event::Begin(_) => {
                        assert_eq!(held, 0, "{way}: still held at the next begin");
                        held = 1;
                    }
                    Event::End { .. } => assert_eq!(held, 1, "{way}: released before its end"),
                    Event::Release(_) => held -= 1,
                    Event::Body { .. } => {}
                }
            }
            assert_eq!(held, 0, "{way}");
        }
    }
}

/// S13, unwinding: a body that panics releases what its step owns, and `end` hears how far it got.
#[test]
fn s13_released_when_a_body_panics() {
    let mut script = Script::<true>::new(&[mapped(0, 8)]);
    let log = std::rc::Rc::clone(&script.log);
    let walk = std::panic::AssertUnwindSafe(|| {
        let mut iter = IomapIter::new(&mut script, 0, 8, READ).unwrap();
        let mut step = iter.next_step().unwrap().unwrap();
        step.advance(3).unwrap();
        panic!("in the body, on purpose");
    });
    assert!(std::panic::catch_unwind(walk).is_err());
    let log = log.take();
    assert!(matches!(
        log[..],
        [
            Event::Begin(_),
            Event::End { written: 3, .. },
            Event::Release(1)
        ]
    ));
}

/// S14: the operation is the same for every begin and end, and the range moves by advances alone.
#[test]
fn s14_nothing_changes_on_the_way() {
    let table = [
        READ,
        OpFlags::WRITE | OpFlags::DIRECT,
        OpFlags::REPORT,
        OpFlags::ZERO,
    ];
    for op in table {
        let bodies = [drop_after(3), body(&[2], Leave::Stale), drop_after(3)];
        let outcome = walk::<true>(&[mapped(0, 8); 3], (0, 8, op), &bodies);
        for event in &outcome.events {
            if let Event::Begin(request) | Event::End { request, .. } = event {
                assert_eq!(request.op, op);
            }
        }
        assert_eq!(outcome.begins(), [(0, 8), (3, 5), (5, 3)]);
        let privates = outcome.events.iter().filter_map(|event| match event {
            Event::End { private, .. } => Some(*private),
            _ => None,
        });
        assert!(privates.eq(1..=3));
    }
}

/// S15: leaving the loop early, however, runs `end` with what was advanced; `finish` hands out its
/// error, and without it the next call does.
#[test]
fn s15_leaving_early_runs_end() {
    for by in [0, 3, 8] {
        let outcome = walk::<true>(&[mapped(0, 8)], (0, 20, READ), &[body(&[by], Leave::Break)]);
        assert_eq!((outcome.ends(), outcome.pos), (vec![(0, 8, by)], by));
    }
    fn question_mark(script: &mut Script<true>) -> Result<(), Failure> {
        let mut iter = IomapIter::new(script, 0, 8, READ)?;
        while let Some(mut step) = iter.next_step()? {
            step.advance(3)?;
            step.advance(6)?;
        }
        Ok(())
    }
    let mut script = Script::<true>::new(&[mapped(0, 8)]);
    let error = MapError::AdvanceTooFar { by: 6, usable: 5 };
    assert_eq!(question_mark(&mut script), Err(Failure::Map(error)));
    assert!(matches!(
        script.log.take()[..],
        [_, Event::End { written: 3, .. }, _]
    ));

    for explicit in [true, false] {
        let mut script = Script::<true>::new(&[mapped(0, 8).end_fails(6)]);
        let mut iter = IomapIter::new(&mut script, 0, 8, READ).unwrap();
        let step = iter.next_step().unwrap().unwrap();
        let error = if explicit {
            step.finish().err()
        } else {
            drop(step);
            iter.next_step().err()
        };
        assert_eq!(error, Some(Failure::End(6)));
        assert!(matches!(iter.next_step(), Ok(None)));
    }
    // With no `end` the same walk calls none; the script would panic.
    let mut script = Script::<false>::new(&[mapped(0, 8)]);
    let outcome = walk_script(&mut script, (0, 8, READ), &[body(&[3], Leave::Break)]);
    assert!(outcome.ends().is_empty());
}
