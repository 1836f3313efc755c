//! Taking turns at computing: threads that wait sleep, and a panic leaves the turn to the next.

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

/// One thread at a time.
#[derive(Default)]
pub(crate) struct Turn(kind::Lock);

impl Turn {
    /// Waits for the thread that is in. It is this thread's turn while the result lives.
    pub(crate) fn enter(&self) -> kind::Entered<'_> {
        kind::lock(&self.0)
    }
}

/// Both turns, entered in an order that does not depend on the caller's, so that two threads never wait for each other.
///
/// # Panics
/// When both are the same.
#[track_caller]
pub(crate) fn both<'a>(a: &'a Turn, b: &'a Turn) -> [kind::Entered<'a>; 2] {
    let [x, y] = [a, b].map(|turn| core::ptr::from_ref(turn).addr());
    assert!(x != y, "[running_state] a state cannot be updated together with itself");
    let (first, second) = if x < y { (a, b) } else { (b, a) };
    [first.enter(), second.enter()]
}
