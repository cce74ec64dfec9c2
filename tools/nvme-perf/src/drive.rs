//! What the drive is, and whether it may be written.

use device::{format_size, signature};
use driver::controller::{Controller, ControllerError};
use driver::memory::DmaDomain;
use driver::namespace::{BlockingIo, IoError, Lba, Namespace};
use driver::spec::identify::IdentifyNamespace;
use serde::Serialize;

/// What a report says of the drive.
#[derive(Clone, Debug, Serialize)]
pub struct Drive {
    /// The device as it was named.
    pub device: String,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware: String,
    /// The namespace.
    pub nsid: u32,
    /// Bytes of a logical block.
    pub lba_bytes: u32,
    /// Index of the LBA format in use.
    pub lba_format: usize,
    /// Bytes of the namespace.
    pub capacity_bytes: u64,
    /// Bytes of it that are in use, by the drive's word.
    pub used_bytes: u64,
    /// Whether it is thin-provisioned: then that word counts what was written.
    pub thin_provisioned: bool,
    /// Bytes that one command may move (MDTS).
    pub max_transfer_bytes: Option<u64>,
    /// Composite temperature, from the SMART log.
    pub temperature_celsius: Option<i32>,
    /// Whether a volatile write cache is on.
    pub volatile_cache: Option<bool>,
}

impl Drive {
    /// Asks the drive. What it does not tell is left out.
    ///
    /// # Errors
    /// [`ControllerError`] if it does not even tell of the namespace.
    pub fn ask(
        device: &str,
        controller: &Controller,
        namespace: &Namespace,
    ) -> Result<Self, ControllerError> {
        let identify = controller.identify();
        let nsid = namespace.id();
        let of_namespace = controller.identify_namespace(nsid)?;
        let smart = controller.smart_log().ok();
        let block = u64::from(namespace.block_size());
        Ok(Self {
            device: device.to_owned(),
            model: identify.model(),
            serial: identify.serial(),
            firmware: identify.firmware(),
            nsid,
            lba_bytes: namespace.block_size(),
            lba_format: of_namespace.format_index(),
            capacity_bytes: namespace.bytes(),
            used_bytes: of_namespace.nuse.get().saturating_mul(block),
            thin_provisioned: of_namespace.nsfeat & IdentifyNamespace::NSFEAT_THIN != 0,
            max_transfer_bytes: controller.max_transfer(),
            temperature_celsius: smart.and_then(|smart| smart.composite_celsius()),
            volatile_cache: controller.volatile_cache().ok(),
        })
    }

    /// Whether most of the namespace was never written: reads of it are answered without touching the
    /// medium.
    #[must_use]
    pub fn is_mostly_unwritten(&self) -> bool {
        self.used_bytes < self.capacity_bytes / 2
    }
}

/// Why the drive is not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// It holds something.
    #[error(
        "{device} namespace {nsid} is not empty ({found}), and this run would overwrite it: read \
         only (-w randread), or give --force if what it holds may go"
    )]
    NotEmpty {
        /// The device.
        device: String,
        /// The namespace.
        nsid: u32,
        /// What was found, and where.
        found: String,
    },
    /// It could not be read.
    #[error("cannot tell whether {device} is empty: --force writes without looking")]
    Unreadable {
        /// The device.
        device: String,
        /// Why.
        #[source]
        source: IoError,
    },
}

/// Bytes at the start, at the end and where the writing begins that are looked at.
const LOOK: u64 = 1 << 20;
/// Samples between, at equal distances.
const SAMPLES: u64 = 256;
/// Bytes of a sample: all of a namespace of 16 MiB or less is looked at.
const SAMPLE: u64 = 64 << 10;
/// Bytes of one look's read.
const CHUNK: u64 = 128 << 10;

/// Makes sure that the namespace seems empty before it is written from byte `written` on: its first
/// and last MiB, the MiB at `written` and samples of the rest hold nothing but zeros, and a
/// thin-provisioned one has no block in use.
///
/// # Errors
/// [`GuardError`].
pub fn check_empty(
    drive: &Drive,
    io: &mut BlockingIo,
    domain: &DmaDomain,
    written: u64,
) -> Result<(), GuardError> {
    let not_empty = |found| GuardError::NotEmpty {
        device: drive.device.clone(),
        nsid: drive.nsid,
        found,
    };
    let block = u64::from(drive.lba_bytes);
    for (start, end) in looks(drive.capacity_bytes, written) {
        let start = start / block * block;
        let read = read_range(io, domain, start, end).map_err(|source| {
            let device = drive.device.clone();
            GuardError::Unreadable { device, source }
        })?;
        if let Some((at, found)) = contents(start, &read) {
            return Err(not_empty(format!("{found} at byte {at}")));
        }
    }
    if drive.thin_provisioned && drive.used_bytes > 0 {
        let used = format_size(drive.used_bytes);
        return Err(not_empty(format!("{used} are in use by the drive's word")));
    }
    Ok(())
}

/// The parts of a namespace of `bytes` bytes that are looked at: from which byte to which.
fn looks(bytes: u64, written: u64) -> impl Iterator<Item = (u64, u64)> {
    let stride = bytes / SAMPLES;
    let samples = (0..SAMPLES).map(move |index| (index * stride, SAMPLE));
    [
        (0, LOOK),
        (bytes.saturating_sub(LOOK), LOOK),
        (written, LOOK),
    ]
    .into_iter()
    .chain(samples)
    .map(move |(start, len)| (start, start.saturating_add(len).min(bytes)))
}

/// Reads the bytes from `start` to `end`, widened to whole blocks.
fn read_range(
    io: &mut BlockingIo,
    domain: &DmaDomain,
    start: u64,
    end: u64,
) -> Result<Vec<u8>, IoError> {
    let block = u64::from(io.namespace().block_size());
    let chunk = (CHUNK / block).max(1);
    let (mut lba, last) = (start / block, end.div_ceil(block));
    let mut all = Vec::new();
    while lba < last {
        let blocks = chunk.min(last - lba);
        let len = usize::try_from(blocks * block).unwrap_or(usize::MAX);
        let mut buf = domain.alloc(len)?;
        // A drive that moves no data leaves zeros, not what the memory held before.
        buf.fill(0);
        let buf = io.read(Lba(lba), buf)?;
        let from = all.len();
        all.resize(from + len, 0);
        buf.read_at(0, &mut all[from..])?;
        lba += blocks;
    }
    Ok(all)
}

/// What a look at byte `start` of the namespace found, and at which byte; `None`: zeros only.
fn contents(start: u64, bytes: &[u8]) -> Option<(u64, &'static str)> {
    let known = signature(bytes).filter(|_| start == 0);
    let data = || Some((bytes.iter().position(|byte| *byte != 0)? as u64, "data"));
    let (at, name) = known.map(|known| (known.at, known.what)).or_else(data)?;
    Some((start + at, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros are nothing; a known signature is named, and any other byte is data.
    #[test]
    fn contents_are_told() {
        let mut bytes = vec![0; 1 << 20];
        assert_eq!(contents(0, &bytes), None);
        bytes[999_999] = 1;
        assert_eq!(contents(0, &bytes), Some((999_999, "data")));
        bytes[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(contents(0, &bytes), Some((512, "a GPT partition table")));
        assert_eq!(contents(4096, &bytes), Some((4608, "data")));
        bytes[0..4].copy_from_slice(b"XFSB");
        bytes[512] = 0;
        assert_eq!(contents(0, &bytes), Some((0, "an XFS filesystem")));
        assert_eq!(contents(7, &[1]), Some((7, "data")));
    }

    /// Looks stay inside the namespace, reach its end, and leave nothing out of 16 MiB.
    #[test]
    fn looks_cover_small_namespaces() {
        for bytes in [512, 4096, 1 << 20, (5 << 20) + 512, 16 << 20] {
            let mut all: Vec<_> = looks(bytes, bytes - 512).collect();
            all.sort_unstable();
            let reached = all.iter().fold(0, |reached, &(start, end)| {
                assert!(
                    start <= reached && end <= bytes,
                    "{bytes}: {start} to {end}"
                );
                reached.max(end)
            });
            assert_eq!(reached, bytes);
        }
        let large = looks(1 << 50, 1 << 49).collect::<Vec<_>>();
        assert_eq!(large.len(), 259);
        assert!(large.contains(&(1 << 49, (1 << 49) + LOOK)));
        assert!(large.contains(&((1 << 42) * 3, (1 << 42) * 3 + SAMPLE)));
    }

    fn drive(used_bytes: u64) -> Drive {
        Drive {
            device: "emu".to_owned(),
            model: String::new(),
            serial: String::new(),
            firmware: String::new(),
            nsid: 1,
            lba_bytes: 512,
            lba_format: 0,
            capacity_bytes: 1 << 30,
            used_bytes,
            thin_provisioned: true,
            max_transfer_bytes: None,
            temperature_celsius: None,
            volatile_cache: None,
        }
    }

    /// A drive is called unwritten when less than half of it is in use.
    #[test]
    fn unwritten_means_less_than_half() {
        assert!(drive(0).is_mostly_unwritten());
        assert!(drive((1 << 29) - 1).is_mostly_unwritten());
        assert!(!drive(1 << 29).is_mostly_unwritten());
    }
}
