//! Admin commands, each with what can be wrong about it.

use super::host::{BASE, Host};
use crate::{Emulator, Namespace, Timing};
use driver::spec::command::*;
use driver::spec::feature::{FeatureId, QueueCounts, Select};
use driver::spec::identify::{
    Cns, IdentifyController, IdentifyNamespace, NSID_ALL, NamespaceId, NamespaceList, namespace_ids,
};
use driver::spec::log::{AsyncEvent, ErrorEntry, FirmwareSlotLog, LogId, SmartLog};
use driver::spec::opcode::{AdminOpcode, IoOpcode};
use driver::spec::registers::{CC, Cc};
use driver::spec::{Sqe, Status};
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;
use zerocopy::FromBytes;

const ENTRIES: NonZeroU16 = NonZeroU16::new(4).unwrap();

fn dwords(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn log(id: LogId, count: u32) -> Sqe {
    get_log_page(id, NSID_ALL, dwords(count), 0)
}

/// Identify tells what was set: of the controller, of each namespace, and of those that there are
/// not.
#[test]
fn identify_tells_the_settings() {
    let builder = Emulator::builder()
        .serial("SER 7")
        .mdts(5)
        .shutdown_delay(Duration::from_millis(3))
        .namespace(Namespace::ram(1 << 20))
        .namespace(
            Namespace::null(1 << 30)
                .block_size(4096)
                .optimal_boundary(32),
        );
    let mut host = Host::new(builder);
    let data = host.fetch(identify(Cns::CONTROLLER, 0));
    let id = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!(
        (id.serial().as_str(), id.mdts, id.nn.get()),
        ("SER 7", 5, 2)
    );
    assert_eq!(
        (id.sqes, id.cqes, id.rtd3e_us.get(), id.vwc),
        (0x66, 0x44, 3000, 7)
    );
    assert_eq!(id.tnvmcap.get(), (1 << 20) + (1 << 30));
    let data = host.fetch(identify(Cns::NAMESPACE, 1));
    let first = IdentifyNamespace::ref_from_bytes(&data).unwrap();
    assert_eq!(
        (first.nsze.get(), first.ncap.get(), first.nuse.get()),
        (2048, 2048, 0)
    );
    assert_eq!(first.format().unwrap().lbads, 9);
    let data = host.fetch(identify(Cns::NAMESPACE, 2));
    let second = IdentifyNamespace::ref_from_bytes(&data).unwrap();
    assert_eq!((second.nsze.get(), second.noiob.get()), (1 << 18, 32));
    assert_eq!(second.format().unwrap().lbads, 12);
    let data = host.fetch(identify(Cns::ACTIVE_NAMESPACES, 0));
    let list = NamespaceList::ref_from_bytes(&data).unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2]);
    let data = host.fetch(identify(Cns::ACTIVE_NAMESPACES, 1));
    assert!(NamespaceList::ref_from_bytes(&data).unwrap().iter().eq([2]));
    let data = host.fetch(identify(Cns::NAMESPACE_DESCRIPTORS, 2));
    let ids: Vec<_> = namespace_ids(&data).collect();
    assert!(matches!(ids[0], NamespaceId::Eui64(id) if id[7] == 2));
    assert!(matches!(ids[2], NamespaceId::Uuid(_)));
    assert_eq!((ids.len(), ids[3]), (4, NamespaceId::CommandSet(0)));
}

/// Identify of what there is not fails as the specification says, and moves no data.
#[test]
fn identify_refuses() {
    let mut host = Host::new(Emulator::builder());
    for nsid in [0, 2, NSID_ALL] {
        host.admin_fails(identify(Cns::NAMESPACE, nsid), Status::INVALID_NAMESPACE);
        host.admin_fails(
            identify(Cns::NAMESPACE_DESCRIPTORS, nsid),
            Status::INVALID_NAMESPACE,
        );
    }
    host.admin_fails(
        identify(Cns::ACTIVE_NAMESPACES, NSID_ALL),
        Status::INVALID_NAMESPACE,
    );
    host.admin_fails(identify(Cns(0xee), 0), Status::INVALID_FIELD);
    let id = identify(Cns::CONTROLLER, 0);
    host.admin_fails(id.with_prps(0, 0), Status::DATA_TRANSFER_ERROR);
    host.admin_fails(id.with_prps(BASE + 2, 0), Status::PRP_OFFSET_INVALID);
}

/// Unknown opcodes, SGLs and fused commands are refused.
#[test]
fn unknown_commands_are_refused() {
    let mut host = Host::new(Emulator::builder());
    for opcode in [
        AdminOpcode::FORMAT_NVM.0,
        AdminOpcode::KEEP_ALIVE.0,
        0xc0,
        0xff,
    ] {
        host.admin_fails(
            Sqe {
                opcode,
                ..Sqe::default()
            },
            Status::INVALID_OPCODE,
        );
    }
    for flags in [0x01, 0x40, 0x80] {
        let sqe = Sqe {
            flags,
            ..identify(Cns::CONTROLLER, 0)
        };
        host.admin_fails(sqe, Status::INVALID_FIELD);
    }
}

/// Every way in which a queue cannot be created or deleted has its status.
#[test]
fn queues_are_checked() {
    let mut host = Host::new(Emulator::builder().queues(4).mqes(63));
    let base = BASE + host.alloc(1 << 16) as u64;
    let big = NonZeroU16::new(65).unwrap();
    let one = NonZeroU16::new(1).unwrap();
    for create in [create_io_cq as fn(_, _, _) -> _, |q, e, b| {
        create_io_sq(q, e, b, 1)
    }] {
        for qid in [0, 5, u16::MAX] {
            host.admin_fails(create(qid, ENTRIES, base), Status::INVALID_QUEUE_ID);
        }
        host.admin_fails(create(1, big, base), Status::INVALID_QUEUE_SIZE);
        host.admin_fails(create(1, one, base), Status::INVALID_QUEUE_SIZE);
        host.admin_fails(create(1, ENTRIES, base + 64), Status::PRP_OFFSET_INVALID);
        let scattered = Sqe {
            cdw11: 1 << 16,
            ..create(1, ENTRIES, base)
        };
        host.admin_fails(scattered, Status::INVALID_FIELD);
    }
    let vector = Sqe {
        cdw11: 9 << 16 | 3,
        ..create_io_cq(1, ENTRIES, base)
    };
    host.admin_fails(vector, Status::INVALID_INTERRUPT_VECTOR);
    host.admin_fails(create_io_sq(1, ENTRIES, base, 1), Status::CQ_INVALID);
    host.admin_fails(create_io_sq(1, ENTRIES, base, 0), Status::INVALID_QUEUE_ID);
    host.admin_fails(create_io_sq(1, ENTRIES, base, 5), Status::INVALID_QUEUE_ID);
    host.admin_ok(create_io_cq(1, ENTRIES, base));
    host.admin_fails(create_io_cq(1, ENTRIES, base), Status::INVALID_QUEUE_ID);
    host.admin_ok(create_io_sq(2, ENTRIES, base, 1));
    host.admin_fails(create_io_sq(2, ENTRIES, base, 1), Status::INVALID_QUEUE_ID);
    host.admin_fails(delete_io_cq(1), Status::INVALID_QUEUE_DELETION);
    for qid in [0, 1, 9] {
        host.admin_fails(delete_io_sq(qid), Status::INVALID_QUEUE_ID);
    }
    host.admin_ok(delete_io_sq(2));
    host.admin_ok(delete_io_cq(1));
    for qid in [0, 1, u16::MAX] {
        host.admin_fails(delete_io_cq(qid), Status::INVALID_QUEUE_ID);
    }
}

/// I/O queues need the entry sizes to be set.
#[test]
fn entry_sizes_must_be_set() {
    let mut host = Host::off(Emulator::builder().stepped().unwrap());
    host.enable_with(8, Cc::new());
    let base = BASE + host.alloc(4096) as u64;
    host.admin_fails(create_io_cq(1, ENTRIES, base), Status::INVALID_QUEUE_SIZE);
}

/// The queue grant is the drive's own, asked for before the first queue only.
#[test]
fn number_of_queues() {
    let mut host = Host::new(Emulator::builder().queues(3));
    let granted = QueueCounts::from(host.admin_ok(set_queue_count(NonZeroU16::MAX.min(ENTRIES))));
    assert_eq!((granted.submission(), granted.completion()), (2, 2));
    let current = get_features(FeatureId::NUMBER_OF_QUEUES, Select::CURRENT);
    assert_eq!(host.admin_ok(current), granted.into_bits());
    let all = set_features(FeatureId::NUMBER_OF_QUEUES, 0xffff_0000);
    host.admin_fails(all, Status::INVALID_FIELD);
    let base = BASE + host.alloc(4096) as u64;
    host.admin_ok(create_io_cq(1, ENTRIES, base));
    host.admin_fails(set_queue_count(ENTRIES), Status::COMMAND_SEQUENCE);
}

/// Features keep what is set until the next reset; what cannot be set has its status.
#[test]
fn features_keep_and_refuse() {
    let mut host = Host::new(Emulator::builder());
    let get = |feature, select| get_features(feature, select);
    let simple = [
        FeatureId::ARBITRATION,
        FeatureId::ERROR_RECOVERY,
        FeatureId::INTERRUPT_COALESCING,
        FeatureId::INTERRUPT_VECTOR_CONFIGURATION,
        FeatureId::WRITE_ATOMICITY_NORMAL,
        FeatureId::ASYNC_EVENT_CONFIGURATION,
    ];
    for feature in simple {
        let default = host.admin_ok(get(feature, Select::DEFAULT));
        host.admin_ok(set_features(feature, 0x101));
        assert_eq!(host.admin_ok(get(feature, Select::CURRENT)), 0x101);
        assert_eq!(host.admin_ok(get(feature, Select::SAVED)), default);
        assert_eq!(host.admin_ok(get(feature, Select::SUPPORTED)), 4);
        host.admin_fails(get(feature, Select(5)), Status::INVALID_FIELD);
        let saved = set_features(feature, 1);
        let saved = Sqe {
            cdw10: saved.cdw10 | FEATURE_SAVE,
            ..saved
        };
        host.admin_fails(saved, Status::FEATURE_NOT_SAVEABLE);
        let scoped = Sqe {
            nsid: 1,
            ..set_features(feature, 1)
        };
        host.admin_fails(scoped, Status::FEATURE_NOT_NAMESPACE);
    }
    host.admin_fails(get(FeatureId(0xc0), Select::CURRENT), Status::INVALID_FIELD);
    host.admin_fails(set_features(FeatureId::TIMESTAMP, 1), Status::INVALID_FIELD);
    host.admin_fails(
        set_features(FeatureId::POWER_MANAGEMENT, 1),
        Status::INVALID_FIELD,
    );
    // A sensor that there is not.
    let sensor = set_features(FeatureId::TEMPERATURE_THRESHOLD, 3 << 16 | 400);
    host.admin_fails(sensor, Status::INVALID_FIELD);
    host.transport.write32(CC, 0).unwrap();
    host.enable(16);
    assert_eq!(
        host.admin_ok(get(FeatureId::ARBITRATION, Select::CURRENT)),
        7
    );
}

/// The write cache can be turned off and is back after a reset; a drive without one has no such
/// feature.
#[test]
fn the_write_cache_is_a_feature() {
    let mut host = Host::new(Emulator::builder());
    let get = get_features(FeatureId::VOLATILE_WRITE_CACHE, Select::CURRENT);
    assert_eq!(host.admin_ok(get), 1);
    host.admin_ok(set_write_cache(false));
    assert_eq!(host.admin_ok(get), 0);
    let at_risk = |host: &Host| {
        host.emu
            .with_media(1, |media| media.write(0, &[1; 512], false))
            .unwrap()
            .unwrap();
        host.emu.power_cut(3).unwrap().at_risk
    };
    assert_eq!(at_risk(&host), 0);
    assert_eq!(at_risk(&host), 1, "on again after the reset");
    let mut without = Host::new(Emulator::builder().write_cache(None));
    without.admin_fails(get, Status::INVALID_FIELD);
    let data = without.fetch(identify(Cns::CONTROLLER, 0));
    assert!(
        !IdentifyController::ref_from_bytes(&data)
            .unwrap()
            .has_volatile_cache()
    );
}

/// The error log holds what failed, newest first, and the SMART log counts.
#[test]
fn logs_tell_what_happened() {
    let mut host = Host::with_io(Emulator::builder());
    let at = host.alloc(4096);
    let (prp1, _) = Host::prps(at, 512);
    host.io_ok(write(1, 7, BlockCount::ONE, false).with_prps(prp1, 0));
    host.io_ok(read(1, 7, BlockCount::ONE).with_prps(prp1, 0));
    host.io_fails(read(1, 1 << 40, BlockCount::ONE), Status::LBA_OUT_OF_RANGE);
    host.admin_fails(identify(Cns::NAMESPACE, 9), Status::INVALID_NAMESPACE);
    let page = host.fetch(log(LogId::ERROR, 1024));
    let entry = |at: usize| ErrorEntry::read_from_bytes(&page[at * 64..][..64]).unwrap();
    assert_eq!(
        (
            entry(0).error_count.get(),
            entry(0).sqid.get(),
            entry(0).nsid.get()
        ),
        (2, 0, 9)
    );
    assert_eq!((entry(1).sqid.get(), entry(1).lba.get()), (1, 1 << 40));
    assert_eq!(
        Status::from_bits(entry(1).status.get() >> 1).code(),
        Status::LBA_OUT_OF_RANGE
    );
    assert_eq!(entry(2).error_count.get(), 0);
    let page = host.fetch(log(LogId::SMART, 128));
    let (smart, _) = SmartLog::ref_from_prefix(&page).unwrap();
    assert_eq!(smart.composite_celsius(), Some(37));
    assert_eq!(
        (
            smart.host_read_commands.get(),
            smart.host_write_commands.get()
        ),
        (2, 1)
    );
    assert_eq!(
        (smart.data_units_read.get(), smart.error_log_entries.get()),
        (1, 2)
    );
    // The upper half of the temperature, by an offset into the page.
    let rest = host.fetch(get_log_page(LogId::SMART, 0, dwords(1), 4));
    assert_eq!(rest[..4], page[4..8]);
    let page = host.fetch(log(LogId::FIRMWARE_SLOT, 128));
    let (slots, _) = FirmwareSlotLog::ref_from_prefix(&page).unwrap();
    assert_eq!((slots.afi, &slots.revisions[0]), (1, b"0.1.0   "));
}

/// Log pages that there are not, at offsets that there are not, or too long, are refused.
#[test]
fn log_pages_are_checked() {
    let mut host = Host::new(Emulator::builder().mdts(1));
    host.admin_fails(log(LogId(0xc0), 1), Status::INVALID_LOG_PAGE);
    host.admin_fails(
        get_log_page(LogId::SMART, 1, dwords(1), 0),
        Status::INVALID_FIELD,
    );
    for offset in [2, 516, u64::MAX - 3] {
        let page = get_log_page(LogId::SMART, 0, dwords(1), offset);
        host.admin_fails(page, Status::INVALID_FIELD);
    }
    host.admin_fails(log(LogId::SMART, 2049), Status::INVALID_FIELD);
}

/// Event requests are held up to the limit, told once a type until the log has been read, and
/// aborted.
#[test]
fn events_are_held_and_told() {
    let mut host = Host::new(Emulator::builder());
    let held: Vec<_> = (0..4)
        .map(|_| host.push(0, async_event_request()))
        .collect();
    host.ring(0);
    host.emu.step();
    assert!(host.reap(0).is_none());
    host.admin_fails(async_event_request(), Status::ASYNC_EVENT_LIMIT);
    host.emu.set_temperature(400);
    host.emu.step();
    assert!(host.reap(0).is_none(), "not asked for");
    host.emu.set_temperature(300);
    host.admin_ok(set_features(FeatureId::ASYNC_EVENT_CONFIGURATION, 2));
    host.emu.set_temperature(400);
    host.emu.set_temperature(401);
    host.emu.step();
    let told = host.reap(0).unwrap();
    let event = AsyncEvent::from(told.result);
    assert_eq!(
        (told.cid, event.event_type()),
        (held[0], AsyncEvent::TYPE_SMART)
    );
    assert_eq!(
        (event.info(), event.log_page()),
        (AsyncEvent::SMART_TEMPERATURE, 2)
    );
    assert!(host.reap(0).is_none(), "masked until the log is read");
    // Retained, the event stays masked; read without, it comes again.
    let page = log(LogId::SMART, 128);
    let retain = Sqe {
        cdw10: page.cdw10 | 1 << 15,
        ..page
    };
    host.fetch(retain);
    assert!(host.reap(0).is_none());
    let at = host.alloc(4096);
    let (prp1, prp2) = Host::prps(at, 512);
    let cid = host.push(0, page.with_prps(prp1, prp2));
    host.ring(0);
    host.emu.step();
    let cids = [host.reap(0).unwrap().cid, host.reap(0).unwrap().cid];
    assert!(cids.contains(&cid) && cids.contains(&held[1]), "{cids:?}");
    let abort = host.push(0, abort(0, held[3]));
    host.ring(0);
    host.emu.step();
    let done = [host.reap(0).unwrap(), host.reap(0).unwrap()];
    let of = |cid| *done.iter().find(|cqe| cqe.cid == cid).unwrap();
    assert_eq!(of(abort).result, 0);
    assert_eq!(of(held[3]).status(), Status::ABORT_REQUESTED);
    assert_eq!(host.emu.stats().events, 2);
}

/// A command that waits for its time can be aborted, and ends with its queue; others cannot.
#[test]
fn slow_commands_can_be_aborted() {
    let read_time = Duration::from_millis(10);
    let timing = Timing {
        read: read_time,
        ..Timing::default()
    };
    let mut host = Host::with_io(Emulator::builder().timing(timing));
    assert_eq!(host.admin_ok(abort(1, 77)), 1);
    let cids: Vec<_> = (0..3)
        .map(|_| host.push(1, read(1, 0, BlockCount::ONE).with_prps(BASE, 0)))
        .collect();
    host.ring(1);
    host.emu.step();
    assert!(host.reap(1).is_none());
    assert_eq!(host.admin_ok(abort(1, cids[1])), 0);
    let cqe = host.reap(1).unwrap();
    assert_eq!((cqe.cid, cqe.status()), (cids[1], Status::ABORT_REQUESTED));
    host.emu.advance(read_time / 2);
    host.admin_ok(delete_io_sq(1));
    for cid in [cids[0], cids[2]] {
        let cqe = host.reap(1).unwrap();
        assert_eq!((cqe.cid, cqe.status()), (cid, Status::ABORTED_SQ_DELETION));
    }
    host.emu.advance(read_time);
    assert!(host.reap(1).is_none());
    host.admin_ok(delete_io_cq(1));
}

/// The record holds the last commands with how they ended, and counters count by opcode.
#[test]
fn commands_are_recorded() {
    let mut host = Host::with_io(Emulator::builder().record_commands(2));
    host.io_ok(flush(1));
    host.io_fails(flush(9), Status::INVALID_NAMESPACE);
    host.admin_ok(abort(1, 1));
    let seen = host.emu.commands();
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].qid, seen[0].sqe.nsid, seen[1].qid), (1, 9, 0));
    assert_eq!(seen[0].status.code(), Status::INVALID_NAMESPACE);
    assert!(host.emu.commands().is_empty());
    let stats = host.emu.stats();
    assert_eq!(
        (stats.io(IoOpcode::FLUSH), stats.io_total(), stats.errors),
        (2, 2, 1)
    );
    assert_eq!(stats.admin(AdminOpcode::ABORT), 1);
}
