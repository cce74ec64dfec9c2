//! Sets of workloads, each checked in all the states that a cut may leave.

use crate::check::{Bounds, Violation, check};
use crate::contents::Contents;
use crate::faults;
use crate::run::{Action, Rig, Run, Shape, run};
use crate::states::Moment;
use crate::workloads;
use blockfs::journal::LoadMode;
use driver::memory::DmaDomain;
use std::collections::HashSet;
use std::sync::Arc;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// Every operation alone.
    A,
    /// Pairs.
    B,
    /// Threes.
    C,
    /// Long random runs.
    D,
    /// What found bugs elsewhere.
    E,
    /// Damaged metadata.
    F,
    /// Commands that fail.
    G,
}

impl Set {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::A,
        Self::B,
        Self::C,
        Self::D,
        Self::E,
        Self::F,
        Self::G,
    ];
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Workloads.
    pub workloads: u64,
    /// States that were mounted and checked; equal ones of one workload count once.
    pub states: u64,
    /// Of these, cuts within recovery.
    pub nested: u64,
    /// States that were equal to one before.
    pub repeated: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.workloads += other.workloads;
        self.states += other.states;
        self.nested += other.nested;
        self.repeated += other.repeated;
    }
}

/// A broken promise, with what repeats it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which set, and which workload of it.
    pub workload: (Set, u64),
    /// The seed.
    pub seed: u64,
    /// After which event.
    pub event: usize,
    /// What was broken.
    pub violation: Violation,
    /// The workload.
    pub actions: Vec<Action>,
}

/// The actions of a workload, and the seed of all else in it.
#[must_use]
pub fn workload(set: Set, number: u64, seed: u64) -> (Vec<Action>, fastrand::Rng) {
    let salt = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (set as u64) << 56;
    let mut rng = fastrand::Rng::with_seed(salt);
    let singles = workloads::singles();
    let syncs = workloads::syncs();
    let nth = |rng: &mut fastrand::Rng, all: &[Action]| all[rng.usize(0..all.len())].clone();
    let at = |all: &[Action], number: u64| {
        let len = all.len() as u64;
        all[usize::try_from(number % len).unwrap_or(0)].clone()
    };
    let actions = match set {
        Set::A => vec![
            at(&singles, number),
            nth(&mut rng, &syncs),
            nth(&mut rng, &singles),
        ],
        Set::B => {
            let second = number / singles.len() as u64;
            vec![
                at(&singles, number),
                at(&singles, second.wrapping_add(rng.u64(..) % 7)),
                nth(&mut rng, &syncs),
                nth(&mut rng, &singles),
            ]
        }
        Set::F | Set::G | Set::C => vec![
            nth(&mut rng, &singles),
            nth(&mut rng, &singles),
            nth(&mut rng, &syncs),
            nth(&mut rng, &singles),
            nth(&mut rng, &syncs),
            nth(&mut rng, &singles),
        ],
        Set::D => workloads::random(&mut rng, 300),
        Set::E => {
            let all = workloads::regressions();
            let len = all.len() as u64;
            all[usize::try_from(number % len).unwrap_or(0)].1.clone()
        }
    };
    (actions, rng)
}

/// How many states of one crash point are random ones, and how many crash points of a long run are
/// looked at.
const RANDOM: usize = 24;
const POINTS: usize = 40;

/// Runs a workload and checks every state.
///
/// # Errors
/// The first broken promise.
pub fn try_workload(
    set: Set,
    number: u64,
    seed: u64,
    domain: &DmaDomain,
) -> Result<Tally, Box<Failure>> {
    let (actions, mut rng) = workload(set, number, seed);
    let fail = |event: usize, violation: Violation| {
        Box::new(Failure {
            workload: (set, number),
            seed,
            event,
            violation,
            actions: actions.clone(),
        })
    };
    let shape = Shape::of(rng.u64(..));
    let faults = match set {
        Set::F => Some(faults::corrupt(shape, &actions, domain, &mut rng)),
        Set::G => Some(faults::fail_each(shape, &actions, domain, &mut rng)),
        _ => None,
    };
    if let Some(result) = faults {
        let states = result.map_err(|violation| fail(0, violation))?;
        return Ok(Tally {
            workloads: 1,
            states,
            ..Tally::default()
        });
    }
    let run = run(shape, rng.u64(..), domain, &workloads::setup(), &actions)
        .map_err(|error| fail(0, error.to_string()))?;
    let mut tally = Tally {
        workloads: 1,
        ..Tally::default()
    };
    let mut seen = HashSet::new();
    let mut moment = Moment::new(&run.log);
    let events = run.log.events.len();
    let sample = match set {
        Set::D => POINTS.min(events),
        _ => events + 1,
    };
    for event in 0..=events {
        if let Some(event) = event.checked_sub(1) {
            moment.advance(&run.log.events[event]);
        }
        // Of a long run, some points; of a short one, all.
        if sample <= events && rng.usize(0..events) >= sample {
            continue;
        }
        let bounds = Bounds::at(&run, event);
        for choice in moment.choices(&mut rng, RANDOM) {
            if !seen.insert((moment.fingerprint(&choice), bounds)) {
                tally.repeated += 1;
                continue;
            }
            let image = moment.image(&choice);
            let thorough = rng.u32(0..16) == 0;
            tally.states += 1;
            check(&run, bounds, image.clone(), domain, thorough)
                .map_err(|violation| fail(event, violation))?;
            if rng.u32(0..32) == 0 {
                let nested = recover_and_cut(&run, bounds, image, domain, &mut rng)
                    .map_err(|violation| fail(event, format!("within recovery: {violation}")))?;
                tally.states += nested;
                tally.nested += nested;
            }
        }
    }
    Ok(tally)
}

/// Cuts within the recovery of one state. Says how many.
fn recover_and_cut(
    run: &Run,
    bounds: Bounds,
    image: crate::contents::Overlay,
    domain: &DmaDomain,
    rng: &mut fastrand::Rng,
) -> Result<u64, Violation> {
    let flat = Contents::Overlay(crate::contents::Overlay::new(
        Arc::new(image.image()),
        run.shape.lba as usize,
    ));
    let rig = Rig::over(flat, run.shape.volatile_cache, 0, domain);
    rig.drive.start_log();
    let fs = rig
        .mount(LoadMode::ReadWrite)
        .map_err(|error| error.to_string())?;
    let _ = fs.sync();
    drop(fs);
    let log = rig.drive.take_log().ok_or("no log")?;
    let mut moment = Moment::new(&log);
    let mut seen = HashSet::new();
    let mut states = 0;
    for event in &log.events {
        moment.advance(event);
        for choice in moment.choices(rng, 4) {
            if seen.insert(moment.fingerprint(&choice)) {
                states += 1;
                check(run, bounds, moment.image(&choice), domain, false)?;
            }
        }
    }
    Ok(states)
}
