//! FFTs by block kernels, with lists of roots of unity from the host.

use super::{LineLayout, Lines, List, MOST_LINES, Map, Packed, Parts, capacity};
use crate::Gpu;
use crate::block::BlockKey;
use crate::block::fourier::{ARRAYS, LineTransform, Processing, Step, lines, processing};
use crate::driver::{Argument, Arguments, DevicePtr, Driver};
use crate::memory::Block;
use crate::native::length;
use kiln_ir::{DType, Error, Result};
use std::f64::consts::FRAC_PI_4;

impl<D: Driver> Gpu<D> {
    /// The maximum length of a line that a block transforms in shared memory.
    pub(super) fn line_capacity(&self, dtype: DType) -> usize {
        let most = capacity(dtype);
        if self.has_native() {
            return most;
        }
        (self.driver.info().shared_bytes / (ARRAYS * dtype.size())).clamp(1, most)
    }

    /// Transforms complex lines that fit shared memory. `sides`: the source and the result.
    pub(super) fn transform_lines_by_blocks(
        &self,
        all: Lines,
        sides: [&Parts<D>; 2],
        layouts: [LineLayout; 2],
        twiddles: Option<(DevicePtr<D::Memory>, usize)>,
    ) -> Result<()> {
        let Lines { dtype, count, length: points } = all;
        let of_block = self.line_capacity(dtype) / points;
        let of_block = of_block.clamp(1, MOST_LINES).min(count.next_power_of_two());
        let transform = LineTransform {
            dtype,
            length: points,
            lines: of_block,
            is_near: layouts.map(|layout| layout.step == 1),
            is_turned: twiddles.is_some(),
        };
        let roots = self.roots(dtype, points, points)?;
        let tensors = sides.into_iter().flat_map(|parts| [&parts.re, &parts.im]);
        let mut arguments: Arguments<D::Memory> =
            tensors.map(|place| Argument::Pointer(place.clone())).collect();
        arguments.push(Argument::Pointer(roots.at(0)));
        let mut columns = 1;
        if let Some((list, of_matrix)) = twiddles {
            arguments.push(Argument::Pointer(list));
            columns = of_matrix;
        }
        arguments.extend([length(count), length(columns)]);
        for layout in layouts {
            arguments.extend([length(layout.inner), length(layout.jump), length(layout.step)]);
        }
        let [from_near, to_near] = transform.is_near;
        let key = BlockKey::new("fft").dtype(dtype).with(points).with(of_block);
        let key = key.with(from_near).with(to_near).with(transform.is_turned);
        self.run_blocks(key, || lines(&transform), count.div_ceil(of_block), arguments)
    }

    /// Runs the elementwise pre- or post-processing of a transform for `total` elements. `parts`: lines, the filter, and
    /// results; a kernel has only those that it accesses.
    pub(super) fn map_by_blocks(
        &self,
        map: Map,
        dtype: DType,
        packed: Packed,
        parts: [&Parts<D>; 3],
        roots: &Block<D>,
        total: usize,
    ) -> Result<()> {
        let step = step(map)?;
        let reads = step.reads();
        let [x, filter, y] = parts;
        let places = [
            (reads.lines, x.re.clone()),
            (reads.imaginary, x.im.clone()),
            (reads.filter, filter.re.clone()),
            (reads.filter, filter.im.clone()),
            (reads.roots, roots.at(0)),
            (true, y.re.clone()),
            (step.writes_imaginary(), y.im.clone()),
        ];
        let places = places.into_iter().filter(|(is_bound, _)| *is_bound);
        let mut arguments: Arguments<D::Memory> = places.map(|(_, place)| Argument::Pointer(place)).collect();
        arguments.extend([length(total), length(packed.points), length(packed.length)]);
        let kernel = Processing { step, dtype, is_even: packed.is_even, is_usual: packed.usual };
        let key = BlockKey::new("fft_step").with(step as usize).dtype(dtype);
        let key = key.with(packed.is_even).with(packed.usual);
        self.run_points(key, || processing(&kernel), total, arguments)
    }
}

/// The block kernel of a step.
///
/// # Errors
/// For steps around a vendor's library, which interleave both parts.
fn step(map: Map) -> Result<Step> {
    Ok(match map {
        Map::Pack => Step::Pack,
        Map::Split => Step::Split,
        Map::Join => Step::Join,
        Map::Unpack => Step::Unpack,
        Map::Pad => Step::Pad,
        Map::Filtered => Step::Filtered,
        Map::Cut => Step::Cut,
        Map::Filter => Step::Filter,
        Map::Transpose => Step::Transpose,
        Map::Interleave | Map::InterleaveHalf | Map::Separate => {
            let problem = "Fourier transforms by a vendor's library need hand-written kernels";
            return Err(Error::unsupported("gpu", problem));
        }
    })
}

impl List {
    /// The numbers in memory, computed in `f64`.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * self.count * self.dtype.size());
        let points = self.points as u64;
        for k in 0..self.count as u64 {
            // The chirp exp(-πi k² / points) is a root of twice the order.
            let number = if self.is_chirp { root(k * k % (2 * points), 2 * points) } else { root(k, points) };
            for part in number {
                if self.dtype == DType::F64 {
                    bytes.extend(part.to_ne_bytes());
                } else {
                    bytes.extend((part as f32).to_ne_bytes());
                }
            }
        }
        bytes
    }
}

/// The real and the imaginary part of `exp(-2πi k / points)` for `k < points`, from an angle of at most an eighth of the
/// circle.
fn root(k: u64, points: u64) -> [f64; 2] {
    let octant = 8 * k / points;
    let is_odd = octant % 2 == 1;
    let rest = if is_odd { (octant + 1) * points - 8 * k } else { 8 * k - octant * points };
    let (sine, cosine) = (FRAC_PI_4 * rest as f64 / points as f64).sin_cos();
    let [mut re, mut im] = if is_odd { [sine, -cosine] } else { [cosine, -sine] };
    for _ in 0..octant / 2 {
        (re, im) = (im, -re);
    }
    [re, im]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::{PI, TAU};

    #[test]
    fn roots_are_on_the_circle() {
        for points in [1, 2, 3, 8, 30, 37, 1024] {
            for k in 0..points {
                let angle = TAU * k as f64 / points as f64;
                let [re, im] = root(k, points);
                assert!((re - angle.cos()).abs() < 1e-14, "{k} of {points}");
                assert!((im + angle.sin()).abs() < 1e-14, "{k} of {points}");
            }
        }
        assert_eq!(root(256, 1024), [0.0, -1.0]);
    }

    #[test]
    fn a_chirp_is_a_root_of_the_square() {
        let list = List { dtype: DType::F64, count: 37, points: 37, is_chirp: true };
        let bytes = list.bytes();
        for k in 0..37usize {
            let re = f64::from_ne_bytes(bytes[16 * k..16 * k + 8].try_into().unwrap());
            assert!((re - (PI * (k * k) as f64 / 37.0).cos()).abs() < 1e-12, "{k}");
        }
    }
}
