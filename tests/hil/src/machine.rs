//! The guest's devices: which driver holds which, and how to hand one from driver to driver.

use driver::controller::{self, ControllerOptions};
use driver::memory::DmaDomain;
use hil::boots::Controller;
pub(crate) use hil::data::Attached;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A kernel driver that a controller can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Userspace drives it.
    Vfio,
    /// The kernel drives it: block devices appear.
    Kernel,
}

impl Driver {
    /// The driver's name in sysfs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vfio => "vfio-pci",
            Self::Kernel => "nvme",
        }
    }
}

/// The controller's folder in sysfs.
pub(crate) fn sysfs(controller: &Controller) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(controller.address())
}

/// The driver that holds the controller, by name.
pub(crate) fn bound_to(controller: &Controller) -> Option<String> {
    link_name(&sysfs(controller).join("driver"))
}

/// The IOMMU group of the controller.
pub(crate) fn iommu_group(controller: &Controller) -> Option<String> {
    link_name(&sysfs(controller).join("iommu_group"))
}

fn link_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Hands the controller to `driver`.
///
/// # Errors
/// What the kernel says, for one that the driver's probe refused.
pub(crate) fn bind(controller: &Controller, driver: Driver) -> io::Result<()> {
    if bound_to(controller).as_deref() == Some(driver.name()) {
        return Ok(());
    }
    let (device, address) = (sysfs(controller), controller.address());
    fs::write(device.join("driver_override"), driver.name())?;
    if device.join("driver").exists() {
        fs::write(device.join("driver/unbind"), &address)?;
    }
    fs::write("/sys/bus/pci/drivers_probe", &address)?;
    if bound_to(controller).as_deref() == Some(driver.name()) {
        return Ok(());
    }
    // The probe's own error is only to be had by asking the driver itself.
    fs::write(
        format!("/sys/bus/pci/drivers/{}/bind", driver.name()),
        &address,
    )
}

/// Opens a controller and attaches it to a domain of its own.
pub(crate) fn attach(controller: &Controller) -> Result<Attached, Box<dyn Error>> {
    let domain = DmaDomain::new();
    let (address, options) = (controller.address().parse()?, ControllerOptions::default());
    let controller = controller::Controller::open_pci(address, &domain, &options)?;
    Ok(Attached { controller, domain })
}

/// The block device of a namespace of a controller that the kernel drives.
pub(crate) fn block_device(controller: &Controller, namespace: u32) -> io::Result<PathBuf> {
    let holds = |file: PathBuf, value: &str| {
        fs::read_to_string(file).is_ok_and(|text| text.trim() == value)
    };
    wait_for("block device", || {
        // Whether the device hangs off its controller or off its subsystem, `device` knows the serial.
        fs::read_dir("/sys/block")
            .ok()?
            .flatten()
            .find_map(|entry| {
                let found = holds(entry.path().join("device/serial"), controller.name)
                    && holds(entry.path().join("nsid"), &namespace.to_string());
                found.then(|| Path::new("/dev").join(entry.file_name()))
            })
    })
}

/// Waits until `found` answers something.
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = found() {
            return Ok(answer);
        }
        if start.elapsed() > Duration::from_secs(20) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no {what} after 20 s"),
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
}
