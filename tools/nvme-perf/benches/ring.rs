//! How close the whole comes to what two processors can exchange at all.
//!
//! A bare ring between two threads - 64-byte submissions, 16-byte completions with a phase bit, two
//! doorbells in shared memory, nothing else - beside nvme-perf's loop through the driver on the
//! software controller without data (`emu:backing=null`). Both alternate within one run, on the same two
//! processors, so that what disturbs the machine disturbs both. Ends by itself after some 15 seconds.

use clap::Parser;
use driver::controller::ControllerOptions;
use driver::memory::DmaDomain;
use nvme_perf::args::Args;
use nvme_perf::cpus::pin;
use nvme_perf::job::Job;
use nvme_perf::pattern::Direction;
use nvme_perf::plan::Plan;
use nvme_perf::run::run;
use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::io::{Write, stdout};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const DEPTHS: [u16; 2] = [1, 128];
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(300);
/// Between rounds, for everything else on the machine: threads of real-time priority are halted by
/// the kernel if they never rest.
const REST: Duration = Duration::from_millis(100);

/// The phase bit of a completion, where NVMe has it in the upper half.
const PHASE: u64 = 1 << 48;

fn main() -> Result<(), Box<dyn Error>> {
    let processors = thread::available_parallelism()?.get();
    let (host, device) = (0, processors - 1);
    if processors < 2 {
        writeln!(
            stdout(),
            "two processors are needed: one for each side of the ring"
        )?;
        return Ok(());
    }
    let mut out = stdout();
    writeln!(
        out,
        "4 KiB random reads, million a second: median of {ROUNDS} rounds of {} ms (least to most)\n",
        ROUND.as_millis()
    )?;
    writeln!(
        out,
        "{:>5}   {:<24} {:<24} {:>5}",
        "depth", "bare ring", "nvme-perf", "ratio"
    )?;
    for depth in DEPTHS {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(bare_ring(usize::from(depth), host, device)?);
            thread::sleep(REST);
            ours.push(whole(depth, host, device)?);
            thread::sleep(REST);
        }
        let ((bare, bare_text), (ours, ours_text)) = (summary(bare), summary(ours));
        let ratio = ours / bare;
        writeln!(
            out,
            "{depth:>5}   {bare_text:<24} {ours_text:<24} {ratio:>5.2}"
        )?;
    }
    Ok(())
}

/// The median, and it with the spread as text; in millions.
fn summary(mut rates: Vec<f64>) -> (f64, String) {
    rates.sort_by(f64::total_cmp);
    let at = |index: usize| rates.get(index).copied().unwrap_or(0.0) / 1e6;
    let median = at(rates.len() / 2);
    let text = format!(
        "{median:.2} ({:.2} to {:.2})",
        at(0),
        at(rates.len().saturating_sub(1))
    );
    (median, text)
}

/// nvme-perf's loop on the software controller; reads a second.
fn whole(depth: u16, host: usize, device: usize) -> Result<f64, Box<dyn Error>> {
    let line = format!(
        "nvme-perf emu:backing=null,cpu={device} -q {depth} -t {}ms --cpus-allowed {host}",
        ROUND.as_millis()
    );
    let args = Args::try_parse_from(line.split(' '))?;
    let domain = DmaDomain::new();
    let opened = device::open(&args.device, &domain, &ControllerOptions::default())?;
    let namespace = opened.controller.namespace(opened.nsid)?;
    let plan = Plan::new(&args, namespace.block_size(), namespace.blocks())?;
    let job = Job::new(&opened.controller, namespace, &domain, &plan, 0)?;
    let outcome = run(vec![job], &plan, &AtomicBool::new(false), |_| {})?;
    Ok(outcome.iops(Direction::Read))
}

/// A value on cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// One cache line: a submission entry.
#[repr(align(64))]
struct Submission([AtomicU64; 8]);

/// What the two threads share.
struct Ring {
    submissions: Box<[Submission]>,
    completions: Box<[[AtomicU64; 2]]>,
    tail_doorbell: Apart<AtomicU32>,
    head_doorbell: Apart<AtomicU32>,
    stop: Apart<AtomicBool>,
}

/// The bare ring; entries exchanged a second.
fn bare_ring(depth: usize, host: usize, device: usize) -> Result<f64, Box<dyn Error>> {
    let entries = (depth + 1).next_power_of_two();
    let ring = Ring {
        submissions: (0..entries)
            .map(|_| Submission(Default::default()))
            .collect(),
        completions: (0..entries).map(|_| Default::default()).collect(),
        tail_doorbell: Apart(AtomicU32::new(0)),
        head_doorbell: Apart(AtomicU32::new(0)),
        stop: Apart(AtomicBool::new(false)),
    };
    thread::scope(|scope| {
        let device = scope.spawn(|| pin(device).map(|()| device_side(&ring)));
        let host = scope.spawn(|| {
            let pinned = pin(host);
            let rate = pinned.map(|()| host_side(&ring, depth));
            // Whatever happened, the other side ends.
            ring.stop.0.store(true, Ordering::Release);
            rate
        });
        let timer = scope.spawn(|| {
            thread::sleep(ROUND);
            ring.stop.0.store(true, Ordering::Release);
        });
        let (rate, served) = (host.join(), device.join());
        drop(timer.join());
        served.map_err(|_| "the device's side panicked")??;
        Ok(rate.map_err(|_| "the host's side panicked")??)
    })
}

/// Submits as many entries as there is room for, then takes completions.
fn host_side(ring: &Ring, depth: usize) -> f64 {
    let mask = ring.submissions.len() - 1;
    let (mut tail, mut head, mut phase) = (0_usize, 0_usize, PHASE);
    let (mut free, mut ended) = (depth, 0_u64);
    let start = Instant::now();
    while !ring.stop.0.load(Ordering::Relaxed) {
        if free > 0 {
            for _ in 0..free {
                for (word, value) in ring.submissions[tail].0.iter().zip(0_u64..) {
                    word.store(value + tail as u64, Ordering::Relaxed);
                }
                tail = (tail + 1) & mask;
            }
            free = 0;
            ring.tail_doorbell
                .0
                .store(truncated(tail), Ordering::Release);
        }
        let before = head;
        loop {
            let entry = &ring.completions[head];
            if (entry[1].load(Ordering::Acquire) ^ phase) & PHASE != 0 {
                break;
            }
            black_box(entry[0].load(Ordering::Relaxed));
            head = (head + 1) & mask;
            if head == 0 {
                phase ^= PHASE;
            }
            free += 1;
        }
        if head != before || free > 0 {
            ended += free as u64;
            ring.head_doorbell
                .0
                .store(truncated(head), Ordering::Release);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let ended = ended as f64;
    ended / start.elapsed().as_secs_f64()
}

/// Reads whole submissions and completes each.
fn device_side(ring: &Ring) {
    let mask = ring.submissions.len() - 1;
    let (mut at, mut phase) = (0_usize, PHASE);
    while !ring.stop.0.load(Ordering::Relaxed) {
        let tail = ring.tail_doorbell.0.load(Ordering::Acquire) as usize;
        if at == tail {
            spin_loop();
        }
        while at != tail {
            let words = ring.submissions[at].0.iter();
            let sum = words.fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed));
            let entry = &ring.completions[at];
            entry[0].store(black_box(sum), Ordering::Relaxed);
            entry[1].store(at as u64 | phase, Ordering::Release);
            at = (at + 1) & mask;
            if at == 0 {
                phase ^= PHASE;
            }
        }
    }
}

/// A ring's index as a doorbell holds it.
#[expect(clippy::cast_possible_truncation, reason = "rings are far shorter")]
fn truncated(index: usize) -> u32 {
    index as u32
}
