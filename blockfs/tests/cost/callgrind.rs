//! Builds an example for release and runs it under callgrind.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// An example, built for release.
pub(crate) struct Example(PathBuf);

/// What ran in the functions that were looked at.
pub(crate) struct Counted {
    /// Instructions.
    pub(crate) instructions: u64,
    /// Where in the program they are.
    pub(crate) addresses: BTreeSet<u64>,
    /// Functions of other files, such as the C library's, that ran.
    pub(crate) foreign: BTreeSet<String>,
}

impl Example {
    /// Builds it into the target directory that this test comes from.
    pub(crate) fn build(name: &str) -> Outcome<Self> {
        let me = env::current_exe()?;
        // TARGET/PROFILE/deps/TEST
        let target = me.ancestors().nth(3).ok_or("no target directory")?;
        let output = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--release", "--example", name])
            .arg("--manifest-path")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .arg("--target-dir")
            .arg(target)
            .env_remove("CARGO_BUILD_TARGET")
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(Self(target.join("release/examples").join(name)))
    }

    /// Runs it and counts what runs in the functions whose names contain `function`, and in what they
    /// call.
    pub(crate) fn count(&self, function: &str, arguments: &[&str]) -> Outcome<Counted> {
        let report = self.0.with_extension(format!("{function}.callgrind"));
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--dump-instr=yes"])
            .arg(format!("--callgrind-out-file={}", report.display()))
            .arg(format!("--toggle-collect=*{function}*"))
            .arg(&self.0)
            .args(arguments)
            .output()
            .map_err(|error| format!("valgrind: {error}; install the package valgrind"))?;
        let log = String::from_utf8_lossy(&output.stderr);
        let collected = log.lines().find_map(|line| line.split_once("Collected :"));
        let Some((_, instructions)) = collected.filter(|_| output.status.success()) else {
            return Err(format!("{function}: {log}").into());
        };
        let (addresses, foreign) = parse(&fs::read_to_string(&report)?, &self.0)?;
        fs::remove_file(&report)?;
        Ok(Counted {
            instructions: instructions.trim().parse()?,
            addresses,
            foreign,
        })
    }

    /// The instructions at these addresses, as text.
    pub(crate) fn disassemble(&self, addresses: &BTreeSet<u64>) -> Outcome<Vec<String>> {
        let output = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn", "-M", "intel"])
            .arg(&self.0)
            .output()
            .map_err(|error| format!("objdump: {error}; install the package binutils"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter_map(|line| {
            let (address, instruction) = line.trim_start().split_once(":\t")?;
            let address = u64::from_str_radix(address, 16).ok()?;
            addresses
                .contains(&address)
                .then(|| instruction.to_string())
        });
        Ok(lines.collect())
    }
}

/// Reads callgrind's format (the manual's chapter "Callgrind Format Specification"): the addresses that
/// ran in `program`, and the functions that ran elsewhere.
fn parse(report: &str, program: &Path) -> Outcome<(BTreeSet<u64>, BTreeSet<String>)> {
    let program = program.to_str().ok_or("a path that is not UTF-8")?;
    let (mut addresses, mut foreign) = (BTreeSet::new(), BTreeSet::new());
    let mut names: HashMap<(char, String), String> = HashMap::new();
    let (mut object, mut function) = (String::new(), String::new());
    let (mut address, mut of_a_call) = (0_u64, false);
    for line in report.lines() {
        if let Some((key, value)) = line.split_once('=') {
            let mut name = |kind| match value.split_once(") ") {
                Some((id, name)) => {
                    names.insert((kind, format!("{id})")), name.to_string());
                    name.to_string()
                }
                None => names
                    .get(&(kind, value.to_string()))
                    .cloned()
                    .unwrap_or_default(),
            };
            match key {
                "ob" => object = name('o'),
                "cob" => drop(name('o')),
                "fn" => function = name('f'),
                "cfn" => drop(name('f')),
                "calls" => of_a_call = true,
                _ => {}
            }
            continue;
        }
        let mut words = line.split(' ');
        let Some(position) = words.next() else {
            continue;
        };
        let next = if let Some(hex) = position.strip_prefix("0x") {
            u64::from_str_radix(hex, 16).ok()
        } else if position == "*" {
            Some(address)
        } else if let Some(more) = position.strip_prefix('+') {
            more.parse().ok().map(|more: u64| address + more)
        } else if let Some(less) = position.strip_prefix('-') {
            less.parse()
                .ok()
                .and_then(|less: u64| address.checked_sub(less))
        } else {
            None
        };
        let Some(next) = next else { continue };
        address = next;
        // What a call cost, its callee has on lines of its own.
        if std::mem::take(&mut of_a_call) {
            continue;
        }
        if words.nth(1).is_none_or(|cost| cost == "0") {
            continue;
        }
        if object == program {
            addresses.insert(address);
        } else {
            foreign.insert(function.clone());
        }
    }
    Ok((addresses, foreign))
}
