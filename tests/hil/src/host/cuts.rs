//! Power cuts: QEMU is killed in the middle of a workload, and every image that a cut could have left is
//! mounted, checked and compared.
//!
//! Killing QEMU alone loses nothing that the host has cached. So the drive's writes and flushes are logged,
//! and from the log come the images: what is durable, with each choice of the later writes, by logical block.

use crate::guest::{self, Guest};
use crate::side_by_side;
use crate::write_log::{Story, story};
use crash::check::{Bounds, Violation, check};
use crash::model::Model;
use crash::states::Moment;
use crash::workloads;
use driver::memory::DmaDomain;
use fastrand::Rng;
use hil::boots::Boot;
use hil::cuts;
use hil::report::Line;
use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A boot must reach its first step, and one durable step the next, within this.
const SILENCE: Duration = Duration::from_secs(120);
/// Steps that are done at least, and at most, before the cut.
const STEPS: std::ops::Range<usize> = 100..1500;
/// Choices at random of what a cut leaves at the end of the log.
const SUBSETS: usize = 40;
/// Earlier moments of the log at which the power might have gone as well, and the images of each.
const EARLIER: usize = 50;
const IMAGES_EACH: usize = 8;
/// Images of one cut that the tests are worth nothing without, on average.
const IMAGES: usize = 100;

/// One cut.
#[derive(Clone, Copy)]
struct Cut {
    boot: &'static Boot,
    seed: u64,
    forgetful: bool,
}

/// Where to find what is needed.
pub(crate) struct Plan<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) seed: u64,
    /// Which boots take turns, each with one drive.
    pub(crate) boots: &'a [&'static Boot],
    /// How many cuts.
    pub(crate) cuts: usize,
}

/// Cuts the power as often as planned, and once on each forgetful drive, which must be found out. Answers how
/// the tests went.
pub(crate) fn run(plan: &Plan<'_>) -> Result<guest::Tally, Box<dyn Error>> {
    let mut all = Vec::new();
    for (nth, &boot) in (0..plan.cuts).zip(plan.boots.iter().cycle()) {
        all.push(Cut {
            boot,
            seed: plan.seed.wrapping_add(nth as u64),
            forgetful: false,
        });
    }
    all.extend(plan.boots.iter().map(|&boot| Cut {
        boot,
        seed: plan.seed,
        forgetful: true,
    }));
    let found = side_by_side(all.len(), |nth| {
        let tried = one(plan, all[nth], nth);
        tried.map_err(|error| format!("cut {nth}: {error}"))
    })?;
    let (mut tally, mut images, mut violations, mut caught) = (guest::Tally::default(), 0, 0, 0);
    for (cut, found) in all.iter().zip(found) {
        let broken = found.violation.is_some();
        if cut.forgetful {
            caught += usize::from(broken);
        } else {
            violations += usize::from(broken);
            images += found.images;
        }
        *match broken == cut.forgetful {
            true => &mut tally.passed,
            false => &mut tally.failed,
        } += 1;
    }
    println!(
        "{} kills, {images} images, {violations} violations; {caught} of {} drives that forget were \
         found out",
        plan.cuts,
        plan.boots.len()
    );
    if images < plan.cuts * IMAGES {
        println!("that is too few: {} at least", plan.cuts * IMAGES);
        tally.failed += 1;
    }
    Ok(tally)
}

/// What came of one cut.
struct Found {
    /// Steps that had ended.
    ended: usize,
    images: usize,
    violation: Option<Violation>,
}

fn one(plan: &Plan<'_>, cut: Cut, nth: usize) -> Result<Found, Box<dyn Error>> {
    let start = Instant::now();
    let Cut {
        boot,
        seed,
        forgetful,
    } = cut;
    let test = match forgetful {
        true => cuts::FORGETFUL,
        false => cuts::HONEST,
    };
    let (log, acknowledged) = kill(plan, cut, test, nth)?;
    let killed = start.elapsed().as_secs_f64();
    let found = judge(boot, seed, &log, acknowledged);
    let good = |found: &Found| found.violation.is_some() == forgetful;
    let word = match found.as_ref().is_ok_and(good) {
        true => "ok",
        false => "FAILED",
    };
    let took = start.elapsed().as_secs_f64();
    println!("test {}::{test}::{seed} ... {word} ({took:.2}s)", boot.name);
    if word != "ok" {
        let kept = plan.work.join(format!("{}-{seed}.log", boot.name));
        fs::write(&kept, &log)?;
        println!(
            "{name}| judge it again with --replay {} --boot {name} --seed {seed}",
            kept.display(),
            name = boot.name,
        );
    }
    let found = found?;
    println!(
        "{}| cut after {} steps ({killed:.2}s), {} images",
        boot.name, found.ended, found.images
    );
    if let Some(violation) = &found.violation {
        println!("{}| {violation}", boot.name);
    }
    Ok(found)
}

/// Judges the log of a cut that was kept. Answers whether every promise was held.
pub(crate) fn replay(boot: &Boot, seed: u64, log: &Path) -> Result<bool, Box<dyn Error>> {
    let found = judge(boot, seed, &fs::read(log)?, 0)?;
    println!("{} steps, {} images", found.ended, found.images);
    if let Some(violation) = &found.violation {
        println!("{violation}");
    }
    Ok(found.violation.is_none())
}

/// Makes the images from the log, and checks them. So many steps the guest had reported as durable.
fn judge(boot: &Boot, seed: u64, log: &[u8], acknowledged: usize) -> Result<Found, Box<dyn Error>> {
    let [drive] = boot.controllers else {
        return Err(format!("{} has not one drive", boot.name).into());
    };
    let bytes = usize::try_from(drive.namespaces_mib[0] << 20)?;
    let mut model = Model::default();
    for action in workloads::setup() {
        let done = model.apply(&action);
        done.map_err(|error| format!("the set-up: error {error}"))?;
    }
    let lba_bytes = usize::try_from(drive.lba_bytes)?;
    let told = story(log, lba_bytes, bytes, model, &cuts::actions(seed))?;
    let (ended, mut images) = (told.ended, 0);
    let violation = match ended < acknowledged {
        true => Some(format!(
            "O3: {acknowledged} steps were acknowledged, and the drive has seen {ended}"
        )),
        false => examine(&told, &mut Rng::with_seed(seed), &mut images).err(),
    };
    Ok(Found {
        ended,
        images,
        violation,
    })
}

/// Boots, lets the guest work, kills it. Answers the log, and how many steps were acknowledged as durable.
fn kill(
    plan: &Plan<'_>,
    cut: Cut,
    test: &str,
    nth: usize,
) -> Result<(Vec<u8>, usize), Box<dyn Error>> {
    let guest = Guest {
        boot: cut.boot,
        kernel: plan.kernel,
        initramfs: plan.initramfs,
        work: plan.work,
        seed: cut.seed,
        filters: &[test.to_owned()],
        logged: true,
    };
    let console = plan
        .work
        .join(format!("console-{}-{nth}.log", cut.boot.name));
    let mut rng = Rng::with_seed(cut.seed);
    let (steps, pause) = (rng.usize(STEPS), Duration::from_micros(rng.u64(..30_000)));
    let mut again = true;
    loop {
        let disks = tempfile::tempdir_in(plan.work)?;
        let (machine, report) = guest.start(&console, disks.path())?;
        match follow(&report, steps) {
            Ok(mut acknowledged) => {
                thread::sleep(pause);
                drop(machine);
                for line in report {
                    if let Some(Line::Durable { steps }) = Line::parse(&line) {
                        acknowledged = steps;
                    }
                }
                let name = cut.boot.controllers[0].name;
                let log = fs::read(guest::log_of(&disks.path().join(format!("{name}-1"))))?;
                return Ok((log, acknowledged));
            }
            // A guest that dies before its test has begun: that is the emulated machine's doing.
            Err(End::Early) if again => again = false,
            Err(end) => {
                guest::print_end_of(&console);
                return Err(match end {
                    End::Early => "the guest does not start".into(),
                    End::Failed(why) => why.into(),
                });
            }
        }
    }
}

/// Why the guest ended by itself.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Its test had not begun.
    Early,
    Failed(String),
}

/// Reads the report until so many steps are acknowledged as durable; says how many.
fn follow(report: &Receiver<String>, wanted: usize) -> Result<usize, End> {
    let (mut begun, mut texts) = (false, Vec::new());
    loop {
        let line = match report.recv_timeout(SILENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) if !begun => return Err(End::Early),
            Err(_) => return Err(End::Failed("the guest fell silent".into())),
        };
        match Line::parse(&line) {
            Some(Line::Start { .. }) => begun = true,
            Some(Line::Durable { steps }) if steps >= wanted => return Ok(steps),
            Some(Line::Text(text)) => texts.push(text),
            Some(Line::Done { .. }) => return Err(End::Failed(texts.join("\n"))),
            _ => {}
        }
    }
}

/// Checks the images that a cut at the end of the log leaves, all prefixes of what is at risk and some other
/// choices, and some of those that one at earlier moments would have left.
fn examine(told: &Story, rng: &mut Rng, images: &mut usize) -> Result<(), Violation> {
    let events = &told.run.log.events;
    let earlier: HashSet<usize> = (0..EARLIER)
        .map(|_| rng.usize(told.ready..=events.len()))
        .collect();
    let (domain, mut seen) = (DmaDomain::new(), HashSet::new());
    let mut moment = Moment::new(&told.run.log);
    for event in 0..=events.len() {
        if let Some(event) = event.checked_sub(1) {
            moment.advance(&events[event]);
        }
        let mut choices: Vec<Vec<usize>> = Vec::new();
        if event == events.len() {
            choices.extend(moment.prefixes());
            choices.extend((0..SUBSETS).map(|_| moment.subset(rng)));
        } else if earlier.contains(&event) {
            let prefixes: Vec<_> = moment.prefixes().collect();
            choices.extend((0..IMAGES_EACH / 2).filter_map(|_| rng.choice(&prefixes).cloned()));
            choices.extend((0..IMAGES_EACH / 2).map(|_| moment.subset(rng)));
        }
        let bounds = Bounds::at(&told.run, event);
        for choice in choices {
            if seen.insert((moment.fingerprint(&choice), bounds)) {
                *images += 1;
                let (image, thorough) = (moment.image(&choice), rng.u32(0..8) == 0);
                check(&told.run, bounds, image, &domain, thorough)
                    .map_err(|violation| format!("after {event} events: {violation}"))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn follow_all(lines: &[&str]) -> Result<usize, End> {
        let (sender, receiver) = mpsc::channel();
        for line in lines {
            sender.send((*line).to_owned()).unwrap();
        }
        drop(sender);
        follow(&receiver, 5)
    }

    /// The cut comes when enough is acknowledged; a guest that ends before is told apart by its reason.
    #[test]
    fn a_report_is_followed_to_the_cut() {
        let durable = ["start a", "durable 3", "durable 6", "durable 9"];
        assert_eq!(follow_all(&durable), Ok(6));
        assert_eq!(follow_all(&["SeaBIOS"]), Err(End::Early));
        let failed = ["start a", "failed a 5", "| why", "done 1"];
        assert_eq!(follow_all(&failed), Err(End::Failed("why".into())));
        assert!(matches!(follow_all(&["start a"]), Err(End::Failed(_))));
    }
}
