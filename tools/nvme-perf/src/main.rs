//! The measuring tool: see `nvme-perf --help`.

use clap::Parser;
use device::{chain, error_json};
use nvme_perf::args::{Args, OutputFormat};
use nvme_perf::error::PerfError;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, Write, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let args = Args::parse();
    let caught = catch_signals().map_err(PerfError::Signals);
    match caught.and_then(|interrupt| nvme_perf::measure(&args, &interrupt)) {
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

/// A flag that the first SIGINT or SIGTERM sets. The next one does what it would do anyway: it kills.
fn catch_signals() -> io::Result<Arc<AtomicBool>> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still unset.
        flag::register_conditional_default(signal, Arc::clone(&interrupt))?;
        flag::register(signal, Arc::clone(&interrupt))?;
    }
    Ok(interrupt)
}
