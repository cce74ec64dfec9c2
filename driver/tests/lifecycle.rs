//! Attach, detach and everything in between: nothing leaks, nothing is freed too early.

mod common;

use common::Bench;
use driver::controller::{Controller, ControllerError, ControllerOptions, QueueOptions};
use driver::namespace::{IoError, Lba, NamespaceError};
use driver::spec::opcode::AdminOpcode;
use nvme_emulator::{Emulator, Namespace};
use std::time::Duration;

/// A queue pair dropped with commands outstanding deletes its queues first; then its buffers are free,
/// and none before.
#[test]
fn a_queue_dropped_in_flight_frees_its_buffers_last() {
    let bench = Bench::stepped(Emulator::builder().record_commands(64));
    let namespace = bench.namespace();
    let region = bench.domain.region(1 << 20).unwrap();
    let mut queue = bench.queue::<u32>();
    for index in 0..20 {
        let buf = region.alloc(8192).unwrap();
        namespace.read(&mut queue, Lba(0), buf, index).unwrap();
    }
    queue.ring();
    assert!(region.take(0, 1 << 20).is_err());
    drop(queue);
    assert!(region.take(0, 1 << 20).is_ok());
    let commands = bench.drive.commands();
    let deletes: Vec<_> = commands
        .iter()
        .filter(|record| record.qid == 0)
        .map(|record| AdminOpcode(record.sqe.opcode))
        .filter(|op| [AdminOpcode::DELETE_IO_SQ, AdminOpcode::DELETE_IO_CQ].contains(op))
        .collect();
    assert_eq!(
        deletes,
        [AdminOpcode::DELETE_IO_SQ, AdminOpcode::DELETE_IO_CQ]
    );
    bench.controller.shutdown().unwrap();
}

/// A controller dropped before its queue pair goes on until the queue pair is dropped too; shut down
/// by hand it says that it is still in use.
#[test]
fn the_last_owner_shuts_the_controller_down() {
    let bench = Bench::stepped(Emulator::builder());
    let (namespace, mut queue) = (bench.namespace(), bench.queue::<u32>());
    let Bench {
        controller,
        domain,
        drive,
    } = bench;
    let error = controller.shutdown().unwrap_err();
    assert!(
        matches!(error, ControllerError::QueuesInUse { queues: 1 }),
        "{error}"
    );
    assert_eq!(drive.stats().shutdowns, 0);
    namespace
        .read(&mut queue, Lba(0), domain.alloc(512).unwrap(), 7)
        .unwrap();
    let mut ended = Vec::new();
    assert!(queue.drain(Duration::from_secs(1), |done| ended.push(done.ctx)));
    assert_eq!(ended, [7]);
    drop(queue);
    assert_eq!((drive.stats().shutdowns, domain.stats().targets), (1, 0));
}

/// The device grants few queues: all of them can be had, one more is refused with the number granted,
/// and one given back can be had again.
#[test]
fn queues_are_granted_counted_and_given_back() {
    let bench = Bench::stepped(Emulator::builder().queues(3));
    assert_eq!(bench.controller.queues_granted(), 3);
    let mut queues: Vec<_> = (0..3).map(|_| bench.queue::<()>()).collect();
    let refused = bench
        .controller
        .queue_pair::<()>(&QueueOptions::default())
        .unwrap_err();
    assert!(
        matches!(refused, ControllerError::NoQueueLeft { granted: 3 }),
        "{refused}"
    );
    let id = queues.remove(1).id();
    assert_eq!(bench.queue::<()>().id(), id);
}

/// Limits come from the device: queue entries, stride, page size, transfer size.
#[test]
fn limits_are_read_from_the_device() {
    let builder = Emulator::builder()
        .mqes(20)
        .doorbell_stride(2)
        .page_sizes(2, 4)
        .mdts(3);
    let bench = Bench::stepped(builder);
    let limits = bench.controller.limits();
    assert_eq!((limits.queue_entries_max, limits.doorbell_stride), (21, 16));
    assert_eq!(
        (limits.page_shift, bench.controller.max_transfer()),
        (14, Some(8 << 14))
    );
    // 21 entries are rounded down to 16, of which 15 take commands.
    assert_eq!(bench.queue::<()>().depth(), 15);
}

/// A slow drive is waited for as long as it says that it may take, and no longer is needed.
#[test]
fn a_slow_drive_is_waited_for() {
    // The shutdown takes longer than the default limit: RTD3E counts.
    let (delay, shutdown) = (Duration::from_secs(9), Duration::from_secs(15));
    let builder = Emulator::builder()
        .cap_timeout(20)
        .ready_delay(delay)
        .shutdown_delay(shutdown);
    let bench = Bench::stepped(builder);
    let clock = bench.drive.transport().clock();
    assert!(
        (9000..9100).contains(&clock.now().as_millis()),
        "{:?}",
        clock.now()
    );
    let start = clock.now();
    bench.controller.shutdown().unwrap();
    let took = clock.now() - start;
    assert!((15_000..15_100).contains(&took.as_millis()), "{took:?}");
}

/// A namespace that is not there is told from one that is.
#[test]
fn namespaces_are_listed_and_found() {
    let builder = Emulator::builder()
        .namespace(Namespace::ram(1 << 20))
        .namespace(Namespace::ram(2 << 20).block_size(4096))
        .namespace(Namespace::null(1 << 40));
    let bench = Bench::stepped(builder);
    assert_eq!(bench.controller.namespaces().unwrap(), [1, 2, 3]);
    let second = bench.controller.namespace(2).unwrap();
    assert_eq!((second.blocks(), second.block_size()), (512, 4096));
    assert_eq!(bench.controller.namespace(3).unwrap().bytes(), 1 << 40);
    for id in [0, 4, u32::MAX - 1] {
        let error = bench.controller.namespace(id).unwrap_err();
        assert!(
            matches!(
                error,
                ControllerError::Namespace(NamespaceError::Inactive(_))
            ),
            "{id}: {error}"
        );
    }
    assert!(
        !bench
            .controller
            .namespace_descriptors(1)
            .unwrap()
            .is_empty()
    );
}

/// An unplugged drive is noticed: commands that are waited for say that it is gone, long before their
/// limit, and its end is not waited for.
#[test]
fn an_unplugged_drive_is_noticed() {
    let bench = Bench::stepped(Emulator::builder());
    let (queue, mut io) = (bench.queue::<()>(), bench.io());
    bench.controller.check().unwrap();
    bench.drive.unplug();
    assert!(bench.controller.check().is_err());
    let clock = bench.drive.transport().clock();
    let start = clock.now();
    let error = io.flush().unwrap_err();
    assert!(
        matches!(error, IoError::Controller(ControllerError::Gone { .. })),
        "{error}"
    );
    assert!(
        clock.now() - start < Duration::from_secs(1),
        "long before the command's limit"
    );
    drop(io);
    let error = bench.controller.smart_log().unwrap_err();
    assert!(matches!(error, ControllerError::Gone { .. }), "{error}");
    drop(queue);
    let start = clock.now();
    drop(bench.controller);
    assert!(clock.now() - start < Duration::from_secs(60));
}

/// Temperature, cache and features are what the drive says.
#[test]
fn health_and_features_are_read() {
    use driver::spec::feature::FeatureId;
    let bench = Bench::stepped(Emulator::builder());
    bench.drive.set_temperature(273 + 51);
    assert_eq!(
        bench.controller.smart_log().unwrap().composite_celsius(),
        Some(51)
    );
    assert!(bench.controller.volatile_cache().unwrap());
    bench
        .controller
        .set_feature(FeatureId::VOLATILE_WRITE_CACHE, 0)
        .unwrap();
    assert!(!bench.controller.volatile_cache().unwrap());
    let without = Bench::stepped(Emulator::builder().write_cache(None));
    assert!(!without.controller.volatile_cache().unwrap());
}

/// A drive that claims to need more than an hour for its shutdown is not given it.
#[test]
fn the_time_for_a_shutdown_is_bounded() {
    let hour = Duration::from_secs(4000);
    let bench = Bench::stepped(Emulator::builder().shutdown_delay(hour));
    let clock = bench.drive.transport().clock();
    let start = clock.now();
    let error = bench.controller.shutdown().unwrap_err();
    assert!(matches!(error, ControllerError::TimedOut { .. }), "{error}");
    assert!(clock.now() - start < Duration::from_secs(200));
}

/// A transport is driven by one controller at a time.
#[test]
fn a_second_controller_on_one_transport_is_refused() {
    let bench = Bench::stepped(Emulator::builder());
    let options = ControllerOptions::default();
    let attach = || Controller::attach(bench.drive.transport(), &bench.domain, &options);
    let error = attach().unwrap_err();
    assert!(matches!(error, ControllerError::InUse { .. }), "{error}");
    bench.controller.check().unwrap();
    bench.controller.shutdown().unwrap();
    Controller::attach(bench.drive.transport(), &bench.domain, &options).unwrap();
}

/// Where the device does not confirm that a queue is gone, the buffers of its commands stay out of
/// reach until the controller has been stopped.
#[test]
fn buffers_of_a_queue_that_was_not_deleted_stay_parked() {
    let bench = Bench::stepped(Emulator::builder());
    let region = bench.domain.region(1 << 20).unwrap();
    let mut queue = bench.queue::<()>();
    let buf = region.alloc(4096).unwrap();
    bench.namespace().read(&mut queue, Lba(0), buf, ()).unwrap();
    queue.ring();
    bench.drive.unplug();
    drop(queue);
    assert!(region.take(0, 1 << 20).is_err(), "the buffer is parked");
    drop(bench.controller);
    assert!(
        region.take(0, 1 << 20).is_ok(),
        "the drive is cut off: the buffer is free"
    );
}

/// The rings of a queue pair whose creation was not answered are not used for anything else.
#[test]
fn rings_of_a_queue_that_may_exist_stay_parked() {
    let bench = Bench::stepped(Emulator::builder());
    // What is allocated next lies where the last allocation of this size was.
    let place = bench.domain.alloc(8192).unwrap().iova();
    assert_eq!(bench.domain.alloc(8192).unwrap().iova(), place);
    bench.drive.unplug();
    let error = bench
        .controller
        .queue_pair::<()>(&QueueOptions::default())
        .unwrap_err();
    assert!(!matches!(error, ControllerError::Admin { .. }), "{error}");
    assert_ne!(bench.domain.alloc(8192).unwrap().iova(), place);
}
