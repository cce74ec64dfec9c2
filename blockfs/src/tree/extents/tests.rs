//! Extents against a map with an entry for each block.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What the extents are when every block is looked at by itself.
fn naive(blocks: &BTreeMap<u32, (u64, bool)>) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (&lblk, &(pblk, unwritten)) in blocks {
        let one = Extent {
            lblk,
            pblk,
            len: 1,
            unwritten,
        };
        match extents.last_mut() {
            Some(last) if mergeable(last, &one) => last.len += 1,
            _ => extents.push(one),
        }
    }
    extents
}

fn run(steps: &[(u8, u32, u32, u64)]) -> Result<(), TestCaseError> {
    let mut map = ExtentMap::default();
    let mut blocks = BTreeMap::new();
    for &(what, lblk, len, shift) in steps {
        let to = u64::from(lblk) + u64::from(len);
        let range = lblk..lblk + len;
        match what {
            0..=5 => {
                // Only what is a hole may be mapped.
                let len = blocks.range(range).next().map_or(len, |(&at, _)| at - lblk);
                if len > 0 {
                    let pblk = u64::from(lblk) + shift * 100_000;
                    let unwritten = what % 2 == 0;
                    map.insert(Extent {
                        lblk,
                        pblk,
                        len,
                        unwritten,
                    });
                    for nth in 0..len {
                        blocks.insert(lblk + nth, (pblk + u64::from(nth), unwritten));
                    }
                }
            }
            6..=7 => {
                let removed = map.unmap(lblk.into(), to);
                let mut before = BTreeMap::new();
                for at in range {
                    if let Some(block) = blocks.remove(&at) {
                        before.insert(at, block);
                    }
                }
                let sum: u64 = removed.iter().map(|extent| u64::from(extent.len)).sum();
                prop_assert_eq!(sum, before.len() as u64);
                prop_assert_eq!(removed, naive(&before));
            }
            _ => {
                map.convert(lblk.into(), to);
                blocks
                    .range_mut(range)
                    .for_each(|(_, block)| block.1 = false);
            }
        }
        prop_assert_eq!(map.blocks(), blocks.len() as u64);
    }
    let expected = naive(&blocks);
    prop_assert_eq!(map.count(), expected.len() as u64);
    prop_assert_eq!(map.from(0).collect::<Vec<_>>(), expected.clone());
    for at in (0..3100).step_by(7) {
        let found = map.from(at).next();
        let wanted = expected.iter().find(|extent| end(extent) > at).copied();
        prop_assert_eq!(found, wanted);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Few extents and many, inline and in chunks: every block is where it was put, in the one
    /// form.
    #[test]
    fn same_as_a_map_of_blocks(
        steps in proptest::collection::vec((0..9u8, 0..3000u32, 1..4u32, 0..3u64), 1..900),
        wide in proptest::collection::vec((4..9u8, 0..3000u32, 1..900u32, 0..3u64), 0..6),
    ) {
        run(&steps)?;
        let all: Vec<_> = steps.into_iter().chain(wide).collect();
        run(&all)?;
    }
}

/// The look-up of a read finds no blocks in a file that has none any more.
#[test]
fn nothing_is_found_where_all_is_unmapped() {
    for extents in 1..=9 {
        let mut map = ExtentMap::default();
        for lblk in (0..extents).map(|n| n * 2) {
            map.insert(Extent {
                lblk,
                pblk: 100 + u64::from(lblk),
                len: 1,
                unwritten: false,
            });
        }
        assert_eq!(map.find(&map.tops(), 1).range(), (0, 1));
        map.unmap(0, 100);
        for lblk in 0..20 {
            assert_eq!(
                map.find(&map.tops(), lblk + 1).range().1,
                0,
                "{extents} extents, block {lblk}"
            );
        }
    }
}

/// Extents that would be too long together stay two, the same two after being built again.
#[test]
fn the_longest_extent() {
    let mut map = ExtentMap::default();
    let len = MAX_EXTENT_BLOCKS - 1;
    map.insert(Extent {
        lblk: 0,
        pblk: 10,
        len,
        unwritten: true,
    });
    map.insert(Extent {
        lblk: len,
        pblk: 10 + u64::from(len),
        len: 5,
        unwritten: true,
    });
    assert_eq!(
        map.from(0).map(|extent| extent.len).collect::<Vec<_>>(),
        [len, 5]
    );
    let first = map.from(u64::from(len) - 1).next().expect("there");
    assert_eq!((first.lblk, first.len, first.unwritten), (0, len, true));
    assert_eq!(map.from(u64::from(u32::MAX) + 1).next(), None);
}
