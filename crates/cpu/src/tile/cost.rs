//! What functions cost, for deciding what is worth a thread.

use kiln_ir::{DType, FunctionInfo};

/// What a function costs, in additions.
pub(super) fn function_cost(function: &FunctionInfo, dtype: DType) -> usize {
    let [single, double] = function.additions;
    usize::from(if dtype == DType::F64 { double } else { single })
}
