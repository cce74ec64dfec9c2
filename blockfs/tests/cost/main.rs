//! What the hot path costs, counted instruction by instruction under callgrind, of code that is built as
//! it is released.
//!
//! Needs valgrind and objdump (`apt-get install valgrind binutils`; `tests/run cost` does that).

mod callgrind;
mod iostat;
mod read;
