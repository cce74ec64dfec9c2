//! The drive as its owner holds it: running on a thread, or stepped by hand.

use crate::controller::{Controller, Registers};
use crate::media::{CutReport, Media, MediaError};
use crate::raw::{Pages, pin_to_cpu};
use crate::settings::{BuildError, Builder, Timing};
use crate::stats::{CommandRecord, Stats};
use crate::transport::{EmulatorTransport, StepClock};
use driver::clock::{Clock, SystemClock};
use driver::transport::Transport;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A software NVMe drive with one controller. Cloning gives another handle to the same drive.
///
/// The drive lives, and its thread runs, for as long as there is a handle or a transport to it.
#[derive(Clone, Debug)]
pub struct Emulator {
    machine: Arc<Machine>,
    transport: Arc<EmulatorTransport>,
}

/// The device and its thread, which ends when the last handle goes.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the device's thread and everybody else share.
pub(crate) struct Shared {
    device: Mutex<Controller>,
    /// How many others want the device: the thread then lets go of it.
    want: AtomicU32,
    stop: AtomicBool,
    pub(crate) registers: Arc<Registers>,
    pub(crate) doorbells: Arc<Pages>,
    pub(crate) doorbells_len: usize,
    time: Time,
}

#[derive(Debug)]
enum Time {
    Real(SystemClock),
    /// Nanoseconds.
    Stepped(AtomicU64),
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The device is somebody else's at this moment, and long.
        f.debug_struct("Shared")
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn new(settings: Builder, time: Time) -> Result<Self, BuildError> {
        settings.check()?;
        let device = Controller::new(settings)?;
        Ok(Self {
            want: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            registers: device.registers(),
            doorbells: device.doorbells(),
            doorbells_len: device.doorbells_len(),
            device: Mutex::new(device),
            time,
        })
    }

    pub(crate) fn now_nanos(&self) -> u64 {
        match &self.time {
            Time::Real(clock) => u64::try_from(clock.now().as_nanos()).unwrap_or(u64::MAX),
            Time::Stepped(now) => now.load(Ordering::Acquire),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Controller> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the device between two of its turns.
    pub(crate) fn control<R>(&self, action: impl FnOnce(&mut Controller) -> R) -> R {
        let _wanted = Wanted::new(&self.want);
        let mut device = self.lock();
        device.set_now(self.now_nanos());
        action(&mut device)
    }

    /// Lets virtual time pass, and everything happen at its moment.
    pub(crate) fn advance(&self, duration: Duration) -> usize {
        let Time::Stepped(time) = &self.time else {
            return 0;
        };
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.control(|device| {
            let mut now = time.load(Ordering::Acquire);
            let target = now.saturating_add(nanos);
            let mut handled = run(device);
            while now < target {
                let next = device.next_event().filter(|&at| at > now);
                now = next.unwrap_or(target).min(target);
                time.store(now, Ordering::Release);
                device.set_now(now);
                handled += run(device);
            }
            handled
        })
    }
}

/// Keeps the device's thread away from the device, whatever becomes of the one who wants it.
struct Wanted<'a>(&'a AtomicU32);

impl<'a> Wanted<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Turns until there is nothing to do at this moment.
fn run(device: &mut Controller) -> usize {
    let mut handled = 0;
    loop {
        match device.turn() {
            0 => break,
            more => handled += more,
        }
    }
    device.inspect_doorbells();
    handled + device.turn()
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has stopped as well.
            _ = thread.join();
        }
    }
}

impl Machine {
    /// Wakes the thread if it naps.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Emulator {
    /// Settings of a new drive, all with defaults.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn start(settings: Builder) -> Result<Self, BuildError> {
        let (cpu, spin) = (settings.cpu, settings.idle_spin);
        let name = settings.thread_name.clone();
        let clock = SystemClock::new();
        let shared = Arc::new(Shared::new(settings, Time::Real(clock.clone()))?);
        let device = Arc::clone(&shared);
        let (started, pinned) = mpsc::channel();
        let body = move || {
            let bound = cpu.map_or(Ok(()), pin_to_cpu);
            let fine = bound.is_ok();
            if started.send(bound).is_ok() && fine {
                work(&device, spin);
            }
        };
        let failed = |what| move |source| BuildError::Os { what, source };
        let thread = thread::Builder::new().name(name).spawn(body);
        let thread = thread.map_err(failed("a thread"))?;
        let machine = Machine {
            shared,
            thread: Some(thread),
        };
        let bound = pinned
            .recv()
            .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        bound.map_err(failed("the processor asked for"))?;
        Ok(Self::with(machine, Arc::new(clock)))
    }

    pub(crate) fn stepped(settings: Builder) -> Result<Self, BuildError> {
        let shared = Arc::new(Shared::new(settings, Time::Stepped(AtomicU64::new(0)))?);
        let clock = Arc::new(StepClock::new(Arc::clone(&shared)));
        Ok(Self::with(
            Machine {
                shared,
                thread: None,
            },
            clock,
        ))
    }

    fn with(machine: Machine, clock: Arc<dyn Clock>) -> Self {
        let machine = Arc::new(machine);
        let transport = Arc::new(EmulatorTransport::new(Arc::clone(&machine), clock));
        Self { machine, transport }
    }

    /// The way to this drive, for a driver. Always the same one.
    #[must_use]
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.transport) as _
    }

    fn control<R>(&self, action: impl FnOnce(&mut Controller) -> R) -> R {
        self.machine.shared.control(action)
    }

    /// Stepped drives: does what there is to do without letting time pass. Returns how many
    /// commands were fetched and late completions posted.
    pub fn step(&self) -> usize {
        self.control(run)
    }

    /// Stepped drives: lets `duration` pass, and everything happen at its moment.
    pub fn advance(&self, duration: Duration) -> usize {
        self.machine.shared.advance(duration)
    }

    /// Takes the power away and gives it back: the controller is as after power-on, and volatile
    /// contents survive or not as `seed` decides, block by block.
    ///
    /// # Errors
    /// [`MediaError::Io`] if a file behind a namespace fails.
    pub fn power_cut(&self, seed: u64) -> Result<CutReport, MediaError> {
        self.control(|device| device.power_cut(seed))
    }

    /// Pulls the drive out: its registers read as all ones, and it touches nothing any more.
    pub fn unplug(&self) {
        self.control(Controller::unplug);
    }

    /// Changes how long the modelled drive takes, for commands fetched from now on.
    pub fn set_timing(&self, timing: Timing) {
        self.control(|device| device.set_timing(timing));
    }

    /// Changes the composite temperature. Beyond its threshold the host is told.
    pub fn set_temperature(&self, kelvin: u16) {
        self.control(|device| device.set_temperature(kelvin));
    }

    /// The counters as they are now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.control(|device| device.stats.clone())
    }

    /// Takes the commands executed since the last call, oldest first, as far as
    /// [`Builder::record_commands`] kept them.
    #[must_use]
    pub fn commands(&self) -> Vec<CommandRecord> {
        self.control(|device| device.recorder.take())
    }

    /// Looks at (or changes) the contents of a namespace behind the controller's back. The drive
    /// stands still meanwhile: `action` must not use this handle or wait for the drive. `None`:
    /// there is no such namespace.
    pub fn with_media<R>(&self, nsid: u32, action: impl FnOnce(&mut Media) -> R) -> Option<R> {
        self.control(|device| device.media(nsid).map(action))
    }
}

/// Turns without work before the thread begins to look at the clock and to yield.
const BUSY_TURNS: u32 = 4_000;
/// Idle turns between looks at all doorbells.
const INSPECT_TURNS: u32 = 1 << 14;
/// The shortest and the longest nap of an idle drive.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);

/// The life of the device's thread.
fn work(shared: &Shared, idle_spin: Duration) {
    let mut nap = NAP_MIN;
    while !shared.stop.load(Ordering::Acquire) {
        if shared.want.load(Ordering::Acquire) != 0 {
            thread::yield_now();
            continue;
        }
        let mut device = shared.lock();
        if spin(shared, &mut device, idle_spin, &mut nap) {
            continue;
        }
        device.inspect_doorbells();
        let due = device
            .next_event()
            .map(|at| at.saturating_sub(shared.now_nanos()));
        drop(device);
        thread::park_timeout(due.map_or(nap, |due| nap.min(Duration::from_nanos(due))));
        nap = (nap * 2).min(NAP_MAX);
    }
}

/// Works until somebody wants the device (`true`) or it has been idle for long (`false`).
fn spin(shared: &Shared, device: &mut Controller, idle: Duration, nap: &mut Duration) -> bool {
    let mut turns = 0u32;
    let mut since = None;
    loop {
        if shared.want.load(Ordering::Relaxed) != 0 || shared.stop.load(Ordering::Relaxed) {
            return true;
        }
        if device.needs_time() {
            device.set_now(shared.now_nanos());
        }
        if device.turn() > 0 {
            (turns, since) = (0, None);
            *nap = NAP_MIN;
            continue;
        }
        turns = turns.wrapping_add(1);
        if turns < BUSY_TURNS {
            continue;
        }
        if since.get_or_insert_with(Instant::now).elapsed() >= idle {
            return false;
        }
        if turns.is_multiple_of(INSPECT_TURNS) {
            device.inspect_doorbells();
        }
        thread::yield_now();
    }
}
