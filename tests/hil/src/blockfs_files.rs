//! The filesystem through our driver: what was done to files is what is found.
//!
//! As [`crate::data`], it runs in the guest and on the software controller.

use crate::data::{Attached, Outcome};
use blockfs::device::DriverDevice;
use blockfs::file::{Blocking, Tag};
use blockfs::format::geometry::LayoutOptions;
use blockfs::fs::{Blockfs, MkfsOptions, MountOptions, mkfs};
use blockfs::journal::MetaTag;
use crash::act::both;
use crash::check::{chain, same};
use crash::model::Model;
use crash::workloads;
use driver::controller::QueueOptions;
use driver::spec::feature::FeatureId;
use fastrand::Rng;
use std::error::Error;
use uuid::Uuid;

type Fs = Blockfs<DriverDevice<MetaTag>>;
type Io = Blocking<DriverDevice<Tag<()>>, DriverDevice<MetaTag>>;

/// Between one look at everything and the next.
const ROUND: usize = 400;

fn device<T>(attached: &Attached) -> Result<DriverDevice<T>, Box<dyn Error>> {
    let options = QueueOptions::default();
    Ok(DriverDevice::open(&attached.controller, 1, &options)?)
}

/// Mounts what is on the first namespace.
///
/// # Errors
/// Why that cannot be.
pub fn mount(attached: &Attached) -> Result<(Fs, Io), Box<dyn Error>> {
    let fs = Fs::mount(device(attached)?, &attached.domain, MountOptions::default())
        .map_err(|error| chain(&error))?;
    let io = Blocking::new(fs.queue(device(attached)?, Default::default())?);
    Ok((fs, io))
}

/// Makes a volume on the first namespace, with a journal so small that it wraps.
///
/// # Errors
/// What the drive or the filesystem refuse.
pub fn format(attached: &Attached, seed: u64) -> Outcome {
    let mut make = MkfsOptions::new(Uuid::from_u128(u128::from(seed) + 1));
    make.layout = LayoutOptions {
        journal_bytes: Some(64 << 10),
        checkpoint_bytes: Some(256 << 10),
    };
    let options = MountOptions::default();
    mkfs(&mut device(attached)?, &attached.domain, &options, &make)?;
    Ok(())
}

/// Random operations, in rounds of `ROUND`, on the filesystem and on a reference in memory. After each
/// round the volume is unmounted, mounted, checked and compared; every second time it is not unmounted, as
/// if the process had died.
///
/// # Errors
/// The first difference.
pub fn random(attached: &Attached, cache: bool, seed: u64, rounds: usize) -> Outcome {
    let feature = FeatureId::VOLATILE_WRITE_CACHE;
    attached.controller.set_feature(feature, cache.into())?;
    assert_eq!(attached.controller.volatile_cache()?, cache);
    format(attached, seed)?;
    let mut rng = Rng::with_seed(seed);
    let mut model = Model::default();
    let failed = |error: Box<dyn Error + Send + Sync>| -> Box<dyn Error> { error };
    let (mut fs, mut io) = mount(attached)?;
    for action in workloads::setup() {
        both(&fs, &mut io, &mut model, &action).map_err(failed)?;
    }
    for round in 0..rounds {
        for action in workloads::random(&mut rng, ROUND) {
            both(&fs, &mut io, &mut model, &action).map_err(failed)?;
        }
        let clean = round % 2 == 0;
        if clean {
            drop(io);
            fs.unmount()?;
        } else {
            // What a process leaves that dies; the drive keeps its power.
            fs.sync()?;
            drop((io, fs));
        }
        (fs, io) = mount(attached)?;
        assert_eq!(fs.report().clean, clean, "round {round}");
        same(&fs, &mut io, &model)?;
    }
    drop(io);
    fs.unmount()?;
    Ok(())
}
