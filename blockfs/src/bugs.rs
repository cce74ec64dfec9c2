//! Bugs that can be switched on, so that the crash campaign can show that it finds them.
//!
//! Without the private feature `seeded-bugs` every question is answered "no" when it is compiled.
#![forbid(unsafe_code)]

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(
    feature = "seeded-bugs",
    expect(missing_docs, reason = "the names say it")
)]
#[cfg_attr(
    not(feature = "seeded-bugs"),
    expect(unreachable_pub, reason = "it is public with the feature alone")
)]
pub enum Bug {
    RecordWithoutFlush = 1,
    RecordBeforeData,
    BlocksReusedAtOnce,
    TailNotZeroed,
    NewBlockNotZeroed,
    RecordChecksumIgnored,
    CheckpointNotFlushed,
    RecordWithoutFua,
    SyncAnswersAtOnce,
    FlushAnswersAtOnce,
    DurableWriteWithoutFua,
    DurableWriteOfNewMapping,
    RingOverwritten,
    ReplayStartsLate,
    ActiveSlotOverwritten,
    ChangeInSeveralRecords,
    RemovalNotReplayed,
    AttributesNotReplayed,
    ConversionForgotten,
    PunchForgotten,
    PartialBlockNotRead,
    ReplayStartNotMoved,
    KnownRecordTooHigh,
    ZeroedTailNotFlushed,
    DataNotFlushed,
}

impl Bug {
    /// All of them.
    #[cfg(feature = "seeded-bugs")]
    pub const ALL: [Self; 25] = [
        Self::RecordWithoutFlush,
        Self::RecordBeforeData,
        Self::BlocksReusedAtOnce,
        Self::TailNotZeroed,
        Self::NewBlockNotZeroed,
        Self::RecordChecksumIgnored,
        Self::CheckpointNotFlushed,
        Self::RecordWithoutFua,
        Self::SyncAnswersAtOnce,
        Self::FlushAnswersAtOnce,
        Self::DurableWriteWithoutFua,
        Self::DurableWriteOfNewMapping,
        Self::RingOverwritten,
        Self::ReplayStartsLate,
        Self::ActiveSlotOverwritten,
        Self::ChangeInSeveralRecords,
        Self::RemovalNotReplayed,
        Self::AttributesNotReplayed,
        Self::ConversionForgotten,
        Self::PunchForgotten,
        Self::PartialBlockNotRead,
        Self::ReplayStartNotMoved,
        Self::KnownRecordTooHigh,
        Self::ZeroedTailNotFlushed,
        Self::DataNotFlushed,
    ];
}

#[cfg(feature = "seeded-bugs")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicU8, Ordering};

    static ON: AtomicU8 = AtomicU8::new(0);

    /// Switches one bug on, or none.
    pub fn set(bug: Option<Bug>) {
        ON.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
    }

    pub(crate) fn on(bug: Bug) -> bool {
        ON.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "seeded-bugs")]
pub(crate) use switch::on;
#[cfg(feature = "seeded-bugs")]
pub use switch::set;

/// Whether this bug is on: never.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub(crate) const fn on(_: Bug) -> bool {
    false
}
