//! The rules of the protocol, S1 to S10: one table a rule.

use super::{Event, Failure, Leave, READ, Script, Turn, body, drop_after, mapped, walk};
use crate::iomap::{
    Corruption, IomapIter, MapError, Mapping, MappingFlags, OpFlags, Request, STALE_LIMIT,
};

/// S1: end of the last step, decision, release, begin, check, body; the first step has no end.
#[test]
fn s01_step_order() {
    /// Turns, bodies, and the order of (b)egin, (e)nd, (r)elease and (x) a body.
    type Case<'a> = (&'a [Turn], &'a [u64], &'a str);
    let table: [Case<'_>; 5] = [
        (&[mapped(0, 8)], &[8], "bxer"),
        (&[mapped(0, 4), mapped(4, 4)], &[4, 4], "bxerbxer"),
        (&[mapped(0, 4), Turn::begin_fails(1)], &[4], "bxerbr"),
        (&[mapped(0, 4), mapped(3, 1)], &[4], "bxerber"),
        (&[], &[], ""),
    ];
    for (turns, advances, order) in table {
        let bodies: Vec<_> = advances.iter().map(|by| drop_after(*by)).collect();
        let len = if turns.is_empty() { 0 } else { 8 };
        let outcome = walk::<true>(turns, (0, len, READ), &bodies);
        let letter = |event: &Event| match event {
            Event::Begin(_) => 'b',
            Event::End { .. } => 'e',
            Event::Release(_) => 'r',
            Event::Body { .. } => 'x',
        };
        assert_eq!(
            outcome.events.iter().map(letter).collect::<String>(),
            *order
        );
    }
}

/// S2: an answer must cover the first byte and make sense, and may be longer or shorter than asked;
/// what does not is a typed error, and `end` still runs.
#[test]
fn s02_mappings_are_checked() {
    let stale = Mapping::mapped(0, 100, 8).with_flags(MappingFlags::STALE);
    let good = Mapping::mapped(0, 0, 200);
    let table = [
        (Turn::new(Mapping::mapped(0, 100, 8)), None),
        (Turn::new(Mapping::mapped(0, 100, 1)), None),
        (Turn::new(good), None),
        (Turn::new(Mapping::mapped(0, 0, u64::MAX)), None),
        (
            Turn::new(Mapping::mapped(0, 100, 0)),
            Some(Corruption::Empty),
        ),
        (
            Turn::new(Mapping::mapped(0, 101, 8)),
            Some(Corruption::StartsBehind),
        ),
        (
            Turn::new(Mapping::mapped(0, 90, 10)),
            Some(Corruption::EndsBefore),
        ),
        (
            Turn::new(Mapping::hole(90, u64::MAX)),
            Some(Corruption::FileOverflow),
        ),
        (
            Turn::new(Mapping::mapped(u64::MAX - 7, 100, 8)),
            Some(Corruption::DeviceOverflow),
        ),
        (
            Turn::new(Mapping::unwritten(u64::MAX, 100, 1)),
            Some(Corruption::DeviceOverflow),
        ),
        (Turn::new(stale), Some(Corruption::Stale)),
        (
            Turn::new(good).source(Mapping::mapped(0, 100, 0)),
            Some(Corruption::Empty),
        ),
        (
            Turn::new(good).source(Mapping::mapped(0, 99, 1)),
            Some(Corruption::EndsBefore),
        ),
        (
            Turn::new(good).source(Mapping::mapped(0, 101, 1)),
            Some(Corruption::StartsBehind),
        ),
    ];
    for (turn, what) in table {
        let outcome = walk::<true>(&[turn], (100, 8, READ), &[]);
        let expected = what.map_or(Ok(()), |what| {
            Err(Failure::Map(MapError::Corrupt { pos: 100, what }))
        });
        assert_eq!(outcome.result, expected, "{turn:?}");
        assert_eq!(outcome.ends().len(), 1, "{turn:?}");
        if what.is_some() {
            assert_eq!(outcome.ends(), [(100, 0, 0)], "nothing of it was usable");
        }
        assert_eq!(outcome.releases(), [1]);
    }
}

/// S3: the usable length is the least of the range, the mapping and its source.
#[test]
fn s03_usable_length() {
    let source = |offset, length| Mapping::mapped(0, offset, length);
    let table = [
        (mapped(0, 100), 20),
        (mapped(0, 25), 15),
        (mapped(10, 1), 1),
        (mapped(0, 100).source(source(5, 8)), 3),
        (mapped(0, 12).source(source(0, 100)), 2),
        (mapped(0, 100).source(source(0, 100)), 20),
        (mapped(0, 100).source(Mapping::hole(0, 11)), 20),
    ];
    for (turn, usable) in table {
        let outcome = walk::<true>(&[turn], (10, 20, READ), &[]);
        assert_eq!(outcome.ends(), [(10, usable, 0)], "{turn:?}");
    }
}

/// S4: an advance beyond the usable length fails and changes nothing; others add up.
#[test]
fn s04_advance() {
    let too_far = |by, usable| MapError::AdvanceTooFar { by, usable };
    let table: [(&[u64], u64, Vec<MapError>); 6] = [
        (&[4, 4], 8, vec![]),
        (&[1, 2, 3], 6, vec![]),
        (&[0], 0, vec![]),
        (&[9], 0, vec![too_far(9, 8)]),
        (&[3, 6, 5], 8, vec![too_far(6, 5)]),
        (&[u64::MAX, 1], 1, vec![too_far(u64::MAX, 8)]),
    ];
    for (advances, sum, refused) in table {
        let outcome = walk::<true>(
            &[mapped(0, 8)],
            (0, 20, READ),
            &[body(advances, Leave::Break)],
        );
        assert_eq!(outcome.refused, refused, "{advances:?}");
        assert_eq!((outcome.pos, outcome.remaining), (sum, 20 - sum));
        assert_eq!(outcome.ends(), [(0, 8, sum)]);
    }
}

/// S5: one `end` for each `begin` that succeeded, with start, usable length, bytes advanced, the
/// same operation, the private value, and the flags set on the way.
#[test]
fn s05_end_is_told_everything() {
    let op = OpFlags::DIRECT | OpFlags::WRITE;
    let flags = MappingFlags::NEW;
    let turn = |offset| Turn::new(Mapping::mapped(0, offset, 10).with_flags(flags));
    let table = [
        (Leave::Drop, 10, flags),
        (Leave::Drop, 4, flags),
        (Leave::Drop, 0, flags),
        (Leave::Stale, 4, flags | MappingFlags::STALE),
        (Leave::Finish, 4, flags),
        (Leave::Break, 4, flags),
        (Leave::Fail(1), 4, flags),
    ];
    for (leave, by, flags) in table {
        let mut turns = vec![turn(0)];
        if by > 0 {
            turns.push(turn(by));
        }
        let outcome = walk::<true>(&turns, (0, 100, op), &[body(&[by], leave)]);
        let ends: Vec<_> = outcome
            .events
            .into_iter()
            .filter(|e| matches!(e, Event::End { .. }))
            .collect();
        let request = Request {
            pos: 0,
            len: 10,
            op,
        };
        let first = Event::End {
            request,
            written: by,
            private: 1,
            flags,
        };
        assert_eq!(ends.first(), Some(&first), "{leave:?}");
        let goes_on = by > 0 && !matches!(leave, Leave::Break | Leave::Fail(_));
        assert_eq!(ends.len(), if goes_on { 2 } else { 1 });
    }
    let mut script = Script::<true>::new(&[turn(0)]);
    let mut iter = IomapIter::new(&mut script, 0, 10, op).unwrap();
    iter.next_step().unwrap().unwrap().mark_size_changed();
    let log = script.log.take();
    let seen = MappingFlags::NEW | MappingFlags::SIZE_CHANGED;
    assert!(
        log.iter()
            .any(|e| matches!(e, Event::End { flags, .. } if *flags == seen))
    );
}

/// S6: a `begin` that failed gets no `end`.
#[test]
fn s06_no_end_after_a_failed_begin() {
    let table: [(&[Turn], usize); 2] = [
        (&[Turn::begin_fails(7)], 0),
        (&[mapped(0, 4), Turn::begin_fails(7)], 1),
    ];
    for (turns, ends) in table {
        let outcome = walk::<true>(turns, (0, 8, READ), &[drop_after(4)]);
        assert_eq!(outcome.result, Err(Failure::Begin(7)));
        assert_eq!(outcome.ends().len(), ends);
    }
}

/// S7: an error of `end` counts only if nothing was advanced, and then before the body's; otherwise
/// it is dropped, and counted.
#[test]
fn s07_errors_of_end() {
    let table = [
        (0, Leave::Drop, Err(Failure::End(5)), 0),
        (0, Leave::Stale, Err(Failure::End(5)), 0),
        (0, Leave::Finish, Err(Failure::End(5)), 0),
        (0, Leave::Fail(9), Err(Failure::End(5)), 0),
        (4, Leave::Fail(9), Err(Failure::Body(9)), 1),
        (8, Leave::Drop, Ok(()), 1),
        (8, Leave::Finish, Ok(()), 1),
        (4, Leave::Break, Ok(()), 1),
    ];
    for (by, leave, result, dropped) in table {
        let turn = mapped(0, 8).end_fails(5);
        let outcome = walk::<true>(&[turn], (0, 8, READ), &[body(&[by], leave)]);
        assert_eq!(outcome.result, result, "{by} {leave:?}");
        assert_eq!(outcome.dropped_end_errors, dropped, "{by} {leave:?}");
    }
    // The cause of a refusal comes before an error of its `end`, which is counted.
    let outcome = walk::<true>(&[mapped(1, 8).end_fails(5)], (0, 8, READ), &[]);
    let what = Corruption::StartsBehind;
    assert_eq!(
        outcome.result,
        Err(Failure::Map(MapError::Corrupt { pos: 0, what }))
    );
    assert_eq!(outcome.dropped_end_errors, 1);
}

/// S8: first the body's error, then "all done", then "no progress", then on. (A positive status,
/// which C has to refuse, cannot be written: a body fails with an error or not at all.)
#[test]
fn s08_decision_order() {
    let table = [
        (8, Leave::Fail(1), Err(Failure::Body(1)), 1),
        (4, Leave::Fail(1), Err(Failure::Body(1)), 1),
        (0, Leave::Fail(1), Err(Failure::Body(1)), 1),
        (8, Leave::Drop, Ok(()), 1),
        (0, Leave::Drop, Ok(()), 1),
        (0, Leave::Finish, Ok(()), 1),
        (8, Leave::Stale, Ok(()), 1),
        (4, Leave::Drop, Ok(()), 2),
        (4, Leave::Finish, Ok(()), 2),
        (0, Leave::Stale, Ok(()), 2),
    ];
    for (by, leave, result, begins) in table {
        let turns = [mapped(0, 8), mapped(0, 8)];
        let outcome = walk::<true>(&turns, (0, 8, READ), &[body(&[by], leave)]);
        assert_eq!(outcome.result, result, "{by} {leave:?}");
        assert_eq!(outcome.begins().len(), begins, "{by} {leave:?}");
    }
}

/// S9: a stale mapping is looked up again where the body stopped, and not for ever.
#[test]
fn s09_stale_is_tried_again() {
    let stale = |by: &[u64]| body(by, Leave::Stale);
    let table = [
        (vec![stale(&[]), drop_after(8)], vec![(0, 8), (0, 8)]),
        (vec![stale(&[3]), drop_after(5)], vec![(0, 8), (3, 5)]),
        (
            vec![stale(&[]), stale(&[2]), stale(&[]), drop_after(6)],
            vec![(0, 8), (0, 8), (2, 6), (2, 6)],
        ),
    ];
    for (bodies, begins) in table {
        let outcome = walk::<true>(&[mapped(0, 8); 4], (0, 8, READ), &bodies);
        assert_eq!((outcome.result, outcome.remaining), (Ok(()), 0));
        assert_eq!(outcome.begins(), begins);
    }
    // Without progress the limit holds; progress starts the count anew.
    let limit = STALE_LIMIT as usize;
    let too_often = |pos| Err(Failure::Map(MapError::StaleTooOften { pos }));
    for (first, result) in [(0, too_often(0)), (1, too_often(1))] {
        let begins = limit + 1 + first;
        let mut bodies = vec![stale(&[]); begins];
        bodies[limit / 2] = stale(&[first as u64]);
        bodies.extend(vec![stale(&[]); limit / 2 * first]);
        let outcome = walk::<true>(&vec![mapped(0, 8); 2 * limit], (0, 8, READ), &bodies);
        assert_eq!(outcome.result, result);
        assert_eq!(outcome.begins().len(), begins + limit / 2 * first);
        assert_eq!(outcome.ends().len(), outcome.begins().len());
    }
}

/// S10: an error is reported once, and does not come back.
#[test]
fn s10_status_is_reset() {
    let table = [
        (mapped(0, 8), Leave::Fail(3), Failure::Body(3)),
        (mapped(0, 8).end_fails(4), Leave::Drop, Failure::End(4)),
    ];
    for (turn, leave, error) in table {
        let mut script = Script::<true>::new(&[turn]);
        let mut iter = IomapIter::new(&mut script, 0, 8, READ).unwrap();
        let step = iter.next_step().unwrap().unwrap();
        match leave {
            Leave::Fail(number) => step.fail(Failure::Body(number)),
            _ => drop(step),
        }
        assert_eq!(iter.next_step().err(), Some(error));
        assert!(matches!(iter.next_step(), Ok(None)));
    }
    // A step that failed nothing leaves nothing behind for the next.
    let bodies = [drop_after(4), drop_after(4)];
    assert_eq!(
        walk::<true>(&[mapped(0, 4), mapped(4, 4)], (0, 8, READ), &bodies).result,
        Ok(())
    );
}
