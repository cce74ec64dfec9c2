//! What a power cut may leave of a blockfs volume, and whether that is what was promised.
//!
//! | file | what |
//! |---|---|
//! | `sim.rs` | a simulated drive: blockfs's device trait on the project's media model |
//! | `contents.rs` | what the drive holds: media, or an image with changes laid over it |
//! | `states.rs` | from a log of commands to the images that a cut may leave |
//! | `model.rs` | a reference filesystem in memory |
//! | `act.rs` | one action, on the filesystem and on the reference |
//! | `run.rs` | workloads: the same actions on both |
//! | `workloads.rs` | which actions |
//! | `check.rs` | the promises, checked on one image |
//! | `faults.rs` | damage, and commands that fail |
//! | `damage/` | damaged images, and everything that can be done with them |
//! | `fsx/` | an exerciser: random operations on files, compared byte by byte |
//! | `campaign.rs` | sets of workloads, each checked in all its states |

pub mod act;
pub mod campaign;
pub mod check;
pub mod contents;
pub mod damage;
pub mod faults;
pub mod fsx;
pub mod model;
pub mod run;
pub mod sim;
pub mod states;
pub mod workloads;
