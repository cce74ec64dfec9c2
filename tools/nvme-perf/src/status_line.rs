//! The live line on standard error.

use super::args::Eta;
use super::report::{quantity, rate};
use super::watch::Status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write, stderr};

/// Shows how far the run is.
#[derive(Debug)]
pub(crate) enum StatusLine {
    /// Redrawn in place.
    Bar(ProgressBar),
    /// A line each time: standard error is no terminal, but it was asked for.
    Lines,
    /// Not at all.
    Hidden,
}

impl StatusLine {
    pub(crate) fn new(eta: Eta) -> Self {
        match (eta, stderr().is_terminal()) {
            (Eta::Never, _) | (Eta::Auto, false) => Self::Hidden,
            (Eta::Always, false) => Self::Lines,
            (_, true) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                Self::Bar(
                    bar.with_style(
                        ProgressStyle::with_template("{msg}")
                            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
                    ),
                )
            }
        }
    }

    pub(crate) fn show(&self, status: Status, block_bytes: u32) {
        match self {
            Self::Bar(bar) => bar.set_message(text(status, block_bytes)),
            // A reader that has gone away is no reason to stop measuring.
            Self::Lines => drop(writeln!(stderr(), "{}", text(status, block_bytes))),
            Self::Hidden => {}
        }
    }

    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn text(status: Status, block_bytes: u32) -> String {
    let iops: f64 = status.iops.iter().sum();
    let phase = if status.ramp { "ramp" } else { "run" };
    let left = status.left.map_or(String::new(), |left| {
        format!(", {:.0} s left", left.as_secs_f64())
    });
    let bytes = rate(iops * f64::from(block_bytes));
    format!(
        "{phase} {:3.0}%  {} IOPS, {bytes}{left}",
        status.done * 100.0,
        quantity(iops)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The line has the rate in commands and in bytes, and the time left.
    #[test]
    fn the_line_says_how_far_it_is() {
        let status = Status {
            ramp: false,
            done: 0.5,
            left: Some(Duration::from_secs(3)),
            iops: [1_500_000.0, 0.0, 0.0],
        };
        assert_eq!(
            text(status, 4096),
            "run  50%  1.50M IOPS, 5859.4 MiB/s, 3 s left"
        );
    }
}
