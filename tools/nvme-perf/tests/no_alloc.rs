//! Not one allocation in a million reads: neither in the driver nor in the loop of the tool.
#![expect(
    unsafe_code,
    reason = "the trait of an allocator that counts is an unsafe one"
)]

use clap::Parser;
use driver::controller::ControllerOptions;
use driver::memory::DmaDomain;
use nvme_perf::args::Args;
use nvme_perf::job::Job;
use nvme_perf::pattern::Direction;
use nvme_perf::plan::Plan;
use nvme_perf::signal::{Control, Phase, Progress};
use nvme_perf::ticks::Ticks;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Counts every call that takes memory, of all threads: the software controller's as well.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads after which everything is warm, and reads that are watched.
const WARM_UP: u64 = 20_000;
const WATCHED: u64 = 1_000_000;
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until the job has ended as many reads; allocates nothing.
fn wait_for(progress: &Progress, reads: u64, start: Instant) {
    while progress.get()[Direction::Read.index()] < reads {
        assert!(start.elapsed() < LIMIT, "the reads did not end in time");
        thread::sleep(Duration::from_millis(5));
    }
}

/// From the warm-up's end on, a million reads with latencies recorded take no memory from anybody.
#[test]
fn a_million_reads_allocate_nothing() {
    let args = Args::parse_from(["nvme-perf", "emu:backing=null", "--iodepth", "32"]);
    let domain = DmaDomain::new();
    let opened = device::open(&args.device, &domain, &ControllerOptions::default()).unwrap();
    let namespace = opened.controller.namespace(opened.nsid).unwrap();
    let plan = Plan::new(&args, namespace.block_size(), namespace.blocks()).unwrap();
    let job = Job::new(&opened.controller, namespace, &domain, &plan, 0).unwrap();
    let (control, progress, ticks) = (Control::new(), Progress::default(), Ticks::start());
    control.enter(Phase::Measure);
    let start = Instant::now();
    let (calls, reads) = thread::scope(|scope| {
        let worker = scope.spawn(|| job.run(&control, &progress, &ticks));
        wait_for(&progress, WARM_UP, start);
        let (calls, reads) = (CALLS.load(Ordering::Relaxed), progress.get()[0]);
        wait_for(&progress, reads + WATCHED, start);
        let calls = CALLS.load(Ordering::Relaxed) - calls;
        let reads = progress.get()[0] - reads;
        control.enter(Phase::Stop);
        let tally = worker.join().unwrap();
        assert!(tally.failure.is_none() && tally.lost == 0);
        (calls, reads)
    });
    assert!(reads >= WATCHED);
    assert_eq!(calls, 0, "allocations in {reads} reads");
    // The counter counts: what could not fail would prove nothing.
    let before = CALLS.load(Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(reads)));
    assert!(CALLS.load(Ordering::Relaxed) > before);
}
