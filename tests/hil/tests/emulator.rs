//! The data tests of the guest on the software controller, in the same shapes.
//!
//! QEMU is the judge of both sides; what passes there and fails here is the emulator's fault.
//! `DOORBELL_SEED` repeats a run.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail loudly and print the seed that repeats them"
)]

use driver::controller::{Controller, ControllerOptions};
use driver::memory::DmaDomain;
use hil::blockfs_files;
use hil::boots::{self, SHAPES};
use hil::data::{self, Attached, Outcome};
use nvme_emulator::{Emulator, Namespace};

/// A software controller of that shape: on a thread, or working while the driver waits.
fn attach(shape: &boots::Controller, thread: bool) -> (Emulator, Attached) {
    let mdts = shape
        .max_transfer
        .map_or(0, |bytes| u8::try_from((bytes >> 12).ilog2()).unwrap());
    let mut builder = Emulator::builder()
        .serial(shape.name)
        .mdts(mdts)
        .mqes(u16::try_from(shape.queue_entries - 1).unwrap())
        .queues(shape.io_queues);
    for mib in shape.namespaces_mib {
        let block = u32::try_from(shape.lba_bytes).unwrap();
        builder = builder.namespace(Namespace::ram(mib << 20).block_size(block));
    }
    let drive = if thread {
        builder.start()
    } else {
        builder.stepped()
    }
    .unwrap();
    let domain = DmaDomain::new();
    let options = ControllerOptions::default();
    let controller = Controller::attach(drive.transport(), &domain, &options).unwrap();
    (drive, Attached { controller, domain })
}

/// Runs `test` on each shape.
fn on_each(thread: bool, test: impl Fn(&Attached, &boots::Controller) -> Outcome) {
    for shape in SHAPES {
        let (_drive, attached) = attach(shape, thread);
        if let Err(error) = test(&attached, shape) {
            panic!("{}: {error}", shape.name);
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("DOORBELL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("DOORBELL_SEED={seed}");
    seed
}

/// The driver reads the limits as they were set.
#[test]
fn limits() {
    on_each(false, data::limits);
}

/// Lengths and offsets around everything that has an edge.
#[test]
fn edges() {
    on_each(false, data::edges);
}

/// Random places, lengths and offsets.
#[test]
fn random() {
    let seed = seed();
    on_each(false, |attached, _| data::random(attached, seed));
}

/// As much outstanding as the queue takes. Nobody waits on a clock there: the drive has a thread.
#[test]
fn deep() {
    let seed = seed();
    on_each(true, |attached, shape| data::deep(attached, shape, seed));
}

/// Compare, write zeroes, deallocate, flush and forced unit access.
#[test]
fn commands() {
    on_each(false, |attached, _| data::commands(attached));
}

/// Files, on a few shapes, with and without a volatile cache. The filesystem waits on the system's clock: the
/// drive has a thread.
#[test]
fn files() {
    let seed = seed();
    for (nth, shape) in [&boots::LBA512, &boots::LBA4096, &boots::SMALL_QUEUES]
        .iter()
        .enumerate()
    {
        for cache in [true, false] {
            let (_drive, attached) = attach(shape, true);
            let seed = seed.wrapping_add(nth as u64);
            if let Err(error) = blockfs_files::random(&attached, cache, seed, 2) {
                panic!("{}, cache {cache}: {error}", shape.name);
            }
        }
    }
}
