//! The NVM command set.

use super::{Answer, Controller};
use crate::media::MediaError;
use driver::spec::command::{CDW12_DEALLOCATE, CDW12_FUA, DSM_DEALLOCATE, DsmRange};
use driver::spec::identify::NSID_ALL;
use driver::spec::opcode::IoOpcode;
use driver::spec::{Sqe, Status};
use zerocopy::FromBytes;

/// Where a command with blocks goes: checked against the namespace and the transfer limit.
#[derive(Clone, Copy)]
struct Extent {
    slba: u64,
    blocks: u64,
    bytes: u64,
    null: bool,
}

impl Controller {
    /// Executes one I/O command.
    #[inline]
    pub(super) fn io_command(&mut self, sqe: &Sqe) -> Answer {
        self.stats.count_io(sqe.opcode);
        if sqe.flags & (Sqe::FLAGS_PSDT | Sqe::FLAGS_FUSE) != 0 {
            // No SGLs, no fused commands.
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        match IoOpcode(sqe.opcode) {
            IoOpcode::READ => self.read(sqe),
            IoOpcode::WRITE => self.write(sqe),
            IoOpcode::FLUSH => self.flush(sqe),
            IoOpcode::COMPARE => self.compare(sqe),
            IoOpcode::WRITE_ZEROES => self.write_zeroes(sqe),
            IoOpcode::DATASET_MANAGEMENT => self.dataset_management(sqe),
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }

    #[inline(always)]
    fn extent(&mut self, sqe: &Sqe) -> Result<Extent, Status> {
        let Some(disk) = self.disk_mut(sqe.nsid) else {
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        };
        let (slba, blocks) = (sqe.slba(), u64::from(sqe.cdw12 & 0xffff) + 1);
        let inside = slba
            .checked_add(blocks)
            .is_some_and(|end| end <= disk.media.blocks());
        if !inside {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        let bytes = blocks << disk.media.block_shift();
        Ok(Extent {
            slba,
            blocks,
            bytes,
            null: disk.media.is_null(),
        })
    }

    /// The extent of a command that transfers its blocks.
    #[inline(always)]
    fn transfer(&mut self, sqe: &Sqe) -> Result<(Extent, usize), Status> {
        let extent = self.extent(sqe)?;
        match usize::try_from(extent.bytes) {
            Ok(len) if extent.bytes <= self.max_transfer() => Ok((extent, len)),
            _ => Err(Status::INVALID_FIELD.with_dnr()),
        }
    }

    #[inline(always)]
    fn read(&mut self, sqe: &Sqe) -> Answer {
        let (extent, len) = self.transfer(sqe)?;
        self.stats.bytes_read += extent.bytes;
        if extent.null {
            return Ok(0);
        }
        self.with_data(sqe, len, |controller, spans| {
            let disk = controller
                .disk_mut(sqe.nsid)
                .ok_or(Status::INVALID_NAMESPACE)?;
            disk.media
                .read_spans(extent.slba, spans)
                .map_err(|error| failed_read(&error))
        })?;
        Ok(0)
    }

    #[inline(always)]
    fn write(&mut self, sqe: &Sqe) -> Answer {
        let (extent, len) = self.transfer(sqe)?;
        self.stats.bytes_written += extent.bytes;
        if extent.null {
            return Ok(0);
        }
        let fua = sqe.cdw12 & CDW12_FUA != 0;
        self.with_data(sqe, len, |controller, spans| {
            let disk = controller
                .disk_mut(sqe.nsid)
                .ok_or(Status::INVALID_NAMESPACE)?;
            disk.media
                .write_spans(extent.slba, spans, fua)
                .map_err(|error| failed_write(&error))
        })?;
        Ok(0)
    }

    fn compare(&mut self, sqe: &Sqe) -> Answer {
        let (extent, len) = self.transfer(sqe)?;
        if extent.null {
            return Ok(0);
        }
        let equal = self.with_data(sqe, len, |controller, spans| {
            let disk = controller
                .disk_mut(sqe.nsid)
                .ok_or(Status::INVALID_NAMESPACE)?;
            disk.media
                .compare_spans(extent.slba, spans)
                .map_err(|error| failed_read(&error))
        })?;
        if equal {
            Ok(0)
        } else {
            Err(Status::COMPARE_FAILURE.with_dnr())
        }
    }

    fn write_zeroes(&mut self, sqe: &Sqe) -> Answer {
        // No data moves: the transfer limit does not apply.
        let extent = self.extent(sqe)?;
        let (deallocate, fua) = (
            sqe.cdw12 & CDW12_DEALLOCATE != 0,
            sqe.cdw12 & CDW12_FUA != 0,
        );
        let disk = self.disk_mut(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;
        let done = disk.media.zero(extent.slba, extent.blocks, deallocate, fua);
        done.map_err(|error| failed_write(&error))?;
        Ok(0)
    }

    fn flush(&mut self, sqe: &Sqe) -> Answer {
        let flushed = match sqe.nsid {
            NSID_ALL => self.flush_all(),
            nsid => match self.disk_mut(nsid) {
                Some(disk) => disk.media.flush(),
                None => return Err(Status::INVALID_NAMESPACE.with_dnr()),
            },
        };
        flushed.map_err(|error| failed_write(&error))?;
        Ok(0)
    }

    fn dataset_management(&mut self, sqe: &Sqe) -> Answer {
        let Some(disk) = self.disk_mut(sqe.nsid) else {
            return Err(Status::INVALID_NAMESPACE.with_dnr());
        };
        let blocks = disk.media.blocks();
        if disk.media.is_null() {
            return Ok(0);
        }
        let count = usize::try_from(sqe.cdw10 & 0xff).unwrap_or(0) + 1;
        let mut ranges = [DsmRange::default(); 256];
        let ranges = ranges.get_mut(..count).ok_or(Status::INTERNAL_ERROR)?;
        let mut bytes = [0; 256 * size_of::<DsmRange>()];
        let bytes = bytes
            .get_mut(..size_of_val(ranges))
            .ok_or(Status::INTERNAL_ERROR)?;
        self.request(sqe, bytes)?;
        for (range, bytes) in ranges
            .iter_mut()
            .zip(bytes.chunks_exact(size_of::<DsmRange>()))
        {
            *range = DsmRange::read_from_bytes(bytes).map_err(|_| Status::INTERNAL_ERROR)?;
            let end = range.slba.get().checked_add(range.blocks.get().into());
            if end.is_none_or(|end| end > blocks) {
                return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
            }
        }
        if sqe.cdw11 & DSM_DEALLOCATE == 0 {
            return Ok(0); // Hints on later access: nothing to do.
        }
        let disk = self.disk_mut(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;
        for range in ranges {
            let zeroed = disk
                .media
                .zero(range.slba.get(), range.blocks.get().into(), true, false);
            zeroed.map_err(|error| failed_write(&error))?;
        }
        Ok(0)
    }
}

/// The range was checked before: what fails now is the file behind the media.
fn failed_read(_: &MediaError) -> Status {
    Status::UNRECOVERED_READ
}

fn failed_write(error: &MediaError) -> Status {
    match error {
        MediaError::ReadOnly => Status::WRITE_PROTECTED.with_dnr(),
        _ => Status::WRITE_FAULT,
    }
}
