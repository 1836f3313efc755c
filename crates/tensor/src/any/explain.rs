//! Reports of the kernels that produced a tensor.

use crate::AnyTensor;
use alloc::format;
use alloc::string::String;

impl AnyTensor {
    /// Returns a human-readable report of the kernels that produced this tensor, and why each fused region ended. Runs
    /// pending ops.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Cpu, 1>::from_floats([1.0, 2.0], &Default::default());
    /// let y = (x.clone() * 2.0).exp() + x;
    /// assert!(y.explain().contains("one kernel: mul, exp, add"));
    /// ```
    pub fn explain(&self) -> String {
        let text = self.stack.engine().explain(&self.value);
        text.unwrap_or_else(|| format!("{}: {:?} runs ops one by one\n", self.ty(), self.stack))
    }
}
