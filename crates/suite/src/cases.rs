//! The tables of cases: for every op, operands of every supported dtype, on edge shapes.

mod composite;
mod contraction;
mod edge;
mod elementwise;
mod index;
mod loops;
mod nothing;
pub mod poison;
mod reduce;
mod view;

pub use edge::{CubedOp, HostSquare};

use crate::case::Case;
use kiln_ir::DType;

/// A group of the tables; groups are separate tests and run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Ops without tensor operands: full, iota and random.
    Nothing,
    /// Elementwise unary functions.
    Unary,
    /// Elementwise functions of several operands, casts.
    Binary,
    /// Views and copies.
    View,
    /// Reductions, scans and sorting.
    Reduce,
    /// Indexing ops.
    Index,
    /// Matmul, convolution, pooling.
    Contraction,
    /// Named composites.
    Composite,
    /// Collectives, custom and fused ops.
    Edge,
    /// Structured loops.
    Loop,
}

/// Generates a test for each group, from a check of a group:
///
/// * `group_tests!(check)`, for all groups;
/// * `group_tests!(check, ignored: "reason")`;
/// * `group_tests!(check, test_name GroupName, ...)` for these groups, with a reason before them where they are ignored.
#[macro_export]
macro_rules! group_tests {
    (@all $check:expr, $attributes:tt: $($test:ident $group:ident),*) => {
        $crate::group_tests! { @each $check, $attributes: $($test $group),* }

        #[test]
        fn every_group_has_a_test() {
            assert_eq!([$($crate::cases::Group::$group),*], $crate::cases::Group::ALL);
        }
    };
    (@each $check:expr, $attributes:tt: $($test:ident $group:ident),*) => {
        $($crate::group_tests! { @one $check, $attributes: $test $group })*
    };
    (@one $check:expr, ($($attribute:tt)*): $test:ident $group:ident) => {
        #[test]
        $($attribute)*
        fn $test() {
            let check: fn($crate::cases::Group) = $check;
            check($crate::cases::Group::$group);
        }
    };
    (@groups $check:expr, $attributes:tt) => {
        $crate::group_tests! {
            @all $check, $attributes: nothing Nothing, unary Unary, binary Binary, view View, reduce Reduce,
            index Index, contraction Contraction, composite Composite, edge Edge, loops Loop
        }
    };
    ($check:expr) => {
        $crate::group_tests! { @groups $check, () }
    };
    ($check:expr, ignored: $reason:literal) => {
        $crate::group_tests! { @groups $check, (#[ignore = $reason]) }
    };
    ($check:expr, ignored: $reason:literal, $($test:ident $group:ident),*) => {
        $crate::group_tests! { @each $check, (#[ignore = $reason]): $($test $group),* }
    };
    ($check:expr, $($test:ident $group:ident),*) => {
        $crate::group_tests! { @each $check, (): $($test $group),* }
    };
}

impl Group {
    /// Every group.
    pub const ALL: [Group; 10] = [
        Group::Nothing,
        Group::Unary,
        Group::Binary,
        Group::View,
        Group::Reduce,
        Group::Index,
        Group::Contraction,
        Group::Composite,
        Group::Edge,
        Group::Loop,
    ];

    /// Returns the cases of the group.
    pub fn cases(self) -> Vec<Case> {
        match self {
            Group::Nothing => nothing::cases(),
            Group::Unary => elementwise::unary(),
            Group::Binary => elementwise::binary(),
            Group::View => view::cases(),
            Group::Reduce => reduce::cases(),
            Group::Index => index::cases(),
            Group::Contraction => contraction::cases(),
            Group::Composite => composite::cases(),
            Group::Edge => edge::cases(),
            Group::Loop => loops::cases(),
        }
    }
}

/// Returns every case of the suite.
pub fn all() -> Vec<Case> {
    Group::ALL.into_iter().flat_map(Group::cases).collect()
}

/// Edge shapes: rank 0, one element, empty, odd lengths, several axes.
const SHAPES: [&[usize]; 7] = [&[], &[1], &[0], &[2, 0, 3], &[5], &[3, 4], &[2, 3, 4]];

/// Shapes large enough for several threads, with odd remainders for vector loops.
const LARGE: [&[usize]; 2] = [&[65_539], &[257, 259]];

/// One dtype of each size and kind, for ops that only move elements.
const MOVED: [DType; 8] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8, DType::Bool];

/// The float dtypes.
const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];
