//! What can be wrong with a volume.

use crate::journal::{JournalError, SuperblockPlace};
use crate::tree::Finding;
use driver::namespace::Lba;

/// Something that is wrong, or that a mount would put in order.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A superblock is not valid. A power cut may leave one of them so; the others are for that.
    #[error("{place}, at LBA {}, is not valid: {error}", lba.0)]
    Superblock {
        /// Which.
        place: SuperblockPlace,
        /// Where.
        lba: Lba,
        /// What is there instead.
        #[source]
        error: JournalError,
    },
    /// The volume was not unmounted. That is no damage.
    #[error(
        "not unmounted: {records} journal records are to be replayed{}",
        if *torn { ", and one that was never acknowledged is torn" } else { "" }
    )]
    NotUnmounted {
        /// Records that the next mount replays.
        records: u64,
        /// Whether a power cut tore one that was never acknowledged.
        torn: bool,
    },
    /// The volume cannot be mounted.
    #[error("the volume cannot be mounted: {0}")]
    Unusable(#[source] JournalError),
    /// The metadata contradict themselves.
    #[error("{0}")]
    Metadata(#[source] Finding),
}
