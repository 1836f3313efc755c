//! Mode *expand*: each op's expansion in the smallest set of ops agrees with the op.

use kiln_suite::cases::Group;
use kiln_suite::engines::{CPU_ONE, FUSED_MANY, REFERENCE};
use kiln_suite::run::expansions;

macro_rules! matrix {
    ($($module:ident: $subject:ident;)*) => {$(
        mod $module {
            use super::*;

            matrix!(@ $subject: nothing Nothing, view View, reduce Reduce, index Index, contraction Contraction,
                composite Composite, edge Edge, loops Loop);
        }
    )*};
    (@ $subject:ident: $($test:ident $group:ident),*) => {$(
        #[test]
        fn $test() {
            expansions(&$subject, Group::$group).finish();
        }
    )*};
}

matrix! {
    reference: REFERENCE;
    cpu_one: CPU_ONE;
    fused: FUSED_MANY;
}
