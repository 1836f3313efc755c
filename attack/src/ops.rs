//! The attacks by ops with huge and empty sizes.

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![]
}
