//! Deformable convolution: each element of a window is read at an offset.

use crate::{AnyTensor, Result, TensorType};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, DType, Var};

/// Options of [`deform_conv2d`](crate::module::deform_conv2d).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeformConvSpec {
    /// The stride: elements from one window to the next. Default: 1.
    pub stride: [usize; 2],
    /// Zeros before and after each spatial dimension. Default: 0.
    pub padding: [usize; 2],
    /// The dilation: distance between adjacent kernel elements. Default: 1.
    pub dilation: [usize; 2],
    /// The number of groups of channels that are convolved separately. Default: 1.
    pub groups: usize,
    /// The number of groups of input channels with separate offsets. Default: 1.
    pub offset_groups: usize,
}

impl Default for DeformConvSpec {
    fn default() -> DeformConvSpec {
        DeformConvSpec { stride: [1; 2], padding: [0; 2], dilation: [1; 2], groups: 1, offset_groups: 1 }
    }
}

/// The lengths that occur.
#[derive(Clone, Copy)]
struct Lengths {
    batch: usize,
    channels: usize,
    input: [usize; 2],
    outputs: usize,
    kernel: [usize; 2],
    result: [usize; 2],
}

impl Lengths {
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn places(&self) -> usize {
        self.result[0] * self.result[1]
    }
}

impl AnyTensor {
    /// Computes a deformable convolution: `self` is `[batch, channels_in, height, width]`, weight
    /// `[channels_out, channels_in / groups, kernel..]`, bias `[channels_out]`. Offsets are
    /// `[batch, offset_groups kernel.. 2, out_height, out_width]`, the mask, if any,
    /// `[batch, offset_groups kernel.., out_height, out_width]`. See
    /// [`module::deform_conv2d`](crate::module::deform_conv2d).
    ///
    /// # Errors
    /// When the operands are not of these shapes and one float dtype, the numbers of groups do not divide the channels,
    /// the stride is 0, the image or the kernel is empty, or the kernel does not fit into the padded image.
    pub fn deform_conv2d(
        self,
        offset: AnyTensor,
        weight: AnyTensor,
        mask: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        spec: &DeformConvSpec,
    ) -> Result<AnyTensor> {
        const OP: &str = "deform_conv2d";
        let lengths = self.deformed(&offset, &weight, mask.as_ref(), spec)?;
        let (groups, taps, places) = (spec.offset_groups, lengths.taps(), lengths.places());
        let Lengths { batch, channels, outputs, .. } = lengths;
        let offset = offset.reshape([batch, groups, taps, 2, places])?;
        let columns = self.expression_with([offset], |x, [offset]| {
            let part = |axis: usize| {
                let slice = kiln_ir::SliceAxis { start: axis, len: 1, step: 1 };
                let moved = offset.slice_axis(3, slice).reshape([batch, groups, taps, places]);
                moved + grid(&x, spec, lengths, axis)
            };
            sampled(&x, [part(0), part(1)], lengths, groups)
        });
        // [batch, offset groups, channels of one, taps, places]
        let columns = match mask {
            Some(mask) => columns.binary(Binary::Mul, mask.reshape([batch, groups, 1, taps, places])?)?,
            None => columns,
        };
        let depth = channels / spec.groups * taps;
        let columns = columns.reshape([batch, spec.groups, depth, places])?;
        let weight = weight.reshape([1, spec.groups, outputs / spec.groups, depth])?;
        let y = weight.matmul(columns)?;
        y.reshape([batch, outputs, lengths.result[0], lengths.result[1]])?.by_channel(OP, Binary::Add, bias)
    }

    fn deformed(
        &self,
        offset: &AnyTensor,
        weight: &AnyTensor,
        mask: Option<&AnyTensor>,
        spec: &DeformConvSpec,
    ) -> Result<Lengths> {
        const OP: &str = "deform_conv2d";
        self.check_float(OP)?;
        self.check_rank_is(OP, 4, "[batch, channels, height, width]")?;
        self.check_alike(OP, weight)?;
        self.check_alike(OP, offset)?;
        weight.check_rank_is(OP, 4, "[channels_out, channels_in / groups, height, width]")?;
        let (batch, channels) = (self.shape()[0], self.shape()[1]);
        let outputs = weight.shape()[0];
        let divide = |groups: usize, count: usize| groups != 0 && count.is_multiple_of(groups);
        let suits = divide(spec.groups, channels) && divide(spec.groups, outputs);
        if !suits || !divide(spec.offset_groups, channels) || weight.shape()[1] != channels / spec.groups {
            let problem = format!(
                "channels, {} groups and {} offset groups do not suit",
                spec.groups, spec.offset_groups
            );
            return Err(self.unlike(OP, problem, weight));
        }
        let (input, kernel) = ([self.shape()[2], self.shape()[3]], [weight.shape()[2], weight.shape()[3]]);
        let mut result = [0; 2];
        for axis in 0..2 {
            let padded = input[axis].saturating_add(spec.padding[axis].saturating_mul(2));
            let reach = spec.dilation[axis].saturating_mul(kernel[axis].saturating_sub(1)).saturating_add(1);
            if kernel[axis] == 0 || spec.stride[axis] == 0 || padded < reach || input[axis] == 0 {
                return Err(self.unlike(
                    OP,
                    format!("the kernel does not fit into axis {}", axis + 2),
                    weight,
                ));
            }
            result[axis] = ((padded - reach) / spec.stride[axis]).saturating_add(1);
        }
        let lengths = Lengths { batch, channels, input, outputs, kernel, result };
        let moved = spec.offset_groups * lengths.taps();
        let wanted = |count: usize| [batch, count, result[0], result[1]];
        if **offset.shape() != wanted(2 * moved) {
            return Err(self.unlike(OP, format!("the offsets must be {:?}", wanted(2 * moved)), offset));
        }
        if let Some(mask) = mask {
            self.check_alike(OP, mask)?;
            if **mask.shape() != wanted(moved) {
                return Err(self.unlike(OP, format!("the mask must be {:?}", wanted(moved)), mask));
            }
        }
        Ok(lengths)
    }
}

/// Returns the position along an axis of each tap of each window without offsets, `[1, 1, taps, places]`.
fn grid<'e>(x: &Var<'e>, spec: &DeformConvSpec, lengths: Lengths, axis: usize) -> Var<'e> {
    let (dtype, engine) = (x.dtype(), x.engine());
    let along = |[rows, columns]: [usize; 2], step: usize| {
        let iota = Var::iota(engine, TensorType::new([rows, columns], dtype), axis);
        (iota * step as f64).reshape([rows * columns])
    };
    let taps = along(lengths.kernel, spec.dilation[axis]).reshape([1, 1, lengths.taps(), 1]);
    let places = along(lengths.result, spec.stride[axis]).reshape([1, 1, 1, lengths.places()]);
    taps + places - x.scalar(spec.padding[axis] as f64)
}

/// Samples the image by bilinear interpolation with zeros around: `[batch, groups, channels of one, taps, places]`.
fn sampled<'e>(x: &Var<'e>, places: [Var<'e>; 2], lengths: Lengths, groups: usize) -> Var<'e> {
    let Lengths { batch, channels, input, .. } = lengths;
    let (depth, count) = (channels / groups, lengths.taps() * lengths.places());
    let image = x.reshape([batch, groups, depth, input[0] * input[1]]);
    let sides: Vec<[Side<'e>; 2]> = places
        .iter()
        .zip(input)
        .map(|(place, length)| both_sides(&place.reshape([batch, groups, 1, count]), length))
        .collect();
    let mut sum: Option<Var<'e>> = None;
    for row in &sides[0] {
        for column in &sides[1] {
            let index = row.index.binary(Binary::Mul, &row.index.scalar(input[1])) + &column.index;
            let index = index.broadcast([batch, groups, depth, count]);
            let corner = image.gather(3, &index) * (&row.weight * &column.weight);
            sum = Some(sum.map_or(corner.clone(), |sum| sum + corner));
        }
    }
    let shape = [batch, groups, depth, lengths.taps(), lengths.places()];
    sum.map_or_else(|| x.clone(), |sum| sum.reshape(shape))
}

/// One of the two elements beside a position, as an integer, and its weight.
struct Side<'e> {
    index: Var<'e>,
    weight: Var<'e>,
}

fn both_sides<'e>(place: &Var<'e>, length: usize) -> [Side<'e>; 2] {
    let end = length as f64;
    // Beyond one element outside all weights are 0; infinity has no fraction.
    let place = place.max(&place.scalar(-1.0)).min(&place.scalar(end));
    let low = place.floor();
    let high = &low + 1.0;
    let part = &place - &low;
    [(low, 1.0 - &part), (high, part)].map(|(index, weight)| {
        let inside = index.scalar(0.0).compare(Comparison::Le, &index).and(&index.less(&index.scalar(end)));
        let index = inside.select(&index, &index.scalar(0.0));
        Side { index: index.cast(DType::I32), weight: inside.select(&weight, &weight.scalar(0.0)) }
    })
}
