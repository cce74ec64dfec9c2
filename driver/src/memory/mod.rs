//! DMA memory: regions, the IOVA allocator, owned buffers, PRP lists.

mod target;

pub use target::{DmaTarget, DmaTargetError};
