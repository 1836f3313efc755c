//! Mode *value*: every case, in every layout, on every engine, alone and under automatic differentiation.

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

kiln_suite::group_tests!(|group| finish(values(&MATRIX, group)));
