//! From power-on to shutdown, and what goes wrong between.

use super::host::Host;
use crate::{Emulator, Namespace, Timing};
use driver::spec::command::{flush, identify};
use driver::spec::identify::Cns;
use driver::spec::registers::*;
use driver::transport::TransportError;
use std::time::Duration;

const CC_IO: Cc = Cc::new().with_iosqes(6).with_iocqes(4);

/// The capabilities are what the settings say.
#[test]
fn capabilities_are_settings() {
    let builder = Emulator::builder()
        .mqes(7)
        .doorbell_stride(2)
        .page_sizes(1, 3)
        .cap_timeout(9)
        .ready_timeout(77);
    let transport = builder.stepped().unwrap().transport();
    let cap = Cap::from(transport.read64(CAP).unwrap());
    assert_eq!((cap.mqes(), cap.dstrd(), cap.to()), (7, 2, 9));
    assert_eq!((cap.mpsmin(), cap.mpsmax()), (1, 3));
    assert!(cap.cqr() && cap.css_nvm() && cap.crwms() && !cap.crims());
    assert_eq!(Crto::from(transport.read32(CRTO).unwrap()).crwmt(), 77);
    assert_eq!(
        Version::from(transport.read32(VS).unwrap()).to_string(),
        "1.4.0"
    );
    assert_eq!(
        transport.read32(CAP + 4).unwrap(),
        (u64::from(cap) >> 32) as u32
    );
}

/// Registers outside the window or misaligned are refused; unknown ones read as zero.
#[test]
fn register_accesses_are_checked() {
    let transport = Emulator::builder().stepped().unwrap().transport();
    let end = DOORBELLS + transport.doorbells().len();
    for offset in [end, end + 4, usize::MAX - 3, 2] {
        let outside = |error| matches!(error, TransportError::OutOfRange { .. });
        assert!(transport.read32(offset).is_err_and(outside), "{offset:#x}");
        assert!(
            transport.write32(offset, 1).is_err_and(outside),
            "{offset:#x}"
        );
    }
    assert!(transport.read64(0x2c).is_err());
    assert_eq!(transport.read32(0xe00).unwrap(), 0);
    transport.write32(INTMS, 0b110).unwrap();
    transport.write32(INTMC, 0b010).unwrap();
    assert_eq!(transport.read32(INTMS).unwrap(), 0b100);
    transport.write32(AQA, u32::MAX).unwrap();
    assert_eq!(transport.read32(AQA).unwrap(), 0x0fff_0fff);
    transport.write64(ASQ, 0x1234_5678_9abc_defb).unwrap();
    assert_eq!(transport.read64(ASQ).unwrap(), 0x1234_5678_9abc_d000);
}

/// Ready follows enable after the delay and not before; ready goes with enable.
#[test]
fn ready_takes_its_time() {
    let delay = Duration::from_millis(300);
    let mut host = Host::off(Emulator::builder().ready_delay(delay).stepped().unwrap());
    host.enable_with(4, CC_IO);
    host.emu.advance(Duration::from_millis(299));
    assert!(!host.csts().rdy());
    let clock = host.transport.clock();
    let before = clock.now();
    clock.pause(Duration::from_millis(2));
    assert_eq!(clock.now() - before, Duration::from_millis(2));
    assert!(host.csts().rdy());
    host.transport.write32(CC, CC_IO.into()).unwrap();
    assert_eq!(u32::from(host.csts()), 0);
    // Disabled before it was ready, it never gets ready.
    host.enable_with(4, CC_IO);
    host.transport.write32(CC, CC_IO.into()).unwrap();
    host.emu.advance(delay * 2);
    assert!(!host.csts().rdy());
}

/// Configurations that cannot work end in a fatal status, which a reset clears.
#[test]
fn impossible_configurations_are_fatal() {
    let mut host = Host::off(Emulator::builder().page_sizes(1, 2).stepped().unwrap());
    let good = CC_IO.with_mps(1);
    for bad in [
        good.with_mps(0),
        good.with_mps(3),
        good.with_css(7),
        good.with_ams(1),
    ] {
        host.enable_with(4, bad);
        assert!(host.csts().cfs() && !host.csts().rdy(), "{bad:?}");
        host.transport.write32(CC, 0).unwrap();
        assert!(!host.csts().cfs());
    }
    for (aqa, asq) in [
        (0x0003_0000, 0x10_0000),
        (3, 0x10_0000),
        (0x0003_0003, 0x10_1000),
    ] {
        host.transport.write32(AQA, aqa).unwrap();
        host.transport.write64(ASQ, asq).unwrap();
        host.transport
            .write32(CC, good.with_en(true).into())
            .unwrap();
        assert!(host.csts().cfs(), "{aqa:#x} {asq:#x}");
        host.transport.write32(CC, 0).unwrap();
    }
    host.enable_with(4, good);
    assert!(host.csts().rdy() && !host.csts().cfs());
}

/// Admin queues in memory that is not mapped are a fatal error once they are used, not before.
#[test]
fn rings_outside_of_mapped_memory_are_fatal() {
    for (register, counts) in [(ASQ, 0), (ACQ, 1)] {
        let mut host = Host::off(Emulator::builder().stepped().unwrap());
        host.enable_with(4, CC_IO);
        host.transport.write32(CC, 0).unwrap();
        host.transport.write64(register, 0x8000_0000).unwrap();
        host.transport
            .write32(CC, CC_IO.with_en(true).into())
            .unwrap();
        host.emu.step();
        assert!(host.csts().rdy() && !host.csts().cfs());
        host.push(0, flush(0));
        host.ring(0);
        host.emu.step();
        assert!(host.csts().cfs());
        assert_eq!(host.emu.stats().errors, counts, "commands executed");
    }
}

/// A normal shutdown takes its time, keeps what was cached, and ends all processing.
#[test]
fn shutdown_secures_the_cache() {
    let delay = Duration::from_millis(50);
    for seed in 0..16 {
        let builder = Emulator::builder().namespace(Namespace::ram(1 << 20));
        let mut host = Host::with_io(builder.shutdown_delay(delay));
        host.emu
            .with_media(1, |media| media.write(3, &[9; 512], false))
            .unwrap()
            .unwrap();
        let cc = CC_IO.with_en(true).with_shn(Cc::SHN_NORMAL);
        host.transport.write32(CC, cc.into()).unwrap();
        assert_eq!(host.csts().shst(), Csts::SHST_OCCURRING);
        host.emu.advance(delay);
        assert_eq!(host.csts().shst(), Csts::SHST_COMPLETE);
        host.push(1, flush(1));
        host.ring(1);
        host.emu.step();
        assert!(host.reap(1).is_none());
        assert_eq!(host.emu.power_cut(seed).unwrap().at_risk, 0);
        let mut block = [0; 512];
        host.emu
            .with_media(1, |media| media.read(3, &mut block))
            .unwrap()
            .unwrap();
        assert_eq!((block, host.emu.stats().shutdowns), ([9; 512], 1));
    }
}

/// After a controller reset queues are gone, and the controller works again.
#[test]
fn a_reset_forgets_queues() {
    let mut host = Host::with_io(Emulator::builder());
    host.io_ok(flush(1));
    host.push(1, flush(1));
    host.ring(1);
    host.transport.write32(CC, CC_IO.into()).unwrap();
    host.emu.step();
    host.enable(8);
    host.create_pair(1, 4);
    host.io_ok(flush(1));
    assert_eq!(host.emu.stats().enables, 2);
}

/// A reset ends what was slow without a completion, and the drive's pace begins anew.
#[test]
fn a_reset_ends_slow_commands() {
    let timing = Timing {
        write: Duration::from_micros(5),
        iops: Some(1),
        ..Timing::default()
    };
    let mut host = Host::with_io(Emulator::builder().timing(timing));
    for _ in 0..3 {
        host.push(1, flush(1));
    }
    host.ring(1);
    host.emu.step();
    host.transport.write32(CC, CC_IO.into()).unwrap();
    host.enable(8);
    host.create_pair(1, 4);
    host.emu.step();
    let cid = host.push(1, flush(1));
    host.ring(1);
    host.emu.advance(Duration::from_micros(5));
    assert_eq!(host.reap(1).map(|cqe| cqe.cid), Some(cid));
    host.emu.advance(Duration::from_secs(5));
    assert!(host.reap(1).is_none());
}

/// A function reset and a power cut leave registers as after power-on; mappings stay.
#[test]
fn a_function_reset_clears_registers() {
    let mut host = Host::with_io(Emulator::builder());
    for round in 0..2 {
        match round {
            0 => host.transport.reset().unwrap(),
            _ => drop(host.emu.power_cut(0).unwrap()),
        }
        for register in [CC, CSTS, AQA, ASQ, ASQ + 4, ACQ] {
            assert_eq!(host.transport.read32(register).unwrap(), 0, "{register:#x}");
        }
        host.enable(16);
        host.create_pair(1, 4);
        host.io_ok(flush(1));
    }
}

/// A silenced function touches no memory, whatever is asked of it, for good.
#[test]
fn silence_is_final() {
    let mut host = Host::with_io(Emulator::builder());
    host.transport.silence().unwrap();
    host.push(1, flush(1));
    host.ring(1);
    host.emu.step();
    assert!(host.reap(1).is_none());
    host.transport.write32(CC, 0).unwrap();
    host.enable_with(4, CC_IO);
    host.push(0, identify(Cns::CONTROLLER, 0));
    host.ring(0);
    host.emu.step();
    assert!(host.reap(0).is_none());
}

/// A drive that was pulled out reads as all ones, takes writes without effect and cannot be reset.
#[test]
fn an_unplugged_drive_is_gone() {
    let host = Host::with_io(Emulator::builder());
    host.emu.unplug();
    assert_eq!(host.transport.read32(CSTS).unwrap(), Csts::GONE);
    assert_eq!(host.transport.read64(CAP).unwrap(), u64::MAX);
    host.transport.write32(CC, 1).unwrap();
    assert!(matches!(host.transport.reset(), Err(TransportError::Gone)));
    assert_eq!(host.transport.read32(CC).unwrap(), u32::MAX);
}

/// Settings that NVMe cannot express are refused by name.
#[test]
fn impossible_settings_are_refused() {
    let text = |builder: crate::Builder| builder.stepped().unwrap_err().to_string();
    assert!(text(Emulator::builder().mqes(0)).contains("MQES"));
    assert!(text(Emulator::builder().queues(0)).contains("queues"));
    assert!(text(Emulator::builder().page_sizes(3, 2)).contains("MPSMIN"));
    let odd = Namespace::ram(1 << 20).block_size(520);
    assert!(text(Emulator::builder().namespace(odd)).contains("namespace 1"));
    let missing = Namespace::file("/nonexistent/disk", None);
    assert!(text(Emulator::builder().namespace(missing)).contains("namespace 1"));
}
