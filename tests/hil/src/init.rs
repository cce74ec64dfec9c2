//! The guest's first process: prepares the machine, runs the tests one by one, reports, switches off.

use crate::machine::{self, Driver};
use crate::test::{Context, Test};
use hil::report::Line;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::fs::{self, File};
use std::io::{self, Write};
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where the report goes: the second serial port.
pub(crate) const REPORT: &str = "/dev/ttyS1";
/// What a test prints, until its end.
const OUTPUT: &str = "/tmp/output";
/// How much of that is reported when it fails: its end.
const OUTPUT_LINES: usize = 60;

/// Runs every test of this boot whose name contains one of `filters`, or all of them.
pub(crate) fn run(tests: &[Test], context: &Context, filters: &[&str]) -> ExitCode {
    if let Err(error) = prepare(context).and_then(|()| run_tests(tests, context, filters)) {
        println!("the guest cannot go on: {error}");
    }
    // Losing process 1 is a kernel panic, which ends the guest too; the host sees that it is not done.
    let _ = reboot(RebootCommand::PowerOff);
    ExitCode::FAILURE
}

fn run_tests(tests: &[Test], context: &Context, filters: &[&str]) -> io::Result<()> {
    let mut report = File::options().write(true).open(REPORT)?;
    let mut ran = 0;
    for test in tests
        .iter()
        .filter(|test| test.boots.contains(&context.boot.name))
    {
        if filters.is_empty() || filters.iter().any(|filter| test.name.contains(filter)) {
            run_test(test, context, &mut report)?;
            ran += 1;
        }
    }
    writeln!(report, "{}", Line::Done { tests: ran })?;
    // The port's buffer is written out before the power goes.
    rustix::termios::tcdrain(&report)?;
    Ok(())
}

fn prepare(context: &Context) -> io::Result<()> {
    fs::create_dir_all("/tmp")?;
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        fs::create_dir_all(place)?;
        // The kernel may have mounted /dev by itself.
        match mount(kind, place, kind, MountFlags::empty(), None) {
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut modules: Vec<_> = fs::read_dir("/modules")?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    modules.sort();
    for module in modules {
        finit_module(File::open(&module)?, c"", 0)
            .map_err(|error| io::Error::other(format!("{}: {error}", module.display())))?;
    }
    for controller in context.boot.controllers {
        machine::wait_for(controller.name, || {
            machine::sysfs(controller).exists().then_some(())
        })?;
    }
    Ok(())
}

fn run_test(test: &Test, context: &Context, report: &mut File) -> io::Result<()> {
    // Whatever the test before left behind, each starts with all controllers on vfio-pci. Where that
    // cannot be (no IOMMU), a test says so if it minds.
    for controller in context.boot.controllers {
        let _ = machine::bind(controller, Driver::Vfio);
    }
    writeln!(
        report,
        "{}",
        Line::Start {
            test: test.name.clone()
        }
    )?;
    let output = File::create(OUTPUT)?;
    let start = Instant::now();
    let mut child = context
        .command(&test.name)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let ended = wait(&mut child, test.limit)?;
    let (name, took) = (test.name.clone(), start.elapsed());
    let text = String::from_utf8_lossy(&fs::read(OUTPUT)?).into_owned();
    // The console keeps all of it, passed or not.
    println!("--- {name}\n{text}---");
    if ended.is_some_and(|status| status.success()) {
        return writeln!(report, "{}", Line::Passed { test: name, took });
    }
    writeln!(report, "{}", Line::Failed { test: name, took })?;
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(OUTPUT_LINES)..] {
        writeln!(report, "{}", Line::Text((*line).to_owned()))?;
    }
    let end = match ended {
        Some(status) => status.to_string(),
        None => format!("no end within {} s", test.limit.as_secs()),
    };
    writeln!(report, "{}", Line::Text(end))
}

/// Waits for the end of a test. `None`: it took too long and was killed.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
