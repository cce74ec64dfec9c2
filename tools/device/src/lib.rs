//! Device strings.
