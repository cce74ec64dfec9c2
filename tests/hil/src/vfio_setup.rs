//! Attaching through VFIO: each thing that can go wrong at set-up is provoked, and its text checked.

use crate::machine::{self, Driver};
use crate::sight::WITH_IOMMU;
use crate::test::{Context, Outcome, Test};
use crate::vfio_kit::{self as kit, PAGE, contains, open};
use driver::memory::{DmaTarget, DmaTargetError};
use driver::transport::Transport;
use driver::transport::vfio::{SetupError, VfioTransport, preflight};
use hil::boots::{GROUP_FIRST, GROUP_SECOND, LBA512};
use std::fs;

pub(crate) fn tests() -> Vec<Test> {
    let plain = &["plain"];
    vec![
        Test::new("vfio_setup::no_such_device", WITH_IOMMU, no_such_device),
        Test::new(
            "vfio_setup::not_an_nvme_controller",
            WITH_IOMMU,
            not_an_nvme_controller,
        ),
        Test::new(
            "vfio_setup::bound_to_the_kernels_driver",
            plain,
            bound_to_the_kernels_driver,
        ),
        Test::new("vfio_setup::no_iommu_group", &["no-iommu"], no_iommu_group),
        Test::new("vfio_setup::group_not_viable", plain, group_not_viable),
        Test::new("vfio_setup::vfio_missing", plain, vfio_missing),
        Test::new(
            "vfio_setup::in_use_by_another_process",
            plain,
            in_use_by_another_process,
        ),
        Test::part("vfio_setup::in_use_part", in_use_part),
        Test::new(
            "vfio_setup::in_use_by_this_process",
            plain,
            in_use_by_this_process,
        ),
        Test::new("vfio_setup::quota_used_up", plain, quota_used_up),
        Test::new(
            "vfio_setup::aperture_too_narrow",
            &["narrow"],
            aperture_too_narrow,
        ),
        Test::new("vfio_setup::addresses_refused", plain, addresses_refused),
        Test::new(
            "vfio_setup::no_interrupt_remapping",
            &["no-intremap"],
            no_interrupt_remapping,
        ),
    ]
}

/// An address without a device.
fn no_such_device(_: &Context) -> Outcome {
    let error = VfioTransport::open("0000:7f:1f.7".parse()?, None).expect_err("it opened");
    assert!(
        matches!(error, SetupError::NoSuchDevice { .. }),
        "{error:?}"
    );
    contains(&error, &["0000:7f:1f.7", "lspci -D"]);
    assert!(matches!(
        preflight("0000:7f:1f.7".parse()?, 0),
        Err(SetupError::NoSuchDevice { .. })
    ));
    Ok(())
}

/// The machine's host bridge is no NVMe controller.
fn not_an_nvme_controller(_: &Context) -> Outcome {
    let error = VfioTransport::open("00:00.0".parse()?, None).expect_err("it opened");
    assert!(
        matches!(
            error,
            SetupError::NotNvme {
                class: 0x06_00_00,
                ..
            }
        ),
        "{error:?}"
    );
    contains(&error, &["0000:00:00.0", "060000", "010802"]);
    Ok(())
}

/// The kernel's driver is named, and the commands in the text do what they say.
fn bound_to_the_kernels_driver(_: &Context) -> Outcome {
    machine::bind(&LBA512, Driver::Kernel)?;
    let error = open(&LBA512, None).expect_err("it opened");
    assert!(
        matches!(error, SetupError::BoundToOtherDriver { .. }),
        "{error:?}"
    );
    contains(&error, &["`nvme`", "unmount", "modprobe vfio-pci"]);
    kit::obey(&error)?;
    drop(open(&LBA512, None)?);

    // And with no driver at all.
    let device = machine::sysfs(&LBA512);
    fs::write(device.join("driver/unbind"), LBA512.address())?;
    let error = open(&LBA512, None).expect_err("it opened");
    contains(&error, &["no driver", "drivers_probe"]);
    kit::obey(&error)?;
    drop(open(&LBA512, None)?);
    Ok(())
}

/// Without an IOMMU the text says where it is switched on.
fn no_iommu_group(_: &Context) -> Outcome {
    let error = open(&LBA512, None).expect_err("it opened");
    assert!(
        matches!(error, SetupError::NoIommuGroup { .. }),
        "{error:?}"
    );
    contains(&error, &["no IOMMU group", "VT-d", "intel_iommu=on"]);
    Ok(())
}

/// A function whose neighbour the kernel still uses is not handed out; the text sets it right.
fn group_not_viable(_: &Context) -> Outcome {
    machine::bind(&GROUP_SECOND, Driver::Kernel)?;
    let report = preflight(kit::address(&GROUP_FIRST), 0)?;
    let error = open(&GROUP_FIRST, None).expect_err("it opened");
    for error in [&error, &report.obstacles[0]] {
        assert!(
            matches!(error, SetupError::GroupNotViable { .. }),
            "{error:?}"
        );
        let members = ["0000:00:05.0 on vfio-pci", "0000:00:05.1 on nvme"];
        contains(error, &members);
    }
    kit::obey(&error)?;
    drop(open(&GROUP_FIRST, None)?);
    Ok(())
}

/// Without VFIO's own file the module is named.
fn vfio_missing(_: &Context) -> Outcome {
    let (file, away) = ("/dev/vfio/vfio", "/dev/vfio/vfio.away");
    fs::rename(file, away)?;
    let error = open(&LBA512, None).expect_err("it opened");
    let report = preflight(kit::address(&LBA512), 0)?;
    fs::rename(away, file)?;
    assert!(matches!(error, SetupError::VfioMissing { .. }), "{error:?}");
    contains(&error, &[file, "modprobe vfio-pci"]);
    contains(&report, &[file, "modprobe vfio-pci"]);
    Ok(())
}

/// A process that holds the device is named.
fn in_use_by_another_process(context: &Context) -> Outcome {
    let held = open(&LBA512, None)?;
    let status = context.command("vfio_setup::in_use_part").status()?;
    drop(held);
    assert!(status.success());
    Ok(())
}

fn in_use_part(_: &Context) -> Outcome {
    let parent = std::os::unix::process::parent_id();
    let error = open(&LBA512, None).expect_err("it opened");
    let report = preflight(kit::address(&LBA512), 0)?;
    for error in [&error, &report.obstacles[0]] {
        assert!(matches!(error, SetupError::DeviceInUse { .. }), "{error:?}");
        contains(
            error,
            &["in use", &format!("(pid {parent})"), "Stop that process"],
        );
    }
    Ok(())
}

/// A second opening in the process that has the device already, in the same container or another.
fn in_use_by_this_process(_: &Context) -> Outcome {
    let held = open(&LBA512, None)?;
    for existing in [None, Some(held.target())] {
        let error = open(&LBA512, existing).expect_err("it opened");
        assert!(matches!(error, SetupError::DeviceInUse { .. }), "{error:?}");
        contains(&error, &["in use", "this process", "DMA domain"]);
    }
    // A neighbour in the group cannot have a container of its own, and says so as well.
    let _first = open(&GROUP_FIRST, None)?;
    let error = open(&GROUP_SECOND, None).expect_err("it opened");
    contains(
        &error,
        &["0000:00:05.1 is in use", "this process", "DMA domain"],
    );
    // The refusals have cost nothing.
    assert_ne!(held.read32(0x8)?, 0);
    Ok(())
}

/// The container's quota of mappings ends with an error of its own, and what was mapped stays.
fn quota_used_up(_: &Context) -> Outcome {
    const QUOTA: &str = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
    let before = fs::read_to_string(QUOTA)?;
    fs::write(QUOTA, "4")?;
    let opened = open(&LBA512, None);
    fs::write(QUOTA, before)?;
    let target = opened?.target();
    assert_eq!(target.mappings_left(), Some(4));
    let memory = kit::pages(5)?;
    for page in 0..4 {
        target.check_room(4096)?;
        kit::map(&*target, kit::iova(page), memory, page, 1)?;
    }
    let error = kit::map(&*target, 0x20_0000, memory, 4, 1).expect_err("a fifth was mapped");
    assert!(
        matches!(error, DmaTargetError::QuotaUsedUp { len: 4096 }),
        "{error:?}"
    );
    contains(&error, &["fewer, larger", "dma_entry_limit"]);
    let error = target.check_room(4096).expect_err("there is room");
    assert!(matches!(error, SetupError::QuotaUsedUp), "{error:?}");
    contains(&error, &["fewer, larger", "dma_entry_limit"]);
    target.unmap(kit::iova(0), PAGE)?;
    assert_eq!(target.mappings_left(), Some(1));
    Ok(())
}

/// An IOMMU of 39 bits holds less than a TiB, and says so; beyond its end nothing is mapped.
fn aperture_too_narrow(_: &Context) -> Outcome {
    let target = open(&LBA512, None)?.target();
    let end = target.iova_ranges().last().map(|range| *range.end());
    assert_eq!(end, Some((1 << 39) - 1));
    let error = target.check_room(1 << 40).expect_err("there is room");
    let SetupError::ApertureTooNarrow { need, have } = error else {
        return Err(error.into());
    };
    assert_eq!(need, 1 << 40);
    assert!(have < 1 << 39 && have > 1 << 38, "{have:#x}");
    contains(
        &error,
        &["1099511627776", &have.to_string(), "less DMA memory"],
    );
    let memory = kit::pages(1)?;
    let error = kit::map(&*target, 1 << 39, memory, 0, 1).expect_err("mapped out of reach");
    assert!(
        matches!(error, DmaTargetError::AddressRefused { .. }),
        "{error:?}"
    );
    Ok(())
}

/// Reserved, taken and misaligned addresses are refused; what is not mapped is not taken for unmapped.
fn addresses_refused(_: &Context) -> Outcome {
    const MSI_WINDOW: u64 = 0xfee0_0000;
    let target = open(&LBA512, None)?.target();
    assert!(
        !target
            .iova_ranges()
            .iter()
            .any(|range| range.contains(&MSI_WINDOW))
    );
    let memory = kit::pages(4)?;
    kit::map(&*target, kit::iova(0), memory, 0, 2)?;
    for iova in [MSI_WINDOW, 0x10_0000, 0x10_1000, 0x20_0800, u64::MAX - 4095] {
        let error = kit::map(&*target, iova, memory, 2, 1).expect_err("it was mapped");
        assert!(
            matches!(error, DmaTargetError::AddressRefused { .. }),
            "{iova:#x}: {error:?}"
        );
        contains(&error, &[&format!("{iova:#x}"), "taken or reserved"]);
    }
    let error = target
        .unmap(0x40_0000, PAGE)
        .expect_err("nothing was unmapped");
    assert!(
        matches!(error, DmaTargetError::UnmappedShort { removed: 0, .. }),
        "{error:?}"
    );
    assert!(
        target.unmap(kit::iova(0), PAGE).is_err(),
        "half a mapping was unmapped"
    );
    target.unmap(kit::iova(0), 2 * PAGE)?;
    Ok(())
}

/// Where interrupts cannot be confined the kernel does not hand the group out.
fn no_interrupt_remapping(_: &Context) -> Outcome {
    let error = open(&LBA512, None).expect_err("it opened");
    assert!(
        matches!(error, SetupError::NoInterruptRemapping { .. }),
        "{error:?}"
    );
    contains(&error, &["interrupt remapping", "firmware"]);
    Ok(())
}
