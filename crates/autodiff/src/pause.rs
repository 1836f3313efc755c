//! Which layers record on this thread.

use core::cell::RefCell;
use std::vec::Vec;

std::thread_local! {
    /// Open scopes, innermost last: the layer, and whether it records.
    static SCOPES: RefCell<Vec<(usize, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Whether the layer records on this thread.
pub(crate) fn records(layer: usize) -> bool {
    SCOPES.with_borrow(|scopes| {
        scopes.iter().rev().find(|(scope, _)| *scope == layer).is_none_or(|(_, recording)| *recording)
    })
}

/// Runs `body` while the layer does or does not record on this thread.
pub(crate) fn scoped<T>(layer: usize, recording: bool, body: impl FnOnce() -> T) -> T {
    struct Scope;
    impl Drop for Scope {
        fn drop(&mut self) {
            SCOPES.with_borrow_mut(Vec::pop);
        }
    }
    SCOPES.with_borrow_mut(|scopes| scopes.push((layer, recording)));
    let _scope = Scope;
    body()
}
