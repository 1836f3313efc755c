//! Waiting for futures in synchronous calls.

use crate::{Error, Result};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

/// Waits for the future of a device, as the synchronous form of an asynchronous call. In a browser no thread may wait.
/// There it polls once: the futures of CPU engines are ready at the first poll.
///
/// `what` names the call in the error, and `hint` the asynchronous form.
///
/// ```
/// use kiln_ir::wait_for;
///
/// assert_eq!(wait_for(async { Ok(7) }, "reading a number", "await `number_async`"), Ok(7));
/// ```
///
/// # Errors
/// The error of the future. In a browser, an error that names the asynchronous form, if the future is not ready.
pub fn wait_for<T>(future: impl Future<Output = Result<T>>, what: &str, hint: &str) -> Result<T> {
    try_block_on(future).unwrap_or_else(|| Err(refusal(what, hint)))
}

/// Works like [`block_on`]. In a browser, `None` if the future is not ready at its first poll.
pub fn try_block_on<T>(future: impl Future<Output = T>) -> Option<T> {
    if may_block() {
        return Some(block_on(future));
    }
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Runs a future to completion on this thread. With `std` the thread sleeps between wake-ups; without, it spins.
///
/// In a browser it never returns if the future is not ready at its first poll: see [`wait_for`].
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    #[cfg(feature = "std")]
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    #[cfg(not(feature = "std"))]
    let waker = Waker::noop().clone();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        #[cfg(feature = "std")]
        std::thread::park();
        #[cfg(not(feature = "std"))]
        core::hint::spin_loop();
    }
}

/// Runs `body` as in a browser: [`wait_for`] and [`try_block_on`] do not block this thread. For native tests.
#[cfg(feature = "std")]
#[doc(hidden)]
pub fn without_blocking<T>(body: impl FnOnce() -> T) -> T {
    /// Restores the setting, also after a panic.
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            REFUSES.set(self.0);
        }
    }

    let _restore = Restore(REFUSES.replace(true));
    body()
}

#[cfg(feature = "std")]
std::thread_local! {
    /// Whether waits of this thread are refused though it could wait.
    static REFUSES: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Whether this thread may wait. In a browser, the thread that would wait runs the callbacks of the device.
fn may_block() -> bool {
    #[cfg(feature = "std")]
    if REFUSES.get() {
        return false;
    }
    !cfg!(target_family = "wasm")
}

/// The error of a synchronous call that would have to wait in a browser.
pub(crate) fn refusal(what: &str, hint: &str) -> Error {
    Error::unsupported("browser", alloc::format!("{what} waits for the device, which no thread may do here"))
        .hint(hint)
}

#[cfg(feature = "std")]
struct Unpark(std::thread::Thread);

#[cfg(feature = "std")]
impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_wait_in_a_browser_is_refused_with_the_asynchronous_form() {
        let pending = || core::future::pending::<Result<()>>();
        let error = without_blocking(|| wait_for(pending(), "reading a tensor", "await `into_data_async`"));
        assert_eq!(
            error.unwrap_err().to_string(),
            "[browser] reading a tensor waits for the device, which no thread may do here\n  hint: await `into_data_async`"
        );
        assert_eq!(without_blocking(|| try_block_on(pending())), None);
    }

    #[test]
    fn a_ready_future_needs_no_wait() {
        let ready = || wait_for(async { Ok(7) }, "reading a tensor", "await `into_data_async`");
        assert_eq!(without_blocking(ready), Ok(7));
        assert_eq!(ready(), Ok(7));
        let failed = || wait_for::<u8>(async { Err(Error::device("gpu", "is lost")) }, "", "");
        assert_eq!(without_blocking(failed), failed());
    }
}
