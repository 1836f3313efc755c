//! The recording queues of all threads.

use crate::lock::Mutex;
use crate::queue::Queue;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;

/// The queues of a layer, one per recording thread. Only the layer's handles and pending values own them. An engine is
/// therefore dropped with its last handle, on whichever threads it was used.
#[derive(Default)]
pub(crate) struct ThreadQueues(Mutex<Vec<Arc<Queue>>>);

/// A thread-local reference to a layer's queue. The queue is removed from the layer when the thread ends.
struct Entry {
    layer: Weak<ThreadQueues>,
    queue: Weak<Queue>,
}

std::thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

impl ThreadQueues {
    /// This thread's queue; `make` creates it on first use.
    pub(crate) fn of_this_thread(self: &Arc<ThreadQueues>, make: impl Fn() -> Arc<Queue>) -> Arc<Queue> {
        let known = ENTRIES.try_with(|entries| {
            let entries = entries.borrow();
            entries.iter().find(|entry| entry.layer.as_ptr() == Arc::as_ptr(self))?.queue.upgrade()
        });
        match known {
            Ok(Some(queue)) => queue,
            Ok(None) => self.add(make()),
            // While the thread ends, its thread-local list is already destroyed.
            Err(_) => make(),
        }
    }

    fn add(self: &Arc<ThreadQueues>, queue: Arc<Queue>) -> Arc<Queue> {
        self.0.lock().push(queue.clone());
        ENTRIES.with_borrow_mut(|entries| {
            entries.retain(|entry| entry.layer.strong_count() > 0);
            entries.push(Entry { layer: Arc::downgrade(self), queue: Arc::downgrade(&queue) });
        });
        queue
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (Some(layer), Some(queue)) = (self.layer.upgrade(), self.queue.upgrade()) else { return };
        layer.0.lock().retain(|other| !Arc::ptr_eq(other, &queue));
        // Readers on other threads run the remaining ops. Engines free this thread's memory after this point.
        queue.drop_unread();
    }
}

impl Drop for ThreadQueues {
    fn drop(&mut self) {
        for queue in core::mem::take(&mut *self.0.lock()) {
            queue.close();
        }
    }
}
