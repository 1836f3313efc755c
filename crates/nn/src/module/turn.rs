//! A mutex without data: waiting threads sleep where `std` is available, and a panic does not poison it.

#[cfg(feature = "std")]
mod kind {
    pub(super) type Lock = std::sync::Mutex<()>;
    pub(crate) type Entered<'a> = std::sync::MutexGuard<'a, ()>;

    pub(super) fn lock(lock: &Lock) -> Entered<'_> {
        lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(not(feature = "std"))]
mod kind {
    pub(super) type Lock = spin::Mutex<()>;
    pub(crate) type Entered<'a> = spin::MutexGuard<'a, ()>;

    pub(super) fn lock(lock: &Lock) -> Entered<'_> {
        lock.lock()
    }
}

/// A lock that serializes updates.
#[derive(Default)]
pub(crate) struct Turn(kind::Lock);

impl Turn {
    /// Locks and waits if necessary. The lock is held while the result lives.
    pub(crate) fn enter(&self) -> kind::Entered<'_> {
        kind::lock(&self.0)
    }
}

/// Locks both in an order that does not depend on the argument order, so that two threads cannot deadlock.
///
/// # Panics
/// When both are the same lock.
#[track_caller]
pub(crate) fn both<'a>(a: &'a Turn, b: &'a Turn) -> [kind::Entered<'a>; 2] {
    let [x, y] = [a, b].map(|turn| core::ptr::from_ref(turn).addr());
    assert!(x != y, "[running_state] a state cannot be updated together with itself");
    let (first, second) = if x < y { (a, b) } else { (b, a) };
    [first.enter(), second.enter()]
}
