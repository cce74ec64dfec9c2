//! From a device string to a mounted volume.

use super::error::ToolError;
use blockfs::device::{DriverDevice, Limits};
use blockfs::file::{Blocking, IoQueue, Tag};
use blockfs::fs::{Blockfs, FsError, MountOptions};
use blockfs::iostat::Off;
use blockfs::journal::{LoadMode, MetaTag};
use device::{DeviceString, DeviceStringError, Opened, Place, open, preflight};
use driver::controller::{ControllerOptions, QueueOptions};
use driver::memory::{DmaDomain, SLAB_BYTES};
use driver::namespace::BlockingIo;
use std::fmt;
use std::str::FromStr;

/// The queue of a volume's metadata.
pub type MetaDevice = DriverDevice<MetaTag>;
/// A mounted volume.
pub type Fs = Blockfs<MetaDevice>;
/// A queue for data, with what comes back with each completion.
pub(crate) type Queue<T> = IoQueue<DriverDevice<Tag<T>>, T, MetaDevice>;
/// A queue for data, waited for.
pub(crate) type Io = Blocking<DriverDevice<Tag<()>>, MetaDevice>;

/// What each queue pair takes: few commands, of moderate length.
const QUEUE: QueueOptions = QueueOptions {
    commands: 31,
    max_transfer: 1 << 20,
};
/// Queue pairs: metadata and data.
const QUEUES: u16 = 2;
/// DMA memory for data, at most.
const DATA_BYTES: u64 = 16 << 20;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// To make a volume: a file of an emulated drive may be made, too.
    Mkfs,
    /// To use the volume that is on it.
    Volume,
}

/// An open device.
#[derive(Debug)]
pub struct Drive {
    name: String,
    opened: Opened,
    domain: DmaDomain,
}

impl Drive {
    /// Opens a device for transfers from and to `domain`.
    ///
    /// # Errors
    /// [`ToolError`]: what stands in the way, a missing file included.
    pub fn open(
        device: &DeviceString,
        domain: &DmaDomain,
        purpose: For,
    ) -> Result<Self, ToolError> {
        check_file(device, purpose)?;
        let options = ControllerOptions {
            io_queues: QUEUES,
            ..ControllerOptions::default()
        };
        let bytes = DATA_BYTES.saturating_add(options.dma_bytes(QUEUES, &QUEUE));
        let slab = SLAB_BYTES as u64;
        preflight(
            device,
            bytes.checked_next_multiple_of(slab).unwrap_or(bytes),
        )?;
        Ok(Self {
            name: device.to_string(),
            opened: open(device, domain, &options)?,
            domain: domain.clone(),
        })
    }

    /// The device as it was named.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The memory that it reaches.
    #[must_use]
    pub const fn domain(&self) -> &DmaDomain {
        &self.domain
    }

    /// A queue of it.
    ///
    /// # Errors
    /// [`ToolError::Controller`].
    pub fn queue<T>(&self) -> Result<DriverDevice<T>, ToolError> {
        let queue = DriverDevice::open(&self.opened.controller, self.opened.nsid, &QUEUE);
        queue.map_err(|source| self.controller(source))
    }

    /// A queue for plain blocks.
    ///
    /// # Errors
    /// [`ToolError::Controller`].
    pub fn blocks(&self) -> Result<BlockingIo, ToolError> {
        let controller = &self.opened.controller;
        let namespace = controller.namespace(self.opened.nsid);
        let namespace = namespace.map_err(|source| self.controller(source))?;
        let queue = controller.queue_pair(&QUEUE);
        let queue = queue.map_err(|source| self.controller(source))?;
        Ok(BlockingIo::new(queue, namespace))
    }

    /// What it can.
    ///
    /// # Errors
    /// [`ToolError::Controller`].
    pub fn limits(&self) -> Result<Limits, ToolError> {
        let controller = &self.opened.controller;
        let limits = DriverDevice::<()>::limits_of(controller, self.opened.nsid);
        limits.map_err(|source| self.controller(source))
    }

    fn controller(&self, source: driver::controller::ControllerError) -> ToolError {
        let device = self.name.clone();
        ToolError::Controller { device, source }
    }

    /// Mounts the volume that is on it.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn mount(self, mode: LoadMode) -> Result<Volume, ToolError> {
        let granted = self.opened.controller.queues_granted();
        if granted < QUEUES {
            let device = self.name;
            return Err(ToolError::TooFewQueues { device, granted });
        }
        let options = MountOptions {
            mode,
            ..MountOptions::default()
        };
        match Fs::mount(self.queue()?, &self.domain, options) {
            Ok(fs) => Ok(Volume { fs, drive: self }),
            Err(error) => Err(ToolError::mount(self.name, error.error)),
        }
    }
}

/// That the file of an emulated drive is there: none is to be made by a typing error.
fn check_file(device: &DeviceString, purpose: For) -> Result<(), ToolError> {
    let DeviceString::Emulator(settings) = device else {
        return Ok(());
    };
    let Some(path) = &settings.file else {
        return Ok(());
    };
    if purpose == For::Mkfs && settings.size.is_some() {
        return Ok(());
    }
    let problem = match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => "is empty",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist",
        _ => return Ok(()),
    };
    let path = path.clone();
    Err(ToolError::NoFile { path, problem })
}

/// A mounted volume on an open device.
#[derive(Debug)]
pub struct Volume {
    // In this order: the volume goes before its drive.
    fs: Fs,
    drive: Drive,
}

impl Volume {
    /// Opens a device and mounts the volume that is on it.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn open(
        device: &DeviceString,
        domain: &DmaDomain,
        mode: LoadMode,
    ) -> Result<Self, ToolError> {
        Drive::open(device, domain, For::Volume)?.mount(mode)
    }

    /// The filesystem.
    #[must_use]
    pub const fn fs(&self) -> &Fs {
        &self.fs
    }

    /// The device.
    #[must_use]
    pub const fn drive(&self) -> &Drive {
        &self.drive
    }

    /// A queue for data.
    pub(crate) fn queue<T>(&self) -> Result<Queue<T>, ToolError> {
        let queue = self.fs.queue(self.drive.queue()?, Off);
        queue.map_err(|source| ToolError::volume(self.drive.name(), source))
    }

    /// A queue for data, waited for.
    pub(crate) fn io(&self) -> Result<Io, ToolError> {
        Ok(Blocking::new(self.queue()?))
    }

    /// Unmounts: everything is durable then.
    ///
    /// # Errors
    /// [`ToolError::Volume`].
    pub fn close(self) -> Result<Drive, ToolError> {
        let Self { fs, drive } = self;
        match fs.unmount() {
            Ok(_) => Ok(drive),
            Err(source) => Err(ToolError::volume(drive.name, source)),
        }
    }

    /// How a path on it is named.
    #[must_use]
    pub fn place(&self, path: &[u8]) -> String {
        format!("{}:{}", self.drive.name, String::from_utf8_lossy(path))
    }

    /// An error of something on it.
    pub(crate) fn error(&self, path: &[u8], source: FsError) -> ToolError {
        ToolError::volume(self.place(path), source)
    }

    /// The names in a directory, in order.
    pub(crate) fn list(&self, path: &[u8]) -> Result<Vec<blockfs::fs::DirEntry>, ToolError> {
        let listed = self.fs.readdir(path, 0, usize::MAX);
        let mut entries = listed.map_err(|source| self.error(path, source))?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}

/// An argument that is a path on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePath {
    /// The device.
    pub device: DeviceString,
    /// The path, from its first `/` on.
    pub path: String,
}

/// Why a text is no path on a volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumePathError {
    /// A device that is none.
    #[error(transparent)]
    Device(#[from] DeviceStringError),
    /// A device alone.
    #[error("{text} is a device: add a path, as in {text}:/")]
    NoPath {
        /// The text.
        text: String,
    },
    /// A host path.
    #[error("{text} is no path on a volume: write DEVICE:/PATH, as in emu:file=disk.img:/doc")]
    NoVolume {
        /// The text.
        text: String,
    },
}

impl FromStr for VolumePath {
    type Err = VolumePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text_owned = || text.to_owned();
        match text.parse()? {
            Place::Volume { device, path } => Ok(Self { device, path }),
            Place::Device(_) => Err(VolumePathError::NoPath { text: text_owned() }),
            Place::Host(_) => Err(VolumePathError::NoVolume { text: text_owned() }),
        }
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.path)
    }
}

/// `name` in the directory `dir`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The last name of a path; empty if there is none.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    let trimmed = path.iter().rposition(|&byte| byte != b'/');
    let path = path
        .get(..trimmed.map_or(0, |last| last + 1))
        .unwrap_or(&[]);
    let start = path.iter().rposition(|&byte| byte == b'/');
    path.get(start.map_or(0, |slash| slash + 1)..)
        .unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths on volumes are told from devices and host paths, with a word about what is missing.
    #[test]
    fn paths_on_volumes_are_read() {
        let found: VolumePath = "emu:file=a.img:/b/c".parse().unwrap();
        assert_eq!(
            (found.path.as_str(), found.to_string().as_str()),
            ("/b/c", "emu:file=a.img:/b/c")
        );
        for (text, hint) in [
            ("emu:file=a.img", "add a path, as in emu:file=a.img:/"),
            ("/b/c", "write DEVICE:/PATH"),
            ("emu:colour=red:/", "it takes size"),
        ] {
            let error = text.parse::<VolumePath>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    /// The last name of a path, whatever slashes it has.
    #[test]
    fn the_last_name_is_found() {
        for (path, name) in [
            ("/a/b", "b"),
            ("b", "b"),
            ("/a/b//", "b"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(base_name(path.as_bytes()), name.as_bytes(), "{path}");
        }
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
    }
}
