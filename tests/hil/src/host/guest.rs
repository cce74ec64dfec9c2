//! One boot of the guest: QEMU's command line, the report it sends, and its end, whatever happens.

use hil::boots::{Boot, Controller};
use hil::report::Line;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A boot must reach its first test, and a test its end, within this. Tests have shorter limits of
/// their own in the guest: this one is for a guest that is stuck as a whole.
const SILENCE: Duration = Duration::from_secs(700);
/// And a boot must be through within this.
const LIMIT: Duration = Duration::from_secs(1800);
/// How much of the console is shown when a boot goes wrong.
const CONSOLE_LINES: usize = 40;

/// What to boot.
pub(crate) struct Guest<'a> {
    pub(crate) boot: &'static Boot,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) seed: u64,
    pub(crate) filters: &'a [String],
    /// The drives lose their cache in a power cut, and log every write to files beside their images.
    pub(crate) logged: bool,
}

/// How many tests ended which way.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// A guest that ended without saying so.
#[derive(Debug, PartialEq, Eq)]
struct Death {
    why: String,
    /// Whether a test had begun.
    any_test: bool,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// A running QEMU, which does not outlive this program's interest in it.
pub(crate) struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guest<'_> {
    /// Boots, prints each test's result, and answers how many there were.
    ///
    /// A guest that dies before its first test is booted once more: that is the emulated machine's
    /// doing, not the tests'.
    pub(crate) fn run(&self) -> Result<Tally, Box<dyn Error>> {
        println!("boot {}: {}", self.boot.name, self.boot.purpose);
        let console = self.work.join(format!("console-{}.log", self.boot.name));
        let (mut tally, mut end) = self.boot(&console)?;
        if let Err(why) = &end
            && !why.any_test
        {
            println!(
                "boot {}: {why} before its first test, again",
                self.boot.name
            );
            print_end_of(&console);
            (tally, end) = self.boot(&console)?;
        }
        match end {
            Ok(tests) if tests == tally.passed + tally.failed => {}
            Ok(tests) => {
                println!(
                    "{}: {tests} tests ran, some results are lost",
                    self.boot.name
                );
                tally.failed += 1;
            }
            Err(why) => {
                println!("test {0}::boot ... FAILED\n{0}| {why}", self.boot.name);
                tally.failed += 1;
            }
        }
        if tally.failed > 0 {
            print_end_of(&console);
        }
        Ok(tally)
    }

    /// Boots once, and answers how the tests went and how it ended.
    fn boot(&self, console: &Path) -> Result<(Tally, Result<u32, Death>), Box<dyn Error>> {
        let disks = tempfile::tempdir_in(self.work)?;
        let (machine, report) = self.start(console, disks.path())?;
        let outcome = follow(&report, self.boot.name);
        drop(machine);
        Ok(outcome)
    }

    /// Starts the machine. It ends, without any warning, when it is dropped.
    pub(crate) fn start(
        &self,
        console: &Path,
        disks: &Path,
    ) -> Result<(Machine, Receiver<String>), Box<dyn Error>> {
        // Whatever ends this program, QEMU ends with it.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(self.arguments(console, disks)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("setpriv (of util-linux): {error}"))?;
        let report = child.stdout.take().ok_or("QEMU has no standard output")?;
        Ok((Machine(child), lines_of(report)))
    }

    fn arguments(&self, console: &Path, disks: &Path) -> Result<Vec<OsString>, Box<dyn Error>> {
        // `no_timer_check`: on a busy host the kernel's own test of the timer finds too few ticks.
        // `cryptomgr.notests`: its tests of its ciphers take seconds.
        let append = format!(
            "console=ttyS0 quiet loglevel=5 panic=-1 no_timer_check cryptomgr.notests=1 \
             {} -- {} {} {}",
            self.boot.kernel_options,
            self.boot.name,
            self.seed,
            self.filters.join(" ")
        );
        let mut arguments: Vec<OsString> = Vec::new();
        let mut push = |option: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            arguments.push(option.into());
            arguments.push(value.as_ref().to_owned());
        };
        // Never KVM: it may exist and still be unable to start a stock kernel.
        push("-accel", &"tcg,thread=multi");
        push("-machine", &"q35");
        push("-cpu", &"max");
        push("-m", &"2G");
        // One processor: with several, each a thread of QEMU's, a change of the memory map by one (the
        // IOMMU, a BAR) can meet another's stale translation, and QEMU ends itself ("iotlb_to_section").
        push("-smp", &"1");
        push("-display", &"none");
        push("-monitor", &"none");
        push("-serial", &with_path("file:", console, ""));
        push("-serial", &"stdio");
        push("-kernel", &self.kernel);
        push("-initrd", &self.initramfs);
        push("-append", &append);
        push(
            "-device",
            &format!("intel-iommu{}", self.boot.iommu_options),
        );
        for controller in self.boot.controllers {
            push("-device", &nvme(controller));
            for (index, mib) in controller.namespaces_mib.iter().enumerate() {
                let (name, nsid) = (controller.name, index + 1);
                let disk = disks.join(format!("{name}-{nsid}"));
                File::create(&disk)?.set_len(mib << 20)?;
                if self.logged {
                    File::create(log_of(&disk))?;
                }
                let node = format!("{name}-{nsid}");
                if self.logged {
                    push(
                        "-blockdev",
                        &logged_drive(&node, &disk, controller.lba_bytes),
                    );
                } else {
                    let options =
                        format!(",if=none,id={node},format=raw,cache=unsafe,discard=unmap");
                    push("-drive", &with_path("file=", &disk, &options));
                }
                let lba = controller.lba_bytes;
                push(
                    "-device",
                    &format!(
                        "nvme-ns,bus={name},drive={node},nsid={nsid},\
                         logical_block_size={lba},physical_block_size={lba}"
                    ),
                );
            }
        }
        arguments.extend(["-nodefaults", "-no-reboot"].map(OsString::from));
        Ok(arguments)
    }
}

fn nvme(controller: &Controller) -> String {
    let Controller {
        name,
        slot,
        function,
        options,
        ..
    } = controller;
    format!("nvme,id={name},serial={name},addr={slot:#x}.{function}{options}")
}

/// A file whose writes and flushes are logged. The files themselves are never flushed: what the host has
/// cached outlives QEMU.
fn logged_drive(node: &str, disk: &Path, lba_bytes: u64) -> OsString {
    let mut arguments = OsString::from(format!(
        "driver=blklogwrites,node-name={node},log-sector-size={lba_bytes},discard=unmap"
    ));
    for (part, path) in [("file", disk), ("log", &log_of(disk))] {
        let before = format!(",{part}.driver=file,{part}.cache.no-flush=on,{part}.discard=unmap");
        arguments.push(before);
        arguments.push(with_path(&format!(",{part}.filename="), path, ""));
    }
    arguments
}

/// Where the writes of a logged drive are found.
pub(crate) fn log_of(disk: &Path) -> PathBuf {
    disk.with_extension("log")
}

fn with_path(before: &str, path: &Path, after: &str) -> OsString {
    // A comma would end the value: QEMU reads two as one.
    let path = path.to_string_lossy().replace(',', ",,");
    PathBuf::from(format!("{before}{path}{after}")).into_os_string()
}

/// The lines of a stream as they arrive, read by a thread so that waiting for them can end.
fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    receiver
}

/// Prints the report as it comes in. Answers the counts, and how many tests the guest says it ran, or
/// why it did not say so.
fn follow(lines: &Receiver<String>, boot: &str) -> (Tally, Result<u32, Death>) {
    let start = Instant::now();
    let (mut tally, mut running, mut any_test) = (Tally::default(), None, false);
    let end = loop {
        let patience = SILENCE.min(LIMIT.saturating_sub(start.elapsed()));
        let line = match lines.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                break Err(format!("no end after {} s", start.elapsed().as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => break Err("the guest died".to_owned()),
        };
        match Line::parse(&line) {
            Some(Line::Start { test }) => (running, any_test) = (Some(test), true),
            Some(Line::Passed { test, took }) => {
                println!("test {boot}::{test} ... ok ({:.2}s)", took.as_secs_f64());
                tally.passed += 1;
                running = None;
            }
            Some(Line::Failed { test, took }) => {
                println!(
                    "test {boot}::{test} ... FAILED ({:.2}s)",
                    took.as_secs_f64()
                );
                tally.failed += 1;
                running = None;
            }
            Some(Line::Text(text)) => println!("{boot}| {text}"),
            Some(Line::Durable { .. }) => {}
            Some(Line::Done { tests }) => break Ok(tests),
            // The firmware talks on this port too, before the kernel starts.
            None => {}
        }
    };
    let end = end.map_err(|why| Death {
        why: match running {
            Some(test) => format!("{why} (in {test})"),
            None => why,
        },
        any_test,
    });
    (tally, end)
}

/// Shows the end of a console log, and says where the whole of it is.
pub(crate) fn print_end_of(console: &Path) {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
    // In one piece: another boot may be printing too.
    println!("--- the end of {}\n{end}\n---", console.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_all(lines: &[&str]) -> (Tally, Result<u32, Death>) {
        let (sender, receiver) = mpsc::channel();
        for line in lines {
            sender.send((*line).to_owned()).unwrap();
        }
        drop(sender);
        follow(&receiver, "boot")
    }

    /// Results are counted, the guest's own count is read, and noise is passed over.
    #[test]
    fn a_report_is_counted() {
        let (tally, end) = follow_all(&[
            "SeaBIOS",
            "start a\r",
            "ok a 5\r",
            "start b",
            "failed b 6",
            "| x",
            "done 2",
        ]);
        assert_eq!((tally.passed, tally.failed, end), (1, 1, Ok(2)));
    }

    /// A guest that stops talking before it is done has failed, and the test it was in is named.
    #[test]
    fn a_guest_that_dies_is_noticed() {
        let (tally, end) = follow_all(&["start a", "ok a 5", "start b"]);
        assert_eq!((tally.passed, tally.failed), (1, 0));
        let why = "the guest died (in b)".to_owned();
        assert_eq!(
            end,
            Err(Death {
                why,
                any_test: true
            })
        );
    }

    /// One that dies before any test is told from one that a test may have killed.
    #[test]
    fn a_guest_that_does_not_start_is_told_apart() {
        let (_, end) = follow_all(&["SeaBIOS", "Kernel panic"]);
        assert!(end.is_err_and(|death| !death.any_test));
    }
}
