//! The line that shows how far a long copy is.

use device::format_size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// A copy is long from here on.
const LONG: Duration = Duration::from_secs(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Shows how far a copy is, if it is long and standard error is a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    bar: Option<ProgressBar>,
    shown: bool,
    /// When it is drawn again.
    next: Duration,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            bar: None,
            shown: stderr().is_terminal(),
            next: LONG,
        }
    }

    pub(super) fn show(&mut self, files: u64, bytes: u64) {
        if !self.shown {
            return;
        }
        let elapsed = self.start.elapsed();
        if elapsed < self.next {
            return;
        }
        self.next = elapsed + PAUSE;
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{msg}");
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        bar.set_message(line(files, bytes, elapsed));
    }

    /// Something else is to be written to standard error.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(files: u64, bytes: u64, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let rate = bytes.saturating_mul(1000) / millis;
    let (size, rate) = (format_size(bytes), format_size(rate));
    format!("{files} files, {size}, {rate}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line has the files, the bytes and the rate.
    #[test]
    fn the_line_says_how_far_it_is() {
        let text = line(3, 5 << 20, Duration::from_secs(2));
        assert_eq!(text, "3 files, 5 MiB, 2.50 MiB/s");
        assert_eq!(line(0, 0, Duration::ZERO), "0 files, 0 B, 0 B/s");
    }
}
