//! Grid sampling of images and volumes.

use super::coordinates::wide;
use crate::{AnyTensor, Error, Result, Shape};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, Op, SliceAxis, Unary};

/// The interpolation between elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridSampleMode {
    /// Linear along each axis (trilinear in volumes).
    #[default]
    Bilinear,
    /// The nearest element; halfway, the element with the even index.
    Nearest,
    /// Cubic convolution along each axis, with `a = -0.75` ([Keys 1981](https://doi.org/10.1109/TASSP.1981.1163711));
    /// images only.
    Bicubic,
}

/// The padding mode outside the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridPadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The nearest element of the border.
    Border,
    /// Reflection at the border, repeated until inside.
    Reflection,
}

/// Options of [`grid_sample_2d`](crate::Tensor::grid_sample_2d) and [`grid_sample_3d`](crate::Tensor::grid_sample_3d).
/// Default: linear interpolation, zero padding, and `align_corners` false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridSampleOptions {
    /// The interpolation between elements.
    pub mode: GridSampleMode,
    /// The padding mode outside the image.
    pub padding: GridPadding,
    /// Whether -1 and 1 are the centres of the outermost elements; otherwise they are their outer edges. Default: no.
    pub align_corners: bool,
}

impl AnyTensor {
    /// Samples images `[batch, channels, height, width]` at the points of a grid `[batch, height_out, width_out, 2]`.
    /// See [`Tensor::grid_sample_2d`](crate::Tensor::grid_sample_2d).
    ///
    /// # Errors
    /// When images and grid are not of one float dtype and of these shapes, their batch sizes differ, or a spatial
    /// dimension of the images is empty.
    pub fn grid_sample_2d(self, grid: AnyTensor, options: GridSampleOptions) -> Result<AnyTensor> {
        sample("grid_sample_2d", 2, self, grid, options)
    }

    /// Samples volumes `[batch, channels, depth, height, width]` at the points of a grid
    /// `[batch, depth_out, height_out, width_out, 3]`. See [`Tensor::grid_sample_3d`](crate::Tensor::grid_sample_3d).
    ///
    /// # Errors
    /// As [`grid_sample_2d`](AnyTensor::grid_sample_2d), and when the mode is [`Bicubic`](GridSampleMode::Bicubic).
    pub fn grid_sample_3d(self, grid: AnyTensor, options: GridSampleOptions) -> Result<AnyTensor> {
        if options.mode == GridSampleMode::Bicubic {
            let types = [self.ty().into(), grid.ty().into()];
            return Err(Error::type_error("grid_sample_3d", "bicubic sampling is for pictures", &types)
                .hint("sample volumes with `Bilinear` or `Nearest`"));
        }
        sample("grid_sample_3d", 3, self, grid, options)
    }
}

/// One element that contributes along one axis: its index, as a float in range, and its weight.
struct Tap {
    index: AnyTensor,
    weight: Option<AnyTensor>,
}

fn sample(
    op: &str,
    axes: usize,
    x: AnyTensor,
    grid: AnyTensor,
    options: GridSampleOptions,
) -> Result<AnyTensor> {
    check(op, axes, &x, &grid)?;
    let (dtype, shape) = (x.dtype(), *x.shape());
    let (batch, channels) = (shape[0], shape[1]);
    let points: usize = grid.shape()[1..=axes].iter().product();
    let result: Shape = [batch, channels].iter().chain(&grid.shape()[1..=axes]).copied().collect();
    let x = x.cast(wide(dtype))?.reshape([batch, channels, shape[2..].iter().product()])?;
    let grid = grid.cast(wide(dtype))?.reshape([batch, points, axes])?;
    let taps = (0..axes).map(|axis| {
        // The order of coordinates is x first, where x is the position along the last axis.
        let all =
            [SliceAxis::all(batch), SliceAxis::all(points), SliceAxis::range(axes - 1 - axis..axes - axis)];
        let coordinate = grid.clone().slice_axes(all.to_vec())?.reshape([batch, 1, points])?;
        taps(coordinate, shape[2 + axis], options)
    });
    let taps = taps.collect::<Result<Vec<Vec<Tap>>>>()?;
    let mut sum: Option<AnyTensor> = None;
    for combination in 0..taps.iter().map(Vec::len).product() {
        let read = read(&x, &taps, &shape, combination, points)?;
        sum = Some(match sum {
            Some(sum) => sum.binary(Binary::Add, read)?,
            None => read,
        });
    }
    match sum {
        Some(sum) => sum.reshape(result)?.cast(dtype),
        None => Err(Error::type_error(op, "has no axes to sample", &[x.ty().into()])),
    }
}

/// Reads one combination of taps, one per axis: the elements at their indices times their weights.
fn read(
    x: &AnyTensor,
    taps: &[Vec<Tap>],
    shape: &Shape,
    combination: usize,
    points: usize,
) -> Result<AnyTensor> {
    let mut rest = combination;
    let mut index: Option<AnyTensor> = None;
    let mut weight: Option<AnyTensor> = None;
    for (axis, taps) in taps.iter().enumerate() {
        let tap = &taps[rest % taps.len()];
        rest /= taps.len();
        let own = tap.index.clone().cast(x.stack().int_dtype())?;
        index = Some(match index {
            Some(outer) => outer.binary_scalar(Binary::Mul, shape[2 + axis])?.binary(Binary::Add, own)?,
            None => own,
        });
        weight = match (weight, &tap.weight) {
            (Some(outer), Some(own)) => Some(outer.binary_with(Binary::Mul, own)?),
            (Some(outer), None) => Some(outer),
            (None, own) => own.clone(),
        };
    }
    let Some(index) = index else { return Ok(x.clone()) };
    let index = index.expand([shape[0], shape[1], points])?;
    let values = x.clone().apply_with(&Op::Gather { axis: 2 }, [index.into_value().into()])?;
    match weight {
        Some(weight) => values.binary(Binary::Mul, weight),
        None => Ok(values),
    }
}

fn check(op: &str, axes: usize, x: &AnyTensor, grid: &AnyTensor) -> Result<()> {
    let error =
        |problem: alloc::string::String| Error::type_error(op, problem, &[x.ty().into(), grid.ty().into()]);
    x.in_same_domain(op, grid)?;
    if !x.dtype().is_float() || x.dtype() != grid.dtype() {
        return Err(error("needs floats of one dtype".into()));
    }
    let rank = axes + 2;
    if x.rank() != rank || grid.rank() != rank || grid.shape()[rank - 1] != axes {
        return Err(error(format!("needs {rank} axes in both, the last of the grid of length {axes}"))
            .hint("the grid is `[batch, out.., coordinates]`, with coordinates from -1 to 1, x first"));
    }
    if x.shape()[0] != grid.shape()[0] {
        return Err(error("batch sizes differ".into()));
    }
    if x.shape()[2..].contains(&0) {
        return Err(error("the input has no elements to sample".into()));
    }
    Ok(())
}

/// Returns the elements that contribute to a point along an axis of that length.
fn taps(coordinate: AnyTensor, length: usize, options: GridSampleOptions) -> Result<Vec<Tap>> {
    let not_a_number = coordinate.clone().compare(Comparison::Ne, coordinate.clone())?;
    let place = in_elements(not_a_number.if_else_number(-1.0, coordinate)?, length, options.align_corners)?;
    let tap = |index: AnyTensor, weight: Option<AnyTensor>| bounded(index, weight, length, options.padding);
    match options.mode {
        GridSampleMode::Nearest => {
            Ok(Vec::from([tap(padded(place, length, options)?.unary(Unary::Round)?.detach(), None)?]))
        }
        GridSampleMode::Bilinear => {
            let place = padded(place, length, options)?;
            let low = place.clone().unary(Unary::Floor)?.detach();
            let high_weight = place.binary_with(Binary::Sub, &low)?;
            let low_weight = high_weight.clone().scalar_binary(1.0, Binary::Sub)?;
            let high = low.clone().binary_scalar(Binary::Add, 1.0)?;
            Ok(Vec::from([tap(low, Some(low_weight))?, tap(high, Some(high_weight))?]))
        }
        GridSampleMode::Bicubic => {
            let low = place.clone().unary(Unary::Floor)?.detach();
            let fraction = place.binary_with(Binary::Sub, &low)?;
            let weights = cubic_weights(fraction)?;
            let tap = |(step, weight): (usize, AnyTensor)| {
                let index = low.clone().binary_scalar(Binary::Add, step as f64 - 1.0)?;
                tap(padded(index, length, options)?.detach(), Some(weight))
            };
            weights.into_iter().enumerate().map(tap).collect()
        }
    }
}

/// Maps coordinates in -1 to 1 to 0 to `length - 1`, or to -1/2 to `length - 1/2`.
fn in_elements(coordinate: AnyTensor, length: usize, align_corners: bool) -> Result<AnyTensor> {
    let shifted = coordinate.binary_scalar(Binary::Add, 1.0)?;
    match align_corners {
        true => shifted.binary_scalar(Binary::Mul, (length as f64 - 1.0) / 2.0),
        false => shifted
            .binary_scalar(Binary::Mul, length as f64)?
            .binary_scalar(Binary::Sub, 1.0)?
            .binary_scalar(Binary::Mul, 0.5),
    }
}

/// Maps a position outside the image into it, except with zero padding.
fn padded(place: AnyTensor, length: usize, options: GridSampleOptions) -> Result<AnyTensor> {
    let last = length as f64 - 1.0;
    let place = match options.padding {
        GridPadding::Zeros => return Ok(place),
        GridPadding::Border => place,
        GridPadding::Reflection if options.align_corners => reflected(place, 0.0, last)?,
        GridPadding::Reflection => reflected(place, -0.5, last + 0.5)?,
    };
    place.binary_scalar(Binary::Max, 0.0)?.binary_scalar(Binary::Min, last)
}

/// Reflects at both ends of an interval until inside.
fn reflected(place: AnyTensor, low: f64, high: f64) -> Result<AnyTensor> {
    let span = high - low;
    if span == 0.0 {
        return place.binary_scalar(Binary::Mul, 0.0);
    }
    let distance = place.binary_scalar(Binary::Sub, low)?.unary(Unary::Abs)?;
    let rest = distance.clone().binary_scalar(Binary::Rem, span)?;
    let flips = distance.detach().binary_scalar(Binary::Div, span)?.unary(Unary::Floor)?;
    let even = flips.binary_scalar(Binary::Rem, 2.0)?.compare_scalar(Comparison::Eq, 0.0)?;
    let back = rest.clone().scalar_binary(span, Binary::Sub)?;
    even.if_else(rest, back)?.binary_scalar(Binary::Add, low)
}

/// Returns a tap whose index is in range; in the zero padding outside, its weight is 0.
fn bounded(index: AnyTensor, weight: Option<AnyTensor>, length: usize, padding: GridPadding) -> Result<Tap> {
    let last = length as f64 - 1.0;
    let inside = index.clone().binary_scalar(Binary::Max, 0.0)?.binary_scalar(Binary::Min, last)?;
    let weight = match padding {
        GridPadding::Border | GridPadding::Reflection => weight,
        GridPadding::Zeros => {
            let outside = index.clone().compare(Comparison::Ne, inside.clone())?;
            let weight = match weight {
                Some(weight) => weight,
                None => AnyTensor::ones(*index.ty(), index.stack())?,
            };
            Some(outside.if_else_number(0.0, weight)?)
        }
    };
    Ok(Tap { index: inside, weight })
}

/// Returns the weights of the elements one before, at, one and two after the integer part.
fn cubic_weights(fraction: AnyTensor) -> Result<[AnyTensor; 4]> {
    const A: f64 = -0.75;
    // ((c3 t + c2) t + c1) t + c0.
    let polynomial = |t: AnyTensor, [c3, c2, c1, c0]: [f64; 4]| {
        let linear = t.clone().binary_scalar(Binary::Mul, c3)?.binary_scalar(Binary::Add, c2)?;
        let square = linear.binary_with(Binary::Mul, &t)?.binary_scalar(Binary::Add, c1)?;
        square.binary(Binary::Mul, t)?.binary_scalar(Binary::Add, c0)
    };
    let (near, far) = ([A + 2.0, -(A + 3.0), 0.0, 1.0], [A, -5.0 * A, 8.0 * A, -4.0 * A]);
    let after = |distance: f64| fraction.clone().scalar_binary(distance, Binary::Sub);
    Ok([
        polynomial(fraction.clone().binary_scalar(Binary::Add, 1.0)?, far)?,
        polynomial(fraction.clone(), near)?,
        polynomial(after(1.0)?, near)?,
        polynomial(after(2.0)?, far)?,
    ])
}
