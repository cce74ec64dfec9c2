//! Attaching and detaching for ever: alone in its process, because it counts what the process holds.

use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use nvme_emulator::{Emulator, Namespace};
use std::time::Duration;

/// A thousand rounds of attach, I/O and detach leave neither mapping, I/O address nor memory behind,
/// and each round shut the controller down in order.
#[test]
fn a_thousand_rounds_leak_nothing() {
    let drive = Emulator::builder()
        .namespace(Namespace::ram(1 << 20))
        .stepped()
        .unwrap();
    let domain = DmaDomain::new();
    let keep = domain.alloc(4096).unwrap();
    let mut after_first = None;
    for round in 0..1000 {
        let options = ControllerOptions::default();
        let controller = Controller::attach(drive.transport(), &domain, &options).unwrap();
        let namespace = controller.namespace(1).unwrap();
        let mut queue = controller
            .queue_pair::<()>(&QueueOptions::default())
            .unwrap();
        let buf = domain.alloc(4096).unwrap();
        namespace
            .write(&mut queue, Lba(round % 8), buf, ())
            .unwrap();
        assert!(queue.drain(Duration::from_secs(1), drop));
        // Explicitly in one half of the rounds, by dropping in the other.
        if round % 2 == 0 {
            drop(queue);
            controller.shutdown().unwrap();
        }
        let stats = domain.stats();
        assert_eq!(
            (stats.targets, stats.parked_bytes),
            (usize::from(round % 2 == 1), 0)
        );
        if round % 2 == 0 {
            assert_eq!(*after_first.get_or_insert(stats), stats, "round {round}");
        }
    }
    drop(keep);
    let stats = drive.stats();
    assert_eq!((stats.enables, stats.shutdowns), (1000, 1000));
    assert_eq!(domain.stats().targets, 0);
}
