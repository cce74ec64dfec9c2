//! The report: a table and fio-like blocks for people, fio's keys in JSON for scripts.

mod json;
mod stats;
mod table;

use super::args::{Args, OutputFormat};
use super::drive::Drive;
use super::plan::Plan;
use super::run::Outcome;
use std::io::{self, Write};

/// Everything that a report is made from.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The command line.
    pub args: &'a Args,
    /// What was to be measured.
    pub plan: &'a Plan,
    /// The drive.
    pub drive: &'a Drive,
    /// What was measured.
    pub outcome: &'a Outcome,
}

impl Report<'_> {
    /// Writes the report in the format that was asked for.
    ///
    /// # Errors
    /// Whatever writing fails with.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        match self.args.output_format {
            OutputFormat::Normal => table::write(self, to),
            OutputFormat::Json => {
                serde_json::to_writer_pretty(&mut *to, &json::document(self))?;
                writeln!(to)
            }
        }
    }

    /// What a reader should know before believing the figures.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.plan.mode.reads() && self.drive.is_mostly_unwritten() {
            warnings.push(format!(
                "only {} of {} are in use by the drive's word: reads of blocks that were never \
                 written do not touch the medium, so these figures are too good. Fill the drive \
                 first (-w write, once over the range)",
                device::format_size(self.drive.used_bytes),
                device::format_size(self.drive.capacity_bytes)
            ));
        }
        let depth = usize::from(self.plan.depth);
        if let Some(job) = self.outcome.jobs.iter().find(|job| job.depth < depth) {
            warnings.push(format!(
                "the drive's queues are short: {} commands were kept outstanding, not {depth}",
                job.depth
            ));
        }
        let strays: u64 = self
            .outcome
            .jobs
            .iter()
            .map(|job| job.tally.strays.total())
            .sum();
        if strays > 0 {
            warnings.push(format!(
                "the device sent {strays} completions that nothing waited for: it is at fault"
            ));
        }
        if self.outcome.interrupted {
            warnings.push(
                "a signal ended the run early: the figures are those until then, without the ramp"
                    .to_owned(),
            );
        }
        if self.outcome.stalled {
            warnings.push("the device made no progress and the run was stopped".to_owned());
        }
        warnings
    }
}

/// A count for people: 999, 12.3k, 4.56M.
pub(crate) fn quantity(value: f64) -> String {
    if value >= 1e6 {
        format!("{:.2}M", value / 1e6)
    } else if value >= 1e4 {
        format!("{:.1}k", value / 1e3)
    } else {
        format!("{value:.0}")
    }
}

/// Bytes a second for people.
pub(crate) fn rate(bytes: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    format!("{:.1} MiB/s", bytes / MIB)
}

/// To a whole number; negative ones become 0.
pub(crate) fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate"
    )]
    let whole = value.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts keep three digits or so.
    #[test]
    fn quantities_are_short() {
        assert_eq!(quantity(950.4), "950");
        assert_eq!(quantity(12_345.0), "12.3k");
        assert_eq!(quantity(4_561_000.0), "4.56M");
        assert_eq!(rate(1_048_576.0), "1.0 MiB/s");
        assert_eq!((whole(1.5), whole(-3.0)), (2, 0));
    }
}
