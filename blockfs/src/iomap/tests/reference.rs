//! The iterator against a naive one, written as a state machine with everything spelled out.

use super::{Body, Event, Failure, Leave, Outcome, Script, Turn, walk_script};
use crate::iomap::{Corruption, MapError, Mapping, MappingFlags, MappingKind, OpFlags, Request};
use proptest::prelude::*;

/// What the naive iterator knows of a step.
struct Open {
    number: u32,
    turn: Turn,
    mapping: Mapping,
    stale: bool,
    start: u128,
    usable: u128,
}

/// The naive iterator: a position, a length, and a status that the body sets.
struct Naive<'a> {
    turns: std::slice::Iter<'a, Turn>,
    op: OpFlags,
    pos: u128,
    len: u128,
    number: u32,
    stale: u32,
    dropped: u32,
    events: Vec<Event>,
}

/// Numbers without overflow, so that the checks read as the rules do.
fn bad(mapping: &Mapping, pos: u128) -> Option<Corruption> {
    let (offset, length) = (u128::from(mapping.offset()), u128::from(mapping.length()));
    let limit = u128::from(u64::MAX);
    if length == 0 {
        Some(Corruption::Empty)
    } else if offset > pos {
        Some(Corruption::StartsBehind)
    } else if offset + length > limit {
        Some(Corruption::FileOverflow)
    } else if offset + length <= pos {
        Some(Corruption::EndsBefore)
    } else if mapping
        .addr()
        .is_some_and(|addr| u128::from(addr) + length > limit)
    {
        Some(Corruption::DeviceOverflow)
    } else if mapping.flags().contains(MappingFlags::STALE) {
        Some(Corruption::Stale)
    } else {
        None
    }
}

fn end_of(mapping: &Mapping) -> u128 {
    u128::from(mapping.offset()) + u128::from(mapping.length())
}

impl Naive<'_> {
    fn request(&self, pos: u128, len: u128) -> Request {
        Request {
            pos: u64::try_from(pos).unwrap(),
            len: u64::try_from(len).unwrap(),
            op: self.op,
        }
    }

    fn end(&mut self, open: &Open, written: u128) -> Result<(), Failure> {
        let mut flags = open.mapping.flags();
        if open.stale {
            flags |= MappingFlags::STALE;
        }
        self.events.push(Event::End {
            request: self.request(open.start, open.usable),
            written: u64::try_from(written).unwrap(),
            private: open.number,
            flags,
        });
        open.turn.end.map_err(Failure::End)
    }

    /// After a body: whether to go on.
    fn finish(&mut self, open: &Open, status: Option<Failure>) -> Result<bool, Failure> {
        let advanced = self.pos - open.start;
        let end = self.end(open, advanced);
        self.events.push(Event::Release(open.number));
        if let Err(error) = end {
            if advanced == 0 {
                return Err(error);
            }
            self.dropped += 1;
        }
        if let Some(error) = status {
            return Err(error);
        }
        if self.len == 0 || (advanced == 0 && !open.stale) {
            return Ok(false);
        }
        self.stale = if advanced == 0 { self.stale + 1 } else { 0 };
        Ok(true)
    }

    fn refuse(&mut self, open: &Open, error: MapError) -> Failure {
        if self.end(open, 0).is_err() {
            self.dropped += 1;
        }
        self.events.push(Event::Release(open.number));
        Failure::Map(error)
    }

    fn begin(&mut self) -> Result<Open, Failure> {
        self.events
            .push(Event::Begin(self.request(self.pos, self.len)));
        let turn = *self.turns.next().unwrap();
        self.number += 1;
        let (mapping, source) = match turn.begin {
            Ok(answer) => answer,
            Err(number) => {
                self.events.push(Event::Release(self.number));
                return Err(Failure::Begin(number));
            }
        };
        let mut open = Open {
            number: self.number,
            turn,
            mapping,
            stale: false,
            start: self.pos,
            usable: 0,
        };
        let source = source.filter(|source| source.kind() != MappingKind::Hole);
        let write = self.op.contains(OpFlags::WRITE);
        let hole = mapping.kind() == MappingKind::Hole && write;
        let what = bad(&mapping, self.pos)
            .or(hole.then_some(Corruption::HoleForWrite))
            .or((mapping.kind() == MappingKind::Inline).then_some(Corruption::InlineTooLong))
            .or(source.and_then(|source| bad(&source, self.pos)));
        if let Some(what) = what {
            let pos = u64::try_from(self.pos).unwrap();
            return Err(self.refuse(&open, MapError::Corrupt { pos, what }));
        }
        let end = source
            .map_or(u128::MAX, |source| end_of(&source))
            .min(end_of(&mapping));
        open.usable = self.len.min(end - self.pos);
        if self.op.contains(OpFlags::NOWAIT) && open.usable < self.len {
            return Err(self.refuse(&open, MapError::WouldBlock));
        }
        self.events.push(Event::Body {
            pos: u64::try_from(self.pos).unwrap(),
            len: u64::try_from(open.usable).unwrap(),
            mapping,
        });
        Ok(open)
    }
}

fn naive(turns: &[Turn], (pos, len, op): (u64, u64, OpFlags), bodies: &[Body]) -> Outcome {
    let mut naive = Naive {
        turns: turns.iter(),
        op,
        pos: pos.into(),
        len: len.into(),
        number: 0,
        stale: 0,
        dropped: 0,
        events: Vec::new(),
    };
    let mut refused = Vec::new();
    let mut bodies = bodies.iter();
    let mut go_on = len > 0;
    let mut result = Ok(());
    while go_on {
        let mut open = match naive.begin() {
            Ok(open) => open,
            Err(error) => {
                result = Err(error);
                break;
            }
        };
        let mut status = None;
        let mut leaves = false;
        if let Some(body) = bodies.next() {
            for by in &body.advances {
                let usable = open.start + open.usable - naive.pos;
                if u128::from(*by) > usable {
                    let usable = u64::try_from(usable).unwrap();
                    refused.push(MapError::AdvanceTooFar { by: *by, usable });
                } else {
                    naive.pos += u128::from(*by);
                    naive.len -= u128::from(*by);
                }
            }
            match body.leave {
                Leave::Drop | Leave::Finish => {}
                Leave::Stale => open.stale = true,
                Leave::Fail(number) => status = Some(Failure::Body(number)),
                Leave::Break => leaves = true,
            }
        }
        match naive.finish(&open, status) {
            // Whoever leaves the loop does not ask for the error either.
            Ok(_) | Err(_) if leaves => break,
            Ok(on) => go_on = on,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    Outcome {
        result,
        pos: u64::try_from(naive.pos).unwrap(),
        remaining: u64::try_from(naive.len).unwrap(),
        dropped_end_errors: naive.dropped,
        events: naive.events,
        refused,
    }
}

/// How far before the position a mapping starts, and how far after it ends; rarely nonsense.
fn mapping() -> impl Strategy<Value = (u8, u64, i64, i64)> {
    let addr = prop_oneof![9 => 0..1_u64 << 50, 1 => u64::MAX - 40..=u64::MAX];
    let ahead = prop_oneof![9 => 0..20_i64, 1 => -4..0_i64];
    let behind = prop_oneof![9 => 1..20_i64, 1 => -4..=0_i64, 1 => Just(i64::MAX)];
    (0_u8..12, addr, ahead, behind)
}

fn make((kind, addr, ahead, behind): (u8, u64, i64, i64), pos: u64) -> Mapping {
    let offset = pos.saturating_add_signed(-ahead);
    let end = pos.saturating_add_signed(behind);
    let length = if behind == i64::MAX && kind == 7 {
        u64::MAX
    } else {
        end.saturating_sub(offset)
    };
    match kind {
        0 => Mapping::hole(offset, length),
        1 => Mapping::delalloc(offset, length),
        2 => Mapping::inline(offset, length),
        3..=5 => Mapping::unwritten(addr, offset, length),
        6 => Mapping::mapped(addr, offset, length).with_flags(MappingFlags::NEW),
        7 => Mapping::mapped(addr, offset, length).with_flags(MappingFlags::SHARED),
        8 if addr & 3 == 0 => Mapping::mapped(addr, offset, length).with_flags(MappingFlags::STALE),
        _ => Mapping::mapped(addr, offset, length),
    }
}

type RawTurn = ((u8, u64, i64, i64), Option<(u8, u64, i64, i64)>, u8);

fn raw_turn() -> impl Strategy<Value = RawTurn> {
    (
        mapping(),
        proptest::option::weighted(0.2, mapping()),
        any::<u8>(),
    )
}

fn raw_body() -> impl Strategy<Value = Body> {
    let leave = prop_oneof![
        12 => Just(Leave::Drop),
        3 => Just(Leave::Stale),
        4 => Just(Leave::Finish),
        1 => (0..9_u32).prop_map(Leave::Fail),
        1 => Just(Leave::Break),
    ];
    let advance = prop_oneof![9 => 0..24_u64, 1 => any::<u64>()];
    (proptest::collection::vec(advance, 0..4), leave)
        .prop_map(|(advances, leave)| Body { advances, leave })
}

fn op() -> impl Strategy<Value = OpFlags> {
    prop_oneof![
        Just(OpFlags::READ),
        Just(OpFlags::REPORT),
        Just(OpFlags::WRITE),
        Just(OpFlags::WRITE | OpFlags::DIRECT),
        Just(OpFlags::NOWAIT),
    ]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        8 => (0..1000_u64, 0..100_u64),
        1 => (u64::MAX - 100..=u64::MAX - 50, 0..=50_u64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Whatever the filesystem answers and the body does, both iterators call the same things in
    /// the same order, and end alike.
    #[test]
    fn same_calls_as_the_naive_iterator(
        (pos, len) in range(),
        op in op(),
        raw in proptest::collection::vec(raw_turn(), 12),
        bodies in proptest::collection::vec(raw_body(), 0..10),
    ) {
        // A turn's mapping lies where the walk will be: a dry run of the naive iterator says where.
        let mut turns: Vec<Turn> = Vec::new();
        for (mapping, source, chance) in raw {
            let known = turns.len();
            let probe = Turn::begin_fails(0);
            let mut dry = turns.clone();
            dry.push(probe);
            let outcome = naive(&dry, (pos, len, op), &bodies);
            let Some(&(at, _)) = outcome.begins().get(known) else {
                break;
            };
            let mut turn = Turn::new(make(mapping, at));
            if let Some(source) = source {
                turn = turn.source(make(source, at));
            }
            turns.push(match chance {
                0..16 => turn.end_fails(u32::from(chance)),
                16..24 => Turn::begin_fails(u32::from(chance)),
                _ => turn,
            });
        }
        // Should the walk want more than that, it fails there.
        turns.push(Turn::begin_fails(99));
        let expected = naive(&turns, (pos, len, op), &bodies);
        let got = walk_script(&mut Script::<true>::new(&turns), (pos, len, op), &bodies);
        prop_assert_eq!(&got, &expected);

        // Without an `end` the same, less the ends, unless an end failed.
        let end_failed = turns.iter().any(|turn| turn.end.is_err());
        if !end_failed {
            let without = walk_script(&mut Script::<false>::new(&turns), (pos, len, op), &bodies);
            let mut expected = expected;
            expected.events.retain(|event| !matches!(event, Event::End { .. }));
            prop_assert_eq!(&without, &expected);
        }
    }
}
