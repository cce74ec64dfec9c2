//! Transfers that are waited for: mkfs, mount and unmount have nothing else to do.

use super::{JournalError, MetaTag, Tag, new_life};
use crate::device::BlockDevice;
use driver::clock::{Clock, Deadline};
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use driver::queue::Rejected;
use std::time::Duration;

/// Bytes of one command.
const CHUNK: usize = 128 << 10;
/// Commands under way.
const DEPTH: usize = 8;

/// A device with what waiting takes.
pub(super) struct Wire<'a, D> {
    pub(super) device: &'a mut D,
    pub(super) domain: &'a DmaDomain,
    pub(super) clock: &'a dyn Clock,
    pub(super) limit: Duration,
}

impl<D: BlockDevice<MetaTag>> Wire<'_, D> {
    fn lba_bytes(&self) -> usize {
        self.device.limits().block_size as usize
    }

    /// Fills `out`, whole logical blocks, from `lba` on.
    pub(super) fn read(&mut self, lba: Lba, out: &mut [u8]) -> Result<(), JournalError> {
        let lba_bytes = self.lba_bytes();
        let chunks = out.len().div_ceil(CHUNK);
        let (mut next, mut ended) = (0, 0);
        let life = new_life();
        let mut failed = None;
        let mut deadline = Deadline::after(self.clock, self.limit);
        while ended < chunks && (failed.is_none() || ended < next) {
            while next < chunks && next - ended < DEPTH && failed.is_none() {
                let at = next * CHUNK;
                let len = CHUNK.min(out.len() - at);
                let buf = self.domain.alloc(len)?;
                let lba = Lba(lba.0 + (at / lba_bytes) as u64);
                let tag = Tag::Wire(u32::try_from(next).unwrap_or(u32::MAX));
                let tag = MetaTag { life, tag };
                match self.device.read(lba, buf, tag) {
                    Ok(()) => next += 1,
                    Err(rejected) if rejected.is_full() && next > ended => break,
                    Err(rejected) => return Err(JournalError::Rejected(rejected.reason)),
                }
            }
            self.device.ring();
            let before = ended;
            self.device.poll(|done| {
                let Tag::Wire(chunk) = done.ctx.tag else {
                    return;
                };
                if done.ctx.life != life {
                    return;
                }
                ended += 1;
                if !done.status.is_success() {
                    let (what, status) = ("a read of metadata", done.status);
                    failed = Some(JournalError::Device { what, status });
                }
                let at = chunk as usize * CHUNK;
                if let Some(buf) = done.buf
                    && let Some(part) = out.get_mut(at..at + buf.len())
                {
                    // As long as the part.
                    let _ = buf.read_at(0, part);
                }
            });
            if ended == before && !deadline.wait_turn() {
                return Err(JournalError::TimedOut { limit: self.limit });
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Writes `bytes`, whole logical blocks, from `lba` on.
    pub(super) fn write(&mut self, lba: Lba, bytes: &[u8], fua: bool) -> Result<(), JournalError> {
        let lba_bytes = self.lba_bytes();
        for (nth, chunk) in bytes.chunks(CHUNK).enumerate() {
            let mut buf = self.domain.alloc(chunk.len())?;
            buf.write_at(0, chunk)?;
            let lba = Lba(lba.0 + (nth * CHUNK / lba_bytes) as u64);
            self.run("a write of metadata", |device, tag| {
                device.write(lba, buf, fua, tag)
            })?;
        }
        Ok(())
    }

    /// Zeroes `blocks` logical blocks from `lba` on.
    pub(super) fn zero(&mut self, lba: Lba, blocks: u64) -> Result<(), JournalError> {
        if self.device.limits().write_zeroes {
            return self.run("a write of zeroes", |device, tag| {
                device.write_zeroes(lba, blocks, tag)
            });
        }
        let zeros = vec![0; CHUNK];
        let lba_bytes = self.lba_bytes() as u64;
        let end = lba.0.saturating_add(blocks);
        let (mut at, step) = (lba.0, CHUNK as u64 / lba_bytes);
        while at < end {
            // At most CHUNK.
            let bytes = usize::try_from(step.min(end - at) * lba_bytes).unwrap_or(CHUNK);
            self.write(Lba(at), &zeros[..bytes.min(CHUNK)], false)?;
            at += step;
        }
        Ok(())
    }

    /// Makes durable what was written, if the cache is volatile.
    pub(super) fn flush(&mut self) -> Result<(), JournalError> {
        if !self.device.limits().volatile_cache {
            return Ok(());
        }
        self.run("a flush", |device, tag| device.flush(tag))
    }

    /// Submits one command and waits for it.
    fn run(
        &mut self,
        what: &'static str,
        submit: impl FnOnce(&mut D, MetaTag) -> Result<(), Rejected<MetaTag>>,
    ) -> Result<(), JournalError> {
        let life = new_life();
        let tag = Tag::Wire(0);
        let submitted = submit(self.device, MetaTag { life, tag });
        submitted.map_err(|rejected| JournalError::Rejected(rejected.reason))?;
        self.device.ring();
        let mut deadline = Deadline::after(self.clock, self.limit);
        loop {
            let mut ended = None;
            self.device.poll(|done| {
                if done.ctx.life == life {
                    ended = Some(done.status);
                }
            });
            match ended {
                Some(status) if status.is_success() => return Ok(()),
                Some(status) => return Err(JournalError::Device { what, status }),
                None if deadline.wait_turn() => {}
                None => return Err(JournalError::TimedOut { limit: self.limit }),
            }
        }
    }
}
