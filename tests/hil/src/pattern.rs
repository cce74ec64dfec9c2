//! Contents of blocks that say where they belong and when they were written.

use driver::memory::DmaBuf;
use std::error::Error;

/// A length from one to `most`, short ones as often as long ones: the logarithm is drawn evenly.
pub fn random_length(rng: &mut fastrand::Rng, most: usize) -> usize {
    let shift = rng.u32(0..=most.ilog2());
    rng.usize(1..=most >> shift)
}

/// What a namespace must hold, block by block.
#[derive(Debug)]
pub struct Shadow {
    namespace: u32,
    block_bytes: usize,
    /// The generation of each block's contents; 0: zeros.
    generations: Vec<u32>,
    newest: u32,
}

impl Shadow {
    /// A namespace of zeros.
    pub fn new(namespace: &driver::namespace::Namespace) -> Self {
        // The drives of these tests are small.
        let blocks = usize::try_from(namespace.blocks()).unwrap_or(usize::MAX);
        Self {
            namespace: namespace.id(),
            block_bytes: namespace.block_size() as usize,
            generations: vec![0; blocks],
            newest: 0,
        }
    }

    /// Blocks in all.
    pub fn blocks(&self) -> usize {
        self.generations.len()
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Makes new contents for the blocks from `lba` on.
    pub fn next(&mut self, lba: usize, bytes: &mut [u8]) {
        self.newest += 1;
        for (index, block) in bytes.chunks_mut(self.block_bytes).enumerate() {
            self.generations[lba + index] = self.newest;
            stamp(block, self.namespace, lba + index, self.newest);
        }
    }

    /// As [`Shadow::next`], into a buffer.
    pub fn next_into(&mut self, lba: usize, buf: &mut DmaBuf) -> Result<(), Box<dyn Error>> {
        let mut bytes = vec![0; buf.len()];
        self.next(lba, &mut bytes);
        Ok(buf.write_at(0, &bytes)?)
    }

    /// The generations of blocks, to [`Shadow::restore`] them if a write is not accepted.
    pub fn generations_of(&self, lba: usize, blocks: usize) -> Vec<u32> {
        self.generations[lba..lba + blocks].to_vec()
    }

    /// Takes back what [`Shadow::next`] noted.
    pub fn restore(&mut self, lba: usize, generations: &[u32]) {
        self.generations[lba..lba + generations.len()].copy_from_slice(generations);
    }

    /// Notes that blocks have become zeros.
    pub fn zeroed(&mut self, lba: usize, blocks: usize) {
        self.generations[lba..lba + blocks].fill(0);
    }

    /// Compares what was read from `lba` on with what must be there.
    pub fn check(&self, lba: usize, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut expected = vec![0; self.block_bytes];
        for (index, block) in bytes.chunks(self.block_bytes).enumerate() {
            stamp(
                &mut expected,
                self.namespace,
                lba + index,
                self.generations[lba + index],
            );
            if block != expected {
                return Err(self.difference(lba + index, index, block).into());
            }
        }
        Ok(())
    }

    /// As [`Shadow::check`], for a buffer.
    pub fn check_buf(&self, lba: usize, buf: &DmaBuf) -> Result<(), Box<dyn Error>> {
        let mut bytes = vec![0; buf.len()];
        buf.read_at(0, &mut bytes)?;
        self.check(lba, &bytes)
    }

    fn difference(&self, lba: usize, index: usize, block: &[u8]) -> String {
        let word = |at: usize| {
            let word = block
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        format!(
            "namespace {} block {lba} (number {index} of the transfer) should be generation {}; it \
             says: block {}, namespace and generation {:#x}",
            self.namespace,
            self.generations[lba],
            word(0),
            word(8)
        )
    }
}

/// Fills a block: its number, its namespace and generation, and words that depend on all of these.
fn stamp(block: &mut [u8], namespace: u32, lba: usize, generation: u32) {
    if generation == 0 {
        block.fill(0);
        return;
    }
    let (lba, time) = (
        lba as u64,
        u64::from(namespace) << 32 | u64::from(generation),
    );
    let step = (lba ^ time.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = step;
    for (index, bytes) in block.chunks_exact_mut(8).enumerate() {
        let value = match index {
            0 => lba,
            1 => time,
            _ => word,
        };
        bytes.copy_from_slice(&value.to_le_bytes());
        word = word.wrapping_add(step);
    }
}
