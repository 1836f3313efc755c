//! Convolution in its three passes.
//!
//! No columns are ever built: [`geometry`] says where each step of each position reads, and the kernel of [`tile`] reads
//! the padded operand there. The input pass is a convolution of the result's gradient, one per phase of the stride. What
//! is summed in which order does not depend on the number of threads.

mod gather;
mod geometry;
mod rows;
mod source;
mod tile;
mod weight;

use super::simd::Float;
use crate::Cpu;
use crate::array::Array;
use gather::Gather;
use geometry::Geometry;
use kiln_ir::{ConvPass, ConvSpec, Result, TensorType};
use weight::WeightPass;

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
    let groups = spec.groups;
    let (first, second, out) = (a.1.shape, b.1.shape, result.shape);
    match pass {
        ConvPass::Forward => {
            let geometry = Geometry::forward(spec, &first[2..], &second[2..], &out[2..]);
            let taps: usize = second[2..].iter().product();
            let gather = Gather {
                geometry: &geometry,
                batch: first[0],
                groups,
                channels_in: second[1],
                channels_out: out[1] / groups,
                plane_out: out[2..].iter().product(),
                weight_out: second[1] * taps,
                weight_in: taps,
                taps,
            };
            let weight = cpu.contiguous(b.0, &b.1)?;
            // SAFETY: sizes by inference; the output is fresh.
            unsafe { gather.run::<T>(cpu, a.0, weight.as_ptr(), output.as_mut_ptr()) };
        }
        ConvPass::Input { .. } => {
            let geometry = Geometry::input(spec, &out[2..], &second[2..], &first[2..]);
            let taps: usize = second[2..].iter().product();
            let gather = Gather {
                geometry: &geometry,
                batch: first[0],
                groups,
                channels_in: first[1] / groups,
                channels_out: second[1],
                plane_out: out[2..].iter().product(),
                weight_out: taps,
                weight_in: second[1] * taps,
                taps,
            };
            let weight = cpu.contiguous(b.0, &b.1)?;
            // SAFETY: sizes by inference; the output is fresh.
            unsafe { gather.run::<T>(cpu, a.0, weight.as_ptr(), output.as_mut_ptr()) };
        }
        ConvPass::Weight { size } => {
            let geometry = Geometry::forward(spec, &first[2..], size, &second[2..]);
            let pass = WeightPass {
                geometry: &geometry,
                batch: first[0],
                groups,
                channels_in: out[1],
                channels_out: out[0] / groups,
            };
            let y = cpu.contiguous(b.0, &b.1)?;
            // SAFETY: sizes by inference; the output is fresh.
            unsafe { pass.run::<T>(cpu, a.0, y.as_ptr(), output.as_mut_ptr()) };
        }
    }
    Ok(output)
}
