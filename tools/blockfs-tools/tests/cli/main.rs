//! The built programs on drives in files: exit statuses, messages, JSON, and what is on the volume
//! afterwards.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod copy;
mod fsck;
mod mkfs;
mod names;

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// A folder for a test, with the names that it needs.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    /// A folder with a volume on `disk.img`.
    fn with_volume(size: &str) -> Self {
        let bench = Self::new();
        let device = format!("{},size={size}", bench.device("disk.img"));
        mkfs(["-q", &device]).passes("");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The drive in the file `name`.
    fn device(&self, name: &str) -> String {
        format!("emu:file={}", self.path(name).display())
    }

    /// The drive in `disk.img`.
    fn disk(&self) -> String {
        self.device("disk.img")
    }

    /// A path on the volume in `disk.img`.
    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.disk())
    }

    /// A path in the folder, as an argument.
    fn host(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// A run that has ended.
struct Run {
    line: String,
    status: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Run {
    fn new(line: String, output: Output) -> Self {
        let status = output.status.code();
        Self {
            status: status.unwrap_or_else(|| panic!("{line}: {}", output.status)),
            line,
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn out(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// It ended well, said nothing on standard error, and this among other things.
    fn passes(self, said: &str) -> Self {
        self.ends(0).says(said)
    }

    /// It ended with this status, and nothing on standard error.
    fn ends(self, status: i32) -> Self {
        let Self { line, stderr, .. } = &self;
        assert_eq!((self.status, stderr.as_str()), (status, ""), "{line}");
        self
    }

    /// It said this on standard output.
    fn says(self, said: &str) -> Self {
        let out = String::from_utf8_lossy(&self.stdout);
        assert!(out.contains(said), "{}: no {said:?} in:\n{out}", self.line);
        self
    }

    /// It failed with this status, and said so in one line.
    fn fails(self, status: i32, said: &str) -> Self {
        let Self { line, stderr, .. } = &self;
        assert_eq!(self.status, status, "{line}: {stderr}");
        assert!(stderr.contains(said), "{line}: no {said:?} in: {stderr}");
        self
    }

    /// As [`Run::fails`], in one line with the program's name in front.
    fn refuses(self, status: i32, said: &str) -> Self {
        let run = self.fails(status, said);
        let lines = run.stderr.lines().count();
        assert_eq!(lines, 1, "{}: {}", run.line, run.stderr);
        run
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.line, self.out()))
    }
}

fn run<A: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = A>) -> Run {
    let mut command = match program {
        "mkfs" => cargo_bin_cmd!("mkfs-blockfs"),
        "fsck" => cargo_bin_cmd!("fsck-blockfs"),
        _ => cargo_bin_cmd!("blockfs"),
    };
    command.args(args);
    let output = command.output().unwrap();
    Run::new(format!("{command:?}"), output)
}

fn mkfs<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    run("mkfs", args)
}

fn fsck<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    run("fsck", args)
}

fn blockfs<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    run("blockfs", args)
}

/// Overwrites a part of a file.
fn patch(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Bytes that no compression or cache makes anything of.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
