//! The layout of sources in which adjacent positions of a result read adjacent elements.
//!
//! Along each axis, position `i` of a grid reads element `i * step + shift` for each tap. The elements with the same
//! remainder modulo `step` are stored together, with zeros between lines where reads may leave the axis. The zeros
//! after one line are those before the next. Counted through the lines, zeros included, positions are then evenly
//! spaced in all axes at once. Position `p` reads `p + offset` for each tap, whatever the stride, and a vector of
//! positions is one load. Positions on the zeros between lines are computed too, and left out when the result is
//! written.

use super::geometry::{indices, row_major};
use super::strip::MaskedStore;
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::ConvSpec;

/// The layout of a source, and the maps that read it.
pub(super) struct Lines {
    pub(super) axes: Vec<Axis>,
    /// Elements of one remainder's part of a channel.
    pub(super) part: usize,
    /// Elements of a channel.
    pub(super) plane: usize,
    pub(super) maps: Vec<Map>,
}

/// One axis of the layout.
pub(super) struct Axis {
    /// The length of the source's axis.
    pub(super) length: usize,
    /// The distance between elements read by adjacent positions.
    pub(super) step: usize,
    /// The remainders modulo the step that are read, ascending.
    pub(super) remainders: Vec<usize>,
    /// Zeros before a line, and after it.
    pub(super) zeros: usize,
    /// Elements of a line.
    pub(super) width: usize,
    /// The distance between lines, counted in elements along this axis.
    pub(super) pitch: usize,
    /// The distance between elements.
    pub(super) stride: usize,
}

/// One map from the source to a grid.
pub(super) struct Map {
    /// The offset of each tap within one channel of the weight.
    pub(super) taps: Vec<usize>,
    /// The source offset of each tap for position 0, within one channel.
    pub(super) offsets: Vec<usize>,
    /// Elements of the grid.
    pub(super) count: usize,
    /// The lengths of the grid.
    pub(super) grid: Vec<usize>,
    /// The result offset of each position, within one channel; `None` if it is the position itself.
    pub(super) out: Option<Vec<usize>>,
}

/// The reads of an axis by a grid: its length, and each tap with its shift.
struct Reads {
    count: usize,
    taps: Vec<(usize, isize)>,
}

impl Lines {
    /// The forward or the weight pass: the source is `x`, the grid is `y`.
    pub(super) fn forward(spec: &ConvSpec, x: &[usize], kernel: &[usize], y: &[usize]) -> Lines {
        let low: Vec<isize> = spec.padding.iter().map(|&(low, _)| low as isize).collect();
        Lines::reading(x, &low, [kernel, &spec.stride, &spec.dilation], y)
    }

    /// A grid whose position `i` reads `x` at `i * step + tap * dilation - low`.
    pub(super) fn reading(
        x: &[usize],
        low: &[isize],
        [kernel, step, dilation]: [&[usize]; 3],
        grid: &[usize],
    ) -> Lines {
        let reads = |axis: usize| {
            let shift = |tap: usize| (tap * dilation[axis]) as isize - low[axis];
            Reads { count: grid[axis], taps: (0..kernel[axis]).map(|tap| (tap, shift(tap))).collect() }
        };
        let reads: Vec<Vec<Reads>> = (0..x.len()).map(|axis| vec![reads(axis)]).collect();
        let axes: Vec<Axis> = (0..x.len()).map(|axis| Axis::new(x[axis], step[axis], &reads[axis])).collect();
        let mut lines = Lines::with_strides(axes);
        let parts: Vec<&Reads> = reads.iter().map(|reads| &reads[0]).collect();
        lines.maps = vec![lines.map(kernel, &parts, None)];
        lines
    }

    /// The input pass: the source is `y`, the grids, one per remainder modulo the strides, together are `x`.
    pub(super) fn input(spec: &ConvSpec, x: &[usize], kernel: &[usize], y: &[usize]) -> Lines {
        let reads: Vec<Vec<Reads>> =
            (0..x.len()).map(|axis| input_reads(spec, axis, x[axis], kernel[axis], y[axis])).collect();
        let axes = (0..x.len()).map(|axis| Axis::new(y[axis], 1, &reads[axis])).collect();
        let mut lines = Lines::with_strides(axes);
        let dense = spec.stride.iter().all(|&stride| stride == 1);
        let x_strides = row_major(x);
        for remainders in indices(&spec.stride) {
            let parts: Vec<&Reads> =
                remainders.iter().enumerate().map(|(axis, &remainder)| &reads[axis][remainder]).collect();
            if parts.iter().all(|part| part.count > 0) {
                let first: usize = remainders.iter().zip(&x_strides).map(|(a, b)| a * b).sum();
                let steps: Vec<usize> = x_strides.iter().zip(&spec.stride).map(|(a, b)| a * b).collect();
                let map = lines.map(kernel, &parts, (!dense).then_some((first, &steps)));
                lines.maps.push(map);
            }
        }
        lines
    }

    fn with_strides(mut axes: Vec<Axis>) -> Lines {
        let mut stride = 1;
        let mut zeros = 0;
        for axis in axes.iter_mut().rev() {
            axis.stride = stride;
            zeros += axis.zeros * stride;
            stride *= axis.pitch;
        }
        // Strides that are multiples of a page would map to the same cache sets.
        let aligned = (stride + zeros).next_multiple_of(16);
        let part = if aligned % 512 == 0 { aligned + 16 } else { aligned };
        let parts: usize = axes.iter().map(|axis| axis.remainders.len()).product();
        Lines { axes, part, plane: part * parts, maps: Vec::new() }
    }

    fn map(&self, kernel: &[usize], reads: &[&Reads], out: Option<(usize, &Vec<usize>)>) -> Map {
        let counts: Vec<usize> = reads.iter().map(|reads| reads.taps.len()).collect();
        let kernel_strides = row_major(kernel);
        let mut taps = Vec::new();
        let mut offsets = Vec::new();
        for index in indices(&counts) {
            let (mut tap, mut offset, mut part) = (0, 0, 0);
            for (axis, &i) in index.iter().enumerate() {
                let (number, shift) = reads[axis].taps[i];
                let lines = &self.axes[axis];
                tap += number * kernel_strides[axis];
                offset += lines.place(shift) * lines.stride;
                part = part * lines.remainders.len() + lines.remainder(shift);
            }
            taps.push(tap);
            offsets.push(part * self.part + offset);
        }
        let grid: Vec<usize> = reads.iter().map(|reads| reads.count).collect();
        let out = out.map(|(first, steps)| {
            let mut all = vec![first];
            for (&count, &step) in grid.iter().zip(steps) {
                all = all.iter().flat_map(|&start| (0..count).map(move |i| start + i * step)).collect();
            }
            all
        });
        Map { taps, offsets, count: grid.iter().product(), grid, out }
    }

    /// Whether a row-major array already has this layout, except for vector reads past its end.
    pub(super) fn is_bare(&self) -> bool {
        self.axes.iter().all(|axis| axis.step == 1 && axis.zeros == 0 && axis.width == axis.length)
    }
}

impl Axis {
    /// The axis layout that suffices for all these grids.
    fn new(length: usize, step: usize, all: &[Reads]) -> Axis {
        let mut remainders = Vec::new();
        let (mut zeros, mut width) = (0isize, 0isize);
        for reads in all.iter().filter(|reads| reads.count > 0) {
            for &(_, shift) in &reads.taps {
                let (remainder, first) = split(shift, step);
                if !remainders.contains(&remainder) {
                    remainders.push(remainder);
                }
                let elements =
                    (length as isize - remainder as isize + step as isize - 1).max(0) / step as isize;
                let end = first + reads.count as isize;
                zeros = zeros.max(-first).max(end - elements);
                width = width.max(elements.min(end));
            }
        }
        if remainders.is_empty() {
            // No tap reads anything: one line, for counting positions.
            let count = all.iter().map(|reads| reads.count).max().unwrap_or(0);
            return Axis { length, step, remainders: vec![0], zeros: 0, width: 0, pitch: count, stride: 0 };
        }
        remainders.sort_unstable();
        let count = all.iter().map(|reads| reads.count).max().unwrap_or(0);
        let (zeros, width) = (zeros as usize, width.max(0) as usize);
        // The line pitch is at least the number of positions.
        let pitch = (zeros + width).max(count);
        Axis { length, step, remainders, zeros, width, pitch, stride: 0 }
    }

    /// The index along a line that position 0 reads.
    fn place(&self, shift: isize) -> usize {
        (self.zeros as isize + split(shift, self.step).1) as usize
    }

    /// The index of the remainder that a shift reads.
    fn remainder(&self, shift: isize) -> usize {
        let wanted = split(shift, self.step).0;
        self.remainders.iter().position(|&remainder| remainder == wanted).unwrap_or(0)
    }

    /// Elements with that remainder that the layout keeps.
    pub(super) fn kept(&self, remainder: usize) -> usize {
        (self.length.saturating_sub(remainder)).div_ceil(self.step).min(self.width)
    }
}

/// The remainder and the quotient of a shift.
fn split(shift: isize, step: usize) -> (usize, isize) {
    (shift.rem_euclid(step as isize) as usize, shift.div_euclid(step as isize))
}

/// The reads of `y` by the positions of one axis of `x`, for each remainder modulo the stride.
fn input_reads(spec: &ConvSpec, axis: usize, x: usize, kernel: usize, y: usize) -> Vec<Reads> {
    let (stride, dilation) = (spec.stride[axis] as isize, spec.dilation[axis] as isize);
    let reads = |remainder: usize| {
        let count = x.saturating_sub(remainder).div_ceil(stride as usize);
        let place = |tap: usize| remainder as isize + spec.padding[axis].0 as isize - tap as isize * dilation;
        // A tap that never reads `y` would only widen the padding.
        let meets = |tap: &usize| {
            let (remainder, first) = split(place(*tap), stride as usize);
            remainder == 0 && first < y as isize && first + count as isize > 0
        };
        let taps = (0..kernel).filter(meets).map(|tap| (tap, place(tap).div_euclid(stride))).collect();
        Reads { count, taps }
    };
    (0..spec.stride[axis]).map(reads).collect()
}

impl Map {
    /// Positions counted through the lines.
    pub(super) fn length(&self, axes: &[Axis]) -> usize {
        self.grid.iter().zip(axes).map(|(&count, axis)| (count - 1) * axis.stride).sum::<usize>() + 1
    }

    /// For each vector of positions, its lanes in the grid, and the index of the first of them.
    pub(super) fn places(&self, axes: &[Axis], lanes: usize) -> Vec<MaskedStore> {
        let vectors = self.length(axes).div_ceil(lanes);
        let mut places = vec![MaskedStore { lanes: 0, start: 0 }; vectors];
        let (&row, outer) = self.grid.split_last().unwrap_or((&1, &[]));
        for (number, index) in indices(outer).iter().enumerate() {
            let first: usize = index.iter().zip(axes).map(|(i, axis)| i * axis.stride).sum();
            for i in 0..row {
                let place = &mut places[(first + i) / lanes];
                if place.lanes == 0 {
                    place.start = number * row + i;
                }
                place.lanes |= 1 << ((first + i) % lanes);
            }
        }
        places
    }
}
