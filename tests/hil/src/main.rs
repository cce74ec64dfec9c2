//! The in-guest test binary.

fn main() {}
