//! From a device string to an attached controller.

use super::emulator::{Backing, EmulatorSettings};
use super::grammar::DeviceString;
use driver::controller::{Controller, ControllerError, ControllerOptions};
use driver::memory::DmaDomain;
use driver::namespace::NamespaceError;
use driver::transport::Transport;
use driver::transport::vfio::{self, SetupError, VfioTarget, VfioTransport};
use nvme_emulator::{BuildError, Builder, Emulator, Namespace, Timing};
use std::sync::Arc;
use std::time::Duration;

/// A device that is open. Keep it for as long as its queue pairs: what is behind it may be a thread of
/// this process.
#[derive(Debug)]
pub struct Opened {
    /// The controller, attached.
    pub controller: Controller,
    /// The namespace that was named, or the first active one.
    pub nsid: u32,
    /// The software controller, if it is that one. After the controller, which is dropped first.
    pub emulator: Option<Emulator>,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// VFIO cannot give the device to this process.
    #[error("cannot take {device}")]
    Setup {
        /// The device.
        device: String,
        /// What stands in the way, and what to do.
        #[source]
        source: SetupError,
    },
    /// The software controller cannot be built.
    #[error("cannot build {device}")]
    Emulator {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: BuildError,
    },
    /// The controller did not come up, or does not have the namespace.
    #[error("cannot use {device}")]
    Controller {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: ControllerError,
    },
    /// The controller has no active namespace.
    #[error("{device} has no active namespace: create and attach one first")]
    NoNamespace {
        /// The device.
        device: String,
    },
    /// This build cannot reach such a device.
    #[error("{device}: vfio-user is not built yet: name a PCI address or emu")]
    NotBuilt {
        /// The device.
        device: String,
    },
}

impl OpenError {
    /// A stable name for scripts.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Setup { .. } => "setup",
            Self::Emulator { .. } => "emulator",
            Self::Controller { .. } => "controller",
            Self::NoNamespace { .. } => "no-namespace",
            Self::NotBuilt { .. } => "not-built",
        }
    }
}

/// Says what stands in the way of opening `device` and using `dma_bytes` of memory with it, before
/// anything is touched.
///
/// # Errors
/// The most basic obstacle.
pub fn preflight(device: &DeviceString, dma_bytes: u64) -> Result<(), OpenError> {
    let DeviceString::Pci { address, .. } = device else {
        return Ok(());
    };
    let failed = |source| OpenError::Setup {
        device: address.to_string(),
        source,
    };
    let found = vfio::preflight(*address, dma_bytes).map_err(failed)?;
    found
        .obstacles
        .into_iter()
        .next()
        .map_or(Ok(()), |source| Err(failed(source)))
}

/// Opens a device and attaches its controller to `domain`.
///
/// Several PCI functions opened with one domain share a VFIO container.
///
/// # Errors
/// [`OpenError`].
pub fn open(
    device: &DeviceString,
    domain: &DmaDomain,
    options: &ControllerOptions,
) -> Result<Opened, OpenError> {
    match device {
        DeviceString::Pci { address, namespace } => {
            let existing = domain.target::<VfioTarget>();
            let transport = VfioTransport::open(*address, existing).map_err(|source| {
                let device = address.to_string();
                OpenError::Setup { device, source }
            })?;
            attach(Arc::new(transport), *namespace, domain, options)
        }
        DeviceString::Emulator(settings) => {
            let emulator = builder(settings).start().map_err(|source| {
                let device = device.to_string();
                OpenError::Emulator { device, source }
            })?;
            let opened = attach(emulator.transport(), settings.namespace, domain, options)?;
            Ok(Opened {
                emulator: Some(emulator),
                ..opened
            })
        }
        DeviceString::VfioUser { .. } => Err(OpenError::NotBuilt {
            device: device.to_string(),
        }),
    }
}

/// Takes control of the controller behind a transport.
fn attach(
    transport: Arc<dyn Transport>,
    namespace: Option<u32>,
    domain: &DmaDomain,
    options: &ControllerOptions,
) -> Result<Opened, OpenError> {
    let name = transport.name().to_owned();
    let controller =
        Controller::attach(transport, domain, options).map_err(|source| OpenError::Controller {
            device: name,
            source,
        })?;
    let nsid = pick_namespace(&controller, namespace)?;
    Ok(Opened {
        controller,
        nsid,
        emulator: None,
    })
}

/// Bytes of an emulated namespace if nothing is said.
const EMULATED_BYTES: u64 = 1 << 30;
/// CAP.MPSMAX of a controller whose smallest page is not larger.
const MPSMAX: u8 = 4;

/// The software controller that the settings describe.
fn builder(settings: &EmulatorSettings) -> Builder {
    let size = settings.size.unwrap_or(EMULATED_BYTES);
    let namespace = match (&settings.file, settings.backing) {
        (Some(path), _) => Namespace::file(path, settings.size),
        (None, Backing::Ram) => Namespace::ram(size),
        (None, Backing::Null) => Namespace::null(size),
    };
    let namespace = match settings.lba {
        Some(bytes) => namespace.block_size(bytes),
        None => namespace,
    };
    let mut builder = Emulator::builder();
    for _ in 0..settings.namespaces.unwrap_or(1) {
        builder = builder.namespace(namespace.clone());
    }
    if let Some(mqes) = settings.mqes {
        builder = builder.mqes(mqes);
    }
    if let Some(dstrd) = settings.dstrd {
        builder = builder.doorbell_stride(dstrd);
    }
    if let Some(mpsmin) = settings.mpsmin {
        builder = builder.page_sizes(mpsmin, MPSMAX.max(mpsmin));
    }
    if let Some(mdts) = settings.mdts {
        builder = builder.mdts(mdts);
    }
    if let Some(queues) = settings.queues {
        builder = builder.queues(queues);
    }
    if settings.volatile_cache == Some(false) {
        builder = builder.write_cache(None);
    }
    if let Some(cpu) = settings.cpu {
        builder = builder.cpu(cpu);
    }
    let latency = Duration::from_micros(settings.latency_us.unwrap_or(0).into());
    builder.timing(Timing {
        read: latency,
        write: latency,
        iops: settings.iops,
    })
}

/// The namespace that was named, if it is active, or the first active one.
fn pick_namespace(controller: &Controller, named: Option<u32>) -> Result<u32, OpenError> {
    let device = controller.name().to_owned();
    let active = match controller.namespaces() {
        Ok(active) => active,
        Err(source) => return Err(OpenError::Controller { device, source }),
    };
    match named {
        Some(nsid) if !active.contains(&nsid) => {
            let source = NamespaceError::Inactive(nsid).into();
            Err(OpenError::Controller { device, source })
        }
        Some(nsid) => Ok(nsid),
        None => active
            .first()
            .copied()
            .ok_or(OpenError::NoNamespace { device }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(text: &str) -> Result<Opened, OpenError> {
        let device = text.parse().unwrap();
        open(&device, &DmaDomain::new(), &ControllerOptions::default())
    }

    /// Settings reach the controller that is built.
    #[test]
    fn settings_reach_the_controller() {
        let text = "emu:size=64m,lba=4096,namespaces=3,ns=2,mqes=7,dstrd=0,mdts=1,queues=2,vwc=off";
        let opened = opened(text).unwrap();
        let controller = &opened.controller;
        assert_eq!(
            (opened.nsid, controller.namespaces().unwrap().len()),
            (2, 3)
        );
        let namespace = controller.namespace(opened.nsid).unwrap();
        assert_eq!(
            (namespace.block_size(), namespace.bytes()),
            (4096, 64 << 20)
        );
        let limits = controller.limits();
        assert_eq!((limits.queue_entries_max, limits.doorbell_stride), (8, 4));
        assert_eq!(controller.max_transfer(), Some(8192));
        assert_eq!(controller.queues_granted(), 2);
        assert!(!controller.volatile_cache().unwrap());
    }

    /// Plain `emu` is 1 GiB of RAM in blocks of 512 bytes.
    #[test]
    fn plain_emu_is_a_gibibyte() {
        let opened = opened("emu").unwrap();
        let namespace = opened.controller.namespace(opened.nsid).unwrap();
        assert_eq!((namespace.block_size(), namespace.bytes()), (512, 1 << 30));
        assert!(opened.controller.volatile_cache().unwrap());
    }

    /// A file is made with a size, opened without, and a missing one is an error with its cause.
    #[test]
    fn a_file_is_made_and_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive.img");
        let text = format!("emu:file={}", path.display());
        let error = opened(&text).unwrap_err();
        assert!(crate::chain(&error).len() > 1, "{error:?}");
        for text in [format!("{text},size=8m"), text] {
            let opened = opened(&text).unwrap();
            let namespace = opened.controller.namespace(1).unwrap();
            assert_eq!(namespace.bytes(), 8 << 20, "{text}");
        }
    }

    /// What cannot be opened is told with a stable code.
    #[test]
    fn failures_have_codes() {
        let code = |text| opened(text).err().map(|error| error.code());
        assert_eq!(code("vfio-user:path=/run/x.sock"), Some("not-built"));
        assert_eq!(code("fffe:00:00.0"), Some("setup"));
        assert_eq!(code("emu:size=1m,ns=2"), Some("controller"));
    }
}
