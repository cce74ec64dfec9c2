//! Checks a volume: see `fsck.blockfs --help`.

use blockfs_tools::error::ToolError;
use blockfs_tools::{fsck, output, signals};
use clap::Parser;
use clap::error::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match fsck::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Where nobody reads the text there is still the exit status.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(fsck::USAGE),
            };
        }
    };
    let interrupt = signals::catch().map_err(ToolError::Signals);
    match interrupt.and_then(|interrupt| fsck::run(&args, &interrupt)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::tell("fsck.blockfs", args.json, &error);
            ExitCode::from(fsck::exit_status(&error))
        }
    }
}
