//! Rings: wrapping, phase, backpressure, doorbells that lie, and the modelled drive's time.

use super::host::{BASE, Host, REVERSED};
use crate::{Emulator, Namespace, Timing};
use driver::spec::command::*;
use driver::spec::log::AsyncEvent;
use driver::spec::{Sqe, Status};
use std::num::NonZeroU16;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Rings of every small size wrap many times without losing a command or a phase.
#[test]
fn rings_wrap() {
    for entries in [2, 3, 4, 7, 64] {
        let mut host = Host::new(Emulator::builder());
        host.create_pair(1, entries);
        for round in 0..3 * usize::from(entries) {
            let count = 1 + round % usize::from(entries - 1);
            let cids: Vec<_> = (0..count).map(|_| host.push(1, flush(1))).collect();
            host.ring(1);
            host.emu.step();
            for cid in cids {
                let cqe = host.reap(1).expect("a completion");
                assert_eq!(
                    (cqe.cid, cqe.status()),
                    (cid, Status::SUCCESS),
                    "{entries} {round}"
                );
            }
            assert!(host.reap(1).is_none());
        }
    }
}

/// A completion queue that is full holds commands back, and none is lost when it gets room again.
#[test]
fn a_full_completion_queue_holds_back() {
    let mut host = Host::new(Emulator::builder());
    host.create_pair(1, 4);
    // A second submission queue, longer than the completion queue that both share.
    let entries = NonZeroU16::new(16).unwrap();
    let sq = host.alloc_aligned(16 * 64, 1 << 16);
    host.admin_ok(create_io_sq(2, entries, BASE + sq as u64, 1));
    for index in 0..15u16 {
        let sqe = Sqe {
            cid: index,
            ..flush(1)
        };
        host.put(sq + usize::from(index) * 64, sqe.as_bytes());
    }
    host.push(1, flush(1));
    host.ring_sq(2, 15);
    host.ring(1);
    assert_eq!(host.emu.step(), 3, "three entries of four can be used");
    assert_eq!(host.emu.step(), 0);
    let mut seen = Vec::new();
    while let Some(cqe) = host.reap(1) {
        seen.push((cqe.sqid, cqe.cid));
        host.emu.step();
    }
    assert_eq!(seen.len(), 16);
    let second: Vec<_> = seen
        .iter()
        .filter(|done| done.0 == 2)
        .map(|done| done.1)
        .collect();
    assert_eq!(second, (0..15).collect::<Vec<_>>());
}

/// Rings whose pages are scattered over host memory work as well as those in one piece.
#[test]
fn scattered_rings_work() {
    let mut host = Host::new(Emulator::builder());
    // 128 entries of 64 bytes are two pages; in the reversed mapping they are apart.
    let (first, second) = (host.alloc(4096), host.alloc(4096));
    let cq = host.alloc(4096);
    let iova = REVERSED + (super::host::MEMORY - 4096 - second) as u64;
    let entries = NonZeroU16::new(128).unwrap();
    host.admin_ok(create_io_cq(1, entries, BASE + cq as u64));
    host.admin_ok(create_io_sq(1, entries, iova, 1));
    for index in 0..127usize {
        let (page, at) = if index < 64 {
            (second, index)
        } else {
            (first, index - 64)
        };
        let sqe = Sqe {
            cid: index as u16,
            ..flush(1)
        };
        host.put(page + at * 64, sqe.as_bytes());
    }
    host.ring_sq(1, 127);
    assert_eq!(host.emu.step(), 127);
    for index in 0..127usize {
        let bytes = host.get(cq + index * 16, 16);
        assert_eq!((bytes[12], bytes[14]), (index as u8, 1));
    }
}

/// Impossible doorbell values are ignored, counted once, and told by an event.
#[test]
fn lying_doorbells_are_told() {
    let mut host = Host::with_io(Emulator::builder());
    let held = host.push(0, async_event_request());
    host.ring(0);
    host.emu.step();
    for value in [16, 0xffff, u32::MAX] {
        host.ring_sq(1, value);
        host.emu.step();
        host.emu.step();
    }
    let told = host.reap(0).unwrap();
    let event = AsyncEvent::from(told.result);
    assert_eq!(
        (told.cid, event.event_type()),
        (held, AsyncEvent::TYPE_ERROR)
    );
    assert_eq!(event.info(), AsyncEvent::ERROR_INVALID_DOORBELL_VALUE);
    assert_eq!(host.emu.stats().bad_doorbells, 3);
    // A head beyond what was completed, and a queue that does not exist.
    host.ring_sq(1, 0);
    host.ring_cq(1, 5);
    host.ring_sq(40, 1);
    host.emu.step();
    host.emu.step();
    assert_eq!(host.emu.stats().bad_doorbells, 5);
    host.ring_cq(1, 0);
    host.io_ok(flush(1));
}

/// A queue that was deleted and created again begins at zero, whatever its doorbells held.
#[test]
fn a_new_queue_begins_at_zero() {
    let mut host = Host::with_io(Emulator::builder());
    for _ in 0..5 {
        host.io_ok(flush(1));
    }
    host.admin_ok(delete_io_sq(1));
    host.admin_ok(delete_io_cq(1));
    host.create_pair(1, 16);
    assert_eq!(host.emu.step(), 0);
    host.io_ok(flush(1));
    assert_eq!(host.emu.stats().bad_doorbells, 0);
}

/// The modelled drive completes at its latency and not before, and keeps its pace, in virtual time.
#[test]
fn latency_and_pace() {
    let timing = Timing {
        read: Duration::from_micros(80),
        write: Duration::from_micros(20),
        iops: Some(100_000),
    };
    let builder = Emulator::builder()
        .namespace(Namespace::null(1 << 30))
        .timing(timing);
    let mut host = Host::with_io(builder);
    let slow = host.push(1, read(1, 0, BlockCount::ONE));
    let fast = host.push(1, write(1, 0, BlockCount::ONE, false));
    host.ring(1);
    host.emu.advance(Duration::from_nanos(29_999));
    assert!(host.reap(1).is_none(), "10 us to start and 20 to write");
    host.emu.advance(Duration::from_nanos(1));
    assert_eq!(host.reap(1).unwrap().cid, fast);
    host.emu.advance(Duration::from_micros(49));
    assert!(host.reap(1).is_none());
    host.emu.advance(Duration::from_micros(1));
    assert_eq!(host.reap(1).unwrap().cid, slow);
    // 14 writes start 10 us apart.
    for _ in 0..14 {
        host.push(1, write(1, 0, BlockCount::ONE, false));
    }
    host.ring(1);
    let mut done = 0;
    for step in 0..16 {
        host.emu.advance(Duration::from_micros(10));
        done += std::iter::from_fn(|| host.reap(1)).count();
        assert!(done <= step + 1, "{done} after {} us", 10 * (step + 1));
    }
    assert_eq!(done, 14);
    host.emu.set_timing(Timing::default());
    host.io_ok(flush(1));
}

/// Late completions find room kept for them, or wait until there is some.
#[test]
fn late_completions_keep_their_room() {
    let timing = Timing {
        write: Duration::from_micros(5),
        ..Timing::default()
    };
    let mut host = Host::new(Emulator::builder().timing(timing));
    host.create_pair(1, 4);
    for round in 0..10 {
        let cids: Vec<_> = (0..3).map(|_| host.push(1, flush(1))).collect();
        host.ring(1);
        host.emu.advance(Duration::from_micros(5));
        for cid in cids {
            assert_eq!(host.reap(1).map(|cqe| cqe.cid), Some(cid), "round {round}");
        }
    }
}

/// The same commands at the same times leave the same trace: stepping is deterministic.
#[test]
fn stepping_repeats() {
    let trace = || {
        let timing = Timing {
            read: Duration::from_micros(3),
            ..Timing::default()
        };
        let mut host = Host::with_io(Emulator::builder().timing(timing));
        let mut rng = fastrand::Rng::with_seed(5);
        let mut trace = Vec::new();
        for _ in 0..500 {
            let lba = rng.u64(..4096);
            let sqe = if rng.bool() {
                read(1, lba, BlockCount::ONE)
            } else {
                flush(1)
            };
            if host.emu.stats().io_total() - (trace.len() as u64) < 8 {
                host.push(1, sqe.with_prps(BASE, 0));
                host.ring(1);
            }
            host.emu.advance(Duration::from_nanos(rng.u64(..2000)));
            while let Some(cqe) = host.reap(1) {
                trace.push((host.transport.clock().now(), cqe));
            }
        }
        trace
    };
    let first = trace();
    assert!(first.len() > 100);
    assert_eq!(first, trace());
}

/// Commands whose completions are still to come take their room: no more are fetched than the
/// completion queue will hold, and all end.
#[test]
fn room_is_kept_for_late_completions() {
    let timing = Timing {
        write: Duration::from_micros(5),
        ..Timing::default()
    };
    let mut host = Host::new(Emulator::builder().timing(timing));
    host.create_pair(1, 4);
    let entries = NonZeroU16::new(16).unwrap();
    let sq = host.alloc_aligned(16 * 64, 1 << 16);
    host.admin_ok(create_io_sq(2, entries, BASE + sq as u64, 1));
    for index in 0..15u16 {
        let sqe = Sqe {
            cid: index,
            ..flush(1)
        };
        host.put(sq + usize::from(index) * 64, sqe.as_bytes());
    }
    host.ring_sq(2, 15);
    host.emu.step();
    assert_eq!(host.emu.stats().io_total(), 3);
    let mut seen = Vec::new();
    for _ in 0..20 {
        host.emu.advance(Duration::from_micros(5));
        seen.extend(std::iter::from_fn(|| host.reap(1)).map(|cqe| cqe.cid));
    }
    assert_eq!(seen, (0..15).collect::<Vec<_>>());
}

/// A ring that is mapped elsewhere is found there, and one that is not mapped any more is fatal.
#[test]
fn rings_follow_the_map() {
    let iova = 0x7000_0000;
    let mut host = Host::new(Emulator::builder());
    let memory = [host.alloc(4096), host.alloc(4096)];
    let cq = host.alloc(4096);
    let entries = NonZeroU16::new(16).unwrap();
    let dma = host.transport.dma();
    for (index, at) in memory.into_iter().enumerate() {
        super::host::map(&*host.transport, iova, host.span(at, 4096));
        if index == 0 {
            host.admin_ok(create_io_cq(1, entries, BASE + cq as u64));
            host.admin_ok(create_io_sq(1, entries, iova, 1));
        }
        let cid = 70 + index as u16;
        let sqe = Sqe { cid, ..flush(1) };
        host.put(at + index * 64, sqe.as_bytes());
        host.ring_sq(1, index as u32 + 1);
        host.emu.step();
        assert_eq!(host.get(cq + index * 16 + 12, 2), cid.to_le_bytes());
        dma.unmap(iova, 4096).unwrap();
    }
    assert!(!host.csts().cfs());
    host.ring_sq(1, 3);
    host.emu.step();
    assert!(host.csts().cfs());
}
