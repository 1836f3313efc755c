//! Zero-pads the channels of 16-bit convolutions to eight, the granularity of tensor cores.

use crate::Gpu;
use crate::array::Array;
use crate::convolve::{EIGHT, channels_last, first};
use crate::driver::{Arguments, Driver};
use crate::native::{Native, length};
use crate::view::{tensor, view};
use kiln_ir::{
    ConvPass, ConvSpec, Op, Operand, Operands, Result, Scalar, Shape, SliceAxis, TensorType, Value, Values,
};
use smallvec::smallvec;

const PAD_CHANNELS: &str = include_str!("native/pad_channels.cu");

/// The channel count of a convolution's operand, if padding it makes the convolution faster.
pub(crate) fn few_channels(
    spec: &ConvSpec,
    pass: &ConvPass,
    inputs: &Operands,
    results: &[TensorType],
) -> Option<usize> {
    let shape = |place: usize| inputs.get(place).and_then(Operand::value).map(|value: &Value| *value.shape());
    let x: Shape = match pass {
        ConvPass::Forward | ConvPass::Weight { .. } => shape(0)?,
        ConvPass::Input { .. } => results[0].shape,
    };
    let is_16_bits = results[0].dtype.is_float() && results[0].dtype.size() == 2;
    (is_16_bits && spec.groups == 1 && x[1] < EIGHT).then_some(x[1])
}

impl<D: Driver> Gpu<D> {
    /// A convolution with zero-padded channels; padded channels of gradients are cut off.
    pub(crate) fn conv_channels_padded(
        &self,
        spec: &ConvSpec,
        pass: &ConvPass,
        mut inputs: Operands,
        results: &[TensorType],
        channels: usize,
    ) -> Result<Values> {
        let op = Op::Conv { spec: spec.clone(), pass: pass.clone() };
        let places: &[usize] = match pass {
            ConvPass::Forward => &[0, 1],
            ConvPass::Input { .. } => &[1],
            ConvPass::Weight { .. } => &[0],
        };
        for &place in places {
            let (array, ty) = tensor::<D>(&inputs, place)?;
            let widened = ty.with_shape(ty.shape.with(1, EIGHT));
            let wide = self.pad_channels(array, ty, &widened)?.into_value(widened);
            inputs[place] = Operand::Value(wide);
        }
        if *pass == ConvPass::Forward {
            return self.conv(&op, inputs, results);
        }
        let ty = results[0].with_shape(results[0].shape.with(1, EIGHT));
        let computed = self.conv(&op, inputs, &[ty])?;
        let mut slices: Vec<SliceAxis> = ty.shape.iter().map(|&length| SliceAxis::all(length)).collect();
        slices[1] = SliceAxis::range(0..channels);
        view::<D>(&smallvec![first(computed)], None, |layout| layout.slice(&slices))
    }

    /// Zero-pads the channels of an operand, innermost in memory.
    fn pad_channels(&self, array: &Array<D>, ty: &TensorType, widened: &TensorType) -> Result<Array<D>> {
        if !self.has_native() {
            return self.pad_channels_by_copy(array, ty, widened);
        }
        let innermost = array.layout.permute(&channels_last(ty.shape.rank()));
        let is_innermost = innermost.is_contiguous();
        let array = if is_innermost { array.clone() } else { self.contiguous(array, ty.dtype)? };
        let (channels, space) = (ty.shape[1], ty.shape[2..].iter().product::<usize>());
        let [of_channel, of_place] = if is_innermost { [1, channels] } else { [space, 1] };
        let fresh = self.uninit_channels(widened, true)?;
        let total = ty.shape[0] * space;
        let narrow = widened.num_elements() < 1 << 30;
        let native = Native::new(PAD_CHANNELS, "kiln_pad_channels")
            .name("INDEX", if narrow { "int" } else { "long long" });
        let arguments: Arguments<D::Memory> = smallvec![
            array.place(ty.dtype),
            fresh.place(ty.dtype),
            length(total),
            length(space),
            length(channels),
            length(channels * space),
            length(of_channel),
            length(of_place),
        ];
        self.native(native, total, arguments)?;
        Ok(Array { suspicions: array.suspicions, ..fresh })
    }

    /// The same by generated kernels: zeros, into which the operand is copied.
    fn pad_channels_by_copy(
        &self,
        array: &Array<D>,
        ty: &TensorType,
        widened: &TensorType,
    ) -> Result<Array<D>> {
        let order = channels_last(ty.shape.rank());
        let innermost = array.with_layout(array.layout.permute(&order));
        let shape: Shape = order.iter().map(|axis| widened.shape[axis]).collect();
        let fresh = self.full(&widened.with_shape(shape), Scalar::Int(0))?;
        let inside: Vec<SliceAxis> =
            innermost.layout.shape.iter().map(|&length| SliceAxis::all(length)).collect();
        let target = fresh.with_layout(fresh.layout.slice(&inside));
        self.copy_elements(&innermost, &target, ty.dtype)?;
        let layout = fresh.layout.permute(&order.inverse());
        Ok(Array { layout, suspicions: array.suspicions.clone(), ..fresh })
    }
}
