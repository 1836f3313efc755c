//! A mutex that ignores poisoning, and a reentrant lock. Neither guards data that a panic could leave inconsistent.

#[cfg(feature = "std")]
pub(crate) use threaded::{Mutex, ReentrantLock};

#[cfg(not(feature = "std"))]
pub(crate) use alone::{Mutex, ReentrantLock};

#[cfg(feature = "std")]
mod threaded {
    use std::sync::{MutexGuard, PoisonError};
    use std::thread::ThreadId;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A lock that its owning thread may take again: a custom op may compute with tensors while it runs.
    #[derive(Debug, Default)]
    pub(crate) struct ReentrantLock {
        busy: Mutex<()>,
        holder: Mutex<Option<ThreadId>>,
    }

    /// Holds the lock until it is dropped.
    pub(crate) struct ReentrantGuard<'a> {
        lock: &'a ReentrantLock,
        /// `None` if the thread already held the lock.
        outer: Option<MutexGuard<'a, ()>>,
    }

    impl ReentrantLock {
        /// Acquires the lock; blocks while another thread holds it.
        pub(crate) fn lock(&self) -> ReentrantGuard<'_> {
            let here = std::thread::current().id();
            if *self.holder.lock() == Some(here) {
                return ReentrantGuard { lock: self, outer: None };
            }
            let outer = Some(self.busy.lock());
            *self.holder.lock() = Some(here);
            ReentrantGuard { lock: self, outer }
        }
    }

    impl Drop for ReentrantGuard<'_> {
        fn drop(&mut self) {
            if self.outer.is_some() {
                *self.lock.holder.lock() = None;
            }
        }
    }
}

#[cfg(not(feature = "std"))]
mod alone {
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(spin::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> spin::MutexGuard<'_, T> {
            self.0.lock()
        }
    }

    /// On targets without threads the lock is always free.
    #[derive(Debug, Default)]
    pub(crate) struct ReentrantLock;

    /// Holds the lock until it is dropped.
    pub(crate) struct ReentrantGuard;

    impl ReentrantLock {
        pub(crate) fn lock(&self) -> ReentrantGuard {
            ReentrantGuard
        }
    }
}
