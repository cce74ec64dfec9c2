//! NVM commands: what they do to the media, and how they fail.

use super::host::{BASE, Host};
use crate::{Builder, Emulator, Namespace};
use driver::spec::command::*;
use driver::spec::identify::{Cns, IdentifyNamespace, NSID_ALL};
use driver::spec::opcode::IoOpcode;
use driver::spec::{Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

fn blocks(count: u32) -> BlockCount {
    BlockCount::new(count).unwrap()
}

fn ram(block_size: u32) -> Builder {
    Emulator::builder().namespace(Namespace::ram(4 << 20).block_size(block_size))
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed).collect()
}

/// A host buffer with contents, and the command pointed at it.
fn with_data(host: &mut Host, sqe: Sqe, data: &[u8]) -> Sqe {
    let at = host.alloc(data.len());
    host.put(at, data);
    let (prp1, prp2) = Host::prps(at, data.len());
    sqe.with_prps(prp1, prp2)
}

#[track_caller]
fn read_back(host: &mut Host, nsid: u32, lba: u64, count: u32, len: usize) -> Vec<u8> {
    let at = host.alloc(len);
    host.put(at, &vec![0xcc; len]);
    let (prp1, prp2) = Host::prps(at, len);
    host.io_ok(read(nsid, lba, blocks(count)).with_prps(prp1, prp2));
    host.get(at, len)
}

/// What is written is read, in blocks of 512 and 4096 bytes, in memory and in a file, first and
/// last block included, and neighbours stay as they were.
#[test]
fn written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for block_size in [512, 4096] {
        let file = Namespace::file(dir.path().join(block_size.to_string()), Some(4 << 20));
        for namespace in [Namespace::ram(4 << 20), file] {
            let builder = Emulator::builder().namespace(namespace.block_size(block_size));
            let mut host = Host::with_io(builder);
            let (len, last) = (block_size as usize, u64::from((4 << 20) / block_size) - 1);
            for lba in [0, 5, last] {
                let data = pattern(len, (lba as u8).wrapping_add(1));
                let sqe = with_data(&mut host, write(1, lba, BlockCount::ONE, lba == 5), &data);
                host.io_ok(sqe);
                assert_eq!(read_back(&mut host, 1, lba, 1, len), data);
            }
            assert_eq!(read_back(&mut host, 1, 4, 1, len), vec![0; len]);
            assert_eq!(read_back(&mut host, 1, 6, 1, len), vec![0; len]);
        }
    }
}

/// Namespaces are apart from each other, whatever their blocks.
#[test]
fn namespaces_are_apart() {
    let builder = ram(512).namespace(Namespace::ram(1 << 20).block_size(4096));
    let mut host = Host::with_io(builder);
    let data = pattern(4096, 1);
    let sqe = with_data(&mut host, write(2, 0, BlockCount::ONE, false), &data);
    host.io_ok(sqe);
    assert_eq!(read_back(&mut host, 1, 0, 8, 4096), vec![0; 4096]);
    assert_eq!(read_back(&mut host, 2, 0, 1, 4096), data);
    let sqe = read(1, 0, blocks(8)).with_prps(BASE, 0);
    host.io_fails(Sqe { nsid: 3, ..sqe }, Status::INVALID_NAMESPACE);
}

/// Each way in which a transfer is wrong has its status, the media stay as they were.
#[test]
fn wrong_transfers_are_refused() {
    let mut host = Host::with_io(ram(512).mdts(1));
    let at = BASE + host.alloc(1 << 16) as u64;
    for make in [
        |l, c| read(1, l, c),
        |l, c| write(1, l, c, false),
        |l, c| compare(1, l, c),
    ] {
        let one = make(0, BlockCount::ONE).with_prps(at, 0);
        for nsid in [0, 2, NSID_ALL] {
            host.io_fails(Sqe { nsid, ..one }, Status::INVALID_NAMESPACE);
        }
        for flags in [0x01, 0x40, 0x80] {
            host.io_fails(Sqe { flags, ..one }, Status::INVALID_FIELD);
        }
        for (lba, count) in [
            (8192, 1),
            (8191, 2),
            (u64::MAX, 1),
            (u64::MAX, 65_536),
            (0, 8193),
        ] {
            host.io_fails(make(lba, blocks(count)), Status::LBA_OUT_OF_RANGE);
        }
        // MDTS is 8 KiB.
        host.io_fails(make(0, blocks(17)).with_prps(at, at), Status::INVALID_FIELD);
        host.io_fails(one.with_prps(at + 2, 0), Status::PRP_OFFSET_INVALID);
        let two = make(0, blocks(16));
        host.io_fails(two.with_prps(at, at + 4100), Status::PRP_OFFSET_INVALID);
        // With an offset the transfer takes three pages: the second entry points to a list.
        host.io_fails(two.with_prps(at + 4, at + 4), Status::PRP_OFFSET_INVALID);
        host.io_fails(one.with_prps(0x9000_0000, 0), Status::DATA_TRANSFER_ERROR);
        host.io_fails(two.with_prps(at, 0x9000_0000), Status::DATA_TRANSFER_ERROR);
        host.io_fails(
            two.with_prps(at + 4, 0x9000_0000),
            Status::DATA_TRANSFER_ERROR,
        );
        host.io_fails(one.with_prps(u64::MAX - 3, 0), Status::DATA_TRANSFER_ERROR);
    }
    for opcode in [
        IoOpcode::WRITE_UNCORRECTABLE.0,
        IoOpcode::COPY.0,
        0x80,
        0xff,
    ] {
        host.io_fails(Sqe { opcode, ..flush(1) }, Status::INVALID_OPCODE);
    }
    assert_eq!(read_back(&mut host, 1, 0, 16, 8192), vec![0; 8192]);
}

/// The largest transfer that the limit allows is taken, also if pages are larger than 4 KiB.
#[test]
fn the_limit_counts_smallest_pages() {
    let mut host = Host::off(ram(512).mdts(1).page_sizes(1, 1).stepped().unwrap());
    let cc = driver::spec::registers::Cc::new()
        .with_iosqes(6)
        .with_iocqes(4)
        .with_mps(1);
    host.enable_with(8, cc);
    host.create_pair(1, 4);
    let at = BASE + host.alloc_aligned(1 << 14, 1 << 13) as u64;
    host.io_ok(read(1, 0, blocks(32)).with_prps(at, at + 8192));
    host.io_fails(
        read(1, 0, blocks(33)).with_prps(at, at + 8192),
        Status::INVALID_FIELD,
    );
    host.io_fails(
        read(1, 0, blocks(32)).with_prps(at, at + 4096),
        Status::PRP_OFFSET_INVALID,
    );
}

/// Compare tells equal from different, to the last byte.
#[test]
fn compare_sees_every_byte() {
    let mut host = Host::with_io(ram(512));
    let mut data = pattern(1024, 3);
    let sqe = with_data(&mut host, write(1, 9, blocks(2), false), &data);
    host.io_ok(sqe);
    let sqe = with_data(&mut host, compare(1, 9, blocks(2)), &data);
    host.io_ok(sqe);
    data[1023] ^= 1;
    let sqe = with_data(&mut host, compare(1, 9, blocks(2)), &data);
    host.io_fails(sqe, Status::COMPARE_FAILURE);
}

/// Write Zeroes and Deallocate clear exactly their blocks; Write Zeroes is not bound by MDTS.
#[test]
fn zeroes_and_deallocation() {
    let mut host = Host::with_io(ram(512).mdts(1));
    let ones = vec![1; 8192];
    for lba in (0..256).step_by(16) {
        let sqe = with_data(&mut host, write(1, lba, blocks(16), false), &ones);
        host.io_ok(sqe);
    }
    host.io_ok(write_zeroes(1, 3, blocks(2), false));
    host.io_ok(write_zeroes(1, 60, blocks(100), true));
    let ranges = [(10u64, 2u32), (20, 0), (200, 30)];
    let ranges = ranges.map(|(slba, blocks)| DsmRange {
        slba: slba.into(),
        blocks: blocks.into(),
        ..DsmRange::default()
    });
    let sqe = deallocate(1, DsmCount::from_len(ranges.len()).unwrap());
    let hint = with_data(&mut host, Sqe { cdw11: 0, ..sqe }, ranges.as_bytes());
    host.io_ok(hint);
    assert_eq!(
        read_back(&mut host, 1, 10, 1, 512),
        vec![1; 512],
        "a hint changes nothing"
    );
    let sqe = with_data(&mut host, sqe, ranges.as_bytes());
    host.io_ok(sqe);
    for lba in 0..256 {
        let cleared = matches!(lba, 3..5 | 60..160 | 10..12 | 200..230);
        let expected = vec![u8::from(!cleared); 512];
        assert_eq!(
            read_back(&mut host, 1, lba, 1, 512),
            expected,
            "block {lba}"
        );
    }
    host.io_fails(
        write_zeroes(1, 8191, blocks(2), true),
        Status::LBA_OUT_OF_RANGE,
    );
}

/// A list of ranges of which one is wrong deallocates none; 256 ranges are taken.
#[test]
fn deallocation_is_checked_first() {
    let mut host = Host::with_io(ram(512));
    let sqe = with_data(&mut host, write(1, 0, BlockCount::ONE, false), &[1; 512]);
    host.io_ok(sqe);
    let range = |slba: u64, blocks: u32| DsmRange {
        slba: slba.into(),
        blocks: blocks.into(),
        ..DsmRange::default()
    };
    let sqe = deallocate(1, DsmCount::from_len(2).unwrap());
    for bad in [range(8192, 1), range(u64::MAX, u32::MAX), range(0, 8193)] {
        let sqe = with_data(&mut host, sqe, [range(0, 1), bad].as_bytes());
        host.io_fails(sqe, Status::LBA_OUT_OF_RANGE);
    }
    host.io_fails(sqe.with_prps(0x9000_0000, 0), Status::DATA_TRANSFER_ERROR);
    host.io_fails(Sqe { nsid: 7, ..sqe }, Status::INVALID_NAMESPACE);
    assert_eq!(read_back(&mut host, 1, 0, 1, 512), vec![1; 512]);
    let many = [range(0, 1); 256];
    let sqe = with_data(&mut host, deallocate(1, DsmCount::MAX), many.as_bytes());
    host.io_ok(sqe);
    assert_eq!(read_back(&mut host, 1, 0, 1, 512), vec![0; 512]);
}

/// Use follows writes and deallocation, as Identify Namespace tells it.
#[test]
fn use_is_reported() {
    let mut host = Host::with_io(ram(4096));
    let used = |host: &mut Host| {
        let data = host.fetch(identify(Cns::NAMESPACE, 1));
        IdentifyNamespace::ref_from_bytes(&data).unwrap().nuse.get()
    };
    assert_eq!(used(&mut host), 0);
    let sqe = with_data(&mut host, write(1, 0, BlockCount::ONE, false), &[1; 4096]);
    host.io_ok(sqe);
    assert_eq!(used(&mut host), 16);
    host.io_ok(write_zeroes(1, 0, blocks(1024), true));
    assert_eq!(used(&mut host), 0);
}

/// A power cut takes what was neither flushed nor forced, on some seeds, and nothing else on any.
#[test]
fn flush_and_force_survive_a_power_cut() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..48 {
        let mut host = Host::with_io(ram(512));
        let put = |host: &mut Host, lba, value, fua| {
            let sqe = write(1, lba, BlockCount::ONE, fua);
            let sqe = with_data(host, sqe, &[value; 512]);
            host.io_ok(sqe);
        };
        put(&mut host, 0, 1, false);
        let target = if seed % 2 == 0 { 1 } else { NSID_ALL };
        host.io_ok(flush(target));
        put(&mut host, 1, 2, true);
        put(&mut host, 2, 3, false);
        host.io_fails(flush(9), Status::INVALID_NAMESPACE);
        host.emu.power_cut(seed).unwrap();
        host.enable(16);
        host.create_pair(1, 4);
        assert_eq!(
            read_back(&mut host, 1, 0, 1, 512),
            vec![1; 512],
            "seed {seed}"
        );
        assert_eq!(
            read_back(&mut host, 1, 1, 1, 512),
            vec![2; 512],
            "seed {seed}"
        );
        match read_back(&mut host, 1, 2, 1, 512)[0] {
            0 => lost += 1,
            3 => kept += 1,
            other => panic!("seed {seed}: {other}"),
        }
    }
    assert!(lost > 5 && kept > 5, "lost {lost}, kept {kept}");
}

/// A null namespace completes everything in range and touches no buffer, not even a mapped one.
#[test]
fn null_moves_nothing() {
    let mut host = Host::with_io(Emulator::builder().namespace(Namespace::null(1 << 40)));
    let at = host.alloc(4096);
    host.put(at, &[5; 4096]);
    let (prp1, _) = Host::prps(at, 4096);
    for sqe in [read(1, 1 << 30, blocks(8)), write(1, 0, blocks(8), true)] {
        host.io_ok(sqe.with_prps(prp1, 0));
        host.io_ok(sqe.with_prps(0x9000_0000, 0));
    }
    host.io_ok(flush(1));
    assert_eq!(host.get(at, 4096), [5; 4096]);
    host.io_fails(read(1, 1 << 31, BlockCount::ONE), Status::LBA_OUT_OF_RANGE);
    assert_eq!(host.emu.stats().bytes_read, 8192);
}

/// A file that may only be read is a write-protected namespace. A program that runs is such a file
/// to everyone, root too.
#[test]
fn a_file_to_read_only_is_write_protected() {
    let path = std::env::current_exe().unwrap();
    let before = std::fs::metadata(&path).unwrap().len();
    let mut host = Host::with_io(Emulator::builder().namespace(Namespace::file(&path, None)));
    assert_eq!(read_back(&mut host, 1, 0, 1, 512)[..4], *b"\x7fELF");
    let sqe = write(1, 0, BlockCount::ONE, false);
    let sqe = with_data(&mut host, sqe, &[1; 512]);
    host.io_fails(sqe, Status::WRITE_PROTECTED);
    host.io_ok(flush(1));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
}

/// A file that fails is a media error of the command, not of the controller.
#[test]
fn a_failing_file_is_a_media_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let namespace = Namespace::file(&path, Some(1 << 20));
    let mut host = Host::with_io(Emulator::builder().namespace(namespace));
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    let at = BASE + host.alloc(4096) as u64;
    let sqe = read(1, 0, BlockCount::ONE).with_prps(at, 0);
    host.io_fails(sqe, Status::UNRECOVERED_READ);
    host.io_ok(flush(1));
}
