//! Unmounting: everything durable, a checkpoint if there is anything to put in it, and a superblock that
//! says so.

use super::mkfs::superblock_block;
use super::wire::Wire;
use super::{Journal, JournalError, MetaTag};
use crate::device::BlockDevice;
use crate::format::geometry::Geometry;
use crate::tree::Tree;
use driver::clock::{Clock, Deadline};
use std::time::Duration;

impl<D: BlockDevice<MetaTag>> Journal<D> {
    /// Unmounts the volume; waits.
    ///
    /// # Errors
    /// The failure that stopped the journal, or a device that does not answer; with the device. What a
    /// sync acknowledged is safe.
    pub fn close(
        mut self,
        tree: &mut Tree,
        clock: &dyn Clock,
        limit: Duration,
    ) -> Result<D, (JournalError, D)> {
        match self.try_close(tree, clock, limit) {
            Ok(()) => Ok(self.device),
            Err(error) => Err((error, self.device)),
        }
    }

    fn try_close(
        &mut self,
        tree: &mut Tree,
        clock: &dyn Clock,
        limit: Duration,
    ) -> Result<(), JournalError> {
        if self.read_only {
            return Ok(());
        }
        self.commit();
        let flush = self.flush();
        self.settle(tree, clock, limit, |journal| {
            journal.durable >= journal.last().0 && journal.flushed(flush) && journal.is_idle()
        })?;
        self.closing = true;
        if self.last().0 >= self.superblock.journal.txid || self.grown {
            let last = self.checkpoint();
            return self.settle(tree, clock, limit, |journal| journal.checkpointed(last));
        }
        let mut next = self.superblock;
        next.generation += 1;
        next.clean = true;
        let lba = Geometry::superblock_lba(self.identity.lba_size, next.copy());
        let block = superblock_block(&next, lba)?;
        let fua = self.limits.volatile_cache;
        let mut wire = Wire {
            device: &mut self.device,
            domain: &self.domain,
            clock,
            limit,
        };
        wire.write(lba, &block, fua)?;
        self.superblock = next;
        Ok(())
    }

    fn settle(
        &mut self,
        tree: &mut Tree,
        clock: &dyn Clock,
        limit: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), JournalError> {
        let mut deadline = Deadline::after(clock, limit);
        loop {
            self.pump(tree)?;
            if done(self) {
                return Ok(());
            }
            if !deadline.wait_turn() {
                return Err(JournalError::TimedOut { limit });
            }
        }
    }
}
