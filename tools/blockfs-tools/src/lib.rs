//! The tools for blockfs volumes: `mkfs.blockfs`, `fsck.blockfs`, and `blockfs`, which does what ls, cat,
//! cp, mv, rm, mkdir, stat and df do, on a drive that no kernel touches.
//!
//! ```text
//! mkfs.blockfs emu:file=disk.img,size=1g
//! blockfs cp -r /usr/share/doc emu:file=disk.img:/doc
//! blockfs ls -l emu:file=disk.img:/doc
//! fsck.blockfs emu:file=disk.img
//! ```
//!
//! Cargo's names for the first two have a dash (`mkfs-blockfs`, `fsck-blockfs`), since it allows no dot;
//! `mkfs -t blockfs` and `fsck -t blockfs` find them under their usual names.
//!
//! | file | what |
//! |---|---|
//! | `bin/` | the three programs |
//! | `volume.rs` | from a device string to a mounted volume |
//! | `error.rs` | what can go wrong, exit statuses |
//! | `output.rs` | how results and errors are written |
//! | `signals.rs` | SIGINT and SIGTERM |
//! | `mkfs.rs`, `fsck.rs`, `salvage.rs` | the first two programs |
//! | `args.rs`, `commands/` | the third: its command line, its commands |
//! | `copy/` | cp, in and out and within: the walk, and transfers that are under way at the same time |

pub mod args;
pub mod commands;
mod copy;
pub mod error;
pub mod fsck;
pub mod mkfs;
pub mod output;
mod salvage;
pub mod signals;
pub mod volume;
