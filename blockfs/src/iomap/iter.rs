//! The iterator and the step that it lends.

use super::check;
use super::error::MapError;
use super::mapping::{Mapping, MappingFlags, MappingKind};
use super::op::{OpFlags, Request};
use super::ops::{Begun, Ended, MapOps};
use std::fmt;
use std::mem;

/// How often in a row a stale mapping is looked up again without any progress.
pub const STALE_LIMIT: u32 = 1024;

/// Walks a file range, one mapping at a time.
///
/// It lives on the stack. Its [`Step`] is a borrow of it, so that nobody sees a mapping after its
/// end, and at most one is open at a time.
pub struct IomapIter<O: MapOps> {
    ops: O,
    op: OpFlags,
    pos: u64,
    len: u64,
    stale_in_a_row: u32,
    dropped_end_errors: u32,
    phase: Phase<O::Error>,
}

enum Phase<E> {
    /// The next thing is a `begin`.
    Ready,
    /// A step is out.
    Open,
    /// The last step ended with an error that nobody has been told of yet.
    Failed(E),
    /// It is over, and stays over.
    Over,
}

impl<O: MapOps> IomapIter<O> {
    /// A walk over `len` bytes of a file from `pos` on.
    ///
    /// # Errors
    /// [`MapError::RangeOverflow`]; [`MapError::WouldBlock`] if the file would have to grow and
    /// `op` has `OVERWRITE_ONLY`.
    #[inline]
    pub fn new(ops: O, pos: u64, len: u64, op: OpFlags) -> Result<Self, MapError> {
        let end = pos.checked_add(len).ok_or(MapError::RangeOverflow)?;
        if op.contains(OpFlags::OVERWRITE_ONLY) && end > ops.size() {
            return Err(MapError::WouldBlock);
        }
        Ok(Self {
            ops,
            op,
            pos,
            len,
            stale_in_a_row: 0,
            dropped_end_errors: 0,
            phase: Phase::Ready,
        })
    }

    /// Where in the file it is, in bytes.
    #[inline]
    pub const fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes left to do.
    #[inline]
    pub const fn remaining(&self) -> u64 {
        self.len
    }

    /// Errors of `end` that did not count because bytes had been advanced.
    #[inline]
    pub const fn dropped_end_errors(&self) -> u32 {
        self.dropped_end_errors
    }

    /// The next mapping; `None` when all is done, when the last step advanced nothing, and ever
    /// after.
    ///
    /// # Errors
    /// What the last step failed with, if its [`Step::finish`] was not called; what `begin` failed
    /// with; a [`MapError`]. The iteration is over then.
    #[inline]
    pub fn next_step(&mut self) -> Result<Option<Step<'_, O>>, O::Error> {
        match self.phase {
            Phase::Ready if self.len > 0 => {}
            Phase::Ready | Phase::Over => {
                self.phase = Phase::Over;
                return Ok(None);
            }
            Phase::Open => {
                self.phase = Phase::Over;
                return Err(MapError::StepLeaked.into());
            }
            Phase::Failed(_) => {
                self.take_failure()?;
                return Ok(None);
            }
        }
        let request = Request {
            pos: self.pos,
            len: self.len,
            op: self.op,
        };
        // Over already while `begin` runs: should it fail or panic, there is no `end` to run.
        self.phase = Phase::Over;
        let begun = self.ops.begin(request)?;
        self.phase = Phase::Open;
        // From here on the step owns what `begin` gave, so every way out runs `end` and releases
        // it.
        let usable = check::usable::<O>(&begun, request);
        let mut step = Step {
            start: request.pos,
            limit: request.pos + usable.unwrap_or(0),
            begun,
            iter: self,
        };
        let verdict =
            usable.and_then(|usable| check::flags_obeyed(&step.begun.mapping, usable, request));
        match verdict {
            Ok(()) => Ok(Some(step)),
            Err(error) => {
                step.refuse();
                Err(error.into())
            }
        }
    }

    /// The error that the last step left, if it left one.
    #[inline]
    fn take_failure(&mut self) -> Result<(), O::Error> {
        if let Phase::Failed(_) = self.phase
            && let Phase::Failed(error) = mem::replace(&mut self.phase, Phase::Over)
        {
            return Err(error);
        }
        Ok(())
    }
}

impl<O: MapOps> fmt::Debug for IomapIter<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IomapIter")
            .field("pos", &self.pos)
            .field("remaining", &self.len)
            .field("op", &self.op)
            .finish_non_exhaustive()
    }
}

/// One mapping, lent by the iterator, and what was done with it.
///
/// Whichever way it goes out of scope, `end` then runs with what was advanced, and what the step
/// holds is released. A step that advanced nothing ends the iteration, unless its mapping was
/// stale. An error of `end` comes from [`Step::finish`] or, without that, from the next
/// [`IomapIter::next_step`].
pub struct Step<'a, O: MapOps> {
    iter: &'a mut IomapIter<O>,
    begun: Begun<O::Private, O::Held>,
    /// Where the work started.
    start: u64,
    /// The end of what is usable.
    limit: u64,
}

impl<O: MapOps> Step<'_, O> {
    /// Where it goes on in the file, in bytes.
    #[inline]
    #[must_use]
    pub const fn pos(&self) -> u64 {
        self.iter.pos
    }

    /// Bytes left in this step: within the range, the mapping and its source.
    #[inline]
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length in bytes, not a container"
    )]
    pub const fn len(&self) -> u64 {
        self.limit - self.iter.pos
    }

    /// What the iteration is for.
    #[inline]
    #[must_use]
    pub const fn op(&self) -> OpFlags {
        self.iter.op
    }

    /// The mapping: where the bytes are or go.
    #[inline]
    #[must_use]
    pub const fn mapping(&self) -> &Mapping {
        &self.begun.mapping
    }

    /// The device address of the byte at [`Step::pos`], in bytes, if it has one.
    #[inline]
    #[must_use]
    pub const fn device_addr(&self) -> Option<u64> {
        self.begun.mapping.device_addr(self.iter.pos)
    }

    /// The mapping to read existing data from: the source if there is one, otherwise the mapping
    /// itself. Direct I/O has no use for a source.
    #[inline]
    #[must_use]
    pub fn read_from(&self) -> &Mapping {
        match check::real_source(self.begun.source.as_ref()) {
            Some(source) if !self.iter.op.contains(OpFlags::DIRECT) => source,
            _ => &self.begun.mapping,
        }
    }

    /// Whether there is anything to copy for an `UNSHARE`.
    #[inline]
    #[must_use]
    pub fn wants_unshare(&self) -> bool {
        self.begun.mapping.flags().contains(MappingFlags::SHARED)
            && matches!(self.begun.source, Some(s) if s.kind() == MappingKind::Mapped)
    }

    /// The bytes of an inline mapping from [`Step::pos`] on, within this step; `None` for other
    /// kinds.
    #[inline]
    #[must_use]
    pub fn inline_data(&self) -> Option<&[u8]> {
        if self.begun.mapping.kind() != MappingKind::Inline {
            return None;
        }
        let offset = self.begun.mapping.offset();
        let from = usize::try_from(self.iter.pos.checked_sub(offset)?).ok()?;
        let to = usize::try_from(self.limit.checked_sub(offset)?).ok()?;
        O::inline_data(&self.begun.held).get(from..to)
    }

    /// What the step owns.
    #[inline]
    #[must_use]
    pub const fn held(&self) -> &O::Held {
        &self.begun.held
    }

    /// What the step owns, to use it up.
    #[inline]
    #[must_use]
    pub const fn held_mut(&mut self) -> &mut O::Held {
        &mut self.begun.held
    }

    /// Moves on by `by` bytes; may be called many times in a step.
    ///
    /// # Errors
    /// [`MapError::AdvanceTooFar`], [`MapError::AdvanceStale`], [`MapError::NotAtomic`] for a part
    /// of an atomic operation; nothing has changed then.
    #[inline]
    pub const fn advance(&mut self, by: u64) -> Result<(), MapError> {
        let usable = self.len();
        if by > usable {
            return Err(MapError::AdvanceTooFar { by, usable });
        }
        if self.begun.mapping.flags().contains(MappingFlags::STALE) {
            return Err(MapError::AdvanceStale);
        }
        if self.iter.op.contains(OpFlags::ATOMIC) && by != 0 && by < self.iter.len {
            return Err(MapError::NotAtomic {
                wanted: self.iter.len,
                covered: by,
            });
        }
        self.iter.pos += by;
        self.iter.len -= by;
        Ok(())
    }

    /// Compares the mapping's cookie with the map's `current` one, both read under the map's lock.
    /// `false`: the map has changed and the mapping is marked stale; leave the step without using
    /// it, and the iterator looks it up again. A map that never changes needs no such call.
    #[inline]
    #[must_use]
    pub fn revalidate(&mut self, current: u32) -> bool {
        let valid = self.begun.mapping.cookie() == current;
        if !valid {
            self.mark_stale();
        }
        valid
    }

    /// Says that the mapping is out of date: it is looked up again, from [`Step::pos`] on.
    #[inline]
    pub fn mark_stale(&mut self) {
        self.begun.mapping.set(MappingFlags::STALE);
    }

    /// Tells `end` that the file's size was changed.
    #[inline]
    pub fn mark_size_changed(&mut self) {
        self.begun.mapping.set(MappingFlags::SIZE_CHANGED);
    }

    /// Ends the step, and with it the iteration, with an error of the body's. The next
    /// [`IomapIter::next_step`] returns it, even if bytes were advanced, unless `end` fails with
    /// nothing advanced: that error comes first.
    #[inline]
    pub fn fail(mut self, error: O::Error) {
        self.close(Some(error));
    }

    /// Ends the step now, rather than when it goes out of scope.
    ///
    /// # Errors
    /// That of `end`, if nothing was advanced; [`MapError::StaleTooOften`].
    #[inline]
    pub fn finish(mut self) -> Result<(), O::Error> {
        self.close(None);
        self.iter.take_failure()
    }

    /// Runs `end` and decides what comes next. Does nothing if that has been done.
    #[inline]
    fn close(&mut self, status: Option<O::Error>) {
        if !matches!(self.iter.phase, Phase::Open) {
            return;
        }
        // Before `end`: should it panic, it must not run again.
        self.iter.phase = Phase::Over;
        let advanced = self.iter.pos - self.start;
        if O::HAS_END
            && let Err(error) = self.run_end(advanced)
        {
            if advanced == 0 {
                self.iter.phase = Phase::Failed(error);
                return;
            }
            self.iter.count_end_error();
        }
        let stale = self.begun.mapping.flags().contains(MappingFlags::STALE);
        self.iter.phase = if let Some(error) = status {
            Phase::Failed(error)
        } else if self.iter.len == 0 || (advanced == 0 && !stale) {
            // The final step. The mapping is left as it is, on purpose: nobody can look at it any
            // more, so clearing it would be work that is thrown away. Were another step to follow,
            // its `begin` would construct a new one; there is nothing to reset in between either.
            Phase::Over
        } else if advanced > 0 {
            self.iter.stale_in_a_row = 0;
            Phase::Ready
        } else if self.iter.stale_in_a_row < STALE_LIMIT {
            self.iter.stale_in_a_row += 1;
            Phase::Ready
        } else {
            let pos = self.iter.pos;
            Phase::Failed(MapError::StaleTooOften { pos }.into())
        };
    }

    /// Ends a step that no body has seen. Why it is refused counts more than what `end` says.
    #[cold]
    fn refuse(&mut self) {
        self.iter.phase = Phase::Over;
        if O::HAS_END && self.run_end(0).is_err() {
            self.iter.count_end_error();
        }
    }

    #[inline]
    fn run_end(&mut self, written: u64) -> Result<(), O::Error> {
        self.iter.ops.end(Ended {
            request: Request {
                pos: self.start,
                len: self.limit - self.start,
                op: self.iter.op,
            },
            written,
            mapping: &self.begun.mapping,
            private: self.begun.private,
            held: &mut self.begun.held,
        })
    }
}

impl<O: MapOps> IomapIter<O> {
    #[cold]
    fn count_end_error(&mut self) {
        self.dropped_end_errors = self.dropped_end_errors.saturating_add(1);
    }
}

impl<O: MapOps> Drop for Step<'_, O> {
    #[inline]
    fn drop(&mut self) {
        self.close(None);
    }
}

impl<O: MapOps> fmt::Debug for Step<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("pos", &self.pos())
            .field("len", &self.len())
            .field("mapping", &self.begun.mapping)
            .finish_non_exhaustive()
    }
}
