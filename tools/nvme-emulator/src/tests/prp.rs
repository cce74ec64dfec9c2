//! PRPs of every shape, built by a naive host over memory whose pages lie in reverse.

use super::host::{Host, MEMORY, REVERSED};
use crate::{Emulator, Namespace};
use driver::spec::Status;
use driver::spec::command::{BlockCount, read, write};
use driver::spec::registers::Cc;

/// Where byte `at` of the host's memory is in the mapping whose 4 KiB pages lie in reverse.
fn reversed(at: usize) -> u64 {
    let page = at / 4096 * 4096;
    REVERSED + (MEMORY - 4096 - page + at % 4096) as u64
}

/// Builds the PRPs of `len` bytes at `at` in pages of `page` bytes. Lists are taken from `lists`,
/// the first beginning `first_slot` entries into its page.
fn build(
    host: &Host,
    (at, len): (usize, usize),
    page: usize,
    lists: &[usize],
    first_slot: usize,
    iova: impl Fn(usize) -> u64,
) -> (u64, u64) {
    let mut entries = Vec::new();
    let mut next = at;
    while next < at + len {
        entries.push(iova(next));
        next = (next / page + 1) * page;
    }
    match entries.len() {
        1 => return (entries[0], 0),
        2 => return (entries[0], entries[1]),
        _ => {}
    }
    let slots = page / 8;
    let mut rest = &entries[1..];
    let mut slot = first_slot;
    for (index, &list) in lists.iter().enumerate() {
        let room = slots - slot;
        let chained = rest.len() > room;
        let take = if chained { room - 1 } else { rest.len() };
        let mut words: Vec<u64> = rest[..take].to_vec();
        if chained {
            words.push(iova(lists[index + 1]));
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        host.put(list + slot * 8, &bytes);
        rest = &rest[take..];
        slot = 0;
        if rest.is_empty() {
            break;
        }
    }
    assert!(rest.is_empty(), "too few list pages");
    (entries[0], iova(lists[0] + first_slot * 8))
}

/// Writes by one shape of PRPs and reads by another; both move exactly the bytes of the buffer.
fn round_trip(host: &mut Host, page: usize, offset: usize, len: usize, first_slot: usize) {
    let what = format!("page {page} offset {offset} len {len} slot {first_slot}");
    let span = (2 << 20) + (64 << 10);
    let (from, to, lists) = (1 << 20, (1 << 20) + span, (1 << 20) + 2 * span);
    let lists: Vec<_> = (0..6).map(|n| lists + n * page).collect();
    let data: Vec<u8> = (0..len)
        .map(|at| (at / 512) as u8 ^ (at % 251) as u8)
        .collect();
    host.put(from + offset, &data);
    host.put(to, &vec![0xaa; offset + len + page]);
    // Pages of 4 KiB are taken in reverse; larger ones must be one piece each.
    let plain = |at: usize| super::host::BASE + at as u64;
    let iova: &dyn Fn(usize) -> u64 = if page == 4096 { &reversed } else { &plain };
    let blocks = BlockCount::new((len / 512) as u32).unwrap();
    let (prp1, prp2) = build(host, (from + offset, len), page, &lists, first_slot, iova);
    host.io_ok(write(1, 8, blocks, false).with_prps(prp1, prp2));
    let (prp1, prp2) = build(host, (to + offset, len), page, &lists, first_slot, iova);
    host.io_ok(read(1, 8, blocks).with_prps(prp1, prp2));
    assert!(host.get(to + offset, len) == data, "{what}");
    assert!(
        host.get(to, offset).iter().all(|&byte| byte == 0xaa),
        "before: {what}"
    );
    assert!(
        host.get(to + offset + len, page)
            .iter()
            .all(|&byte| byte == 0xaa),
        "after: {what}"
    );
}

/// Offsets x lengths x list positions x page sizes, up to lists of several pages.
#[test]
fn offsets_and_lengths() {
    for mps in [0u8, 1, 4] {
        let page = 4096usize << mps;
        let builder = Emulator::builder()
            .mdts(0)
            .namespace(Namespace::ram(8 << 20));
        let mut host = Host::off(builder.stepped().unwrap());
        host.enable_with(4, Cc::new().with_iosqes(6).with_iocqes(4).with_mps(mps));
        host.create_pair(1, 4);
        for offset in [0, 4, 512, page / 2, page - 4] {
            for len in [
                512,
                4096,
                page,
                page + 512,
                2 * page,
                2 * page + 512,
                3 * page,
                64 << 10,
            ] {
                for first_slot in [0, 1, page / 8 - 2, page / 8 - 1] {
                    round_trip(&mut host, page, offset, len, first_slot);
                }
            }
        }
    }
}

/// Lists that are chained over pages: just filled, one entry over, and longer than two pages hold.
#[test]
fn chained_lists() {
    let builder = Emulator::builder()
        .mdts(0)
        .namespace(Namespace::ram(8 << 20));
    let mut host = Host::with_io(builder);
    for offset in [0, 4, 4092] {
        for pages in [510, 511, 512] {
            for first_slot in [0, 300, 510, 511] {
                round_trip(&mut host, 4096, offset, pages * 4096, first_slot);
            }
        }
    }
}

/// Entries of a list begin pages, the one that points to the next list too; one that does not, or
/// that is not mapped, ends the command before a byte has moved.
#[test]
fn wrong_list_entries_are_refused() {
    let builder = Emulator::builder().mdts(0);
    let mut host = Host::with_io(builder.namespace(Namespace::ram(8 << 20)));
    let (data, list) = (1 << 20, 4 << 20);
    let (pages, slots) = (520, 512);
    host.put(data, &vec![0xaa; pages * 4096]);
    let lists = [list, list + 4096];
    let blocks = BlockCount::new((pages * 8) as u32).unwrap();
    for slot in [0, slots - 2, slots - 1] {
        let unmapped = 0x9000_0000_u64;
        let cases = [
            (4_u64, Status::PRP_OFFSET_INVALID),
            (2048, Status::PRP_OFFSET_INVALID),
            (unmapped, Status::DATA_TRANSFER_ERROR),
        ];
        for (bad, status) in cases {
            let (prp1, prp2) = build(&host, (data, pages * 4096), 4096, &lists, 0, reversed);
            let at = list + slot * 8;
            let entry = u64::from_le_bytes(host.get(at, 8).try_into().unwrap());
            let entry = if bad == unmapped { bad } else { entry + bad };
            host.put(at, &entry.to_le_bytes());
            host.io_fails(read(1, 0, blocks).with_prps(prp1, prp2), status);
            assert!(host.get(data, 4096).iter().all(|&byte| byte == 0xaa));
        }
    }
}
