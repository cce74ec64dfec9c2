//! Data through our driver: what was written is what is read, on every shape of controller.
//!
//! The same tests run in the guest, on QEMU's controllers, and on the software controller
//! (`tests/emulator.rs`): whatever they share is the driver's or the specification's.

use crate::boots;
use crate::pattern::{self, Shadow};
use driver::controller::{Controller, QueueOptions};
use driver::memory::{DmaBuf, DmaDomain, DmaRegion};
use driver::namespace::{BlockRange, BlockingIo, IoError, IoFlags, Lba};
use driver::queue::{QueuePair, SubmitError};
use driver::spec::Status;
use fastrand::Rng;
use std::collections::HashMap;
use std::error::Error;

/// The longest transfer, in bytes.
const LONGEST: usize = 8 << 20;
/// The most that one command moves, in bytes, where the device allows it: enough for a chained PRP
/// list. QEMU itself fails commands of more than 1,024 pages: they become one `preadv` on the host.
const COMMAND: u32 = 3 << 20;
/// The longest transfer among many, in bytes.
const MOST_DEEP: usize = 32 << 10;
/// Requests of one run of the random test, on all namespaces together.
const REQUESTS: usize = 120;

/// What a test answers. A panic (a failed assertion) is a failure too.
pub type Outcome = Result<(), Box<dyn Error>>;

/// A controller under our driver, and the memory that it shares with it.
#[derive(Debug)]
pub struct Attached {
    /// The controller.
    pub controller: Controller,
    /// The domain that it was attached with.
    pub domain: DmaDomain,
}

/// The driver reads the device's limits as they were set.
pub fn limits(attached: &Attached, shape: &boots::Controller) -> Outcome {
    let controller = &attached.controller;
    assert_eq!(controller.max_transfer(), shape.max_transfer);
    assert_eq!(controller.limits().queue_entries_max, shape.queue_entries);
    assert_eq!(controller.queues_granted(), shape.io_queues);
    let serial = controller.identify().sn;
    assert_eq!(String::from_utf8_lossy(&serial).trim_end(), shape.name);
    let found = controller.namespaces()?;
    assert_eq!(found.len(), shape.namespaces_mib.len());
    for (id, mib) in found.into_iter().zip(shape.namespaces_mib) {
        let namespace = controller.namespace(id)?;
        assert_eq!(namespace.bytes(), mib << 20);
        assert_eq!(u64::from(namespace.block_size()), shape.lba_bytes);
    }
    Ok(())
}

/// One namespace under test.
struct Volume {
    io: BlockingIo,
    shadow: Shadow,
    memory: DmaRegion,
}

impl Volume {
    /// Every namespace of the controller, zeroed, each with a queue of its own.
    fn all(attached: &Attached) -> Result<Vec<Self>, Box<dyn Error>> {
        let mut all = Vec::new();
        for id in attached.controller.namespaces()? {
            let namespace = attached.controller.namespace(id)?;
            let options = QueueOptions {
                max_transfer: COMMAND,
                ..QueueOptions::default()
            };
            let queue = attached.controller.queue_pair(&options)?;
            let mut io = BlockingIo::new(queue, namespace);
            io.write_zeroes(Lba(0), namespace.blocks())?;
            // Room for the longest transfer at any offset into a page.
            let memory = attached.domain.region(LONGEST + 4096)?;
            all.push(Self {
                io,
                shadow: Shadow::new(&namespace),
                memory,
            });
        }
        Ok(all)
    }

    fn write(&mut self, lba: usize, blocks: usize, offset: usize) -> Outcome {
        let mut buf = self
            .memory
            .take(offset, blocks * self.shadow.block_bytes())?;
        self.shadow.next_into(lba, &mut buf)?;
        self.io.write(Lba(lba as u64), buf)?;
        Ok(())
    }

    fn check(&mut self, lba: usize, blocks: usize, offset: usize) -> Outcome {
        let mut buf = self
            .memory
            .take(offset, blocks * self.shadow.block_bytes())?;
        // What the device leaves out must not look right because it was there before.
        buf.fill(0xa5);
        let buf = self.io.read(Lba(lba as u64), buf)?;
        self.shadow.check_buf(lba, &buf)
    }

    /// Reads the whole namespace.
    fn check_all(&mut self, chunk_bytes: usize) -> Outcome {
        let chunk = chunk_bytes / self.shadow.block_bytes();
        for lba in (0..self.shadow.blocks()).step_by(chunk) {
            self.check(lba, chunk.min(self.shadow.blocks() - lba), 0)?;
        }
        Ok(())
    }
}

/// Lengths around the block, the page, the device's limit and the longest, at buffer offsets that
/// make the first page of a PRP list short, at both ends of the namespace.
pub fn edges(attached: &Attached, shape: &boots::Controller) -> Outcome {
    let mdts = usize::try_from(shape.max_transfer.unwrap_or(u64::MAX).min(COMMAND.into()))?;
    for volume in &mut Volume::all(attached)? {
        let block = volume.shadow.block_bytes();
        let mut lengths: Vec<usize> = [
            block,
            4096,
            8192,
            // At most offsets one page more than a page of PRP entries names: the shortest chain.
            (2 << 20) + 4096,
            mdts - block,
            mdts,
            mdts + block,
            2 * mdts + 4096,
            LONGEST,
        ]
        .into_iter()
        .filter(|bytes| *bytes > 0 && bytes.is_multiple_of(block) && *bytes <= LONGEST)
        .collect();
        lengths.dedup();
        for bytes in lengths {
            let blocks = bytes / block;
            for offset in [0, 4, 508, 2048, 4092] {
                volume.write(1, blocks, offset)?;
                volume.check(1, blocks, 4092 - offset)?;
            }
            let last = volume.shadow.blocks() - blocks;
            volume.write(last, blocks, 4)?;
            volume.check(last, blocks, 0)?;
        }
    }
    Ok(())
}

/// Random places, lengths from one block to 8 MiB and buffer offsets, over all namespaces in turn; in
/// the end every block of each is what was written to it last.
pub fn random(attached: &Attached, seed: u64) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let mut volumes = Volume::all(attached)?;
    for _ in 0..REQUESTS {
        let index = rng.usize(..volumes.len());
        let volume = &mut volumes[index];
        let blocks = pattern::random_length(&mut rng, LONGEST / volume.shadow.block_bytes());
        let lba = rng.usize(..=volume.shadow.blocks() - blocks);
        let offset = rng.usize(..1024) * DmaBuf::ALIGN;
        if rng.u8(..3) == 0 {
            volume.check(lba, blocks, offset)?;
        } else {
            volume.write(lba, blocks, offset)?;
        }
    }
    for volume in &mut volumes {
        volume.check_all(1 << rng.u32(17..=23))?;
        assert_eq!(volume.io.queue().strays().total(), 0);
    }
    Ok(())
}

/// A request in flight.
struct Flight {
    lba: usize,
    blocks: usize,
    write: bool,
}

/// As many requests outstanding as the queue takes, submitted in batches of random sizes, completed in
/// any order: each is as it should be.
pub fn deep(attached: &Attached, shape: &boots::Controller, seed: u64) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let namespace = attached.controller.namespace(1)?;
    let mut queue = attached
        .controller
        .queue_pair::<u32>(&QueueOptions::default())?;
    assert!(queue.depth() < shape.queue_entries as usize);
    let mut io = BlockingIo::new(
        attached.controller.queue_pair(&QueueOptions::default())?,
        namespace,
    );
    io.write_zeroes(Lba(0), namespace.blocks())?;
    let mut shadow = Shadow::new(&namespace);
    let mut flights: HashMap<u32, Flight> = HashMap::new();
    let (mut submitted, mut ended, mut fullest) = (0, 0, 0);
    while ended < 3000 {
        for _ in 0..rng.usize(1..=2 * queue.depth()) {
            if submitted == 3000 {
                break;
            }
            let flight = place(&mut rng, &shadow, &flights);
            if !submit(
                attached,
                &namespace,
                &mut queue,
                &mut shadow,
                &flight,
                submitted,
            )? {
                break;
            }
            flights.insert(submitted, flight);
            submitted += 1;
        }
        fullest = fullest.max(queue.outstanding());
        queue.ring();
        let mut wrong = None;
        queue.poll(|done| {
            ended += 1;
            if let Err(error) = finish(&shadow, &mut flights, done) {
                wrong.get_or_insert(error);
            }
        });
        if let Some(error) = wrong {
            return Err(error);
        }
    }
    assert!(flights.is_empty());
    assert_eq!(queue.strays().total(), 0);
    // It was full at least once: no room for one more request, which may take several commands.
    let commands = MOST_DEEP.div_ceil(queue.max_transfer() as usize);
    assert!(
        queue.depth() - fullest < commands,
        "{fullest} of {}",
        queue.depth()
    );
    Ok(())
}

/// A place that no request in flight touches, so that the outcome of each is known.
fn place(rng: &mut Rng, shadow: &Shadow, flights: &HashMap<u32, Flight>) -> Flight {
    loop {
        let blocks = rng.usize(1..=MOST_DEEP / shadow.block_bytes());
        let lba = rng.usize(..=shadow.blocks() - blocks);
        if flights
            .values()
            .all(|f| lba + blocks <= f.lba || f.lba + f.blocks <= lba)
        {
            // Half of the reads go where something was written, most of the rest reads zeros.
            return Flight {
                lba,
                blocks,
                write: rng.bool(),
            };
        }
    }
}

/// Submits one request; `false` if the queue is full.
fn submit(
    attached: &Attached,
    namespace: &driver::namespace::Namespace,
    queue: &mut QueuePair<u32>,
    shadow: &mut Shadow,
    flight: &Flight,
    number: u32,
) -> Result<bool, Box<dyn Error>> {
    if queue.outstanding() == queue.depth() {
        return Ok(false);
    }
    let lba = Lba(flight.lba as u64);
    let mut buf = attached
        .domain
        .alloc_aligned(flight.blocks * shadow.block_bytes(), 4)?;
    let outcome = if flight.write {
        let mut bytes = vec![0; buf.len()];
        let before = shadow.generations_of(flight.lba, flight.blocks);
        shadow.next(flight.lba, &mut bytes);
        buf.write_at(0, &bytes)?;
        let outcome = namespace.write(queue, lba, buf, number);
        if outcome.is_err() {
            shadow.restore(flight.lba, &before);
        }
        outcome
    } else {
        buf.fill(0xa5);
        namespace.read(queue, lba, buf, number)
    };
    match outcome {
        Ok(()) => Ok(true),
        // A request that is split needs several slots.
        Err(rejected) if rejected.reason == SubmitError::Full => Ok(false),
        Err(rejected) => Err(rejected.reason.into()),
    }
}

/// Checks one completion.
fn finish(
    shadow: &Shadow,
    flights: &mut HashMap<u32, Flight>,
    done: driver::queue::Completion<u32>,
) -> Outcome {
    let flight = flights.remove(&done.ctx).ok_or("a request ended twice")?;
    if !done.status.is_success() {
        return Err(format!("blocks {}..+{}: {}", flight.lba, flight.blocks, done.status).into());
    }
    let buf = done.buf.ok_or("no buffer came back")?;
    if flight.write {
        Ok(())
    } else {
        shadow.check_buf(flight.lba, &buf)
    }
}

/// The other commands: compare, write zeroes, deallocate, flush and forced unit access.
pub fn commands(attached: &Attached) -> Outcome {
    let mut volumes = Volume::all(attached)?;
    let volume = &mut volumes[0];
    let block = volume.shadow.block_bytes();
    volume.write(64, 64, 0)?;
    volume.io.flush()?;

    let mut buf = attached.domain.alloc(block)?;
    volume.shadow.next_into(200, &mut buf)?;
    let buf = volume.io.write_with(Lba(200), buf, IoFlags::FUA)?;
    let mut buf = volume.io.compare(Lba(200), buf)?;
    buf.write_at(block - 1, &[!0])?;
    match volume.io.compare(Lba(200), buf) {
        Err(IoError::Status(status)) => assert_eq!(status.code(), Status::COMPARE_FAILURE),
        other => return Err(format!("comparing different data: {other:?}").into()),
    }

    volume.io.write_zeroes(Lba(70), 20)?;
    volume.shadow.zeroed(70, 20);
    volume.check(0, 256, 4)?;

    let list = attached.domain.alloc(4096)?;
    let ranges = [(96, 4), (110, 1)].map(|(lba, blocks)| BlockRange {
        lba: Lba(lba),
        blocks,
    });
    volume.io.deallocate(&ranges, list)?;
    // Deallocated blocks may read as they like; their neighbours may not.
    for (lba, blocks) in [(64, 32), (100, 10), (111, 17)] {
        volume.check(lba, blocks, 0)?;
    }

    let blocks = volume.shadow.blocks();
    let buf = attached.domain.alloc(2 * block)?;
    match volume.io.read(Lba(blocks as u64 - 1), buf) {
        Err(IoError::Rejected(SubmitError::OutOfRange { .. })) => Ok(()),
        other => Err(format!("reading past the end: {other:?}").into()),
    }
}
