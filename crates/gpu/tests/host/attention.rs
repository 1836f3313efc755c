//! Attention and its gradients, by Kiln's kernels and by library calls.

use crate::{check, data, run};
use kiln_ir::{AttentionSpec, DType, Op, Real};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};

/// The shape of the mask, and whether it is additive.
type Mask = Option<(&'static [usize], bool)>;

/// Sizes are batch, heads, key heads, queries, keys, head dim and value head dim.
fn attention(sizes: [usize; 7], causal: Option<i64>, mask: Mask, dtype: DType) {
    let [batch, heads, kv_heads, queries, keys, dim, dim_v] = sizes;
    let spec = AttentionSpec { scale: Real(1.0 / (dim as f64).sqrt()), causal };
    let tensor = |shape: &[usize]| data(shape, dtype, Fill::Normal);
    let mask = mask.map(|(shape, added)| {
        let dtype = if added { dtype } else { DType::Bool };
        data(shape, dtype, if added { Fill::Among(&[0.5, -2.0, f64::NEG_INFINITY]) } else { Fill::Normal })
    });
    let mut inputs = vec![
        tensor(&[batch, heads, queries, dim]),
        tensor(&[batch, kv_heads, keys, dim]),
        tensor(&[batch, kv_heads, keys, dim_v]),
    ];
    inputs.extend(mask.clone());
    let tolerance = Tolerance::Near { relative: 32.0, absolute: 64.0 };
    check(&Op::Attention(spec), &inputs, tolerance);
    let results = run(&Reference::new(), &Op::Attention(spec), &inputs, None);
    let mut operands = vec![tensor(&[batch, heads, queries, dim_v])];
    operands.extend_from_slice(&inputs[..3]);
    operands.extend(results);
    operands.extend(mask);
    check(&Op::AttentionGrad(spec), &operands, tolerance);
}

#[test]
fn attention_kernels_support_any_sizes() {
    attention([1, 2, 2, 70, 67, 32, 32], Some(0), None, DType::F32);
    attention([2, 4, 2, 33, 40, 20, 70], None, None, DType::BF16);
    attention([1, 2, 1, 20, 37, 130, 5], Some(3), None, DType::F16);
    attention([1, 2, 2, 18, 19, 16, 16], Some(-2), None, DType::F64);
}

#[test]
fn few_queries_split_the_keys() {
    attention([1, 4, 1, 1, 300, 16, 16], None, None, DType::F32);
    attention([1, 4, 2, 2, 200, 16, 8], Some(150), Some((&[1, 1, 2, 200], false)), DType::F32);
}

#[test]
fn one_warp_computes_each_row_of_few_queries() {
    attention([1, 8, 1, 1, 300, 64, 64], None, Some((&[1, 1, 1, 300], false)), DType::BF16);
    attention([2, 6, 2, 1, 70, 16, 16], None, None, DType::F16);
    attention([1, 4, 2, 3, 90, 32, 32], Some(60), Some((&[1, 4, 3, 90], true)), DType::F32);
    attention([1, 11, 1, 1, 40, 8, 8], Some(20), None, DType::F64);
    attention([1, 2, 2, 2, 9, 128, 128], Some(-1), None, DType::F32);
    attention([1, 4, 1, 2, 500, 8, 8], None, Some((&[1, 4, 2, 1], false)), DType::BF16);
}

#[test]
fn boolean_and_additive_masks() {
    attention([2, 2, 2, 9, 21, 8, 8], None, Some((&[1, 2, 9, 21], false)), DType::F32);
    attention([2, 2, 1, 9, 21, 8, 8], Some(4), Some((&[2, 1, 9, 21], true)), DType::F32);
    attention([2, 2, 2, 9, 21, 8, 8], None, Some((&[1, 1, 1, 21], true)), DType::BF16);
}

#[test]
fn library_attention_supports_strided_operands_and_additive_masks() {
    attention([2, 4, 2, 9, 11, 8, 16], Some(2), None, DType::F16);
    attention([1, 2, 2, 17, 18, 20, 8], None, Some((&[1, 1, 17, 18], false)), DType::F16);
    // All keys of the first query are masked.
    let sizes = [1, 2, 1, 16, 5, 8, 8];
    attention(sizes, Some(0), Some((&[1, 1, 1, 5], false)), DType::F16);
}
