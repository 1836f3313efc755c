//! Ops on quantized blocks: expansions, inference and gradients.

use kiln_ir::{
    BlockFormat, DType, Engine, Op, OperandType, TensorData, TensorType, Var, block_on, cost, expand, infer,
    vjp,
};
use kiln_reference::Reference;

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| byte()).collect()
}

fn tensor(engine: &Reference, data: impl Into<TensorData>) -> Var<'_> {
    Var::new(engine, engine.write(data.into()))
}

fn read(engine: &Reference, var: Var<'_>) -> Vec<f32> {
    block_on(engine.read(var.into_value())).expect("a value").to_vec()
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    bytes(count, seed).into_iter().map(|byte| f32::from(byte) / 64.0 - 2.0).collect()
}

/// The expansion by integer ops decodes any bytes to the same bits, and NaN to NaN.
#[test]
fn expansions_decode_any_bytes() {
    let engine = Reference::new();
    for &format in BlockFormat::ALL {
        let shape = [3, 5, 2 * format.bytes()];
        let blocks = bytes(shape.iter().product(), 28);
        let mut expected = vec![0.0; 30 * format.len()];
        format.decode(&blocks, &mut expected);
        let op = Op::DequantizeBlocks { format, dtype: DType::F32 };
        let blocks = tensor(&engine, TensorData::new(blocks, shape).unwrap());
        let found = expand(&engine, &op, &[blocks]).expect("an expansion").remove(0);
        assert_eq!(found.ty(), TensorType::new([3, 5, 2 * format.len()], DType::F32));
        for (i, (found, expected)) in read(&engine, found).into_iter().zip(expected).enumerate() {
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{} element {i}: {found:e} instead of {expected:e}", format.name());
        }
    }
}

/// Every 16-bit scale, in blocks whose first element is the scale.
#[test]
fn expansions_decode_all_scales() {
    let engine = Reference::new();
    let format = BlockFormat::Q8_0;
    let block = |bits: u16| {
        let mut block = vec![1; format.bytes()];
        block[..2].copy_from_slice(&bits.to_le_bytes());
        block
    };
    let blocks: Vec<u8> = (0..=u16::MAX).flat_map(block).collect();
    let mut expected = vec![0.0; format.row_len(blocks.len()).unwrap()];
    format.decode(&blocks, &mut expected);
    let shape = [1 << 16, format.bytes()];
    let blocks = tensor(&engine, TensorData::new(blocks, shape).unwrap());
    let op = Op::DequantizeBlocks { format, dtype: DType::F32 };
    let found = expand(&engine, &op, &[blocks]).expect("an expansion").remove(0);
    for (found, expected) in read(&engine, found).into_iter().zip(expected) {
        assert!(found == expected || found.is_nan() && expected.is_nan(), "{found:e} {expected:e}");
    }
}

#[test]
fn matmuls_and_their_gradients() {
    let engine = Reference::new();
    let format = BlockFormat::Q4_K;
    let mut blocks = vec![0; 3 * format.bytes()];
    format.encode(&numbers(3 * 256, 3), &mut blocks);
    let mut weight = vec![0.0; 3 * 256];
    format.decode(&blocks, &mut weight);
    let (x, g) = (numbers(2 * 256, 5), numbers(6, 7));
    let inputs = [
        tensor(&engine, TensorData::new(x.clone(), [1, 2, 256]).unwrap()),
        tensor(&engine, TensorData::new(blocks, [3, format.bytes()]).unwrap()),
    ];
    let op = Op::MatMulBlocks { format };
    let y = inputs[0].apply(op.clone(), &[&inputs[1]]);
    assert_eq!(y.ty(), TensorType::new([1, 2, 3], DType::F32));
    let expanded = expand(&engine, &op, &inputs).expect("an expansion").remove(0);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let rows = x.chunks(256).flat_map(|x| weight.chunks(256).map(move |w| dot(x, w)));
    let expected: Vec<f64> = rows.collect();
    for found in [y.clone(), expanded] {
        let found = read(&engine, found);
        assert!(found.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-3), "{found:?}");
    }
    let gradient = tensor(&engine, TensorData::new(g.clone(), [1, 2, 3]).unwrap());
    let mut gradients = vjp(&op, &inputs, &[y], &[Some(gradient)], &[true, true]).unwrap();
    assert!(gradients[1].is_none());
    let found = read(&engine, gradients.remove(0).expect("the gradient of x"));
    for (i, found) in found.into_iter().enumerate() {
        let (row, column) = (i / 256, i % 256);
        let terms = (0..3).map(|k| g[row * 3 + k] * weight[k * 256 + column]);
        assert!((found - terms.sum::<f32>()).abs() < 1e-4);
    }
}

#[test]
fn inference_names_the_problem() {
    let types = |op: Op, types: &[TensorType]| {
        let operands: Vec<OperandType<'_>> = types.iter().map(OperandType::Tensor).collect();
        infer(&op, &operands).map(|types| types[0])
    };
    let f32s = |shape: &[usize]| TensorType::new(shape, DType::F32);
    let u8s = |shape: &[usize]| TensorType::new(shape, DType::U8);
    let format = BlockFormat::Q4_0;
    let dequantize = |ty: TensorType| types(Op::DequantizeBlocks { format, dtype: DType::F16 }, &[ty]);
    assert_eq!(dequantize(u8s(&[36])), Ok(TensorType::new([64], DType::F16)));
    assert_eq!(dequantize(u8s(&[2, 0, 18])), Ok(TensorType::new([2, 0, 32], DType::F16)));
    let multiply = |x: TensorType, w: TensorType| types(Op::MatMulBlocks { format }, &[x, w]);
    assert_eq!(multiply(f32s(&[4, 2, 64]), u8s(&[7, 36])), Ok(f32s(&[4, 2, 7])));
    assert_eq!(multiply(f32s(&[2, 0]), u8s(&[7, 0])), Ok(f32s(&[2, 7])));
    let problems = [
        (dequantize(f32s(&[18])), "needs the bytes of q4_0 blocks in u8, not f32"),
        (dequantize(u8s(&[20])), "a row of 20 bytes is not a whole number of q4_0 blocks of 18 bytes"),
        (dequantize(u8s(&[])), "needs at least 1 axis"),
        (types(Op::DequantizeBlocks { format, dtype: DType::I8 }, &[u8s(&[18])]), "needs a float dtype"),
        (multiply(f32s(&[64]), u8s(&[7, 36])), "needs operands of shapes [.., m, k] and [n, bytes]"),
        (multiply(f32s(&[2, 64]), u8s(&[1, 7, 36])), "needs operands of shapes [.., m, k] and [n, bytes]"),
        (multiply(f32s(&[2, 32]), u8s(&[7, 36])), "rows of x have 32 elements, rows of blocks 64"),
        (multiply(u8s(&[2, 64]), u8s(&[7, 36])), "needs a float dtype"),
    ];
    for (result, problem) in problems {
        let error = result.expect_err(problem).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn costs_count_the_bytes_of_blocks() {
    let (x, w, y) = (
        TensorType::new([2, 64], DType::F32),
        TensorType::new([7, 36], DType::U8),
        TensorType::new([2, 7], DType::F32),
    );
    let op = Op::MatMulBlocks { format: BlockFormat::Q4_0 };
    let cost = cost::cost(&op, &[(&x).into(), (&w).into()], &[y]);
    assert_eq!((cost.flops, cost.bytes), (2 * 2 * 7 * 64, 4 * 128 + 7 * 36 + 4 * 14));
}
