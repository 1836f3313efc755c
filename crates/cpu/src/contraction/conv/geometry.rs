//! Convolution as sums over taps: the mapping from elements of a padded source to elements of a result.
//!
//! Every map from a source to a grid is `out[p] = Σ_k weight[k] · source[base[p] + offset[k]]`. Here `p` iterates over
//! the positions of the grid, and `k` over the channels of the source and the kernel's taps. The forward pass is one
//! such map. The input pass is one per *phase*: with stride `s`, the positions of `x` with the same remainder modulo
//! `s` use the same taps. Each phase is a convolution of stride 1 over `y`.

use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::ConvSpec;

/// A source with zero padding, and the maps from it.
pub(super) struct Geometry {
    /// Lengths of the source's spatial dimensions.
    pub(super) space: Vec<usize>,
    /// Zeros before each axis.
    pub(super) low: Vec<usize>,
    /// The lengths including the zeros.
    pub(super) padded: Vec<usize>,
    /// The maps; their grids are disjoint and cover the result.
    pub(super) phases: Vec<Phase>,
}

/// One map from the padded source to a grid.
pub(super) struct Phase {
    /// The offset of each tap within one channel of the weight.
    pub(super) taps: Vec<usize>,
    /// The source offset of each tap, relative to the base of a position, within one channel.
    pub(super) offsets: Vec<usize>,
    /// The base offset of each position, within one channel of the source.
    pub(super) base: Vec<usize>,
    /// The result offset of each position, within one channel; `None` if it is the position itself.
    pub(super) out: Option<Vec<usize>>,
    /// The length of the grid's last axis, along which bases and results are evenly spaced.
    pub(super) row: usize,
    /// The distance between bases along a row.
    pub(super) row_step: usize,
    /// The distance between results along a row.
    pub(super) out_step: usize,
}

impl Geometry {
    /// The forward or the weight pass: the source is `x`, the grid is `y`.
    pub(super) fn forward(spec: &ConvSpec, x: &[usize], kernel: &[usize], y: &[usize]) -> Geometry {
        let low: Vec<usize> = spec.padding.iter().map(|&(low, _)| low).collect();
        let padded: Vec<usize> =
            x.iter().zip(&spec.padding).map(|(&length, &(low, high))| length + low + high).collect();
        let strides = row_major(&padded);
        let step = |axis: usize, factor: usize| strides[axis] * factor;
        let steps: Vec<usize> = (0..x.len()).map(|axis| step(axis, spec.dilation[axis])).collect();
        let starts: Vec<usize> = (0..x.len()).map(|axis| step(axis, spec.stride[axis])).collect();
        let phase = Phase {
            taps: (0..kernel.iter().product()).collect(),
            offsets: positions(kernel, &steps),
            base: positions(y, &starts),
            out: None,
            row: *y.last().unwrap_or(&1),
            row_step: *starts.last().unwrap_or(&1),
            out_step: 1,
        };
        Geometry { space: x.to_vec(), low, padded, phases: vec![phase] }
    }

    /// The input pass: the source is `y`, the grids together are `x`.
    pub(super) fn input(spec: &ConvSpec, x: &[usize], kernel: &[usize], y: &[usize]) -> Geometry {
        let axes: Vec<Axis> =
            (0..x.len()).map(|axis| Axis::new(spec, axis, x[axis], kernel[axis], y[axis])).collect();
        let padded: Vec<usize> = axes.iter().map(|axis| axis.padded).collect();
        let strides = row_major(&padded);
        let mut phases = Vec::new();
        for remainders in indices(&spec.stride) {
            let parts: Vec<&AxisPhase> =
                axes.iter().zip(&remainders).map(|(axis, &remainder)| &axis.phases[remainder]).collect();
            if parts.iter().all(|part| part.count > 0) {
                phases.push(Phase::joined(spec, x, kernel, &strides, &remainders, &parts));
            }
        }
        Geometry { space: y.to_vec(), low: axes.iter().map(|axis| axis.low).collect(), padded, phases }
    }

    /// Elements of one padded channel.
    pub(super) fn plane(&self) -> usize {
        self.padded.iter().product()
    }

    /// Whether the source has no padding.
    pub(super) fn is_bare(&self) -> bool {
        self.space == self.padded
    }
}

/// One axis of the input pass.
struct Axis {
    low: usize,
    padded: usize,
    phases: Vec<AxisPhase>,
}

/// The positions of one axis of `x` with the same remainder, and their taps.
struct AxisPhase {
    count: usize,
    taps: Vec<usize>,
    /// The index of `y` that each tap reads for the first position; may be out of range, in the padding.
    reads: Vec<isize>,
}

impl Axis {
    fn new(spec: &ConvSpec, axis: usize, x: usize, kernel: usize, y: usize) -> Axis {
        let (stride, dilation) = (spec.stride[axis] as isize, spec.dilation[axis] as isize);
        let pad = spec.padding[axis].0 as isize;
        let mut phases = Vec::new();
        for remainder in 0..stride {
            let count = (x as isize - remainder + stride - 1).max(0) / stride;
            let read = |tap: usize| remainder + pad - tap as isize * dilation;
            // A tap that never reads `y` would only widen the padding.
            let meets = |tap: &usize| {
                let first = read(*tap).div_euclid(stride);
                read(*tap).rem_euclid(stride) == 0 && first < y as isize && first + count > 0
            };
            let taps: Vec<usize> = (0..kernel).filter(meets).collect();
            let reads = taps.iter().map(|&tap| read(tap).div_euclid(stride)).collect();
            phases.push(AxisPhase { count: count as usize, taps, reads });
        }
        let busy = || phases.iter().filter(|phase| phase.count > 0);
        let low = busy().flat_map(|phase| phase.reads.iter().map(|&read| -read)).max().unwrap_or(0).max(0);
        let ends = busy().flat_map(|phase| phase.reads.iter().map(|&read| read + phase.count as isize));
        let end = ends.max().unwrap_or(0).max(y as isize);
        Axis { low: low as usize, padded: (low + end) as usize, phases: shifted(phases, low) }
    }
}

/// The same phases, with indices into the padded axis.
fn shifted(mut phases: Vec<AxisPhase>, low: isize) -> Vec<AxisPhase> {
    for phase in &mut phases {
        phase.reads.iter_mut().for_each(|read| *read += low);
    }
    phases
}

impl Phase {
    fn joined(
        spec: &ConvSpec,
        x: &[usize],
        kernel: &[usize],
        strides: &[usize],
        remainders: &[usize],
        parts: &[&AxisPhase],
    ) -> Phase {
        let grid: Vec<usize> = parts.iter().map(|part| part.count).collect();
        let tap_counts: Vec<usize> = parts.iter().map(|part| part.taps.len()).collect();
        let kernel_strides = row_major(kernel);
        let x_strides = row_major(x);
        let mut taps = Vec::new();
        let mut offsets = Vec::new();
        for index in indices(&tap_counts) {
            let along = |(axis, &i): (usize, &usize)| parts[axis].taps[i] * kernel_strides[axis];
            taps.push(index.iter().enumerate().map(along).sum());
            let along = |(axis, &i): (usize, &usize)| parts[axis].reads[i] as usize * strides[axis];
            offsets.push(index.iter().enumerate().map(along).sum());
        }
        let steps: Vec<usize> = x_strides.iter().zip(&spec.stride).map(|(a, b)| a * b).collect();
        let first: usize = remainders.iter().zip(&x_strides).map(|(a, b)| a * b).sum();
        let out = positions(&grid, &steps).into_iter().map(|position| position + first);
        Phase {
            taps,
            offsets,
            base: positions(&grid, strides),
            out: if spec.stride.iter().all(|&stride| stride == 1) { None } else { Some(out.collect()) },
            row: *grid.last().unwrap_or(&1),
            row_step: 1,
            out_step: *spec.stride.last().unwrap_or(&1),
        }
    }

    /// The result offset of position `p`.
    #[inline]
    pub(super) fn out(&self, p: usize) -> usize {
        self.out.as_ref().map_or(p, |out| out[p])
    }
}

/// The strides of a row-major block of these lengths.
pub(super) fn row_major(lengths: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; lengths.len()];
    for axis in (1..lengths.len()).rev() {
        strides[axis - 1] = strides[axis] * lengths[axis];
    }
    strides
}

/// `Σ index[axis] * steps[axis]` for every index of a block, in row-major order.
fn positions(lengths: &[usize], steps: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (&length, &step) in lengths.iter().zip(steps) {
        all = all.iter().flat_map(|&start| (0..length).map(move |i| start + i * step)).collect();
    }
    all
}

/// Every index of a block, in row-major order.
pub(super) fn indices(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &length in lengths {
        let longer = |index: &Vec<usize>| {
            let index = index.clone();
            (0..length).map(move |i| index.iter().copied().chain([i]).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
