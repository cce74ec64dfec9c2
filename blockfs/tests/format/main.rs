//! The on-disk format from outside: the golden images of version 1, and bytes that nobody wrote.

#![expect(
    clippy::expect_used,
    reason = "a test fails loudly; the lint's exception does not reach its helper functions"
)]

mod garbage;
mod golden;
mod image;
