//! The set-up errors that sysfs and procfs tell about, on a false host in a temporary directory.

use super::facts::{Driver, Host};
use super::preflight::preflight_on;
use super::{Preflight, SetupError};
use crate::transport::pci::PciAddress;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const NVME: &str = "0000:01:00.0";

/// A host with one NVMe controller, in group 7 and on vfio-pci, where nothing is wrong.
struct FalseHost {
    _dir: tempfile::TempDir,
    host: Host,
}

impl FalseHost {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let host = Host {
            sys: at("sys"),
            dev: at("dev"),
            proc: at("proc"),
        };
        for name in ["sys/bus/pci/devices", "dev/vfio", "proc/self"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["dev/vfio/vfio", "dev/vfio/7"] {
            fs::write(at(name), "").unwrap();
        }
        fs::write(
            at("proc/self/status"),
            "VmLck:\t0 kB\nCapEff:\t000001ffffffffff\n",
        )
        .unwrap();
        fs::write(at("proc/self/uid_map"), "0 0 4294967295\n").unwrap();
        let host = Self { _dir: dir, host };
        host.device(NVME, "0x010802", Some("vfio-pci"), Some(7));
        host
    }

    fn device(&self, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let dir = self.host.sys.join("bus/pci/devices").join(address);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("class"), format!("{class}\n")).unwrap();
        fs::write(dir.join("numa_node"), "-1\n").unwrap();
        if let Some(driver) = driver {
            symlink(
                format!("../../../bus/pci/drivers/{driver}"),
                dir.join("driver"),
            )
            .unwrap();
        }
        let Some(group) = group else { return };
        let devices = self
            .host
            .sys
            .join(format!("kernel/iommu_groups/{group}/devices"));
        fs::create_dir_all(&devices).unwrap();
        let _ = fs::remove_file(devices.join(address));
        symlink(&dir, devices.join(address)).unwrap();
        symlink(devices.parent().unwrap(), dir.join("iommu_group")).unwrap();
    }

    fn preflight(&self) -> Result<Preflight, SetupError> {
        preflight_on(&self.host, NVME.parse().unwrap(), 5000)
    }

    /// The texts of all obstacles.
    fn obstacles(&self) -> Vec<String> {
        self.preflight()
            .unwrap()
            .obstacles
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

/// Where nothing is wrong, preflight says so, and what will be locked in whole pages.
#[test]
fn nothing_stands_in_the_way() {
    let host = FalseHost::new();
    let report = host.preflight().unwrap();
    assert!(report.is_clear(), "{report}");
    assert_eq!(report.driver, Driver::Vfio("vfio-pci".to_owned()));
    assert_eq!((report.group, report.numa_node), (Some(7), None));
    assert_eq!(report.will_lock, 8192);
    let parts = [
        NVME,
        "vfio-pci",
        "group   7",
        "lock     8 KiB",
        "nothing stands in the way",
    ];
    contains(&report.to_string(), &parts);
    let node = host
        .host
        .sys
        .join("bus/pci/devices")
        .join(NVME)
        .join("numa_node");
    fs::write(node, "1\n").unwrap();
    assert_eq!(host.preflight().unwrap().numa_node, Some(1));
}

/// An address without a device is an error of its own.
#[test]
fn no_such_device() {
    let host = FalseHost::new();
    let address: PciAddress = "0000:99:00.0".parse().unwrap();
    let error = preflight_on(&host.host, address, 0).unwrap_err();
    assert!(matches!(error, SetupError::NoSuchDevice { .. }));
    contains(&error.to_string(), &["0000:99:00.0", "lspci -D"]);
}

/// A class that is not NVMe's, or makes no sense.
#[test]
fn not_an_nvme_controller() {
    let host = FalseHost::new();
    host.device(NVME, "0x020000", Some("vfio-pci"), Some(7));
    contains(
        &host.obstacles().join("\n"),
        &[NVME, "020000", "010802", "lspci"],
    );
    host.device(NVME, "storage", Some("vfio-pci"), Some(7));
    assert!(matches!(host.preflight(), Err(SetupError::Os { .. })));
}

/// Another driver is named, with the commands that change it; without one nothing is unbound.
#[test]
fn bound_to_another_driver() {
    let host = FalseHost::new();
    host.device(NVME, "0x010802", Some("nvme"), Some(7));
    let text = host.obstacles().remove(0);
    contains(
        &text,
        &[
            "`nvme`",
            "unmount",
            "modprobe vfio-pci",
            "driver/unbind",
            "drivers_probe",
        ],
    );
    host.device(NVME, "0x010802", None, Some(7));
    let text = host.obstacles().remove(0);
    contains(&text, &["no driver", "driver_override", "drivers_probe"]);
    assert!(!text.contains("unbind"), "{text}");
}

/// Without an IOMMU group the text says where to switch the IOMMU on.
#[test]
fn no_iommu_group() {
    let host = FalseHost::new();
    host.device(NVME, "0x010802", None, None);
    contains(
        &host.obstacles()[0],
        &["no IOMMU group", "VT-d", "intel_iommu=on"],
    );
}

/// A group with a member on the kernel's driver lists all members; bridges are no obstacle.
#[test]
fn group_not_viable() {
    let host = FalseHost::new();
    host.device("0000:01:00.1", "0x060400", Some("pcieport"), Some(7));
    host.device("0000:01:00.2", "0x010802", None, Some(7));
    assert!(host.preflight().unwrap().is_clear());
    host.device("0000:01:00.3", "0x010802", Some("nvme"), Some(7));
    let text = host.obstacles().remove(0);
    let members = [
        "0000:01:00.0 on vfio-pci",
        "0000:01:00.1 on pcieport",
        "0000:01:00.2 on no driver",
    ];
    contains(&text, &members);
    contains(
        &text,
        &[
            "group 7",
            "0000:01:00.3 on nvme",
            "0000:01:00.3/driver/unbind",
        ],
    );
    assert!(!text.contains("0000:01:00.1/driver"), "{text}");
}

/// A file without permission, or without VFIO, says which and what to do.
#[test]
fn group_file_not_accessible() {
    let host = FalseHost::new();
    let file = host.host.group_file(7);
    fs::remove_file(&file).unwrap();
    contains(
        &host.obstacles().join("\n"),
        &["dev/vfio/7", "modprobe vfio-pci"],
    );
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let error = super::facts::permission_error(&file).unwrap();
    contains(
        &error.to_string(),
        &["dev/vfio/7", "mode 0000", "chown", "running-as-a-user"],
    );
}

/// A process that has the group open is named.
#[test]
fn device_in_use() {
    let host = FalseHost::new();
    let fds = host.host.proc.join("4242/fd");
    fs::create_dir_all(&fds).unwrap();
    fs::write(host.host.proc.join("4242/comm"), "qemu\n").unwrap();
    symlink(host.host.group_file(7), fds.join("9")).unwrap();
    contains(
        &host.obstacles()[0],
        &["in use", "group 7", "qemu (pid 4242)"],
    );
}

/// All obstacles are listed, the most basic first, and printed with numbers.
#[test]
fn all_obstacles_are_listed_in_order() {
    let host = FalseHost::new();
    host.device(NVME, "0x020000", Some("e1000e"), None);
    fs::remove_file(host.host.container_file()).unwrap();
    let report = host.preflight().unwrap();
    assert!(matches!(
        report.obstacles[..],
        [
            SetupError::NotNvme { .. },
            SetupError::NoIommuGroup { .. },
            SetupError::BoundToOtherDriver { .. },
            SetupError::VfioMissing { .. },
        ]
    ));
    contains(&report.to_string(), &["in the way", "1. ", "4. "]);
}

/// This process is found as the holder of a file that it has open.
#[test]
fn this_process_is_found_as_a_holder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path: &Path = &fs::canonicalize(file.path()).unwrap();
    let holders = Host::default().holders(path);
    assert!(
        holders
            .iter()
            .any(|holder| holder.pid == std::process::id()),
        "{holders:?}"
    );
}

/// An attach in a container of an address that is not there fails before VFIO is looked at.
#[test]
fn open_looks_for_the_device_first() {
    let address = "ffff:ff:1f.7".parse().unwrap();
    let error = super::VfioTransport::open(address, None).unwrap_err();
    assert!(matches!(error, SetupError::NoSuchDevice { .. }));
}
