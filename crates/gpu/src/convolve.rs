//! Convolutions by the vendor's library (cuDNN); forms that it lacks are expanded into simpler ops. Without a library,
//! all forms run by block kernels.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::contraction::sum_dtype;
use crate::block::convolution::parts;
use crate::driver::{Arguments, Convolution, Convolve, Driver, Pass};
use crate::native::{Native, length};
use crate::pad_channels::few_channels;
use crate::view::{tensor, view};
use kiln_ir::{
    Axes, ConvPass, ConvSpec, DType, Error, Layout, Op, Operand, Operands, PadAxis, Result, Scalar, Shape,
    SliceAxis, TensorType, Value, Values, Var,
};
use smallvec::smallvec;
use std::sync::Arc;

const TRANSPOSE: &str = include_str!("native/transpose.cu");

/// The tile size of the channel transposition kernel: rows and columns.
const TRANSPOSE_TILE: usize = 64;

/// The number of 16-bit elements in 16 bytes, which threads move at once.
pub(crate) const EIGHT: usize = 8;

impl<D: Driver> Gpu<D> {
    /// Whether convolutions run by the vendor's library. Where the library cannot be loaded, they are expanded into
    /// simpler ops, which also run on the device, but many times slower. Devices without libraries have block kernels.
    ///
    /// # Errors
    /// When the library is missing: its name, and the searched places.
    pub fn convolution_library(&self) -> Result<()> {
        match self.driver.library() {
            Some(library) => library.convolutions(),
            None => Err(Error::unsupported(
                &self.driver.info().name,
                "the device has no library for convolutions",
            )),
        }
    }

    /// [`Op::Conv`].
    pub(crate) fn conv(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let Op::Conv { spec, pass } = op else { return self.expanded(op, inputs, results) };
        let axes = spec.stride.len();
        let empty = results[0].num_elements() == 0
            || inputs.iter().any(|operand| operand.value().is_some_and(|x| x.ty().num_elements() == 0));
        if empty || !(1..=3).contains(&axes) {
            return self.expanded(op, inputs, results);
        }
        let Some(library) = self.driver.library() else {
            return self.conv_by_kernel(spec, pass, &inputs, results);
        };
        if library.convolutions().is_err() {
            return self.expanded(op, inputs, results);
        }
        if spec.padding.iter().any(|(low, high)| low != high) {
            return self.conv_padded(spec, pass, inputs, results);
        }
        if let Some(channels) = few_channels(spec, pass, &inputs, results) {
            return self.conv_channels_padded(spec, pass, inputs, results, channels);
        }
        // Tensor cores for 16-bit floats read channels-last tensors; channels-first is the fallback.
        let ways: &[bool] =
            if matches!(results[0].dtype, DType::F16 | DType::BF16) { &[true, false] } else { &[false] };
        for &channels_last in ways {
            let convolution = convolution(spec, pass, &inputs, results, channels_last)?;
            if let Some(workspace) = library.workspace(&convolution)? {
                return self.conv_with(Arc::new(convolution), workspace, &inputs, results);
            }
        }
        if matches!(results[0].dtype, DType::F16 | DType::BF16) {
            return self.conv_in_f32(op, inputs, results);
        }
        self.expanded(op, inputs, results)
    }

    /// Convolves by a block kernel.
    fn conv_by_kernel(
        &self,
        spec: &ConvSpec,
        pass: &ConvPass,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let convolution = convolution(spec, pass, inputs, results, false)?;
        let parts = parts(&convolution, self.driver.info().multiprocessors);
        let operand = |place| {
            let (array, ty) = tensor::<D>(inputs, place)?;
            self.contiguous(array, ty.dtype)
        };
        let [right, left] = [operand(0)?, operand(1)?];
        let (dtype, ty) = (convolution.dtype, results[0]);
        let ty = match parts {
            1 => ty,
            _ => TensorType::new([parts, ty.num_elements()], sum_dtype(dtype)),
        };
        let result = self.uninit(&ty)?;
        let arguments = smallvec![left.place(dtype), right.place(dtype), result.place(ty.dtype)];
        self.convolve_by_kernel(&convolution, parts, arguments)?;
        let value = Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(ty);
        if parts == 1 {
            return Ok(smallvec![value]);
        }
        let sum = Var::new(self, value).sum(&[0]).reshape(results[0].shape).cast(results[0].dtype);
        Ok(smallvec![sum.into_value()])
    }

    /// Convolves in `f32` where the library lacks a 16-bit convolution.
    fn conv_in_f32(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let wide = inputs.iter().map(|operand| Ok(self.cast(operand, DType::F32)?.into()));
        let wide = wide.collect::<Result<Operands>>()?;
        drop(inputs);
        let computed = self.conv(op, wide, &[results[0].with_dtype(DType::F32)])?;
        Ok(smallvec![self.cast(&first(computed), results[0].dtype)?])
    }

    fn conv_with(
        &self,
        convolution: Arc<Convolution>,
        workspace: usize,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let size = convolution.dtype.size();
        let [a, b] = [
            self.channels_in_order(inputs, 0, &convolution)?,
            self.channels_in_order(inputs, 1, &convolution)?,
        ];
        let result = self.uninit_channels(&results[0], convolution.channels_last)?;
        let workspace = self.block(workspace)?;
        let tensors = match convolution.pass {
            Pass::Forward => [a.at(size), b.at(size), result.at(size)],
            Pass::Input => [result.at(size), b.at(size), a.at(size)],
            Pass::Weight => [a.at(size), result.at(size), b.at(size)],
        };
        self.convolve(Convolve { convolution, tensors, workspace: workspace.at(0) })?;
        Ok(smallvec![Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(results[0])])
    }

    /// An uninitialized contiguous array, row-major or channels-last (axis 1 innermost).
    pub(crate) fn uninit_channels(&self, ty: &TensorType, last: bool) -> Result<Array<D>> {
        if !last {
            return self.uninit(ty);
        }
        let order = channels_last(ty.shape.rank());
        let shape: Shape = order.iter().map(|axis| ty.shape[axis]).collect();
        let layout = Layout::contiguous(shape).permute(&order.inverse());
        Ok(Array { layout, ..self.uninit(ty)? })
    }

    /// A contiguous operand with its channels in the requested place. It is not copied if it already has that layout.
    fn channels_in_order(
        &self,
        inputs: &Operands,
        place: usize,
        convolution: &Convolution,
    ) -> Result<Array<D>> {
        let (array, ty) = tensor::<D>(inputs, place)?;
        if !convolution.channels_last {
            return self.contiguous_aligned(array, ty.dtype);
        }
        let order = channels_last(ty.shape.rank());
        let channels = array.with_layout(array.layout.permute(&order));
        match self.channels_transposed(array, &channels, ty)? {
            Some(turned) => Ok(turned),
            None => self.contiguous_aligned(&channels, ty.dtype),
        }
    }

    /// Transposes a channels-first operand to channels-last, one matrix per example, by hand-written CUDA; `None` if its
    /// sizes do not allow that, or if such kernels are off.
    fn channels_transposed(
        &self,
        array: &Array<D>,
        channels: &Array<D>,
        ty: &TensorType,
    ) -> Result<Option<Array<D>>> {
        let (rows, columns) = (ty.shape[1], ty.shape[2..].iter().product::<usize>());
        let whole = [rows, columns, array.layout.offset].iter().all(|length| length.is_multiple_of(EIGHT));
        let counted = i32::try_from(rows * columns).is_ok();
        let is_supported = self.has_native() && whole && counted;
        if ty.dtype.size() != 2 || !array.layout.is_contiguous() || columns == 1 || !is_supported {
            return Ok(None);
        }
        let fresh = self.uninit(&ty.with_shape(channels.layout.shape))?;
        let blocks = ty.shape[0] * rows.div_ceil(TRANSPOSE_TILE) * columns.div_ceil(TRANSPOSE_TILE);
        let arguments: Arguments<D::Memory> =
            smallvec![array.place(ty.dtype), fresh.place(ty.dtype), length(rows), length(columns)];
        self.native_blocks(Native::new(TRANSPOSE, "kiln_transpose"), blocks, arguments)?;
        Ok(Some(Array { suspicions: array.suspicions.clone(), ..fresh }))
    }

    /// Where the two sides of an axis have different padding, pads the operand instead of the convolution.
    fn conv_padded(
        &self,
        spec: &ConvSpec,
        pass: &ConvPass,
        mut inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let plain = ConvSpec { padding: vec![(0, 0); spec.padding.len()], ..spec.clone() };
        let widened = |mut shape: Shape| {
            for (axis, (low, high)) in spec.padding.iter().enumerate() {
                shape[axis + 2] += low + high;
            }
            shape
        };
        let op = |pass| Op::Conv { spec: plain.clone(), pass };
        match pass {
            ConvPass::Forward | ConvPass::Weight { .. } => {
                let (_, ty) = tensor::<D>(&inputs, 0)?;
                let ty = ty.with_shape(widened(ty.shape));
                let edges = spec.padding.iter().map(|&(low, high)| PadAxis::new(low, high));
                let pads: Vec<PadAxis> = [PadAxis::default(); 2].into_iter().chain(edges).collect();
                let zero = if ty.dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
                let padded = self.pad(&pads, &smallvec![inputs[0].clone(), Operand::Scalar(zero)], &[ty])?;
                inputs[0] = first(padded);
                self.conv(&op(pass.clone()), inputs, results)
            }
            ConvPass::Input { size } => {
                let ty = results[0].with_shape(widened(results[0].shape));
                let wide = ConvPass::Input { size: ty.shape[2..].to_vec() };
                let computed = self.conv(&op(wide), inputs, &[ty])?;
                let all = results[0].shape[..2].iter().map(|&length| SliceAxis::all(length));
                let inside = size.iter().zip(&spec.padding);
                let inside = inside.map(|(&len, &(low, _))| SliceAxis::range(low..low + len));
                let slices: Vec<SliceAxis> = all.chain(inside).collect();
                view::<D>(&smallvec![first(computed)], None, |layout| layout.slice(&slices))
            }
        }
    }
}

/// The result of an op with one result.
pub(crate) fn first(mut values: Values) -> Operand {
    let value: Value = values.remove(0);
    Operand::Value(value)
}

/// The permutation to channels-last.
pub(crate) fn channels_last(rank: usize) -> Axes {
    Axes::new(&[0].into_iter().chain(2..rank).chain([1]).collect::<Vec<_>>())
}

fn convolution(
    spec: &ConvSpec,
    pass: &ConvPass,
    inputs: &Operands,
    results: &[TensorType],
    channels_last: bool,
) -> Result<Convolution> {
    // Libraries require at least two spatial dimensions.
    let shape = |shape: Shape| -> Shape {
        let one = (shape.rank() == 3).then_some(1);
        shape[..2].iter().copied().chain(one).chain(shape[2..].iter().copied()).collect()
    };
    let list = |numbers: &mut dyn Iterator<Item = usize>, fill: usize| -> Vec<usize> {
        (spec.stride.len() == 1).then_some(fill).into_iter().chain(numbers).collect()
    };
    let given = |place| inputs.get(place).and_then(Operand::value).map(|value: &Value| *value.shape());
    let (Some(a), Some(b)) = (given(0), given(1)) else {
        return Err(Error::unsupported("gpu", "the operands of a convolution must be tensors"));
    };
    let (pass, [x, w, y]) = match pass {
        ConvPass::Forward => (Pass::Forward, [a, b, results[0].shape]),
        ConvPass::Input { .. } => (Pass::Input, [results[0].shape, b, a]),
        ConvPass::Weight { .. } => (Pass::Weight, [a, results[0].shape, b]),
    };
    Ok(Convolution {
        pass,
        dtype: results[0].dtype,
        x: shape(x),
        w: shape(w),
        y: shape(y),
        channels_last,
        stride: list(&mut spec.stride.iter().copied(), 1),
        padding: list(&mut spec.padding.iter().map(|&(low, _)| low), 0),
        dilation: list(&mut spec.dilation.iter().copied(), 1),
        groups: spec.groups,
    })
}
