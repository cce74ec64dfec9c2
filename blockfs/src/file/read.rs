//! Reads that take more than one command: several extents, holes, the end of the file, unaligned.

use super::Tag;
use super::op::{At, Hands, Outcome};
use super::script::{Io, Script, copy, zero};
use crate::device::BlockDevice;
use crate::fs::FsError;
use crate::grace::Pass;
use crate::iomap::{IomapIter, MappingKind, OpFlags};
use crate::iostat::IoStat;
use crate::tree::FileMap;
use driver::memory::{DmaBuf, DmaDomain};

/// A read under way. Its extents were looked up when it was submitted; its pass keeps them from being
/// used for anything else until it has ended.
#[derive(Debug)]
pub(super) struct Read {
    pass: Option<Pass>,
    /// Bytes to be read: up to the end of the file.
    bytes: u64,
    /// Where the first of them is in the work buffer.
    skip: usize,
    /// Bytes of the work buffer, if it is not the caller's.
    bounce: Option<usize>,
    ios: Vec<Io>,
    script: Option<Script>,
}

impl Read {
    /// Looks up what a read of `len` bytes at `offset` takes.
    pub(super) fn new(
        map: &FileMap,
        (offset, len): (u64, u64),
        lba_shift: u32,
    ) -> Result<Self, FsError> {
        let mask = (1u64 << lba_shift) - 1;
        let bytes = len.min(map.size().saturating_sub(offset));
        let aligned = (offset | len) & mask == 0;
        // Within the file's size, which is far from overflowing.
        let start = offset & !mask;
        let end = (offset + bytes + mask) & !mask;
        let span = if bytes == 0 { 0 } else { end - start };
        let ios = pieces(map, start, span, lba_shift)?;
        Ok(Self {
            pass: None,
            bytes,
            skip: small(offset - start),
            bounce: (!aligned && span > 0).then(|| small(span)),
            ios,
            script: None,
        })
    }

    /// The pass under which it was looked up.
    pub(super) fn with(mut self, pass: Pass) -> Self {
        self.pass = Some(pass);
        self
    }

    pub(super) fn go_on<T, Q, D, S>(
        &mut self,
        at: &mut At<'_, Q, D, S>,
        hands: &mut Hands<'_>,
    ) -> Outcome
    where
        Q: BlockDevice<Tag<T, S>>,
        S: IoStat,
    {
        if self.script.is_none() {
            let work = match self.work(hands, &at.shared.domain) {
                Ok(work) => work,
                Err(error) => return self.ended(at, Err(error)),
            };
            self.script = Some(Script::new(std::mem::take(&mut self.ios), work));
        }
        let result = self.script.as_mut()?.go_on(at, hands.returned)?;
        let work = self.script.take().and_then(Script::into_work);
        let bytes = small(self.bytes);
        match self.bounce {
            None => *hands.buf = work,
            Some(_) => {
                if let (Some(work), Some(buf)) = (&work, hands.buf.as_mut()) {
                    copy(work, self.skip, buf, 0, bytes);
                }
            }
        }
        if let Some(buf) = hands.buf.as_mut() {
            let len = buf.len();
            zero(buf, bytes, len);
        }
        self.ended(at, result.map(|()| self.bytes))
    }

    fn work(&self, hands: &mut Hands<'_>, domain: &DmaDomain) -> Result<Option<DmaBuf>, FsError> {
        match self.bounce {
            None => Ok(hands.buf.take()),
            Some(bytes) => Ok(Some(domain.alloc(bytes)?)),
        }
    }

    fn ended<Q, D, S>(
        &mut self,
        at: &mut At<'_, Q, D, S>,
        result: Result<u64, FsError>,
    ) -> Outcome {
        if let Some(pass) = self.pass.take() {
            at.member.leave(pass);
        }
        Some(result)
    }
}

/// What the range is made of.
fn pieces(map: &FileMap, start: u64, span: u64, lba_shift: u32) -> Result<Vec<Io>, FsError> {
    let mut ios = Vec::new();
    let mut iter = IomapIter::new(map, start, span, OpFlags::DIRECT)?;
    while let Some(mut step) = iter.next_step()? {
        let bytes = step.len();
        // A step of a read of at most 4 GiB.
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        let io = match (step.mapping().kind(), step.device_addr()) {
            (MappingKind::Mapped, Some(addr)) => Io::Read {
                lba: addr >> lba_shift,
                len,
            },
            _ => Io::Zeros { len },
        };
        ios.push(io);
        step.advance(bytes)?;
        step.finish()?;
    }
    Ok(ios)
}

/// A number of bytes of a buffer.
pub(super) fn small(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
