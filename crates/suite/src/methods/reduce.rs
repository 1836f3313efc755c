//! Many to one.

use super::Method;

pub(super) fn rows() -> Vec<Method> {
    Vec::new()
}
