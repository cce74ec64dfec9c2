//! The device side of one queue pair, driven by hand: for the tests of this crate.
#![expect(
    unsafe_code,
    reason = "a device reads and writes memory that it was given by address"
)]

use super::{ControllerId, Core, CoreSetup, QueueSize};
use crate::memory::{Attachment, DmaDomain, DmaTarget, DmaTargetError};
use crate::spec::{Cqe, Sqe, Status};
use crate::transport::DoorbellWindow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// An IOMMU that notes what is mapped.
#[derive(Debug, Default)]
pub(crate) struct Map(Mutex<BTreeMap<u64, (usize, usize)>>);

// SAFETY: the only device behind it is `Device`, which goes through `Map::at`.
unsafe impl DmaTarget for Map {
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        vec![0x10_0000..=u64::from(u32::MAX)]
    }
    fn page_size(&self) -> u64 {
        4096
    }
    fn mappings_left(&self) -> Option<u64> {
        None
    }
    fn isolates(&self) -> bool {
        true
    }
    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaTargetError> {
        self.0
            .lock()
            .unwrap()
            .insert(iova, (memory.as_ptr().expose_provenance(), len));
        Ok(())
    }
    fn unmap(&self, iova: u64, _len: usize) -> Result<(), DmaTargetError> {
        self.0.lock().unwrap().remove(&iova);
        Ok(())
    }
}

impl Map {
    /// The memory at `iova`.
    fn at<E>(&self, iova: u64) -> *mut E {
        let map = self.0.lock().unwrap();
        let (start, (memory, len)) = map.range(..=iova).next_back().unwrap();
        let offset = usize::try_from(iova - start).unwrap();
        assert!(offset + size_of::<E>() <= *len);
        std::ptr::with_exposed_provenance_mut(memory + offset)
    }
}

/// A queue pair's device side.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) domain: DmaDomain,
    map: Arc<Map>,
    _attachment: Attachment,
    doorbells: Arc<[AtomicU32; 2]>,
    size: u32,
    sq: u64,
    cq: u64,
    head: u32,
    tail: u32,
    phase: bool,
}

impl Device {
    /// A device, and the host side of a queue pair of `entries` entries on it.
    pub(super) fn new<T>(entries: u32, max_transfer: u32) -> (Self, Core<T>) {
        let domain = DmaDomain::new();
        let map = Arc::new(Map::default());
        let attachment = domain.attach(Arc::clone(&map) as _).unwrap();
        let doorbells: Arc<[AtomicU32; 2]> = Arc::default();
        let base = NonNull::from(&doorbells[0]).cast();
        // SAFETY: the window's owner holds eight bytes of atomics.
        let window = unsafe { DoorbellWindow::new(base, 8, Arc::clone(&doorbells) as _) };
        let core = Core::new(CoreSetup {
            domain: &domain,
            controller: ControllerId(1),
            size: QueueSize::for_commands(u16::try_from(entries - 1).unwrap(), entries).unwrap(),
            page_shift: 12,
            max_transfer,
            sq_doorbell: window.doorbell(0).unwrap(),
            cq_doorbell: window.doorbell(4).unwrap(),
        })
        .unwrap();
        let (sq, cq) = (core.sq_iova(), core.cq_iova());
        let device = Self {
            domain,
            map,
            _attachment: attachment,
            doorbells,
            size: entries,
            sq,
            cq,
            head: 0,
            tail: 0,
            phase: true,
        };
        (device, core)
    }

    /// Fetches every command that the doorbell has announced.
    pub(super) fn fetch(&mut self) -> Vec<Sqe> {
        let tail = self.doorbells[0].load(Ordering::Acquire);
        let mut commands = Vec::new();
        while self.head != tail {
            let at: *mut Sqe = self.map.at(self.sq + u64::from(self.head) * 64);
            // SAFETY: inside the ring, which the host does not write while it is announced.
            commands.push(unsafe { at.read_volatile() });
            self.head = (self.head + 1) % self.size;
        }
        commands
    }

    /// Posts a completion for whatever identifier.
    pub(super) fn complete(&mut self, cid: u16, status: Status) {
        let cqe = Cqe {
            cid,
            result: u32::from(cid),
            ..Cqe::default()
        };
        let cqe = cqe.with_status(status, self.phase);
        let at: *mut Cqe = self.map.at(self.cq + u64::from(self.tail) * 16);
        // SAFETY: inside the ring, at an entry that the host has given back.
        unsafe { at.write_volatile(cqe) };
        self.tail = (self.tail + 1) % self.size;
        self.phase ^= self.tail == 0;
    }

    /// The completion queue head that the host last announced.
    pub(super) fn announced_head(&self) -> u32 {
        self.doorbells[1].load(Ordering::Acquire)
    }

    /// The completion queue tail.
    pub(super) fn tail(&self) -> u32 {
        self.tail
    }
}
