//! A host gone mad: garbage in registers, doorbells and commands ends in errors, nothing worse.

use super::host::{BASE, Host, MEMORY};
use crate::{Emulator, Namespace, Timing};
use driver::spec::Sqe;
use driver::spec::registers::{CC, DOORBELLS};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Numbers that hit edges more often than chance.
fn number(rng: &mut fastrand::Rng) -> u64 {
    let edge = *rng
        .choice(&[0, 1, 0xfff, 0x1000, BASE, BASE + 0x1ff8, u64::MAX])
        .unwrap_or(&0);
    match rng.u8(..4) {
        0 => edge,
        1 => edge.wrapping_add(rng.u64(..32)),
        2 => BASE + rng.u64(..MEMORY as u64),
        _ => rng.u64(..),
    }
}

fn command(rng: &mut fastrand::Rng) -> Sqe {
    let mut sqe = Sqe {
        opcode: if rng.bool() { rng.u8(..16) } else { rng.u8(..) },
        flags: if rng.u8(..8) == 0 { rng.u8(..) } else { 0 },
        cid: rng.u16(..),
        nsid: if rng.bool() {
            rng.u32(..4)
        } else {
            rng.u32(..)
        },
        prp1: number(rng),
        prp2: number(rng),
        ..Sqe::default()
    };
    let words = [
        &mut sqe.cdw10,
        &mut sqe.cdw11,
        &mut sqe.cdw12,
        &mut sqe.cdw13,
    ];
    for word in words {
        *word = if rng.bool() {
            rng.u32(..16) | rng.u32(..16) << 16
        } else {
            number(rng) as u32
        };
    }
    sqe
}

fn rampage(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut builder = Emulator::builder()
        .namespace(Namespace::ram(1 << 20))
        .namespace(Namespace::null(1 << 60).block_size(4096))
        .write_cache(Some(64 << 10))
        .doorbell_stride(rng.u8(..3))
        .queues(4);
    if rng.bool() {
        let time = Duration::from_micros(rng.u64(..50));
        builder = builder.timing(Timing {
            read: time,
            write: time / 2,
            iops: Some(1_000_000),
        });
    }
    let mut host = Host::with_io(builder);
    let window = host.transport.doorbells().len();
    for _ in 0..400 {
        match rng.u8(..12) {
            0 => {
                let offset = rng.usize(..0x80) & !3;
                let value = number(&mut rng) as u32;
                host.transport.write32(offset, value).unwrap();
            }
            1 => {
                let offset = DOORBELLS + (rng.usize(..window) & !3);
                let value = if rng.bool() {
                    rng.u32(..40)
                } else {
                    rng.u32(..)
                };
                host.transport.write32(offset, value).unwrap();
            }
            2 => host.put(rng.usize(..MEMORY - 8), &number(&mut rng).to_le_bytes()),
            3 if !host.csts().rdy() => {
                host.transport.write32(CC, 0).unwrap();
                host.enable_with(2 + rng.u16(..30), 0x0046_0000.into());
            }
            4 => drop(host.emu.power_cut(rng.u64(..)).unwrap()),
            5 => host.emu.set_temperature(rng.u16(..)),
            6 if rng.u8(..8) == 0 => host.transport.reset().unwrap(),
            _ => {
                let qid = u16::from(rng.bool());
                let sqe = command(&mut rng);
                assert_eq!(sqe.as_bytes().len(), 64);
                host.push(qid, sqe);
                host.ring(qid);
            }
        }
        host.emu.advance(Duration::from_micros(rng.u64(..20)));
        while host.reap(rng.u16(..2)).is_some() {}
    }
}

/// Thousands of random deeds on many seeds: no panic and no hang. `NVME_EMULATOR_SEED` repeats one.
#[test]
fn garbage_does_no_harm() {
    if let Ok(seed) = std::env::var("NVME_EMULATOR_SEED") {
        return rampage(seed.parse().unwrap());
    }
    for seed in 0..150 {
        let outcome = std::panic::catch_unwind(|| rampage(seed));
        assert!(outcome.is_ok(), "NVME_EMULATOR_SEED={seed} repeats this");
    }
}
