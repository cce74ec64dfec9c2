//! Attaching, letting go, and what must be left of it: nothing.

use crate::machine::{self, Attached};
use crate::test::{Context, Outcome, Test};
use driver::controller::{Controller, ControllerError, ControllerOptions, QueueOptions};
use driver::memory::DmaDomain;
use driver::namespace::{BlockingIo, Lba};
use driver::transport::Transport;
use driver::transport::vfio::VfioTransport;
use hil::boots::{self, LBA512, SHAPES, TWIN, TWO_QUEUES};
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "lifecycle::a_thousand_rounds_leak_nothing",
            &["transfers"],
            a_thousand_rounds,
        )
        .within(Duration::from_secs(600)),
        Test::new("lifecycle::orderly_shutdown", &["plain"], orderly_shutdown),
        Test::new(
            "lifecycle::queues_are_counted",
            &["plain"],
            queues_are_counted,
        ),
        Test::new(
            "lifecycle::drop_with_commands_in_flight",
            BOTH,
            drop_in_flight,
        ),
    ]
}

const BOTH: &[&str] = &["plain", "hugepages"];

/// What a process holds of things that could leak.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    files: usize,
    locked: String,
    pinned: String,
    io_addresses: u64,
    mappings: usize,
}

impl Held {
    fn now() -> Result<Self, Box<dyn Error>> {
        let status = fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
                .ok_or_else(|| format!("no {name}"))
        };
        Ok(Self {
            files: fs::read_dir("/proc/self/fd")?.count(),
            locked: field("VmLck:")?,
            pinned: field("VmPin:")?,
            io_addresses: DmaDomain::new().stats().process_iova_bytes,
            mappings: fs::read_to_string("/proc/self/maps")?
                .lines()
                .filter(|line| line.contains("vfio"))
                .count(),
        })
    }
}

/// Opens, attaches, reads, lets go.
fn round(controller: &boots::Controller, number: usize) -> Result<(), Box<dyn Error>> {
    let Attached { controller, domain } = machine::attach(controller)?;
    let queue = controller.queue_pair(&QueueOptions::default())?;
    let mut io = BlockingIo::new(queue, controller.namespace(1)?);
    let buf = io.read(Lba(0), domain.alloc(4096)?)?;
    // Whatever goes first: the buffer, the queue, the controller or the domain.
    match number % 4 {
        0 => drop(domain),
        1 => drop(controller),
        2 => {
            drop(io);
            controller.shutdown()?;
        }
        _ => drop(buf),
    }
    Ok(())
}

/// A thousand rounds on several controllers side by side leave no open file, no locked or pinned
/// byte, no I/O address and no mapping behind.
fn a_thousand_rounds(_: &Context) -> Outcome {
    // Side by side because each open and each close waits a tenth of a second for a reset.
    let controllers: Vec<_> = SHAPES.iter().copied().chain([&TWIN]).collect();
    let rounds = 1000_usize.div_ceil(controllers.len());
    // What is made once (the runtime's own files, thread stacks) is there before the first count.
    round(controllers[0], 0)?;
    let before = Held::now()?;
    println!(
        "{rounds} rounds on each of {}; before: {before:?}",
        controllers.len()
    );
    thread::scope(|scope| {
        let threads: Vec<_> = controllers
            .iter()
            .map(|controller| {
                scope.spawn(move || {
                    (0..rounds).try_for_each(|number| {
                        let told = |e| format!("{} round {number}: {e}", controller.name);
                        round(controller, number).map_err(told)
                    })
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a round panicked"))
    })?;
    assert_eq!(Held::now()?, before);
    Ok(())
}

/// CC and CSTS ("Controller Configuration" and "Controller Status").
const CC: usize = 0x14;
const CSTS: usize = 0x1c;

/// After a shutdown the controller is disabled and nothing of the process is mapped for it; while a
/// queue lives the shutdown is refused, and happens when that queue goes.
fn orderly_shutdown(_: &Context) -> Outcome {
    let transport = Arc::new(VfioTransport::open(LBA512.address().parse()?, None)?);
    let domain = DmaDomain::new();
    let attach = || Controller::attach(transport.clone(), &domain, &ControllerOptions::default());
    let enabled = || -> Result<(u32, u32), Box<dyn Error>> {
        Ok((transport.read32(CC)? & 1, transport.read32(CSTS)? & 1))
    };

    let controller = attach()?;
    assert_eq!(enabled()?, (1, 1));
    assert_eq!(domain.stats().targets, 1);
    controller.shutdown()?;
    assert_eq!(enabled()?, (0, 0));
    assert_eq!(domain.stats().targets, 0);

    let controller = attach()?;
    let queue = controller.queue_pair::<()>(&QueueOptions::default())?;
    match controller.shutdown() {
        Err(ControllerError::QueuesInUse { queues: 1 }) => {}
        other => return Err(format!("shutdown with a queue in use: {other:?}").into()),
    }
    assert_eq!(enabled()?, (1, 1), "the queue goes on");
    drop(queue);
    assert_eq!(enabled()?, (0, 0));
    assert_eq!(domain.stats().targets, 0);
    Ok(())
}

/// As many queues as were granted can be made, one more is refused, and a dropped one makes room.
fn queues_are_counted(_: &Context) -> Outcome {
    let Attached { controller, .. } = machine::attach(&TWO_QUEUES)?;
    let make = || controller.queue_pair::<()>(&QueueOptions::default());
    for _ in 0..100 {
        let queues = [make()?, make()?];
        assert_ne!(queues[0].id(), queues[1].id());
        match make() {
            Err(ControllerError::NoQueueLeft { granted: 2 }) => {}
            other => return Err(format!("a third queue: {other:?}").into()),
        }
    }
    Ok(())
}

/// Queue and controller dropped in the middle of long reads: nothing panics, and once they are gone
/// the device writes no more into the memory that the reads were for.
fn drop_in_flight(_: &Context) -> Outcome {
    const LEN: usize = 2 << 20;
    for round in 0..8 {
        let Attached { controller, domain } = machine::attach(&LBA512)?;
        let namespace = controller.namespace(1)?;
        let memory = domain.region(8 * LEN)?;
        let mut queue = controller.queue_pair::<usize>(&QueueOptions::default())?;
        for index in 0..8 {
            let mut buf = memory.take(index * LEN, LEN)?;
            buf.fill(0);
            namespace.read(&mut queue, Lba(0), buf, index)?;
        }
        queue.ring();
        assert!(queue.outstanding() > 0);
        if round % 2 == 0 {
            drop(queue);
            drop(controller);
        } else {
            drop(controller);
            drop(queue);
        }
        // All buffers are free again, and hold what is put there now.
        let mut whole = memory.take(0, 8 * LEN)?;
        whole.fill(0x5a);
        thread::sleep(Duration::from_millis(20));
        let mut bytes = vec![0; LEN];
        for index in 0..8 {
            whole.read_at(index * LEN, &mut bytes)?;
            assert!(
                bytes.iter().all(|byte| *byte == 0x5a),
                "written after the queue was dropped"
            );
        }
    }
    Ok(())
}
