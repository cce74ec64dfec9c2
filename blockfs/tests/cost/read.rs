//! What a read of a mapped file costs over the same read of the raw drive.

use crate::callgrind::{Counted, Example};

/// Reads that the example makes when it is counted.
const READS: u64 = 1000;

/// A 4 KiB read through blockfs takes at most 60 instructions more than through the raw driver where
/// the file has one extent, and 150 where it has 1,000.
#[test]
fn a_read_is_within_its_budget() {
    let example = Example::build("read_cost").unwrap();
    for (extents, budget) in [("1", 60), ("1000", 150)] {
        let count = |function| {
            let counted = example.count(function, &[extents, "count"]).unwrap();
            assert!(counted.instructions >= READS, "{function} was not found");
            counted
        };
        let raw = count("cost_raw_").instructions;
        let file = count("cost_file_");
        let more = (file.instructions - raw).div_ceil(READS);
        let per_read = |all: u64| all as f64 / READS as f64;
        println!(
            "instructions a 4 KiB read, {extents} extents: raw {:.1}, file {:.1}: {:.1} more, at most {budget}",
            per_read(raw),
            per_read(file.instructions),
            per_read(file.instructions - raw)
        );
        assert!(more <= budget, "{more} instructions more");
        looks_right(&example, &file);
    }
}

/// Of all the instructions that ran, none locks, fences, reads a clock, divides or enters the kernel;
/// and none is of the C library, so that nothing was allocated either.
fn looks_right(example: &Example, counted: &Counted) {
    assert_eq!(counted.foreign.len(), 0, "{:?}", counted.foreign);
    let instructions = example.disassemble(&counted.addresses).unwrap();
    assert_eq!(instructions.len(), counted.addresses.len());
    // It would find them: these are there.
    assert!(instructions.iter().any(|text| text.starts_with("inc ")));
    let forbidden = |text: &&String| {
        let mnemonic = text.split(' ').next().unwrap_or("");
        let to_memory = text.contains('[');
        matches!(
            mnemonic,
            "lock"
                | "mfence"
                | "lfence"
                | "rdtsc"
                | "rdtscp"
                | "cpuid"
                | "syscall"
                | "div"
                | "idiv"
        ) || mnemonic == "xchg" && to_memory
    };
    let found: Vec<_> = instructions.iter().filter(forbidden).collect();
    assert_eq!(found.len(), 0, "{found:?}");
}
