//! Tests of the layout.

use super::*;
use proptest::prelude::*;

fn lba_sizes() -> impl Strategy<Value = LbaSize> {
    prop_oneof![Just(LbaSize::B512), Just(LbaSize::B4096)]
}

/// Sizes of every magnitude, not only huge ones.
fn any_size() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
}

proptest! {
    /// Any drive with any options gives a layout whose areas are disjoint and inside, or an error.
    #[test]
    fn a_plan_passes_its_own_check(
        lba_size in lba_sizes(),
        lbas in any_size(),
        journal_bytes in proptest::option::of((0..=1u64 << 19).prop_map(|blocks| blocks * 4096)),
        checkpoint_bytes in proptest::option::of((0..=1u64 << 29).prop_map(|b| b * 4096)),
    ) {
        let options = LayoutOptions { journal_bytes, checkpoint_bytes };
        if let Ok(layout) = Geometry::plan(lba_size, lbas, &options) {
            prop_assert_eq!(layout.check(), Ok(()));
            prop_assert_eq!(layout.check_device(lbas), Ok(()));
            prop_assert_eq!(layout.volume_blocks, lbas / lba_size.per_block());
            prop_assert!(u64::from(layout.max_record_bytes()) * 4 <= layout.journal.bytes());
            prop_assert!(layout.max_record_bytes() >= 16 << 10);
            if let Some(bytes) = journal_bytes {
                prop_assert_eq!(layout.journal.bytes(), bytes);
            }
            if let Some(bytes) = checkpoint_bytes {
                prop_assert_eq!(layout.slots[1].bytes(), bytes);
            }
        }
    }

    /// The size that the error names is the least that works.
    #[test]
    fn the_needed_size_is_exact(blocks in 0u64..2000, journal in 16u64..400, slot in 16u64..400) {
        let options = LayoutOptions {
            journal_bytes: Some(journal * 4096),
            checkpoint_bytes: Some(slot * 4096),
        };
        match Geometry::plan(LbaSize::B4096, blocks, &options) {
            Ok(layout) => prop_assert_eq!(layout.check(), Ok(())),
            Err(FormatError::VolumeTooSmall { needed, .. }) => {
                prop_assert!(blocks < needed);
                prop_assert!(Geometry::plan(LbaSize::B4096, needed, &options).is_ok());
                prop_assert!(Geometry::plan(LbaSize::B4096, needed - 1, &options).is_err());
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// Whatever a superblock may say, the check answers without overflow.
    #[test]
    fn any_numbers_are_checked(numbers in proptest::array::uniform9(any_size())) {
        let [volume_blocks, a, b, c, d, e, f, g, h] = numbers;
        let range = |start, blocks| BlockRange { start, blocks };
        let layout = Geometry {
            lba_size: LbaSize::B512,
            volume_blocks,
            journal: range(a, b),
            slots: [range(c, d), range(e, f)],
            data: range(g, h),
        };
        let _ = layout.check();
        let _ = (layout.grown(a), layout.max_record_bytes(), layout.geometry_copy_block());
    }
}

/// The defaults at sizes that users have, and at both ends.
#[test]
fn defaults_follow_the_volume() {
    let plan = |blocks| Geometry::plan(LbaSize::B4096, blocks, &LayoutOptions::default());
    let mib = |range: BlockRange| range.bytes() >> 20;
    let tib = plan((1 << 40) / 4096).expect("1 TiB");
    assert_eq!((mib(tib.journal), mib(tib.slots[0])), (16, 2048));
    let gib = plan((8 << 30) / 4096).expect("8 GiB");
    assert_eq!((mib(gib.journal), mib(gib.slots[0])), (4, 16));
    let largest = plan(MAX_VOLUME_BLOCKS).expect("the largest");
    assert_eq!((mib(largest.journal), mib(largest.slots[0])), (16, 4096));
    let small = plan(512).expect("2 MiB");
    assert_eq!(
        small.journal,
        BlockRange {
            start: 1,
            blocks: 32
        }
    );
    assert_eq!(
        small.data,
        BlockRange {
            start: 257,
            blocks: 254
        }
    );
    assert_eq!(
        plan(258),
        Err(FormatError::VolumeTooSmall {
            blocks: 258,
            needed: 259
        })
    );
    assert!(matches!(
        plan(MAX_VOLUME_BLOCKS + 1),
        Err(FormatError::VolumeTooLarge { .. })
    ));
}

/// Growing moves the end only; shrinking is refused.
#[test]
fn growing_keeps_the_areas() {
    let plan = |blocks| Geometry::plan(LbaSize::B512, blocks, &LayoutOptions::default());
    let before = plan(512 * 8).expect("2 MiB");
    let after = before.grown(1024 * 8 + 7).expect("grow");
    assert_eq!(after.check(), Ok(()));
    assert_eq!((after.journal, after.slots), (before.journal, before.slots));
    assert_eq!(after.geometry_copy_block(), 1023);
    assert!(matches!(
        after.grown(512 * 8),
        Err(FormatError::VolumeTooSmall {
            blocks: 512,
            needed: 1024
        })
    ));
}

/// Options that cannot be are refused with their bounds.
#[test]
fn impossible_options() {
    for bytes in [
        0,
        4096,
        MIN_JOURNAL_BYTES + 1,
        MAX_JOURNAL_BYTES + 4096,
        u64::MAX,
    ] {
        let options = LayoutOptions {
            journal_bytes: Some(bytes),
            checkpoint_bytes: None,
        };
        let answer = Geometry::plan(LbaSize::B512, 1 << 30, &options);
        assert!(
            matches!(answer, Err(FormatError::Setting { .. })),
            "{bytes}"
        );
    }
}
