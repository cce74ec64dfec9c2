//! What a power cut may leave of a blockfs volume, and whether that is what was promised.
//!
//! | file | what |
//! |---|---|
//! | `sim.rs` | a simulated drive: blockfs's device trait on the project's media model |
//! | `contents.rs` | what the drive holds: media, or an image with changes laid over it |
//! | `states.rs` | from a log of commands to the images that a cut may leave |

pub mod contents;
pub mod sim;
pub mod states;
