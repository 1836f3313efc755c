//! Locks that a panic leaves usable: what they guard is never left half changed.

#[cfg(feature = "std")]
pub(crate) use threaded::{Mutex, Turn};

#[cfg(not(feature = "std"))]
pub(crate) use alone::{Mutex, Turn};

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

    /// One thread at a time, which may enter again: an op defined outside Kiln may compute with tensors while it runs.
    #[derive(Debug, Default)]
    pub(crate) struct Turn {
        busy: Mutex<()>,
        holder: Mutex<Option<ThreadId>>,
    }

    /// While it lives, it is this thread's turn.
    pub(crate) struct Entered<'a> {
        turn: &'a Turn,
        /// `None` where the thread was in already.
        outer: Option<MutexGuard<'a, ()>>,
    }

    impl Turn {
        /// Waits for the other thread that is in, if there is one.
        pub(crate) fn enter(&self) -> Entered<'_> {
            let here = std::thread::current().id();
            if *self.holder.lock() == Some(here) {
                return Entered { turn: self, outer: None };
            }
            let outer = Some(self.busy.lock());
            *self.holder.lock() = Some(here);
            Entered { turn: self, outer }
        }
    }

    impl Drop for Entered<'_> {
        fn drop(&mut self) {
            if self.outer.is_some() {
                *self.turn.holder.lock() = None;
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

    /// Without threads it is always this one's turn.
    #[derive(Debug, Default)]
    pub(crate) struct Turn;

    /// While it lives, it is this thread's turn.
    pub(crate) struct Entered;

    impl Turn {
        pub(crate) fn enter(&self) -> Entered {
            Entered
        }
    }
}
