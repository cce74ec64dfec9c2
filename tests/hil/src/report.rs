//! The lines that the guest writes to its second serial port and the host reads.
//!
//! Kernel messages go to the first port, so no line here is ever cut in two by another.

use std::fmt;
use std::time::Duration;

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A test starts.
    Start {
        /// Its name.
        test: String,
    },
    /// A test has passed.
    Passed {
        /// Its name.
        test: String,
        /// How long it took.
        took: Duration,
    },
    /// A test has failed; what it printed follows as [`Line::Text`].
    Failed {
        /// Its name.
        test: String,
        /// How long it took.
        took: Duration,
    },
    /// A test that ends in a power cut has done so many steps, and all of them are acknowledged as
    /// durable.
    Durable {
        /// How many.
        steps: usize,
    },
    /// Something for a person to read.
    Text(String),
    /// The guest has run all its tests and switches itself off.
    Done {
        /// How many tests it ran.
        tests: u32,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { test } => write!(f, "start {test}"),
            Self::Passed { test, took } => write!(f, "ok {test} {}", took.as_millis()),
            Self::Failed { test, took } => write!(f, "failed {test} {}", took.as_millis()),
            Self::Durable { steps } => write!(f, "durable {steps}"),
            Self::Text(text) => write!(f, "| {text}"),
            Self::Done { tests } => write!(f, "done {tests}"),
        }
    }
}

impl Line {
    /// Reads a line; `None` if it is none of ours.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end_matches(['\r', '\n']);
        let (kind, rest) = line.split_once(' ')?;
        let timed = || {
            let (test, millis) = rest.split_once(' ')?;
            Some((test.to_owned(), Duration::from_millis(millis.parse().ok()?)))
        };
        Some(match kind {
            "start" => Self::Start {
                test: rest.to_owned(),
            },
            "ok" => timed().map(|(test, took)| Self::Passed { test, took })?,
            "failed" => timed().map(|(test, took)| Self::Failed { test, took })?,
            "durable" => Self::Durable {
                steps: rest.parse().ok()?,
            },
            "|" => Self::Text(rest.to_owned()),
            "done" => Self::Done {
                tests: rest.parse().ok()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one side writes the other side reads, a serial line's carriage return included.
    #[test]
    fn lines_survive_the_wire() {
        let (test, took) = ("data::lba512".to_owned(), Duration::from_millis(1234));
        for line in [
            Line::Start { test: test.clone() },
            Line::Passed {
                test: test.clone(),
                took,
            },
            Line::Failed { test, took },
            Line::Durable { steps: 7 },
            Line::Text("left: 1,  right: 2".to_owned()),
            Line::Text(String::new()),
            Line::Done { tests: 3 },
        ] {
            assert_eq!(Line::parse(&format!("{line}\r\n")), Some(line));
        }
        assert_eq!(Line::parse("[    1.0] a kernel's message"), None);
        assert_eq!(Line::parse("ok data::lba512 soon"), None);
    }
}
