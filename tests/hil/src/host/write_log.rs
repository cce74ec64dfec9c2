//! The log that QEMU's `blklogwrites` writes, and what happened to the drive according to it.
//!
//! The format is that of Linux's dm-log-writes: a superblock, which is not needed here, then entries of one
//! sector each, with their data behind them. QEMU gives a write its place when the file has taken it, and a
//! flush when the device does it: what stands before a flush is covered by it. An entry that a kill kept
//! from being written is zeros, and nobody was told that what it stands for has ended.

use crash::model::Model;
use crash::run::{Action, Run, Shape, Step};
use crash::states::{Event, Log};
use hil::cuts::Mark;
use std::sync::Arc;

/// One entry.
#[derive(Debug, PartialEq, Eq)]
enum Entry<'a> {
    Write { lba: u64, data: &'a [u8] },
    Flush,
    Discard { blocks: u64, lba: u64 },
}

const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// Reads entries up to the first that is not all there. A sector is a logical block.
fn entries(log: &[u8], lba_bytes: usize) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let mut sectors = log.get(lba_bytes..).unwrap_or(&[]);
    while let Some((header, rest)) = sectors.split_at_checked(lba_bytes) {
        let (words, _) = header.as_chunks::<8>();
        let word = |nth: usize| words.get(nth).map_or(0, |word| u64::from_le_bytes(*word));
        let (lba, blocks, flags) = (word(0), word(1), word(2));
        sectors = rest;
        entries.push(if flags & FLUSH != 0 {
            Entry::Flush
        } else if flags & DISCARD != 0 {
            Entry::Discard { lba, blocks }
        } else {
            let bytes = usize::try_from(blocks).ok();
            let bytes = bytes.and_then(|blocks| blocks.checked_mul(lba_bytes));
            match bytes.and_then(|bytes| rest.split_at_checked(bytes)) {
                Some((data, rest)) if !data.is_empty() => {
                    sectors = rest;
                    Entry::Write { lba, data }
                }
                _ => break,
            }
        });
    }
    entries
}

/// What the guest did to the drive.
#[derive(Debug)]
pub(crate) struct Story {
    /// Steps, with what the drive did, from the empty drive on.
    pub(crate) run: Run,
    /// How many events there were before the first step.
    pub(crate) ready: usize,
    /// How many steps had ended.
    pub(crate) ended: usize,
}

/// Tells what happened: the log of a drive of `bytes`, to which `actions` were done after `start`.
///
/// # Errors
/// What makes no sense.
pub(crate) fn story(
    log: &[u8],
    lba_bytes: usize,
    bytes: usize,
    start: Model,
    actions: &[Action],
) -> Result<Story, String> {
    let shape = Shape {
        lba: u32::try_from(lba_bytes).map_err(|e| e.to_string())?,
        volatile_cache: true,
        bytes: bytes as u64,
    };
    let mut told = Telling {
        events: Vec::new(),
        fua: Vec::new(),
        model: start.clone(),
        steps: Vec::new(),
        ready: None,
        open: None,
        ended: 0,
    };
    let marks = (bytes / lba_bytes) as u64 - 1;
    for entry in entries(log, lba_bytes) {
        match entry {
            Entry::Write { lba, data } if lba == marks => {
                let mark = Mark::decode(data).ok_or("a mark that is none")?;
                told.mark(mark, actions)?;
            }
            Entry::Write { lba, data } => told.write(lba, data, lba_bytes),
            // What is discarded may be zeros from then on; here it is.
            Entry::Discard { lba, blocks } => {
                let bytes = usize::try_from(blocks).map_err(|e| e.to_string())? * lba_bytes;
                told.write(lba, &vec![0; bytes], lba_bytes);
            }
            Entry::Flush => {
                let number = told.events.len() as u64;
                told.events.push(Event::Flush { number });
                told.events.push(Event::End { number, ok: true });
            }
        }
    }
    if let Some((step, begun)) = told.open {
        // Whatever it had done: it was the last.
        told.step(actions, step, (begun, usize::MAX), false)?;
    }
    let ready = told.ready.ok_or("the cut came before the first step")?;
    let log = Log {
        start: Arc::new(vec![0; bytes]),
        lba_bytes,
        volatile_cache: true,
        events: told.events,
    };
    let run = Run {
        start,
        steps: told.steps,
        log,
        shape,
    };
    let ended = told.ended;
    Ok(Story { run, ready, ended })
}

/// What was read so far.
struct Telling {
    events: Vec<Event>,
    /// Writes to come that have the FUA bit: first block and number of blocks.
    fua: Vec<(u64, u64)>,
    model: Model,
    steps: Vec<Step>,
    ready: Option<usize>,
    /// The step that has begun and not ended, and after how many events it began.
    open: Option<(u64, usize)>,
    ended: usize,
}

impl Telling {
    fn write(&mut self, lba: u64, data: &[u8], lba_bytes: usize) {
        let number = self.events.len() as u64;
        let this = (lba, (data.len() / lba_bytes) as u64);
        let marked = self.fua.iter().position(|fua| *fua == this);
        self.events.push(Event::Write {
            number,
            lba,
            data: data.into(),
            fua: marked.map(|at| self.fua.remove(at)).is_some(),
        });
        self.events.push(Event::End { number, ok: true });
    }

    fn mark(&mut self, mark: Mark, actions: &[Action]) -> Result<(), String> {
        let now = self.events.len();
        match mark {
            Mark::Ready => self.ready = Some(now),
            Mark::Fua { lba, blocks } => self.fua.push((lba, blocks)),
            Mark::Begin { step } => self.open = Some((step, now)),
            Mark::End { step, changed } => {
                let Some((_, begun)) = self.open.take_if(|(open, _)| *open == step) else {
                    return Err(format!("step {step} ended and had not begun"));
                };
                if changed {
                    self.step(actions, step, (begun, now), true)?;
                }
                self.ended = usize::try_from(step).map_err(|e| e.to_string())? + 1;
            }
        }
        Ok(())
    }

    /// Notes a step that changed something; `sure`: the guest said so.
    fn step(
        &mut self,
        actions: &[Action],
        step: u64,
        events: (usize, usize),
        sure: bool,
    ) -> Result<(), String> {
        let action = usize::try_from(step)
            .ok()
            .and_then(|step| actions.get(step));
        let action = action.ok_or("a step that nobody made")?;
        match self.model.apply(action) {
            Ok(()) => self.steps.push(Step {
                action: action.clone(),
                events,
                model: self.model.clone(),
            }),
            Err(error) if sure => {
                return Err(format!(
                    "{action:?}: error {error} is expected, and the guest did it"
                ));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LBA: usize = 512;

    fn entry(lba: u64, blocks: u64, flags: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [lba, blocks, flags, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes.resize(LBA, 0);
        bytes.extend(data);
        bytes
    }

    fn mark(mark: Mark) -> Vec<u8> {
        let mut block = [0; LBA];
        mark.encode(&mut block);
        entry(7, 1, 0, &block)
    }

    fn tell(parts: &[Vec<u8>], actions: &[Action]) -> Result<Story, String> {
        let mut log = vec![0; LBA];
        log.extend(parts.concat());
        story(&log, LBA, 8 * LBA, Model::default(), actions)
    }

    /// Writes, discards and flushes are events, a mark gives the next write of its blocks the FUA bit, and
    /// a step has the events between its marks.
    #[test]
    fn a_log_is_read_in_its_order() {
        let actions = [Action::Create("/a".into()), Action::Sync, Action::Sync];
        let parts = [
            entry(0, 1, 0, &[1; LBA]),
            mark(Mark::Ready),
            mark(Mark::Begin { step: 0 }),
            mark(Mark::Fua { lba: 3, blocks: 2 }),
            entry(2, 2, 0, &[2; 2 * LBA]),
            entry(3, 2, 0, &[3; 2 * LBA]),
            entry(3, 2, 0, &[4; 2 * LBA]),
            mark(Mark::End {
                step: 0,
                changed: true,
            }),
            mark(Mark::Begin { step: 1 }),
            entry(0, 0, FLUSH, &[]),
            entry(5, 1, DISCARD, &[]),
        ];
        let told = tell(&parts, &actions).unwrap();
        assert_eq!((told.ready, told.ended), (2, 1));
        let steps: Vec<_> = told.run.steps.iter().map(|step| step.events).collect();
        assert_eq!(steps, [(2, 8), (8, usize::MAX)]);
        let fua: Vec<_> = told
            .run
            .log
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Write { lba, fua, .. } => Some((*lba, *fua)),
                _ => None,
            })
            .collect();
        assert_eq!(
            fua,
            [(0, false), (2, false), (3, true), (3, false), (5, false)]
        );
        assert!(matches!(told.run.log.events[8], Event::Flush { .. }));
    }

    /// The log ends where an entry is missing or cut short.
    #[test]
    fn an_entry_that_is_not_all_there_ends_the_log() {
        for last in [vec![0; 4 * LBA], entry(1, 2, 0, &[1; LBA]), vec![1; 20]] {
            let told = tell(&[mark(Mark::Ready), entry(1, 1, 0, &[1; LBA]), last], &[]).unwrap();
            assert_eq!(told.run.log.events.len(), 2);
        }
    }

    /// What cannot be is refused: an end without a beginning, a step that the reference refuses, a log that
    /// ends too early.
    #[test]
    fn nonsense_is_refused() {
        let end = |step| {
            mark(Mark::End {
                step,
                changed: true,
            })
        };
        let begin = |step| mark(Mark::Begin { step });
        let refused = [Action::Unlink("/none".into())];
        assert!(tell(&[mark(Mark::Ready), end(0)], &[Action::Sync]).is_err());
        assert!(tell(&[mark(Mark::Ready), begin(0), end(0)], &refused).is_err());
        assert!(tell(&[begin(0), end(0)], &[Action::Sync]).is_err());
        assert!(tell(&[mark(Mark::Ready), begin(0), end(0)], &[]).is_err());
    }
}
