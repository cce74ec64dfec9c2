//! Operations that are in flight together, on several queues, in any order that a seed gives.

use crate::common::{BLOCK, Lanes, Outcome, RW, Volume, bytes_of, on_each_kind, pattern};
use blockfs::fs::File;
use blockfs::tree::Fallocate;

/// Random reads and writes of ranges beside each other, aligned or not, many in flight: reads find what
/// was there before, and afterwards the file is what all of them make together.
#[test]
fn generic_112_random_operations_in_flight() -> Outcome {
    const SIZE: u64 = 48 << 10;
    on_each_kind(2 << 20, |mut volume, lba| {
        let file = volume.file("/f")?;
        let mut lanes = volume.lanes(3, lba)?;
        let mut expected = Vec::new();
        for turn in 0..80u32 {
            let (before, mut at) = (expected.clone(), 0);
            let (mut writes, mut reads) = (Vec::new(), Vec::new());
            while at < SIZE {
                let len = match lanes.rng.u32(0..4) {
                    0 => lanes.rng.u64(1..3000),
                    1 => lba,
                    _ => (at / BLOCK + lanes.rng.u64(1..3)) * BLOCK - at,
                };
                let len = len.min(SIZE - at);
                let lane = lanes.rng.usize(0..3);
                match lanes.rng.u32(0..4) {
                    0 => {
                        let n =
                            lanes.read(lane, &volume.domain, &file, at, usize::try_from(len)?)?;
                        reads.push((n, at));
                    }
                    1 => {
                        let data = pattern(turn, at, len);
                        writes.push(lanes.write(lane, &volume.domain, &file, at, &data)?);
                        put(&mut expected, at, &data);
                    }
                    _ => {}
                }
                if lanes.rng.bool() {
                    lanes.poll();
                }
                at += len;
            }
            for number in writes {
                lanes.finish(number)?;
            }
            for (number, at) in reads {
                let found = lanes.found(number)?;
                let from = usize::try_from(at)?;
                let old = before
                    .iter()
                    .copied()
                    .skip(from)
                    .chain(std::iter::repeat(0));
                assert!(
                    found.iter().copied().eq(old.take(found.len())),
                    "turn {turn}"
                );
            }
            assert!(volume.contents(&file)? == expected, "turn {turn}");
            match lanes.rng.u64(0..6) {
                0 => {
                    let size = lanes.rng.u64(0..SIZE);
                    volume.io.truncate(&file, size)?;
                    expected.resize(usize::try_from(size)?, 0);
                }
                1 => {
                    let at = lanes.rng.u64(0..SIZE);
                    volume.io.fallocate(&file, Fallocate::Punch, at, 9000)?;
                    let end = expected.len().min(usize::try_from(at)? + 9000);
                    let hole = expected.get_mut(usize::try_from(at)?..end);
                    hole.unwrap_or_default().fill(0);
                }
                _ => {}
            }
        }
        Ok(())
    })
}

fn put(expected: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = crash::model::small(at);
    expected.resize(expected.len().max(at + data.len()), 0);
    expected[at..at + data.len()].copy_from_slice(data);
}

/// Extends a file step by step, with gaps or without; reads race with every step, and find nothing but
/// what was written, and zeros in the gaps.
fn grow_and_read(
    volume: &Volume,
    lba: u64,
    file: &File,
    lens: impl Fn(&mut Lanes) -> (u64, u64),
) -> Outcome {
    let mut lanes = volume.lanes(3, lba)?;
    let mut expected = Vec::new();
    for turn in 0..200u32 {
        let (gap, len) = lens(&mut lanes);
        let at = expected.len() as u64 + gap;
        let data = pattern(turn, at, len);
        let mut reads = Vec::new();
        let writing = lanes.write(0, &volume.domain, file, at, &data)?;
        let old = expected.len() as u64;
        put(&mut expected, at, &data);
        for _ in 0..4 {
            for _ in 0..lanes.rng.u32(0..12) {
                lanes.poll();
            }
            let back = lanes.rng.u64(0..2 * BLOCK) / lba * lba;
            let from = old.saturating_sub(back) / lba * lba;
            let lane = lanes.rng.usize(1..3);
            let number = lanes.read(lane, &volume.domain, file, from, 12_288)?;
            reads.push((number, from));
        }
        lanes.finish(writing)?;
        for (number, from) in reads {
            let found = lanes.found(number)?;
            let from = usize::try_from(from)?;
            assert!(
                found.len() + from >= usize::try_from(old)?,
                "turn {turn}: shorter than it was"
            );
            assert!(expected[from..from + found.len()] == found, "turn {turn}");
        }
        let size = volume.fs.fstat(file)?.size;
        assert_eq!(size, expected.len() as u64);
    }
    Ok(())
}

/// Reads race with writes that extend a file by any number of bytes.
#[test]
fn generic_114_reads_race_with_growth() -> Outcome {
    on_each_kind(4 << 20, |volume, lba| {
        let file = volume.file("/f")?;
        grow_and_read(&volume, lba, &file, |lanes| {
            let gap = if lanes.rng.u32(0..4) == 0 {
                lanes.rng.u64(0..9000)
            } else {
                0
            };
            (gap, lanes.rng.u64(1..6000))
        })
    })
}

/// Reads race with direct appends of whole logical blocks.
#[test]
fn generic_465_reads_race_with_direct_appends() -> Outcome {
    on_each_kind(4 << 20, |volume, lba| {
        let file = volume.fs.open("/f", RW.append(true).direct(true))?;
        grow_and_read(&volume, lba, &file, |lanes| (0, lanes.rng.u64(1..4) * lba))
    })
}

/// Two writers of neighbouring ranges that share logical blocks, and a reader, on one file: each byte
/// that is read is of a write that had ended last or was under way.
#[test]
fn generic_133_writers_and_readers_of_one_file() -> Outcome {
    const LEN: u64 = 3000;
    const REGIONS: usize = 12;
    on_each_kind(2 << 20, |mut volume, lba| {
        let file = volume.file("/f")?;
        let mut lanes = volume.lanes(3, lba)?;
        // Of each region, the last write that has ended, and the one under way.
        let mut ended = [0u32; REGIONS];
        let mut under_way: [Option<(u64, u32)>; REGIONS] = [None; REGIONS];
        volume
            .io
            .write(&file, 0, &pattern(0, 0, LEN * REGIONS as u64))?;
        let mut reading: Option<(u64, usize, Vec<u32>)> = None;
        for fill in 1..1500u32 {
            let region = lanes.rng.usize(0..REGIONS);
            let at = region as u64 * LEN;
            if under_way[region].is_none() {
                let data = pattern(fill, at, LEN);
                let number = lanes.write(region % 2, &volume.domain, &file, at, &data)?;
                under_way[region] = Some((number, fill));
                if let Some((_, read, fills)) = &mut reading
                    && *read == region
                {
                    fills.push(fill);
                }
            }
            if reading.is_none() {
                let region = lanes.rng.usize(0..REGIONS);
                let (at, len) = (region as u64 * LEN, usize::try_from(LEN)?);
                let number = lanes.read(2, &volume.domain, &file, at, len)?;
                let fills = [Some(ended[region]), under_way[region].map(|w| w.1)];
                reading = Some((number, region, fills.into_iter().flatten().collect()));
            }
            lanes.poll();
            if let Some((number, region, fills)) = reading.take() {
                match lanes.take(number) {
                    None => reading = Some((number, region, fills)),
                    Some(done) => {
                        let found = bytes_of(done)?;
                        let at = region as u64 * LEN;
                        let known: Vec<_> = fills.iter().map(|&f| pattern(f, at, LEN)).collect();
                        let right = |nth| known.iter().any(|k: &Vec<u8>| k[nth] == found[nth]);
                        assert_eq!(found.len() as u64, LEN);
                        assert!((0..found.len()).all(right), "region {region}: {fills:?}");
                    }
                }
            }
            for region in 0..REGIONS {
                if let Some((number, fill)) = under_way[region]
                    && let Some(done) = lanes.take(number)
                {
                    assert_eq!(done.result?, LEN);
                    ended[region] = fill;
                    under_way[region] = None;
                }
            }
        }
        let mut expected = Vec::new();
        for region in 0..REGIONS {
            let mut fill = ended[region];
            if let Some((number, last)) = under_way[region] {
                lanes.finish(number)?;
                fill = last;
            }
            let at = region as u64 * LEN;
            put(&mut expected, at, &pattern(fill, at, LEN));
        }
        assert!(volume.contents(&file)? == expected);
        Ok(())
    })
}

/// Pieces of one block written at the same time, into a hole, into reserved blocks, over data, and at
/// the end of the file: none zeroes or restores what another wrote.
#[test]
fn generic_240_pieces_of_one_block_at_once() -> Outcome {
    on_each_kind(4 << 20, |mut volume, lba| {
        for (nth, piece) in [(0, 256), (1, 100), (2, 1000), (3, 512)] {
            for kind in 0..4u32 {
                let file = volume.file(&format!("/{nth}-{kind}"))?;
                let mut expected = vec![0; 8192];
                match kind {
                    0 => volume.io.truncate(&file, 8192)?,
                    1 => volume.io.fallocate(&file, Fallocate::Reserve, 0, 8192)?,
                    2 => {
                        expected = pattern(99, 0, 8192);
                        volume.io.write(&file, 0, &expected)?;
                    }
                    // Nothing is there: the file ends with the last piece.
                    _ => expected.clear(),
                }
                let mut lanes = volume.lanes(4, lba + nth + u64::from(kind))?;
                let mut starts: Vec<u64> = (0..8192 / piece).map(|n| n * piece).collect();
                lanes.rng.shuffle(&mut starts);
                let mut under_way = Vec::new();
                for at in starts {
                    // Some are left out.
                    if lanes.rng.u32(0..8) == 0 {
                        continue;
                    }
                    let (lane, data) = (lanes.rng.usize(0..4), pattern(kind, at, piece));
                    under_way.push(lanes.write(lane, &volume.domain, &file, at, &data)?);
                    put(&mut expected, at, &data);
                    if lanes.rng.u32(0..3) == 0 {
                        lanes.poll();
                    }
                }
                for number in under_way {
                    lanes.finish(number)?;
                }
                assert!(volume.contents(&file)? == expected, "{piece} kind {kind}");
            }
        }
        volume.remount().map(drop)
    })
}

/// While one part of a file is written and verified, another is reserved and zeroed, and its size goes
/// up and down behind both: the first part never shows it.
#[test]
fn generic_299_writing_beside_reserving_and_cutting() -> Outcome {
    const PART: u64 = 64 << 10;
    on_each_kind(4 << 20, |mut volume, lba| {
        let file = volume.file("/f")?;
        volume.io.write(&file, 0, &pattern(0, 0, PART))?;
        let mut lanes = volume.lanes(3, lba)?;
        let mut beside: Option<u64> = None;
        for turn in 1..250u32 {
            if beside.is_none() {
                let (at, len) = (PART + lanes.rng.u64(0..PART), lanes.rng.u64(1..30_000));
                let mode = match lanes.rng.u32(0..4) {
                    0 => Some(Fallocate::Reserve),
                    1 => Some(Fallocate::ZeroKeepSize),
                    2 => Some(Fallocate::Zero),
                    _ => None,
                };
                beside = Some(lanes.submit(1, |queue, n| match mode {
                    Some(mode) => queue.fallocate(&file, mode, at, len, n),
                    None => queue.truncate(&file, at, n),
                })?);
            }
            let len = lanes.rng.u64(1..=8) * lba;
            let at = lanes.rng.u64(0..=(PART - len) / lba) * lba;
            let data = pattern(turn, at, len);
            let writing = lanes.write(0, &volume.domain, &file, at, &data)?;
            lanes.finish(writing)?;
            let reading = lanes.read(2, &volume.domain, &file, at, data.len())?;
            assert!(lanes.found(reading)? == data, "turn {turn}");
            if let Some(done) = beside.and_then(|number| lanes.take(number)) {
                done.result?;
                beside = None;
            }
        }
        if let Some(number) = beside {
            lanes.finish(number)?;
        }
        drop(lanes);
        let rest = volume.contents(&file)?.split_off(usize::try_from(PART)?);
        assert!(rest.iter().all(|&byte| byte == 0));
        drop(file);
        volume.remount().map(drop)
    })
}

/// Writes, punches and reads of the same blocks, while another file takes what is freed: a logical
/// block reads as what was written there or as zeros, never as the other file's.
#[test]
fn generic_300_punching_what_is_read_and_written() -> Outcome {
    const BLOCKS: u64 = 16;
    on_each_kind(2 << 20, |volume, lba| {
        let (file, other) = (volume.file("/f")?, volume.file("/other")?);
        let mut lanes = volume.lanes(4, lba)?;
        let mut under_way: [Vec<u64>; 4] = [const { Vec::new() }; 4];
        let mut places = std::collections::BTreeMap::new();
        for turn in 0..3000u64 {
            let lane = lanes.rng.usize(0..4);
            if under_way[lane].len() < 3 {
                let block = lanes.rng.u64(0..BLOCKS);
                let (at, domain) = (block * BLOCK, &volume.domain);
                let number = match lane {
                    0 => lanes.write(0, domain, &file, at, &pattern(1, at, BLOCK))?,
                    1 => {
                        let len = lanes.rng.u64(1..3) * BLOCK;
                        let mode = Fallocate::Punch;
                        lanes.submit(1, |queue, n| queue.fallocate(&file, mode, at, len, n))?
                    }
                    2 if turn % 3 == 0 => {
                        lanes.submit(2, |queue, n| queue.truncate(&other, at, n))?
                    }
                    2 => lanes.write(2, domain, &other, at, &pattern(2, at, 2 * BLOCK))?,
                    _ => {
                        let number = lanes.read(3, domain, &file, at, 8192)?;
                        places.insert(number, at);
                        number
                    }
                };
                under_way[lane].push(number);
            }
            lanes.poll();
            for numbers in &mut under_way {
                let mut failed = None;
                numbers.retain(|&number| {
                    let Some(done) = lanes.take(number) else {
                        return true;
                    };
                    let checked = match places.remove(&number) {
                        Some(at) => bytes_of(done).and_then(|found| own(&found, at, lba)),
                        None => done.result.map(drop).map_err(Into::into),
                    };
                    failed = checked.err().or(failed.take());
                    false
                });
                if let Some(error) = failed {
                    return Err(format!("turn {turn}: {error}").into());
                }
            }
        }
        for number in under_way.into_iter().flatten() {
            lanes.finish(number)?;
        }
        drop((lanes, file, other));
        volume.remount().map(drop)
    })
}

/// That each logical block is what is written there, or zeros.
fn own(found: &[u8], at: u64, lba: u64) -> Outcome {
    let lba_bytes = usize::try_from(lba)?;
    for (nth, block) in found.chunks(lba_bytes).enumerate() {
        let at = at + nth as u64 * lba;
        let zeros = block.iter().all(|&byte| byte == 0);
        if !zeros && block != pattern(1, at, block.len() as u64) {
            return Err(format!("at {at}: {:x?}", &block[..8]).into());
        }
    }
    Ok(())
}

/// A file that has bytes has blocks: at no moment of a write, extending or into a hole, does it say 0.
#[test]
fn generic_615_blocks_are_counted_with_the_size() -> Outcome {
    on_each_kind(2 << 20, |volume, lba| {
        let mut lanes = volume.lanes(2, lba)?;
        for turn in 0..60u64 {
            let path = format!("/{turn}");
            let file = volume.file(&path)?;
            let (at, len) = (lanes.rng.u64(0..3) * 100, lanes.rng.u64(1..9000));
            let data = pattern(1, at, len);
            let mut left = vec![
                lanes.write(0, &volume.domain, &file, at, &data)?,
                lanes.write(1, &volume.domain, &file, at + len, &data)?,
            ];
            while !left.is_empty() {
                lanes.poll();
                let stat = volume.fs.fstat(&file)?;
                assert!(stat.size == 0 || stat.blocks > 0, "{stat:?}");
                let mut failed = None;
                left.retain(|&number| match lanes.take(number) {
                    None => true,
                    Some(done) => {
                        failed = done.result.err();
                        let stat = volume.fs.fstat(&file);
                        assert!(stat.is_ok_and(|stat| stat.blocks > 0));
                        false
                    }
                });
                if let Some(error) = failed {
                    return Err(error.into());
                }
            }
            drop(file);
            volume.fs.unlink(path)?;
        }
        Ok(())
    })
}
