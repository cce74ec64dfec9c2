//! The device's view of memory: what has been mapped for it, and nothing else.

use crate::raw::Span;
use std::ops::RangeInclusive;

/// The map from I/O virtual addresses to host memory.
#[derive(Debug)]
pub(crate) struct DmaMap {
    /// Ascending by address, disjoint.
    mappings: Vec<Mapping>,
    /// Where the last look-up hit: the next one mostly hits there too.
    last: usize,
    /// Changes with every change of the map, so that cached spans are looked up again.
    generation: u64,
    quota: Option<u64>,
    ranges: Vec<RangeInclusive<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    iova: u64,
    memory: Span,
}

/// Why a mapping was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Address,
    Quota,
    /// Nothing is mapped at exactly this range.
    NotMapped,
}

impl Mapping {
    #[inline]
    fn offset_of(&self, iova: u64) -> Option<usize> {
        let offset = usize::try_from(iova.checked_sub(self.iova)?).ok()?;
        (offset < self.memory.len()).then_some(offset)
    }

    fn last(&self) -> u64 {
        // Mappings are never empty and never pass the end of the address space: `insert` checks.
        self.iova + (self.memory.len() as u64 - 1)
    }
}

impl DmaMap {
    pub(crate) fn new(ranges: Vec<RangeInclusive<u64>>, quota: Option<u64>) -> Self {
        Self {
            mappings: Vec::new(),
            last: 0,
            generation: 1,
            quota,
            ranges,
        }
    }

    pub(crate) fn ranges(&self) -> &[RangeInclusive<u64>] {
        &self.ranges
    }

    pub(crate) fn mappings_left(&self) -> Option<u64> {
        self.quota
            .map(|quota| quota.saturating_sub(self.mappings.len() as u64))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn insert(&mut self, iova: u64, memory: Span) -> Result<(), Refusal> {
        let last = (memory.len() as u64)
            .checked_sub(1)
            .and_then(|len| iova.checked_add(len));
        let last = last.ok_or(Refusal::Address)?;
        let allowed = |range: &RangeInclusive<u64>| range.contains(&iova) && range.contains(&last);
        let at = self
            .mappings
            .partition_point(|mapping| mapping.iova <= last);
        let before = at.checked_sub(1).and_then(|at| self.mappings.get(at));
        if before.is_some_and(|mapping| mapping.last() >= iova) {
            return Err(Refusal::Address);
        }
        if !self.ranges.iter().any(allowed) {
            return Err(Refusal::Address);
        }
        if self.mappings_left() == Some(0) {
            return Err(Refusal::Quota);
        }
        self.mappings.insert(at, Mapping { iova, memory });
        self.generation += 1;
        Ok(())
    }

    pub(crate) fn remove(&mut self, iova: u64, len: usize) -> Result<(), Refusal> {
        let found = self
            .mappings
            .binary_search_by_key(&iova, |mapping| mapping.iova);
        let at = found.map_err(|_| Refusal::NotMapped)?;
        if self
            .mappings
            .get(at)
            .is_none_or(|mapping| mapping.memory.len() != len)
        {
            return Err(Refusal::NotMapped);
        }
        self.mappings.remove(at);
        self.generation += 1;
        Ok(())
    }

    /// The memory at `iova`, up to `len` bytes, as far as one mapping goes. `None`: a DMA fault.
    #[inline]
    pub(crate) fn part(&mut self, iova: u64, len: usize) -> Option<Span> {
        let hit = self
            .mappings
            .get(self.last)
            .and_then(|m| Some((m, m.offset_of(iova)?)));
        let (mapping, offset) = match hit {
            Some(hit) => hit,
            None => {
                let after = self
                    .mappings
                    .partition_point(|mapping| mapping.iova <= iova);
                self.last = after.checked_sub(1)?;
                let mapping = self.mappings.get(self.last)?;
                (mapping, mapping.offset_of(iova)?)
            }
        };
        mapping
            .memory
            .slice(offset, len.min(mapping.memory.len() - offset))
    }

    /// All `len` bytes at `iova` in one piece. `None`: not mapped, or not in one piece.
    pub(crate) fn whole(&mut self, iova: u64, len: usize) -> Option<Span> {
        self.part(iova, len).filter(|span| span.len() == len)
    }

    /// Appends the pieces of the `len` bytes at `iova`, joining what is one piece. `false`: a
    /// fault.
    #[inline]
    pub(crate) fn spans(&mut self, mut iova: u64, mut len: usize, out: &mut Vec<Span>) -> bool {
        while len > 0 {
            let Some(span) = self.part(iova, len) else {
                return false;
            };
            if !out.last_mut().is_some_and(|last| last.extend(span)) {
                out.push(span);
            }
            len -= span.len();
            iova = iova.wrapping_add(span.len() as u64);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> DmaMap {
        DmaMap::new(vec![0x1000..=0xffff, 0x2_0000..=u64::MAX], Some(3))
    }

    /// Overlaps, reserved addresses and what passes the quota are refused; the rest is found again.
    #[test]
    fn mappings_are_disjoint_and_allowed() {
        let mut bytes = vec![0u8; 0x4000];
        let memory = Span::target(&mut bytes);
        let page = memory.first(0x1000);
        let mut map = map();
        assert_eq!(map.insert(0, page), Err(Refusal::Address));
        assert_eq!(
            map.insert(0xf000, memory.first(0x2000)),
            Err(Refusal::Address)
        );
        assert_eq!(map.insert(u64::MAX - 0x7ff, page), Err(Refusal::Address));
        assert_eq!(map.insert(0x3000, memory.first(0x2000)), Ok(()));
        assert_eq!(map.insert(0x4000, page), Err(Refusal::Address));
        assert_eq!(map.insert(0x4fff, page), Err(Refusal::Address));
        assert_eq!(
            map.insert(0x2000, memory.first(0x2000)),
            Err(Refusal::Address)
        );
        assert_eq!(map.insert(0x2000, page), Ok(()));
        assert_eq!(map.insert(0x5000, page), Ok(()));
        assert_eq!(map.insert(0x7000, page), Err(Refusal::Quota));
        assert_eq!(map.remove(0x3000, 0x1000), Err(Refusal::NotMapped));
        assert_eq!(map.remove(0x3000, 0x2000), Ok(()));
        assert_eq!(map.mappings_left(), Some(1));
        assert!(map.part(0x3000, 1).is_none() && map.part(0x2fff, 1).is_some());
    }

    /// A transfer over two mappings comes in two pieces, in one where the memory joins, and a hole
    /// anywhere is a fault.
    #[test]
    fn transfers_over_mappings() {
        let mut bytes = vec![0u8; 0x4000];
        let memory = Span::target(&mut bytes);
        let mut map = map();
        map.insert(0x2000, memory.slice(0, 0x1000).unwrap())
            .unwrap();
        map.insert(0x3000, memory.slice(0x1000, 0x1000).unwrap())
            .unwrap();
        map.insert(0x4000, memory.slice(0x3000, 0x1000).unwrap())
            .unwrap();
        let mut out = Vec::new();
        assert!(map.spans(0x2800, 0x1000, &mut out));
        assert_eq!(
            out.iter().map(|span| span.len()).collect::<Vec<_>>(),
            [0x1000]
        );
        assert!(map.spans(0x3800, 0x1000, &mut out));
        assert_eq!(out.iter().map(|span| span.len()).sum::<usize>(), 0x2000);
        assert!(!map.spans(0x4800, 0x1000, &mut out));
        assert!(map.whole(0x3800, 0x1000).is_none() && map.whole(0x3800, 0x800).is_some());
        assert!(map.part(u64::MAX, 1).is_none() && map.part(0, 1).is_none());
    }
}
