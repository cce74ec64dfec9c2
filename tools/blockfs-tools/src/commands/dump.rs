//! dump: the superblocks, and all metadata as the operations that build them.

use crate::error::ToolError;
use crate::output::{printable, write, write_json};
use crate::volume::{Drive, For, MetaDevice};
use blockfs::format::geometry::{BlockRange, Geometry};
use blockfs::format::superblock::Superblock;
use blockfs::format::{FormatError, LbaSize, Twin};
use blockfs::fs::FsError;
use blockfs::journal::{LoadMode, LoadOptions, load};
use device::DeviceString;
use driver::clock::SystemClock;
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long each transfer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A place of a superblock, and what is there.
type Found = (&'static str, Lba, Result<Superblock, FormatError>);

/// Writes all of it.
pub(super) fn dump(device: &DeviceString, salvage: bool, as_json: bool) -> Result<(), ToolError> {
    let domain = DmaDomain::new();
    let drive = Drive::open(device, &domain, For::Volume)?;
    let superblocks = superblocks(&drive)?;
    let meta: MetaDevice = drive.queue()?;
    let options = LoadOptions {
        mode: if salvage {
            LoadMode::Salvage
        } else {
            LoadMode::ReadOnly
        },
        limit: LIMIT,
    };
    let loaded = load(meta, &domain, &SystemClock::new(), &options);
    let loaded = loaded
        .map_err(|(error, _)| ToolError::mount(drive.name(), FsError::Journal(Arc::new(error))));
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

/// Reads the places where superblocks may be.
fn superblocks(drive: &Drive) -> Result<Vec<Found>, ToolError> {
    let mut io = drive.blocks()?;
    let (lba_bytes, blocks) = (io.namespace().block_size(), io.namespace().blocks());
    let lba_size = LbaSize::from_bytes(lba_bytes);
    let lba_size = lba_size.map_err(|error| ToolError::mount(drive.name(), error.into()))?;
    let last = (blocks / lba_size.per_block()).saturating_sub(1);
    let mut found: Vec<Found> = Vec::new();
    let places = [
        ("A", Geometry::superblock_lba(lba_size, Twin::A)),
        ("B", Geometry::superblock_lba(lba_size, Twin::B)),
        ("geometry copy", lba_size.lba_of(last)),
    ];
    for (name, lba) in places.into_iter().filter(|(_, lba)| lba.0 < blocks) {
        let buf = drive.domain().alloc(lba_bytes as usize)?;
        let buf = io.read(lba, buf).map_err(|source| ToolError::Read {
            device: drive.name().to_owned(),
            source,
        })?;
        let mut bytes = vec![0; lba_bytes as usize];
        buf.read_at(0, &mut bytes)?;
        found.push((name, lba, Superblock::decode(&bytes, lba, lba_size)));
    }
    Ok(found)
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
        ("created", crate::output::time(superblock.created_ns).into()),
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

fn described((name, lba, found): &Found) -> Value {
    let mut value = match found {
        Ok(superblock) => fields(superblock)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        Err(error) => serde_json::Map::from_iter([("error".to_owned(), error.to_string().into())]),
    };
    value.insert("place".to_owned(), (*name).into());
    value.insert("lba".to_owned(), lba.0.into());
    value.into()
}

fn print(out: &mut dyn Write, (name, lba, found): &Found) -> std::io::Result<()> {
    writeln!(out, "superblock {name} at LBA {}:", lba.0)?;
    match found {
        Err(error) => writeln!(out, "  {error}"),
        Ok(superblock) => {
            for (name, value) in fields(superblock) {
                writeln!(out, "  {name:20} {value}")?;
            }
            Ok(())
        }
    }
}
