//! What bring-up and shutdown do with devices that do not behave, in virtual time.
#![expect(
    unsafe_code,
    reason = "a doorbell window is memory that its maker vouches for"
)]

use super::{Controller, ControllerError, ControllerOptions};
use crate::clock::Clock;
use crate::memory::{DmaDomain, DmaTarget};
use crate::queue::fake::Map;
use crate::spec::registers::{self, Cc, Csts};
use crate::transport::{DoorbellWindow, Transport, TransportError};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a device misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Becomes ready and then answers no admin command.
    Silent,
    NeverReady,
    /// Reports a fatal error instead of becoming ready.
    Fatal,
    /// All registers read all ones from the moment that it is enabled.
    Vanishes,
    /// As `Silent`, and CSTS.RDY never clears again.
    NeverStops,
}

/// Registers without a controller behind them.
#[derive(Debug)]
struct Registers {
    fault: Fault,
    cap: u64,
    cc: AtomicU32,
    now_us: AtomicU64,
    doorbells: Arc<[AtomicU32; 2]>,
    map: Arc<Map>,
    /// The function reset and the last rung work.
    reset_works: bool,
    silence_works: bool,
    log: Mutex<Vec<&'static str>>,
}

/// MQES 63, TO 2 s, DSTRD 0, the NVM command set.
const CAP: u64 = 63 | 4 << 24 | 1 << 37;

impl Registers {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            cap: CAP,
            cc: AtomicU32::new(0),
            now_us: AtomicU64::new(0),
            doorbells: Arc::default(),
            map: Arc::default(),
            reset_works: false,
            silence_works: false,
            log: Mutex::default(),
        }
    }

    fn csts(&self) -> Csts {
        let enabled = Cc::from_bits(self.cc.load(Ordering::Relaxed)).en();
        let csts = Csts::new();
        match self.fault {
            Fault::NeverReady => csts,
            Fault::Fatal => csts.with_cfs(enabled),
            Fault::Silent => csts.with_rdy(enabled),
            Fault::NeverStops => csts.with_rdy(enabled || self.ever_enabled()),
            Fault::Vanishes if self.ever_enabled() => Csts::from_bits(u32::MAX),
            Fault::Vanishes => csts,
        }
    }

    fn ever_enabled(&self) -> bool {
        self.log.lock().unwrap().contains(&"enabled")
    }

    fn note(&self, what: &'static str) {
        self.log.lock().unwrap().push(what);
    }
}

/// The clock of a device: each pause takes at least ten microseconds.
#[derive(Debug)]
struct Ticks(Arc<Registers>);

impl Clock for Ticks {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.now_us.load(Ordering::Relaxed))
    }
    fn pause(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap().max(10);
        self.0.now_us.fetch_add(micros, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Fake(Arc<Registers>);

impl Transport for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn read32(&self, offset: usize) -> Result<u32, TransportError> {
        if self.0.fault == Fault::Vanishes && self.0.ever_enabled() {
            return Ok(u32::MAX);
        }
        Ok(match offset {
            registers::VS => 0x0002_0000,
            registers::CC => self.0.cc.load(Ordering::Relaxed),
            registers::CSTS => self.0.csts().into_bits(),
            _ => 0,
        })
    }
    fn read64(&self, offset: usize) -> Result<u64, TransportError> {
        assert_eq!(offset, registers::CAP);
        if self.0.fault == Fault::Vanishes && self.0.ever_enabled() {
            return Ok(u64::MAX);
        }
        Ok(self.0.cap)
    }
    fn write32(&self, offset: usize, value: u32) -> Result<(), TransportError> {
        if offset == registers::CC {
            self.0.cc.store(value, Ordering::Relaxed);
            self.0.note(if Cc::from_bits(value).en() {
                "enabled"
            } else {
                "disabled"
            });
        }
        Ok(())
    }
    fn write64(&self, _offset: usize, _value: u64) -> Result<(), TransportError> {
        Ok(())
    }
    fn doorbells(&self) -> DoorbellWindow {
        let base = NonNull::from(&self.0.doorbells[0]).cast();
        // SAFETY: the window's owner holds eight bytes of atomics.
        unsafe { DoorbellWindow::new(base, 8, Arc::clone(&self.0.doorbells) as _) }
    }
    fn dma(&self) -> Arc<dyn DmaTarget> {
        Arc::clone(&self.0.map) as _
    }
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Ticks(Arc::clone(&self.0)))
    }
    fn reset(&self) -> Result<(), TransportError> {
        self.0.note("reset");
        if self.0.reset_works {
            return Ok(());
        }
        Err(TransportError::Unsupported { what: "a reset" })
    }
    fn silence(&self) -> Result<(), TransportError> {
        self.0.note("silenced");
        if self.0.silence_works {
            return Ok(());
        }
        Err(TransportError::Unsupported { what: "silencing" })
    }
}

/// Attaches to a device that fails; gives the error, the domain, and how long it took.
fn attach(registers: Registers) -> (ControllerError, DmaDomain, Duration, Vec<&'static str>) {
    let registers = Arc::new(registers);
    let domain = DmaDomain::new();
    let transport = Arc::new(Fake(Arc::clone(&registers)));
    let options = ControllerOptions {
        admin_limit: Duration::from_secs(3),
        ready_limit_min: Duration::ZERO,
        ..ControllerOptions::default()
    };
    let error = Controller::attach(transport, &domain, &options).unwrap_err();
    let took = Duration::from_micros(registers.now_us.load(Ordering::Relaxed));
    let log = registers.log.lock().unwrap().clone();
    (error, domain, took, log)
}

/// A device that never becomes ready is given up at the deadline that it names itself, stopped, and
/// leaves nothing behind.
#[test]
fn a_device_that_is_never_ready_is_given_up_in_time() {
    let (error, domain, took, _) = attach(Registers::new(Fault::NeverReady));
    assert!(matches!(error, ControllerError::TimedOut { .. }), "{error}");
    // Two seconds to become ready, and as long again before it may be disabled.
    assert!((2000..4100).contains(&took.as_millis()), "{took:?}");
    assert_eq!(domain.stats().targets, 0);
    assert_eq!(domain.stats().parked_bytes, 0);
}

/// A fatal status ends the wait at once.
#[test]
fn a_fatal_status_ends_the_wait() {
    let (error, domain, took, log) = attach(Registers::new(Fault::Fatal));
    assert!(matches!(error, ControllerError::Fatal { .. }), "{error}");
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(log.last(), Some(&"disabled"));
    assert_eq!(domain.stats().parked_bytes, 0);
}

/// A device that vanishes is noticed in bounded time, and said to be gone.
#[test]
fn a_device_that_vanishes_is_noticed() {
    let (error, _, took, _) = attach(Registers::new(Fault::Vanishes));
    assert!(matches!(error, ControllerError::Gone { .. }), "{error}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// One that is not there at all is not waited for.
#[test]
fn a_device_that_is_not_there_is_not_waited_for() {
    for cap in [0, u64::MAX] {
        let (error, domain, took, _) = attach(Registers {
            cap,
            ..Registers::new(Fault::Silent)
        });
        assert!(matches!(error, ControllerError::Gone { .. }), "{error}");
        assert_eq!((took, domain.stats().targets), (Duration::ZERO, 0));
    }
}

/// An admin command that is not answered times out by name.
#[test]
fn an_unanswered_admin_command_times_out() {
    let (error, domain, took, log) = attach(Registers::new(Fault::Silent));
    assert!(error.to_string().contains("Identify Controller"), "{error}");
    assert!((3000..16_000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(log.last(), Some(&"disabled"));
    // It did stop when told to, so its memory is free again.
    assert_eq!(domain.stats().parked_bytes, 0);
    assert_eq!(domain.stats().targets, 0);
}

/// A device that does not stop is reset, then silenced; if neither works its memory is parked for ever.
#[test]
fn a_device_that_does_not_stop_keeps_its_memory() {
    let (_, domain, _, log) = attach(Registers::new(Fault::NeverStops));
    assert!(log.ends_with(&["reset", "silenced"]), "{log:?}");
    assert!(domain.stats().parked_bytes > 0);

    let silenced = Registers {
        silence_works: true,
        ..Registers::new(Fault::NeverStops)
    };
    let (_, domain, _, _) = attach(silenced);
    assert_eq!(domain.stats().parked_bytes, 0);
}

/// Capabilities that no driver can use are refused before anything is written to the device.
#[test]
fn capabilities_out_of_range_are_refused() {
    // No command set; MPSMIN above MPSMAX; doorbells beyond the window.
    for cap in [63 | 4 << 24, CAP | 1 << 48, CAP | 15 << 32] {
        let (error, domain, took, log) = attach(Registers {
            cap,
            ..Registers::new(Fault::Silent)
        });
        assert!(
            matches!(error, ControllerError::Unsupported { .. }),
            "{cap:#x}: {error}"
        );
        assert!(log.is_empty() && took.is_zero());
        assert_eq!(domain.stats().targets, 0);
    }
}
