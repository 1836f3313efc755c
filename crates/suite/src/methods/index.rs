//! By index and by mask.

use super::Method;

pub(super) fn rows() -> Vec<Method> {
    Vec::new()
}
