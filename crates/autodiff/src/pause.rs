//! Which layers record on this thread.

use core::cell::RefCell;
use kiln_ir::LayerId;
use std::vec::Vec;

std::thread_local! {
    /// Open scopes, innermost last: the layer (`None`: all of them), and whether it records.
    static SCOPES: RefCell<Vec<(Option<LayerId>, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Whether the layer records on this thread.
pub(crate) fn records(layer: LayerId) -> bool {
    SCOPES.with_borrow(|scopes| {
        scopes
            .iter()
            .rev()
            .find(|(scope, _)| scope.is_none_or(|scope| scope == layer))
            .is_none_or(|(_, recording)| *recording)
    })
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
