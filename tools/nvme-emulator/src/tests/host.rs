//! A host as small as can be: rings of its own, in its own memory, one command at a time.

use crate::raw::{Pages, Span};
use crate::{Builder, Emulator};
use driver::spec::command::{create_io_cq, create_io_sq};
use driver::spec::registers::{
    ACQ, AQA, ASQ, CAP, CC, CSTS, Cap, Cc, Csts, DOORBELLS, cq_head_doorbell, sq_tail_doorbell,
};
use driver::spec::{Cqe, Sqe, Status};
use driver::transport::Transport;
use std::num::NonZeroU16;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Where the host's memory is mapped as one piece.
pub(super) const BASE: u64 = 0x10_0000;
/// Where it is mapped page by page, in reverse.
pub(super) const REVERSED: u64 = 0x1_0000_0000;
/// Bytes of the host's memory.
pub(super) const MEMORY: usize = 8 << 20;
const PAGE: usize = 4096;

/// A queue pair as the host sees it.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) entries: u16,
    sq: usize,
    cq: usize,
    pub(super) tail: u16,
    pub(super) head: u16,
    pub(super) phase: bool,
}

pub(super) struct Host {
    pub(super) emu: Emulator,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) dstrd: u8,
    memory: Arc<Pages>,
    used: usize,
    cid: u16,
    /// By queue identifier.
    pub(super) pairs: Vec<Option<Pair>>,
}

impl Host {
    /// A stepped drive, enabled, with admin queues of 32 entries.
    pub(super) fn new(builder: Builder) -> Self {
        let mut host = Self::off(builder.stepped().unwrap());
        host.enable(32);
        host
    }

    /// As `new`, with an I/O queue pair 1 of 16 entries.
    pub(super) fn with_io(builder: Builder) -> Self {
        let mut host = Self::new(builder);
        host.create_pair(1, 16);
        host
    }

    /// A drive as it comes, with the host's memory mapped.
    pub(super) fn off(emu: Emulator) -> Self {
        let transport = emu.transport();
        let memory = Arc::new(Pages::new(MEMORY).unwrap());
        let whole = memory.span(0, MEMORY).unwrap();
        map(&*transport, BASE, whole);
        for page in 0..MEMORY / PAGE {
            let iova = REVERSED + (MEMORY - PAGE - page * PAGE) as u64;
            map(&*transport, iova, whole.slice(page * PAGE, PAGE).unwrap());
        }
        let dstrd = Cap::from(transport.read64(CAP).unwrap()).dstrd();
        Self {
            emu,
            transport,
            dstrd,
            memory,
            used: 0,
            cid: 0x100,
            pairs: vec![None; 100],
        }
    }

    pub(super) fn enable(&mut self, entries: u16) {
        self.enable_with(entries, Cc::new().with_iosqes(6).with_iocqes(4));
        assert!(self.csts().rdy() && !self.csts().cfs());
    }

    pub(super) fn enable_with(&mut self, entries: u16, cc: Cc) {
        let pair = self.new_pair(entries);
        let aqa = u32::from(entries - 1) << 16 | u32::from(entries - 1);
        self.transport.write32(AQA, aqa).unwrap();
        self.transport.write64(ASQ, BASE + pair.sq as u64).unwrap();
        self.transport.write64(ACQ, BASE + pair.cq as u64).unwrap();
        self.pairs[0] = Some(pair);
        self.transport.write32(CC, cc.with_en(true).into()).unwrap();
    }

    pub(super) fn csts(&self) -> Csts {
        self.transport.read32(CSTS).unwrap().into()
    }

    fn new_pair(&mut self, entries: u16) -> Pair {
        // Pages of up to 64 KiB: rings are aligned to that.
        let sq = self.alloc_aligned(usize::from(entries) * 64, 1 << 16);
        let cq = self.alloc_aligned(usize::from(entries) * 16, 1 << 16);
        Pair {
            entries,
            sq,
            cq,
            tail: 0,
            head: 0,
            phase: true,
        }
    }

    pub(super) fn create_pair(&mut self, qid: u16, entries: u16) {
        let pair = self.new_pair(entries);
        let entries = NonZeroU16::new(entries).unwrap();
        let (cq, sq) = (BASE + pair.cq as u64, BASE + pair.sq as u64);
        self.admin_ok(create_io_cq(qid, entries, cq));
        self.admin_ok(create_io_sq(qid, entries, sq, qid));
        self.pairs[usize::from(qid)] = Some(pair);
    }

    /// Takes a pair that was created by hand.
    pub(super) fn adopt_pair(&mut self, qid: u16, entries: u16, sq: usize, cq: usize) {
        let pair = Pair {
            entries,
            sq,
            cq,
            tail: 0,
            head: 0,
            phase: true,
        };
        self.pairs[usize::from(qid)] = Some(pair);
    }

    /// Zeroed memory, page-aligned: its offset.
    pub(super) fn alloc(&mut self, len: usize) -> usize {
        self.alloc_aligned(len, PAGE)
    }

    pub(super) fn alloc_aligned(&mut self, len: usize, align: usize) -> usize {
        let at = self.used.next_multiple_of(align);
        self.used = at + len;
        assert!(self.used <= MEMORY, "the host's memory is used up");
        self.span(at, len).fill_zero();
        at
    }

    pub(super) fn span(&self, at: usize, len: usize) -> Span {
        self.memory.span(at as u64, len).unwrap()
    }

    pub(super) fn put(&self, at: usize, bytes: &[u8]) {
        self.span(at, bytes.len()).copy_from(Span::source(bytes));
    }

    pub(super) fn get(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Span::target(&mut bytes).copy_from(self.span(at, len));
        bytes
    }

    /// The PRPs of a buffer in the mapping that is one piece; up to two pages.
    pub(super) fn prps(at: usize, len: usize) -> (u64, u64) {
        let first = BASE + at as u64;
        let next = (first | (PAGE as u64 - 1)) + 1;
        assert!(len <= 2 * PAGE - at % PAGE);
        (first, if at % PAGE + len > PAGE { next } else { 0 })
    }

    pub(super) fn pair(&mut self, qid: u16) -> &mut Pair {
        self.pairs[usize::from(qid)].as_mut().unwrap()
    }

    /// Puts a command into the ring, without telling the device. Returns its identifier.
    pub(super) fn push(&mut self, qid: u16, mut sqe: Sqe) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        sqe.cid = self.cid;
        let pair = self.pair(qid);
        let at = pair.sq + usize::from(pair.tail) * 64;
        pair.tail = (pair.tail + 1) % pair.entries;
        self.put(at, sqe.as_bytes());
        sqe.cid
    }

    pub(super) fn ring(&mut self, qid: u16) {
        let tail = self.pair(qid).tail;
        self.ring_sq(qid, tail.into());
    }

    pub(super) fn ring_sq(&self, qid: u16, value: u32) {
        let offset = DOORBELLS + sq_tail_doorbell(qid, self.dstrd);
        self.transport.write32(offset, value).unwrap();
    }

    pub(super) fn ring_cq(&self, qid: u16, value: u32) {
        let offset = DOORBELLS + cq_head_doorbell(qid, self.dstrd);
        self.transport.write32(offset, value).unwrap();
    }

    /// The next completion, if it is there; the head doorbell is not written.
    pub(super) fn peek(&mut self, qid: u16) -> Option<Cqe> {
        let pair = self.pair(qid).clone();
        let bytes = self.get(pair.cq + usize::from(pair.head) * 16, 16);
        let cqe = Cqe::read_from_bytes(&bytes).unwrap();
        if cqe.phase() != pair.phase {
            return None;
        }
        let pair = self.pair(qid);
        pair.head += 1;
        if pair.head == pair.entries {
            pair.head = 0;
            pair.phase = !pair.phase;
        }
        Some(cqe)
    }

    /// Takes the next completion, if it is there.
    pub(super) fn reap(&mut self, qid: u16) -> Option<Cqe> {
        let cqe = self.peek(qid)?;
        let head = self.pair(qid).head;
        self.ring_cq(qid, head.into());
        Some(cqe)
    }

    /// Executes one command and returns its completion, which must be the only one.
    pub(super) fn run(&mut self, qid: u16, sqe: Sqe) -> Cqe {
        let cid = self.push(qid, sqe);
        self.ring(qid);
        self.emu.step();
        let cqe = self.reap(qid).expect("no completion");
        assert_eq!(
            (cqe.cid, cqe.sqid, cqe.sqhd),
            (cid, qid, self.pair(qid).tail)
        );
        assert!(self.peek(qid).is_none(), "a second completion");
        cqe
    }

    pub(super) fn admin(&mut self, sqe: Sqe) -> Cqe {
        self.run(0, sqe)
    }

    #[track_caller]
    pub(super) fn admin_ok(&mut self, sqe: Sqe) -> u32 {
        let cqe = self.admin(sqe);
        assert_eq!(cqe.status(), Status::SUCCESS, "{sqe:?}");
        cqe.result
    }

    /// Executes an admin command that fails, and asserts on how.
    #[track_caller]
    pub(super) fn admin_fails(&mut self, sqe: Sqe, status: Status) {
        let cqe = self.admin(sqe);
        assert_eq!(cqe.status().code(), status, "{sqe:?}");
    }

    #[track_caller]
    pub(super) fn io_ok(&mut self, sqe: Sqe) {
        assert_eq!(self.run(1, sqe).status(), Status::SUCCESS, "{sqe:?}");
    }

    #[track_caller]
    pub(super) fn io_fails(&mut self, sqe: Sqe, status: Status) {
        assert_eq!(self.run(1, sqe).status().code(), status, "{sqe:?}");
    }

    /// An admin command that returns 4096 bytes.
    pub(super) fn fetch(&mut self, sqe: Sqe) -> Vec<u8> {
        let at = self.alloc(PAGE);
        let (prp1, prp2) = Self::prps(at, PAGE);
        self.admin_ok(sqe.with_prps(prp1, prp2));
        self.get(at, PAGE)
    }
}

pub(super) fn map(transport: &dyn Transport, iova: u64, span: Span) {
    // SAFETY: the tests keep the memory for as long as the drive, and access it through spans
    // alone.
    unsafe { transport.dma().map(iova, span.pointer(), span.len()) }.unwrap();
}
