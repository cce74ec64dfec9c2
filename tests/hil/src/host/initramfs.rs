//! Writes the guest's file system: a cpio archive in the "newc" form that the kernel unpacks
//! (Linux: Documentation/driver-api/early-userspace/buffer-format.rst).

use crate::kernel::Module;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A program for the guest.
#[derive(Debug)]
pub(crate) struct Program {
    /// Where it lies in the guest, without the first slash.
    pub(crate) path: &'static str,
    /// Where it lies here.
    pub(crate) file: PathBuf,
}

/// A folder for the guest, with all that is in it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Where it lies in the guest, without the first slash.
    pub(crate) path: String,
    /// Where it lies here.
    pub(crate) folder: PathBuf,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Writes the archive.
pub(crate) fn write(
    archive: &Path,
    programs: &[Program],
    modules: &[Module],
    trees: &[Tree],
) -> io::Result<()> {
    let mut archive = Archive {
        out: BufWriter::new(File::create(archive)?),
        inode: 0,
    };
    for folder in ["bin", "dev", "modules", "source"] {
        archive.entry(folder, FOLDER, (0, 0), &[])?;
    }
    // The kernel opens it for the first process, before anything is mounted.
    archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[])?;
    for program in programs {
        archive.entry(program.path, EXECUTABLE, (0, 0), &fs::read(&program.file)?)?;
    }
    for (index, module) in modules.iter().enumerate() {
        let path = format!("modules/{index:02}-{}.ko", module.name);
        archive.entry(&path, EXECUTABLE, (0, 0), &module.content)?;
    }
    for tree in trees {
        archive.tree(&tree.path, &tree.folder)?;
    }
    archive.entry("TRAILER!!!", 0, (0, 0), &[])?;
    archive.out.flush()
}

struct Archive<W: Write> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        self.inode += 1;
        let too_large = |_| io::Error::other(format!("{path} is too large for an initramfs"));
        let size = u32::try_from(content.len()).map_err(too_large)?;
        let name_size = u32::try_from(path.len() + 1).map_err(too_large)?;
        write!(self.out, "070701")?;
        // ino, mode, uid, gid, nlink, mtime, filesize, dev (2), rdev (2), namesize, check
        let (major, minor) = device;
        for field in [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0,
        ] {
            write!(self.out, "{field:08X}")?;
        }
        // Header and name together, and the content, each end on a multiple of four.
        const HEADER: usize = 6 + 13 * 8;
        let named = (HEADER + path.len() + 1).next_multiple_of(4);
        self.padded(path.as_bytes(), named - HEADER)?;
        self.padded(content, content.len().next_multiple_of(4))
    }

    fn tree(&mut self, path: &str, folder: &Path) -> io::Result<()> {
        self.entry(path, FOLDER, (0, 0), &[])?;
        for found in fs::read_dir(folder)? {
            let found = found?;
            let (kind, name) = (found.file_type()?, found.file_name());
            let path = format!("{path}/{}", name.to_string_lossy());
            if kind.is_dir() {
                self.tree(&path, &found.path())?;
            } else if kind.is_file() {
                self.entry(&path, FILE, (0, 0), &fs::read(found.path())?)?;
            }
        }
        Ok(())
    }

    /// Writes `content` and zeros up to `len` bytes.
    fn padded(&mut self, content: &[u8], len: usize) -> io::Result<()> {
        self.out.write_all(content)?;
        self.out.write_all(&vec![0; len - content.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers start at multiples of four, whatever the lengths of names and contents.
    #[test]
    fn entries_are_aligned() {
        let mut archive = Archive {
            out: Vec::new(),
            inode: 0,
        };
        for name in ["a", "ab", "abc", "abcd"] {
            for content in [&b""[..], b"1", b"12", b"123"] {
                let start = archive.out.len();
                archive.entry(name, EXECUTABLE, (0, 0), content).unwrap();
                assert_eq!(start % 4, 0);
                let entry = &archive.out[start..];
                assert!(entry.starts_with(b"070701"));
                assert_eq!(&entry[110..110 + name.len()], name.as_bytes());
                assert_eq!(entry[110 + name.len()], 0, "names end with a zero");
                let body = (110 + name.len() + 1).next_multiple_of(4);
                assert_eq!(&entry[body..body + content.len()], content);
                assert_eq!(entry.len(), body + content.len().next_multiple_of(4));
            }
        }
    }
}
