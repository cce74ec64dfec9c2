//! How results and errors are written: results to standard output, everything else to standard error.

use super::error::ToolError;
use device::{chain, error_json};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

/// Ends a program: tells what went wrong.
#[must_use]
pub fn end(program: &str, json: bool, result: Result<(), ToolError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(program, json, &error);
            ExitCode::from(error.exit_status())
        }
    }
}

/// Says on standard error what went wrong, in one line.
pub fn tell(program: &str, json: bool, error: &ToolError) {
    let text = match json {
        true => error_json(error.code(), error),
        false => format!("{program}: {}", printable(&chain(error).join(": "))),
    };
    // Where nobody reads the text there is still the exit status.
    let _ = writeln!(stderr(), "{text}");
}

/// Writes a result. A reader that has gone away wanted no more of it.
///
/// # Errors
/// [`ToolError::Output`].
pub fn write(
    result: impl FnOnce(&mut dyn Write) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let mut out = BufWriter::new(stdout().lock());
    match result(&mut out).and_then(|()| out.flush().map_err(ToolError::Output)) {
        Err(ToolError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a result as JSON.
///
/// # Errors
/// [`ToolError::Output`].
pub fn write_json(result: &impl Serialize) -> Result<(), ToolError> {
    write(|out| {
        serde_json::to_writer_pretty(&mut *out, result)
            .map_err(|error| ToolError::Output(error.into()))?;
        writeln!(out).map_err(ToolError::Output)
    })
}

/// A name as it is listed: as it is, or for a terminal, which some bytes would confuse, without those.
#[must_use]
pub fn listed(name: &[u8]) -> Vec<u8> {
    match stdout().is_terminal() {
        true => printable(&String::from_utf8_lossy(name)).into_bytes(),
        false => name.to_vec(),
    }
}

/// A text without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(shown).collect()
}

/// A name or a path for JSON, which has no other bytes than UTF-8.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Permission bits with the kind in front, as `ls -l` shows them.
#[must_use]
pub fn mode(kind: char, mode: u16) -> String {
    let mut text = String::from(kind);
    for (shift, special, (with, without)) in [
        (6, 0o4000, ('s', 'S')),
        (3, 0o2000, ('s', 'S')),
        (0, 0o1000, ('t', 'T')),
    ] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time as ISO 8601 writes it, in UTC: `2026-12-01T04:21:24.000000001Z`.
#[must_use]
pub fn time(ns: i64) -> String {
    let (seconds, nanos) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// The date `days` after 1970-01-01, in the Gregorian calendar.
const fn date(days: i64) -> (i64, i64, i64) {
    // Years from March on, so that the leap day is the last; 400 of them are 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modes look as ls writes them.
    #[test]
    fn modes_look_as_usual() {
        assert_eq!(mode('-', 0o644), "-rw-r--r--");
        assert_eq!(mode('d', 0o1777), "drwxrwxrwt");
        assert_eq!(mode('-', 0o4755), "-rwsr-xr-x");
        assert_eq!(mode('l', 0o7000), "l--S--S--T");
    }

    /// Times are right at the edges: the epoch, leap days, before 1970, the ends of 64 bits.
    #[test]
    fn times_are_right() {
        let second = 1_000_000_000;
        assert_eq!(time(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(time(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(time(951_782_400 * second), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(
            time(4_107_542_400 * second),
            "2100-03-01T00:00:00.000000000Z"
        );
        assert_eq!(
            time(1_796_098_884 * second),
            "2026-12-01T04:21:24.000000000Z"
        );
        assert_eq!(time(i64::MIN), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(time(i64::MAX), "2262-04-11T23:47:16.854775807Z");
    }
}
