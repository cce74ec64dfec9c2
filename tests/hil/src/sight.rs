//! What the guest itself must be like before any other test means something.

use crate::machine::{self, Driver};
use crate::test::{Context, Outcome, Test};
use hil::boots::{GROUP_FIRST, GROUP_SECOND};
use std::fs;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "sight::vfio_holds_every_controller",
            WITH_IOMMU,
            vfio_holds_every_controller,
        ),
        Test::new("sight::groups", &["plain"], groups),
        Test::new("sight::huge_pages", &["plain", "hugepages"], huge_pages),
        Test::new("sight::no_iommu_no_vfio", &["no-iommu"], no_iommu_no_vfio),
    ]
}

/// The boots in which vfio-pci can hold a device.
pub(crate) const WITH_IOMMU: &[&str] = &["plain", "hugepages", "narrow"];

/// Each controller of the boot is on vfio-pci, in a group whose file is there.
fn vfio_holds_every_controller(context: &Context) -> Outcome {
    for controller in context.boot.controllers {
        let driver = machine::bound_to(controller);
        assert_eq!(
            driver.as_deref(),
            Some(Driver::Vfio.name()),
            "{}",
            controller.name
        );
        let group = machine::iommu_group(controller).ok_or("no group")?;
        assert!(
            fs::exists(format!("/dev/vfio/{group}"))?,
            "{}: group {group}",
            controller.name
        );
    }
    Ok(())
}

/// Every controller has a group for itself, but the two functions that share one.
fn groups(context: &Context) -> Outcome {
    let group = |controller| machine::iommu_group(controller).expect("every device has a group");
    assert_eq!(group(&GROUP_FIRST), group(&GROUP_SECOND));
    for one in context.boot.controllers {
        for other in context
            .boot
            .controllers
            .iter()
            .filter(|other| other.slot != one.slot)
        {
            assert_ne!(group(one), group(other), "{} and {}", one.name, other.name);
        }
    }
    Ok(())
}

/// There are huge pages in the boot that asks for them, and none otherwise.
fn huge_pages(context: &Context) -> Outcome {
    let pages = fs::read_to_string("/proc/sys/vm/nr_hugepages")?;
    let expected = if context.boot.name == "hugepages" {
        "16"
    } else {
        "0"
    };
    assert_eq!(pages.trim(), expected);
    Ok(())
}

/// Without an IOMMU there is no group, and vfio-pci takes no device.
fn no_iommu_no_vfio(context: &Context) -> Outcome {
    for controller in context.boot.controllers {
        assert_eq!(machine::iommu_group(controller), None);
        let refused = machine::bind(controller, Driver::Vfio).expect_err("vfio-pci took a device");
        assert_eq!(refused.raw_os_error(), Some(22), "{refused}");
        machine::bind(controller, Driver::Kernel)?;
    }
    Ok(())
}
