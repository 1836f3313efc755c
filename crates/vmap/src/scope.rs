//! The batch size and the randomness of a running function.

use alloc::vec::Vec;
use kiln_ir::LayerId;

/// The random numbers of ops in a batched function whose key is the same for all examples.
///
/// The choice and its names are those of
/// [`torch.func.vmap`](https://docs.pytorch.org/docs/stable/generated/torch.func.vmap.html).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Randomness {
    /// Each example gets numbers of its own: example `i` the `i`-th part of one draw for all. They depend on how many
    /// examples run at once.
    #[default]
    Different,
    /// All examples get the same numbers: the ones that the function draws without batching.
    Same,
    /// Drawing is an error.
    Error,
}

/// A running function.
#[derive(Clone)]
pub(crate) struct Scope {
    /// The layer whose batch it is, and those to which values of the batch moved.
    pub(crate) layers: Vec<LayerId>,
    pub(crate) examples: usize,
    pub(crate) randomness: Randomness,
}

/// The innermost running function of a layer.
pub(crate) fn current(layer: LayerId) -> Option<Scope> {
    with(|scopes| scopes.iter().rev().find(|scope| scope.layers.contains(&layer)).cloned())
}

/// Notes that a value of the batch moves from one layer to another.
pub(crate) fn follow(source: LayerId, target: LayerId) {
    with(|scopes| {
        let scope = scopes.iter_mut().rev().find(|scope| scope.layers.contains(&source));
        if let Some(scope) = scope.filter(|scope| !scope.layers.contains(&target)) {
            scope.layers.push(target);
        }
    });
}

/// Runs `body` as the function of a layer.
pub(crate) fn within<T>(scope: Scope, body: impl FnOnce() -> T) -> T {
    struct ScopeGuard;
    impl Drop for ScopeGuard {
        fn drop(&mut self) {
            with(Vec::pop);
        }
    }
    with(|scopes| scopes.push(scope));
    let _guard = ScopeGuard;
    body()
}

#[cfg(feature = "std")]
fn with<T>(body: impl FnOnce(&mut Vec<Scope>) -> T) -> T {
    std::thread_local! {
        static SCOPES: core::cell::RefCell<Vec<Scope>> = const { core::cell::RefCell::new(Vec::new()) };
    }
    SCOPES.with_borrow_mut(body)
}

#[cfg(not(feature = "std"))]
fn with<T>(body: impl FnOnce(&mut Vec<Scope>) -> T) -> T {
    static SCOPES: spin::Mutex<Vec<Scope>> = spin::Mutex::new(Vec::new());
    body(&mut SCOPES.lock())
}
