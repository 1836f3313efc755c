//! Attention and its gradients, by Kiln's kernels and by library calls.

use crate::host::{blocks, check, data, run};
use kiln_ir::{AttentionSpec, DType, Op, Real, TensorData};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;

/// The shape of the mask, and whether it is additive.
type Mask = Option<(&'static [usize], bool)>;

/// Attention and its gradients, with their operands. Sizes are batch, heads, key heads, queries, keys, head dim and
/// value head dim.
fn ops(sizes: [usize; 7], causal: Option<i64>, mask: Mask, dtype: DType) -> [(Op, Vec<TensorData>); 2] {
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
    let results = run(&Reference::new(), &Op::Attention(spec), &inputs, None);
    let mut operands = vec![tensor(&[batch, heads, queries, dim_v])];
    operands.extend_from_slice(&inputs[..3]);
    operands.extend(results);
    operands.extend(mask);
    [(Op::Attention(spec), inputs), (Op::AttentionGrad(spec), operands)]
}

fn attention(sizes: [usize; 7], causal: Option<i64>, mask: Mask, dtype: DType) {
    for (op, inputs) in ops(sizes, causal, mask, dtype) {
        check(&op, &inputs, Tolerance::Near { relative: 32.0, absolute: 64.0 });
    }
}

/// As [`attention`], by block kernels only: hand-written kernels would be compiled for each size. Long rows differ
/// more.
fn attention_by_blocks(sizes: [usize; 7], causal: Option<i64>, mask: Mask, dtype: DType) {
    let Some(engine) = blocks() else { return };
    let tolerance = match dtype.size() {
        2 => Tolerance::Near { relative: 32.0, absolute: 64.0 },
        _ => Tolerance::Near { relative: 64.0, absolute: 256.0 },
    };
    for (op, inputs) in ops(sizes, causal, mask, dtype) {
        let expected = run(&Reference::new(), &op, &inputs, None);
        let found = run(&*engine, &op, &inputs, None);
        for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let problem = difference(expected, found, tolerance);
            assert!(
                problem.is_none(),
                "{op:?} of {sizes:?} and mask {mask:?}, result {place}: {}",
                problem.unwrap_or_default()
            );
        }
    }
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

#[test]
fn block_kernels_support_parts_of_tiles() {
    const LENGTHS: [usize; 5] = [1, 7, 64, 65, 130];
    for queries in LENGTHS {
        for keys in LENGTHS {
            attention_by_blocks([1, 2, 2, queries, keys, 8, 8], None, None, DType::F32);
            // The last query sees the last key.
            let offset = keys as i64 - queries as i64;
            attention_by_blocks([1, 2, 1, queries, keys, 8, 8], Some(offset), None, DType::F32);
        }
    }
}

#[test]
fn block_kernels_support_all_dims_and_dtypes() {
    attention_by_blocks([1, 4, 2, 65, 130, 40, 40], Some(0), None, DType::F32);
    attention_by_blocks([2, 2, 1, 130, 65, 64, 64], Some(0), None, DType::F16);
    attention_by_blocks([1, 2, 2, 65, 64, 128, 128], None, None, DType::F32);
    attention_by_blocks([1, 2, 2, 64, 65, 128, 128], Some(1), None, DType::BF16);
    attention_by_blocks([1, 2, 1, 40, 50, 40, 64], Some(-3), None, DType::F64);
    // Beyond 16 KiB if a block held whole rows.
    attention_by_blocks([1, 1, 1, 20, 20, 300, 270], Some(0), None, DType::F32);
    attention_by_blocks([1, 1, 1, 20, 20, 256, 256], None, None, DType::F64);
}

#[test]
fn block_kernels_support_broadcast_masks() {
    let masks: [(&[usize], bool); 6] = [
        (&[2, 4, 37, 50], false),
        (&[2, 4, 37, 50], true),
        (&[1, 1, 37, 50], true),
        (&[2, 1, 1, 50], false),
        // Whole rows are masked.
        (&[1, 4, 37, 1], false),
        (&[1, 4, 37, 1], true),
    ];
    for mask in masks {
        for causal in [None, Some(13)] {
            attention_by_blocks([2, 4, 2, 37, 50, 40, 20], causal, Some(mask), DType::F32);
        }
    }
}

#[test]
fn queries_without_visible_keys_have_zeros() {
    // The first queries see no key; with the second offset, none does.
    for offset in [-20, -100] {
        attention_by_blocks([1, 2, 1, 40, 30, 8, 8], Some(offset), None, DType::F32);
    }
}
