//! From a log of commands to the images that a power cut may leave.

use std::sync::Arc;

/// What was submitted, and what ended.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write was submitted.
    Write {
        /// Its number.
        number: u64,
        /// Its first logical block.
        lba: u64,
        /// Whole logical blocks.
        data: Arc<[u8]>,
        /// Whether it ends on the medium.
        fua: bool,
    },
    /// A flush was submitted.
    Flush {
        /// Its number.
        number: u64,
    },
    /// One of them ended.
    End {
        /// Which.
        number: u64,
        /// Whether it succeeded.
        ok: bool,
    },
}

/// What happened to a drive.
#[derive(Clone, Debug)]
pub struct Log {
    /// What it held before.
    pub start: Arc<Vec<u8>>,
    /// Bytes of a logical block.
    pub lba_bytes: usize,
    /// Whether completed writes may be lost.
    pub volatile_cache: bool,
    /// In order.
    pub events: Vec<Event>,
}
