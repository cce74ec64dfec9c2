//! The replacer's side: periods that begin, and end when the counts have been zero.

use super::Grace;
use super::published::Retired;
use super::sync::Ordering;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

/// Which flights a ticket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flights {
    /// Reads and writes.
    All,
    /// Writes.
    Writes,
}

/// A point in time: passed when all flights have ended that were in the air then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The period of reads, 0 for none, and that of writes.
    ends: [u64; 2],
}

/// Periods of one kind of flight.
#[derive(Debug, Default)]
struct Line {
    /// Periods that have ended.
    ended: u64,
    /// Periods that are wanted.
    wanted: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Waits for the parity that no new flight gets.
    Late,
    /// Waits for the parity that new flights got until this period began.
    Current,
}

/// When what was taken away is not used any more.
#[derive(Debug)]
pub(crate) struct Periods {
    grace: Arc<Grace>,
    /// Reads, writes.
    lines: [Line; 2],
    retired: VecDeque<(Ticket, Box<dyn Any + Send + Sync>)>,
}

impl Periods {
    pub(super) fn new(grace: Arc<Grace>) -> Self {
        Self {
            grace,
            lines: [Line::default(), Line::default()],
            retired: VecDeque::new(),
        }
    }

    /// A ticket for the flights that are in the air now. Whatever they must not find any more has been
    /// replaced already.
    pub(crate) fn ticket(&mut self, flights: Flights) -> Ticket {
        let mut ends = [0; 2];
        for (kind, (line, end)) in self.lines.iter_mut().zip(&mut ends).enumerate() {
            if kind == 0 && flights == Flights::Writes {
                continue;
            }
            // One that has begun may have looked before the replacement.
            let begun = u64::from(line.stage != Stage::Idle);
            *end = line.ended + 1 + begun;
            line.wanted = line.wanted.max(*end);
        }
        Ticket { ends }
    }

    /// Whether all those flights have ended.
    pub(crate) fn passed(&self, ticket: Ticket) -> bool {
        let lines = self.lines.iter().zip(ticket.ends);
        lines.fold(true, |all, (line, end)| all && line.ended >= end)
    }

    /// Drops what was replaced once nobody uses it.
    pub(crate) fn retire<T: Send + Sync + 'static>(&mut self, retired: Retired<T>) {
        let ticket = self.ticket(Flights::All);
        self.retired.push_back((ticket, retired.into_any()));
    }

    /// Looks how far the periods have come. Never waits; cheap when nothing is wanted.
    pub(crate) fn advance(&mut self) {
        let wanted = |line: &Line| line.ended < line.wanted;
        while self.lines.iter().any(wanted) {
            let mut moved = false;
            // One barrier serves both lines.
            if self
                .lines
                .iter()
                .any(|line| wanted(line) && line.stage == Stage::Idle)
            {
                if self.grace.has_members() && !self.grace.barrier.heavy() {
                    return;
                }
                for line in &mut self.lines {
                    if wanted(line) && line.stage == Stage::Idle {
                        line.stage = Stage::Late;
                        moved = true;
                    }
                }
            }
            for kind in 0..2 {
                moved |= self.advance_line(kind);
            }
            if !moved {
                break;
            }
        }
        while let Some((ticket, _)) = self.retired.front() {
            if !self.passed(*ticket) {
                break;
            }
            self.retired.pop_front();
        }
    }

    fn advance_line(&mut self, kind: usize) -> bool {
        let line = &mut self.lines[kind];
        let phase = &self.grace.phases[kind];
        let parity = (phase.load(Ordering::Relaxed) & 1) as usize;
        match line.stage {
            Stage::Idle => false,
            Stage::Late => {
                if !self.grace.is_zero(kind << 1 | (1 - parity)) {
                    return false;
                }
                phase.store(u32::from(parity == 0), Ordering::Release);
                line.stage = Stage::Current;
                true
            }
            Stage::Current => {
                // The parity was flipped since.
                if !self.grace.is_zero(kind << 1 | (1 - parity)) {
                    return false;
                }
                line.ended += 1;
                line.stage = Stage::Idle;
                true
            }
        }
    }
}
