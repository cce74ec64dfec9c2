//! The drive as a driver reaches it: registers, doorbells, DMA map, clock.
#![expect(unsafe_code, reason = "implements the unsafe trait of DMA targets")]

use crate::controller::doorbell_offset;
use crate::dma::Refusal;
use crate::emulator::{Machine, Shared};
use crate::raw::{HOST_PAGE, Span};
use driver::clock::Clock;
use driver::memory::{DmaTarget, DmaTargetError};
use driver::spec::registers::DOORBELLS;
use driver::transport::{DoorbellWindow, Transport, TransportError};
use std::io;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// The way to the software controller.
#[derive(Debug)]
pub(crate) struct EmulatorTransport {
    machine: Arc<Machine>,
    dma: Arc<EmulatorDma>,
    clock: Arc<dyn Clock>,
}

impl EmulatorTransport {
    pub(crate) fn new(machine: Arc<Machine>, clock: Arc<dyn Clock>) -> Self {
        let dma = Arc::new(EmulatorDma {
            shared: Arc::clone(&machine.shared),
        });
        Self {
            machine,
            dma,
            clock,
        }
    }

    fn shared(&self) -> &Shared {
        &self.machine.shared
    }

    fn check(&self, offset: usize, width: usize) -> Result<(), TransportError> {
        let len = DOORBELLS + self.shared().doorbells_len;
        let inside = offset.checked_add(width).is_some_and(|end| end <= len);
        if inside && offset.is_multiple_of(width) {
            Ok(())
        } else {
            Err(TransportError::OutOfRange { offset, len })
        }
    }

    fn write(&self, offset: usize, value: u32) {
        if let Some(doorbell) = doorbell_offset(offset) {
            if let Some(word) = self.shared().doorbells.word(doorbell) {
                word.store(value);
            }
            return;
        }
        self.shared()
            .control(|device| device.write32(offset, value));
        self.machine.wake();
    }
}

impl Transport for EmulatorTransport {
    fn name(&self) -> &str {
        "emu"
    }

    fn read32(&self, offset: usize) -> Result<u32, TransportError> {
        self.check(offset, 4)?;
        Ok(self.shared().registers.read32(offset))
    }

    fn read64(&self, offset: usize) -> Result<u64, TransportError> {
        self.check(offset, 8)?;
        let half = |offset| u64::from(self.shared().registers.read32(offset));
        Ok(half(offset) | half(offset + 4) << 32)
    }

    fn write32(&self, offset: usize, value: u32) -> Result<(), TransportError> {
        self.check(offset, 4)?;
        self.write(offset, value);
        Ok(())
    }

    fn write64(&self, offset: usize, value: u64) -> Result<(), TransportError> {
        self.check(offset, 8)?;
        let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
        self.write(offset, u32::from_le_bytes([a, b, c, d]));
        self.write(offset + 4, u32::from_le_bytes([e, f, g, h]));
        Ok(())
    }

    fn doorbells(&self) -> DoorbellWindow {
        self.shared()
            .doorbells
            .doorbell_window(self.shared().doorbells_len)
    }

    fn dma(&self) -> Arc<dyn DmaTarget> {
        Arc::clone(&self.dma) as _
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn reset(&self) -> Result<(), TransportError> {
        if self.shared().registers.is_gone() {
            return Err(TransportError::Gone);
        }
        self.shared().control(|device| device.reset_function());
        Ok(())
    }

    fn silence(&self) -> Result<(), TransportError> {
        self.shared().control(|device| device.silence());
        Ok(())
    }
}

/// The controller's view of memory.
#[derive(Debug)]
struct EmulatorDma {
    shared: Arc<Shared>,
}

// SAFETY: the device follows only spans from its map, and only while it holds its lock; `unmap`
// takes the same lock, so that once it has answered the device touches that memory no more.
unsafe impl DmaTarget for EmulatorDma {
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.shared.control(|device| device.dma.ranges().to_vec())
    }

    fn page_size(&self) -> u64 {
        HOST_PAGE as u64
    }

    fn mappings_left(&self) -> Option<u64> {
        self.shared.control(|device| device.dma.mappings_left())
    }

    fn isolates(&self) -> bool {
        // The device sees nothing but what is mapped, and unmapping is final at once.
        true
    }

    unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len: usize) -> Result<(), DmaTargetError> {
        let aligned = memory.addr().get().is_multiple_of(HOST_PAGE);
        if !aligned || !len.is_multiple_of(HOST_PAGE) || !iova.is_multiple_of(HOST_PAGE as u64) {
            let source = io::ErrorKind::InvalidInput.into();
            return Err(DmaTargetError::Os {
                what: "mapping",
                iova,
                len,
                source,
            });
        }
        // SAFETY: the caller keeps the memory valid until it has been unmapped.
        let span = unsafe { Span::new(memory, len) };
        let mapped = self.shared.control(|device| device.dma.insert(iova, span));
        mapped.map_err(|refusal| match refusal {
            Refusal::Quota => DmaTargetError::QuotaUsedUp { len },
            Refusal::Address | Refusal::NotMapped => DmaTargetError::AddressRefused { iova, len },
        })
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<(), DmaTargetError> {
        let removed = self.shared.control(|device| device.dma.remove(iova, len));
        removed.map_err(|_| DmaTargetError::UnmappedShort {
            iova,
            len,
            removed: 0,
        })
    }
}

/// Virtual time: it passes only while somebody waits, and the device works meanwhile.
#[derive(Debug)]
pub(crate) struct StepClock {
    shared: Arc<Shared>,
}

/// What a turn of a waiting loop takes.
const TICK: Duration = Duration::from_micros(1);

impl StepClock {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Clock for StepClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now_nanos())
    }

    fn pause(&self, duration: Duration) {
        self.shared.advance(duration.max(TICK));
    }
}
