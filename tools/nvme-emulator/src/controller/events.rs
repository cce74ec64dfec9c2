//! Asynchronous events: requests that the controller holds, and what it has to tell.

use super::Controller;
use crate::queue::Completion;
use driver::spec::log::{AsyncEvent, LogId};
use driver::spec::{Sqe, Status};
use std::collections::VecDeque;

/// AERL: requests that are held at a time, less one.
pub(super) const AERL: u8 = 3;
/// Events that wait for a request; more of them are dropped.
const WAITING: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// Identifiers of the requests held.
    requests: VecDeque<u16>,
    waiting: VecDeque<AsyncEvent>,
    /// A bit for each type that was told and whose log page has not been read since.
    masked: u8,
}

impl Events {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Controller {
    /// Asynchronous Event Request: held until there is something to tell.
    pub(super) fn hold_event_request(&mut self, sqe: &Sqe) -> Result<(), Status> {
        if self.events.requests.len() > usize::from(AERL) {
            return Err(Status::ASYNC_EVENT_LIMIT.with_dnr());
        }
        self.events.requests.push_back(sqe.cid);
        Ok(())
    }

    /// Ends a held request, if `cid` is one.
    pub(super) fn abort_event_request(&mut self, cid: u16) -> bool {
        let Some(at) = self.events.requests.iter().position(|&held| held == cid) else {
            return false;
        };
        self.events.requests.remove(at);
        self.end_request(cid, 0, Status::ABORT_REQUESTED);
        true
    }

    /// Something happened; it is told with the next request that is free.
    pub(super) fn raise(&mut self, event_type: u8, info: u8, log: LogId) {
        let event = AsyncEvent::new()
            .with_event_type(event_type & 7)
            .with_info(info)
            .with_log_page(log.0);
        if !self.events.waiting.contains(&event) && self.events.waiting.len() < WAITING {
            self.events.waiting.push_back(event);
        }
        self.announce();
    }

    /// A log page was read without Retain Asynchronous Event: its type of event may be told again.
    pub(super) fn rearm(&mut self, log: LogId) {
        let event_type = match log {
            LogId::ERROR => AsyncEvent::TYPE_ERROR,
            LogId::SMART => AsyncEvent::TYPE_SMART,
            _ => AsyncEvent::TYPE_NOTICE,
        };
        self.events.masked &= !(1 << event_type);
    }

    /// Tells what there is to tell, as far as there are requests for it.
    pub(super) fn announce(&mut self) {
        let masked = |events: &Events, event: &AsyncEvent| events.masked >> event.event_type() & 1;
        while !self.events.requests.is_empty() {
            let events = &mut self.events;
            let next = events
                .waiting
                .iter()
                .position(|event| masked(events, event) == 0);
            let Some(event) = next.and_then(|at| events.waiting.remove(at)) else {
                return;
            };
            let Some(cid) = events.requests.pop_front() else {
                return;
            };
            events.masked |= 1 << event.event_type();
            self.stats.events += 1;
            self.end_request(cid, event.into(), Status::SUCCESS);
        }
    }

    fn end_request(&mut self, cid: u16, result: u32, status: Status) {
        let sqhd = self.sqs.first().map_or(0, |sq| sq.head);
        self.complete_at(
            self.now,
            0,
            Completion {
                result,
                sqhd,
                sqid: 0,
                cid,
                status,
            },
        );
    }
}
