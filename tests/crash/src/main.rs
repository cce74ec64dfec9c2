//! Runs the power-cut campaign: see the library.
#![expect(clippy::print_stdout, reason = "its output is a test report")]

use clap::Parser;
use crash::campaign::{Failure, Set, Tally, try_workload};
use crash::fsx;
use driver::memory::DmaDomain;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Cuts the power of a simulated drive at every point of many workloads, and checks what is left.
#[derive(Debug, Parser)]
struct Options {
    /// Check at least this many states
    #[arg(long, default_value_t = 1_000_000)]
    states: u64,
    /// Where the random numbers start
    #[arg(long, env = "DOORBELL_SEED")]
    seed: Option<u64>,
    /// Repeat one workload: its set (A to G) and number
    #[arg(long, value_name = "SET:NUMBER", value_parser = parse_workload)]
    only: Option<(Set, u64)>,
    /// Instead of power cuts: so many random operations on files, compared with a reference
    #[arg(long, value_name = "OPERATIONS")]
    fsx: Option<u64>,
    /// Switch one bug on after the other, and see whether each is caught
    #[cfg(feature = "seeded-bugs")]
    #[arg(long)]
    bugs: bool,
}

fn parse_workload(text: &str) -> Result<(Set, u64), String> {
    let (set, number) = text.split_once(':').ok_or("say SET:NUMBER, as in B:17")?;
    let set = Set::ALL
        .into_iter()
        .find(|known| format!("{known:?}") == set);
    let number = number.parse().map_err(|_| "the number is not one")?;
    Ok((set.ok_or("the sets are A to G")?, number))
}

/// The part of all states that each set gets, in percent.
const SHARES: [(Set, u64); 7] = [
    (Set::E, 2),
    (Set::A, 18),
    (Set::B, 40),
    (Set::C, 20),
    (Set::D, 14),
    (Set::F, 3),
    (Set::G, 3),
];

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}: repeat with DOORBELL_SEED={seed}");
    if let Some((set, number)) = options.only {
        return match try_workload(set, number, seed, &DmaDomain::new()) {
            Ok(tally) => report(tally),
            Err(failure) => fail(&failure),
        };
    }
    if let Some(operations) = options.fsx {
        return exercise(operations, seed);
    }
    #[cfg(feature = "seeded-bugs")]
    if options.bugs {
        return catch_bugs(seed);
    }
    let start = Instant::now();
    let mut total = Tally::default();
    for (set, share) in SHARES {
        match try_set(set, options.states * share / 100, seed) {
            Ok(tally) => {
                println!(
                    "set {set:?}: {} workloads, {} states ({} within recovery), {:.0} s",
                    tally.workloads,
                    tally.states,
                    tally.nested,
                    start.elapsed().as_secs_f64()
                );
                total += tally;
            }
            Err(failure) => return fail(&failure),
        }
    }
    report(total)
}

/// What is tried on each bug, in turn, until it is caught.
#[cfg(feature = "seeded-bugs")]
const HUNT: [(Set, u64); 5] = [
    (Set::E, 6_000),
    (Set::A, 10_000),
    (Set::C, 6_000),
    (Set::D, 40_000),
    (Set::B, 10_000),
];

#[cfg(feature = "seeded-bugs")]
fn catch_bugs(seed: u64) -> ExitCode {
    use blockfs::bugs::{Bug, set};
    let mut caught = 0;
    for bug in Bug::ALL {
        let start = Instant::now();
        set(Some(bug));
        let found = HUNT
            .into_iter()
            .find_map(|(kind, states)| try_set(kind, states, seed).err());
        set(None);
        let took = start.elapsed().as_secs_f64();
        match found {
            Some(failure) => {
                caught += 1;
                let (kind, number) = failure.workload;
                let text: String = failure.violation.chars().take(90).collect();
                println!("{bug:?}: caught in {took:.1} s by {kind:?}:{number}: {text}");
            }
            None => println!("{bug:?}: NOT CAUGHT in {took:.1} s"),
        }
    }
    println!("{caught} of {} seeded bugs caught", Bug::ALL.len());
    match caught == Bug::ALL.len() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs of the exerciser, on all processors, until there were enough operations.
fn exercise(operations: u64, seed: u64) -> ExitCode {
    let start = Instant::now();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let total = Mutex::new(fsx::Tally::default());
    let runs = operations.div_ceil(fsx::RUN);
    on_all_processors(|domain| {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs || stop.load(Ordering::Relaxed) {
                return;
            }
            let now = fsx::RUN.min(operations - run * fsx::RUN);
            match fsx::exercise(seed.wrapping_add(run), now, domain) {
                Ok(tally) => *total.lock().unwrap_or_else(PoisonError::into_inner) += tally,
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    println!("DIFFERENCE at {failure}");
                }
            }
        }
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} operations on files, {} MiB compared, {} without space, {} mounts, {:.0} s",
        total.operations,
        total.compared >> 20,
        total.no_space,
        total.mounts,
        start.elapsed().as_secs_f64()
    );
    match stop.into_inner() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Runs `work` in as many threads as there are processors, until all have ended.
fn on_all_processors(work: impl Fn(&DmaDomain) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&DmaDomain::new()));
        }
    });
}

fn report(total: Tally) -> ExitCode {
    println!("{} crash states, 0 violations", total.states);
    ExitCode::SUCCESS
}

fn fail(failure: &Failure) -> ExitCode {
    let (set, number) = failure.workload;
    println!(
        "VIOLATION after event {}: {}",
        failure.event, failure.violation
    );
    for action in &failure.actions {
        println!("    {action:?}");
    }
    println!(
        "repeat with DOORBELL_SEED={} and --only {set:?}:{number}",
        failure.seed
    );
    ExitCode::FAILURE
}

/// Workloads of one set, on all processors, until there are enough states.
fn try_set(set: Set, states: u64, seed: u64) -> Result<Tally, Box<Failure>> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let result = Mutex::new(Ok(Tally::default()));
    on_all_processors(|domain| {
        while done.load(Ordering::Relaxed) < states && !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let tried = try_workload(set, number, seed, domain);
            let Ok(mut result) = result.lock() else {
                return;
            };
            match (tried, &mut *result) {
                (Ok(tally), Ok(total)) => {
                    done.fetch_add(tally.states, Ordering::Relaxed);
                    *total += tally;
                }
                (Err(failure), Ok(_)) => {
                    stop.store(true, Ordering::Relaxed);
                    *result = Err(failure);
                }
                (_, Err(_)) => {}
            }
        }
    });
    result.into_inner().unwrap_or_else(|_| Ok(Tally::default()))
}
