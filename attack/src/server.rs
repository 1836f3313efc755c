//! The attacks of clients on a server.

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![]
}
