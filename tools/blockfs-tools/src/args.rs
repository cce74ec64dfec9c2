//! The command line of `blockfs`.

use super::mkfs::permissions;
use super::volume::VolumePath;
use clap::{Parser, Subcommand};
use device::{DeviceString, Place};

/// Works with the files of blockfs volumes.
#[derive(Clone, Debug, Parser)]
#[command(name = "blockfs", version, max_term_width = 100, after_help = NOTES)]
pub struct Args {
    /// Write results and errors as JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const NOTES: &str = "\
A path on a volume is written DEVICE:/PATH. DEVICE is a PCI address, emu:file=F or
vfio-user:path=SOCKET; a volume is made with mkfs.blockfs and checked with fsck.blockfs.

Examples:
  blockfs cp -r /usr/share/doc emu:file=disk.img:/doc     into a volume in a file
  blockfs cp -r 0000:01:00.0:/logs .                      out of one on a drive
  blockfs ls -l emu:file=disk.img:/doc
  blockfs --json df emu:file=disk.img

Exit status: 0 done, 1 not done or not all of it, 2 wrong usage, 130 interrupted.";

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// List directories
    Ls(Ls),
    /// Write files to standard output
    Cat {
        /// The files
        #[arg(value_name = "DEVICE:/PATH", required = true)]
        paths: Vec<VolumePath>,
    },
    /// Copy files into a volume, out of one, within one, or from one to another
    Cp(Cp),
    /// Rename a file or a directory, in one step
    Mv(Mv),
    /// Remove files
    Rm(Rm),
    /// Make directories
    Mkdir(Mkdir),
    /// Show the attributes of files
    Stat {
        /// Show where a symbolic link leads
        #[arg(short = 'L', long)]
        dereference: bool,
        /// The files
        #[arg(value_name = "DEVICE:/PATH", required = true)]
        paths: Vec<VolumePath>,
    },
    /// Show how much of a volume is used
    Df {
        /// The volume
        #[arg(value_name = "DEVICE")]
        device: DeviceString,
    },
    /// Show where a file's blocks are
    Fiemap {
        /// The file
        #[arg(value_name = "DEVICE:/PATH")]
        path: VolumePath,
    },
    /// Tell the drive which blocks are free
    Trim {
        /// The volume
        #[arg(value_name = "DEVICE")]
        device: DeviceString,
    },
    /// Take the rest of a drive that has grown into the volume
    Grow {
        /// The volume
        #[arg(value_name = "DEVICE")]
        device: DeviceString,
    },
    /// Show what a volume is like
    Info {
        /// The volume
        #[arg(value_name = "DEVICE")]
        device: DeviceString,
    },
    /// Show the superblocks and all metadata, as operations
    Dump {
        /// The volume
        #[arg(value_name = "DEVICE")]
        device: DeviceString,
        /// What can be read of a damaged one
        #[arg(long)]
        salvage: bool,
    },
}

/// `ls`.
#[derive(Clone, Debug, clap::Args)]
pub struct Ls {
    /// Show attributes, too
    #[arg(short, long)]
    pub long: bool,
    /// The directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show a directory itself, not what is in it
    #[arg(short, long, conflicts_with = "recursive")]
    pub directory: bool,
    /// What to list
    #[arg(value_name = "DEVICE:/PATH", required = true)]
    pub paths: Vec<VolumePath>,
}

/// `cp`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Permissions, owners, times, holes, symbolic links and hard links are kept \
                  (owners on the host for root alone); extended attributes are not."
)]
pub struct Cp {
    /// Directories with all that is in them, symbolic links as they are
    #[arg(short, visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// The last path is the copy's name, even if a directory has it
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// What to copy, and last where to: DEVICE:/PATH or a host path
    #[arg(value_name = "PATH", num_args = 2.., required = true)]
    pub paths: Vec<Place>,
}

/// `mv`.
#[derive(Clone, Debug, clap::Args)]
pub struct Mv {
    /// Do not replace anything
    #[arg(short, long, conflicts_with = "exchange")]
    pub no_clobber: bool,
    /// Exchange both
    #[arg(long)]
    pub exchange: bool,
    /// The last path is the new name, even if a directory has it
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// What to rename, and last where to, on the same volume
    #[arg(value_name = "DEVICE:/PATH", num_args = 2.., required = true)]
    pub paths: Vec<VolumePath>,
}

/// `rm`.
#[derive(Clone, Debug, clap::Args)]
pub struct Rm {
    /// Directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// What is not there is no error
    #[arg(short, long)]
    pub force: bool,
    /// What to remove
    #[arg(value_name = "DEVICE:/PATH", required = true)]
    pub paths: Vec<VolumePath>,
}

/// `mkdir`.
#[derive(Clone, Debug, clap::Args)]
pub struct Mkdir {
    /// The directories above, too; one that is there is no error
    #[arg(short, long)]
    pub parents: bool,
    /// Permission bits, octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = permissions)]
    pub mode: u16,
    /// What to make
    #[arg(value_name = "DEVICE:/PATH", required = true)]
    pub paths: Vec<VolumePath>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("blockfs").chain(line.split_whitespace()))
    }

    /// clap finds no contradiction in the definition.
    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    /// The letters are those of coreutils, and --json goes anywhere.
    #[test]
    fn the_letters_are_the_usual_ones() {
        for line in [
            "ls -lR emu:/",
            "cp -r a b emu:/c",
            "cp -R emu:/a .",
            "cp -rT a emu:/c",
            "mv -n emu:/a emu:/b",
            "rm -rf emu:/a emu:/b",
            "mkdir -p -m 700 emu:/a",
            "stat --json emu:/a",
            "df emu --json",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    /// What makes no sense is refused while parsing.
    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "ls",
            "ls emu",
            "ls /a",
            "cp a",
            "mv emu:/a",
            "mkdir -m 9 emu:/a",
            "df emu:/a",
            "mv -n --exchange emu:/a emu:/b",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }
}
