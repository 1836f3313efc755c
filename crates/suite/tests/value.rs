//! Mode *value*: every case, in every layout, on every engine, alone and under automatic differentiation.

use kiln_suite::cases::Group;
use kiln_suite::engines::{CPU_MANY, CPU_ONE, FUSED_MANY, FUSED_ONE, REFERENCE, Subject};
use kiln_suite::run::{Stack, finish, values};

const MATRIX: [(Subject, Stack); 10] = [
    (REFERENCE, Stack::Plain),
    (REFERENCE, Stack::Autodiff),
    (CPU_ONE, Stack::Plain),
    (CPU_ONE, Stack::Autodiff),
    (CPU_MANY, Stack::Plain),
    (CPU_MANY, Stack::Autodiff),
    (FUSED_ONE, Stack::Plain),
    (FUSED_ONE, Stack::Autodiff),
    (FUSED_MANY, Stack::Plain),
    (FUSED_MANY, Stack::Autodiff),
];

macro_rules! groups {
    ($($test:ident $group:ident,)*) => {$(
        #[test]
        fn $test() {
            finish(values(&MATRIX, Group::$group));
        }
    )*};
}

groups! {
    nothing Nothing,
    unary Unary,
    binary Binary,
    view View,
    reduce Reduce,
    index Index,
    contraction Contraction,
    composite Composite,
    edge Edge,
    loops Loop,
}
