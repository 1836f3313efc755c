//! Multithreading: the thread pool of an engine.

#[cfg(feature = "threads")]
mod team;

use core::ops::Range;

/// A fixed number of threads, or just the caller's.
///
/// Kernels define how the work may be split, and never depend on which thread runs a part: results do not depend on the
/// number of threads.
#[derive(Clone)]
pub(crate) struct Pool {
    threads: usize,
    #[cfg(feature = "threads")]
    team: Option<std::sync::Arc<team::Team>>,
}

impl Pool {
    /// The process-wide pool: `KILN_NUM_THREADS` threads, or as many as the process may run at once.
    pub(crate) fn shared() -> Pool {
        #[cfg(feature = "threads")]
        {
            static SHARED: std::sync::OnceLock<Pool> = std::sync::OnceLock::new();
            SHARED.get_or_init(|| Pool::new(default_threads())).clone()
        }
        #[cfg(not(feature = "threads"))]
        Pool::new(1)
    }

    /// A separate pool with that many threads, including the caller's (always 1 without the feature `threads`).
    ///
    /// # Panics
    /// With 0 threads, or more than [`MAX_THREADS`].
    #[track_caller]
    pub(crate) fn new(threads: usize) -> Pool {
        assert!(
            (1..=MAX_THREADS).contains(&threads),
            "[cpu] an engine cannot have {threads} threads\n  hint: use 1 to {MAX_THREADS}; one per core is best"
        );
        #[cfg(feature = "threads")]
        {
            let team = (threads > 1).then(|| team::Team::new(threads - 1)).flatten();
            // If the system creates no threads, the caller's thread does all the work.
            Pool { threads: if team.is_some() { threads } else { 1 }, team: team.map(std::sync::Arc::new) }
        }
        #[cfg(not(feature = "threads"))]
        {
            Pool { threads: 1 }
        }
    }

    /// The number of threads that share the work.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `body` with parts of `0..n`, each of at least `grain` (except the last), which together cover it once. It
    /// runs in parallel if there are threads and more than `grain`. Otherwise, and if the caller belongs to another
    /// pool, whose threads are busy already, it runs on the caller's thread.
    ///
    /// Choose `grain` so that a part takes about 20 µs: 16,384 additions in cache, for instance.
    #[inline]
    pub(crate) fn parallel_for(&self, n: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
        self.run(n, grain, &body);
    }

    /// As [`parallel_for`](Self::parallel_for), with dynamic dispatch: the code is compiled once for both callers of a
    /// body.
    fn run(&self, n: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        if self.threads > 1 && n > grain {
            self.split(n, grain, body);
        } else if n > 0 {
            body(0..n);
        }
    }

    #[cfg(not(feature = "threads"))]
    fn split(&self, n: usize, _grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        body(0..n);
    }

    #[cfg(feature = "threads")]
    fn split(&self, n: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        let Some(team) = self.team.as_deref() else { return body(0..n) };
        // A few parts per thread balance threads that are interrupted.
        let parts = (n / grain.max(1)).clamp(1, self.threads * 4);
        let part = n.div_ceil(parts);
        team.run(n.div_ceil(part), &|i| body(i * part..((i + 1) * part).min(n)));
    }
}

/// The maximum number of threads of one engine. More than the system supports would abort the process.
pub const MAX_THREADS: usize = 1024;

#[cfg(feature = "threads")]
fn default_threads() -> usize {
    let accepted = alloc::format!("a number of threads from 1 to {MAX_THREADS}");
    let parse = |text: &str| text.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
    let available = || std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    kiln_ir::setting("KILN_NUM_THREADS", &accepted, parse).unwrap_or_else(available)
}
