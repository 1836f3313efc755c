//! Windows of images as columns (im2col), and back (col2im).

use crate::{AnyTensor, Result, TensorType};
use alloc::format;
use kiln_ir::{ConvPass, ConvSpec, Op, PadAxis, Var};

impl AnyTensor {
    /// Extracts the windows of `[batch, channels, height, width]` as columns, `[batch, channels kernel.., windows]`
    /// (im2col); the groups of `spec` are ignored. See [`module::unfold4d`](crate::module::unfold4d).
    ///
    /// # Errors
    /// When the tensor does not have four axes or is `bool`, the spec does not have two entries of each kind, stride,
    /// dilation or kernel is 0, or no window fits.
    #[doc(alias = "unfold")]
    #[doc(alias = "im2col")]
    pub fn unfold4d(self, kernel: [usize; 2], spec: &ConvSpec) -> Result<AnyTensor> {
        let windows = self.window_counts("unfold4d", kernel, spec)?;
        let (batch, channels) = (self.shape()[0], self.shape()[1]);
        let around = |axis: usize| PadAxis::new(spec.padding[axis].0, spec.padding[axis].1);
        let pads = alloc::vec![PadAxis::default(), PadAxis::default(), around(0), around(1)];
        self.pad_axes(pads, 0)?.windows4d(kernel, spec)?.permute([0, 1, 4, 5, 2, 3])?.reshape([
            batch,
            channels.saturating_mul(kernel[0]).saturating_mul(kernel[1]),
            windows[0].saturating_mul(windows[1]),
        ])
    }

    /// Returns all windows, `[batch, channels, windows, windows, kernel, kernel]`.
    fn windows4d(self, [height, width]: [usize; 2], spec: &ConvSpec) -> Result<AnyTensor> {
        let rows = Op::Windows { axis: 2, size: height, step: spec.stride[0], dilation: spec.dilation[0] };
        let columns = Op::Windows { axis: 3, size: width, step: spec.stride[1], dilation: spec.dilation[1] };
        self.apply(&rows)?.apply(&columns)
    }

    /// Sums columns `[batch, channels kernel.., windows]` into `[batch, channels, height, width]` at the positions of
    /// their windows (col2im), the transpose of [`unfold4d`](AnyTensor::unfold4d). See
    /// [`module::fold4d`](crate::module::fold4d).
    ///
    /// # Errors
    /// When the dtype is not a float, the columns are not those of windows of such an image, and as
    /// [`unfold4d`](AnyTensor::unfold4d) of the image.
    #[doc(alias = "fold")]
    pub fn fold4d(self, size: [usize; 2], kernel: [usize; 2], spec: &ConvSpec) -> Result<AnyTensor> {
        const OP: &str = "fold4d";
        self.check_float(OP)?;
        self.check_rank_is(OP, 3, "[batch, channels kernel.., windows]")?;
        let taps = kernel[0].saturating_mul(kernel[1]);
        let (batch, rows) = (self.shape()[0], self.shape()[1]);
        if taps == 0 || !rows.is_multiple_of(taps) {
            let problem = format!("axis 1 does not divide into windows of {} x {}", kernel[0], kernel[1]);
            return Err(self.wrong(OP, problem));
        }
        let channels = rows / taps;
        let image = AnyTensor::zeros(
            TensorType::new([batch, channels, size[0], size[1]], self.dtype()),
            self.stack(),
        )?;
        let windows = image.window_counts(OP, kernel, spec)?;
        if Some(self.shape()[2]) != windows[0].checked_mul(windows[1]) {
            let problem = format!("the input must have {} x {} windows", windows[0], windows[1]);
            return Err(self
                .wrong(OP, problem)
                .hint("their number follows from size, kernel, stride and padding"));
        }
        if channels == 0 || batch == 0 {
            return Ok(image);
        }
        // Each channel is the gradient of a convolution whose kernels select one element each.
        let spec = ConvSpec { groups: channels, ..spec.clone() };
        let columns = self.reshape([batch, rows, windows[0], windows[1]])?;
        let pass = ConvPass::Input { size: size.to_vec() };
        Ok(columns.expression(|y| {
            let grid = |axis| Var::iota(y.engine(), TensorType::new([taps, taps], crate::DType::I32), axis);
            let unit = grid(0).equal(&grid(1)).cast(y.dtype());
            let weight = unit.reshape([1, taps, 1, kernel[0], kernel[1]]);
            let weight = weight.broadcast([channels, taps, 1, kernel[0], kernel[1]]);
            let weight = weight.reshape([rows, 1, kernel[0], kernel[1]]);
            y.apply(Op::Conv { spec, pass }, &[&weight])
        }))
    }

    /// Returns the number of windows along each axis.
    fn window_counts(&self, op: &str, kernel: [usize; 2], spec: &ConvSpec) -> Result<[usize; 2]> {
        self.check_rank_is(op, 4, "[batch, channels, height, width]")?;
        let entries = [spec.stride.len(), spec.padding.len(), spec.dilation.len()];
        if entries != [2; 3] {
            return Err(self.wrong(op, "stride, padding and dilation need 2 entries each"));
        }
        let mut counts = [0; 2];
        for axis in 0..2 {
            let (low, high) = spec.padding[axis];
            let padded = self.shape()[axis + 2].saturating_add(low).saturating_add(high);
            let reach = spec.dilation[axis].saturating_mul(kernel[axis].saturating_sub(1)).saturating_add(1);
            if spec.stride[axis] == 0 || spec.dilation[axis] == 0 || kernel[axis] == 0 || padded < reach {
                let problem = format!("no window of {} fits into axis {}", kernel[axis], axis + 2);
                return Err(self.wrong(op, problem));
            }
            counts[axis] = ((padded - reach) / spec.stride[axis]).saturating_add(1);
        }
        Ok(counts)
    }
}
