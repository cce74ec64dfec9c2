//! What the tests of other filesystems found worth testing, as tests of the interface: each is named
//! after the test of xfstests whose behaviour it checks.
//!
//! | file | what |
//! |---|---|
//! | `common.rs` | volumes, and several queues whose operations interleave as a seed says |
//! | `names.rs` | links, renames, directories |
//! | `data.rs` | reads and writes, at the end of a file and beside each other |
//! | `holes.rs` | reserved, punched and zeroed ranges; space |
//! | `races.rs` | operations that are in flight together |
//! | `durability.rs` | power cuts at every point |
//! | `faults.rs` | commands that fail; cuts and failures again and again |

mod common;
mod data;
mod durability;
mod faults;
mod holes;
mod names;
mod races;
