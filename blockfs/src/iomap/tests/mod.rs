//! Tests of the iterator: a scripted filesystem and scripted bodies, and a trace of what was
//! called.

mod leaving;
mod meaning;
mod protocol;
mod reference;
mod simple;

use super::{Begun, Ended, IomapIter, MapError, MapOps, Mapping, MappingFlags, OpFlags, Request};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The scripted filesystem's error; it says where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Map(MapError),
    Begin(u32),
    End(u32),
    Body(u32),
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Begin(Request),
    End {
        request: Request,
        written: u64,
        private: u32,
        flags: MappingFlags,
    },
    /// A body saw a mapping.
    Body {
        pos: u64,
        len: u64,
        mapping: Mapping,
    },
    /// What the step with this number held was released.
    Release(u32),
}

pub(super) const READ: OpFlags = OpFlags::READ;

pub(super) type Log = Rc<RefCell<Vec<Event>>>;

/// What a step holds; it reports its release.
#[derive(Debug)]
pub(super) struct Token {
    number: u32,
    log: Log,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.log.borrow_mut().push(Event::Release(self.number));
    }
}

/// One scripted `begin` and its `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) begin: Result<(Mapping, Option<Mapping>), u32>,
    pub(super) end: Result<(), u32>,
}

impl Turn {
    pub(super) const fn new(mapping: Mapping) -> Self {
        Self {
            begin: Ok((mapping, None)),
            end: Ok(()),
        }
    }

    pub(super) const fn source(self, source: Mapping) -> Self {
        let Ok((mapping, _)) = self.begin else {
            panic!("a begin that fails has no source");
        };
        Self {
            begin: Ok((mapping, Some(source))),
            ..self
        }
    }

    pub(super) const fn end_fails(self, number: u32) -> Self {
        Self {
            end: Err(number),
            ..self
        }
    }

    pub(super) const fn begin_fails(number: u32) -> Self {
        Self {
            begin: Err(number),
            end: Ok(()),
        }
    }
}

/// A turn with a mapping somewhere on the device, whose `end` is content.
pub(super) const fn mapped(offset: u64, length: u64) -> Turn {
    Turn::new(Mapping::mapped(1 << 30, offset, length))
}

/// A filesystem that answers what it was told to. The number of a turn is its private value.
#[derive(Debug)]
pub(super) struct Script<const END: bool> {
    pub(super) turns: VecDeque<Turn>,
    pub(super) size: u64,
    pub(super) log: Log,
    number: u32,
    open: Option<Turn>,
}

impl<const END: bool> Script<END> {
    pub(super) fn new(turns: &[Turn]) -> Self {
        Self {
            turns: turns.iter().copied().collect(),
            size: u64::MAX,
            log: Log::default(),
            number: 0,
            open: None,
        }
    }
}

impl<const END: bool> MapOps for Script<END> {
    type Error = Failure;
    type Private = u32;
    type Held = Token;
    const HAS_END: bool = END;

    fn size(&self) -> u64 {
        self.size
    }

    fn begin(&mut self, request: Request) -> Result<Begun<u32, Token>, Failure> {
        self.log.borrow_mut().push(Event::Begin(request));
        if END {
            assert!(self.open.is_none(), "begin before the last end");
        }
        let turn = self.turns.pop_front().expect("more begins than scripted");
        self.number += 1;
        // Acquired first, so that a begin that fails has something to release.
        let held = Token {
            number: self.number,
            log: Rc::clone(&self.log),
        };
        let (mapping, source) = turn.begin.map_err(Failure::Begin)?;
        self.open = Some(turn);
        Ok(Begun {
            mapping,
            source,
            private: self.number,
            held,
        })
    }

    fn end(&mut self, ended: Ended<'_, u32, Token>) -> Result<(), Failure> {
        assert!(END, "an end that does not exist was called");
        self.log.borrow_mut().push(Event::End {
            request: ended.request,
            written: ended.written,
            private: ended.private,
            flags: ended.mapping.flags(),
        });
        assert_eq!(ended.held.number, ended.private);
        let turn = self.open.take().expect("an end without its begin");
        turn.end.map_err(Failure::End)
    }
}

/// What a body does with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Lets it go.
    Drop,
    /// Marks it stale and lets it go.
    Stale,
    /// Fails with a number.
    Fail(u32),
    /// Calls `finish`, and stops if that says so.
    Finish,
    /// Leaves the loop.
    Break,
}

/// A scripted body: how it advances, and how it leaves.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) advances: Vec<u64>,
    pub(super) leave: Leave,
}

pub(super) fn body(advances: &[u64], leave: Leave) -> Body {
    Body {
        advances: advances.to_vec(),
        leave,
    }
}

/// A body that advances once and lets the step go.
pub(super) fn drop_after(by: u64) -> Body {
    body(&[by], Leave::Drop)
}

/// What came of a walk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) result: Result<(), Failure>,
    pub(super) pos: u64,
    pub(super) remaining: u64,
    pub(super) dropped_end_errors: u32,
    pub(super) events: Vec<Event>,
    /// Advances that were refused.
    pub(super) refused: Vec<MapError>,
}

impl Outcome {
    pub(super) fn begins(&self) -> Vec<(u64, u64)> {
        let begin = |event: &Event| match event {
            Event::Begin(request) => Some((request.pos, request.len)),
            _ => None,
        };
        self.events.iter().filter_map(begin).collect()
    }

    /// Position, usable length and written bytes of each end.
    pub(super) fn ends(&self) -> Vec<(u64, u64, u64)> {
        let end = |event: &Event| match event {
            Event::End {
                request, written, ..
            } => Some((request.pos, request.len, *written)),
            _ => None,
        };
        self.events.iter().filter_map(end).collect()
    }

    pub(super) fn releases(&self) -> Vec<u32> {
        let release = |event: &Event| match event {
            Event::Release(number) => Some(*number),
            _ => None,
        };
        self.events.iter().filter_map(release).collect()
    }
}

/// Walks `pos`, `len` over `turns` with one body a step; steps without a body are dropped
/// untouched.
pub(super) fn walk<const END: bool>(
    turns: &[Turn],
    (pos, len, op): (u64, u64, OpFlags),
    bodies: &[Body],
) -> Outcome {
    walk_script(&mut Script::<END>::new(turns), (pos, len, op), bodies)
}

pub(super) fn walk_script<const END: bool>(
    script: &mut Script<END>,
    (pos, len, op): (u64, u64, OpFlags),
    bodies: &[Body],
) -> Outcome {
    let log = Rc::clone(&script.log);
    let mut refused = Vec::new();
    let mut left_early = false;
    let mut bodies = bodies.iter();
    let mut iter = IomapIter::new(&mut *script, pos, len, op).expect("a range");
    let result = loop {
        let mut step = match iter.next_step() {
            Ok(Some(step)) => step,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        log.borrow_mut().push(Event::Body {
            pos: step.pos(),
            len: step.len(),
            mapping: *step.mapping(),
        });
        let Some(body) = bodies.next() else {
            continue;
        };
        refused.extend(
            body.advances
                .iter()
                .filter_map(|by| step.advance(*by).err()),
        );
        match body.leave {
            Leave::Drop => {}
            Leave::Stale => step.mark_stale(),
            Leave::Fail(number) => step.fail(Failure::Body(number)),
            Leave::Finish => {
                if let Err(error) = step.finish() {
                    break Err(error);
                }
            }
            Leave::Break => {
                left_early = true;
                break Ok(());
            }
        }
    };
    if !left_early {
        // Fused: asking again does nothing.
        let before = log.borrow().len();
        assert!(matches!(iter.next_step(), Ok(None)));
        assert_eq!(log.borrow().len(), before);
    }
    let over = (iter.pos(), iter.remaining(), iter.dropped_end_errors());
    Outcome {
        result,
        pos: over.0,
        remaining: over.1,
        dropped_end_errors: over.2,
        events: log.take(),
        refused,
    }
}
