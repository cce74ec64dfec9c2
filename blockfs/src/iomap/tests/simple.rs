//! The short path: its rule, S24, and that it answers as the iterator does.

use crate::iomap::{
    Begun, IomapIter, MapError, MapOps, Mapping, MappingFlags, MappingKind, OpFlags, Request,
    SimpleError, SimpleLimits, SimpleRead, read_simple,
};
use proptest::prelude::*;
use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Map(MapError),
    Busy,
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// A file as a list of mappings, sorted; what lies between them is a hole.
#[derive(Clone, Debug)]
struct File<const END: bool = false> {
    size: u64,
    extents: Vec<Mapping>,
    source: Option<Mapping>,
    /// Fails every look-up.
    busy: bool,
    begins: u32,
}

impl<const END: bool> File<END> {
    fn new(size: u64, extents: Vec<Mapping>) -> Self {
        Self {
            size,
            extents,
            source: None,
            busy: false,
            begins: 0,
        }
    }
}

impl<const END: bool> MapOps for File<END> {
    type Error = Failure;
    type Private = ();
    type Held = ();
    const HAS_END: bool = END;

    fn size(&self) -> u64 {
        self.size
    }

    fn begin(&mut self, request: Request) -> Result<Begun, Failure> {
        self.begins += 1;
        if self.busy {
            return Err(Failure::Busy);
        }
        let end = |m: &Mapping| m.offset().saturating_add(m.length());
        let found = self.extents.iter().find(|m| request.pos < end(m));
        let mapping = match found {
            Some(mapping) if mapping.offset() <= request.pos => *mapping,
            Some(next) => Mapping::hole(request.pos, next.offset() - request.pos),
            None => Mapping::hole(request.pos, u64::MAX - request.pos),
        };
        Ok(Begun {
            source: self.source,
            ..mapping.into()
        })
    }
}

/// Counts what is in flight.
struct Flight<'a>(&'a Cell<i32>);

impl<'a> Flight<'a> {
    fn take(count: &'a Cell<i32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn limits() -> SimpleLimits {
    SimpleLimits::new(512, 4096).unwrap()
}

/// What the short path says, as (address, cookie); checks that the flight count is as it should be.
fn simple<const END: bool>(
    file: &mut File<END>,
    (pos, len, op): (u64, u64, OpFlags),
) -> Result<(u64, u32), SimpleError<Failure>> {
    let in_flight = Cell::new(0);
    let answer = read_simple(file, Flight::take(&in_flight), limits(), pos, len, op);
    assert_eq!(
        in_flight.get(),
        i32::from(answer.is_ok()),
        "held with an answer, and only then"
    );
    let answer = answer.map(
        |SimpleRead {
             addr,
             cookie,
             flight,
         }| {
            drop(flight);
            (addr, cookie)
        },
    );
    assert_eq!(in_flight.get(), 0);
    answer
}

/// S24: what is simple, what is not and is found out before anything is done, and what is final.
#[test]
fn s24_read_simple() {
    let data = Mapping::mapped(1 << 20, 0, 16_384).with_cookie(3);
    let file = |size, extent| File::<false>::new(size, vec![extent]);
    let plain = file(16_384, data);
    let read = OpFlags::DIRECT;
    let not_simple = Err(SimpleError::NotSimple);
    let at = |offset: u64| Ok(((1 << 20) + offset, 3));
    // The file, the request, the answer, and how many look-ups that takes.
    let table = [
        (plain.clone(), (0, 4096, read), at(0), 1),
        (plain.clone(), (8192, 4096, read), at(8192), 1),
        (plain.clone(), (512, 512, read), at(512), 1),
        (plain.clone(), (3584, 4096, read), at(3584), 1),
        (plain.clone(), (12_288, 4096, OpFlags::READ), at(12_288), 1),
        (plain.clone(), (0, 4096, read | OpFlags::NOWAIT), at(0), 1),
        // Not eligible: nobody has been asked.
        (plain.clone(), (0, 0, read), not_simple, 0),
        (plain.clone(), (0, 4608, read), not_simple, 0),
        (plain.clone(), (0, u64::MAX, read), not_simple, 0),
        (plain.clone(), (100, 512, read), not_simple, 0),
        (plain.clone(), (512, 100, read), not_simple, 0),
        (plain.clone(), (16_384, 512, read), not_simple, 0),
        (plain.clone(), (15_872, 1024, read), not_simple, 0),
        (plain.clone(), (u64::MAX - 511, 512, read), not_simple, 0),
        (plain.clone(), (0, 512, OpFlags::WRITE), not_simple, 0),
        (plain.clone(), (0, 512, OpFlags::REPORT), not_simple, 0),
        // Not one mapped extent.
        (
            file(16_384, Mapping::mapped(0, 0, 2048)),
            (0, 4096, read),
            not_simple,
            1,
        ),
        (
            file(16_384, Mapping::unwritten(0, 0, 8192)),
            (0, 4096, read),
            not_simple,
            1,
        ),
        (
            file(16_384, Mapping::hole(0, 8192)),
            (0, 4096, read),
            not_simple,
            1,
        ),
        (
            File {
                source: Some(data),
                ..plain.clone()
            },
            (0, 4096, read),
            not_simple,
            1,
        ),
        // Errors are final.
        (
            File {
                busy: true,
                ..plain.clone()
            },
            (0, 4096, read),
            Err(SimpleError::Failed(Failure::Busy)),
            1,
        ),
    ];
    for (mut file, request, answer, begins) in table {
        assert_eq!(simple(&mut file, request), answer, "{file:?} {request:?}");
        assert_eq!(file.begins, begins, "{file:?} {request:?}");
    }
    let damaged = data.with_flags(MappingFlags::STALE);
    let answer = simple(&mut file(16_384, damaged), (0, 4096, read));
    assert!(matches!(
        answer,
        Err(SimpleError::Failed(Failure::Map(MapError::Corrupt { .. })))
    ));
    // Ops with an `end` are never simple.
    let mut with_end = File::<true>::new(16_384, vec![data]);
    assert_eq!(simple(&mut with_end, (0, 4096, read)), not_simple);
    assert_eq!(with_end.begins, 0);
    assert_eq!(SimpleLimits::new(500, 4096), None);
    assert_eq!(SimpleLimits::new(512, 0), None);
}

/// What the iterator says about a read: the pieces, each with kind, device address and length.
type Pieces = Vec<(MappingKind, Option<u64>, u64)>;

fn general(file: &mut File, (pos, len, op): (u64, u64, OpFlags)) -> Result<Pieces, Failure> {
    let mut pieces = Vec::new();
    let mut iter = IomapIter::new(file, pos, len, op)?;
    while let Some(mut step) = iter.next_step()? {
        pieces.push((step.mapping().kind(), step.device_addr(), step.len()));
        step.advance(step.len())?;
    }
    Ok(pieces)
}

fn a_file() -> impl Strategy<Value = File> {
    let extent = (0..4_u64, 1..24_u64, 0_u8..8, any::<u32>());
    let extents = proptest::collection::vec(extent, 0..8);
    (extents, 0..120_u64, any::<u8>(), 0_u8..40).prop_map(|(extents, size, cut, odd)| {
        let mut offset = 0;
        let mut list = Vec::new();
        for (gap, sectors, kind, place) in extents {
            offset += gap.saturating_sub(1) * 512;
            let length = sectors * 512;
            let addr = match (odd, place & 3) {
                // A damaged disk.
                (0, 0) => u64::MAX - 600,
                _ => u64::from(place) * 512,
            };
            list.push(match kind {
                0 => Mapping::unwritten(addr, offset, length),
                1 if odd == 1 => {
                    Mapping::mapped(addr, offset, length).with_flags(MappingFlags::STALE)
                }
                _ => Mapping::mapped(addr, offset, length),
            });
            offset += length;
        }
        let size = size * 512 + if cut < 64 { u64::from(cut) } else { 0 };
        File {
            busy: odd == 2,
            ..File::new(size, list)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The short path answers exactly what the iterator does over the same range, errors too; and
    /// it does answer whenever one mapped extent covers a small aligned read within the file.
    #[test]
    fn simple_and_general_agree(
        file in a_file(),
        pos in 0..130_u64,
        len in 0..11_u64,
        off in prop_oneof![9 => Just(0_u64), 1 => 1..512_u64],
        nowait in any::<bool>(),
    ) {
        let op = if nowait { OpFlags::DIRECT | OpFlags::NOWAIT } else { OpFlags::DIRECT };
        let request = (pos * 512 + off, len * 512, op);
        let general = general(&mut file.clone(), request);
        let eligible = off == 0 && (1..=8).contains(&len) && request.0 + request.1 <= file.size;
        match simple(&mut file.clone(), request) {
            Ok((addr, _)) => {
                prop_assert!(eligible);
                prop_assert_eq!(general, Ok(vec![(MappingKind::Mapped, Some(addr), request.1)]));
            }
            Err(SimpleError::Failed(error)) => {
                prop_assert!(eligible);
                prop_assert_eq!(general, Err(error));
            }
            Err(SimpleError::NotSimple) => {
                let one_mapped = matches!(
                    general.as_deref(),
                    Ok([(MappingKind::Mapped, Some(_), length)]) if *length == request.1
                );
                prop_assert!(!(eligible && one_mapped), "{:?}", general);
            }
        }
    }
}
