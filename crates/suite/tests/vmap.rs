//! Mode *vmap*: batches against one example after the other, with gradients. Batching emits ops and knows no engine, so
//! that one engine besides the reference is enough, eager and fused.

use kiln_suite::cases::Group;
use kiln_suite::engines::{CPU_ONE, FUSED_ONE, REFERENCE};
use kiln_suite::run::batches;

macro_rules! matrix {
    ($($module:ident: $subject:ident;)*) => {$(
        mod $module {
            use super::*;

            matrix!(@ $subject: nothing Nothing, unary Unary, binary Binary, view View, reduce Reduce, index Index,
                contraction Contraction, composite Composite, edge Edge, loops Loop);
        }
    )*};
    (@ $subject:ident: $($test:ident $group:ident),*) => {$(
        #[test]
        fn $test() {
            batches(&$subject, Group::$group).finish();
        }
    )*};
}

matrix! {
    reference: REFERENCE;
    cpu_one: CPU_ONE;
    fused: FUSED_ONE;
}
