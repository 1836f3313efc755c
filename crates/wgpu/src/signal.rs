//! Futures of work on the device.

use crate::failure::Failure;
use kiln_ir::Result;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A value that a callback of the device sets once.
pub(crate) struct Signal<T>(Mutex<State<T>>);

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Signal<T> {
    pub(crate) fn new() -> Arc<Signal<T>> {
        Arc::new(Signal(Mutex::new(State { value: None, waker: None })))
    }

    /// Sets the value and wakes the task that waits for it.
    pub(crate) fn set(&self, value: T) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.value = Some(value);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the value, or keeps the waker for it.
    fn take(&self, waker: &Waker) -> Option<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = state.value.take();
        if value.is_none() {
            state.waker = Some(waker.clone());
        }
        value
    }
}

/// Ends with the value of a signal, which the device sets once a submission is done.
///
/// Outside of browsers, nothing but a call runs wgpu's callbacks: polling blocks until the submission is done.
pub(crate) struct Finished<T> {
    pub(crate) signal: Arc<Signal<T>>,
    pub(crate) device: wgpu::Device,
    pub(crate) submission: wgpu::SubmissionIndex,
    pub(crate) failure: Arc<Failure>,
}

impl<T> Future for Finished<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Some(value) = self.signal.take(context.waker()) {
            return Poll::Ready(Ok(value));
        }
        if let Err(error) = self.failure.check() {
            return Poll::Ready(Err(error));
        }
        if cfg!(target_arch = "wasm32") {
            return Poll::Pending;
        }
        if let Err(error) = wait(&self.device, &self.submission, &self.failure) {
            return Poll::Ready(Err(error));
        }
        match self.signal.take(context.waker()) {
            Some(value) => Poll::Ready(Ok(value)),
            None => {
                // Another thread's wait is about to run the callback.
                std::thread::yield_now();
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// Blocks until a submission is done. In a browser it returns at once.
///
/// # Errors
/// When the device failed.
pub(crate) fn wait(
    device: &wgpu::Device,
    submission: &wgpu::SubmissionIndex,
    failure: &Failure,
) -> Result<()> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let wait = wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout: None };
    // wgpu panics where the wait itself finds that the device is lost.
    match catch_unwind(AssertUnwindSafe(|| device.poll(wait))) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failure.lost(&error.to_string())),
        Err(_) => Err(failure.lost("waiting for queued work failed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_taken_once() {
        let signal = Signal::new();
        assert_eq!(signal.take(Waker::noop()), None);
        signal.set(7);
        assert_eq!(signal.take(Waker::noop()), Some(7));
        assert_eq!(signal.take(Waker::noop()), None);
    }
}
