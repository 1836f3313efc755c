//! The attacks by files: templates, tokenizers, configurations, archives.

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![]
}
