//! Damaged volumes: valid small images, changed field by field as a stream of bytes says, and
//! everything that can be done with what is left.
//!
//! Checksums can be made right again after a change, so that what is behind them is reached: the
//! parsers of operations, and whatever believes in them. The bytes come from a random number generator
//! in the tests, and from libFuzzer in `tests/fuzz`.
//!
//! | file | what |
//! |---|---|
//! | `layout.rs` | where the structures of an image lie, and their checksums |
//! | `mutate.rs` | changes |
//! | `survive.rs` | mounts, looks at everything, removes everything |

mod layout;
mod mutate;
mod survive;

pub use layout::{Layout, Spot, What};
pub use mutate::{Stream, mutate};
pub use survive::{Survived, survive};

use crate::act::act;
use crate::check::Violation;
use crate::run::{Action, Outcome, Rig, Shape};
use crate::workloads;
use blockfs::fs::OpenOptions;
use blockfs::journal::LoadMode;
use blockfs::tree::RenameMode;
use driver::memory::DmaDomain;
use std::sync::OnceLock;

/// A valid image.
#[derive(Clone, Debug)]
pub struct Image {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Bytes of a logical block.
    pub lba: u32,
    /// Where things are.
    pub layout: Layout,
}

/// The images that are damaged: with logical blocks of 512 and of 4096 bytes, each unmounted, and as a
/// power cut leaves it, with a checkpoint, records, an orphan.
///
/// # Errors
/// None that is expected.
pub fn images(domain: &DmaDomain) -> Outcome<&'static [Image]> {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    if IMAGES.get().is_none() {
        let made: Outcome<Vec<_>> = [(512, true), (4096, true), (512, false), (4096, false)]
            .into_iter()
            .map(|(lba, clean)| image(lba, clean, domain))
            .collect();
        let _ = IMAGES.set(made?);
    }
    Ok(IMAGES.get().map_or(&[], Vec::as_slice))
}

fn image(lba: u32, clean: bool, domain: &DmaDomain) -> Outcome<Image> {
    let shape = Shape {
        lba,
        volatile_cache: false,
        bytes: 1280 << 10,
    };
    let rig = Rig::new(shape, 5, domain)?;
    let fs = rig.mount(LoadMode::ReadWrite)?;
    let mut io = rig.io(&fs)?;
    for action in workloads::setup() {
        act(&fs, &mut io, &action)?;
    }
    fs.set_label(b"to be damaged")?;
    fs.checkpoint()?;
    let path = |path: &str| String::from(path);
    let more = [
        Action::Reserve(path("/foo"), 8192, 16_384, true),
        Action::Punch(path("/A/foo"), 4096, 4096),
        Action::Rename(path("/A/bar"), path("/B/bar"), RenameMode::Exchange),
        Action::Link(path("/foo"), path("/A/C/link")),
        Action::SetXattr(path("/A"), path("user.b"), vec![7; 700]),
        Action::RemoveXattr(path("/foo"), path("user.a")),
        Action::Sync,
        Action::Create(path("/new")),
        Action::Append {
            path: path("/new"),
            len: 9000,
            fill: 70,
        },
        Action::Symlink(path("/A/C/link"), path("/B/to")),
        Action::Chmod(path("/B"), 0o700),
        Action::Sync,
        Action::Truncate(path("/foo"), 100),
        Action::Unlink(path("/A/link")),
        Action::Mkdir(path("/A/C/deep")),
    ];
    for action in more {
        act(&fs, &mut io, &action)?;
    }
    let orphan = fs.open("/orphan", OpenOptions::new().write(true).create(0o600))?;
    io.write(&orphan, 0, &[3; 5000])?;
    fs.unlink("/orphan")?;
    fs.sync()?;
    drop(io);
    if clean {
        drop(orphan);
        drop(fs.unmount()?);
    }
    let bytes = rig.drive.image();
    let layout = Layout::of(&bytes, lba as usize).ok_or("the image has no superblock")?;
    Ok(Image { bytes, lba, layout })
}

/// Damages one of the images as `stream` says, and does everything with it.
///
/// # Errors
/// What is neither right nor a typed error.
pub fn damage_and_use(stream: &[u8], domain: &DmaDomain) -> Result<Survived, Violation> {
    let images = images(domain).map_err(|error| error.to_string())?;
    let mut stream = Stream::new(stream);
    let nth = usize::from(stream.byte()) % images.len().max(1);
    let image = images.get(nth).ok_or("there is no image")?;
    survive(mutate(image, &mut stream), image.lba, domain)
}
