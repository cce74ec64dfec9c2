//! Damages an image as libFuzzer's bytes say, and does everything with it: each byte decides what is
//! changed next, see `tests/crash/src/damage`.
#![no_main]

use crash::damage::damage_and_use;
use driver::memory::DmaDomain;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|data: &[u8]| {
    static DOMAIN: OnceLock<DmaDomain> = OnceLock::new();
    let done = damage_and_use(data, DOMAIN.get_or_init(DmaDomain::new));
    assert!(done.is_ok(), "{done:?}");
});
