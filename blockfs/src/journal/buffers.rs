//! DMA memory that is taken when a volume is mounted, so that what must be written later never fails for
//! want of it.

use driver::memory::{DmaBuf, DmaDomain, MemoryError};

/// A buffer that is there whenever it is not under way, and is used in part.
#[derive(Debug, Default)]
pub(super) struct Kept {
    buf: Option<DmaBuf>,
    /// What was cut off the part that is under way.
    rest: Option<DmaBuf>,
}

impl Kept {
    pub(super) fn new(domain: &DmaDomain, len: usize) -> Result<Self, MemoryError> {
        Ok(Self {
            buf: Some(domain.alloc(len)?),
            rest: None,
        })
    }

    /// Its beginning, holding `bytes`; `None` while it is under way, or if it is too short.
    pub(super) fn filled(&mut self, bytes: &[u8]) -> Option<DmaBuf> {
        let mut buf = self.buf.take()?;
        if bytes.len() < buf.len() {
            match buf.split_at(bytes.len()) {
                Ok((part, rest)) => {
                    buf = part;
                    self.rest = Some(rest);
                }
                Err((whole, _)) => {
                    self.buf = Some(whole);
                    return None;
                }
            }
        }
        match buf.write_at(0, bytes) {
            Ok(()) => Some(buf),
            Err(_) => {
                self.put_back(buf);
                None
            }
        }
    }

    /// The part that was under way is back.
    pub(super) fn put_back(&mut self, part: DmaBuf) {
        self.buf = match self.rest.take() {
            None => Some(part),
            // It is what was split off.
            Some(rest) => part.join(rest).ok(),
        };
    }
}
