//! Records and flushes on their way.
//!
//! A record is written when the one before it is on the medium and the data that it speaks of have been
//! flushed. With a volatile cache it is written with FUA.

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
        if self.queue.is_empty() && self.wanted >= self.open_txid {
            self.cut();
        }
        let Some((txid, record)) = self.queue.pop_front() else {
            return Ok(());
        };
        // The flush that covers its data: the next if there are data that none covers.
        if bugs::on(Bug::RecordWithoutFlush) {
            self.dirty = false;
        }
        if self.dirty {
            self.begin_flush()?;
        }
        let flush = self.flushes.begun + u64::from(self.dirty);
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
                        // It could not be begun when the queue was full.
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
                    let mut buf = self.domain.alloc(sealed.bytes.len())?;
                    buf.write_at(0, sealed.bytes)?;
                    writing.stage = Stage::Sealed {
                        lba: stamp.lba,
                        buf: Some(buf),
                        crc: sealed.crc,
                    };
                }
                Stage::Sealed { lba, buf, crc } => {
                    let (lba, crc) = (*lba, *crc);
                    let Some(taken) = buf.take() else {
                        return Ok(());
                    };
                    let fua = self.limits.volatile_cache && !bugs::on(Bug::RecordWithoutFua);
                    match self.device.write(lba, taken, fua, MetaTag(Tag::Record)) {
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

    /// Takes back a record that waits for room: a checkpoint has what it says.
    pub(super) fn take_waiting(&mut self, upto: u64) -> bool {
        match &self.writing {
            None => true,
            Some(writing) if matches!(writing.stage, Stage::Room) && writing.txid <= upto => {
                self.writing = None;
                true
            }
            Some(writing) => writing.txid > upto,
        }
    }

    /// Whether the record on its way waits for room.
    pub(super) fn waits_for_room(&self) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|writing| matches!(writing.stage, Stage::Room))
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
        match self.device.flush(MetaTag(Tag::Flush(number))) {
            Ok(()) => {
                self.flushes.begun = number;
                self.dirty = false;
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
