//! What can go wrong in an iteration apart from the filesystem's own errors.

/// What is wrong with a mapping that `begin` answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// It covers nothing.
    #[error("it is empty")]
    Empty,
    /// It does not cover the position asked for.
    #[error("it starts behind the position")]
    StartsBehind,
    /// It does not cover the position asked for.
    #[error("it ends before the position")]
    EndsBefore,
    /// Its end in the file is beyond 2^64 bytes.
    #[error("its end in the file overflows")]
    FileOverflow,
    /// Its end on the device is beyond 2^64 bytes.
    #[error("its end on the device overflows")]
    DeviceOverflow,
    /// It was out of date before anybody used it.
    #[error("it is marked stale")]
    Stale,
    /// A hole in answer to a write.
    #[error("it is a hole, and this is a write")]
    HoleForWrite,
    /// More inline data than there are.
    #[error("it is longer than the inline data")]
    InlineTooLong,
}

/// An error of the iteration itself. A filesystem's error type takes it in with `From`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The filesystem's map is damaged, or its `begin` is wrong.
    #[error("bad mapping for file position {pos}: {what}; check the filesystem")]
    Corrupt {
        /// The position asked for, in bytes.
        pos: u64,
        /// What is wrong with the answer.
        what: Corruption,
    },
    /// It cannot be done at once, or not without allocating; nothing has been done. Do it again
    /// without `NOWAIT` and `OVERWRITE_ONLY`.
    #[error("not possible without waiting or allocating; try again with a blocking request")]
    WouldBlock,
    /// An atomic operation that would have to be done in parts.
    #[error("an atomic operation of {wanted} bytes, but only {covered} can be done as one")]
    NotAtomic {
        /// Bytes to be done as one.
        wanted: u64,
        /// Bytes that the mapping covers, or that the body did.
        covered: u64,
    },
    /// The map changed under every try. Take the map's lock and go on from `pos`.
    #[error("the map kept changing at file position {pos}; go on with the map locked")]
    StaleTooOften {
        /// Where nothing advanced, in bytes.
        pos: u64,
    },
    /// A body wanted to advance further than its step is long; nothing has changed.
    #[error("cannot advance by {by} bytes: {usable} are left in this step")]
    AdvanceTooFar {
        /// Bytes asked for.
        by: u64,
        /// Bytes left in the step.
        usable: u64,
    },
    /// A body wanted to advance over a mapping that it had marked stale; nothing has changed.
    #[error("cannot advance over a stale mapping")]
    AdvanceStale,
    /// Position and length together are beyond 2^64 bytes.
    #[error("the file range overflows")]
    RangeOverflow,
    /// A step was leaked (`mem::forget`), so its `end` never ran; the iteration is over.
    #[error("an earlier step was leaked, its end has not run")]
    StepLeaked,
}
