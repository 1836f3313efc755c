//! Worker threads that help the caller.
//!
//! Kernels of a training step take 10 to 100 µs, and waking a sleeping thread takes about as long. An idle thread
//! therefore spins for a while before it sleeps. The caller never waits for help: it takes parts itself, and workers
//! that arrive in time take the others.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of callers that get help at the same time; others do their work alone.
const JOBS: usize = 8;

/// The time that a thread spins for work, or for the end of its helpers' work, before it sleeps: longer than the pause
/// between two training steps. On a virtual machine an idle processor takes hundreds of microseconds to wake, and a
/// step of many short kernels then takes twice as long; OpenMP's threads spin ten times as long.
const PATIENCE: Duration = Duration::from_millis(1);

/// The worker threads. They end when it is dropped.
pub(super) struct Team {
    shared: Arc<Shared>,
}

struct Shared {
    jobs: [Job; JOBS],
    /// Counts offered jobs.
    opened: AtomicUsize,
    /// Threads that sleep, or are about to.
    sleepers: AtomicUsize,
    /// The time that a thread spins before it sleeps: zero if there are more threads than processors.
    patience: Duration,
    sleeping: Mutex<()>,
    wake: Condvar,
    finished: Condvar,
    closing: AtomicBool,
}

/// The slot of one caller's work.
#[repr(align(128))]
struct Job {
    /// The flags [`TAKEN`], [`OPEN`] and [`AWAITED`], and [`HELPER`] for each thread that works on it.
    state: AtomicUsize,
    /// The remaining parts, from `low` to `high`: `high << 32 | low`.
    left: AtomicU64,
    work: UnsafeCell<Option<Work>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A caller uses the job.
const TAKEN: usize = 1;
/// There is work, and helpers may enter.
const OPEN: usize = 2;
/// The caller sleeps until the last helper leaves.
const AWAITED: usize = 4;
/// The unit of the helper count.
const HELPER: usize = 8;

/// A function of the caller's stack frame, which lives until the job is closed and the last helper has left.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn(usize) + Sync));

// SAFETY: the function may be called from any thread; the pointer is followed only while it is valid.
unsafe impl Send for Work {}

// SAFETY: `work` is written by the one caller that set `TAKEN`, before it sets `OPEN`, and read by helpers that found
// it open.
unsafe impl Sync for Job {}

std::thread_local! {
    /// The team of this thread, by its address; 0 for threads of the program.
    static TEAM: Cell<usize> = const { Cell::new(0) };
}

impl Team {
    /// Starts that many threads, or as many as the system creates; `None` without any.
    pub(super) fn new(helpers: usize) -> Option<Team> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            jobs: [const { Job::new() }; JOBS],
            opened: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            patience: if helpers < processors { PATIENCE } else { Duration::ZERO },
            sleeping: Mutex::new(()),
            wake: Condvar::new(),
            finished: Condvar::new(),
            closing: AtomicBool::new(false),
        });
        let start = |i: usize| {
            if room().is_none() {
                return false;
            }
            let shared = shared.clone();
            let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
            let thread = std::thread::Builder::new().name(alloc::format!("kiln-cpu-{i}"));
            let body = move || {
                // The first allocation of a thread may reserve address space for its later ones.
                drop(core::hint::black_box(Box::new(i)));
                // Fails where nobody waits for it.
                _ = ready.send(());
                shared.serve();
            };
            let is_started = thread.spawn(body).is_ok();
            if is_started && helpers >= processors {
                _ = is_ready.recv();
            }
            is_started
        };
        // The program gets it when all threads have started.
        let for_the_program = room();
        // After a failure there is no memory for another one either.
        let started = (0..helpers).take_while(|&i| start(i)).count();
        drop(for_the_program);
        (started > 0).then_some(Team { shared })
    }

    /// Calls the function with every number below `parts`, each once, on the caller's thread and on idle workers. It
    /// runs on the caller's thread alone if the caller is a thread of another team, or if too many other callers have
    /// work.
    ///
    /// # Panics
    /// When the function panics.
    pub(super) fn run(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        let foreign = TEAM.with(|team| team.get() != 0 && team.get() != Arc::as_ptr(&self.shared).addr());
        let free = || self.shared.jobs.iter().find(|job| job.claim());
        let job = if foreign || parts < 2 || u32::try_from(parts).is_err() { None } else { free() };
        let Some(job) = job else { return (0..parts).for_each(body) };
        let active = ActiveJob::new(&self.shared, job, parts, body);
        while let Some(part) = job.take_first() {
            body(part);
        }
        drop(active);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        drop(self.shared.lock());
        self.shared.wake.notify_all();
    }
}

/// Work that helpers can find. Dropping it waits for helpers that have begun.
struct ActiveJob<'a> {
    shared: &'a Shared,
    job: &'a Job,
}

impl<'a> ActiveJob<'a> {
    /// Of a job that the caller has claimed.
    fn new(
        shared: &'a Shared,
        job: &'a Job,
        parts: usize,
        body: &'a (dyn Fn(usize) + Sync),
    ) -> ActiveJob<'a> {
        let body: *const (dyn Fn(usize) + Sync + 'a) = body;
        // SAFETY: only the lifetime changes. The pointer is not used after the offer is dropped, and until then the
        // function is alive.
        let body: *const (dyn Fn(usize) + Sync) = unsafe { core::mem::transmute(body) };
        // SAFETY: the caller claimed the job, and no helper reads before it is open.
        unsafe { *job.work.get() = Some(Work(body)) };
        job.left.store((parts as u64) << 32, Ordering::Relaxed);
        job.state.store(TAKEN | OPEN, Ordering::Release);
        shared.opened.fetch_add(1, Ordering::SeqCst);
        shared.wake(parts - 1);
        ActiveJob { shared, job }
    }
}

impl Drop for ActiveJob<'_> {
    fn drop(&mut self) {
        let job = self.job;
        // After a panic of the caller's own part, the others are not started.
        job.left.store(0, Ordering::Relaxed);
        let state = job.state.fetch_and(!OPEN, Ordering::AcqRel);
        if state >= HELPER {
            self.shared.wait_for_helpers(job);
        }
        let panic = core::mem::take(&mut *lock(&job.panic));
        job.state.store(0, Ordering::Release);
        if let Some(panic) = panic
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Job {
    const fn new() -> Job {
        Job {
            state: AtomicUsize::new(0),
            left: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
        }
    }

    fn claim(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
            && self.state.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the caller's next part, in ascending order.
    fn take_first(&self) -> Option<usize> {
        self.take(|low, high| (low, low + 1, high))
    }

    /// Takes a helper's next part, in descending order. In consecutive ops each thread thus works on data in its own
    /// cache.
    fn take_last(&self) -> Option<usize> {
        self.take(|low, high| (high - 1, low, high - 1))
    }

    fn take(&self, split: impl Fn(u64, u64) -> (u64, u64, u64)) -> Option<usize> {
        let next = |left: u64| {
            let (low, high) = (left & u64::from(u32::MAX), left >> 32);
            (low < high).then(|| split(low, high))
        };
        let packed = |left| next(left).map(|(_, low, high)| high << 32 | low);
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, packed).ok()?;
        next(before).map(|(part, _, _)| part as usize)
    }

    fn has_work(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.state.load(Ordering::Relaxed) & OPEN != 0 && left & u64::from(u32::MAX) < left >> 32
    }

    /// Enters the job as a helper, if it is still open.
    fn enter(&self) -> Option<Work> {
        let inside = |state: usize| (state & OPEN != 0).then_some(state + HELPER);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, inside).ok()?;
        // SAFETY: an open job has work, which does not change until its helpers have left.
        unsafe { *self.work.get() }
    }
}

impl Shared {
    /// The main loop of a worker thread.
    fn serve(self: Arc<Shared>) {
        TEAM.with(|team| team.set(Arc::as_ptr(&self).addr()));
        while !self.closing.load(Ordering::Relaxed) {
            // Read before looking for jobs: an offer after this is detected below.
            let opened = self.opened.load(Ordering::SeqCst);
            for job in &self.jobs {
                if job.has_work() {
                    self.help(job);
                }
            }
            let is_new =
                || self.opened.load(Ordering::SeqCst) != opened || self.closing.load(Ordering::Relaxed);
            if !spin_until(self.patience, is_new) {
                self.sleep_until(is_new);
            }
        }
    }

    fn help(&self, job: &Job) {
        let Some(Work(body)) = job.enter() else { return };
        // SAFETY: the caller waits for its helpers before it releases the function.
        let body = unsafe { &*body };
        let run = AssertUnwindSafe(|| {
            while let Some(part) = job.take_last() {
                body(part);
            }
        });
        if let Err(panic) = catch_unwind(run) {
            *lock(&job.panic) = Some(panic);
            job.left.store(0, Ordering::Relaxed);
        }
        let before = job.state.fetch_sub(HELPER, Ordering::AcqRel);
        if before & AWAITED != 0 && before < 2 * HELPER {
            drop(self.lock());
            self.finished.notify_all();
        }
    }

    fn sleep_until(&self, is_new: impl Fn() -> bool) {
        let mut sleeping = self.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !is_new() {
            sleeping = self.wake.wait(sleeping).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes up to `most` sleeping threads.
    fn wake(&self, most: usize) {
        // An offer comes before this check, and a thread counts as sleeping before it checks for offers: one of both
        // sees the other.
        let sleepers = self.sleepers.load(Ordering::SeqCst).min(most);
        if sleepers > 0 {
            drop(self.lock());
            (0..sleepers).for_each(|_| self.wake.notify_one());
        }
    }

    /// Waits until the last helper has left a job that is no longer open.
    fn wait_for_helpers(&self, job: &Job) {
        let is_left = || job.state.load(Ordering::Acquire) < HELPER;
        if spin_until(self.patience, is_left) {
            return;
        }
        let mut sleeping = self.lock();
        job.state.fetch_or(AWAITED, Ordering::AcqRel);
        while !is_left() {
            sleeping = self.finished.wait(sleeping).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.sleeping)
    }
}

/// Memory for a thread to start, if there is that much. The system library aborts the process if a new thread finds none
/// for its signal stack, so that many threads start one after the other.
fn room() -> Option<Vec<u8>> {
    /// Enough for the stack of a thread and its first allocations, for which GNU's allocator reserves 128 MiB. It also
    /// maps any allocation above 32 MiB anew; a smaller one may be memory that it kept, which tells nothing about the
    /// address space.
    const ROOM: usize = if cfg!(target_pointer_width = "64") { 160 << 20 } else { 33 << 20 };
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(ROOM).ok()?;
    // The compiler would leave out an allocation without a use.
    core::hint::black_box(room.as_ptr());
    Some(room)
}

/// Spins until the predicate is true or the time is over. The thread does not yield: on a busy machine that costs a
/// whole time slice, whereas a thread that sleeps has priority when it wakes.
fn spin_until(limit: Duration, is_true: impl Fn() -> bool) -> bool {
    const LOOKS: usize = 32;
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_true() {
                return true;
            }
            core::hint::spin_loop();
        }
        if start.elapsed() >= limit {
            return false;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(team: &Team, parts: usize) -> u64 {
        let sum = AtomicU64::new(0);
        team.run(parts, &|i| {
            sum.fetch_add(i as u64 + 1, Ordering::Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn every_task_runs_once() {
        let team = Team::new(3).unwrap();
        for parts in 0..200 {
            let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            team.run(parts, &|i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.into_iter().all(|count| count.into_inner() == 1));
        }
    }

    #[test]
    fn sleeping_workers_are_woken() {
        let team = Team::new(1).unwrap();
        for _ in 0..20 {
            std::thread::sleep(4 * PATIENCE);
            let here = std::thread::current().id();
            let elsewhere = AtomicBool::new(false);
            // A part that waits for the other one: both threads must work on it.
            team.run(2, &|_| {
                if std::thread::current().id() != here {
                    elsewhere.store(true, Ordering::SeqCst);
                }
                while !elsewhere.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn many_threads_share_one_pool() {
        let team = Team::new(2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 * JOBS {
                scope.spawn(|| (0..300).for_each(|i| assert_eq!(sum(&team, i), (i * (i + 1) / 2) as u64)));
            }
        });
    }

    #[test]
    fn tasks_may_run_nested_tasks() {
        let (team, other) = (Team::new(2).unwrap(), Team::new(2).unwrap());
        let total = AtomicU64::new(0);
        team.run(30, &|i| {
            total.fetch_add(sum(&team, i) + sum(&other, i), Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), (0..30).map(|i| i * (i + 1)).sum());
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_stays_usable() {
        let team = Team::new(2).unwrap();
        for bad in 0..16 {
            let run = || team.run(16, &|i| assert_ne!(i, bad, "part {i}"));
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert!(
                panic
                    .downcast_ref::<alloc::string::String>()
                    .unwrap()
                    .contains(&alloc::format!("part {bad}"))
            );
            assert_eq!(sum(&team, 10), 55);
        }
    }

    #[test]
    fn dropping_the_pool_stops_its_threads() {
        let team = Team::new(2).unwrap();
        let shared = Arc::downgrade(&team.shared);
        assert_eq!(sum(&team, 100), 5050);
        drop(team);
        let ends = Instant::now() + Duration::from_secs(20);
        while shared.strong_count() > 0 {
            assert!(Instant::now() < ends, "threads still run");
            std::thread::yield_now();
        }
    }
}
