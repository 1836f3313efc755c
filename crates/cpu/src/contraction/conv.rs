//! Convolution in its three passes.
//!
//! No im2col buffer is ever built: every kernel reads a padded copy of its operand, or the operand in place. The input
//! pass is a convolution of the result's gradient, one per phase of the stride. The order of summation does not depend
//! on the number of threads.
//!
//! Forward and input pass are computed by strips of positions ([`flat`]). With 3 × 3 kernels and many channels, they
//! use fewer multiplications ([`winograd`]). If the grid is so small that images must share vectors, they are computed
//! by tiles of channels ([`gather`]).

mod correlate;
mod flat;
mod gather;
mod geometry;
mod layout;
mod lines;
mod rows;
mod share;
mod source;
mod strip;
mod tile;
mod weight;
mod window;
mod winograd;

use super::scratch::Scratch;
use super::simd::Float;
use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use alloc::vec::Vec;
use correlate::Correlation;
use flat::Flat;
use gather::Gather;
use geometry::Geometry;
use kiln_ir::{ConvPass, ConvSpec, Result, TensorType};
use lines::Lines;
use share::share;
use tile::Unit;
use weight::WeightPass;
use winograd::{Kernels, Winograd};

/// Runs one pass on two arrays whose elements are `T`s.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn run<T: Float>(
    cpu: &Cpu,
    spec: &ConvSpec,
    pass: &ConvPass,
    [a, b]: [(&Array, TensorType); 2],
    result: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(result)?;
    if result.num_elements() == 0 {
        return Ok(output);
    }
    match pass {
        ConvPass::Forward => forward::<T>(cpu, spec, a, b, &output)?,
        ConvPass::Input { .. } => input::<T>(cpu, spec, a, b, &output)?,
        ConvPass::Weight { size } => weight::<T>(cpu, spec, size, a, b, &output)?,
    }
    Ok(output)
}

/// The forward pass into `y`, which is contiguous, not empty and has no other user.
///
/// # Errors
/// When there is not enough memory.
pub(crate) fn forward<T: Float>(
    cpu: &Cpu,
    spec: &ConvSpec,
    x: (&Array, TensorType),
    w: (&Array, TensorType),
    y: &Array,
) -> Result<()> {
    let (x_shape, w_shape, y_shape) = (x.1.shape, w.1.shape, *y.shape());
    let weight = cpu.contiguous(w.0, &w.1)?;
    let lines = Lines::forward(spec, &x_shape[2..], &w_shape[2..], &y_shape[2..]);
    let flat = Flat {
        lines: &lines,
        batch: x_shape[0],
        groups: spec.groups,
        channels_in: w_shape[1],
        channels_out: y_shape[1] / spec.groups,
        plane_out: y_shape[2..].iter().product(),
    };
    // SAFETY: no requirements.
    let (lanes, _) = unsafe { T::dispatch(cpu.level, Unit) };
    let kernels = Kernels {
        start: Shared::new(weight.as_mut_ptr::<T>()),
        out: w_shape[1] * 9,
        inner: 9,
        reversed: false,
        len: w_shape.num_elements(),
    };
    let low = |axis: usize| spec.padding[axis].0 as isize;
    if winograd::takes(spec, &w_shape[2..])
        && by_winograd(cpu, lanes, &flat, x.0, [low(0), low(1)], kernels, y)?
    {
        return Ok(());
    }
    if flat.suits(lanes) {
        // SAFETY: sizes by inference; the output is fresh.
        return unsafe { flat.run::<T>(cpu, lanes, x.0, &[weight.as_ptr()], y.as_mut_ptr()) };
    }
    let geometry = Geometry::forward(spec, &x_shape[2..], &w_shape[2..], &y_shape[2..]);
    let taps: usize = w_shape[2..].iter().product();
    let gather = Gather {
        geometry: &geometry,
        batch: flat.batch,
        groups: flat.groups,
        channels_in: flat.channels_in,
        channels_out: flat.channels_out,
        plane_out: flat.plane_out,
        weight_out: w_shape[1] * taps,
        weight_in: taps,
        taps,
    };
    // SAFETY: as above.
    unsafe { gather.run::<T>(cpu, x.0, weight.as_ptr(), y.as_mut_ptr()) }
}

fn input<T: Float>(
    cpu: &Cpu,
    spec: &ConvSpec,
    y: (&Array, TensorType),
    w: (&Array, TensorType),
    x: &Array,
) -> Result<()> {
    let (y_shape, w_shape, x_shape) = (y.1.shape, w.1.shape, *x.shape());
    let weight = cpu.contiguous(w.0, &w.1)?;
    let lines = Lines::input(spec, &x_shape[2..], &w_shape[2..], &y_shape[2..]);
    let flat = Flat {
        lines: &lines,
        batch: y_shape[0],
        groups: spec.groups,
        channels_in: y_shape[1] / spec.groups,
        channels_out: w_shape[1],
        plane_out: x_shape[2..].iter().product(),
    };
    let taps: usize = w_shape[2..].iter().product();
    // SAFETY: no requirements.
    let (lanes, _) = unsafe { T::dispatch(cpu.level, Unit) };
    let kernels = Kernels {
        start: Shared::new(weight.as_mut_ptr::<T>()),
        out: 9,
        inner: w_shape[1] * 9,
        reversed: true,
        len: w_shape.num_elements(),
    };
    let low = |axis: usize| 2 - spec.padding[axis].0 as isize;
    if winograd::takes(spec, &w_shape[2..])
        && by_winograd(cpu, lanes, &flat, y.0, [low(0), low(1)], kernels, x)?
    {
        return Ok(());
    }
    if flat.suits(lanes) {
        let mut packed: Vec<Scratch<T>> = lines
            .maps
            .iter()
            // SAFETY: sizes by inference.
            .map(|map| unsafe { exchanged(cpu, &flat, &map.taps, taps, weight.as_ptr::<T>()) })
            .collect();
        let weights: Vec<*const T> =
            packed.iter_mut().map(|packed| packed.as_mut_ptr().cast_const()).collect();
        // SAFETY: sizes by inference; the output is fresh.
        return unsafe { flat.run::<T>(cpu, lanes, y.0, &weights, x.as_mut_ptr()) };
    }
    let geometry = Geometry::input(spec, &x_shape[2..], &w_shape[2..], &y_shape[2..]);
    let gather = Gather {
        geometry: &geometry,
        batch: flat.batch,
        groups: flat.groups,
        channels_in: flat.channels_in,
        channels_out: flat.channels_out,
        plane_out: flat.plane_out,
        weight_out: taps,
        weight_in: w_shape[1] * taps,
        taps,
    };
    // SAFETY: as above.
    unsafe { gather.run::<T>(cpu, y.0, weight.as_ptr(), x.as_mut_ptr()) }
}

fn weight<T: Float>(
    cpu: &Cpu,
    spec: &ConvSpec,
    size: &[usize],
    x: (&Array, TensorType),
    y: (&Array, TensorType),
    w: &Array,
) -> Result<()> {
    let (x_shape, y_shape, w_shape) = (x.1.shape, y.1.shape, *w.shape());
    let y = cpu.contiguous(y.0, &y.1)?;
    let (batch, groups) = (x_shape[0], spec.groups);
    let (channels_in, channels_out) = (w_shape[1], w_shape[0] / groups);
    let lines = Lines::forward(spec, &x_shape[2..], size, &y_shape[2..]);
    let plane_out = y_shape[2..].iter().product();
    let flat = Flat { lines: &lines, batch, groups, channels_in, channels_out, plane_out };
    // SAFETY: no requirements.
    let (lanes, _) = unsafe { T::dispatch(cpu.level, Unit) };
    let correlation = Correlation { flat };
    if correlation.suits(lanes)
        // SAFETY: sizes by inference; the output is fresh.
        && unsafe { correlation.run::<T>(cpu, lanes, x.0, y.as_ptr(), w.as_mut_ptr())? }
    {
        return Ok(());
    }
    let geometry = Geometry::forward(spec, &x_shape[2..], size, &y_shape[2..]);
    let pass = WeightPass { geometry: &geometry, batch, groups, channels_in, channels_out };
    // SAFETY: as above.
    unsafe { pass.run::<T>(cpu, x.0, y.as_ptr(), w.as_mut_ptr()) }
}

/// Computes the whole result by [`Winograd`] if that is faster. Returns whether it did and all sums were finite.
///
/// # Errors
/// When there is not enough memory.
fn by_winograd<T: Float>(
    cpu: &Cpu,
    lanes: usize,
    plain: &Flat<'_>,
    source: &Array,
    low: [isize; 2],
    kernels: Kernels<T>,
    result: &Array,
) -> Result<bool> {
    let size = [result.shape()[2], result.shape()[3]];
    let lines = winograd::lines(&source.shape()[2..], low, size);
    let winograd = Winograd { flat: Flat { lines: &lines, ..*plain }, size };
    Ok(winograd.pays(lanes, plain.vectors(lanes))
        // SAFETY: sizes by inference; the result is fresh.
        && unsafe { winograd.run(cpu, lanes, source, kernels, result.as_mut_ptr())? })
}

/// Transposes the channel axes of the weight and selects some of its taps: from
/// `[groups, channels_in, channels_out, taps]` to `[groups, channels_out, channels_in, chosen taps]`, with the channels
/// of the input pass.
///
/// # Safety
/// The weight has that size.
unsafe fn exchanged<T: Float>(
    cpu: &Cpu,
    flat: &Flat<'_>,
    chosen: &[usize],
    taps: usize,
    weight: *const T,
) -> Scratch<T> {
    /// The block size of adjacent channels that are read, and written, together.
    const BLOCK: usize = 16;
    let (inner, outer) = (flat.channels_in, flat.channels_out);
    let mut packed = Scratch::<T>::new(flat.groups * inner * outer * chosen.len());
    let (weight, to) = (Shared::new(weight.cast_mut()), Shared::new(packed.as_mut_ptr()));
    let blocks = outer.div_ceil(BLOCK);
    let work = (BLOCK * inner * taps).max(1);
    share(&cpu.pool, flat.groups * blocks, (1usize << 15).div_ceil(work), |tasks| {
        for task in tasks {
            let (group, first) = (task / blocks, task % blocks * BLOCK);
            for c in 0..inner {
                for o in first..(first + BLOCK).min(outer) {
                    // SAFETY: elements of the weight; a place of their own.
                    unsafe {
                        let from = weight.get().add(((group * inner + c) * outer + o) * taps);
                        let to = to.get().add(((group * outer + o) * inner + c) * chosen.len());
                        for (i, &tap) in chosen.iter().enumerate() {
                            *to.add(i) = *from.add(tap);
                        }
                    }
                }
            }
        }
    });
    packed
}
