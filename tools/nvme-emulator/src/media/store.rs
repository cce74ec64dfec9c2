//! What holds the bytes: memory, a sparse file, or nothing.

use crate::raw::{HOST_PAGE, Pages, Span, punch_hole};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes, addressed by offset. Unwritten ones read as zeros.
#[derive(Debug)]
#[non_exhaustive]
pub enum Store {
    /// Memory of this process.
    #[non_exhaustive]
    Ram(RamStore),
    /// A file, sparse where nothing was written.
    #[non_exhaustive]
    File(FileStore),
    /// Nothing: writes vanish, and reads leave the buffer as it was.
    Null {
        /// The size that it claims, in bytes.
        len: u64,
    },
}

/// Memory as a store.
#[derive(Debug)]
pub struct RamStore {
    pages: Pages,
    len: u64,
}

/// A file as a store.
#[derive(Debug)]
pub struct FileStore {
    pub(super) file: File,
    len: u64,
    writable: bool,
}

/// Why a store cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file has contents, and another length than was asked for.
    #[error(
        "{} has {actual} bytes, not the {asked} asked for, and a file with contents is never \
         resized: leave the size out, give {actual}, or name another file",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        actual: u64,
        /// The length asked for, in bytes.
        asked: u64,
    },
    /// Another process, or another store of this one, has it open.
    #[error(
        "{} is in use by another process, which has it locked: wait until that has ended",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Zeros to write where a file cannot be punched, and the piece in which files are compared.
const CHUNK: usize = 64 << 10;

impl Store {
    /// `len` bytes of memory, taken from the system as they are written.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn ram(len: u64) -> Result<Self, StoreError> {
        let too_long = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = usize::try_from(len).map_err(too_long)?;
        let pages = Pages::new(bytes)?;
        Ok(Self::Ram(RamStore { pages, len }))
    }

    /// The file at `path`, at its length. With `len` a missing or empty one is made that long,
    /// sparse; one with contents is never resized. One that may only be read can be read.
    ///
    /// The file is locked (flock(2)) as long as the store lives: two drives of one file would destroy
    /// what is on it.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if it is locked, [`StoreError::Length`] if the file has contents and is
    /// not `len` long; otherwise [`StoreError::Io`].
    pub fn file(path: &Path, len: Option<u64>) -> Result<Self, StoreError> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(len.is_some())
            .truncate(false);
        let (file, writable) = match options.open(path) {
            Ok(file) => (file, true),
            Err(error) if may_be_readable(&error) => (File::open(path).map_err(|_| error)?, false),
            Err(error) => return Err(error.into()),
        };
        let locked = match writable {
            true => file.try_lock(),
            false => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(StoreError::InUse { path });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let actual = file.metadata()?.len();
        let len = match len {
            Some(asked) if actual == 0 => {
                file.set_len(asked)?;
                asked
            }
            Some(asked) if asked != actual => {
                let path = path.to_owned();
                return Err(StoreError::Length {
                    path,
                    actual,
                    asked,
                });
            }
            _ => actual,
        };
        Ok(Self::File(FileStore {
            file,
            len,
            writable,
        }))
    }

    /// A store of `len` bytes that keeps nothing.
    #[must_use]
    pub fn null(len: u64) -> Self {
        Self::Null { len }
    }

    pub(super) fn is_ram(&self) -> bool {
        matches!(self, Self::Ram(_))
    }

    pub(super) fn is_writable(&self) -> bool {
        match self {
            Self::File(file) => file.writable,
            Self::Ram(_) | Self::Null { .. } => true,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Ram(ram) => ram.len,
            Self::File(file) => file.len,
            Self::Null { len } => *len,
        }
    }

    pub(super) fn read(&self, offset: u64, into: Span) -> io::Result<()> {
        match self {
            Self::Ram(ram) => into.copy_from(ram.span(offset, into.len())?),
            Self::File(file) => into.read_file(&file.file, offset)?,
            Self::Null { .. } => {}
        }
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, from: Span) -> io::Result<()> {
        match self {
            Self::Ram(ram) => ram.span(offset, from.len())?.copy_from(from),
            Self::File(file) => from.write_file(&file.file, offset)?,
            Self::Null { .. } => {}
        }
        Ok(())
    }

    pub(super) fn equals(&self, offset: u64, with: Span) -> io::Result<bool> {
        match self {
            Self::Ram(ram) => Ok(ram.span(offset, with.len())?.equals(with)),
            Self::Null { .. } => Ok(true),
            Self::File(file) => {
                let mut piece = vec![0; with.len().min(CHUNK)];
                let mut done = 0;
                while done < with.len() {
                    let len = piece.len().min(with.len() - done);
                    let ours = Span::target(&mut piece[..len]);
                    ours.read_file(&file.file, offset + done as u64)?;
                    let theirs = with.slice(done, len).ok_or(io::ErrorKind::InvalidInput)?;
                    if !ours.equals(theirs) {
                        return Ok(false);
                    }
                    done += len;
                }
                Ok(true)
            }
        }
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64, deallocate: bool) -> io::Result<()> {
        match self {
            Self::Ram(ram) => ram.zero(offset, len),
            Self::File(file) => file.zero(offset, len, deallocate),
            Self::Null { .. } => Ok(()),
        }
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.file.sync_data(),
            Self::Ram(_) | Self::Null { .. } => Ok(()),
        }
    }
}

/// Whether a file that could not be opened for reading and writing may still be read.
fn may_be_readable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::ExecutableFileBusy
    )
}

impl RamStore {
    #[inline]
    fn span(&self, offset: u64, len: usize) -> io::Result<Span> {
        self.pages
            .span(offset, len)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Whole pages go back to the system, the edges are overwritten.
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let bytes = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let span = self.span(offset, bytes)?;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let head = start.next_multiple_of(HOST_PAGE) - start;
        let inner = bytes.saturating_sub(head) / HOST_PAGE * HOST_PAGE;
        if inner < CHUNK || !self.pages.release(start + head, inner) {
            span.fill_zero();
            return Ok(());
        }
        span.first(head).fill_zero();
        let tail = head + inner;
        if let Some(rest) = span.slice(tail, bytes - tail) {
            rest.fill_zero();
        }
        Ok(())
    }
}

impl FileStore {
    fn zero(&mut self, offset: u64, len: u64, deallocate: bool) -> io::Result<()> {
        if len == 0 || (deallocate && punch_hole(&self.file, offset, len).is_ok()) {
            return Ok(());
        }
        let zeros = vec![0; CHUNK];
        let mut at = offset;
        let end = offset.saturating_add(len);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            Span::source(&zeros)
                .first(piece)
                .write_file(&self.file, at)?;
            at += piece as u64;
        }
        Ok(())
    }
}
