//! The batch size and the randomness of a running function.

use alloc::vec::Vec;
use kiln_ir::LayerId;

/// The behaviour of random ops in a batched function whose key is shared by all examples.
///
/// Modes and names follow [`torch.func.vmap`](https://docs.pytorch.org/docs/stable/generated/torch.func.vmap.html).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Randomness {
    /// Each example gets different numbers: example `i` gets the `i`-th part of one draw for all. They depend on the
    /// batch size.
    #[default]
    Different,
    /// All examples get the same numbers: those that the function draws without batching.
    Same,
    /// Random ops are errors.
    Error,
}

/// A running batched function.
#[derive(Clone)]
pub(crate) struct Scope {
    /// The layer of the batch, and the layers to which values of the batch moved.
    pub(crate) layers: Vec<LayerId>,
    pub(crate) examples: usize,
    pub(crate) randomness: Randomness,
}

/// The innermost running function of a layer.
pub(crate) fn current(layer: LayerId) -> Option<Scope> {
    with(|scopes| scopes.iter().rev().find(|scope| scope.layers.contains(&layer)).cloned())
}

/// Follows a value of the batch from one layer to another.
pub(crate) fn follow(source: LayerId, target: LayerId) {
    with(|scopes| {
        let scope = scopes.iter_mut().rev().find(|scope| scope.layers.contains(&source));
        if let Some(scope) = scope.filter(|scope| !scope.layers.contains(&target)) {
            scope.layers.push(target);
        }
    });
}

/// Runs `body` as the batched function of a layer.
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
