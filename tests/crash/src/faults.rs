//! Damage and errors: what is wrong with a drive is found out, and nothing wrong is said to be right.

use crate::check::{Bounds, Violation, check, look, model, prefix, sound};
use crate::contents::{Contents, Overlay};
use crate::model::Model;
use crate::run::{Action, Rig, Run, Shape, run, run_with};
use crate::sim::Fail;
use crate::states::Moment;
use crate::workloads;
use blockfs::journal::LoadMode;
use driver::memory::DmaDomain;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Mutations of one image.
const MUTATIONS: usize = 150;

/// Set F: the metadata of the volume that a workload leaves are damaged in many ways. It is mounted as
/// it was after some number of steps, or not at all, and nothing panics. Says how many mounts.
///
/// # Errors
/// The broken promise.
pub fn corrupt(
    shape: Shape,
    actions: &[Action],
    domain: &DmaDomain,
    rng: &mut fastrand::Rng,
) -> Result<u64, Violation> {
    let run = run(shape, rng.u64(..), domain, &workloads::setup(), actions)
        .map_err(|error| error.to_string())?;
    let mut moment = Moment::new(&run.log);
    for event in &run.log.events {
        moment.advance(event);
    }
    let newest = moment.choices(rng, 0).into_iter().max().unwrap_or_default();
    let image = moment.image(&newest).image();
    let metadata = metadata_blocks(&run, &image);
    let bounds = Bounds {
        synced: 0,
        ended: 0,
        begun: run.steps.len(),
    };
    let rig = |image: &[u8]| {
        let overlay = Overlay::new(Arc::new(image.to_vec()), shape.lba as usize);
        Rig::over(Contents::Overlay(overlay), shape.volatile_cache, 0, domain)
    };
    let intact = rig(&image).mount(LoadMode::ReadOnly);
    let last_record = intact
        .map_err(|error| error.to_string())?
        .report()
        .last_record;
    for _ in 0..MUTATIONS {
        let damaged = damage(&image, &run.log.start, &metadata, shape.lba as usize, rng);
        let tried = catch_unwind(AssertUnwindSafe(|| {
            for mode in [LoadMode::ReadOnly, LoadMode::Salvage, LoadMode::ReadWrite] {
                let rig = rig(&damaged);
                let Ok(fs) = rig.mount(mode) else {
                    continue;
                };
                if mode == LoadMode::Salvage {
                    let _ = look(&fs);
                    continue;
                }
                sound(&fs)?;
                let mut io = rig.io(&fs).map_err(|error| error.to_string())?;
                if fs.report().last_record >= last_record {
                    prefix(&run, bounds, &fs, &mut io)?;
                    continue;
                }
                // The last record, rotten or lost, looks like one that a power cut tore or that was never
                // written (docs/on-disk-format.md). What it freed may have been used again; only the names
                // have to be those of some time, which may be before the set-up.
                let sight = look(&fs)?;
                let known = (0..=run.steps.len()).any(|steps| model(&run, steps).sight() == sight);
                if !known && sight != Model::default().sight() {
                    return Err("O9: after rot in the last record, a state that never was".into());
                }
            }
            Ok::<(), Violation>(())
        }));
        tried.unwrap_or_else(|_| Err("O9: a panic".into()))?;
    }
    Ok(3 * MUTATIONS as u64)
}

/// The logical blocks that are not data: all up to the first that has only a file's data.
fn metadata_blocks(run: &Run, image: &[u8]) -> Vec<usize> {
    let lba = run.shape.lba as usize;
    let per_block = 4096 / lba;
    // Superblocks, journal and slots of the smallest volume: 1 + 16 + 2 * 16 blocks, and block 256.
    let blocks = (0..49).chain([256]);
    let lbas = blocks.flat_map(|block| block * per_block..(block + 1) * per_block);
    let used = lbas.filter(|lba_number| {
        let at = lba_number * lba;
        image
            .get(at..at + lba)
            .is_some_and(|block| block.iter().any(|&byte| byte != 0))
    });
    used.collect()
}

fn damage(
    image: &[u8],
    older: &[u8],
    metadata: &[usize],
    lba: usize,
    rng: &mut fastrand::Rng,
) -> Vec<u8> {
    let mut damaged = image.to_vec();
    let (Some(&one), Some(&other)) = (rng.choice(metadata), rng.choice(metadata)) else {
        return damaged;
    };
    let range = one * lba..(one + 1) * lba;
    let source = match rng.u32(0..5) {
        // A byte changed.
        0 | 1 => {
            damaged[one * lba + rng.usize(0..lba)] ^= rng.u8(1..=255);
            return damaged;
        }
        // A block lost.
        2 => vec![0; lba],
        // A block of another place.
        3 => image[other * lba..(other + 1) * lba].to_vec(),
        // An older version of it.
        _ => older[range.clone()].to_vec(),
    };
    damaged[range].copy_from_slice(&source);
    damaged
}

/// Set G: the `k`th command of a workload fails, once or from then on, for every `k`. What was
/// acknowledged is there, and no sync claims what is not. Says how many states.
///
/// # Errors
/// The broken promise.
pub fn fail_each(
    shape: Shape,
    actions: &[Action],
    domain: &DmaDomain,
    rng: &mut fastrand::Rng,
) -> Result<u64, Violation> {
    let seed = rng.u64(..);
    let mut states = 0;
    for k in 0..60 {
        let lasting = rng.bool();
        let fail = |first: u64| match lasting {
            true => Fail::From(first + k),
            false => Fail::Once(first + k),
        };
        let run = run_with(shape, seed, domain, &workloads::setup(), actions, fail)
            .map_err(|error| format!("command {k}: {error}"))?;
        let mut moment = Moment::new(&run.log);
        for event in &run.log.events {
            moment.advance(event);
        }
        let bounds = Bounds::at(&run, run.log.events.len());
        let mut seen = HashSet::new();
        for choice in moment.choices(rng, 4).into_iter().take(40) {
            if seen.insert(moment.fingerprint(&choice)) {
                states += 1;
                check(&run, bounds, moment.image(&choice), domain, false)
                    .map_err(|violation| format!("command {k} failed: {violation}"))?;
            }
        }
        let failed = run
            .steps
            .last()
            .is_some_and(|step| step.events.1 == usize::MAX);
        if !failed && k > run.log.events.len() as u64 {
            break;
        }
    }
    Ok(states)
}
