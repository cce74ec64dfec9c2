//! The media model by itself.

use super::*;

const BLOCK: usize = 512;

fn ram(cache: Option<usize>) -> Media {
    Media::new(Store::ram(1 << 20).unwrap(), 512, cache).unwrap()
}

fn block(media: &Media, lba: u64) -> u8 {
    let mut data = [0xee; BLOCK];
    media.read(lba, &mut data).unwrap();
    assert!(
        data.iter().all(|&byte| byte == data[0]),
        "a torn block at {lba}"
    );
    data[0]
}

fn put(media: &mut Media, lba: u64, value: u8, fua: bool) {
    media.write(lba, &[value; BLOCK], fua).unwrap();
}

/// Flushed and forced writes survive every cut; others survive some and are lost in some.
#[test]
fn what_a_power_cut_may_take() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..64 {
        let mut media = ram(Some(1 << 20));
        put(&mut media, 0, 1, false);
        put(&mut media, 1, 1, false);
        media.flush().unwrap();
        put(&mut media, 1, 2, true);
        put(&mut media, 2, 3, false);
        let report = media.power_cut(seed).unwrap();
        assert_eq!(report.at_risk, 1, "seed {seed}");
        assert_eq!((block(&media, 0), block(&media, 1)), (1, 2), "seed {seed}");
        match block(&media, 2) {
            3 => kept += 1,
            0 => lost += 1,
            other => panic!("seed {seed}: {other}"),
        }
    }
    assert!(kept > 5 && lost > 5, "kept {kept}, lost {lost}");
}

/// A forced write also settles older volatile contents of its block; a later volatile one may go.
#[test]
fn a_forced_write_settles_its_block() {
    for seed in 0..64 {
        let mut media = ram(Some(1 << 20));
        put(&mut media, 0, 1, false);
        put(&mut media, 0, 2, true);
        put(&mut media, 0, 3, false);
        media.power_cut(seed).unwrap();
        assert!([2, 3].contains(&block(&media, 0)), "seed {seed}");
    }
}

/// Any version since the last flush may be what stayed, and a longer write tears between blocks.
#[test]
fn versions_and_tears() {
    let mut seen = [false; 4];
    let mut torn = false;
    for seed in 0..256 {
        let mut media = ram(Some(1 << 20));
        for version in 1..4 {
            media.write(4, &[version; 4 * BLOCK], false).unwrap();
        }
        media.power_cut(seed).unwrap();
        let blocks: Vec<_> = (4..8).map(|lba| block(&media, lba)).collect();
        seen[usize::from(blocks[0])] = true;
        torn |= blocks.iter().any(|&value| value != blocks[0]);
        // The same seed leaves the same.
        let mut again = ram(Some(1 << 20));
        for version in 1..4 {
            again.write(4, &[version; 4 * BLOCK], false).unwrap();
        }
        again.power_cut(seed).unwrap();
        assert_eq!(
            blocks,
            (4..8).map(|lba| block(&again, lba)).collect::<Vec<_>>()
        );
    }
    assert!(seen.iter().all(|&version| version) && torn);
}

/// Beyond its capacity the cache writes its oldest contents back, and a second cut takes nothing.
#[test]
fn the_cache_is_bounded() {
    for seed in 0..64 {
        let mut media = ram(Some(4 * (BLOCK + 64)));
        for lba in 0..8 {
            put(&mut media, lba, 9, false);
        }
        assert!(media.power_cut(seed).unwrap().at_risk <= 4);
        assert!((0..4).all(|lba| block(&media, lba) == 9), "seed {seed}");
        assert_eq!(media.power_cut(seed).unwrap(), CutReport::default());
    }
}

/// What a power cut brings back of deallocated blocks is read back, and counts as used.
#[test]
fn deallocation_may_be_undone() {
    let mut undone = false;
    for seed in 0..64 {
        let mut media = ram(Some(1 << 20));
        media.write(0, &[8; 1 << 16], false).unwrap();
        media.flush().unwrap();
        media.zero(0, 128, true, false).unwrap();
        assert_eq!((media.used_blocks(), block(&media, 5)), (0, 0));
        let lost = media.power_cut(seed).unwrap().lost;
        let back = (0..128).filter(|&lba| block(&media, lba) == 8).count();
        assert_eq!(back as u64, lost, "seed {seed}");
        assert_eq!(media.used_blocks() > 0, lost > 0);
        undone |= lost > 0;
    }
    assert!(undone);
}

/// Without a cache, or with it turned off, everything is durable at once.
#[test]
fn no_cache_loses_nothing() {
    for seed in 0..32 {
        let mut without = ram(None);
        put(&mut without, 0, 1, false);
        assert_eq!(without.power_cut(seed).unwrap(), CutReport::default());
        let mut off = ram(Some(1 << 20));
        put(&mut off, 1, 4, false);
        off.set_cache_enabled(false).unwrap();
        put(&mut off, 0, 1, false);
        off.power_cut(seed).unwrap();
        assert_eq!(
            (block(&without, 0), block(&off, 0), block(&off, 1)),
            (1, 1, 4)
        );
    }
}

/// Use is counted in chunks: nothing at first, up with writes, down with deallocation.
#[test]
fn usage_follows_writes() {
    let mut media = ram(None);
    assert_eq!(media.used_blocks(), 0);
    put(&mut media, 0, 1, false);
    put(&mut media, 127, 1, false);
    assert_eq!(media.used_blocks(), 128);
    media.zero(0, 2048, true, false).unwrap();
    assert_eq!(
        (media.used_blocks(), block(&media, 0), block(&media, 127)),
        (0, 0, 0)
    );
}

/// Zeroing hits exactly its blocks, whether in memory or in a file, over pages and their edges.
#[test]
fn zeroing_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let file = Store::file(&dir.path().join("disk"), Some(1 << 20)).unwrap();
    for store in [Store::ram(1 << 20).unwrap(), file] {
        let mut media = Media::new(store, 512, None).unwrap();
        for deallocate in [false, true] {
            media.write(0, &vec![7; 1 << 20], false).unwrap();
            media.zero(3, 1500, deallocate, true).unwrap();
            for lba in 0..2048 {
                let expected = if (3..1503).contains(&lba) { 0 } else { 7 };
                assert_eq!(block(&media, lba), expected, "block {lba}");
            }
        }
    }
}

/// A file keeps its contents and its use over reopening, sparse parts unused.
#[test]
fn a_file_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    assert!(Store::file(&path, None).is_err());
    let store = Store::file(&path, Some(8 << 20)).unwrap();
    let mut media = Media::new(store, 4096, Some(1 << 20)).unwrap();
    media.write(256, &[5; 4096], false).unwrap();
    media.flush().unwrap();
    drop(media);
    let media = Media::new(Store::file(&path, None).unwrap(), 4096, None).unwrap();
    assert_eq!(media.blocks(), 2048);
    assert!(
        (1..=32).contains(&media.used_blocks()),
        "{}",
        media.used_blocks()
    );
    let mut data = [0; 4096];
    media.read(256, &mut data).unwrap();
    assert_eq!(data, [5; 4096]);
    assert!(media.compare_spans(256, &[Span::source(&data)]).unwrap());
    data[4095] = 6;
    assert!(!media.compare_spans(256, &[Span::source(&data)]).unwrap());
}

/// A file with contents is opened at its own length alone: another one is refused, names both, and
/// leaves the file as it was. An empty file is made as long as asked.
#[test]
fn a_file_with_contents_is_not_resized() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let contents: Vec<u8> = (0..1_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    std::fs::write(&path, &contents).unwrap();
    for len in [1, 512 << 10, (1 << 20) + 1, 8 << 20] {
        let error = Store::file(&path, Some(len)).unwrap_err();
        assert!(matches!(error, StoreError::Length { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("1048576"), "{text}");
        assert!(text.contains(&len.to_string()), "{text}");
        assert!(std::fs::read(&path).unwrap() == contents, "{len}");
    }
    for len in [None, Some(1 << 20)] {
        assert_eq!(Store::file(&path, len).unwrap().len(), 1 << 20);
        assert!(std::fs::read(&path).unwrap() == contents, "{len:?}");
    }
    std::fs::write(&path, []).unwrap();
    assert_eq!(Store::file(&path, Some(4096)).unwrap().len(), 4096);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
}

/// What is not whole blocks inside the media is refused, at the extremes of the numbers too.
#[test]
fn ranges_are_checked() {
    let mut media = ram(Some(1 << 16));
    assert!(media.write(2048, &[0; BLOCK], false).is_err());
    assert!(media.write(u64::MAX, &[0; BLOCK], false).is_err());
    assert!(media.write(0, &[0; 100], false).is_err());
    assert!(media.zero(1, 2048, true, false).is_err());
    assert!(media.zero(0, u64::MAX, true, false).is_err());
    assert!(media.zero(0, 1 << 60, true, false).is_err());
    assert!(media.write(2047, &[0; BLOCK], false).is_ok());
    assert!(Media::new(Store::null(511), 512, None).is_err());
    assert!(Media::new(Store::null(4096), 768, None).is_err());
}
