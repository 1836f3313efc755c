//! A mutex around updates of running statistics. A panic of its owner does not poison it.

#[cfg(feature = "std")]
mod kind {
    pub(super) type Mutex = std::sync::Mutex<()>;
    pub(crate) type Guard<'a> = std::sync::MutexGuard<'a, ()>;

    pub(super) fn lock(mutex: &Mutex) -> Guard<'_> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(not(feature = "std"))]
mod kind {
    pub(super) type Mutex = spin::Mutex<()>;
    pub(crate) type Guard<'a> = spin::MutexGuard<'a, ()>;

    pub(super) fn lock(mutex: &Mutex) -> Guard<'_> {
        mutex.lock()
    }
}

/// Serialises updates of one state.
#[derive(Default)]
pub(crate) struct UpdateLock(kind::Mutex);

impl UpdateLock {
    /// Blocks until the lock is free, and holds it until the guard is dropped.
    pub(crate) fn lock(&self) -> kind::Guard<'_> {
        kind::lock(&self.0)
    }
}

/// Locks both, in the order of their addresses, so that two threads cannot deadlock.
///
/// # Panics
/// When both are the same.
#[track_caller]
pub(crate) fn lock_both<'a>(a: &'a UpdateLock, b: &'a UpdateLock) -> [kind::Guard<'a>; 2] {
    let [x, y] = [a, b].map(|lock| core::ptr::from_ref(lock).addr());
    assert!(x != y, "[running_state] a state cannot be updated together with itself");
    let (first, second) = if x < y { (a, b) } else { (b, a) };
    [first.lock(), second.lock()]
}
