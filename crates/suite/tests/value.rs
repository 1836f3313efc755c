//! Mode *value*: every case, in every layout, on every engine, alone and under automatic differentiation.

use kiln_suite::cases::Group;
use kiln_suite::engines::{CPU_MANY, CPU_ONE, REFERENCE};
use kiln_suite::run::{Stack, values};

macro_rules! matrix {
    ($($module:ident: $subject:ident $stack:ident;)*) => {$(
        mod $module {
            use super::*;

            matrix!(@ $subject $stack: nothing Nothing, unary Unary, binary Binary, view View, reduce Reduce,
                index Index, contraction Contraction, composite Composite, edge Edge);
        }
    )*};
    (@ $subject:ident $stack:ident: $($test:ident $group:ident),*) => {$(
        #[test]
        fn $test() {
            values(&$subject, Stack::$stack, Group::$group).finish();
        }
    )*};
}

matrix! {
    reference: REFERENCE Plain;
    cpu_one: CPU_ONE Plain;
    cpu_many: CPU_MANY Plain;
    reference_autodiff: REFERENCE Autodiff;
    cpu_one_autodiff: CPU_ONE Autodiff;
    cpu_many_autodiff: CPU_MANY Autodiff;
}
