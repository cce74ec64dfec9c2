//! What host and guest agree on: the boots, the controllers of each, and the result lines.

pub mod boots;
pub mod report;
