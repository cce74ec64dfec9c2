//! Our driver and the kernel's own, one after the other on the same drives: each reads what the other
//! has written.

use crate::machine::{self, Driver};

use crate::test::{Context, Outcome, Test};
use driver::controller::{Controller, QueueOptions};
use driver::memory::DmaDomain;
use driver::namespace::{BlockingIo, Lba, Namespace};
use fastrand::Rng;
use hil::boots::{self, LBA512, LBA4096, MDTS_8K, THREE_NAMESPACES};
use hil::pattern::{self, Shadow};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for shape in [&LBA512, &LBA4096, &MDTS_8K, &THREE_NAMESPACES] {
        let named = |topic| format!("cross::{topic}::{}", shape.name);
        tests.push(Test::new(
            named("kernel_reads_ours"),
            &["plain"],
            |context| kernel_reads_ours(shape, context),
        ));
        tests.push(Test::new(named("we_read_kernels"), &["plain"], |context| {
            we_read_kernels(shape, context)
        }));
    }
    tests
}

/// The longest piece of data, in bytes.
const LONGEST: usize = 1 << 20;

/// Random pieces of a namespace: first block and number of blocks.
fn pieces(rng: &mut Rng, shadow: &Shadow) -> Vec<(usize, usize)> {
    let most = LONGEST / shadow.block_bytes();
    let mut pieces: Vec<_> = (0..20)
        .map(|_| {
            let blocks = pattern::random_length(rng, most);
            (rng.usize(..=shadow.blocks() - blocks), blocks)
        })
        .collect();
    // The very first and the very last block are among them.
    pieces.extend([(0, 1), (shadow.blocks() - 1, 1)]);
    pieces
}

/// A namespace through our driver.
fn ours(
    controller: &Controller,
    id: u32,
) -> Result<(BlockingIo, Namespace), Box<dyn std::error::Error>> {
    let namespace = controller.namespace(id)?;
    let queue = controller.queue_pair(&QueueOptions::default())?;
    Ok((BlockingIo::new(queue, namespace), namespace))
}

fn write_ours(
    domain: &DmaDomain,
    io: &mut BlockingIo,
    shadow: &mut Shadow,
    rng: &mut Rng,
) -> Outcome {
    io.write_zeroes(Lba(0), shadow.blocks() as u64)?;
    for (lba, blocks) in pieces(rng, shadow) {
        let mut bytes = vec![0; blocks * shadow.block_bytes()];
        shadow.next(lba, &mut bytes);
        io.write_from_slice(domain, Lba(lba as u64), &bytes)?;
    }
    Ok(io.flush()?)
}

/// What we wrote is what the kernel reads, everywhere, after we have let go of the drive.
fn kernel_reads_ours(shape: &'static boots::Controller, context: &Context) -> Outcome {
    let mut rng = Rng::with_seed(context.seed);
    let machine::Attached { controller, domain } = machine::attach(shape)?;
    let mut shadows = Vec::new();
    for id in controller.namespaces()? {
        let (mut io, namespace) = ours(&controller, id)?;
        let mut shadow = Shadow::new(&namespace);
        write_ours(&domain, &mut io, &mut shadow, &mut rng)?;
        shadows.push((id, shadow));
    }
    controller.shutdown()?;
    machine::bind(shape, Driver::Kernel)?;
    for (id, shadow) in &shadows {
        let device = machine::block_device(shape, *id)?;
        assert_eq!(logical_block_size(&device)?, shadow.block_bytes());
        let file = File::open(&device)?;
        let mut bytes = vec![0; LONGEST];
        let chunk = LONGEST / shadow.block_bytes();
        for lba in (0..shadow.blocks()).step_by(chunk) {
            let bytes = &mut bytes[..chunk.min(shadow.blocks() - lba) * shadow.block_bytes()];
            file.read_exact_at(bytes, (lba * shadow.block_bytes()) as u64)?;
            shadow.check(lba, bytes)?;
        }
    }
    Ok(())
}

/// What the kernel wrote and synced is what we read.
fn we_read_kernels(shape: &'static boots::Controller, context: &Context) -> Outcome {
    let mut rng = Rng::with_seed(context.seed ^ 1);
    // The geometry, and zeros to start from.
    let mut shadows = Vec::new();
    {
        let machine::Attached { controller, .. } = machine::attach(shape)?;
        for id in controller.namespaces()? {
            let (mut io, namespace) = ours(&controller, id)?;
            io.write_zeroes(Lba(0), namespace.blocks())?;
            io.flush()?;
            shadows.push((id, Shadow::new(&namespace)));
        }
    }
    machine::bind(shape, Driver::Kernel)?;
    for (id, shadow) in &mut shadows {
        let file = File::options()
            .write(true)
            .open(machine::block_device(shape, *id)?)?;
        for (lba, blocks) in pieces(&mut rng, shadow) {
            let mut bytes = vec![0; blocks * shadow.block_bytes()];
            shadow.next(lba, &mut bytes);
            file.write_all_at(&bytes, (lba * shadow.block_bytes()) as u64)?;
        }
        file.sync_all()?;
    }
    machine::bind(shape, Driver::Vfio)?;
    let machine::Attached { controller, domain } = machine::attach(shape)?;
    for (id, shadow) in &shadows {
        let (mut io, _) = ours(&controller, *id)?;
        let mut bytes = vec![0; LONGEST];
        let chunk = LONGEST / shadow.block_bytes();
        for lba in (0..shadow.blocks()).step_by(chunk) {
            let bytes = &mut bytes[..chunk.min(shadow.blocks() - lba) * shadow.block_bytes()];
            io.read_to_slice(&domain, Lba(lba as u64), bytes)?;
            shadow.check(lba, bytes)?;
        }
    }
    Ok(())
}

fn logical_block_size(device: &std::path::Path) -> Result<usize, Box<dyn std::error::Error>> {
    let name = device.file_name().ok_or("no name")?;
    let file = std::path::Path::new("/sys/block")
        .join(name)
        .join("queue/logical_block_size");
    Ok(fs::read_to_string(file)?.trim().parse()?)
}
