//! The grammar of device strings.

use super::emulator::EmulatorSettings;
use super::options::settings;
use driver::transport::pci::PciAddress;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A device, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceString {
    /// A PCI function bound to vfio-pci: `0000:01:00.0[,ns=N]`.
    Pci {
        /// Its address.
        address: PciAddress,
        /// The namespace; the first active one if none is named.
        namespace: Option<u32>,
    },
    /// The software controller in this process: `emu[:KEY=VALUE,...]`.
    Emulator(EmulatorSettings),
    /// A controller behind a vfio-user socket: `vfio-user:path=SOCKET[,ns=N]`.
    VfioUser {
        /// The socket.
        path: PathBuf,
        /// The namespace; the first active one if none is named.
        namespace: Option<u32>,
    },
}

/// Anything that a tool's argument can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A device.
    Device(DeviceString),
    /// A path on the blockfs volume that a device holds: `DEVICE:/PATH`.
    Volume {
        /// The device.
        device: DeviceString,
        /// The path, from its first `/` on.
        path: String,
    },
    /// A path on the host.
    Host(PathBuf),
}

/// Why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceStringError {
    /// None of the forms.
    #[error(
        "{text:?} names no device: expected a PCI address such as 0000:01:00.0[,ns=N], \
         emu[:KEY=VALUE,...] or vfio-user:path=SOCKET[,ns=N]"
    )]
    NotADevice {
        /// The text.
        text: String,
    },
    /// A place on a volume where a device is wanted.
    #[error("{text:?} names a path on a volume: give the device alone, all before the `:/`")]
    PathNotWanted {
        /// The text.
        text: String,
    },
    /// A key that this kind of device does not have.
    #[error("{device} has no setting {key:?}: it takes {}", allowed.join(", "))]
    UnknownKey {
        /// The kind of device.
        device: &'static str,
        /// The key.
        key: String,
        /// The keys that there are.
        allowed: &'static [&'static str],
    },
    /// An item that is not `KEY=VALUE`.
    #[error("{item:?} is no setting of {device}: write KEY=VALUE, separated by commas")]
    NoValue {
        /// The kind of device.
        device: &'static str,
        /// The item.
        item: String,
    },
    /// A key that came twice.
    #[error("{device} was given {key} twice: leave one out")]
    Repeated {
        /// The kind of device.
        device: &'static str,
        /// The key.
        key: String,
    },
    /// A value that its key does not take.
    #[error("{key}={value}: {key} takes {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// Settings that exclude each other.
    #[error("{first} and {second} exclude each other: {why}")]
    Conflict {
        /// One setting.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// What they mean.
        why: &'static str,
    },
    /// `vfio-user` without a socket.
    #[error("vfio-user needs its socket: vfio-user:path=SOCKET[,ns=N]")]
    NoSocket,
}

/// The keyword of the software controller.
pub(crate) const EMULATOR: &str = "emu";
/// The keyword of vfio-user.
const VFIO_USER: &str = "vfio-user";
/// What separates a device from a path on its volume: a colon, with the path's own slash.
const VOLUME_MARK: &str = ":/";

/// The settings of `keyword` if that is what `text` starts with: what follows the colon, or nothing.
fn after_keyword<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    match text.strip_prefix(keyword)? {
        "" => Some(""),
        rest => rest.strip_prefix(':'),
    }
}

/// Reads a device. `None`: the text has none of the forms.
fn device(text: &str) -> Option<Result<DeviceString, DeviceStringError>> {
    if let Some(list) = after_keyword(text, EMULATOR) {
        return Some(EmulatorSettings::parse(list).map(DeviceString::Emulator));
    }
    if let Some(list) = after_keyword(text, VFIO_USER) {
        return Some(vfio_user(list));
    }
    let (address, list) = match text.split_once(',') {
        Some((address, list)) => (address, Some(list)),
        None => (text, None),
    };
    let address = address.parse().ok()?;
    Some(pci(address, list))
}

fn pci(address: PciAddress, list: Option<&str>) -> Result<DeviceString, DeviceStringError> {
    let mut namespace = None;
    if let Some(list) = list {
        for setting in settings("a PCI function", &["ns"], list)? {
            namespace = Some(setting.namespace()?);
        }
    }
    Ok(DeviceString::Pci { address, namespace })
}

fn vfio_user(list: &str) -> Result<DeviceString, DeviceStringError> {
    if list.is_empty() {
        return Err(DeviceStringError::NoSocket);
    }
    let (mut path, mut namespace) = (None, None);
    for setting in settings(VFIO_USER, &["path", "ns"], list)? {
        match setting.key {
            "path" => path = Some(PathBuf::from(setting.value)),
            _ => namespace = Some(setting.namespace()?),
        }
    }
    let path = path.ok_or(DeviceStringError::NoSocket)?;
    Ok(DeviceString::VfioUser { path, namespace })
}

impl DeviceString {
    /// Whether what is on the device outlives this process: writing to it may destroy something.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        match self {
            Self::Pci { .. } | Self::VfioUser { .. } => true,
            Self::Emulator(settings) => settings.file.is_some(),
        }
    }
}

impl FromStr for DeviceString {
    type Err = DeviceStringError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse()? {
            Place::Device(device) => Ok(device),
            Place::Volume { .. } => Err(DeviceStringError::PathNotWanted {
                text: text.to_owned(),
            }),
            Place::Host(_) => Err(DeviceStringError::NotADevice {
                text: text.to_owned(),
            }),
        }
    }
}

impl FromStr for Place {
    type Err = DeviceStringError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let host = || Ok(Self::Host(PathBuf::from(text)));
        if text.starts_with("./") || text.starts_with('/') {
            return host();
        }
        match text.split_once(VOLUME_MARK) {
            Some((name, path)) => match device(name) {
                Some(device) => Ok(Self::Volume {
                    device: device?,
                    path: format!("/{path}"),
                }),
                None => host(),
            },
            None => match device(text) {
                Some(device) => device.map(Self::Device),
                None => host(),
            },
        }
    }
}

impl fmt::Display for DeviceString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = match self {
            Self::Pci { address, namespace } => {
                write!(f, "{address}")?;
                namespace
            }
            Self::VfioUser { path, namespace } => {
                write!(f, "{VFIO_USER}:path={}", path.display())?;
                namespace
            }
            Self::Emulator(settings) => return settings.fmt(f),
        };
        namespace.map_or(Ok(()), |namespace| write!(f, ",ns={namespace}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(text: &str) -> Result<DeviceString, DeviceStringError> {
        text.parse()
    }

    fn pci(address: &str, namespace: Option<u32>) -> DeviceString {
        let address = address.parse().unwrap();
        DeviceString::Pci { address, namespace }
    }

    /// Every form of a device is understood.
    #[test]
    fn devices_are_read() {
        assert_eq!(device("0000:01:00.0"), Ok(pci("0000:01:00.0", None)));
        assert_eq!(device("01:00.0"), Ok(pci("0000:01:00.0", None)));
        assert_eq!(device("0000:01:00.0,ns=2"), Ok(pci("01:00.0", Some(2))));
        let plain = DeviceString::Emulator(EmulatorSettings::default());
        assert_eq!(device("emu"), Ok(plain.clone()));
        assert_eq!(device("emu:"), Ok(plain));
        let socket = DeviceString::VfioUser {
            path: "/run/drive.sock".into(),
            namespace: Some(3),
        };
        assert_eq!(device("vfio-user:path=/run/drive.sock,ns=3"), Ok(socket));
    }

    /// A device is told from a path on its volume and from a host path.
    #[test]
    fn places_are_told_apart() {
        let volume = |device: DeviceString, path: &str| Place::Volume {
            device,
            path: path.to_owned(),
        };
        let place = |text: &str| text.parse::<Place>().unwrap();
        let one = pci("01:00.0", Some(1));
        assert_eq!(place("01:00.0,ns=1:/a:/b,c"), volume(one, "/a:/b,c"));
        let emu = device("emu:file=/tmp/v.img").unwrap();
        assert_eq!(place("emu:file=/tmp/v.img:/"), volume(emu, "/"));
        for host in [
            "./emu",
            "/emu:/x",
            "emulator",
            "a:/b",
            "notes.txt",
            "0000:01:00",
        ] {
            assert_eq!(place(host), Place::Host(host.into()), "{host}");
        }
        assert_eq!(place("emu"), Place::Device(device("emu").unwrap()));
    }

    /// Each mistake says what is allowed.
    #[test]
    fn mistakes_say_what_is_allowed() {
        let cases = [
            ("nvme0n1", "expected a PCI address"),
            ("./emu", "expected a PCI address"),
            ("emu:/dir", "give the device alone"),
            (
                "0000:01:00.0,ns=0",
                "ns takes a namespace identifier from 1",
            ),
            ("0000:01:00.0,lba=512", "it takes ns"),
            ("0000:01:00.0,", "write KEY=VALUE"),
            ("0000:01:00.0,ns=1,ns=2", "twice"),
            ("vfio-user", "vfio-user:path=SOCKET"),
            ("vfio-user:ns=1", "vfio-user:path=SOCKET"),
            ("emu:colour=red", "it takes size, file"),
            ("emu:size", "write KEY=VALUE"),
            ("emu:size=", "write KEY=VALUE"),
            ("emu:size=big", "powers of 1,024"),
            ("emu:lba=100", "lba takes"),
            ("emu:backing=disk", "ram or null"),
            ("emu:backing=null,file=x", "exclude each other"),
        ];
        for (text, hint) in cases {
            let error = device(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        "[a-z/._-]{1,20}".prop_filter("no volume mark", |name| !name.contains(":/"))
    }

    proptest! {
        /// What is printed reads back as what it was, with and without a path behind it.
        #[test]
        fn printed_devices_read_back(
            bus in any::<u8>(), slot in 0_u8..32, ns in proptest::option::of(1_u32..1000),
            path in name(), socket in any::<bool>(), tail in "[ -~]{0,20}",
        ) {
            let device = if socket {
                DeviceString::VfioUser { path: path.into(), namespace: ns }
            } else {
                let address = PciAddress::new(0, bus, slot, 0).unwrap();
                DeviceString::Pci { address, namespace: ns }
            };
            let text = device.to_string();
            prop_assert_eq!(text.parse(), Ok(device.clone()));
            let place = format!("{text}:/{tail}").parse();
            prop_assert_eq!(place, Ok(Place::Volume { device, path: format!("/{tail}") }));
        }

        /// No text whatever makes the parser panic, and host paths come back as they were.
        #[test]
        fn any_text_is_a_place_or_an_error(text in "\\PC{0,40}") {
            if let Ok(Place::Host(path)) = text.parse::<Place>() {
                prop_assert_eq!(path, PathBuf::from(text));
            }
        }
    }
}
