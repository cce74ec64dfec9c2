//! The measuring tool: see `nvme-perf --help`.

use clap::Parser;
use device::{chain, error_json};
use nvme_perf::args::{Args, OutputFormat};
use std::io::{Write, stderr};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    match nvme_perf::measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = match args.output_format {
                OutputFormat::Json => error_json(error.code(), &error),
                OutputFormat::Normal => {
                    format!("nvme-perf: {}", chain(&error).join("\n  because: "))
                }
            };
            // Where nobody reads the text there is still the exit status.
            let _ = writeln!(stderr(), "{text}");
            ExitCode::from(error.exit_status())
        }
    }
}
