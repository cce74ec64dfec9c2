//! dump: the superblocks, and all metadata as the operations that build them.

use crate::error::ToolError;
use crate::output::{printable, time, write, write_json};
use crate::volume::{Drive, For, MetaDevice};
use blockfs::format::geometry::BlockRange;
use blockfs::format::superblock::Superblock;
use blockfs::fs::FsError;
use blockfs::journal::{FoundSuperblock, LoadMode, LoadOptions, load, superblocks};
use device::DeviceString;
use driver::clock::SystemClock;
use driver::memory::DmaDomain;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long each transfer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Writes all of it.
pub(super) fn dump(device: &DeviceString, salvage: bool, as_json: bool) -> Result<(), ToolError> {
    let domain = DmaDomain::new();
    let drive = Drive::open(device, &domain, For::Volume)?;
    let clock = SystemClock::new();
    let mut meta: MetaDevice = drive.queue()?;
    let broken = |error| ToolError::mount(drive.name(), FsError::Journal(Arc::new(error)));
    let superblocks = superblocks(&mut meta, &domain, &clock, LIMIT).map_err(broken)?;
    let options = LoadOptions {
        mode: if salvage {
            LoadMode::Salvage
        } else {
            LoadMode::ReadOnly
        },
        limit: LIMIT,
    };
    let loaded = load(meta, &domain, &clock, &options).map_err(|(error, _)| broken(error));
    if as_json {
        let loaded = loaded?;
        let ops: Vec<String> = loaded.tree.snapshot().map(|op| format!("{op:?}")).collect();
        return write_json(&json!({
            "device": drive.name(),
            "superblocks": superblocks.iter().map(described).collect::<Vec<_>>(),
            "problems": loaded.report.problems,
            "replayed_records": loaded.report.records,
            "operations": ops,
        }));
    }
    write(|out| {
        for found in &superblocks {
            print(out, found).map_err(ToolError::Output)?;
        }
        let loaded = loaded?;
        let mut rest = || {
            for problem in &loaded.report.problems {
                writeln!(out, "problem: {problem}")?;
            }
            writeln!(out, "journal: {} records replayed", loaded.report.records)?;
            for op in loaded.tree.snapshot() {
                writeln!(out, "{}", printable(&format!("{op:?}")))?;
            }
            Ok(())
        };
        rest().map_err(ToolError::Output)
    })
}

/// The layout and the numbers of a superblock, with their names.
fn fields(superblock: &Superblock) -> Vec<(&'static str, Value)> {
    let area = |range: BlockRange| json!([range.start, range.end()]);
    let layout = &superblock.geometry;
    vec![
        ("uuid", superblock.uuid.to_string().into()),
        ("label", printable(&superblock.label.to_string()).into()),
        ("generation", superblock.generation.into()),
        ("clean", superblock.clean.into()),
        ("created", time(superblock.created_ns).into()),
        ("lba_bytes", layout.lba_size.bytes().into()),
        ("blocks", layout.volume_blocks.into()),
        ("journal", area(layout.journal)),
        ("slot_a", area(layout.slots[0])),
        ("slot_b", area(layout.slots[1])),
        ("data", area(layout.data)),
        ("epoch", superblock.epoch.into()),
        (
            "checkpoint_slot",
            format!("{:?}", superblock.checkpoint.slot).into(),
        ),
        ("checkpoint_pages", superblock.checkpoint.pages.into()),
        ("checkpoint_epoch", superblock.checkpoint.epoch.into()),
        ("checkpoint_root_crc", superblock.checkpoint.root_crc.into()),
        ("first_txid", superblock.journal.txid.into()),
        ("first_epoch", superblock.journal.epoch.into()),
        ("first_offset", superblock.journal.offset.into()),
        ("prev_crc", superblock.journal.prev_crc.into()),
        ("known_txid", superblock.journal.known_txid.into()),
    ]
}

fn described(found: &FoundSuperblock) -> Value {
    let mut value = match &found.found {
        Ok(superblock) => fields(superblock)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        Err(error) => serde_json::Map::from_iter([("error".to_owned(), error.to_string().into())]),
    };
    value.insert("place".to_owned(), found.place.to_string().into());
    value.insert("lba".to_owned(), found.lba.0.into());
    value.into()
}

fn print(out: &mut dyn Write, found: &FoundSuperblock) -> std::io::Result<()> {
    writeln!(out, "{} at LBA {}:", found.place, found.lba.0)?;
    match &found.found {
        Err(error) => writeln!(out, "  {error}"),
        Ok(superblock) => {
            for (name, value) in fields(superblock) {
                writeln!(out, "  {name:20} {value}")?;
            }
            Ok(())
        }
    }
}
