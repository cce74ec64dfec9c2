//! From the command line to the report.

use super::args::{Args, OutputFormat};
use super::drive::{Drive, check_empty};
use super::error::PerfError;
use super::job::Job;
use super::memory;
use super::plan::Plan;
use super::report::Report;
use super::run::{Outcome, run};
use super::status_line::StatusLine;
use device::{DeviceString, Opened, format_size, open, preflight};
use driver::controller::{ControllerError, ControllerOptions, QueueOptions};
use driver::memory::{DmaDomain, SLAB_BYTES};
use driver::namespace::{BlockingIo, Namespace};
use std::fs::File;
use std::io::{self, BufWriter, Write, stdout};
use std::sync::atomic::AtomicBool;

/// Opens the drive, measures it and writes the report. Once `interrupt` is set the run ends early,
/// as if its time were up.
///
/// # Errors
/// [`PerfError`]. Where commands failed the report has been written all the same.
pub fn measure(args: &Args, interrupt: &AtomicBool) -> Result<(), PerfError> {
    let domain = DmaDomain::new();
    let options = ControllerOptions {
        io_queues: args.jobs.saturating_add(1),
        ..ControllerOptions::default()
    };
    memory::check(buffer_bytes(args))?;
    preflight(&args.device, dma_bytes(args, &options))?;
    let opened = open(&args.device, &domain, &options)?;
    let name = device_name(&args.device);
    let failed = |source: ControllerError| PerfError::Controller {
        device: name.clone(),
        source,
    };
    let namespace = opened.controller.namespace(opened.nsid).map_err(failed)?;
    let plan = Plan::new(args, namespace.block_size(), namespace.blocks())?;
    let drive = Drive::ask(&name, &opened.controller, &namespace).map_err(failed)?;
    if plan.mode.is_destructive() && args.device.is_persistent() && !args.force {
        let queue = opened
            .controller
            .queue_pair(&QueueOptions::default())
            .map_err(failed)?;
        let written = plan.range.first.0.saturating_mul(drive.lba_bytes.into());
        let mut io = BlockingIo::new(queue, namespace);
        check_empty(&drive, &mut io, &domain, written)?;
    }
    let mut output = Output::new(args)?;
    if args.dry_run {
        return output.write(|to| dry_run(args, &plan, &drive, to));
    }
    let outcome = run_jobs(args, &plan, &opened, namespace, &domain, interrupt)?;
    let report = Report {
        args,
        plan: &plan,
        drive: &drive,
        outcome: &outcome,
    };
    output.write(|to| report.write(to))?;
    verdict(&outcome)
}

/// Sets up the jobs and runs them.
fn run_jobs(
    args: &Args,
    plan: &Plan,
    opened: &Opened,
    namespace: Namespace,
    domain: &DmaDomain,
    interrupt: &AtomicBool,
) -> Result<Outcome, PerfError> {
    let job = |number| Job::new(&opened.controller, namespace, domain, plan, number);
    let jobs = (0..plan.jobs).map(job).collect::<Result<Vec<_>, _>>()?;
    let line = StatusLine::new(args.eta);
    let outcome = run(jobs, plan, interrupt, |status| {
        line.show(status, plan.block_bytes);
    });
    line.finish();
    Ok(outcome?)
}

/// Whether the run was a good one.
fn verdict(outcome: &Outcome) -> Result<(), PerfError> {
    if let Some(first) = outcome.failure() {
        let errors = outcome.errors();
        return Err(PerfError::Failed { first, errors });
    }
    match outcome.lost() {
        0 => Ok(()),
        commands => Err(PerfError::Lost { commands }),
    }
}

/// Bytes of all jobs' buffers.
fn buffer_bytes(args: &Args) -> u64 {
    u64::from(args.block_bytes) * u64::from(args.depth) * u64::from(args.jobs)
}

/// DMA memory that the run takes, as far as it is known before the drive is open.
fn dma_bytes(args: &Args, options: &ControllerOptions) -> u64 {
    let queue = QueueOptions {
        commands: args.io_queue_size.unwrap_or(args.depth).max(args.depth),
        max_transfer: args.block_bytes,
    };
    let bytes = buffer_bytes(args).saturating_add(options.dma_bytes(args.jobs, &queue));
    // The domain maps whole slabs.
    bytes
        .checked_next_multiple_of(SLAB_BYTES as u64)
        .unwrap_or(bytes)
}

/// The device as reports name it: without the namespace, which they name themselves.
fn device_name(device: &DeviceString) -> String {
    match device {
        DeviceString::Pci { address, .. } => address.to_string(),
        other => other.to_string(),
    }
}

fn dry_run(args: &Args, plan: &Plan, drive: &Drive, to: &mut dyn Write) -> io::Result<()> {
    let block = u64::from(drive.lba_bytes);
    let first = plan.range.first.0.saturating_mul(block);
    let len = plan.range.places.saturating_mul(plan.block_bytes.into());
    if args.output_format == OutputFormat::Json {
        let document = serde_json::json!({
            "dry_run": true,
            "rw": plan.mode.name(),
            "drive": drive,
            "iodepth": plan.depth,
            "numjobs": plan.jobs,
            "bs": plan.block_bytes,
            "offset": first,
            "size": len,
        });
        serde_json::to_writer_pretty(&mut *to, &document)?;
        return writeln!(to);
    }
    writeln!(
        to,
        "would run {} on {} ({}, serial {}), namespace {}: {} commands of {} outstanding in each of \
         {} jobs, over {} at offset {}",
        plan.mode.name(),
        drive.device,
        drive.model,
        drive.serial,
        drive.nsid,
        plan.depth,
        format_size(plan.block_bytes.into()),
        plan.jobs,
        format_size(len),
        format_size(first)
    )
}

/// Where the report goes: opened before the run, so that no run is lost to a wrong path.
struct Output<'a> {
    args: &'a Args,
    to: Box<dyn Write>,
}

impl<'a> Output<'a> {
    fn new(args: &'a Args) -> Result<Self, PerfError> {
        let to: Box<dyn Write> = match &args.output {
            None => Box::new(BufWriter::new(stdout())),
            Some(path) => {
                let file = File::create(path).map_err(|source| {
                    let path = Some(path.clone());
                    PerfError::Output { path, source }
                })?;
                Box::new(BufWriter::new(file))
            }
        };
        Ok(Self { args, to })
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), PerfError> {
        let written = write(&mut *self.to).and_then(|()| self.to.flush());
        written.map_err(|source| PerfError::Output {
            path: self.args.output.clone(),
            source,
        })
    }
}
