//! Dynamic scheduling of tasks.

use crate::threads::Pool;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Calls `body` with ranges of at most `grain` tasks until all are done. Every thread takes the next range when it has
/// finished its last, so that none waits for a slower one.
pub(super) fn share(pool: &Pool, tasks: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    if tasks <= grain || pool.threads() == 1 {
        return if tasks > 0 {
            body(0..tasks)
        };
    }
    let next = AtomicUsize::new(0);
    pool.parallel_for(pool.threads(), 1, |threads| {
        for _ in threads {
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= tasks {
                    break;
                }
                body(start..(start + grain).min(tasks));
            }
        }
    });
}
