//! A controller attached through VFIO: registers, configuration space, reset, shared containers.

use crate::machine::{self, Driver};
use crate::sight::WITH_IOMMU;
use crate::test::{Context, Outcome, Test};
use crate::vfio_kit::{self as kit, PAGE, open};
use driver::memory::DmaTarget;
use driver::transport::{Transport, TransportError};
use hil::boots::{Controller, GROUP_FIRST, GROUP_SECOND, LBA512, TWIN};
use std::fs;
use std::sync::Arc;

/// Register offsets (NVMe base specification, "Controller Properties").
const CAP: usize = 0x00;
const VS: usize = 0x08;
const CC: usize = 0x14;
const ASQ: usize = 0x28;
/// CC.IOCQES and CC.IOSQES for entries of 16 and 64 bytes, without CC.EN.
const ENTRY_SIZES: u32 = 0x0046_0000;
/// Bits of the PCI COMMAND register.
const BUS_MASTER: u16 = 0x0004;
const ALL_SET: u16 = 0x0406;

pub(crate) fn tests() -> Vec<Test> {
    let plain = &["plain"];
    vec![
        Test::new("vfio_attach::registers", WITH_IOMMU, registers),
        Test::new("vfio_attach::memory_map", WITH_IOMMU, memory_map),
        Test::new("vfio_attach::silence_and_reset", plain, silence_and_reset),
        Test::new(
            "vfio_attach::one_container_for_two",
            plain,
            one_container_for_two,
        ),
        Test::new(
            "vfio_attach::mappings_outlive_controllers",
            plain,
            mappings_outlive_controllers,
        ),
        Test::new(
            "vfio_attach::two_functions_of_a_group",
            plain,
            two_functions_of_a_group,
        ),
        Test::new("vfio_attach::nothing_leaks", plain, nothing_leaks),
        Test::new(
            "vfio_attach::a_forked_child_is_kept_out",
            plain,
            a_forked_child_is_kept_out,
        ),
        Test::new(
            "vfio_attach::the_kernel_takes_it_back",
            plain,
            the_kernel_takes_it_back,
        ),
    ]
}

/// COMMAND as the hardware has it, which the kernel shows to root beside VFIO.
fn command(controller: &Controller) -> Result<u16, std::io::Error> {
    let config = fs::read(machine::sysfs(controller).join("config"))?;
    Ok(u16::from_le_bytes([config[4], config[5]]))
}

/// Registers read as what they are, in halves as whole, and only inside the window.
fn registers(context: &Context) -> Outcome {
    for controller in context.boot.controllers {
        let transport = open(controller, None)?;
        assert_eq!(transport.name(), controller.address());
        let cap = transport.read64(CAP)?;
        let halves = [transport.read32(CAP)?, transport.read32(CAP + 4)?].map(u64::from);
        assert_eq!(cap, halves[0] | halves[1] << 32);
        assert_eq!(
            (cap & 0xffff) + 1,
            u64::from(controller.queue_entries),
            "CAP.MQES"
        );
        assert!(
            transport.read32(VS)? >= 0x0001_0000,
            "{:#x}",
            transport.read32(VS)?
        );
        transport.write64(ASQ, 0x1234_5678_9abc_d000)?;
        assert_eq!(transport.read64(ASQ)?, 0x1234_5678_9abc_d000);
        for offset in [2, usize::MAX, 1 << 30] {
            let read = transport.read32(offset);
            assert!(
                matches!(read, Err(TransportError::OutOfRange { .. })),
                "{read:?}"
            );
            let written = transport.write64(offset, 0);
            assert!(
                matches!(written, Err(TransportError::OutOfRange { .. })),
                "{written:?}"
            );
        }
        assert_eq!(
            command(controller)? & ALL_SET,
            ALL_SET,
            "{:#x}",
            command(controller)?
        );
        // Two doorbells for the admin queue and for each I/O queue pair.
        let doorbells = transport.doorbells();
        let needed = (usize::from(controller.io_queues) + 1) * 8;
        assert!(
            doorbells.len() >= needed,
            "{} bytes of doorbells",
            doorbells.len()
        );
        assert!(doorbells.doorbell(needed - 4).is_some());
    }
    Ok(())
}

/// The container tells what may be mapped.
fn memory_map(_: &Context) -> Outcome {
    let transport = open(&LBA512, None)?;
    let dma = transport.dma();
    assert!(dma.isolates());
    assert_eq!(dma.page_size(), 4096);
    assert_eq!(dma.mappings_left(), Some(65535));
    let ranges = dma.iova_ranges();
    assert!(ranges.len() >= 2, "the MSI window is cut out: {ranges:x?}");
    assert!(
        ranges.is_sorted_by(|a, b| a.end() < b.start()),
        "{ranges:x?}"
    );
    transport.target().check_room(1 << 20)?;
    Ok(())
}

/// Bus Master goes off and stays off; a reset clears the controller and sets COMMAND again.
fn silence_and_reset(_: &Context) -> Outcome {
    let transport = open(&LBA512, None)?;
    transport.write32(CC, ENTRY_SIZES)?;
    transport.silence()?;
    assert_eq!(command(&LBA512)? & BUS_MASTER, 0);
    assert_eq!(
        transport.read32(CC)?,
        ENTRY_SIZES,
        "registers answer without Bus Master"
    );
    let start = transport.clock().now();
    transport.reset()?;
    println!("a reset takes {:?}", transport.clock().now() - start);
    assert_eq!(transport.read32(CC)?, 0, "the reset reached the controller");
    assert_eq!(command(&LBA512)? & ALL_SET, ALL_SET);
    Ok(())
}

/// Two controllers in one container have one memory map, and each may be closed without the other.
fn one_container_for_two(_: &Context) -> Outcome {
    let first = open(&LBA512, None)?;
    let second = open(&TWIN, Some(first.target()))?;
    assert!(Arc::ptr_eq(&first.target(), &second.target()));
    let memory = kit::pages(1)?;
    kit::map(&*first.dma(), 0x10_0000, memory, 0, 1)?;
    assert_eq!(second.dma().mappings_left(), Some(65534));
    drop(first);
    assert_eq!(second.dma().mappings_left(), Some(65534));
    assert_ne!(second.read32(VS)?, 0);
    // The group that was given back can be taken by another container.
    let apart = open(&LBA512, None)?;
    assert_eq!(apart.dma().mappings_left(), Some(65535));
    second.dma().unmap(0x10_0000, PAGE)?;
    Ok(())
}

/// What is mapped stays mapped while no controller is attached, and serves the next one.
fn mappings_outlive_controllers(_: &Context) -> Outcome {
    let target = open(&LBA512, None)?.target();
    let memory = kit::pages(2)?;
    kit::map(&*target, 0x10_0000, memory, 0, 1)?;
    let again = open(&LBA512, Some(Arc::clone(&target)))?;
    assert_eq!(target.mappings_left(), Some(65534));
    drop(again);
    let other = open(&TWIN, Some(Arc::clone(&target)))?;
    assert_eq!(target.mappings_left(), Some(65534));
    // The first group was kept for the mappings only, and has been given back.
    drop(open(&LBA512, None)?);
    drop(other);
    kit::map(&*target, 0x20_0000, memory, 1, 1)?;
    target.unmap(0x20_0000, PAGE)?;
    target.unmap(0x10_0000, PAGE)?;
    Ok(())
}

/// Two functions of one group are opened in one container.
fn two_functions_of_a_group(_: &Context) -> Outcome {
    let first = open(&GROUP_FIRST, None)?;
    let second = open(&GROUP_SECOND, Some(first.target()))?;
    assert_ne!(first.read32(VS)?, 0);
    drop(first);
    assert_ne!(second.read32(VS)?, 0);
    let first = open(&GROUP_FIRST, Some(second.target()))?;
    assert_ne!(first.read32(VS)?, 0);
    Ok(())
}

/// Opening and closing leaves no file and no mapping of registers behind.
fn nothing_leaks(_: &Context) -> Outcome {
    let count = || -> Result<_, std::io::Error> {
        let files = fs::read_dir("/proc/self/fd")?.count();
        let windows = fs::read_to_string("/proc/self/maps")?
            .matches("vfio")
            .count();
        Ok((files, windows))
    };
    let before = count()?;
    for _ in 0..20 {
        let transport = open(&LBA512, None)?;
        let doorbells = transport.doorbells();
        drop(transport);
        // The window keeps the registers mapped after the controller has gone.
        assert!(doorbells.doorbell(0).is_some());
        assert_ne!(count()?, before);
        drop(doorbells);
    }
    assert_eq!(count()?, before);
    Ok(())
}

/// After the last handle is gone the kernel's driver can have the controller again.
fn the_kernel_takes_it_back(_: &Context) -> Outcome {
    drop(open(&LBA512, None)?);
    machine::bind(&LBA512, Driver::Kernel)?;
    machine::bind(&LBA512, Driver::Vfio)?;
    drop(open(&LBA512, None)?);
    Ok(())
}

/// The child of a fork can neither use the controller, nor ring a doorbell, nor tear anything down.
fn a_forked_child_is_kept_out(_: &Context) -> Outcome {
    const SIGSEGV: i32 = 11;
    let transport = open(&LBA512, None)?;
    let memory = kit::pages(1)?;
    kit::map(&*transport.dma(), 0x10_0000, memory, 0, 1)?;
    let doorbell = transport.doorbells().doorbell(0).ok_or("no doorbell")?;

    let rang = kit::fork(|| {
        doorbell.ring(0);
        true
    })?;
    assert_eq!(rang, -SIGSEGV, "the child does not have the doorbells");

    let mut transport = Some(transport);
    let ended = kit::fork(|| {
        let Some(transport) = transport.take() else {
            return false;
        };
        let refused = [
            transport.read32(VS).is_err(),
            transport.read64(CAP).is_err(),
            transport.write32(CC, 0).is_err(),
            transport.write64(ASQ, 0).is_err(),
            transport.reset().is_err(),
            transport.silence().is_err(),
            transport.dma().unmap(0x10_0000, PAGE).is_err(),
            kit::map(&*transport.dma(), 0x20_0000, memory, 0, 1).is_err(),
        ];
        drop(transport);
        println!("refused: {refused:?}");
        refused.iter().all(|refused| *refused)
    })?;
    assert_eq!(ended, 0);
    let transport = transport.ok_or("the parent's own is gone")?;
    assert_ne!(transport.read32(VS)?, 0);
    assert_eq!(command(&LBA512)? & ALL_SET, ALL_SET);
    transport.dma().unmap(0x10_0000, PAGE)?;
    Ok(())
}
