//! `no_grad`: which layers record on this thread.

use core::cell::RefCell;
use kiln_ir::LayerId;
use smallvec::SmallVec;
use std::vec::Vec;

std::thread_local! {
    /// Open scopes, innermost last.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

struct Scope {
    /// `None`: all of them.
    layers: Option<SmallVec<[LayerId; 2]>>,
    /// Whether they record.
    recording: bool,
}

impl Scope {
    fn is_of(&self, layer: LayerId) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.contains(&layer))
    }
}

/// Whether the layer records on this thread.
pub(crate) fn records(layer: LayerId) -> bool {
    SCOPES.with_borrow(|scopes| {
        scopes.iter().rev().find(|scope| scope.is_of(layer)).is_none_or(|scope| scope.recording)
    })
}

/// Notes that a value moves from one layer to another: in a scope in which the one records, the other does too from here on, so
/// that a function which moves its argument is differentiated as a whole.
pub(crate) fn follow(source: LayerId, target: LayerId) {
    SCOPES.with_borrow_mut(|scopes| {
        let scope = scopes.iter_mut().rev().find(|scope| scope.is_of(source));
        if let Some(Scope { layers: Some(layers), recording: true }) = scope
            && !layers.contains(&target)
        {
            layers.push(target);
        }
    });
}

/// Runs `body` while no layer of automatic differentiation records on this thread: results have no tape. A
/// transformation that `body` calls, such as a gradient, records for itself all the same.
///
/// ```
/// use kiln_autodiff::{Autodiff, no_grad};
/// use kiln_ir::{Engine, TensorData, Var};
/// use kiln_reference::Reference;
/// use std::sync::Arc;
///
/// let layer = Autodiff::new(Arc::new(Reference::new()), Default::default());
/// let x = layer.require_grad(layer.write(TensorData::from([1.0f32, 2.0])));
/// let square = || Var::new(&layer, &x).square().into_value();
/// assert!(layer.is_tracked(&square()));
/// assert!(!layer.is_tracked(&no_grad(square)));
/// ```
pub fn no_grad<T>(body: impl FnOnce() -> T) -> T {
    scoped(None, false, body)
}

/// Runs `body` while the layer (`None`: every one) does or does not record on this thread.
pub(crate) fn scoped<T>(layer: Option<LayerId>, recording: bool, body: impl FnOnce() -> T) -> T {
    struct ScopeGuard;
    impl Drop for ScopeGuard {
        fn drop(&mut self) {
            SCOPES.with_borrow_mut(Vec::pop);
        }
    }
    let layers = layer.map(|layer| SmallVec::from_iter([layer]));
    SCOPES.with_borrow_mut(|scopes| scopes.push(Scope { layers, recording }));
    let _guard = ScopeGuard;
    body()
}
