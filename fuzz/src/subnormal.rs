//! Programs on engines that flush subnormal numbers to zero, as Vulkan allows.

use crate::trace::{Ownership, trace};
use crate::trial::Trial;
use kiln_ir::TensorData;
use kiln_suite::check::may_flush;
use kiln_suite::engines::cpu;

/// Products and gradients of smaller numbers may be subnormal.
const SMALL: f32 = 1e-30;

/// Whether an input or an intermediate value holds a number near the subnormal ones. A program without such numbers has
/// the same results on an engine that flushes them.
pub(crate) fn has_small_numbers(trial: &Trial) -> bool {
    let trace = trace(&cpu(1), trial, Ownership::Kept);
    trace.slots.iter().flatten().any(holds_small_numbers)
}

fn holds_small_numbers(data: &TensorData) -> bool {
    may_flush(data.dtype()) && data.to_vec::<f32>().iter().any(|x| *x != 0.0 && x.abs() < SMALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_intermediate_values_count() {
        let small = |input: &str| {
            let text = format!(
                "; test run\n; input 0 = {input}\nprogram(%0: f32[1]) {{\n  %1: f32[1] = mul %0, %0\n  return %0\n}}\n"
            );
            has_small_numbers(&Trial::from_filetest(&text).unwrap())
        };
        assert!(small("1e-40"), "an input");
        assert!(small("1e-20"), "a product");
        assert!(!small("0.5") && !small("0.0"));
    }
}
