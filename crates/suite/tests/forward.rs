//! Mode *forward*: directional derivatives in `f64` against gradients and finite differences, products with Hessians
//! where smooth. Derivatives are programs derived for each op, the same for every engine, so that one engine besides the
//! reference is enough, eager and fused.

use kiln_suite::cases::Group;
use kiln_suite::engines::{CPU_ONE, FUSED_ONE, REFERENCE};
use kiln_suite::run::forwards;

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
            forwards(&$subject, Group::$group).finish();
        }
    )*};
}

matrix! {
    reference: REFERENCE;
    cpu_one: CPU_ONE;
    fused: FUSED_ONE;
}
