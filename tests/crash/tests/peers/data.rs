//! Reads and writes: sparse files, appends, direct I/O, the end of a file.

use crate::common::{BLOCK, Outcome, READ, RW, Volume, on_each_kind, pattern};
use blockfs::fs::FsError;
use std::collections::BTreeMap;

/// A sparse file that is cut and written at random places reads, after each step, as what was written
/// and zeros between.
#[test]
fn generic_014_a_file_cut_at_random() -> Outcome {
    on_each_kind(4 << 20, |mut volume, _| {
        let file = volume.file("/f")?;
        let mut rng = fastrand::Rng::with_seed(14);
        let mut expected = Vec::new();
        for turn in 0..150 {
            let at = rng.u64(0..300_000);
            if rng.bool() {
                volume.io.truncate(&file, at)?;
                expected.resize(usize::try_from(at)?, 0);
            } else {
                let data = pattern(turn, at, 512);
                volume.io.write(&file, at, &data)?;
                let at = usize::try_from(at)?;
                expected.resize(expected.len().max(at + 512), 0);
                expected[at..at + 512].copy_from_slice(&data);
            }
            assert!(volume.contents(&file)? == expected, "turn {turn}");
        }
        Ok(())
    })
}

/// Threads that append to one file lose nothing, and no piece is torn by another's.
#[test]
fn generic_069_appends_from_several_threads() -> Outcome {
    const THREADS: u8 = 3;
    const PIECES: u16 = 150;
    let mut volume = Volume::new(4 << 20, 512, true)?;
    let file = volume.file("/log")?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (fs, io) = (&volume.fs, volume.other_io());
                scope.spawn(move || {
                    let mut io = io?;
                    let log = fs.open("/log", RW.append(true))?;
                    let mut rng = fastrand::Rng::with_seed(u64::from(thread));
                    for piece in 0..PIECES {
                        let len = rng.u16(5..700);
                        let mut data = vec![thread; usize::from(len)];
                        data[1..3].copy_from_slice(&piece.to_le_bytes());
                        data[3..5].copy_from_slice(&len.to_le_bytes());
                        io.write(&log, 0, &data)?;
                    }
                    Outcome::Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a panic")??;
        }
        Outcome::Ok(())
    })?;
    let data = volume.contents(&file)?;
    let mut next = BTreeMap::new();
    let mut rest = &data[..];
    while let [thread, p0, p1, l0, l1, ..] = *rest {
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        let piece = u16::from_le_bytes([p0, p1]);
        let expected = next.entry(thread).or_insert(0);
        assert_eq!(piece, *expected, "of thread {thread}");
        *expected += 1;
        assert!(rest[5..len].iter().all(|&byte| byte == thread));
        rest = &rest[len..];
    }
    assert!(rest.is_empty());
    assert_eq!(next, (0..THREADS).map(|t| (t, PIECES)).collect());
    Ok(())
}

/// Direct I/O in logical blocks, at random places and with sizes set between: every byte is right, and
/// what is no whole logical blocks is refused and changes nothing.
#[test]
fn generic_091_direct_io_at_random() -> Outcome {
    on_each_kind(4 << 20, |mut volume, lba| {
        let file = volume.fs.open("/f", RW.direct(true))?;
        let mut rng = fastrand::Rng::with_seed(91);
        let mut expected: Vec<u8> = Vec::new();
        for turn in 0..400u32 {
            let at = rng.u64(0..200_000 / lba) * lba;
            let len = rng.u64(1..=32_768 / lba) * lba;
            let (from, to) = (usize::try_from(at)?, usize::try_from(at + len)?);
            match rng.u32(0..10) {
                0 => {
                    let size = rng.u64(0..200_000 / lba) * lba;
                    volume.io.truncate(&file, size)?;
                    expected.resize(usize::try_from(size)?, 0);
                }
                1..5 => {
                    let data = pattern(turn, at, len);
                    volume.io.write(&file, at, &data)?;
                    expected.resize(expected.len().max(to), 0);
                    expected[from..to].copy_from_slice(&data);
                }
                5 => {
                    let (at, len) = match rng.bool() {
                        true => (at + 1, len),
                        false => (at, len - 1),
                    };
                    let refused = volume.io.write(&file, at, &pattern(turn, at, len));
                    assert!(matches!(refused, Err(FsError::Alignment { .. })));
                    let mut buf = vec![0; usize::try_from(len)?];
                    let refused = volume.io.read(&file, at, &mut buf);
                    assert!(matches!(refused, Err(FsError::Alignment { .. })));
                }
                _ => {
                    let mut found = vec![1; to - from];
                    let read = volume.io.read(&file, at, &mut found)?;
                    let end = expected.len().min(to);
                    assert!(found[..read] == *expected.get(from..end).unwrap_or(&[]));
                }
            }
        }
        assert!(volume.contents(&volume.file("/f")?)? == expected);
        Ok(())
    })
}

/// Reads that begin before, at and behind the end of a file end there: as many bytes as there are, of
/// a file that ends anywhere in a block, that was cut, and that ends in a hole.
#[test]
fn generic_450_reads_around_the_end() -> Outcome {
    on_each_kind(2 << 20, |mut volume, lba| {
        for size in [
            1,
            lba - 1,
            lba,
            lba + 1,
            BLOCK,
            BLOCK + 1,
            3 * BLOCK - 1,
            3 * BLOCK,
        ] {
            for kind in 0..3 {
                let path = format!("/{kind}-{size}");
                let file = volume.file(&path)?;
                let direct = volume.fs.open(&path, READ.direct(true))?;
                let mut expected = pattern(kind, 0, size);
                match kind {
                    0 => volume.io.write(&file, 0, &expected)?,
                    1 => {
                        volume.io.write(&file, 0, &pattern(kind, 0, size + 5000))?;
                        volume.io.truncate(&file, size)?;
                    }
                    _ => {
                        volume.io.truncate(&file, size)?;
                        expected.fill(0);
                    }
                }
                let near = [0, 1, lba - 1, lba, lba + 1];
                let starts = near
                    .iter()
                    .flat_map(|d| [size.saturating_sub(*d), size + d]);
                for at in starts.chain([0, 1 << 40]) {
                    for len in [1, lba, 2 * lba, BLOCK, 2 * BLOCK + 7] {
                        let mut buf = volume.domain.alloc(usize::try_from(len)?)?;
                        buf.fill(0xee);
                        let aligned = (at | len).is_multiple_of(lba);
                        let handle = if aligned { &direct } else { &file };
                        let (buf, read) = volume.io.read_dma(handle, at, buf)?;
                        assert_eq!(read, len.min(size.saturating_sub(at)), "{path} {at} {len}");
                        let mut found = vec![1; usize::try_from(len)?];
                        buf.read_at(0, &mut found)?;
                        let (head, tail) = found.split_at(usize::try_from(read)?);
                        let from = usize::try_from(at.min(size))?;
                        assert!(
                            head == &expected[from..from + head.len()],
                            "{path} {at} {len}"
                        );
                        assert!(tail.iter().all(|&byte| byte == 0), "{path} {at} {len}");
                    }
                }
            }
        }
        Ok(())
    })
}
