//! Convolution, its gradients, and transposed convolution.

use super::check_entries;
use crate::{AnyTensor, Result};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, ConvPass, ConvSpec, Op, PadAxis};

impl AnyTensor {
    /// Computes a convolution over `n` spatial dimensions: `self` is `[batch, channels_in, space..]`, weight
    /// `[channels_out, channels_in / groups, kernel..]`, bias `[channels_out]`. See
    /// [`module::conv2d`](crate::module::conv2d).
    ///
    /// # Errors
    /// When the operands are not of these shapes and one float dtype, `groups` does not divide both numbers of
    /// channels, or the kernel is empty or does not fit into the padded input. When the spec does not have one entry
    /// for each spatial dimension, stride, dilation or `groups` is 0, stride is above 2¹⁶, or padding or dilation above
    /// 2²⁴.
    pub fn conv(self, weight: AnyTensor, bias: Option<AnyTensor>, spec: &ConvSpec) -> Result<AnyTensor> {
        self.in_same_domain("conv", &weight)?;
        let op = Op::Conv { spec: spec.clone(), pass: ConvPass::Forward };
        let y = self.apply_with(&op, [weight.into_value().into()])?;
        y.by_channel("conv", Binary::Add, bias)
    }

    /// Computes a transposed convolution, the gradient of [`conv`](AnyTensor::conv) for its input: `self` is
    /// `[batch, channels_in, space..]`, weight `[channels_in, channels_out / groups, kernel..]`, bias `[channels_out]`.
    /// `output_padding` is added to the end of each spatial dimension of the result. See
    /// [`module::conv_transpose2d`](crate::module::conv_transpose2d).
    ///
    /// # Errors
    /// As [`conv`](AnyTensor::conv), and when `output_padding` does not have one entry for each spatial dimension, or
    /// the padding leaves no elements.
    pub fn conv_transpose(
        self,
        weight: AnyTensor,
        bias: Option<AnyTensor>,
        spec: &ConvSpec,
        output_padding: &[usize],
    ) -> Result<AnyTensor> {
        const OP: &str = "conv_transpose";
        self.check_rank(OP, 3, "[batch, channels, space..]")?;
        let axes = self.rank() - 2;
        check_entries(&self, OP, "`stride`", spec.stride.len(), axes)?;
        check_entries(&self, OP, "`padding`", spec.padding.len(), axes)?;
        check_entries(&self, OP, "`dilation`", spec.dilation.len(), axes)?;
        check_entries(&self, OP, "`output_padding`", output_padding.len(), axes)?;
        if weight.rank() != self.rank() {
            return Err(self.unlike(OP, "the weight has another number of axes", &weight));
        }
        self.transposed(weight, spec.clone(), output_padding.to_vec())?.by_channel(OP, Binary::Add, bias)
    }

    /// Computes the transposed convolution. Output padding first undoes the padding after an axis. The rest of it is
    /// zeros: no element of the input reaches it.
    fn transposed(
        self,
        weight: AnyTensor,
        mut spec: ConvSpec,
        mut output_padding: Vec<usize>,
    ) -> Result<AnyTensor> {
        for ((_, high), output) in spec.padding.iter_mut().zip(&mut output_padding) {
            let back = (*output).min(*high);
            *high -= back;
            *output -= back;
        }
        let size = self.transposed_size(&weight, &spec)?;
        let y = self.conv_input_gradient(weight, &size, &spec)?;
        if output_padding.iter().all(|&zeros| zeros == 0) {
            return Ok(y);
        }
        let zeros = output_padding.iter().map(|&zeros| PadAxis::new(0, zeros));
        y.pad_axes([PadAxis::default(); 2].into_iter().chain(zeros).collect(), 0.0)
    }

    fn transposed_size(&self, weight: &AnyTensor, spec: &ConvSpec) -> Result<Vec<usize>> {
        let lengths = self.shape()[2..].iter().zip(&weight.shape()[2..]).enumerate();
        let size = lengths.map(|(axis, (&length, &kernel))| {
            let (low, high) = spec.padding[axis];
            let reach = spec.dilation[axis].saturating_mul(kernel.saturating_sub(1)).saturating_add(1);
            let grown = length.saturating_sub(1).saturating_mul(spec.stride[axis]).saturating_add(reach);
            grown.checked_sub(low.saturating_add(high)).ok_or_else(|| {
                let problem = format!("padding {low} + {high} along axis {} leaves no elements", axis + 2);
                self.unlike("conv_transpose", problem, weight)
            })
        });
        size.collect()
    }

    /// Computes the gradient of [`conv`](AnyTensor::conv) for its input from the output gradient, `self`; `size` are
    /// the lengths of the spatial dimensions of the input. See
    /// [`module::conv2d_input_gradient`](crate::module::conv2d_input_gradient).
    ///
    /// # Errors
    /// As [`conv`](AnyTensor::conv), and when the convolution of an input of `size` does not return the shape of the
    /// gradient.
    pub fn conv_input_gradient(
        self,
        weight: AnyTensor,
        size: &[usize],
        spec: &ConvSpec,
    ) -> Result<AnyTensor> {
        self.in_same_domain("conv", &weight)?;
        let op = Op::Conv { spec: spec.clone(), pass: ConvPass::Input { size: size.to_vec() } };
        self.apply_with(&op, [weight.into_value().into()])
    }

    /// Computes the gradient of [`conv`](AnyTensor::conv) for its weight from the input, `self`, and the output
    /// gradient; `kernel` are the lengths of the spatial dimensions of the weight. See
    /// [`module::conv2d_weight_gradient`](crate::module::conv2d_weight_gradient).
    ///
    /// # Errors
    /// As [`conv`](AnyTensor::conv), and when the convolution with a kernel of these lengths does not return the shape
    /// of the gradient.
    pub fn conv_weight_gradient(
        self,
        gradient: AnyTensor,
        kernel: &[usize],
        spec: &ConvSpec,
    ) -> Result<AnyTensor> {
        self.in_same_domain("conv", &gradient)?;
        let op = Op::Conv { spec: spec.clone(), pass: ConvPass::Weight { size: kernel.to_vec() } };
        self.apply_with(&op, [gradient.into_value().into()])
    }
}
