//! Records and flushes on their way.
//!
//! A record is written when the one before it is on the medium and the data that it speaks of have been
//! flushed. With a volatile cache it is written with FUA.

use super::checkpoint::Checkpoint;
use super::{Journal, JournalError, MetaTag, Tag};
use crate::bugs::{self, Bug};
use crate::device::BlockDevice;
use crate::format::record::{RecordBuilder, Stamp};
use driver::memory::DmaBuf;
use driver::namespace::Lba;
use driver::queue::Rejected;

/// The record that is on its way.
#[derive(Debug)]
pub(super) struct Writing {
    txid: u64,
    record: RecordBuilder,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits for this flush.
    Flush(u64),
    /// Waits for room in the ring.
    Room,
    /// Waits for the device queue.
    Sealed {
        lba: Lba,
        buf: Option<DmaBuf>,
        crc: u32,
    },
    /// Waits for the device.
    Written { crc: u32 },
}

impl<D: BlockDevice<MetaTag>> Journal<D> {
    pub(super) fn go_on_records(&mut self) -> Result<(), JournalError> {
        if self.writing.is_none() {
            self.begin_record()?;
        }
        let Some(mut writing) = self.writing.take() else {
            return Ok(());
        };
        let result = self.go_on_record(&mut writing);
        self.writing = Some(writing);
        result
    }

    fn begin_record(&mut self) -> Result<(), JournalError> {
        // A checkpoint without its last records in the ring: until a superblock names it, no record may
        // follow a gap.
        if self.checkpoint.as_ref().is_some_and(Checkpoint::has_gap) {
            return Ok(());
        }
        if self.queue.is_empty() && self.wanted >= self.open_txid {
            self.cut();
        }
        let Some((txid, record)) = self.queue.pop_front() else {
            return Ok(());
        };
        if bugs::on(Bug::RecordWithoutFlush) {
            self.dirty = false;
        }
        let flush = self.covering();
        self.writing = Some(Writing {
            txid,
            record,
            stage: Stage::Flush(flush),
        });
        Ok(())
    }

    fn go_on_record(&mut self, writing: &mut Writing) -> Result<(), JournalError> {
        loop {
            match &mut writing.stage {
                Stage::Flush(flush) => {
                    if self.flushes.ended < *flush {
                        if self.flushes.begun < *flush {
                            self.begin_flush()?;
                        }
                        return Ok(());
                    }
                    writing.stage = Stage::Room;
                }
                Stage::Room => {
                    let bytes = writing.record.sealed_bytes() as u64;
                    let Some(pos) = self.ring.reserve(bytes) else {
                        self.checkpoint_wanted |= self.checkpoint.is_none();
                        return Ok(());
                    };
                    let stamp = Stamp {
                        epoch: self.superblock.epoch,
                        txid: writing.txid,
                        prev_crc: self.last_crc,
                        lba: self.ring.shape().lba(pos),
                    };
                    let sealed = writing.record.seal(&stamp)?;
                    // One record is under way at a time, and none is longer than the buffer.
                    let buf = self.record_buf.filled(sealed.bytes);
                    writing.stage = Stage::Sealed {
                        lba: stamp.lba,
                        buf: Some(buf.ok_or(JournalError::TooLong)?),
                        crc: sealed.crc,
                    };
                }
                Stage::Sealed { lba, buf, crc } => {
                    let (lba, crc) = (*lba, *crc);
                    let Some(taken) = buf.take() else {
                        return Ok(());
                    };
                    let fua = self.limits.volatile_cache && !bugs::on(Bug::RecordWithoutFua);
                    match self.device.write(lba, taken, fua, self.tag(Tag::Record)) {
                        Ok(()) => writing.stage = Stage::Written { crc },
                        Err(rejected) => {
                            *buf = full(rejected)?;
                            return Ok(());
                        }
                    }
                }
                Stage::Written { .. } => return Ok(()),
            }
        }
    }

    pub(super) fn record_ended(&mut self, ok: bool) {
        let Some(writing) = self.writing.take() else {
            return;
        };
        if let Stage::Written { crc } = writing.stage
            && ok
        {
            self.durable = writing.txid;
            self.last_crc = crc;
            self.record_durable();
        }
        let mut record = writing.record;
        record.clear();
        self.spare.push(record);
    }

    /// Drops the records up to `upto` if the first of them waits for room in the ring, because a
    /// checkpoint has what they say. Whether it did.
    pub(super) fn drop_waiting(&mut self, upto: u64) -> bool {
        let waits =
            |writing: &Writing| matches!(writing.stage, Stage::Room) && writing.txid <= upto;
        let Some(Writing { mut record, .. }) = self.writing.take_if(|writing| waits(writing))
        else {
            return false;
        };
        loop {
            record.clear();
            self.spare.push(record);
            match self.queue.pop_front_if(|(txid, _)| *txid <= upto) {
                Some((_, next)) => record = next,
                None => return true,
            }
        }
    }

    /// Begins a flush that nothing else has begun.
    pub(super) fn go_on_flush(&mut self) -> Result<(), JournalError> {
        if self.flushes.begun < self.flushes.wanted {
            self.begin_flush()?;
        }
        Ok(())
    }

    /// Begins a flush, if the device queue takes it.
    pub(super) fn begin_flush(&mut self) -> Result<(), JournalError> {
        let number = self.flushes.begun + 1;
        match self.device.flush(self.tag(Tag::Flush(number))) {
            Ok(()) => {
                self.flushes.begun = number;
                if std::mem::take(&mut self.dirty) {
                    self.flushes.covering = number;
                }
            }
            Err(rejected) => drop(full(rejected)?),
        }
        Ok(())
    }
}

/// The buffer of a command that will be tried again.
pub(super) fn full(rejected: Rejected<MetaTag>) -> Result<Option<DmaBuf>, JournalError> {
    match rejected.is_full() {
        true => Ok(rejected.buf),
        false => Err(JournalError::Rejected(rejected.reason)),
    }
}
