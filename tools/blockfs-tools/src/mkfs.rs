//! `mkfs.blockfs`: makes a volume, unless the device holds something.

use super::error::ToolError;
use super::output::{write, write_json};
use super::volume::{Drive, For};
use blockfs::format::geometry::{BlockRange, Geometry, LayoutOptions};
use blockfs::format::superblock::Label;
use blockfs::format::{BLOCK_BYTES, LbaSize};
use blockfs::fs::{FsError, MkfsOptions, MountOptions, SystemWallClock, WallClock, mkfs};
use clap::Parser;
use device::{DeviceString, EmulatorSettings, Signature, format_size, parse_size, signature};
use driver::memory::DmaDomain;
use driver::namespace::Lba;
use serde_json::json;
use uuid::Uuid;

/// Makes an empty blockfs volume on a device.
///
/// What was on the device is lost. A device that holds a known format is refused without --force.
#[derive(Clone, Debug, Parser)]
#[command(name = "mkfs.blockfs", version, max_term_width = 100, after_help = NOTES)]
pub struct Args {
    /// Where: a PCI address, emu:file=F[,size=N] or vfio-user:path=SOCKET
    #[arg(value_name = "DEVICE")]
    pub device: DeviceString,

    /// A label of up to 64 bytes
    #[arg(
        short = 'L',
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub label: String,

    /// The UUID of the volume [default: a random one]
    #[arg(short = 'U', long, value_name = "UUID")]
    pub uuid: Option<Uuid>,

    /// Make it although the device holds something
    #[arg(short, long)]
    pub force: bool,

    /// Only say what would be made
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Say nothing unless something is wrong
    #[arg(short, long)]
    pub quiet: bool,

    /// Bytes of the volume [default: all of the device]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub volume_size: Option<u64>,

    /// Bytes of the journal [default: 1/2048 of the volume, 4 MiB to 16 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub journal_size: Option<u64>,

    /// Bytes of each checkpoint, the limit of all metadata [default: 1/512 of the volume, 8 MiB to 4 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub checkpoint_size: Option<u64>,

    /// Permission bits of the root directory, octal
    #[arg(long, value_name = "MODE", default_value = "755", value_parser = permissions)]
    pub mode: u16,

    /// Write the result, or an error, as JSON
    #[arg(long)]
    pub json: bool,
}

const NOTES: &str = "\
Sizes take k, m, g, t for powers of 1,024.

Examples:
  mkfs.blockfs emu:file=disk.img,size=1g    a volume in a file, which is made
  mkfs.blockfs -L logs 0000:01:00.0         on a drive on vfio-pci

Exit status: 0 made, 1 not made, 2 wrong usage.";

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Permission bits in octal.
pub(crate) fn permissions(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| "octal permission bits, as in 755".to_owned())
}

/// Makes the volume and says what was made.
///
/// # Errors
/// [`ToolError`].
pub fn run(args: &Args) -> Result<(), ToolError> {
    let options = options(args)?;
    if let Some((lba, blocks)) = missing_file(&args.device) {
        // What cannot be made leaves no file behind, and a dry run none at all.
        let geometry = plan(args, lba, blocks)?;
        if args.dry_run {
            return report(args, &options, &geometry, None);
        }
    }
    let domain = DmaDomain::new();
    let drive = Drive::open(&args.device, &domain, For::Mkfs)?;
    let (found, lba, blocks) = look(&drive)?;
    let geometry = plan(args, lba, blocks)?;
    if let Some(found) = found.filter(|_| !args.force) {
        let device = args.device.to_string();
        let Signature { at, what } = found;
        return Err(ToolError::InUse { device, what, at });
    }
    if !args.dry_run {
        let mut options = options.clone();
        options.device_blocks = Some(geometry.volume_blocks * geometry.lba_size.per_block());
        let mut device = drive.queue()?;
        let mount = MountOptions::default();
        let made = mkfs(&mut device, &domain, &mount, &options);
        made.map_err(|source| failed(args, source))?;
    }
    report(args, &options, &geometry, found)
}

fn failed(args: &Args, source: FsError) -> ToolError {
    let device = args.device.to_string();
    ToolError::Make { device, source }
}

fn options(args: &Args) -> Result<MkfsOptions, ToolError> {
    let usage = |text: &str| ToolError::Usage(text.to_owned());
    let label = Label::new(args.label.as_bytes());
    let mut options = MkfsOptions::new(args.uuid.unwrap_or_else(Uuid::new_v4));
    options.label = label.ok_or_else(|| usage("a label has at most 64 bytes, and no NUL"))?;
    options.layout = layout(args);
    options.mode = args.mode;
    options.owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    options.now_ns = SystemWallClock.now_ns();
    Ok(options)
}

const fn layout(args: &Args) -> LayoutOptions {
    LayoutOptions {
        journal_bytes: args.journal_size,
        checkpoint_bytes: args.checkpoint_size,
    }
}

/// Logical blocks of an emulated drive whose file will be made: their size and number.
fn missing_file(device: &DeviceString) -> Option<(u32, u64)> {
    let DeviceString::Emulator(EmulatorSettings {
        file: Some(path),
        size: Some(size),
        lba,
        ..
    }) = device
    else {
        return None;
    };
    let lba = lba.unwrap_or(512);
    (!path.exists()).then(|| (lba, size / u64::from(lba)))
}

/// Where everything will lie.
fn plan(args: &Args, lba: u32, blocks: u64) -> Result<Geometry, ToolError> {
    let broken = |error: blockfs::format::FormatError| failed(args, error.into());
    let lba_size = LbaSize::from_bytes(lba).map_err(broken)?;
    let blocks = match args.volume_size {
        None => blocks,
        Some(bytes) if bytes / u64::from(lba) <= blocks => bytes / u64::from(lba),
        Some(_) => {
            let has = format_size(blocks.saturating_mul(lba.into()));
            let text = format!("the volume cannot be larger than the device, which has {has}");
            return Err(ToolError::Usage(text));
        }
    };
    Geometry::plan(lba_size, blocks, &layout(args)).map_err(broken)
}

/// Bytes at the start that are looked at: no known signature is behind them.
const LOOK: usize = (1 << 20) + 4096;
/// A copy of the GPT's header is in the last logical block.
const GPT_COPY: &[u8] = b"EFI PART";

/// What the drive holds, if that is known, and the size and number of its logical blocks.
fn look(drive: &Drive) -> Result<(Option<Signature>, u32, u64), ToolError> {
    let mut io = drive.blocks()?;
    let (lba, blocks) = (io.namespace().block_size(), io.namespace().blocks());
    let unreadable = |source| ToolError::Read {
        device: drive.name().to_owned(),
        source,
    };
    let mut read = |at: u64, bytes: usize| -> Result<Vec<u8>, ToolError> {
        let mut buf = drive.domain().alloc(bytes)?;
        // A drive that moves no data leaves zeros.
        buf.fill(0);
        let buf = io.read(Lba(at), buf).map_err(unreadable)?;
        let mut all = vec![0; bytes];
        buf.read_at(0, &mut all)?;
        Ok(all)
    };
    // At most LOOK.
    let bytes = blocks.saturating_mul(lba.into()).min(LOOK as u64);
    let mut found = signature(&read(0, usize::try_from(bytes).unwrap_or(LOOK))?);
    if found.is_none() && blocks > 0 {
        let last = blocks - 1;
        if read(last, lba as usize)?.starts_with(GPT_COPY) {
            let at = last * u64::from(lba);
            let what = "the copy of a GPT partition table";
            found = Some(Signature { at, what });
        }
    }
    Ok((found, lba, blocks))
}

fn report(
    args: &Args,
    options: &MkfsOptions,
    geometry: &Geometry,
    replaced: Option<Signature>,
) -> Result<(), ToolError> {
    if args.json {
        let area = |range: BlockRange| json!({ "start": range.start, "blocks": range.blocks });
        return write_json(&json!({
            "device": args.device.to_string(),
            "made": !args.dry_run,
            "uuid": options.uuid.to_string(),
            "label": args.label,
            "block_bytes": BLOCK_BYTES,
            "lba_bytes": geometry.lba_size.bytes(),
            "blocks": geometry.volume_blocks,
            "journal": area(geometry.journal),
            "checkpoints": geometry.slots.map(area),
            "data": area(geometry.data),
            "replaced": replaced.map(|found| found.what),
        }));
    }
    if args.quiet {
        return Ok(());
    }
    write(|out| {
        let verb = if args.dry_run { "would make" } else { "made" };
        writeln!(
            out,
            "{verb} a blockfs volume of {} on {}: UUID {}, journal {}, checkpoints 2 x {}, for data {}",
            format_size(geometry.volume_blocks * BLOCK_BYTES),
            args.device,
            options.uuid,
            format_size(geometry.journal.bytes()),
            format_size(geometry.slots[0].bytes()),
            format_size(geometry.data.bytes()),
        )
        .map_err(ToolError::Output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// clap finds no contradiction in the definition.
    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    /// Permission bits are octal.
    #[test]
    fn permissions_are_octal() {
        assert_eq!(permissions("755"), Ok(0o755));
        assert_eq!(permissions("7777"), Ok(0o7777));
        assert!(permissions("8").is_err() && permissions("10000").is_err());
    }
}
