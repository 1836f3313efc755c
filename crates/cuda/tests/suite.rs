//! The suite on the GPU: alone, behind fusion, among neighbours, under automatic differentiation.
//!
//! `cargo test -p kiln-cuda -- --include-ignored` runs it on a machine that has one.

use kiln_cuda::Cuda;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, expanding};
use kiln_suite::engines::{Ignored, Neighbours, Subject};
use kiln_suite::run::{Stack, finish, grads, values};
use std::sync::{Arc, OnceLock};

/// The device that all tests share, with its compiled kernels.
fn device() -> Arc<Cuda> {
    static DEVICE: OnceLock<Arc<Cuda>> = OnceLock::new();
    let open = || Arc::new(kiln_cuda::open(0).unwrap_or_else(|error| panic!("{error}")));
    DEVICE.get_or_init(open).clone()
}

fn fused() -> Arc<dyn Engine> {
    Arc::new(Fusion::with_mode(expanding(device()), Mode::On))
}

const IGNORED: &[Ignored] = &[];

const PLAIN: Subject = Subject { name: "cuda", open: || expanding(device()), ignored: IGNORED };
const FUSED: Subject = Subject { name: "fusion over cuda", open: fused, ignored: IGNORED };
const AMONG: Subject = Subject {
    name: "fusion over cuda, among neighbours",
    open: || Arc::new(Neighbours(fused())),
    ignored: IGNORED,
};

mod value {
    use super::*;

    kiln_suite::group_tests!(
        |group| {
            let matrix = [(PLAIN, Stack::Plain), (FUSED, Stack::Autodiff), (AMONG, Stack::Plain)];
            finish(values(&matrix, group));
        },
        ignored: "needs an NVIDIA GPU",
        nothing Nothing, unary Unary, binary Binary, view View, reduce Reduce, index Index,
        contraction Contraction, composite Composite, edge Edge
    );
}

mod grad {
    use super::*;

    kiln_suite::group_tests!(
        |group| grads(&FUSED, group).finish(),
        ignored: "needs an NVIDIA GPU",
        nothing Nothing, unary Unary, binary Binary, view View, reduce Reduce, index Index,
        contraction Contraction, composite Composite, edge Edge
    );
}

mod modules {
    use super::{FUSED, PLAIN};
    use kiln_suite::methods::{check_gradient, check_value};
    use kiln_suite::modules::{all, check_tied};
    use kiln_suite::run::{Summary, finish};

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn values_and_gradients() {
        let mut summary = Summary::new("modules on cuda".to_owned());
        for row in all() {
            for subject in [PLAIN, FUSED] {
                summary.add(check_value(&subject, &row.method));
                summary.add(check_gradient(&subject, &row.method));
            }
        }
        finish(vec![summary]);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn tied_weights() {
        let mut summary = Summary::new("tied weights on cuda".to_owned());
        [PLAIN, FUSED].iter().for_each(|subject| summary.add(check_tied(subject)));
        finish(vec![summary]);
    }
}

mod methods {
    use super::{FUSED, PLAIN};
    use kiln_suite::methods::{FAMILIES, check_value};
    use kiln_suite::run::{Summary, finish};

    /// Checks the values of every method of a family.
    #[track_caller]
    fn check(family: &str) {
        let rows = FAMILIES.iter().find(|(name, _)| *name == family).map(|(_, rows)| rows());
        let mut summary = Summary::new(format!("methods of {family} on cuda"));
        for method in rows.unwrap_or_else(|| panic!("no family {family}")) {
            [PLAIN, FUSED].iter().for_each(|subject| summary.add(check_value(subject, &method)));
        }
        finish(vec![summary]);
    }

    macro_rules! families {
        ($($family:ident)*) => {
            $(
                #[test]
                #[ignore = "needs an NVIDIA GPU"]
                fn $family() {
                    check(stringify!($family));
                }
            )*
        };
    }

    families!(activation core create einsum elementwise grid index linalg loss module order quantize random reduce);
    families!(signal special stats view);
}
