//! What host and guest agree on (the boots, the controllers of each, the result lines, what is done until
//! a power cut), and the data tests, which run on the software controller too.

pub mod blockfs_files;
pub mod boots;
pub mod cuts;
pub mod data;
pub mod pattern;
pub mod report;
