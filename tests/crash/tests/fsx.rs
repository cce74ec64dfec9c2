//! The exerciser, for a share of what `tests/run crash` does: see `peers` for the other tests that are
//! named after those of xfstests.

use crash::fsx::{RUN, exercise};
use driver::memory::DmaDomain;

/// A hundred thousand random operations on files give, byte for byte and block for block, what a
/// reference in memory says. `DOORBELL_SEED` repeats a run.
#[test]
fn generic_075_files_are_what_a_reference_says() {
    let given = std::env::var("DOORBELL_SEED").ok();
    let seed = given
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("DOORBELL_SEED={seed}");
    let domain = DmaDomain::new();
    for run in 0..10 {
        let done = exercise(seed.wrapping_add(run), RUN, &domain);
        assert!(
            done.is_ok(),
            "{}",
            done.map(|_| String::new())
                .unwrap_or_else(|e| e.to_string())
        );
    }
}
