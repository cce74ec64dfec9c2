//! What the hot path promises, against a device driven by hand.

use super::fake::Device;
use super::{BlockRequest, Completion, Core, QueueSize, SubmitError};
use crate::spec::{Sqe, Status};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn poll<T>(core: &mut Core<T>) -> Vec<Completion<T>> {
    let mut done = Vec::new();
    core.poll(usize::MAX, |completion| done.push(completion));
    done
}

fn blocks(blocks: u64, max_blocks: u32, boundary: u32) -> BlockRequest {
    BlockRequest {
        template: Sqe {
            opcode: 2,
            nsid: 1,
            ..Sqe::default()
        },
        lba: 5,
        blocks,
        block_shift: 9,
        max_blocks,
        boundary,
    }
}

/// Sizes are powers of two within both limits, and a device without room for two is refused.
#[test]
fn sizes_stay_within_the_limits() {
    let entries = |commands, max| QueueSize::for_commands(commands, max).map(QueueSize::entries);
    assert_eq!(entries(128, 65_536), Some(256));
    assert_eq!(entries(127, 65_536), Some(128));
    assert_eq!(entries(128, 8), Some(8));
    assert_eq!(entries(128, 100), Some(64));
    assert_eq!(entries(1, 2), Some(2));
    assert_eq!(entries(0, 3), Some(2));
    assert_eq!(entries(u16::MAX, 65_536), Some(4096));
    assert_eq!(entries(1, 1), None);
    assert_eq!(entries(1, 0), None);
}

/// Nothing is visible before the doorbell; then all of it is, and each completion brings back the
/// buffer and the context of its own command, whatever the order.
#[test]
fn completions_find_their_commands() {
    let (mut device, mut core) = Device::new::<usize>(8, 4096);
    let mut iovas = Vec::new();
    for index in 0..5_usize {
        let buf = device.domain.alloc(512).unwrap();
        iovas.push(buf.iova());
        core.submit_data(Sqe::default(), buf, index).unwrap();
    }
    assert!(device.fetch().is_empty());
    core.ring();
    let commands = device.fetch();
    assert_eq!(
        commands.iter().map(|sqe| sqe.prp1).collect::<Vec<_>>(),
        iovas
    );
    for index in [3, 0, 4, 1, 2] {
        device.complete(commands[index].cid, Status::SUCCESS);
    }
    let done = poll(&mut core);
    let order: Vec<_> = done.iter().map(|done| done.ctx).collect();
    assert_eq!(order, [3, 0, 4, 1, 2]);
    for done in done {
        assert_eq!(done.buf.unwrap().iova(), iovas[done.ctx]);
        assert_eq!(done.result, u32::from(commands[done.ctx].cid));
    }
    assert_eq!(device.announced_head(), 5);
    assert_eq!(core.outstanding(), 0);
}

/// A ring of N entries takes N - 1 commands; the next is given back with its buffer and context.
#[test]
fn a_full_queue_gives_the_buffer_back() {
    let (mut device, mut core) = Device::new::<u32>(4, 4096);
    for index in 0..3 {
        core.submit_data(Sqe::default(), device.domain.alloc(512).unwrap(), index)
            .unwrap();
    }
    let buf = device.domain.alloc(512).unwrap();
    let iova = buf.iova();
    let rejected = core.submit_data(Sqe::default(), buf, 9).unwrap_err();
    assert!(rejected.is_full());
    assert_eq!((rejected.buf.unwrap().iova(), rejected.ctx), (iova, 9));
    let rejected = core.submit_plain(Sqe::default(), None, 7).unwrap_err();
    assert_eq!((rejected.reason, rejected.ctx), (SubmitError::Full, 7));
    core.ring();
    let first = device.fetch()[0].cid;
    device.complete(first, Status::SUCCESS);
    assert_eq!(poll(&mut core).len(), 1);
    core.submit_plain(Sqe::default(), None, 8).unwrap();
}

/// Identifiers that are idle, repeated, of an earlier use of the slot, or of no slot at all are
/// counted and end nothing.
#[test]
fn strays_are_counted_and_end_nothing() {
    let (mut device, mut core) = Device::new::<u32>(4, 4096);
    core.submit_plain(Sqe::default(), None, 1).unwrap();
    core.ring();
    let old = device.fetch()[0].cid;
    device.complete(old, Status::SUCCESS);
    device.complete(old, Status::SUCCESS); // repeated: now idle
    assert_eq!(poll(&mut core).len(), 1);
    core.submit_plain(Sqe::default(), None, 2).unwrap();
    core.ring();
    let new = device.fetch()[0].cid;
    assert_ne!(old, new, "the generation tells two uses of a slot apart");
    device.complete(old, Status::INTERNAL_ERROR); // late: the slot has moved on
    device.complete(3, Status::SUCCESS); // the slot that a ring of four never uses
    device.complete(0xffff, Status::SUCCESS);
    assert!(poll(&mut core).is_empty());
    let strays = core.strays();
    assert_eq!((strays.unknown, strays.idle, strays.stale), (2, 1, 1));
    assert_eq!(strays.last.map(|stray| stray.cid), Some(0xffff));
    device.complete(new, Status::SUCCESS);
    assert_eq!(poll(&mut core)[0].ctx, 2);
}

/// Both rings wrap many times; no entry of an earlier pass is taken for a new one.
#[test]
fn rings_wrap() {
    let (mut device, mut core) = Device::new::<u32>(8, 4096);
    for round in 0..1000_u32 {
        let batch = round % 7 + 1;
        for index in 0..batch {
            core.submit_plain(Sqe::default(), None, round * 10 + index)
                .unwrap();
        }
        core.ring();
        for sqe in device.fetch() {
            device.complete(sqe.cid, Status::SUCCESS);
        }
        let done: Vec<_> = poll(&mut core).iter().map(|done| done.ctx).collect();
        assert_eq!(
            done,
            (0..batch)
                .map(|index| round * 10 + index)
                .collect::<Vec<_>>()
        );
        assert!(poll(&mut core).is_empty());
    }
    assert_eq!(core.strays().total(), 0);
}

/// A request longer than the whole queue runs through it part by part, at the device's limit and at
/// the boundary, every byte of the buffer once, and ends once.
#[test]
fn a_long_request_is_split() {
    let (mut device, mut core) = Device::new::<&str>(4, 4096);
    let buf = device.domain.alloc(100 * 512).unwrap();
    let start = buf.iova();
    core.submit_split(blocks(100, 8, 16), Some(buf), "long")
        .unwrap();
    let (mut lba, mut offset, mut done) = (5, 0, Vec::new());
    while done.is_empty() {
        core.ring();
        let commands = device.fetch();
        assert!((1..=3).contains(&commands.len()));
        for sqe in commands {
            let count = u64::from(sqe.cdw12 & 0xffff) + 1;
            assert_eq!((sqe.slba(), sqe.prp1), (lba, start + offset));
            assert!(count <= 8 && lba / 16 == (lba + count - 1) / 16);
            (lba, offset) = (lba + count, offset + count * 512);
            device.complete(sqe.cid, Status::SUCCESS);
        }
        done = poll(&mut core);
    }
    assert_eq!((lba, offset), (105, 100 * 512));
    let done = done.pop().unwrap();
    assert!(done.status.is_success());
    assert_eq!((done.ctx, done.buf.unwrap().iova()), ("long", start));
    assert_eq!(core.outstanding(), 0);
}

/// When a part fails no further one starts, and the request ends with the first failure only after
/// every part that was started has ended.
#[test]
fn the_first_failure_of_a_split_request_wins() {
    let (mut device, mut core) = Device::new::<u32>(8, 4096);
    core.submit_split(
        blocks(100, 8, 0),
        Some(device.domain.alloc(51_200).unwrap()),
        1,
    )
    .unwrap();
    core.ring();
    let parts = device.fetch();
    assert_eq!(parts.len(), 7);
    device.complete(parts[4].cid, Status::LBA_OUT_OF_RANGE);
    device.complete(parts[0].cid, Status::INTERNAL_ERROR);
    assert!(
        poll(&mut core).is_empty(),
        "parts are still outstanding: the buffer is not given back"
    );
    assert!(device.fetch().is_empty());
    for index in [1, 2, 3, 5, 6] {
        device.complete(parts[index].cid, Status::SUCCESS);
    }
    let done = poll(&mut core);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].status, Status::LBA_OUT_OF_RANGE);
    assert_eq!(core.outstanding(), 0);
}

/// A panic in the caller's closure loses the request in hand and nothing else.
#[test]
fn a_panicking_closure_leaves_the_queue_sound() {
    let (mut device, mut core) = Device::new::<u32>(8, 4096);
    for index in 0..4 {
        core.submit_data(Sqe::default(), device.domain.alloc(512).unwrap(), index)
            .unwrap();
    }
    core.ring();
    for sqe in device.fetch() {
        device.complete(sqe.cid, Status::SUCCESS);
    }
    let mut seen = 0;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        core.poll(usize::MAX, |done| {
            seen += 1;
            assert_ne!(done.ctx, 1, "on purpose");
        });
    }));
    assert!(caught.is_err());
    assert_eq!(seen, 2);
    let rest: Vec<_> = poll(&mut core).iter().map(|done| done.ctx).collect();
    assert_eq!(rest, [2, 3]);
    assert_eq!(device.announced_head(), device.tail());
}

/// Dropping a queue with requests of both kinds outstanding frees each buffer once; abandoning it
/// gives out every piece of memory that the device knows.
#[test]
fn outstanding_buffers_are_freed_or_given_out() {
    for abandon in [false, true] {
        let (device, mut core) = Device::new::<u32>(16, 8192);
        let region = device.domain.region(1 << 20).unwrap();
        for index in 0..4 {
            core.submit_data(Sqe::default(), region.alloc(512).unwrap(), index)
                .unwrap();
        }
        let long = region.alloc(51_200).unwrap();
        core.submit_split(blocks(100, 16, 0), Some(long), 9)
            .unwrap();
        if abandon {
            let memory = core.abandon();
            // Five buffers, two rings, one area of PRP lists.
            assert_eq!(memory.len(), 8);
            assert!(region.take(0, 1 << 20).is_err());
            drop(memory);
        }
        drop(core);
        assert!(
            region.take(0, 1 << 20).is_ok(),
            "every buffer has come back"
        );
    }
}

#[derive(Debug, Clone)]
enum Step {
    Submit,
    Split(u64),
    /// Completes the n-th of the commands that the device holds.
    Complete(usize, bool),
    /// Completes an identifier made up.
    Stray(u16),
    Poll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Submit),
        1 => (1_u64..200).prop_map(Step::Split),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(nth, fail)| Step::Complete(nth, fail)),
        1 => any::<u16>().prop_map(Step::Stray),
        3 => Just(Step::Poll),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// Whatever a device completes, in whatever order, with whatever it makes up: every request that
    /// was accepted ends exactly once, and none before all its commands have.
    #[test]
    fn every_request_ends_exactly_once(steps in steps(), size in 1_u32..6) {
        let (mut device, mut core) = Device::new::<usize>(1 << size, 4096);
        let mut held: Vec<Sqe> = Vec::new();
        let mut unseen = 0_u32;
        let (mut accepted, mut ended) = (0, Vec::new());
        let run = |step: &Step, core: &mut Core<usize>, device: &mut Device,
                   held: &mut Vec<Sqe>, unseen: &mut u32, accepted: &mut usize,
                   ended: &mut Vec<usize>| {
            match step {
                Step::Submit => {
                    let buf = device.domain.alloc(512).unwrap();
                    *accepted += usize::from(core.submit_data(Sqe::default(), buf, *accepted).is_ok());
                }
                Step::Split(count) => {
                    *accepted += usize::from(
                        core.submit_split(blocks(*count, 8, 0), None, *accepted).is_ok(),
                    );
                }
                // A device never has more completions in the ring than fit.
                Step::Complete(nth, fail) if !held.is_empty() && *unseen < (1 << size) - 1 => {
                    let sqe = held.swap_remove(nth % held.len());
                    let status = if *fail { Status::INTERNAL_ERROR } else { Status::SUCCESS };
                    device.complete(sqe.cid, status);
                    *unseen += 1;
                }
                Step::Stray(cid)
                    if *unseen < (1 << size) - 1 && !held.iter().any(|sqe| sqe.cid == *cid) =>
                {
                    device.complete(*cid, Status::SUCCESS);
                    *unseen += 1;
                }
                Step::Complete(..) | Step::Stray(_) => {}
                Step::Poll => {
                    core.ring();
                    core.poll(usize::MAX, |done| ended.push(done.ctx));
                    *unseen = 0;
                }
            }
            core.ring();
            held.extend(device.fetch());
        };
        for step in &steps {
            run(step, &mut core, &mut device, &mut held, &mut unseen, &mut accepted, &mut ended);
        }
        while core.outstanding() > 0 {
            for step in [Step::Complete(0, false), Step::Poll] {
                run(&step, &mut core, &mut device, &mut held, &mut unseen, &mut accepted, &mut ended);
            }
        }
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..accepted).collect::<Vec<_>>());
    }
}
