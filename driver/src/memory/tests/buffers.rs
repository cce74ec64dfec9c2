//! Buffers own their bytes alone.

use super::super::fake::FakeTarget;
use super::super::{DmaBuf, DmaDomain, MemoryError, PageKind};
use super::{LEN, held, registered};
use proptest::prelude::*;

/// Bytes written are the bytes read, at any offset, and accesses beyond the end do nothing.
#[test]
fn access_is_checked() {
    let domain = DmaDomain::new();
    let mut buf = domain.alloc(100).unwrap();
    buf.fill(7);
    buf.write_at(97, &[1, 2, 3]).unwrap();
    let mut tail = [0; 5];
    buf.read_at(95, &mut tail).unwrap();
    assert_eq!(tail, [7, 7, 1, 2, 3]);
    for offset in [96, 100, 101, usize::MAX] {
        let error = buf.read_at(offset, &mut tail).unwrap_err();
        assert!(
            matches!(
                error,
                MemoryError::OutOfBounds {
                    len: 5,
                    size: 100,
                    ..
                }
            ),
            "{error}"
        );
        assert!(buf.write_at(offset, &[9; 5]).is_err());
    }
    buf.read_at(95, &mut tail).unwrap();
    assert_eq!(tail, [7, 7, 1, 2, 3]);
    buf.read_at(100, &mut []).unwrap();
    assert_eq!((buf.len(), buf.len32(), buf.is_empty()), (100, 100, false));
    assert_eq!(buf.domain(), domain.id());
}

/// Its printed form has no contents.
#[test]
fn debug_shows_no_contents() {
    let text = format!("{:?}", DmaDomain::new().alloc(64).unwrap());
    assert!(text.contains("len: 64") && !text.contains("ptr"), "{text}");
}

/// What cannot be a buffer is refused with its own error.
#[test]
fn impossible_buffers_are_refused() {
    let domain = DmaDomain::new();
    let region = domain.region(LEN).unwrap();
    assert!(matches!(domain.alloc(0), Err(MemoryError::Empty)));
    assert!(matches!(domain.region(0), Err(MemoryError::Empty)));
    assert!(matches!(
        domain.alloc(1 << 32),
        Err(MemoryError::TooLarge { .. })
    ));
    let three = region.alloc_aligned(8, 3);
    assert!(matches!(
        three,
        Err(MemoryError::AlignNotPowerOfTwo { align: 3 })
    ));
    assert!(matches!(
        region.take(2, 4),
        Err(MemoryError::NotAligned { value: 2, .. })
    ));
    assert!(matches!(
        region.take(LEN - 4, 5),
        Err(MemoryError::OutOfBounds { .. })
    ));
    assert!(matches!(
        region.take(usize::MAX - 3, 4),
        Err(MemoryError::OutOfBounds { .. })
    ));
    assert!(matches!(region.take(0, 0), Err(MemoryError::Empty)));
    let taken = region.take(4096, 4).unwrap();
    assert_eq!(taken.iova(), region.iova() + 4096);
    assert!(matches!(
        region.take(4092, 8),
        Err(MemoryError::NotFree {
            offset: 4092,
            len: 8
        })
    ));
    assert!(matches!(
        region.alloc(LEN),
        Err(MemoryError::RegionFull { len: LEN, .. })
    ));
    drop(taken);
    assert!(region.alloc(LEN).is_ok());
    assert_eq!(region.domain(), domain.id());
    assert!(matches!(region.pages(), PageKind::Ordinary));
}

/// Memory of the caller that is no whole pages is refused.
#[test]
#[expect(unsafe_code, reason = "registering memory is unsafe")]
fn registration_is_by_pages() {
    let domain = DmaDomain::new();
    let (region, _alive) = registered(&domain, LEN);
    let mut buf = region.unwrap().alloc(LEN).unwrap();
    let base = buf.as_mut_ptr();
    for (offset, len) in [(512, 4096), (0, 4097), (0, 100), (0, 0)] {
        let memory = std::ptr::NonNull::new(base.wrapping_add(offset)).unwrap();
        // SAFETY: refused before anything is done with it.
        let error = unsafe { domain.register(memory, len, ()) }.unwrap_err();
        assert_eq!(matches!(error, MemoryError::Empty), len == 0, "{error}");
        assert_eq!(
            matches!(error, MemoryError::NotAligned { .. }),
            len != 0,
            "{error}"
        );
    }
}

/// Splitting parts the bytes between the two; an impossible split gives the buffer back.
#[test]
fn splitting() {
    let domain = DmaDomain::new();
    let region = domain.region(LEN).unwrap();
    let mut buf = region.alloc(LEN).unwrap();
    buf.write_at(8188, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    for (mid, empty) in [
        (0, true),
        (LEN, true),
        (LEN + 4, false),
        (6, false),
        (1 << 40, false),
    ] {
        let (back, error) = buf.split_at(mid).unwrap_err();
        assert_eq!(matches!(error, MemoryError::Empty), empty, "{error}");
        buf = back;
    }
    let (front, back) = buf.split_at(8192).unwrap();
    assert_eq!((front.len(), back.len()), (8192, LEN - 8192));
    assert_eq!(back.iova(), front.iova() + 8192);
    let (mut end, mut start) = ([0; 4], [0; 4]);
    front.read_at(8188, &mut end).unwrap();
    back.read_at(0, &mut start).unwrap();
    assert_eq!((end, start), ([1, 2, 3, 4], [5, 6, 7, 8]));
    drop(front);
    assert!(region.take(8192, 4).is_err());
    drop(back);
    assert!(region.take(0, LEN).is_ok());
}

/// Neighbours join to what they were split from; anything else comes back as it was, and nothing of
/// either is given back to the region meanwhile.
#[test]
fn joining() {
    let domain = DmaDomain::new();
    let (region, other) = (domain.region(LEN).unwrap(), domain.region(LEN).unwrap());
    let (front, rest) = region.alloc(LEN).unwrap().split_at(4096).unwrap();
    let (middle, back) = rest.split_at(4096).unwrap();
    let foreign = other.alloc(LEN).unwrap();
    let refused = |first: DmaBuf, second: DmaBuf| {
        let before = ((first.iova(), first.len()), (second.iova(), second.len()));
        let (first, second) = first.join(second).unwrap_err();
        let after = ((first.iova(), first.len()), (second.iova(), second.len()));
        assert_eq!(before, after);
        (first, second)
    };
    // Not behind, but further on; behind, but the wrong way round; of another region.
    let (front, back) = refused(front, back);
    let (middle, front) = refused(middle, front);
    let (back, foreign) = refused(back, foreign);
    drop(foreign);
    let whole = front.join(middle).unwrap().join(back).unwrap();
    assert_eq!((whole.iova(), whole.len()), (region.iova(), LEN));
    assert!(region.take(0, 4).is_err() && region.take(LEN - 4, 4).is_err());
    drop(whole);
    assert!(region.take(0, LEN).is_ok());
}

/// The memory lives as long as anything that can reach it, in whatever order things are dropped.
#[test]
fn any_order_of_dropping_is_fine() {
    for order in 0..24 {
        let domain = DmaDomain::new();
        let target = FakeTarget::shared();
        let attachment = domain.attach(target.clone()).unwrap();
        let (region, alive) = registered(&domain, LEN);
        let region = region.unwrap();
        let mut buf = region.alloc(4096).unwrap();
        let slab_buf = domain.alloc(64).unwrap();
        let mut parts: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(domain),
            Box::new(attachment),
            Box::new(region),
            Box::new(slab_buf),
        ];
        for pick in [order % 4, order / 4 % 3, order / 12 % 2, 0] {
            drop(parts.remove(pick));
            buf.fill(1);
            assert!(held(&alive));
        }
        drop(buf);
        assert!(!held(&alive));
        assert!(target.mapped().is_empty());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Alloc { len: usize, align_shift: u32 },
    Take { offset: usize, len: usize },
    Drop(usize),
    Split { which: usize, mid: usize },
    Join(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..3000_usize, 0..13_u32)
            .prop_map(|(len, align_shift)| Step::Alloc { len, align_shift }),
        1 => (0..LEN / 4, 1..3000_usize)
            .prop_map(|(dword, len)| Step::Take { offset: dword * 4, len }),
        3 => any::<usize>().prop_map(Step::Drop),
        1 => (any::<usize>(), 1..700_usize)
            .prop_map(|(which, dword)| Step::Split { which, mid: dword * 4 }),
        1 => any::<(usize, usize)>().prop_map(|(first, second)| Step::Join(first, second)),
    ];
    proptest::collection::vec(step, 1..150)
}

/// Marks a buffer as its owner's.
fn stamp(bufs: &mut Vec<(u8, DmaBuf)>, next: &mut u8, mut buf: DmaBuf) {
    *next = next.wrapping_add(1);
    buf.fill(*next);
    bufs.push((*next, buf));
}

proptest! {
    /// Whatever is allocated, taken, split, joined and dropped: live buffers never overlap, each keeps the
    /// bytes that its owner wrote, and in the end the whole region is free again.
    #[test]
    fn live_buffers_never_overlap(steps in steps()) {
        let region = DmaDomain::new().region(LEN).unwrap();
        let (mut bufs, mut next) = (Vec::new(), 0);
        for step in steps {
            match step {
                Step::Alloc { len, align_shift } => {
                    if let Ok(buf) = region.alloc_aligned(len, 1 << align_shift) {
                        prop_assert!(buf.iova().is_multiple_of(4_u64.max(1 << align_shift)));
                        stamp(&mut bufs, &mut next, buf);
                    }
                }
                Step::Take { offset, len } => {
                    if let Ok(buf) = region.take(offset, len) {
                        prop_assert_eq!(buf.iova(), region.iova() + offset as u64);
                        stamp(&mut bufs, &mut next, buf);
                    }
                }
                Step::Drop(_) | Step::Split { .. } if bufs.is_empty() => {}
                Step::Join(..) if bufs.len() < 2 => {}
                Step::Drop(which) => drop(bufs.swap_remove(which % bufs.len())),
                Step::Split { which, mid } => {
                    let (_, buf) = bufs.swap_remove(which % bufs.len());
                    match buf.split_at(mid) {
                        Ok((front, back)) => {
                            stamp(&mut bufs, &mut next, front);
                            stamp(&mut bufs, &mut next, back);
                        }
                        Err((buf, _)) => stamp(&mut bufs, &mut next, buf),
                    }
                }
                Step::Join(first, second) => {
                    let (_, first) = bufs.swap_remove(first % bufs.len());
                    let (_, second) = bufs.swap_remove(second % bufs.len());
                    let adjacent = first.iova() + first.len() as u64 == second.iova();
                    let joined = first.join(second);
                    prop_assert_eq!(joined.is_ok(), adjacent);
                    match joined {
                        Ok(buf) => stamp(&mut bufs, &mut next, buf),
                        Err((first, second)) => {
                            stamp(&mut bufs, &mut next, first);
                            stamp(&mut bufs, &mut next, second);
                        }
                    }
                }
            }
            for (stamp, buf) in &bufs {
                let mut bytes = vec![0; buf.len()];
                buf.read_at(0, &mut bytes).unwrap();
                prop_assert!(bytes.iter().all(|byte| byte == stamp));
            }
            let mut places: Vec<_> = bufs.iter().map(|(_, b)| (b.iova(), b.len())).collect();
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|two| two[0].0 + two[0].1 as u64 <= two[1].0));
            let end = region.iova() + LEN as u64;
            let inside = |&(iova, len): &(u64, usize)| iova >= region.iova() && iova + len as u64 <= end;
            prop_assert!(places.iter().all(inside));
        }
        drop(bufs);
        prop_assert!(region.take(0, LEN).is_ok());
    }
}

/// Four threads allocate, stamp, check, move and drop buffers of one domain while a controller
/// comes and goes; none sees another's bytes.
#[test]
fn threads_share_a_domain() {
    let domain = DmaDomain::new();
    let target = FakeTarget::shared();
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let domain = domain.clone();
            scope.spawn(move || {
                let mut bufs = std::collections::VecDeque::new();
                for round in 0..2000_usize {
                    let mut buf = domain.alloc(4 + (round * 977) % 20_000).unwrap();
                    buf.fill(thread);
                    bufs.push_back(buf);
                    if bufs.len() > 40 {
                        let buf = bufs.pop_front().unwrap();
                        let mut bytes = vec![0; buf.len()];
                        buf.read_at(0, &mut bytes).unwrap();
                        assert!(bytes.iter().all(|&byte| byte == thread));
                    }
                }
            });
        }
        for _ in 0..200 {
            drop(domain.attach(target.clone()).unwrap());
            drop(domain.region(LEN).unwrap());
        }
    });
    assert!(target.mapped().is_empty());
    assert_eq!(domain.stats().parked_bytes, 0);
}
