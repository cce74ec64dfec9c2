//! What a test is, and how one is run in a process of its own.

use hil::boots::{self, Boot};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

pub(crate) use hil::data::Outcome;

/// What a test is told about where it runs.
pub(crate) struct Context {
    /// The boot that it runs in.
    pub(crate) boot: &'static Boot,
    /// Where its random numbers start: the host prints it and takes it back.
    pub(crate) seed: u64,
}

impl Context {
    /// From the words on a command line.
    pub(crate) fn parse(boot: &str, seed: &str) -> Option<Self> {
        Some(Self {
            boot: boots::boot(boot)?,
            seed: seed.parse().ok()?,
        })
    }

    /// The command that runs a test in a new process.
    pub(crate) fn command(&self, test: &str) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--test", test, self.boot.name, &self.seed.to_string()]);
        command
    }

    /// Runs a [`Test::part`] as an ordinary user and waits for its end.
    pub(crate) fn run_as_user(&self, uid: u32, part: &str) -> Outcome {
        let status = self.command(part).uid(uid).gid(uid).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{part} as user {uid}: {status}").into())
        }
    }
}

/// One test.
pub(crate) struct Test {
    /// `module::what_it_shows`.
    pub(crate) name: String,
    /// The boots that it belongs to, by name.
    pub(crate) boots: &'static [&'static str],
    /// When it is taken to hang.
    pub(crate) limit: Duration,
    run: Box<dyn Fn(&Context) -> Outcome>,
}

impl Test {
    /// A test that runs in each of `boots`.
    pub(crate) fn new(
        name: impl Into<String>,
        boots: &'static [&'static str],
        run: impl Fn(&Context) -> Outcome + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            boots,
            limit: Duration::from_secs(180),
            run: Box::new(run),
        }
    }

    /// A part of a test that needs another process, say another user's: see
    /// [`Context::run_as_user`].
    pub(crate) fn part(
        name: impl Into<String>,
        run: impl Fn(&Context) -> Outcome + 'static,
    ) -> Self {
        Self::new(name, &[], run)
    }

    /// Allows it more time than three minutes.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// Runs the test of that name in this process.
pub(crate) fn run_one(tests: &[Test], name: &str, context: &Context) -> ExitCode {
    let Some(test) = tests.iter().find(|test| test.name == name) else {
        println!("there is no test `{name}`");
        return ExitCode::FAILURE;
    };
    match (test.run)(context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                println!("  caused by: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}
