//! A buffer belongs to a domain and a namespace to a controller; neither works elsewhere.
#![allow(
    unsafe_code,
    reason = "one test forces its way past the check with a raw command"
)]

mod common;

use common::Bench;
use driver::controller::ControllerError;
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use driver::queue::{RawData, SubmitError};
use driver::spec::Status;
use driver::spec::command::{self, BlockCount};
use driver::spec::identify::Cns;
use nvme_emulator::{Emulator, Namespace};
use std::time::Duration;

fn bench() -> Bench {
    Bench::stepped(Emulator::builder())
}

/// A buffer of another domain is refused and comes back.
#[test]
fn a_buffer_of_another_domain_is_refused() {
    let (a, b) = (bench(), bench());
    let (namespace, mut queue) = (b.namespace(), b.queue::<u32>());
    let buf = a.domain.alloc(4096).unwrap();
    let iova = buf.iova();
    let rejected = namespace.read(&mut queue, Lba(0), buf, 5).unwrap_err();
    assert_eq!(rejected.reason, SubmitError::WrongDomain);
    assert_eq!((rejected.buf.unwrap().iova(), rejected.ctx), (iova, 5));
    let list = a.domain.alloc(4096).unwrap();
    let ranges = [driver::namespace::BlockRange {
        lba: Lba(0),
        blocks: 1,
    }];
    let rejected = namespace
        .deallocate(&mut queue, &ranges, list, 6)
        .unwrap_err();
    assert_eq!(rejected.reason, SubmitError::WrongDomain);
    assert_eq!(queue.outstanding(), 0);
}

/// A namespace of another controller is refused even within one domain: its blocks may have another
/// size, and the device would move more than the buffer holds.
#[test]
fn a_namespace_of_another_controller_is_refused() {
    let domain = DmaDomain::new();
    let small = Bench::attach_in(Emulator::builder().stepped().unwrap(), &domain);
    let large = Namespace::ram(1 << 20).block_size(4096);
    let large = Emulator::builder().namespace(large).stepped().unwrap();
    let large = Bench::attach_in(large, &domain);
    let mut queue = large.queue::<u32>();
    let wrong = small.namespace();
    let rejected = wrong
        .read(&mut queue, Lba(0), domain.alloc(512).unwrap(), 1)
        .unwrap_err();
    assert_eq!(rejected.reason, SubmitError::WrongController);
    assert_eq!(
        wrong.flush(&mut queue, 2).unwrap_err().reason,
        SubmitError::WrongController
    );
    let rejected = wrong.write_zeroes(&mut queue, Lba(0), 1, 3).unwrap_err();
    assert_eq!(rejected.reason, SubmitError::WrongController);
    // One pool serves both controllers.
    let buf = domain.alloc(4096).unwrap();
    large.namespace().read(&mut queue, Lba(0), buf, 4).unwrap();
    assert!(queue.drain(Duration::from_secs(1), |done| assert!(
        done.status.is_success()
    )));
}

/// Forced past the check, the address is not mapped for the other controller: the command fails and
/// no memory changes.
#[test]
fn an_address_of_another_domain_is_not_mapped() {
    let (a, b) = (bench(), bench());
    let mut buf = a.domain.alloc(4096).unwrap();
    buf.fill(0x5a);
    let mut queue = b.queue::<u32>();
    let sqe = command::read(1, 0, BlockCount::new(8).unwrap()).with_prps(buf.iova(), 0);
    // SAFETY: not at all what the contract asks for: the address is not mapped for this controller,
    // which is what the test is about.
    unsafe { queue.submit_raw(sqe, None, RawData::AsGiven, 1) }.unwrap();
    let mut status = None;
    assert!(queue.drain(Duration::from_secs(1), |done| status = Some(done.status)));
    assert_eq!(status.map(Status::code), Some(Status::DATA_TRANSFER_ERROR));
    let mut bytes = vec![0; 4096];
    buf.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0x5a));
}

/// A raw admin command does not take a buffer of another domain either.
#[test]
fn an_admin_command_refuses_a_buffer_of_another_domain() {
    let (a, b) = (bench(), bench());
    let buf = a.domain.alloc(4096).unwrap();
    let sqe = command::identify(Cns::CONTROLLER, 0);
    // SAFETY: Identify returns the 4,096 bytes that the buffer holds.
    let error = unsafe { b.controller.admin_raw(sqe, Some(buf)) }.unwrap_err();
    let reason = SubmitError::WrongDomain;
    assert!(
        matches!(error, ControllerError::AdminRejected { reason: r, .. } if r == reason),
        "{error}"
    );
    let buf = b.domain.alloc(4096).unwrap();
    // SAFETY: as above.
    let (buf, _) = unsafe { b.controller.admin_raw(sqe, Some(buf)) }.unwrap();
    let mut model = [0; 8];
    buf.unwrap().read_at(24, &mut model).unwrap();
    assert_eq!(model, b.controller.identify().mn[..8]);
}

/// Lengths, ranges and lists that make no sense are refused with what is wrong about them.
#[test]
fn requests_that_make_no_sense_are_refused() {
    let bench = Bench::stepped(Emulator::builder().namespace(Namespace::ram(1 << 20)));
    let (namespace, mut queue) = (bench.namespace(), bench.queue::<u32>());
    let alloc = |len| bench.domain.alloc(len).unwrap();
    let reason = |rejected: driver::queue::Rejected<u32>| rejected.reason;
    let short = namespace
        .read(&mut queue, Lba(0), alloc(500), 0)
        .map_err(reason);
    assert_eq!(
        short,
        Err(SubmitError::Length {
            len: 500,
            block: 512
        })
    );
    for lba in [2047, 2048, u64::MAX] {
        let outside = namespace
            .write(&mut queue, Lba(lba), alloc(1024), 0)
            .map_err(reason);
        assert_eq!(
            outside,
            Err(SubmitError::OutOfRange {
                lba,
                blocks: 2,
                capacity: 2048
            })
        );
        let outside = namespace
            .write_zeroes(&mut queue, Lba(lba), 2, 0)
            .map_err(reason);
        assert_eq!(
            outside,
            Err(SubmitError::OutOfRange {
                lba,
                blocks: 2,
                capacity: 2048
            })
        );
    }
    assert!(namespace.write_zeroes(&mut queue, Lba(0), 0, 0).is_err());
    let none = namespace
        .deallocate(&mut queue, &[], alloc(4096), 0)
        .map_err(reason);
    assert_eq!(
        none,
        Err(SubmitError::Ranges {
            ranges: 0,
            max: 256
        })
    );
    let range = driver::namespace::BlockRange {
        lba: Lba(0),
        blocks: 1,
    };
    let many = namespace
        .deallocate(&mut queue, &[range; 33], alloc(512), 0)
        .map_err(reason);
    assert_eq!(
        many,
        Err(SubmitError::Ranges {
            ranges: 33,
            max: 32
        })
    );
    assert_eq!(
        (queue.outstanding(), bench.drive.stats().io_total()),
        (0, 0)
    );
}
