//! Cost estimates of functions, for deciding whether work is worth a thread.

use kiln_ir::{DType, FunctionInfo};

/// The cost of a function, in additions.
pub(super) fn function_cost(function: &FunctionInfo, dtype: DType) -> usize {
    let [single, double] = function.additions;
    usize::from(if dtype == DType::F64 { double } else { single })
}
