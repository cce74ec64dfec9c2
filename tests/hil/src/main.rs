//! The program inside the guest: its first process, and again one process for each test.
//!
//! As process 1 it prepares the machine and starts itself once for each test that belongs to the boot
//! (`init`), so that a test that dies or hangs takes no other with it, and what a process holds (open
//! files, locked memory, its IOMMU mappings) is known to be gone before the next one starts.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "tests fail loudly, and standard output is where they talk"
)]

mod blockfs_guest;
mod cross;
mod init;
mod isolation;
mod lifecycle;
mod machine;
mod perf;
mod power_cut;
mod shapes;
mod sight;
mod test;
mod vfio_attach;
mod vfio_kit;
mod vfio_setup;
mod vfio_user;

use std::process::ExitCode;
use test::{Context, Test};

/// Every test there is. Those that a boot does not run are skipped by `init`.
fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    tests.extend(sight::tests());
    tests.extend(vfio_setup::tests());
    tests.extend(vfio_user::tests());
    tests.extend(vfio_attach::tests());
    tests.extend(lifecycle::tests());
    tests.extend(isolation::tests());
    tests.extend(shapes::tests());
    tests.extend(cross::tests());
    tests.extend(blockfs_guest::tests());
    tests.extend(perf::tests());
    tests.extend(power_cut::tests());
    tests
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--test", name, boot, seed] => {
            let Some(context) = Context::parse(boot, seed) else {
                return ExitCode::from(2);
            };
            test::run_one(&tests(), name, &context)
        }
        [boot, seed, filters @ ..] if std::process::id() == 1 => match Context::parse(boot, seed) {
            Some(context) => init::run(&tests(), &context, filters),
            None => ExitCode::from(2),
        },
        _ => {
            println!("this program runs in the guest only; `tests/run hil` builds and boots it");
            ExitCode::from(2)
        }
    }
}
