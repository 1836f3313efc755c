//! The parameters that a traversal has visited.

use super::parameter::pass;
use super::{ParamId, Parameter, ParameterRole, Path, Visitor, VisitorMut};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use kiln_ir::FxHasher;
use kiln_tensor::AnyTensor;
use spin::Mutex;

/// The parameters that a traversal has visited, to recognise tied ones. It has no influence on comparisons of paths.
#[derive(Default)]
pub(super) struct Visited(Arc<Mutex<BTreeMap<Key, Seen>>>);

/// The identity of a parameter. Places with equal keys hold one parameter.
///
/// The id alone is not enough: a frozen copy with other values (a target network) has the same one. The tensor is
/// compared below automatic differentiation, so that places that were frozen separately remain tied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    id: ParamId,
    role: u8,
    address: usize,
}

/// A visited parameter.
struct Seen {
    /// The hash of the first place's path.
    place: u64,
    /// The replacement, in a traversal that replaces parameters.
    replacement: Option<(AnyTensor, ParameterRole)>,
}

impl Visited {
    /// The same record, for a path of the same traversal.
    pub(super) fn share(&self) -> Visited {
        Visited(self.0.clone())
    }

    /// Calls a function with the entry of a parameter at an earlier place of this traversal. A parameter whose first
    /// place is this one belongs to an earlier traversal with the same path, whose entries are dropped.
    fn earlier<R>(&self, key: Key, place: u64, f: impl FnOnce(Option<&Seen>) -> R) -> R {
        let mut seen = self.0.lock();
        if seen.get(&key).is_some_and(|earlier| earlier.place == place) {
            seen.clear();
        }
        f(seen.get(&key))
    }

    fn insert(&self, key: Key, seen: Seen) {
        self.0.lock().insert(key, seen);
    }
}

impl Key {
    /// The key of a parameter. `value` is its tensor below automatic differentiation.
    fn new(parameter: &Parameter, value: &AnyTensor) -> Key {
        Key { id: parameter.id, role: parameter.role as u8, address: value.value().address() }
    }
}

/// Shows a parameter to a visitor: as [tied](Visitor::tied) if the traversal has visited it at another place.
pub(super) fn show(parameter: Parameter, path: &Path, visitor: &mut dyn Visitor) {
    let (key, place) = (Key::new(&parameter, &parameter.value.clone().inner()), hash(path));
    if path.visited().earlier(key, place, |earlier| earlier.is_some()) {
        return visitor.tied(path, parameter);
    }
    path.visited().insert(key, Seen { place, replacement: None });
    visitor.parameter(path, parameter);
}

/// Passes a parameter through a visitor, or returns the result of its first place if the traversal has visited one. The
/// value is below automatic differentiation; see [`pass`].
pub(super) fn replace(
    parameter: Parameter,
    path: &Path,
    visitor: &mut dyn VisitorMut,
) -> (AnyTensor, ParameterRole) {
    let (key, place) = (Key::new(&parameter, &parameter.value), hash(path));
    let earlier = path.visited().earlier(key, place, |earlier| earlier?.replacement.clone());
    if let Some(replacement) = earlier {
        visitor.tied(path, parameter.id);
        return replacement;
    }
    // No later place holds a tensor with one owner.
    let is_sole = parameter.value.value().is_unique();
    let replacement = pass(parameter, path, visitor);
    if !is_sole {
        path.visited().insert(key, Seen { place, replacement: Some(replacement.clone()) });
    }
    replacement
}

fn hash(path: &Path) -> u64 {
    let mut hasher = FxHasher::default();
    path.hash(&mut hasher);
    hasher.finish()
}

/// A cloned path is a name. It does not keep the tensors of the traversal.
impl Clone for Visited {
    fn clone(&self) -> Visited {
        Visited::default()
    }
}

impl fmt::Debug for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Visited({})", self.0.lock().len())
    }
}

impl PartialEq for Visited {
    fn eq(&self, _other: &Visited) -> bool {
        true
    }
}

impl Eq for Visited {}

impl PartialOrd for Visited {
    fn partial_cmp(&self, other: &Visited) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Visited {
    fn cmp(&self, _other: &Visited) -> Ordering {
        Ordering::Equal
    }
}

impl Hash for Visited {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}
