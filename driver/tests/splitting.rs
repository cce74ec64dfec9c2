//! Where requests are cut, seen from the drive's side.

mod common;

use common::Bench;
use driver::controller::QueueOptions;
use driver::namespace::{BlockingIo, Lba};
use driver::spec::opcode::IoOpcode;
use nvme_emulator::{Builder, Emulator, Namespace};

/// First block and number of blocks of each command with this opcode, by first block.
fn parts(bench: &Bench, opcode: IoOpcode) -> Vec<(u64, u32)> {
    let mut parts: Vec<_> = bench
        .drive
        .commands()
        .iter()
        .filter(|record| record.qid > 0 && record.sqe.opcode == opcode.0)
        .map(|record| (record.sqe.slba(), (record.sqe.cdw12 & 0xffff) + 1))
        .collect();
    parts.sort_unstable();
    parts
}

fn bench(builder: Builder) -> Bench {
    Bench::stepped(builder.record_commands(100_000))
}

/// A request of the device's limit is one command, one block more makes two.
#[test]
fn requests_are_cut_at_the_transfer_limit() {
    let bench = bench(Emulator::builder().mdts(1));
    let mut io = bench.io();
    let buf = bench.domain.alloc(8192).unwrap();
    io.read(Lba(3), buf).unwrap();
    assert_eq!(parts(&bench, IoOpcode::READ), [(3, 16)]);
    let buf = bench.domain.alloc(8192 + 512).unwrap();
    io.read(Lba(3), buf).unwrap();
    assert_eq!(parts(&bench, IoOpcode::READ), [(3, 16), (19, 1)]);
}

/// Eight MiB through a queue of seven commands of eight KiB each: every block once.
#[test]
fn a_request_much_larger_than_the_queue_is_run() {
    let bench = bench(Emulator::builder().mdts(1).mqes(7));
    let mut io = bench.io();
    let buf = bench.domain.alloc(8 << 20).unwrap();
    io.write(Lba(1), buf).unwrap();
    let expected: Vec<_> = (0..1024).map(|part| (1 + part * 16, 16)).collect();
    assert_eq!(parts(&bench, IoOpcode::WRITE), expected);
}

/// No command crosses the optimal boundary, whether or not it is a power of two.
#[test]
fn requests_are_cut_at_the_optimal_boundary() {
    for boundary in [8_u16, 24, 7] {
        let namespace = Namespace::ram(1 << 20).optimal_boundary(boundary);
        let bench = bench(Emulator::builder().namespace(namespace));
        assert_eq!(bench.namespace().optimal_boundary(), Some(boundary.into()));
        let mut io = bench.io();
        for blocks in [1_usize, 2, 8, 24, 60] {
            for lba in [0_u64, 5, 23, 24] {
                let buf = bench.domain.alloc(blocks * 512).unwrap();
                io.read(Lba(lba), buf).unwrap();
                let mut next = lba;
                for (start, count) in parts(&bench, IoOpcode::READ) {
                    let boundary = u64::from(boundary);
                    assert_eq!(start, next);
                    assert_eq!(start / boundary, (start + u64::from(count) - 1) / boundary);
                    next += u64::from(count);
                }
                assert_eq!(next, lba + blocks as u64);
            }
        }
    }
}

/// Without a device limit the queue's own counts, and PRP lists are chained over several pages.
#[test]
fn transfers_of_many_megabytes_are_one_command() {
    let bench = bench(Emulator::builder().mdts(0));
    let options = QueueOptions {
        commands: 1,
        max_transfer: 16 << 20,
    };
    let queue = bench.controller.queue_pair(&options).unwrap();
    let mut io = BlockingIo::new(queue, bench.namespace());
    let region = bench.domain.region(17 << 20).unwrap();
    let mut buf = region.take(1028, 16 << 20).unwrap();
    for at in (0..16 << 20).step_by(512) {
        buf.write_at(at, &u64::try_from(at).unwrap().to_le_bytes())
            .unwrap();
    }
    let mut buf = io.write(Lba(0), buf).unwrap();
    assert_eq!(parts(&bench, IoOpcode::WRITE), [(0, 32_768)]);
    buf.fill(0xa5);
    drop(buf);
    let buf = io.read(Lba(0), region.take(4, 16 << 20).unwrap()).unwrap();
    for at in (0..16 << 20).step_by(512) {
        let mut word = [0; 8];
        buf.read_at(at, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), at as u64);
    }
}

/// Write zeroes beyond what one command can say is cut, and zeroes exactly what was asked.
#[test]
fn write_zeroes_of_any_length() {
    let bench = bench(
        Emulator::builder()
            .mdts(0)
            .namespace(Namespace::ram(64 << 20)),
    );
    let mut io = bench.io();
    io.write_zeroes(Lba(1), 131_071).unwrap();
    assert_eq!(
        parts(&bench, IoOpcode::WRITE_ZEROES),
        [(1, 65_536), (65_537, 65_535)]
    );
}
