//! Works with files on volumes: see `blockfs --help`.

use blockfs_tools::args::Args;
use blockfs_tools::{commands, output};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    output::end("blockfs", args.json, commands::run(&args))
}
