//! The controller: its state, its life from enable to shutdown, and its turn of work.
//!
//! Everything here runs under the device's lock. A command enters by [`Controller::admin_command`]
//! or [`Controller::io_command`] and leaves as an [`Answer`]; a layer that injects faults wraps
//! these two.

mod admin;
mod delayed;
mod events;
mod features;
mod identify;
mod io;
mod logs;
mod prp;
mod queues;
mod registers;

pub(crate) use registers::Registers;

use crate::dma::DmaMap;
use crate::media::{CutReport, Media, MediaError};
use crate::queue::{Completion, CompletionQueue, SubmissionQueue};
use crate::raw::{Pages, Span};
use crate::settings::{BuildError, Builder, Namespace, Timing};
use crate::stats::{Recorder, Stats};
use delayed::Delayed;
use driver::spec::registers::{Aqa, CC, Cc, Csts, DOORBELLS, cq_head_doorbell, sq_tail_doorbell};
use driver::spec::{Sqe, Status};
use events::Events;
use features::Features;
use logs::Logs;
use std::sync::Arc;

/// What a command ends with: dword 0 of its completion, or an error.
pub(crate) type Answer = Result<u32, Status>;

/// The most commands of one queue that are executed before the next queue has its turn.
const BURST: usize = 16;

/// One namespace as the controller holds it.
#[derive(Debug)]
struct Disk {
    media: Media,
    optimal_boundary: u16,
}

/// A whole controller. Time is a number of nanoseconds that the owner sets.
#[derive(Debug)]
pub(crate) struct Controller {
    settings: Builder,
    pub(crate) dma: DmaMap,
    doorbells: Arc<Pages>,
    registers: Arc<Registers>,
    /// Whether queues are processed: ready, not shut down, not failed, not silenced.
    running: bool,
    silenced: bool,
    /// When CSTS.RDY follows CC.EN, and when a shutdown is complete.
    ready_at: Option<u64>,
    shut_down_at: Option<u64>,
    now: u64,
    page_shift: u32,
    sqs: Vec<SubmissionQueue>,
    /// By queue identifier.
    cqs: Vec<Option<CompletionQueue>>,
    disks: Vec<Disk>,
    features: Features,
    events: Events,
    logs: Logs,
    delayed: Delayed,
    timing: Timing,
    /// The pieces of the transfer at hand; kept so that none is allocated anew.
    spans: Vec<Span>,
    pub(crate) stats: Stats,
    pub(crate) recorder: Recorder,
}

impl Controller {
    pub(crate) fn new(settings: Builder) -> Result<Self, BuildError> {
        let open = |(index, namespace): (usize, &Namespace)| {
            let nsid = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let store = namespace
                .open()
                .map_err(|source| BuildError::Store { nsid, source })?;
            let media = Media::new(store, namespace.block_size, settings.cache_bytes)
                .map_err(|source| BuildError::Media { nsid, source })?;
            Ok(Disk {
                media,
                optimal_boundary: namespace.optimal_boundary,
            })
        };
        let default = [Namespace::ram(1 << 30)];
        let namespaces = match settings.namespaces.as_slice() {
            [] => &default,
            some => some,
        };
        let disks = namespaces
            .iter()
            .enumerate()
            .map(open)
            .collect::<Result<Vec<_>, _>>()?;
        let window = sq_tail_doorbell(settings.queues + 1, settings.dstrd);
        let doorbells = Pages::new(window).map_err(|source| BuildError::Os {
            what: "memory for the doorbells",
            source,
        })?;
        Ok(Self {
            dma: DmaMap::new(settings.iova_ranges.clone(), settings.mapping_quota),
            doorbells: Arc::new(doorbells),
            registers: Arc::new(Registers::new(&settings)),
            running: false,
            silenced: false,
            ready_at: None,
            shut_down_at: None,
            now: 0,
            page_shift: 12,
            sqs: Vec::new(),
            cqs: (0..=settings.queues).map(|_| None).collect(),
            disks,
            features: Features::default(),
            events: Events::default(),
            logs: Logs::default(),
            delayed: Delayed::default(),
            timing: settings.timing,
            spans: Vec::new(),
            stats: Stats::default(),
            recorder: Recorder::new(settings.record),
            settings,
        })
    }

    pub(crate) fn registers(&self) -> Arc<Registers> {
        Arc::clone(&self.registers)
    }

    pub(crate) fn doorbells(&self) -> Arc<Pages> {
        Arc::clone(&self.doorbells)
    }

    /// Bytes of the doorbell window.
    pub(crate) fn doorbells_len(&self) -> usize {
        sq_tail_doorbell(self.settings.queues + 1, self.settings.dstrd)
    }

    pub(crate) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Whether anything waits for time to pass, so that the owner must keep `now` up to date.
    #[inline]
    pub(crate) fn needs_time(&self) -> bool {
        self.timing.is_modelled() || self.next_event().is_some()
    }

    /// When something happens by itself.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<u64> {
        [self.ready_at, self.shut_down_at, self.delayed.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sets the time, and does what was to happen until then, completions of commands aside.
    pub(crate) fn set_now(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.ready_at.is_some_and(|at| at <= self.now) {
            self.ready_at = None;
            self.become_ready();
        }
        if self.shut_down_at.is_some_and(|at| at <= self.now) {
            self.shut_down_at = None;
            self.end_shutdown();
        }
    }

    /// One turn: a burst of each queue, and what is due. Returns how many commands and completions
    /// were handled.
    #[inline]
    pub(crate) fn turn(&mut self) -> usize {
        if !self.running {
            return 0;
        }
        let mut handled = 0;
        let mut index = 0;
        while index < self.sqs.len() {
            handled += self.serve(index);
            index += 1;
        }
        if !self.delayed.is_empty() {
            handled += self.deliver();
        }
        handled
    }

    /// Writes a 32-bit register.
    pub(crate) fn write32(&mut self, offset: usize, value: u32) {
        if self.registers.is_gone() {
            return;
        }
        match offset {
            CC => self.write_cc(value.into()),
            _ if self.registers.cc().en() && offset >= driver::spec::registers::AQA => {}
            _ => self.registers.write_plain(offset, value),
        }
    }

    fn write_cc(&mut self, cc: Cc) {
        let old = self.registers.cc();
        self.registers.set_cc(cc);
        if old.en() && !cc.en() {
            self.reset_level();
        }
        if !old.en() && cc.en() {
            self.enable(cc);
        }
        if cc.shn() != Cc::SHN_NONE && cc.shn() != old.shn() {
            self.begin_shutdown(cc.shn());
        }
    }

    /// CC.EN went from 0 to 1. What cannot work ends in CSTS.CFS instead of CSTS.RDY.
    fn enable(&mut self, cc: Cc) {
        let cap = self.registers.cap();
        let aqa = Aqa::from(self.registers.aqa());
        let pages = (cap.mpsmin()..=cap.mpsmax()).contains(&cc.mps());
        // Admin queues have 2 to 4096 entries; round robin and the NVM command set are all there
        // is.
        let possible = pages && cc.css() == Cc::CSS_NVM && cc.ams() == 0;
        if !possible || aqa.asqs() == 0 || aqa.acqs() == 0 {
            return self.fail();
        }
        self.page_shift = 12 + u32::from(cc.mps());
        let aligned = (self.registers.asq() | self.registers.acq()).trailing_zeros();
        if aligned < self.page_shift {
            return self.fail();
        }
        let dstrd = self.settings.dstrd;
        let words = (
            self.doorbells.word(sq_tail_doorbell(0, dstrd)),
            self.doorbells.word(cq_head_doorbell(0, dstrd)),
        );
        let (Some(tail), Some(head)) = words else {
            return self.fail();
        };
        let mut cq = CompletionQueue::new(self.registers.acq(), aqa.acqs() + 1, head);
        cq.users = 1;
        let sq = SubmissionQueue::new(0, 0, self.registers.asq(), aqa.asqs() + 1, tail);
        if let Some(slot) = self.cqs.first_mut() {
            *slot = Some(cq);
        }
        self.sqs = vec![sq];
        self.stats.enables += 1;
        match u64::try_from(self.settings.ready_delay.as_nanos()) {
            Ok(0) => self.become_ready(),
            delay => self.ready_at = Some(self.now.saturating_add(delay.unwrap_or(u64::MAX))),
        }
    }

    fn become_ready(&mut self) {
        self.registers
            .set_csts(self.registers.csts().with_rdy(true));
        self.settle();
    }

    /// A fatal error: nothing is processed until the controller is reset.
    fn fail(&mut self) {
        self.registers
            .set_csts(self.registers.csts().with_cfs(true));
        self.settle();
    }

    fn settle(&mut self) {
        let csts = self.registers.csts();
        let shut_down = csts.shst() != Csts::SHST_NORMAL;
        self.running = csts.rdy() && !csts.cfs() && !shut_down && !self.silenced;
    }

    /// A Controller Level Reset: queues, outstanding commands and settings are gone; the media, the
    /// logs and the admin queue registers stay.
    fn reset_level(&mut self) {
        for sq in &self.sqs {
            sq.clear_doorbell();
        }
        for cq in self.cqs.iter_mut().filter_map(Option::take) {
            cq.clear_doorbell();
        }
        self.sqs.clear();
        self.delayed.clear();
        self.events.clear();
        if self.features.write_cache() != Features::default().write_cache() {
            // The default is a cache that works; a failing store shows at the next flush.
            _ = self.set_write_cache(true);
        }
        self.features = Features::default();
        (self.ready_at, self.shut_down_at) = (None, None);
        self.registers.set_csts(Csts::new());
        self.settle();
    }

    fn begin_shutdown(&mut self, notification: u8) {
        let csts = self.registers.csts();
        self.registers
            .set_csts(csts.with_shst(Csts::SHST_OCCURRING));
        self.settle();
        self.delayed.expire(self.now);
        self.deliver();
        if notification == Cc::SHN_NORMAL && self.flush_all().is_err() {
            self.fail();
        }
        self.stats.shutdowns += 1;
        match u64::try_from(self.settings.shutdown_delay.as_nanos()) {
            Ok(0) => self.end_shutdown(),
            delay => self.shut_down_at = Some(self.now.saturating_add(delay.unwrap_or(u64::MAX))),
        }
    }

    fn end_shutdown(&mut self) {
        self.registers
            .set_csts(self.registers.csts().with_shst(Csts::SHST_COMPLETE));
    }

    /// A reset of the whole function: registers too are as after power-on.
    pub(crate) fn reset_function(&mut self) {
        self.reset_level();
        self.registers.clear();
    }

    /// Stops all access to memory for good.
    pub(crate) fn silence(&mut self) {
        self.silenced = true;
        self.settle();
    }

    /// The device disappears: registers read as all ones, and nothing is processed any more.
    pub(crate) fn unplug(&mut self) {
        self.reset_function();
        self.registers.set_gone();
        self.silence();
    }

    /// The power goes and comes back: volatile data may be lost, and the function is reset.
    pub(crate) fn power_cut(&mut self, seed: u64) -> Result<CutReport, MediaError> {
        self.reset_function();
        self.stats.power_cuts += 1;
        let mut sum = CutReport::default();
        for (disk, salt) in self.disks.iter_mut().zip(0u64..) {
            let seed = seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let report = disk.media.power_cut(seed)?;
            sum.at_risk += report.at_risk;
            sum.lost += report.lost;
        }
        Ok(sum)
    }

    /// The contents of a namespace, for looking at them behind the controller's back.
    pub(crate) fn media(&mut self, nsid: u32) -> Option<&mut Media> {
        self.disk_mut(nsid).map(|disk| &mut disk.media)
    }

    #[inline(always)]
    fn disk_mut(&mut self, nsid: u32) -> Option<&mut Disk> {
        let index = usize::try_from(nsid.checked_sub(1)?).ok()?;
        self.disks.get_mut(index)
    }

    fn flush_all(&mut self) -> Result<(), MediaError> {
        self.disks
            .iter_mut()
            .try_for_each(|disk| disk.media.flush())
    }

    fn set_write_cache(&mut self, enabled: bool) -> Result<(), MediaError> {
        self.disks
            .iter_mut()
            .try_for_each(|disk| disk.media.set_cache_enabled(enabled))
    }

    /// The largest transfer in bytes.
    #[inline]
    fn max_transfer(&self) -> u64 {
        match self.settings.mdts {
            0 => u64::MAX,
            mdts => {
                let shift = u32::from(mdts) + 12 + u32::from(self.settings.mpsmin);
                1u64.checked_shl(shift).unwrap_or(u64::MAX)
            }
        }
    }

    /// Keeps account of a command that ended with an error.
    #[cold]
    fn note_error(&mut self, qid: u16, sqe: &Sqe, status: Status) {
        self.stats.errors += 1;
        self.logs.push_error(qid, sqe, status);
    }

    /// Builds the completion of a command that has its answer.
    #[inline(always)]
    fn completion(&mut self, qid: u16, sqhd: u16, sqe: &Sqe, answer: Answer) -> Completion {
        let (result, status) = match answer {
            Ok(result) => (result, Status::SUCCESS),
            Err(status) => {
                self.note_error(qid, sqe, status);
                (0, status)
            }
        };
        if self.recorder.is_on() {
            self.recorder.push(qid, sqe, status);
        }
        Completion {
            result,
            sqhd,
            sqid: qid,
            cid: sqe.cid,
            status,
        }
    }
}

/// Whether `offset` is that of a doorbell, and which byte of the window.
pub(crate) fn doorbell_offset(offset: usize) -> Option<usize> {
    offset.checked_sub(DOORBELLS)
}
