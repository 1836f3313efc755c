//! Blocking on a future.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

/// Runs a future to completion on this thread. With `std` the thread sleeps between wake-ups; without, it spins.
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

#[cfg(feature = "std")]
struct Unpark(std::thread::Thread);

#[cfg(feature = "std")]
impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}
