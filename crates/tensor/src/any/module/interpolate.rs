//! Resizing: one spatial dimension after the other, each element a weighted sum of a few samples along the axis.

use super::super::data::check_table;
use super::check_entries;
use crate::{AnyTensor, Result, Shape, TensorData};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{DType, Op, ResizeMode};

/// The interpolation mode of [`interpolate`](crate::module::interpolate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterpolateMode {
    /// Nearest neighbour: the sample at `floor(i in / out)`, as OpenCV's and PyTorch's `nearest`.
    #[default]
    Nearest,
    /// Nearest neighbour: the sample at `floor((i + 1/2) in / out)`, as Pillow's nearest and PyTorch's `nearest-exact`.
    NearestExact,
    /// Linear along each axis: `linear`, `bilinear`, `trilinear`.
    Linear,
    /// Cubic convolution along each axis, with `a = -0.75`: `bicubic`
    /// ([Keys 1981](https://doi.org/10.1109/TASSP.1981.1163711)).
    Cubic,
    /// The mean of the part that an element covers: `area`, equal to
    /// [`adaptive_avg_pool2d`](crate::module::adaptive_avg_pool2d).
    Area,
}

/// Options of [`interpolate`](crate::module::interpolate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterpolateOptions {
    /// The interpolation mode. Default: nearest.
    pub mode: InterpolateMode,
    /// Whether first and last samples of both grids coincide, otherwise their outer edges do; `Linear` and `Cubic`
    /// only. Default: no.
    pub align_corners: bool,
    /// Whether downsampling averages over all that an element covers, as Pillow does; `Linear` and `Cubic` only, the
    /// latter with `a = -0.5` then. Default: no.
    pub antialias: bool,
}

impl InterpolateOptions {
    /// Returns this mode with the default options.
    pub fn new(mode: InterpolateMode) -> InterpolateOptions {
        InterpolateOptions { mode, ..InterpolateOptions::default() }
    }
}

/// The output size of [`interpolate`](crate::module::interpolate): lengths or scale factors.
#[derive(Clone, Debug, PartialEq)]
pub enum InterpolateSize {
    /// The lengths, one for each spatial dimension.
    Sizes(Vec<usize>),
    /// Scale factors of the lengths, rounded down. The steps between samples are computed from the given factors, not
    /// from the rounded lengths.
    Factors(Vec<f64>),
}

impl<const N: usize> From<[usize; N]> for InterpolateSize {
    fn from(sizes: [usize; N]) -> InterpolateSize {
        InterpolateSize::Sizes(sizes.to_vec())
    }
}

impl<const N: usize> From<[f64; N]> for InterpolateSize {
    fn from(factors: [f64; N]) -> InterpolateSize {
        InterpolateSize::Factors(factors.to_vec())
    }
}

impl From<&[usize]> for InterpolateSize {
    fn from(sizes: &[usize]) -> InterpolateSize {
        InterpolateSize::Sizes(sizes.to_vec())
    }
}

impl From<&[f64]> for InterpolateSize {
    fn from(factors: &[f64]) -> InterpolateSize {
        InterpolateSize::Factors(factors.to_vec())
    }
}

impl AnyTensor {
    /// Resizes the spatial dimensions of `[batch, channels, space..]`. See
    /// [`module::interpolate`](crate::module::interpolate).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than three axes, `size` does not have one positive entry for each
    /// spatial dimension, a length is 0 or needs more than 2²⁸ weights, or `align_corners` or `antialias` is set for a
    /// mode other than `Linear` and `Cubic`.
    pub fn interpolate(
        self,
        size: impl Into<InterpolateSize>,
        options: InterpolateOptions,
    ) -> Result<AnyTensor> {
        self.interpolated(size.into(), options)
    }

    fn interpolated(self, size: InterpolateSize, options: InterpolateOptions) -> Result<AnyTensor> {
        const OP: &str = "interpolate";
        self.check_float(OP)?;
        self.check_rank(OP, 3, "[batch, channels, space..]")?;
        let smooth = matches!(options.mode, InterpolateMode::Linear | InterpolateMode::Cubic);
        if !smooth && (options.align_corners || options.antialias) {
            let problem = format!("{:?} has neither `align_corners` nor `antialias`", options.mode);
            return Err(self.wrong(OP, problem).hint("they belong to `Linear` and `Cubic`"));
        }
        let lengths: Vec<usize> = self.shape()[2..].to_vec();
        let (size, factors) = match size {
            InterpolateSize::Sizes(size) => (size, None),
            InterpolateSize::Factors(factors) => {
                check_entries(&self, OP, "the list of factors", factors.len(), lengths.len())?;
                if factors.iter().any(|factor| !(factor.is_finite() && *factor > 0.0)) {
                    return Err(self.wrong(OP, format!("the factors {factors:?} are not all positive")));
                }
                let size = lengths.iter().zip(&factors).map(|(&len, factor)| (len as f64 * factor) as usize);
                (size.collect::<Vec<usize>>(), Some(factors))
            }
        };
        check_entries(&self, OP, "the size", size.len(), lengths.len())?;
        if size.contains(&0) || lengths.contains(&0) {
            return Err(self.wrong(OP, format!("cannot resize to {size:?}: an axis is empty")));
        }
        if options.mode == InterpolateMode::Area {
            return self.adaptive_avg_pool(&size);
        }
        if factors.is_none() && !options.antialias && options.mode != InterpolateMode::NearestExact {
            return self.resized(size, options);
        }
        for (&from, &to) in lengths.iter().zip(&size) {
            // Each element reads a few samples, or with `antialias` all that it covers.
            check_table(OP, &[to, if options.antialias { (from / to).saturating_mul(4).max(4) } else { 4 }])?;
        }
        let steps = lengths.iter().zip(&size).enumerate().map(|(axis, (&from, &to))| {
            let step = match (&factors, options.align_corners) {
                (_, true) if to > 1 => (from - 1) as f64 / (to - 1) as f64,
                (_, true) => 0.0,
                (Some(factors), false) => 1.0 / factors[axis],
                (None, false) => from as f64 / to as f64,
            };
            Grid { from, to, step, options }
        });
        steps.enumerate().try_fold(self, |any, (axis, grid)| any.along_axis(axis + 2, &grid))
    }

    /// Resizes by the op, which accepts sizes.
    fn resized(self, size: Vec<usize>, options: InterpolateOptions) -> Result<AnyTensor> {
        let mode = match options.mode {
            InterpolateMode::Nearest | InterpolateMode::NearestExact | InterpolateMode::Area => {
                ResizeMode::Nearest
            }
            InterpolateMode::Linear => ResizeMode::Linear,
            InterpolateMode::Cubic => ResizeMode::Cubic,
        };
        self.apply(&Op::Resize { mode, size, align_corners: options.align_corners })
    }

    fn along_axis(self, axis: usize, grid: &Grid) -> Result<AnyTensor> {
        let taps = grid.taps();
        let longest = taps.iter().map(Vec::len).max().unwrap_or(0);
        let entry =
            |tap: &Vec<(usize, f64)>, place: usize| tap.get(place).copied().unwrap_or((tap[0].0, 0.0));
        let all = || taps.iter().flat_map(|tap| (0..longest).map(move |place| entry(tap, place)));
        let index: Vec<i64> = all().map(|(index, _)| index as i64).collect();
        let index = TensorData::new(index, [grid.to, longest])?.convert(DType::I32);
        let index = AnyTensor::from_data(index, self.stack());
        let (shape, rank) = (*self.shape(), self.rank());
        let read = self.take(axis, index)?;
        if longest == 1 {
            return read.reshape(shape.with(axis, grid.to));
        }
        let weights: Vec<f64> = all().map(|(_, weight)| weight).collect();
        let beside: Shape = (0..rank + 1)
            .map(|place| {
                if place == axis {
                    grid.to
                } else if place == axis + 1 {
                    longest
                } else {
                    1
                }
            })
            .collect();
        let weights = TensorData::new(weights, beside)?.convert(read.dtype());
        let weights = AnyTensor::from_data(weights, read.stack());
        Ok(read.expression_with([weights], |read, [weights]| {
            // Samples of weight 0 are masked: an infinite sample would produce NaN.
            let counts =
                weights.compare(kiln_ir::Comparison::Ne, &weights.scalar(0.0)).broadcast(read.shape());
            let read = counts.select(&read, &read.scalar(0.0));
            (read * weights).sum(&[axis + 1]).reshape(shape.with(axis, grid.to))
        }))
    }
}

/// One axis: `step` is the distance between results, in samples.
struct Grid {
    from: usize,
    to: usize,
    step: f64,
    options: InterpolateOptions,
}

impl Grid {
    /// Returns the samples of each result, with their weights.
    fn taps(&self) -> Vec<Vec<(usize, f64)>> {
        (0..self.to).map(|i| self.taps_of(i as f64)).collect()
    }

    fn taps_of(&self, i: f64) -> Vec<(usize, f64)> {
        let last = self.from - 1;
        match self.options.mode {
            InterpolateMode::Nearest | InterpolateMode::Area => {
                alloc::vec![((libm::floor(i * self.step) as usize).min(last), 1.0)]
            }
            InterpolateMode::NearestExact => {
                alloc::vec![((libm::floor((i + 0.5) * self.step) as usize).min(last), 1.0)]
            }
            InterpolateMode::Linear if self.options.antialias => self.filtered(i, 1.0, triangle),
            InterpolateMode::Cubic if self.options.antialias => self.filtered(i, 2.0, |x| cubic(x, -0.5)),
            InterpolateMode::Linear => {
                let place = self.place(i).max(0.0);
                let low = (libm::floor(place) as usize).min(last);
                let part = (place - low as f64).min(1.0);
                alloc::vec![(low, 1.0 - part), ((low + 1).min(last), part)]
            }
            InterpolateMode::Cubic => {
                let place = self.place(i);
                let low = libm::floor(place);
                let tap = |offset: f64| {
                    let index = (low + offset).clamp(0.0, last as f64) as usize;
                    (index, cubic(place - low - offset, -0.75))
                };
                [-1.0, 0.0, 1.0, 2.0].map(tap).to_vec()
            }
        }
    }

    /// Returns the position of a result among the samples.
    fn place(&self, i: f64) -> f64 {
        if self.options.align_corners { i * self.step } else { (i + 0.5) * self.step - 0.5 }
    }

    /// Returns all samples within the reach of a filter, which grows with the step.
    fn filtered(&self, i: f64, reach: f64, filter: impl Fn(f64) -> f64) -> Vec<(usize, f64)> {
        let stretch = self.step.max(1.0);
        let (reach, center) = (reach * stretch, self.step * (i + 0.5));
        let start = (center - reach + 0.5).max(0.0) as usize;
        let end = ((center + reach + 0.5) as usize).min(self.from).max(start + 1);
        let weights: Vec<f64> =
            (start..end).map(|place| filter((place as f64 - center + 0.5) / stretch)).collect();
        let total: f64 = weights.iter().sum();
        let total = if total == 0.0 { 1.0 } else { total };
        let places = (start..end).map(|place| place.min(self.from - 1));
        places.zip(weights).map(|(place, weight)| (place, weight / total)).collect()
    }
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// Returns the kernel of cubic convolution.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}
