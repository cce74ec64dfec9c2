//! The register file. Reads take no lock; only the controller, under its lock, changes it.

use crate::settings::Builder;
use driver::spec::registers::{
    ACQ, AQA, ASQ, CAP, CC, CRTO, CSTS, Cap, Cc, Crto, Csts, INTMC, INTMS, VS, Version,
};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Registers {
    cap: u64,
    vs: u32,
    crto: u32,
    cc: AtomicU32,
    csts: AtomicU32,
    aqa: AtomicU32,
    asq: AtomicU64,
    acq: AtomicU64,
    interrupt_mask: AtomicU32,
    gone: AtomicBool,
}

/// The version that the controller implements.
pub(crate) const VERSION: Version = Version::new().with_major(1).with_minor(4);
/// ASQ and ACQ: the low twelve bits are reserved.
const BASE_MASK: u64 = !0xfff;

impl Registers {
    pub(crate) fn new(settings: &Builder) -> Self {
        let cap = Cap::new()
            .with_mqes(settings.mqes)
            .with_cqr(true)
            .with_to(settings.cap_timeout)
            .with_dstrd(settings.dstrd)
            .with_css_nvm(true)
            .with_mpsmin(settings.mpsmin)
            .with_mpsmax(settings.mpsmax)
            .with_crwms(settings.crwmt.is_some());
        Self {
            cap: cap.into(),
            vs: VERSION.into(),
            crto: Crto::new().with_crwmt(settings.crwmt.unwrap_or(0)).into(),
            cc: AtomicU32::new(0),
            csts: AtomicU32::new(0),
            aqa: AtomicU32::new(0),
            asq: AtomicU64::new(0),
            acq: AtomicU64::new(0),
            interrupt_mask: AtomicU32::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// The 32 bits at `offset`, a multiple of four. What is not there reads as zero.
    pub(crate) fn read32(&self, offset: usize) -> u32 {
        if self.gone.load(Ordering::Acquire) {
            return u32::MAX;
        }
        match offset {
            VS => self.vs,
            INTMS | INTMC => self.interrupt_mask.load(Ordering::Acquire),
            CC => self.cc.load(Ordering::Acquire),
            CSTS => self.csts.load(Ordering::Acquire),
            AQA => self.aqa.load(Ordering::Acquire),
            CRTO => self.crto,
            _ => {
                let word = match offset & !7 {
                    CAP => self.cap,
                    ASQ => self.asq(),
                    ACQ => self.acq(),
                    _ => 0,
                };
                half(word, offset & 4 != 0)
            }
        }
    }

    /// Writes a register that only keeps its value.
    pub(crate) fn write_plain(&self, offset: usize, value: u32) {
        let set = |register: &AtomicU64, high: bool| {
            let old = register.load(Ordering::Relaxed);
            let value = u64::from(value);
            let new = if high {
                value << 32 | old & 0xffff_ffff
            } else {
                value | old >> 32 << 32
            };
            register.store(new & BASE_MASK, Ordering::Release);
        };
        match offset {
            AQA => self.aqa.store(value & 0x0fff_0fff, Ordering::Release),
            INTMS => _ = self.interrupt_mask.fetch_or(value, Ordering::AcqRel),
            INTMC => _ = self.interrupt_mask.fetch_and(!value, Ordering::AcqRel),
            _ if offset & !7 == ASQ => set(&self.asq, offset & 4 != 0),
            _ if offset & !7 == ACQ => set(&self.acq, offset & 4 != 0),
            _ => {}
        }
    }

    pub(crate) fn cap(&self) -> Cap {
        self.cap.into()
    }

    pub(crate) fn cc(&self) -> Cc {
        self.cc.load(Ordering::Acquire).into()
    }

    pub(crate) fn set_cc(&self, cc: Cc) {
        self.cc.store(cc.into(), Ordering::Release);
    }

    pub(crate) fn csts(&self) -> Csts {
        self.csts.load(Ordering::Acquire).into()
    }

    pub(crate) fn set_csts(&self, csts: Csts) {
        self.csts.store(csts.into(), Ordering::Release);
    }

    pub(crate) fn aqa(&self) -> u32 {
        self.aqa.load(Ordering::Acquire)
    }

    pub(crate) fn asq(&self) -> u64 {
        self.asq.load(Ordering::Acquire)
    }

    pub(crate) fn acq(&self) -> u64 {
        self.acq.load(Ordering::Acquire)
    }

    /// All that a host has set goes back to what it is after power-on.
    pub(crate) fn clear(&self) {
        for register in [&self.cc, &self.csts, &self.aqa, &self.interrupt_mask] {
            register.store(0, Ordering::Release);
        }
        self.asq.store(0, Ordering::Release);
        self.acq.store(0, Ordering::Release);
    }

    /// From now on all registers read as all ones.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

fn half(word: u64, high: bool) -> u32 {
    let bits = if high { word >> 32 } else { word & 0xffff_ffff };
    u32::try_from(bits).unwrap_or(u32::MAX)
}
