//! Batched matmul with quantized weights.

use super::dequantized::{Values, Weights, matmul_dequantized};
use super::matrix::Matrix;
use crate::Cpu;
use crate::array::Array;
use crate::walk::Walk;
use kiln_ir::{DType, MAX_RANK};

/// `x · (q - zero) · scale` in `f32`, into a new array. `q` is `i8` or `u8`, `[.., k, n]`. The lengths of scale and
/// zero, both `f32`, divide `k` and `n`, and are 1 or those of the batch along the leading axes.
pub(in crate::contraction) fn with_weights(
    cpu: &Cpu,
    x: &Array,
    (q, dtype): (&Array, DType),
    scale: &Array,
    zero: Option<&Array>,
    output: &Array,
) {
    if output.num_elements() == 0 {
        return;
    }
    let rank = output.shape().rank();
    let (outer, [m, n]) = (rank - 2, [output.shape()[rank - 2], output.shape()[rank - 1]]);
    let k = x.shape()[rank - 1];
    let (scales, zeros) = (shared(scale, outer), shared(zero.unwrap_or(scale), outer));
    let batch = Walk::new(
        &output.shape()[..outer],
        [&x.strides()[..outer], &q.strides()[..outer], &scales[..outer], &zeros[..outer]],
    );
    // Merges the batch into the rows, if all matmuls share the weights and the rows are evenly spaced.
    let [row, column] = [x.strides()[outer], x.strides()[outer + 1]];
    let [_, shared @ ..] = batch.strides[0];
    let is_one = batch.rank == 1 && shared == [0; 3] && (m == 1 || batch.strides[0][0] == row * m as isize);
    let (count, rows, row) = match (is_one, m) {
        (true, 1) => (1, batch.lengths[0], batch.strides[0][0]),
        (true, _) => (1, batch.lengths[0] * m, row),
        (false, _) => (batch.num_elements(), m, row),
    };
    let mut place = batch.at(0);
    for i in 0..count {
        let [at_x, at_q, at_scale, at_zero] = place.offsets;
        let per_block = |array: &Array, offset: isize| {
            let strides = array.strides();
            Matrix::new(array.as_ptr::<f32>().wrapping_offset(offset), strides[outer], strides[outer + 1])
        };
        let values = if dtype == DType::U8 {
            let start = q.as_ptr::<u8>().wrapping_offset(at_q);
            Values::U8(Matrix::new(start, q.strides()[outer], q.strides()[outer + 1]))
        } else {
            let start = q.as_ptr::<i8>().wrapping_offset(at_q);
            Values::I8(Matrix::new(start, q.strides()[outer], q.strides()[outer + 1]))
        };
        let weights = Weights {
            values,
            scale: per_block(scale, at_scale),
            zero: zero.map(|zero| per_block(zero, at_zero)),
            block: [k / scale.shape()[outer], n / scale.shape()[outer + 1]],
        };
        let x = Matrix::new(x.as_ptr::<f32>().wrapping_offset(at_x), row, column);
        let c = Matrix::new(output.as_ptr::<f32>().wrapping_add(i * m * n), n as isize, 1);
        // SAFETY: sizes by inference; the output is fresh.
        unsafe { matmul_dequantized(cpu.level, &cpu.pool, [rows, k, n], x, &weights, c) };
        place.advance(&batch, 1);
    }
}

/// The strides of scales along the batch axes: 0 where all matrices share them.
fn shared(scale: &Array, outer: usize) -> [isize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    for axis in (0..outer).filter(|&axis| scale.shape()[axis] != 1) {
        strides[axis] = scale.strides()[axis];
    }
    strides
}
