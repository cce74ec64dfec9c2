//! The drive on a thread of its own.

use super::host::Host;
use crate::{Emulator, Namespace};
use driver::clock::{Clock, Deadline, SystemClock};
use driver::spec::command::*;
use driver::spec::{Cqe, Sqe, Status};
use std::time::Duration;

fn wait(host: &mut Host, qid: u16) -> Cqe {
    let clock = SystemClock::new();
    let mut deadline = Deadline::after(&clock, Duration::from_secs(20));
    loop {
        if let Some(cqe) = host.reap(qid) {
            return cqe;
        }
        assert!(deadline.wait_turn(), "no completion");
    }
}

fn run(host: &mut Host, qid: u16, sqe: Sqe) -> Cqe {
    let cid = host.push(qid, sqe);
    host.ring(qid);
    let cqe = wait(host, qid);
    assert_eq!(cqe.cid, cid);
    cqe
}

fn started(builder: crate::Builder) -> Host {
    let mut host = Host::off(builder.start().unwrap());
    host.enable(8);
    let entries = std::num::NonZeroU16::new(64).unwrap();
    let (cq, sq) = (
        host.alloc_aligned(1024, 1 << 16),
        host.alloc_aligned(4096, 1 << 16),
    );
    let base = super::host::BASE;
    for sqe in [
        create_io_cq(1, entries, base + cq as u64),
        create_io_sq(1, entries, base + sq as u64, 1),
    ] {
        assert_eq!(run(&mut host, 0, sqe).status(), Status::SUCCESS);
    }
    host.adopt_pair(1, 64, sq, cq);
    host
}

/// Thousands of commands in bursts, with the counters asked for meanwhile, all complete in order.
#[test]
fn commands_complete_on_the_thread() {
    let mut host = started(Emulator::builder().namespace(Namespace::null(1 << 30)));
    for burst in 0..500usize {
        let cids: Vec<_> = (0..1 + burst % 63)
            .map(|_| host.push(1, flush(1)))
            .collect();
        host.ring(1);
        if burst % 50 == 0 {
            assert!(host.emu.stats().errors == 0);
        }
        for cid in cids {
            assert_eq!(wait(&mut host, 1).cid, cid, "burst {burst}");
        }
    }
}

/// An idle drive sleeps, and wakes for a doorbell and for a register.
#[test]
fn an_idle_drive_sleeps_and_wakes() {
    let mut host = started(Emulator::builder().idle_spin(Duration::ZERO));
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(run(&mut host, 1, flush(1)).status(), Status::SUCCESS);
    }
    host.transport.reset().unwrap();
    host.enable(4);
}

/// The thread lets go of the device for whoever wants it, however long it likes to spin.
#[test]
fn a_spinning_drive_lets_others_in() {
    let host = started(Emulator::builder().idle_spin(Duration::MAX));
    let emu = host.emu.clone();
    let (asked, answered) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        for _ in 0..100 {
            asked.send(emu.stats().enables).unwrap();
        }
    });
    for _ in 0..100 {
        assert_eq!(answered.recv_timeout(Duration::from_secs(20)), Ok(1));
    }
    asking.join().unwrap();
}

/// Unmapping is final: a transfer under way ends before, and later ones fault.
#[test]
fn unmapping_is_synchronous() {
    let mut host = started(Emulator::builder());
    let memory = crate::raw::Pages::new(1 << 16).unwrap();
    let span = memory.span(0, 1 << 16).unwrap();
    let iova = 0x7000_0000;
    let count = BlockCount::new(8).unwrap();
    for _ in 0..200 {
        super::host::map(&*host.transport, iova, span);
        for _ in 0..20 {
            host.push(1, read(1, 0, count).with_prps(iova, 0));
        }
        host.ring(1);
        host.transport.dma().unmap(iova, 1 << 16).unwrap();
        span.first(4096)
            .copy_from(crate::raw::Span::source(&[0x77; 4096]));
        for _ in 0..20 {
            let status = wait(&mut host, 1).status();
            assert!(status.is_success() || status == Status::DATA_TRANSFER_ERROR);
        }
        let mut after = [0; 4096];
        crate::raw::Span::target(&mut after).copy_from(span.first(4096));
        assert_eq!(after, [0x77; 4096]);
    }
}

/// The thread ends with the last handle; a transport keeps it, a DMA target alone does not.
#[test]
fn the_thread_ends_with_the_last_handle() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks
            .filter_map(name)
            .filter(|name| name.trim() == "emu-by-name")
            .count()
    };
    let emu = Emulator::builder()
        .thread_name("emu-by-name")
        .start()
        .unwrap();
    let (transport, dma) = (emu.transport(), emu.transport().dma());
    drop(emu);
    let clock = SystemClock::new();
    clock.pause(Duration::from_millis(5));
    assert_eq!(threads(), 1);
    drop(transport);
    assert_eq!(threads(), 0);
    assert_eq!(dma.page_size(), 4096);
}

/// A processor that there is not is refused.
#[test]
fn pinning_is_checked() {
    let error = Emulator::builder().cpu(1 << 20).start().unwrap_err();
    assert!(error.to_string().contains("processor"), "{error}");
    drop(Emulator::builder().cpu(0).start().unwrap());
}
