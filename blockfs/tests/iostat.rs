//! Statistics on the driver's queue pair, with the software controller behind it.

use blockfs::device::{BlockDevice, DriverDevice};
use blockfs::iostat::{IoStat, Kind, PerQueue, Switch, Switchable, Tracked};
use driver::clock::SystemClock;
use driver::controller::{Controller, ControllerOptions, QueueOptions};
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use nvme_emulator::Emulator;
use std::error::Error;
use std::thread;

type Outcome = Result<(), Box<dyn Error>>;

/// Does a read, a write and a flush each turn, calling `between` when all three are in flight.
fn io<S: IoStat<Ctx: 'static> + 'static>(
    stats: &mut S,
    turns: u32,
    mut between: impl FnMut(),
) -> Outcome {
    let drive = Emulator::builder().start()?;
    let domain = DmaDomain::new();
    let controller = Controller::attach(drive.transport(), &domain, &ControllerOptions::default())?;
    let mut device =
        DriverDevice::<Tracked<u32, S>>::open(&controller, 1, &QueueOptions::default())?;
    let block = device.limits().block_size;
    let bytes = u64::from(block);
    for turn in 0..turns {
        let buf = domain.alloc(block as usize)?;
        let ctx = Tracked::submit(stats, Kind::Read, bytes, turn);
        device.read(Lba(turn.into()), buf, ctx)?;
        let buf = domain.alloc(block as usize)?;
        let ctx = Tracked::submit(stats, Kind::Write, bytes, turn);
        device.write(Lba(turn.into()), buf, false, ctx)?;
        device.flush(Tracked::submit(stats, Kind::Sync, 0, turn))?;
        device.ring();
        between();
        let mut left = 3;
        while left > 0 {
            left -= device.poll(|done| {
                let ok = done.status.is_success();
                assert_eq!(done.ctx.complete(stats, ok), turn);
            });
        }
    }
    Ok(())
}

/// Every command of a real queue is counted, as what it is.
#[test]
fn commands_on_a_queue_pair_are_counted() -> Outcome {
    let mut stats = PerQueue::new(SystemClock::new());
    io(&mut stats, 20, || {})?;
    let stats = stats.stats();
    let count = |kind| (stats.kind(kind).count(), stats.kind(kind).errors());
    assert_eq!(count(Kind::Read), (20, 0));
    assert_eq!(count(Kind::Write), (20, 0));
    assert_eq!(count(Kind::Sync), (20, 0));
    assert_eq!(count(Kind::Metadata), (0, 0));
    assert_eq!(
        stats.kind(Kind::Read).bytes(),
        stats.kind(Kind::Write).bytes()
    );
    let latency = stats.kind(Kind::Read).latency();
    assert!(
        latency
            .quantile(1, 2)
            .is_some_and(|median| 0 < median && median <= latency.max())
    );
    Ok(())
}

/// Another thread throws the switch while commands are in flight: they end as they began, the next
/// ones count.
#[test]
fn another_thread_turns_the_statistics_on() -> Outcome {
    let switch = Switch::new();
    let mut stats = Switchable::new(SystemClock::new(), &switch);
    let mut turn = 0;
    io(&mut stats, 20, || {
        turn += 1;
        if turn == 5 || turn == 15 {
            let switch = switch.clone();
            thread::spawn(move || switch.set(!switch.is_on()))
                .join()
                .unwrap();
        }
    })?;
    // Turned on during the fifth turn and off during the fifteenth, which was submitted while on.
    for kind in [Kind::Read, Kind::Write, Kind::Sync] {
        assert_eq!(stats.stats().kind(kind).count(), 10, "{kind}");
    }
    Ok(())
}
