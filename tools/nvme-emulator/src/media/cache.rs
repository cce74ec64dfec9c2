//! The volatile write cache: what a power cut could bring back.
//!
//! The store always holds the latest contents, so that reads take no detour. For each write that is
//! not durable yet the cache keeps what it replaced. A cut then picks, for each block, one of its
//! versions since it was last durable. The cache is bounded: beyond its capacity the oldest writes
//! become durable, as in a drive that writes its cache back.

use super::CutReport;
use std::collections::{BTreeMap, VecDeque};
use std::io;

#[derive(Debug)]
pub(super) struct WriteCache {
    enabled: bool,
    capacity: usize,
    block_size: usize,
    held: usize,
    pieces: VecDeque<Piece>,
    /// Buffers of pieces that are gone, to be used again.
    spare: Vec<Vec<u8>>,
}

/// One write: where it went and what it replaced. Without old contents: it was durable at once.
#[derive(Debug)]
struct Piece {
    lba: u64,
    blocks: u64,
    old: Option<Vec<u8>>,
}

/// What a piece counts beside its contents.
const PIECE_COST: usize = 64;
/// Buffers kept for later pieces.
const SPARE: usize = 64;
/// The chances in eighths, one chosen for each cut, that a block keeps its latest contents.
/// Extremes are among them: with many blocks at risk an even chance alone would never show all or
/// nothing.
const KEEP_EIGHTHS: [u8; 5] = [0, 1, 4, 7, 8];

impl WriteCache {
    pub(super) fn new(capacity: usize, block_size: u32) -> Self {
        let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
        let (pieces, spare) = (VecDeque::new(), Vec::new());
        Self {
            enabled: true,
            capacity,
            block_size,
            held: 0,
            pieces,
            spare,
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.clear();
        self.enabled = enabled;
    }

    /// All that was written is durable.
    pub(super) fn clear(&mut self) {
        while self.drop_oldest() {}
    }

    /// A write to these blocks was durable at once: nothing older of them comes back.
    pub(super) fn barrier(&mut self, lba: u64, blocks: u64) {
        if !self.pieces.is_empty() {
            self.push(Piece {
                lba,
                blocks,
                old: None,
            });
        }
    }

    /// Keeps the `len` bytes that a write at `lba` is about to replace, which `read` fetches.
    pub(super) fn save(
        &mut self,
        lba: u64,
        len: u64,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let blocks = len / self.block_size.max(1) as u64;
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        if bytes > self.capacity {
            // More than the cache takes goes to the media at once.
            self.barrier(lba, blocks);
            return Ok(());
        }
        let mut old = self.spare.pop().unwrap_or_default();
        old.resize(bytes, 0);
        read(&mut old)?;
        self.push(Piece {
            lba,
            blocks,
            old: Some(old),
        });
        Ok(())
    }

    fn push(&mut self, piece: Piece) {
        self.held += piece.cost();
        self.pieces.push_back(piece);
        while self.held > self.capacity && self.drop_oldest() {}
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(piece) = self.pieces.pop_front() else {
            return false;
        };
        self.held -= piece.cost();
        if let Some(old) = piece.old.filter(|_| self.spare.len() < SPARE) {
            self.spare.push(old);
        }
        true
    }

    /// Chooses a version for each block at risk and lets `restore` put back those that are not the
    /// latest. The cache is empty afterwards.
    pub(super) fn power_cut(
        &mut self,
        seed: u64,
        mut restore: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<CutReport> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let keep = rng.choice(KEEP_EIGHTHS).unwrap_or(4);
        let mut versions: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        for piece in &self.pieces {
            match &piece.old {
                Some(old) => {
                    for (lba, block) in (piece.lba..).zip(old.chunks_exact(self.block_size)) {
                        versions.entry(lba).or_default().push(block);
                    }
                }
                None => versions.retain(|&lba, _| {
                    lba < piece.lba || lba >= piece.lba.saturating_add(piece.blocks)
                }),
            }
        }
        let mut report = CutReport {
            at_risk: versions.len() as u64,
            lost: 0,
        };
        for (lba, blocks) in &versions {
            let older = blocks.get(rng.usize(..blocks.len()));
            let Some(older) = older.filter(|_| rng.u8(..8) >= keep) else {
                continue;
            };
            restore(*lba, older)?;
            report.lost += 1;
        }
        drop(versions);
        self.clear();
        Ok(report)
    }
}

impl Piece {
    fn cost(&self) -> usize {
        PIECE_COST + self.old.as_ref().map_or(0, Vec::len)
    }
}
