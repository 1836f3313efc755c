//! Mode *grad*: gradients in `f64` against finite differences, second order where smooth.

use kiln_suite::cases::Group;
use kiln_suite::engines::{CPU_MANY, CPU_ONE, FUSED_MANY, FUSED_ONE, REFERENCE};
use kiln_suite::run::grads;

macro_rules! matrix {
    ($($module:ident: $subject:ident;)*) => {$(
        mod $module {
            use super::*;

            matrix!(@ $subject: unary Unary, binary Binary, view View, reduce Reduce, index Index,
                contraction Contraction, composite Composite, edge Edge, loops Loop);
        }
    )*};
    (@ $subject:ident: $($test:ident $group:ident),*) => {$(
        #[test]
        fn $test() {
            grads(&$subject, Group::$group).finish();
        }
    )*};
}

matrix! {
    reference: REFERENCE;
    cpu_one: CPU_ONE;
    cpu_many: CPU_MANY;
    fused_one: FUSED_ONE;
    fused_many: FUSED_MANY;
}
