//! What a software drive is like: all its limits and habits.

use crate::emulator::Emulator;
use crate::media::{MediaError, Store, StoreError};
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// One namespace of the drive.
///
/// # Examples
///
/// ```
/// use nvme_emulator::Namespace;
///
/// let small = Namespace::ram(64 << 20).block_size(4096);
/// let fast = Namespace::null(1 << 40);
/// # let _ = (small, fast);
/// ```
#[derive(Clone, Debug)]
pub struct Namespace {
    pub(crate) backing: Backing,
    pub(crate) block_size: u32,
    pub(crate) optimal_boundary: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum Backing {
    Ram { len: u64 },
    File { path: PathBuf, len: Option<u64> },
    Null { len: u64 },
}

impl Namespace {
    /// `len` bytes of memory, taken from the system as they are written.
    #[must_use]
    pub fn ram(len: u64) -> Self {
        Self::new(Backing::Ram { len })
    }

    /// An existing file at its length. With `len` a missing or empty one is made that long, sparse;
    /// one with contents has to be that long already.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>, len: Option<u64>) -> Self {
        Self::new(Backing::File {
            path: path.into(),
            len,
        })
    }

    /// `len` bytes that are nowhere: commands complete, and no data moves.
    #[must_use]
    pub fn null(len: u64) -> Self {
        Self::new(Backing::Null { len })
    }

    fn new(backing: Backing) -> Self {
        Self {
            backing,
            block_size: 512,
            optimal_boundary: 0,
        }
    }

    /// Bytes of a logical block: 512 (the default) or 4096, or another power of two up to 64 KiB.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = bytes;
        self
    }

    /// NOIOB: the optimal I/O boundary, in logical blocks; 0 (the default): none.
    #[must_use]
    pub fn optimal_boundary(mut self, blocks: u16) -> Self {
        self.optimal_boundary = blocks;
        self
    }

    pub(crate) fn open(&self) -> Result<Store, StoreError> {
        match &self.backing {
            Backing::Ram { len } => Store::ram(*len),
            Backing::File { path, len } => Store::file(path, *len),
            Backing::Null { len } => Ok(Store::null(*len)),
        }
    }
}

/// How long the modelled drive takes. All zero and no limit: as fast as this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From fetching a read (or compare) to its completion.
    pub read: Duration,
    /// From fetching any other I/O command to its completion.
    pub write: Duration,
    /// The most I/O commands that start in a second.
    pub iops: Option<u32>,
}

impl Timing {
    pub(crate) fn is_modelled(&self) -> bool {
        *self != Self::default()
    }
}

/// Settings of an [`Emulator`], each with a default. Made by [`Emulator::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) mqes: u16,
    pub(crate) dstrd: u8,
    pub(crate) mpsmin: u8,
    pub(crate) mpsmax: u8,
    pub(crate) mdts: u8,
    pub(crate) queues: u16,
    pub(crate) cap_timeout: u8,
    pub(crate) crwmt: Option<u16>,
    pub(crate) ready_delay: Duration,
    pub(crate) shutdown_delay: Duration,
    pub(crate) cache_bytes: Option<usize>,
    pub(crate) timing: Timing,
    pub(crate) iova_ranges: Vec<RangeInclusive<u64>>,
    pub(crate) mapping_quota: Option<u64>,
    pub(crate) cpu: Option<usize>,
    pub(crate) thread_name: String,
    pub(crate) idle_spin: Duration,
    pub(crate) record: usize,
}

/// Why an emulator could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is outside what NVMe can say.
    #[error("{setting} cannot be {value}: it takes {allowed}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What it was set to.
        value: u64,
        /// What it takes.
        allowed: &'static str,
    },
    /// A namespace's contents cannot be opened.
    #[error("namespace {nsid} cannot be opened")]
    Store {
        /// Which one.
        nsid: u32,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// A namespace's geometry makes no sense.
    #[error("namespace {nsid} cannot be built")]
    Media {
        /// Which one.
        nsid: u32,
        /// Why.
        #[source]
        source: MediaError,
    },
    /// The system refused memory or a thread.
    #[error("{what} for the software controller cannot be had")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            serial: "DBEMU0001".to_owned(),
            model: "Doorbell software NVMe".to_owned(),
            mqes: 4095,
            dstrd: 4,
            mpsmin: 0,
            mpsmax: 4,
            mdts: 8,
            queues: 64,
            cap_timeout: 20,
            crwmt: None,
            ready_delay: Duration::ZERO,
            shutdown_delay: Duration::ZERO,
            cache_bytes: Some(16 << 20),
            timing: Timing::default(),
            // As an Intel IOMMU of 48 bits leaves it: the MSI window is reserved.
            iova_ranges: vec![0x1_0000..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff],
            mapping_quota: None,
            cpu: None,
            thread_name: "nvme-emulator".to_owned(),
            idle_spin: Duration::from_millis(2),
            record: 0,
        }
    }
}

impl Builder {
    /// Adds a namespace; their identifiers count from 1. Without any there is one: 1 GiB of RAM in
    /// blocks of 512 bytes.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespaces.push(namespace);
        self
    }

    /// SN: the serial number, up to 20 characters.
    #[must_use]
    pub fn serial(mut self, serial: &str) -> Self {
        serial.clone_into(&mut self.serial);
        self
    }

    /// MN: the model number, up to 40 characters.
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        model.clone_into(&mut self.model);
        self
    }

    /// CAP.MQES: entries of the largest I/O queue, less one. Default 4095.
    #[must_use]
    pub fn mqes(mut self, less_one: u16) -> Self {
        self.mqes = less_one;
        self
    }

    /// CAP.DSTRD: doorbells lie `4 << dstrd` bytes apart. The default is 4, a cache line of 64
    /// bytes, so that a host that writes one doorbell does not take away the line of another that
    /// the device polls.
    #[must_use]
    pub fn doorbell_stride(mut self, dstrd: u8) -> Self {
        self.dstrd = dstrd;
        self
    }

    /// CAP.MPSMIN and CAP.MPSMAX: memory pages have `2^(12 + n)` bytes. Default 0 to 4.
    #[must_use]
    pub fn page_sizes(mut self, mpsmin: u8, mpsmax: u8) -> Self {
        (self.mpsmin, self.mpsmax) = (mpsmin, mpsmax);
        self
    }

    /// MDTS: the largest transfer is `2^mdts` smallest pages; 0: no limit. Default 8, 1 MiB.
    #[must_use]
    pub fn mdts(mut self, mdts: u8) -> Self {
        self.mdts = mdts;
        self
    }

    /// How many I/O queues of each kind the drive grants. Default 64.
    #[must_use]
    pub fn queues(mut self, pairs: u16) -> Self {
        self.queues = pairs;
        self
    }

    /// CAP.TO: the longest wait for ready, in units of 500 ms. Default 20.
    #[must_use]
    pub fn cap_timeout(mut self, half_seconds: u8) -> Self {
        self.cap_timeout = half_seconds;
        self
    }

    /// Sets CAP.CRMS.CRWMS and CRTO.CRWMT, in units of 500 ms. Default: neither.
    #[must_use]
    pub fn ready_timeout(mut self, half_seconds: u16) -> Self {
        self.crwmt = Some(half_seconds);
        self
    }

    /// How long CSTS.RDY takes to follow CC.EN. Default zero.
    #[must_use]
    pub fn ready_delay(mut self, delay: Duration) -> Self {
        self.ready_delay = delay;
        self
    }

    /// How long a shutdown takes. Default zero. RTD3E reports it.
    #[must_use]
    pub fn shutdown_delay(mut self, delay: Duration) -> Self {
        self.shutdown_delay = delay;
        self
    }

    /// Whether there is a volatile write cache, and how many bytes it holds. Default 16 MiB.
    #[must_use]
    pub fn write_cache(mut self, bytes: Option<usize>) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// How long I/O commands take.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// The I/O virtual addresses that may be mapped, ascending and disjoint. Default: 64 KiB to
    /// 2^48 without the interrupt window.
    #[must_use]
    pub fn iova_ranges(mut self, ranges: Vec<RangeInclusive<u64>>) -> Self {
        self.iova_ranges = ranges;
        self
    }

    /// How many mappings can be made. Default: no limit.
    #[must_use]
    pub fn mapping_quota(mut self, mappings: u64) -> Self {
        self.mapping_quota = Some(mappings);
        self
    }

    /// Binds the device's thread to a processor.
    #[must_use]
    pub fn cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// The name of the device's thread. Default `nvme-emulator`.
    #[must_use]
    pub fn thread_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.thread_name);
        self
    }

    /// How long the device's thread spins after its last work before it begins to sleep between
    /// looks. Default 2 ms.
    #[must_use]
    pub fn idle_spin(mut self, spin: Duration) -> Self {
        self.idle_spin = spin;
        self
    }

    /// Keeps the last `commands` commands for [`Emulator::commands`]. Default 0.
    #[must_use]
    pub fn record_commands(mut self, commands: usize) -> Self {
        self.record = commands;
        self
    }

    /// Starts the drive on a thread of its own.
    ///
    /// # Errors
    /// [`BuildError`]
    pub fn start(self) -> Result<Emulator, BuildError> {
        Emulator::start(self)
    }

    /// Makes a drive without a thread, in virtual time: it works only in [`Emulator::step`],
    /// [`Emulator::advance`] and while somebody waits on its transport's clock.
    ///
    /// # Errors
    /// [`BuildError`]
    pub fn stepped(self) -> Result<Emulator, BuildError> {
        Emulator::stepped(self)
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let checks: [(&'static str, u64, bool, &'static str); 6] = [
            (
                "MQES",
                self.mqes.into(),
                (1..u16::MAX).contains(&self.mqes),
                "1 to 65534",
            ),
            ("DSTRD", self.dstrd.into(), self.dstrd <= 10, "0 to 10"),
            (
                "MPSMIN",
                self.mpsmin.into(),
                self.mpsmin <= self.mpsmax,
                "0 to MPSMAX",
            ),
            ("MPSMAX", self.mpsmax.into(), self.mpsmax <= 15, "0 to 15"),
            (
                "queues",
                self.queues.into(),
                (1..=4096).contains(&self.queues),
                "1 to 4096",
            ),
            (
                "the number of namespaces",
                self.namespaces.len() as u64,
                self.namespaces.len() <= 1024,
                "up to 1024",
            ),
        ];
        match checks.into_iter().find(|check| !check.2) {
            None => Ok(()),
            Some((setting, value, _, allowed)) => Err(BuildError::Setting {
                setting,
                value,
                allowed,
            }),
        }
    }
}
