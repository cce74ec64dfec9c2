//! What a simulated drive holds.

use nvme_emulator::media::Media;
use std::collections::HashMap;
use std::sync::Arc;

/// An image that many drives share, and what one of them changed.
#[derive(Clone, Debug)]
pub struct Overlay {
    base: Arc<Vec<u8>>,
    lba_bytes: usize,
    changed: HashMap<u64, Arc<[u8]>>,
}

impl Overlay {
    /// The image `base` as it is.
    #[must_use]
    pub fn new(base: Arc<Vec<u8>>, lba_bytes: usize) -> Self {
        Self {
            base,
            lba_bytes,
            changed: HashMap::new(),
        }
    }

    /// Sets one logical block.
    pub fn set(&mut self, lba: u64, block: Arc<[u8]>) {
        self.changed.insert(lba, block);
    }

    /// The image with the changes in it.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut image = (*self.base).clone();
        for (&lba, block) in &self.changed {
            let at = usize::try_from(lba).unwrap_or(usize::MAX) * self.lba_bytes;
            if let Some(place) = image.get_mut(at..at + block.len()) {
                place.copy_from_slice(block);
            }
        }
        image
    }

    fn blocks(&self) -> u64 {
        (self.base.len() / self.lba_bytes) as u64
    }

    fn read(&self, lba: u64, out: &mut [u8]) {
        for (lba, out) in (lba..).zip(out.chunks_mut(self.lba_bytes)) {
            let at = usize::try_from(lba).unwrap_or(usize::MAX) * self.lba_bytes;
            match (self.changed.get(&lba), self.base.get(at..at + out.len())) {
                (Some(block), _) => out.copy_from_slice(block),
                (None, Some(block)) => out.copy_from_slice(block),
                (None, None) => out.fill(0),
            }
        }
    }
}

/// What a drive holds.
#[derive(Debug)]
pub enum Contents {
    /// The project's media model.
    Media(Box<Media>),
    /// An image with changes laid over it: cheap to make, for checking one state.
    Overlay(Overlay),
}

impl Contents {
    /// Logical blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Media(media) => media.blocks(),
            Self::Overlay(overlay) => overlay.blocks(),
        }
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn lba_bytes(&self) -> usize {
        match self {
            Self::Media(media) => media.block_size() as usize,
            Self::Overlay(overlay) => overlay.lba_bytes,
        }
    }

    /// Reads whole logical blocks; `false` if it cannot.
    pub fn read(&self, lba: u64, out: &mut [u8]) -> bool {
        match self {
            Self::Media(media) => media.read(lba, out).is_ok(),
            Self::Overlay(overlay) => {
                overlay.read(lba, out);
                true
            }
        }
    }

    /// Writes whole logical blocks; `false` if it cannot.
    pub fn write(&mut self, lba: u64, data: &[u8], fua: bool) -> bool {
        match self {
            Self::Media(media) => media.write(lba, data, fua).is_ok(),
            Self::Overlay(overlay) => {
                for (lba, block) in (lba..).zip(data.chunks(overlay.lba_bytes)) {
                    overlay.set(lba, block.into());
                }
                true
            }
        }
    }

    /// Makes everything durable.
    pub fn flush(&mut self) -> bool {
        match self {
            Self::Media(media) => media.flush().is_ok(),
            Self::Overlay(_) => true,
        }
    }

    /// All of it.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        match self {
            Self::Overlay(overlay) => overlay.image(),
            Self::Media(media) => {
                let bytes = usize::try_from(media.blocks()).unwrap_or(0) * self.lba_bytes();
                let mut image = vec![0; bytes];
                // It is as long as the media.
                let _ = media.read(0, &mut image);
                image
            }
        }
    }
}
