//! SIGINT and SIGTERM: the first ends a program in order, the second kills it.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first SIGINT or SIGTERM sets. The next one does what it would do anyway: it kills.
///
/// # Errors
/// What the system says if they cannot be caught.
pub fn catch() -> io::Result<Arc<AtomicBool>> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still unset.
        flag::register_conditional_default(signal, Arc::clone(&interrupt))?;
        flag::register(signal, Arc::clone(&interrupt))?;
    }
    Ok(interrupt)
}
