//! Reserved, punched and zeroed ranges; where data and holes are; space that runs out.

use crate::common::{BLOCK, Outcome, RW, Volume, errno, on_each_kind, pattern};
use blockfs::fs::{File, FsError};
use blockfs::tree::Fallocate;

const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const ENXIO: i32 = 6;

/// The extents of a file as (first block, blocks, written), neighbours of one kind as one.
fn layout(volume: &Volume, file: &File) -> Outcome<Vec<(u64, u64, bool)>> {
    let mut layout: Vec<(u64, u64, bool)> = Vec::new();
    for extent in volume.fs.fiemap(file, 0, u64::MAX)? {
        let (at, len) = (u64::from(extent.lblk), u64::from(extent.len));
        match layout.last_mut() {
            Some((from, blocks, written))
                if *from + *blocks == at && *written != extent.unwritten =>
            {
                *blocks += len;
            }
            _ => layout.push((at, len, !extent.unwritten)),
        }
    }
    Ok(layout)
}

/// Does `change` to a file of ten written blocks, mounts again, and compares: what `zeroed` says reads
/// as zeros, the rest as it was.
fn on_written(
    change: impl Fn(&mut Volume, &File) -> Outcome,
    zeroed: std::ops::Range<usize>,
    expected: &[(u64, u64, bool)],
    size: u64,
) -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let file = volume.file("/f")?;
        let mut data = pattern(1, 0, 10 * BLOCK);
        volume.io.write(&file, 0, &data)?;
        change(&mut volume, &file)?;
        data.resize(usize::try_from(size)?, 0);
        data[zeroed.clone()].fill(0);
        assert!(
            volume.contents(&file)? == data,
            "before it was mounted again"
        );
        assert_eq!(layout(&volume, &file)?, expected);
        drop(file);
        let mut volume = volume.remount()?;
        let file = volume.file("/f")?;
        assert!(volume.contents(&file)? == data);
        assert_eq!(layout(&volume, &file)?, expected);
        Ok(())
    })
}

/// Zeroing a range that ends in blocks zeroes these bytes and no others; whole blocks stay reserved,
/// also behind the end, and the file grows only if it was asked to.
#[test]
fn generic_008_zeroing_to_the_byte() -> Outcome {
    on_written(
        |volume, file| Ok(volume.io.fallocate(file, Fallocate::Zero, 6000, 10_000)?),
        6000..16_000,
        &[(0, 2, true), (2, 1, false), (3, 7, true)],
        10 * BLOCK,
    )?;
    on_written(
        |volume, file| Ok(volume.io.fallocate(file, Fallocate::Zero, 100, 200)?),
        100..300,
        &[(0, 10, true)],
        10 * BLOCK,
    )?;
    on_written(
        |volume, file| {
            let (at, len) = (9 * BLOCK + 5, 3 * BLOCK);
            Ok(volume.io.fallocate(file, Fallocate::Zero, at, len)?)
        },
        36_869..40_960,
        &[(0, 10, true), (10, 3, false)],
        12 * BLOCK + 5,
    )?;
    on_written(
        |volume, file| {
            let (at, len) = (9 * BLOCK, 3 * BLOCK);
            Ok(volume
                .io
                .fallocate(file, Fallocate::ZeroKeepSize, at, len)?)
        },
        36_864..40_960,
        &[(0, 9, true), (9, 3, false)],
        10 * BLOCK,
    )
}

/// A volume that is full says so, keeps what is on it, and has all its space again when the file is
/// gone.
#[test]
fn generic_015_a_full_volume() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let (free, fs) = (volume.free()?, volume.fs.clone());
        for turn in 0..3 {
            let file = fs.open("/big", RW)?;
            let mut size = 0;
            let full = loop {
                let data = pattern(turn, size, 10_000);
                match volume.io.write(&file, size, &data) {
                    Ok(()) => size += 10_000,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.errno(), ENOSPC);
            assert!(
                size > (free - 10) * BLOCK - 10_000,
                "{size} bytes of {free} blocks"
            );
            assert_eq!(fs.fstat(&file)?.size, size);
            assert!(volume.contents(&file)? == pattern(turn, 0, size));
            // Names, overwriting and freeing still work.
            drop(fs.open("/other", RW)?);
            volume.io.write(&file, 0, &pattern(turn, 0, 8192))?;
            volume.io.fsync(&file)?;
            fs.unlink("/other")?;
            fs.unlink("/big")?;
            drop(file);
            assert_eq!(volume.free()?, free);
        }
        drop(fs);
        volume.remount().map(drop)
    })
}

/// Files that grow from several threads until nothing is left fail cleanly, and nothing is lost or
/// hangs, again and again.
#[test]
fn generic_027_running_out_in_parallel() -> Outcome {
    let mut volume = Volume::new(2 << 20, 4096, true)?;
    let free = volume.free()?;
    for turn in 0..3 {
        let sizes = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3u32)
                .map(|thread| {
                    let (fs, io) = (&volume.fs, volume.other_io());
                    scope.spawn(move || {
                        let mut io = io?;
                        let mut sizes = Vec::new();
                        for nth in 0..4 {
                            let file = fs.open(format!("/f{thread}-{nth}"), RW)?;
                            let mut size = 0;
                            while size < 300_000 {
                                match io.write(&file, size, &pattern(thread, size, 3000)) {
                                    Ok(()) => size += 3000,
                                    Err(FsError::NoSpace { .. }) => break,
                                    Err(error) => return Err(error.into()),
                                }
                            }
                            sizes.push((thread, nth, size));
                        }
                        Outcome::Ok(sizes)
                    })
                })
                .collect();
            let mut all = Vec::new();
            for thread in threads {
                all.extend(thread.join().map_err(|_| "a panic")??);
            }
            Outcome::Ok(all)
        })?;
        assert!(volume.fs.statfs().free_blocks < 16, "it was full");
        for (thread, nth, size) in sizes {
            let path = format!("/f{thread}-{nth}");
            let file = volume.file(&path)?;
            assert!(
                volume.contents(&file)? == pattern(thread, 0, size),
                "{path}"
            );
            drop(file);
            volume.fs.unlink(path)?;
        }
        assert_eq!(volume.free()?, free, "turn {turn}");
    }
    volume.remount().map(drop)
}

/// A reservation that does not fit fails and takes nothing; what fits afterwards still does, and ends
/// where it was asked to.
#[test]
fn generic_213_reserving_more_than_there_is() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let free = volume.free()?;
        let file = volume.file("/f")?;
        for mode in [
            Fallocate::Reserve,
            Fallocate::ReserveKeepSize,
            Fallocate::Zero,
        ] {
            let len = (free + 1) * BLOCK;
            assert_eq!(errno(volume.io.fallocate(&file, mode, 0, len)), ENOSPC);
            let stat = volume.fs.fstat(&file)?;
            assert_eq!((stat.size, stat.blocks), (0, 0));
            assert_eq!(volume.free()?, free);
        }
        for (at, len, error) in [(0, 0, EINVAL), (u64::MAX, 1, EFBIG), (1 << 44, 4096, EFBIG)] {
            let done = volume.io.fallocate(&file, Fallocate::Reserve, at, len);
            assert_eq!(errno(done), error, "{at} {len}");
        }
        volume.io.fallocate(&file, Fallocate::Reserve, 0, 100_001)?;
        let stat = volume.fs.fstat(&file)?;
        assert_eq!((stat.size, stat.blocks), (100_001, 25));
        assert!(volume.contents(&file)?.iter().all(|&byte| byte == 0));
        assert_eq!(volume.free()?, free - 25);
        Ok(())
    })
}

/// Reserved blocks read as zeros; what is written into them, at their start, end, and in the middle, to
/// the byte, makes nothing else appear.
#[test]
fn generic_214_writing_into_reserved_blocks() -> Outcome {
    for (at, len) in [
        (0, 512),
        (0, 4096),
        (5000, 100),
        (4096, 8192),
        (20_000, 480),
        (16_384, 4096),
        (20_479, 1),
        (18_000, 10_000),
    ] {
        on_each_kind(2 << 20, |mut volume, _| {
            // So that the blocks are not zeros by chance.
            let old = volume.file("/old")?;
            volume.io.write(&old, 0, &pattern(9, 0, 1_000_000))?;
            drop(old);
            volume.fs.unlink("/old")?;
            volume.fs.sync()?;
            let file = volume.file("/f")?;
            volume.io.fallocate(&file, Fallocate::Reserve, 0, 20_480)?;
            assert!(volume.contents(&file)? == [0; 20_480]);
            let free = volume.fs.statfs().free_blocks;
            let data = pattern(1, at, len);
            volume.io.write(&file, at, &data)?;
            let mut expected = vec![0; usize::try_from(20_480.max(at + len))?];
            let from = usize::try_from(at)?;
            expected[from..from + data.len()].copy_from_slice(&data);
            assert!(volume.contents(&file)? == expected, "{at} {len}");
            if at + len <= 20_480 {
                assert_eq!(volume.fs.statfs().free_blocks, free, "it was reserved");
            }
            drop(file);
            let mut volume = volume.remount()?;
            let file = volume.file("/f")?;
            assert!(volume.contents(&file)? == expected, "{at} {len}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Punching frees whole blocks and zeroes the rest, in data, in reserved blocks, in holes, and behind
/// the end; the size stays.
#[test]
fn generic_255_punching_to_the_byte() -> Outcome {
    let punch = |at, len| {
        move |volume: &mut Volume, file: &File| {
            Ok(volume.io.fallocate(file, Fallocate::Punch, at, len)?)
        }
    };
    let size = 10 * BLOCK;
    let holes = [(0, 2, true), (4, 6, true)];
    on_written(punch(2 * BLOCK, 2 * BLOCK), 8192..16_384, &holes, size)?;
    on_written(punch(8191, 8194), 8191..16_385, &holes, size)?;
    on_written(punch(1, 4094), 1..4095, &[(0, 10, true)], size)?;
    on_written(punch(4095, 2), 4095..4097, &[(0, 10, true)], size)?;
    on_written(punch(0, 4096), 0..4096, &[(1, 9, true)], size)?;
    on_written(punch(0, 1 << 43), 0..40_960, &[], size)?;
    on_written(
        punch(9 * BLOCK, 1 << 30),
        36_864..40_960,
        &[(0, 9, true)],
        size,
    )?;
    on_written(punch(size, BLOCK), 0..0, &[(0, 10, true)], size)?;
    on_written(
        |volume, file| {
            let io = &mut volume.io;
            io.fallocate(file, Fallocate::ReserveKeepSize, 10 * BLOCK, 4 * BLOCK)?;
            Ok(io.fallocate(file, Fallocate::Punch, 11 * BLOCK, 2 * BLOCK)?)
        },
        0..0,
        &[(0, 10, true), (10, 1, false), (13, 1, false)],
        size,
    )
}

/// Where data and holes are, for every kind of file: empty, only a hole, data at either end, reserved.
#[test]
fn generic_285_finding_data_and_holes() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let empty = volume.file("/empty")?;
        assert_eq!(errno(volume.fs.seek_data(&empty, 0)), ENXIO);
        assert_eq!(errno(volume.fs.seek_hole(&empty, 0)), ENXIO);
        let file = volume.file("/f")?;
        volume.io.truncate(&file, 40_000)?;
        assert_eq!(errno(volume.fs.seek_data(&file, 0)), ENXIO);
        assert_eq!(volume.fs.seek_hole(&file, 39_999)?, 39_999);
        assert_eq!(errno(volume.fs.seek_hole(&file, 40_000)), ENXIO);
        // Blocks 2 and 9 written, 5 reserved: the end is in block 9.
        volume.io.write(&file, 2 * BLOCK + 100, b"data")?;
        volume.io.write(&file, 39_000, b"data")?;
        volume
            .io
            .fallocate(&file, Fallocate::Reserve, 5 * BLOCK, BLOCK)?;
        for (from, data, hole) in [
            (0, 8192, 0),
            (8191, 8192, 8191),
            (8192, 8192, 12_288),
            (10_000, 10_000, 12_288),
            (12_287, 12_287, 12_288),
            (12_288, 36_864, 12_288),
            (5 * BLOCK + 1, 36_864, 5 * BLOCK + 1),
            (36_863, 36_864, 36_863),
            (36_864, 36_864, 40_000),
            (39_999, 39_999, 40_000),
        ] {
            assert_eq!(volume.fs.seek_data(&file, from)?, data, "from {from}");
            assert_eq!(volume.fs.seek_hole(&file, from)?, hole, "from {from}");
        }
        for behind in [40_000, 40_001, u64::MAX] {
            assert_eq!(errno(volume.fs.seek_data(&file, behind)), ENXIO);
            assert_eq!(errno(volume.fs.seek_hole(&file, behind)), ENXIO);
        }
        Ok(())
    })
}

/// A reservation takes every block that it touches, so that a write into any of them needs no space
/// when none is left.
#[test]
fn generic_568_reserving_what_is_touched() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let file = volume.file("/f")?;
        let (at, len) = (BLOCK - 1, BLOCK + 2);
        volume.io.fallocate(&file, Fallocate::Reserve, at, len)?;
        assert_eq!(volume.fs.fstat(&file)?.blocks, 3);
        let filler = volume.file("/filler")?;
        let mut size = 0;
        while volume
            .io
            .write(&filler, size, &pattern(1, size, BLOCK))
            .is_ok()
        {
            size += BLOCK;
        }
        volume.io.write(&file, at, &pattern(2, at, len))?;
        volume.io.write(&file, 0, &pattern(2, 0, at))?;
        volume.io.fsync(&file)?;
        assert!(volume.contents(&file)? == pattern(2, 0, at + len));
        let more = volume.io.write(&file, 3 * BLOCK, &pattern(2, 0, 1));
        assert_eq!(errno(more), ENOSPC);
        Ok(())
    })
}

/// Data that begin or end within a block are found from the block's start, whatever the place that the
/// search begins at; a file's last hole ends with the file.
#[test]
fn generic_706_searching_from_within() -> Outcome {
    on_each_kind(2 << 20, |mut volume, _| {
        let file = volume.file("/f")?;
        // One byte, then a hole, up to an end within a block.
        volume.io.write(&file, 1, &[7])?;
        volume.io.truncate(&file, 3 * BLOCK + 1)?;
        for from in [0, 1, 2, 4095] {
            assert_eq!(volume.fs.seek_data(&file, from)?, from);
            assert_eq!(volume.fs.seek_hole(&file, from)?, BLOCK);
        }
        for from in [BLOCK, BLOCK + 1, 3 * BLOCK] {
            assert_eq!(errno(volume.fs.seek_data(&file, from)), ENXIO);
            assert_eq!(volume.fs.seek_hole(&file, from)?, from);
        }
        // A byte in the last block.
        volume.io.write(&file, 3 * BLOCK, &[7])?;
        assert_eq!(volume.fs.seek_data(&file, BLOCK + 1)?, 3 * BLOCK);
        assert_eq!(volume.fs.seek_hole(&file, 3 * BLOCK)?, 3 * BLOCK + 1);
        Ok(())
    })
}
