//! One operation at a time, waited for: for tools, tests, and whoever is in no hurry.

use super::{Done, IoQueue, Tag, WriteFlags};
use crate::device::BlockDevice;
use crate::fs::{File, FsError, Refused};
use crate::iostat::{IoStat, Off};
use crate::journal::MetaTag;
use crate::tree::Fallocate;
use driver::clock::Deadline;
use driver::memory::DmaBuf;
use std::fmt;

/// A queue, used one operation at a time.
///
/// The forms that take slices copy between them and DMA memory.
pub struct Blocking<Q, D, S: IoStat = Off>
where
    Q: BlockDevice<Tag<(), S>>,
    D: BlockDevice<MetaTag>,
{
    queue: IoQueue<Q, (), D, S>,
    /// For slices, kept from one call to the next.
    buf: Option<DmaBuf>,
}

impl<Q, D, S: IoStat> fmt::Debug for Blocking<Q, D, S>
where
    Q: BlockDevice<Tag<(), S>>,
    D: BlockDevice<MetaTag>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;

impl<Q, D, S: IoStat> Blocking<Q, D, S>
where
    Q: BlockDevice<Tag<(), S>>,
    D: BlockDevice<MetaTag>,
{
    /// Waits for the operations of `queue`, which has none under way.
    #[must_use]
    pub const fn new(queue: IoQueue<Q, (), D, S>) -> Self {
        Self { queue, buf: None }
    }

    /// Gives the queue back.
    #[must_use]
    pub fn into_queue(self) -> IoQueue<Q, (), D, S> {
        self.queue
    }

    /// Reads into `buf`; says how many bytes, fewer at the end of the file. It copies.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn read(&mut self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize, FsError> {
        let mut total = 0;
        for part in buf.chunks_mut(COPY_BYTES) {
            let dma = self.buffer(part.len())?;
            let (dma, read) = self.read_dma(file, offset + total as u64, dma)?;
            // Not more than the part's length.
            let read = usize::try_from(read).unwrap_or(0).min(part.len());
            if let Some(part) = part.get_mut(..read) {
                dma.read_at(0, part)?;
            }
            self.buf = Some(dma);
            total += read;
            if read < part.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Writes all of `data`. It copies.
    ///
    /// # Errors
    /// [`FsError`]; a part may have been written.
    pub fn write(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<(), FsError> {
        self.write_with(file, offset, data, WriteFlags::NONE)
    }

    /// As [`Blocking::write`], with flags.
    ///
    /// # Errors
    /// [`FsError`]; a part may have been written.
    pub fn write_with(
        &mut self,
        file: &File,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(), FsError> {
        let mut offset = offset;
        for part in data.chunks(COPY_BYTES) {
            let mut dma = self.buffer(part.len())?;
            dma.write_at(0, part)?;
            let dma = self.write_dma(file, offset, dma, flags)?;
            self.buf = Some(dma);
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Reads into a DMA buffer; says how many bytes.
    ///
    /// # Errors
    /// [`FsError`]; the buffer is dropped.
    pub fn read_dma(
        &mut self,
        file: &File,
        offset: u64,
        buf: DmaBuf,
    ) -> Result<(DmaBuf, u64), FsError> {
        let done = self.run(Some(buf), |queue, buf| match buf {
            Some(buf) => queue.read_at(file, offset, buf, ()),
            None => Err(Refused::new(FsError::Busy("no buffer"), None, ())),
        })?;
        let bytes = done.result?;
        let buf = done.buf.ok_or(FsError::Busy("the buffer is lost"))?;
        Ok((buf, bytes))
    }

    /// Writes a DMA buffer.
    ///
    /// # Errors
    /// [`FsError`]; the buffer is dropped.
    pub fn write_dma(
        &mut self,
        file: &File,
        offset: u64,
        buf: DmaBuf,
        flags: WriteFlags,
    ) -> Result<DmaBuf, FsError> {
        let done = self.run(Some(buf), |queue, buf| match buf {
            Some(buf) => queue.write_at(file, offset, buf, flags, ()),
            None => Err(Refused::new(FsError::Busy("no buffer"), None, ())),
        })?;
        done.result?;
        done.buf.ok_or(FsError::Busy("the buffer is lost"))
    }

    /// See [`IoQueue::fsync`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn fsync(&mut self, file: &File) -> Result<(), FsError> {
        self.run(None, |queue, _| queue.fsync(file, ()))?
            .result
            .map(drop)
    }

    /// See [`IoQueue::fdatasync`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn fdatasync(&mut self, file: &File) -> Result<(), FsError> {
        self.run(None, |queue, _| queue.fdatasync(file, ()))?
            .result
            .map(drop)
    }

    /// See [`IoQueue::truncate`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn truncate(&mut self, file: &File, size: u64) -> Result<(), FsError> {
        self.run(None, |queue, _| queue.truncate(file, size, ()))?
            .result
            .map(drop)
    }

    /// See [`IoQueue::fallocate`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn fallocate(
        &mut self,
        file: &File,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<(), FsError> {
        self.run(None, |queue, _| {
            queue.fallocate(file, mode, offset, len, ())
        })?
        .result
        .map(drop)
    }

    /// See [`IoQueue::write_zeroes`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn write_zeroes(&mut self, file: &File, offset: u64, len: u64) -> Result<(), FsError> {
        self.run(None, |queue, _| queue.write_zeroes(file, offset, len, ()))?
            .result
            .map(drop)
    }

    /// See [`IoQueue::sync`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn sync(&mut self) -> Result<(), FsError> {
        let done = self.run(None, |queue, _| {
            queue.sync(());
            Ok(())
        })?;
        done.result.map(drop)
    }

    /// See [`IoQueue::trim`]; says how many bytes the drive was told of.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn trim(&mut self) -> Result<u64, FsError> {
        let done = self.run(None, |queue, _| {
            queue.trim(());
            Ok(())
        })?;
        done.result
    }

    /// A DMA buffer of `len` bytes.
    fn buffer(&mut self, len: usize) -> Result<DmaBuf, FsError> {
        match self.buf.take() {
            Some(buf) if buf.len() == len => Ok(buf),
            _ => Ok(self.queue.shared().domain.alloc(len)?),
        }
    }

    /// Submits, and polls until it has ended.
    fn run(
        &mut self,
        buf: Option<DmaBuf>,
        submit: impl FnOnce(&mut IoQueue<Q, (), D, S>, Option<DmaBuf>) -> Result<(), Refused<()>>,
    ) -> Result<Done<()>, FsError> {
        submit(&mut self.queue, buf).map_err(|refused| refused.reason)?;
        self.queue.ring();
        let (clock, limit) = {
            let shared = self.queue.shared();
            (std::sync::Arc::clone(&shared.clock), shared.limit)
        };
        let mut deadline = Deadline::after(&*clock, limit);
        loop {
            let mut ended = None;
            self.queue.poll(|done| ended = Some(done));
            if let Some(done) = ended {
                return Ok(done);
            }
            if !deadline.wait_turn() {
                return Err(FsError::TimedOut { limit });
            }
        }
    }
}
