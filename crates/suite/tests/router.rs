//! A part of the suite on a router, whose operands are on one member after the other. `cargo xtask suite --engine router` runs
//! all of it.

use kiln_suite::cases::Group;
use kiln_suite::engines::ROUTER;
use kiln_suite::run::{Stack, expansions, finish, forwards, grads, values};

kiln_suite::group_tests!(
    |group| finish(values(&[(ROUTER, Stack::Plain), (ROUTER, Stack::Autodiff)], group)),
    nothing Nothing, reduce Reduce, contraction Contraction, edge Edge, loops Loop
);

#[test]
fn gradients() {
    grads(&ROUTER, Group::Contraction).finish();
}

#[test]
fn forward_mode() {
    forwards(&ROUTER, Group::Index).finish();
}

#[test]
fn expanded() {
    expansions(&ROUTER, Group::Contraction).finish();
}
