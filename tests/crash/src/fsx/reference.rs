//! A file in memory: every byte, and what each block is.

use super::op::{Op, Range};
use crate::model::{data_of, small};
use blockfs::tree::Fallocate;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// What a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Nothing is there.
    Hole,
    /// It has a block that was never written.
    Reserved,
    /// It was written.
    Written,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    data: Vec<u8>,
    blocks: Vec<Block>,
}

impl Reference {
    /// Its size.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.data.len() as u64
    }

    /// What its blocks are, those behind its end included.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Up to `len` bytes from `at` on.
    #[must_use]
    pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let end = self.data.len().min(small(at.saturating_add(len)));
        self.data.get(small(at)..end).unwrap_or(&[]).to_vec()
    }

    /// The first byte from `at` on, before the end, that is in a block that `which` is true of.
    #[must_use]
    pub fn next(&self, at: u64, which: impl Fn(Block) -> bool) -> Option<u64> {
        let end = self.size().div_ceil(BLOCK);
        let state = |nth: u64| self.blocks.get(small(nth)).copied().unwrap_or(Block::Hole);
        let block = (at / BLOCK..end).find(|&nth| which(state(nth)))?;
        Some((block * BLOCK).max(at)).filter(|&at| at < self.size())
    }

    /// Sets what the blocks from `from` up to `to` are, as `what` says of what each was.
    fn set(&mut self, from: u64, to: u64, what: impl Fn(Block) -> Block) {
        let (from, to) = (small(from), small(to));
        if to > self.blocks.len() {
            self.blocks.resize(to, Block::Hole);
        }
        for block in self.blocks.get_mut(from..to).unwrap_or_default() {
            *block = what(*block);
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (from, to) = (small(at), small(at) + data.len());
        if to > self.data.len() {
            self.data.resize(to, 0);
        }
        self.data[from..to].copy_from_slice(data);
        let end = (at + data.len() as u64).div_ceil(BLOCK);
        self.set(at / BLOCK, end, |_| Block::Written);
    }

    /// Does what `op` says.
    pub fn apply(&mut self, op: Op, fill: u32) {
        match op {
            Op::Write { range, .. } => {
                self.write(range.at, &data_of(fill, range.at, range.len));
            }
            Op::Append { len } => {
                let at = self.size();
                self.write(at, &data_of(fill, at, len));
            }
            Op::WriteZeroes(Range { at, len }) => self.write(at, &vec![0; small(len)]),
            Op::Truncate(size) => {
                // What was reserved behind the end goes, but not if the file grows.
                if size <= self.size() {
                    self.blocks.truncate(small(size.div_ceil(BLOCK)));
                }
                self.data.resize(small(size), 0);
            }
            Op::Allocate(mode, range) => self.allocate(mode, range),
            _ => {}
        }
    }

    fn allocate(&mut self, mode: Fallocate, Range { at, len }: Range) {
        let end = at + len;
        let (first, last) = (at / BLOCK, end.div_ceil(BLOCK));
        // Blocks that are all in the range.
        let (inner, inner_end) = (at.div_ceil(BLOCK), end / BLOCK);
        let reserve = |block| match block {
            Block::Hole => Block::Reserved,
            other => other,
        };
        if !matches!(mode, Fallocate::Reserve | Fallocate::ReserveKeepSize) {
            let to = self.data.len().min(small(end));
            let zeroed = self.data.get_mut(small(at)..to);
            zeroed.unwrap_or_default().fill(0);
        }
        match mode {
            Fallocate::Punch => {
                if inner < inner_end {
                    self.set(inner, inner_end, |_| Block::Hole);
                }
            }
            Fallocate::Zero | Fallocate::ZeroKeepSize => {
                self.set(first, last, reserve);
                if inner < inner_end {
                    self.set(inner, inner_end, |_| Block::Reserved);
                }
            }
            Fallocate::Reserve | Fallocate::ReserveKeepSize => self.set(first, last, reserve),
        }
        if matches!(mode, Fallocate::Reserve | Fallocate::Zero) && end > self.size() {
            self.data.resize(small(end), 0);
        }
    }
}
