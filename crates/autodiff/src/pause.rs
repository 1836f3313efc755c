//! `no_grad`: the layers that record on this thread; and the checkpointing mode of this thread.

use crate::Checkpointing;
use core::cell::{Cell, RefCell};
use kiln_ir::LayerId;
use smallvec::SmallVec;
use std::vec::Vec;

std::thread_local! {
    /// Open scopes, innermost last.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };

    /// The checkpointing mode of the thread, which replaces that of the layers.
    static CHECKPOINTING: Cell<Option<Checkpointing>> = const { Cell::new(None) };
}

struct Scope {
    /// The layers of the scope; `None` for all.
    layers: Option<SmallVec<[LayerId; 2]>>,
    /// Whether the layers record.
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

/// Follows a value from one layer to another: in a scope in which the source layer records, the target layer records
/// too from here on. A function that moves its argument is then differentiated as a whole.
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

/// Runs `body` with recording disabled for all autodiff layers on this thread: results have no tape. A transformation
/// inside `body`, such as a gradient, still records.
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

/// Runs `body` with recording of the layer (`None`: all layers) enabled or disabled on this thread.
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

/// The checkpointing mode of this thread, if any.
#[inline]
pub(crate) fn checkpointing() -> Option<Checkpointing> {
    CHECKPOINTING.get()
}

/// Runs `body` with an activation checkpointing mode that replaces that of all layers on this thread. Ops that `body`
/// records are recomputed, or not, in any later backward pass.
///
/// ```
/// use kiln_autodiff::{Autodiff, Checkpointing, with_checkpointing};
/// use kiln_ir::{Engine, TensorData, Var, block_on};
/// use kiln_reference::Reference;
/// use std::sync::Arc;
///
/// let layer = Autodiff::new(Arc::new(Reference::new()), Checkpointing::None);
/// let x = layer.require_grad(layer.write(TensorData::from([1.0f32, 2.0])));
/// let loss = with_checkpointing(Checkpointing::Balanced, || Var::new(&layer, &x).square().sum(&[0]).into_value());
/// let gradient = layer.backward(&loss, None)?.get(&x).expect("the loss depends on it");
/// assert_eq!(block_on(layer.inner().read(gradient))?.into_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub fn with_checkpointing<T>(mode: Checkpointing, body: impl FnOnce() -> T) -> T {
    struct Restore(Option<Checkpointing>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CHECKPOINTING.set(self.0);
        }
    }
    let _restore = Restore(CHECKPOINTING.replace(Some(mode)));
    body()
}
