//! What host and guest agree on (the boots, the controllers of each, the result lines), and the data
//! tests, which run on the software controller too.

pub mod boots;
pub mod data;
pub mod pattern;
pub mod report;
