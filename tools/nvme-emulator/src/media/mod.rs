//! The media model: what a drive keeps, what it may lose, and what a power cut leaves.
//!
//! [`Media`] knows nothing of rings or commands, so that a simulated drive for crash tests is this
//! model without a controller in front. Its contents are held by a [`Store`]: memory, a sparse
//! file, or nothing at all. With a volatile write cache, a write that is not forced (FUA) may be
//! lost until the next flush; [`Media::power_cut`] decides by a seed, block by block, which version
//! of a block stayed. One logical block is written whole or not at all; nothing stronger is
//! promised.

mod cache;
mod store;
mod usage;

pub use store::{Store, StoreError};

use crate::raw::Span;
use cache::WriteCache;
use std::io;
use usage::Usage;

/// The contents of one namespace.
///
/// # Examples
///
/// ```
/// use nvme_emulator::media::{Media, Store};
///
/// let mut media = Media::new(Store::ram(1 << 20)?, 512, Some(64 << 10))?;
/// media.write(0, &[1; 512], false)?;
/// media.flush()?;
/// media.write(0, &[2; 512], false)?;
/// media.power_cut(7)?;
/// let mut block = [0; 512];
/// media.read(0, &mut block)?;
/// assert!(block == [1; 512] || block == [2; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Media {
    store: Store,
    block_shift: u32,
    blocks: u64,
    usage: Usage,
    cache: Option<WriteCache>,
}

/// What can go wrong with media.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The block size is not one that NVMe knows, or the store holds not one block.
    #[error(
        "{bytes} bytes in blocks of {block_size} bytes are no media: a block has 512 to 65536 \
             bytes, a power of two, and there is at least one"
    )]
    Geometry {
        /// Size of the store in bytes.
        bytes: u64,
        /// Size of a block in bytes.
        block_size: u32,
    },
    /// The blocks lie outside the media, or the buffer is not made of whole blocks.
    #[error("{len} bytes at block {lba} are not whole blocks inside the media of {blocks} blocks")]
    OutOfRange {
        /// First block.
        lba: u64,
        /// Bytes asked for.
        len: u64,
        /// Blocks that there are.
        blocks: u64,
    },
    /// The file behind the media may only be read.
    #[error("the file behind the media may only be read")]
    ReadOnly,
    /// The file behind the media failed.
    #[error("the file behind the media failed")]
    Io(#[from] io::Error),
}

/// What a power cut did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Blocks whose latest contents had not been made durable.
    pub at_risk: u64,
    /// How many of them fell back to something older.
    pub lost: u64,
}

impl Media {
    /// Media of as many whole blocks as `store` holds. `cache_bytes`: how much may be volatile at a
    /// time; without it every write is durable at once.
    ///
    /// # Errors
    /// [`MediaError::Geometry`].
    pub fn new(
        store: Store,
        block_size: u32,
        cache_bytes: Option<usize>,
    ) -> Result<Self, MediaError> {
        let bytes = store.len();
        let block_shift = block_size.trailing_zeros();
        let blocks = bytes.checked_shr(block_shift).unwrap_or(0);
        let known = block_size.is_power_of_two() && (512..=65536).contains(&block_size);
        if !known || blocks == 0 {
            return Err(MediaError::Geometry { bytes, block_size });
        }
        let usage = Usage::of(&store);
        let cache = cache_bytes.map(|capacity| WriteCache::new(capacity, block_size));
        Ok(Self {
            store,
            block_shift,
            blocks,
            usage,
            cache,
        })
    }

    /// Number of logical blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1 << self.block_shift
    }

    /// log2 of the bytes of a logical block.
    #[must_use]
    pub fn block_shift(&self) -> u32 {
        self.block_shift
    }

    /// Blocks that have been written and not deallocated since, in coarse steps, never too few.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        (self.usage.bytes() >> self.block_shift).min(self.blocks)
    }

    /// Whether there is a volatile write cache, enabled or not.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Whether it may be written: a file that may only be read cannot.
    #[inline]
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.store.is_writable()
    }

    /// Whether data moves at all: a null store completes everything and keeps nothing.
    #[inline]
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.store, Store::Null { .. })
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// [`MediaError`]
    pub fn read(&self, lba: u64, data: &mut [u8]) -> Result<(), MediaError> {
        self.read_spans(lba, &[Span::target(data)])
    }

    /// Writes whole blocks; with `fua` they are durable when this returns.
    ///
    /// # Errors
    /// [`MediaError`]
    pub fn write(&mut self, lba: u64, data: &[u8], fua: bool) -> Result<(), MediaError> {
        self.write_spans(lba, &[Span::source(data)], fua)
    }

    /// Makes blocks read as zeros, and gives their space back if `deallocate`.
    ///
    /// # Errors
    /// [`MediaError`]
    pub fn zero(
        &mut self,
        lba: u64,
        count: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        let len = count
            .checked_shl(self.block_shift)
            .filter(|len| len >> self.block_shift == count);
        let len = len.unwrap_or(u64::MAX);
        let offset = self.check_write(lba, len)?;
        self.remember(lba, offset, len, fua)?;
        self.store.zero(offset, len, deallocate)?;
        match deallocate {
            true => self.usage.clear(offset, len),
            false => self.usage.set(offset, len),
        }
        self.forced(fua)
    }

    /// Makes everything durable that was written before.
    ///
    /// # Errors
    /// [`MediaError::Io`]
    pub fn flush(&mut self) -> Result<(), MediaError> {
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        self.store.sync()?;
        Ok(())
    }

    /// Turns the volatile write cache on or off; what it holds becomes durable.
    ///
    /// # Errors
    /// [`MediaError::Io`]
    pub fn set_cache_enabled(&mut self, enabled: bool) -> Result<(), MediaError> {
        self.flush()?;
        if let Some(cache) = &mut self.cache {
            cache.set_enabled(enabled);
        }
        Ok(())
    }

    /// Takes the power away: each block that was written since it was last made durable keeps one
    /// of its versions since then, as `seed` decides.
    ///
    /// # Errors
    /// [`MediaError::Io`]
    pub fn power_cut(&mut self, seed: u64) -> Result<CutReport, MediaError> {
        let Some(cache) = &mut self.cache else {
            return Ok(CutReport::default());
        };
        let (store, usage, shift) = (&mut self.store, &mut self.usage, self.block_shift);
        let report = cache.power_cut(seed, |lba, old| {
            usage.set(lba << shift, old.len() as u64);
            store.write(lba << shift, Span::source(old))
        })?;
        self.store.sync()?;
        Ok(report)
    }

    /// The byte offset of `len` bytes at block `lba`, checked.
    fn check(&self, lba: u64, len: u64) -> Result<u64, MediaError> {
        let whole = len.trailing_zeros() >= self.block_shift;
        let count = len >> self.block_shift;
        let inside = lba.checked_add(count).is_some_and(|end| end <= self.blocks);
        if whole && inside {
            Ok(lba << self.block_shift)
        } else {
            Err(MediaError::OutOfRange {
                lba,
                len,
                blocks: self.blocks,
            })
        }
    }

    /// As [`Media::check`], for what changes the media.
    fn check_write(&self, lba: u64, len: u64) -> Result<u64, MediaError> {
        let offset = self.check(lba, len)?;
        match self.is_writable() {
            true => Ok(offset),
            false => Err(MediaError::ReadOnly),
        }
    }

    pub(crate) fn read_spans(&self, lba: u64, spans: &[Span]) -> Result<(), MediaError> {
        let len = total(spans);
        let mut offset = self.check(lba, len)?;
        if self.store.is_ram() && self.usage.is_unused(offset, len) {
            // Memory that nobody has written is not touched, so that none is taken for it.
            spans.iter().for_each(|span| span.fill_zero());
            return Ok(());
        }
        for &span in spans {
            self.store.read(offset, span)?;
            offset += span.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn write_spans(
        &mut self,
        lba: u64,
        spans: &[Span],
        fua: bool,
    ) -> Result<(), MediaError> {
        let len = total(spans);
        let mut offset = self.check_write(lba, len)?;
        if !self.is_null() {
            self.remember(lba, offset, len, fua)?;
            self.usage.set(offset, len);
        }
        for &span in spans {
            self.store.write(offset, span)?;
            offset += span.len() as u64;
        }
        self.forced(fua)
    }

    /// Whether the blocks at `lba` hold exactly what the spans do.
    pub(crate) fn compare_spans(&self, lba: u64, spans: &[Span]) -> Result<bool, MediaError> {
        let mut offset = self.check(lba, total(spans))?;
        for &span in spans {
            if !self.store.equals(offset, span)? {
                return Ok(false);
            }
            offset += span.len() as u64;
        }
        Ok(true)
    }

    /// Saves what a volatile write is about to replace.
    fn remember(&mut self, lba: u64, offset: u64, len: u64, fua: bool) -> Result<(), MediaError> {
        if self.is_null() {
            return Ok(());
        }
        let Some(cache) = self.cache.as_mut().filter(|cache| cache.is_enabled()) else {
            return Ok(());
        };
        if fua {
            cache.barrier(lba, len >> self.block_shift);
            return Ok(());
        }
        let (store, unused) = (&self.store, self.usage.is_unused(offset, len));
        cache.save(lba, len, |old| {
            let old = Span::target(old);
            if unused && store.is_ram() {
                old.fill_zero();
                return Ok(());
            }
            store.read(offset, old)
        })?;
        Ok(())
    }

    /// What FUA, or a drive without a cache, owes for a file: data that survives this machine.
    fn forced(&mut self, fua: bool) -> Result<(), MediaError> {
        if fua {
            self.store.sync()?;
        }
        Ok(())
    }
}

fn total(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.len() as u64).sum()
}

#[cfg(test)]
mod tests;
