//! What made a tensor.

use crate::{AnyTensor, Stack};
use alloc::format;
use alloc::string::String;
use kiln_ir::Value;

impl AnyTensor {
    /// Which kernels made this tensor, and why their regions ended, as text for reading. Runs what waits.
    ///
    /// ```
    /// use kiln_tensor::{Cpu, Tensor};
    ///
    /// let x = Tensor::<Cpu, 1>::from_floats([1.0, 2.0], &Default::default());
    /// let y = (x.clone() * 2.0).exp() + x;
    /// assert!(y.explain().contains("one kernel: mul, exp, add"));
    /// ```
    pub fn explain(&self) -> String {
        explain(self.stack(), self.value())
    }
}

fn explain(stack: &Stack, value: &Value) -> String {
    if let Some(layer) = stack.fusion() {
        return layer.explain(value);
    }
    let inner = match (stack.autodiff(), stack.autocast()) {
        (Some(layer), _) => Some(layer.inner_value(value)),
        (None, Some(layer)) => Some(layer.inner_value(value)),
        (None, None) => None,
    };
    match (inner, stack.below()) {
        (Some(inner), Some(below)) => explain(below, &inner),
        _ => format!("{}: {stack:?} runs ops one by one\n", value.ty()),
    }
}
