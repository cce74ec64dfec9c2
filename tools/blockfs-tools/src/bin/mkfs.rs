//! Makes a volume: see `mkfs.blockfs --help`.

use blockfs_tools::{mkfs, output};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = mkfs::Args::parse();
    output::end("mkfs.blockfs", args.json, mkfs::run(&args))
}
