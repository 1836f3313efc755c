//! Expansions on the reference engine: edge shapes, engines with few dtypes, and the layer itself.

use crate::numeric::{Fill, check, minimal, run, same};
use kiln_ir::{
    Custom, CustomOp, DType, Engine, Error, Expand, FusedOp, MINIMAL, Op, OpKind, OperandType, Operands,
    Program, Recorder, Result, ResultTypes, TensorData, TensorType, Value, Var, block_on, expand_program,
    infer, verify,
};
use kiln_reference::{Limited, Reference};
use std::sync::Arc;

/// Programs of one op each: inputs, result types, and the op with its attributes, separated by `$`.
const EDGES: &[&str] = &[
    // Empty tensors, one element, and rank 0.
    "f32[0, 3] $ f32[0, 3] $ softmax %0 {axis = 1}",
    "f32[3, 0] $ f32[3, 0] $ log_softmax %0 {axis = 1}",
    "f32[1] $ f32[1], i32[1] $ sort %0 {axis = 0, descending = false, index = i32}",
    "f32[2, 0] $ f32[2, 0], i32[2, 0] $ sort %0 {axis = 1, descending = true, index = i32}",
    "bool[3, 17] $ bool[3, 17], i32[3, 17] $ sort %0 {axis = 1, descending = true, index = i32}",
    "u64[40] $ u64[40], i64[40] $ sort %0 {axis = 0, descending = true, index = i64}",
    "f16[9, 2] $ f16[0, 2], i32[0, 2] $ topk %0 {axis = 0, k = 0, largest = true, index = i32}",
    "f64[2, 33, 2] $ f64[2, 5, 2], i32[2, 5, 2] $ topk %0 {axis = 1, k = 5, largest = false, index = i32}",
    "f32[] $ f32[] $ pad %0, 1.5 {low = [], high = []}",
    "f32[1, 4] $ f32[2, 4] $ pad %0, 1.5 {low = [1, 0], high = [0, 0], interior = [3, 0]}",
    "bool[3] $ bool[7] $ pad %0, true {low = [0], high = [0], interior = [2]}",
    "f32[0, 2] $ f32[1, 2] $ pad %0, nan {low = [1, 0], high = [0, 0], interior = [2, 0]}",
    "i32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3] $ i32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 7] $ pad %0, 9 \
     {low = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], high = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], \
      interior = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]}",
    "i32[1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 3] $ i32[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 2] $ windows %0 \
     {axis = 9, size = 2, step = 3, dilation = 1}",
    "bool[10] $ bool[3, 4] $ windows %0 {axis = 0, size = 4, step = 3, dilation = 1}",
    "f32[10] $ f32[3, 2] $ windows %0 {axis = 0, size = 2, step = 3, dilation = 1}",
    "f32[10] $ f32[4, 4] $ windows %0 {axis = 0, size = 4, step = 1, dilation = 2}",
    "f32[20] $ f32[6, 10] $ windows %0 {axis = 0, size = 10, step = 2, dilation = 1}",
    "f32[3, 0] $ f32[2, 0, 2] $ windows %0 {axis = 0, size = 2, step = 1, dilation = 1}",
    "bool[3, 5] $ bool[3, 5] $ scan_min %0 {axis = 1, reverse = true, exclusive = false}",
    "bool[3, 5] $ bool[3, 5] $ scan_max %0 {axis = 1, reverse = false, exclusive = true}",
    "i8[7] $ i8[7] $ scan_prod %0 {axis = 0, reverse = false, exclusive = true}",
    "u16[9] $ u16[9] $ scan_sum %0 {axis = 0, reverse = true, exclusive = true}",
    "f32[2, 0] $ f32[2, 0] $ scan_sum %0 {axis = 1, reverse = false, exclusive = true}",
    "f64[1, 1] $ f64[1, 1] $ scan_sum %0 {axis = 1, reverse = false, exclusive = true}",
    "bool[4, 2] $ i32[4, 1] $ argmax %0 {axis = 1, index = i32}",
    "f16[4, 9] $ i64[1, 9] $ argmin %0 {axis = 0, index = i64}",
    "f32[0, 3] $ i32[0, 1] $ argmin %0 {axis = 1, index = i32}",
    // Indexing; the integers of all inputs are in 0..3.
    "f32[300], u8[4] $ f32[4] $ take %0, %1 {axis = 0}",
    "f32[3, 2], i32[] $ f32[2] $ take %0, %1 {axis = 0}",
    "bool[2, 3], i8[2, 0] $ bool[2, 2, 0] $ take %0, %1 {axis = 1}",
    "u64[2, 3, 2], i32[2, 4, 2] $ u64[2, 4, 2] $ gather %0, %1 {axis = 1}",
    "bool[3], i32[5], bool[5] $ bool[3] $ put %0, %1, %2 {axis = 0, mode = set}",
    "f32[3], i32[0], f32[0] $ f32[3] $ put %0, %1, %2 {axis = 0, mode = set}",
    "f32[3], i32[0], f32[0] $ f32[3] $ put %0, %1, %2 {axis = 0, mode = max}",
    "i64[2, 3], u8[2, 2], i64[2, 2, 2] $ i64[2, 3] $ put %0, %1, %2 {axis = 1, mode = mul}",
    "bf16[2, 3, 2], i32[2, 2, 2], bf16[2, 2, 2] $ bf16[2, 3, 2] $ scatter %0, %1, %2 {axis = 1, mode = set}",
    "f64[3, 3], i32[4, 3], f64[4, 3] $ f64[3, 3] $ scatter %0, %1, %2 {axis = 0, mode = min}",
    "i32[3, 4], i32[0, 4] $ i32[3, 4] $ slice_update %0, %1 {start = [1, 0], len = [0, 4], mode = set}",
    "i32[], i32[] $ i32[] $ slice_update %0, %1 {start = [], len = [], mode = mul}",
    "f32[5, 5], f32[1, 3] $ f32[5, 5] $ slice_update %0, %1 \
     {start = [4, 4], len = [1, 3], step = [-7, -1], mode = min}",
    // Contractions.
    "f32[2, 0], f32[0, 3] $ f32[2, 3] $ matmul %0, %1",
    "i32[0, 2, 3], i32[0, 3, 2] $ i32[0, 2, 2] $ matmul %0, %1",
    "u8[2, 3], u8[3, 1] $ i32[2, 1] $ matmul %0, %1",
    "f16[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3], f16[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 2] $ \
     f16[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2] $ matmul %0, %1",
    "f32[2, 3, 4, 4, 4], f32[3, 1, 2, 1, 3] $ f32[2, 3, 2, 4, 4] $ conv %0, %1 \
     {stride = [2, 1, 1], padding = [[0, 1], [0, 0], [1, 1]], dilation = [1, 2, 1], groups = 3}",
    "f16[0, 2, 5], f16[4, 2, 3] $ f16[0, 4, 3] $ conv %0, %1 \
     {stride = [1], padding = [[0, 0]], dilation = [1], groups = 1}",
    "f32[1, 1, 2], f32[1, 1, 2] $ f32[1, 1, 7] $ conv_input %0, %1 \
     {stride = [3], padding = [[0, 0]], dilation = [2], groups = 1, size = [7]}",
    "f32[1, 2, 3], f32[2, 1, 2] $ f32[1, 1, 2] $ conv_input %0, %1 \
     {stride = [2], padding = [[3, 2]], dilation = [1], groups = 1, size = [2]}",
    "f64[2, 2, 7], f64[2, 4, 2] $ f64[4, 1, 3] $ conv_weight %0, %1 \
     {stride = [3], padding = [[0, 1]], dilation = [2], groups = 2, size = [3]}",
    "f32[1, 1, 1], f32[1, 1, 1] $ f32[1, 1, 1] $ conv_weight %0, %1 \
     {stride = [5], padding = [[0, 0]], dilation = [1], groups = 1, size = [1]}",
    // Pooling.
    "u8[1, 1, 5] $ u8[1, 1, 3] $ max_pool %0 \
     {window = [2], stride = [2], padding = [[0, 0]], overhang = [1], dilation = [1]}",
    "f32[1, 2, 5] $ f32[1, 2, 3] $ avg_pool %0 \
     {window = [2], stride = [2], padding = [[0, 0]], overhang = [1], dilation = [1], include_padding = true}",
    "f32[2, 2, 4, 3, 5] $ f32[2, 2, 2, 2, 5] $ max_pool %0 {window = [2, 2, 1], stride = [2, 1, 1], \
     padding = [[0, 0], [0, 0], [0, 0]], overhang = [0, 0, 0], dilation = [1, 1, 1]}",
    "f32[2, 1, 2, 2, 5], f32[2, 1, 4, 3, 5] $ f32[2, 1, 4, 3, 5] $ max_pool_grad %0, %1 {window = [2, 2, 1], \
     stride = [2, 1, 1], padding = [[0, 0], [0, 0], [0, 0]], overhang = [0, 0, 0], dilation = [1, 1, 1], \
     size = [4, 3, 5]}",
    "f16[1, 1, 3], f16[1, 1, 9] $ f16[1, 1, 9] $ max_pool_grad %0, %1 {window = [3], stride = [2], \
     padding = [[0, 0]], overhang = [0], dilation = [2], size = [9]}",
    "f32[1, 1, 3] $ f32[1, 1, 7] $ avg_pool_grad %0 {window = [3], stride = [2], padding = [[0, 0]], \
     overhang = [0], dilation = [1], include_padding = false, size = [7]}",
    "bf16[1, 1, 2] $ bf16[1, 1, 9] $ avg_pool_grad %0 {window = [2], stride = [5], padding = [[0, 0]], \
     overhang = [0], dilation = [1], include_padding = false, size = [9]}",
    "f32[1, 1, 4] $ f32[1, 1, 4] $ avg_pool_grad %0 {window = [3], stride = [1], padding = [[1, 1]], \
     overhang = [0], dilation = [1], include_padding = false, size = [4]}",
    // Composites.
    "f32[0, 4] $ f32[0, 4] $ layer_norm %0 {axes = 1, epsilon = 1e-5}",
    "f64[3, 4], f64[3, 4] $ f64[3, 4] $ rms_norm %0, %1 {axes = 2, epsilon = 0.0}",
    "f32[1, 2, 3, 4], f32[1, 2, 0, 4], f32[1, 2, 0, 5] $ f32[1, 2, 3, 5], f32[1, 2, 3] $ \
     attention %0, %1, %2 {scale = 1.0}",
    "f32[1, 0, 3, 4], f32[1, 0, 2, 4], f32[1, 0, 2, 5] $ f32[1, 0, 3, 5], f32[1, 0, 3] $ \
     attention %0, %1, %2 {scale = 1.0}",
    "bf16[1, 6, 1, 4], bf16[1, 2, 5, 4], bf16[1, 2, 5, 4] $ bf16[1, 6, 1, 4], f32[1, 6, 1] $ \
     attention %0, %1, %2 {scale = 0.5, causal = 9223372036854775807}",
    "f32[1, 1, 3, 4], f32[1, 1, 3, 4], f32[1, 1, 3, 4] $ f32[1, 1, 3, 4], f32[1, 1, 3] $ \
     attention %0, %1, %2 {scale = 0.5, causal = -9223372036854775808}",
    "f32[1, 2, 5] $ f32[1, 2, 1] $ resize %0 {mode = linear, size = [1], align_corners = true}",
    "f32[1, 2, 1] $ f32[1, 2, 4] $ resize %0 {mode = cubic, size = [4], align_corners = false}",
    "f32[1, 2, 1] $ f32[1, 2, 4] $ resize %0 {mode = linear, size = [4], align_corners = true}",
    "f64[1, 2, 2, 3, 3] $ f64[1, 2, 4, 3, 2] $ resize %0 {mode = linear, size = [4, 3, 2], align_corners = false}",
    "f32[1, 1, 5] $ f32[1, 1, 0] $ resize %0 {mode = linear, size = [0], align_corners = false}",
    "f32[1, 1, 5] $ f32[1, 1, 0] $ resize %0 {mode = nearest, size = [0], align_corners = false}",
    "f32[0, 1, 5] $ f32[0, 1, 3] $ resize %0 {mode = cubic, size = [3], align_corners = true}",
    "f32[1], f32[1] $ f32[1], f32[1] $ fft %0, %1 {axis = 0, inverse = true}",
    "f32[2, 0], f32[2, 0] $ f32[2, 0], f32[2, 0] $ fft %0, %1 {axis = 1, inverse = true}",
    "f32[1] $ f32[1], f32[1] $ fft_from_real %0 {axis = 0, inverse = false}",
    "f32[0, 4] $ f32[0, 3], f32[0, 3] $ fft_from_real %0 {axis = 1, inverse = true}",
    "f64[2, 7, 3] $ f64[2, 4, 3], f64[2, 4, 3] $ fft_from_real %0 {axis = 1, inverse = false}",
    "f32[1], f32[1] $ f32[1] $ fft_to_real %0, %1 {axis = 0, inverse = true, points = 1}",
    "f32[2, 4], f32[2, 4] $ f32[2, 6] $ fft_to_real %0, %1 {axis = 1, inverse = true, points = 6}",
    "f32[4, 2], f32[4, 2] $ f32[7, 2] $ fft_to_real %0, %1 {axis = 0, inverse = false, points = 7}",
    "f16[3, 7, 2], f16[3, 7, 2] $ f16[3, 7, 2], f16[3, 7, 2] $ fft %0, %1 {axis = 1, inverse = false}",
    "u16[0, 4], f32[0, 3] $ f32[0, 4] $ dequantize %0, %1",
    "i32[4, 4], f32[2, 4], i32[2, 4] $ f32[4, 4] $ dequantize %0, %1, %2",
    "f32[], f32[], i16[] $ i16[] $ quantize %0, %1, %2",
    "f32[2], f32[1], i32[1] $ i32[2] $ quantize %0, %1, %2",
    " $ f16[5, 3] $ random_uniform 3",
    " $ bf16[5, 3] $ random_uniform 3",
    " $ i8[] $ random_bits -1",
    " $ u64[3] $ random_bits 18446744073709551615u",
    " $ f64[11] $ random_normal 0",
    " $ f16[4] $ random_normal 0",
    "u64[] $ f32[0, 3] $ random_normal %0",
    "u64[] $ f32[2, 3] $ random_normal %0",
];

/// Programs with floats of NaN, infinities, signed zeros and ties.
const SPECIAL: &[&str] = &[
    "f32[9, 4] $ f32[9, 4] $ softmax %0 {axis = 1}",
    "f16[9, 2] $ f16[9, 2] $ log_softmax %0 {axis = 1}",
    "f64[5, 4] $ i32[5, 1] $ argmin %0 {axis = 1, index = i32}",
    "bf16[20, 2] $ i32[20, 1] $ argmax %0 {axis = 1, index = i32}",
    "f16[3, 30] $ f16[3, 30], i32[3, 30] $ sort %0 {axis = 1, descending = true, index = i32}",
    "f64[30] $ f64[30], i32[30] $ sort %0 {axis = 0, descending = false, index = i32}",
    "bf16[3, 9] $ bf16[3, 4], i32[3, 4] $ topk %0 {axis = 1, k = 4, largest = false, index = i32}",
    "f32[4, 9] $ f32[4, 9] $ scan_min %0 {axis = 1, reverse = true, exclusive = true}",
    "f32[4, 9] $ f32[4, 9] $ scan_prod %0 {axis = 1, reverse = false, exclusive = false}",
    "f32[3, 5], i32[9] $ f32[3, 9] $ take %0, %1 {axis = 1}",
    "bf16[3, 5], i32[9, 5] $ bf16[9, 5] $ gather %0, %1 {axis = 0}",
    "f32[3, 4], i32[5], f32[5, 4] $ f32[3, 4] $ put %0, %1, %2 {axis = 0, mode = set}",
    "f32[3, 4], i32[2], f32[2, 4] $ f32[3, 4] $ put %0, %1, %2 {axis = 0, mode = min}",
    "f64[3, 4], i32[2, 4], f64[2, 4] $ f64[3, 4] $ scatter %0, %1, %2 {axis = 0, mode = add}",
    "f32[5], f32[2] $ f32[5] $ slice_update %0, %1 {start = [1], len = [2], step = [3], mode = max}",
    "f32[2, 3, 8, 8] $ f32[2, 3, 4, 4] $ max_pool %0 {window = [3, 3], stride = [2, 2], \
     padding = [[1, 1], [1, 1]], overhang = [0, 0], dilation = [1, 1]}",
    "f32[2, 3, 4, 4], f32[2, 3, 8, 8] $ f32[2, 3, 8, 8] $ max_pool_grad %0, %1 {window = [3, 3], \
     stride = [2, 2], padding = [[1, 1], [1, 1]], overhang = [0, 0], dilation = [1, 1], size = [8, 8]}",
    "f32[20], f32[1], i8[1] $ i8[20] $ quantize %0, %1, %2",
    "f32[9, 4], f32[4] $ f32[9, 4] $ rms_norm %0, %1 {axes = 1, epsilon = 0.1}",
    "f32[1, 1, 6] $ f32[1, 1, 9] $ resize %0 {mode = nearest, size = [9], align_corners = false}",
];

/// Empty tensors whose other axes have almost as many elements as a machine word can count bytes.
const HUGE: &[&str] = &[
    "f32[0, 1099511627776, 1048576] $ f32[0, 1099511627776, 1048576] $ \
     softmax %0 {axis = 0}",
    "f32[0, 1099511627776, 1048576] $ i64[0, 1, 1048576] $ \
     argmax %0 {axis = 1, index = i64}",
];

fn program(case: &str) -> std::result::Result<Program, String> {
    let parts: Vec<&str> = case.split('$').map(str::trim).collect();
    let count = |list: &str| list.matches('[').count();
    let slots = |list: &str, first: usize| {
        let types: Vec<&str> = list.split_inclusive(']').collect();
        let slot = |(i, ty): (usize, &&str)| format!("%{}: {}", first + i, ty.trim_start_matches([',', ' ']));
        types.iter().enumerate().map(slot).collect::<Vec<_>>().join(", ")
    };
    let inputs = if parts[0].is_empty() { String::new() } else { slots(parts[0], 0) };
    let (first, results) = (count(&inputs), count(parts[1]));
    let outputs: Vec<String> = (first..first + results).map(|slot| format!("%{slot}")).collect();
    let text = format!(
        "program({inputs}) {{ {} = {} return {} }}",
        slots(parts[1], first),
        parts[2],
        outputs.join(", ")
    );
    let program = Program::parse(&text).map_err(|error| format!("{text}\n{error}"))?;
    verify(&program).map_err(|error| format!("{text}\n{error}"))?;
    Ok(program)
}

#[test]
fn expansions_match_their_ops() {
    let mut failures = Vec::new();
    let cases = EDGES.iter().map(|case| (case, false)).chain(SPECIAL.iter().map(|case| (case, true)));
    for (case, special) in cases {
        let fill = Fill { ints: 0..3, positive: vec![1], special };
        if let Err(problem) = program(case).and_then(|program| check(&program, &fill)) {
            failures.push(format!("{case}\n{problem}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn expansions_are_valid_programs_of_minimal_ops() {
    for case in EDGES.iter().chain(HUGE) {
        let expanded = expand_program(&program(case).unwrap(), MINIMAL).unwrap();
        verify(&expanded).unwrap_or_else(|error| panic!("{case}\n{error}\n{expanded}"));
        assert!(expanded.instructions.iter().all(|i| MINIMAL.contains(i.op.kind())), "{case}\n{expanded}");
    }
}

#[test]
fn programs_with_mutated_attributes_never_panic() {
    let mut valid = 0;
    for case in EDGES {
        for (place, digit) in case.char_indices().filter(|(_, c)| c.is_ascii_digit()) {
            for other in ["0", "1", "2", "3", "5", "12", "9223372036854775807"] {
                let changed = format!("{}{other}{}", &case[..place], &case[place + digit.len_utf8()..]);
                let Ok(program) = program(&changed) else { continue };
                program.cost();
                // Long axes would make long programs.
                if program.slot_types().iter().all(|ty| ty.shape.iter().all(|&length| length < 1000)) {
                    let expanded = expand_program(&program, MINIMAL).unwrap();
                    verify(&expanded).unwrap_or_else(|error| panic!("{changed}\n{error}\n{expanded}"));
                    valid += 1;
                }
            }
        }
    }
    assert!(valid > 1000, "{valid}");
}

#[test]
fn random_ops_expand_without_64_bit_integers() {
    for case in
        [" $ u32[9] $ random_bits 77", " $ f32[9] $ random_uniform -77", " $ f32[9] $ random_normal 5"]
    {
        let program = program(case).unwrap();
        let engine = Expand::new(minimal(&[DType::U64, DType::I64, DType::F64]));
        let (expected, found) =
            (run(&program, &Reference::new(), &[]).unwrap(), run(&program, &engine, &[]).unwrap());
        same(&expected[0], &found[0], false).unwrap_or_else(|problem| panic!("{case}: {problem}"));
    }
}

#[test]
fn expand_supports_every_op_and_the_inner_dtypes() {
    let engine = Expand::new(minimal(&[DType::F64]));
    assert!(OpKind::ALL.iter().all(|kind| engine.caps().native.contains(*kind)));
    assert_eq!(engine.caps().dtypes, engine.inner().caps().dtypes);
    assert_eq!(engine.caps().name, "minimal");
}

/// Runs an op on operands and reads its first result.
fn execute(engine: &dyn Engine, op: &Op, inputs: Operands) -> Result<TensorData> {
    let types = infer(op, &OperandType::list(&inputs))?;
    let mut values = engine.execute(op, inputs, &types);
    block_on(engine.read(values.remove(0)))
}

#[test]
fn a_missing_dtype_is_an_error_that_names_engine_and_op() {
    let engine = Expand::new(minimal(&[DType::F64]));
    let x = engine.write(TensorData::from([1.0f32]));
    let error = execute(&engine, &Op::Cast(DType::F64), [x.into()].into_iter().collect()).unwrap_err();
    assert!(error.to_string().starts_with("[minimal] does not run `cast`: f64 is not supported"), "{error}");
}

#[test]
fn poison_propagates_through_expansions() {
    let engine = Expand::new(minimal(&[]));
    let error = Error::device("test", "lost");
    let x = Value::poisoned(TensorType::new([2, 2], DType::F32), error.clone());
    let operands = || -> Operands { [x.clone().into(), x.clone().into()].into_iter().collect() };
    assert_eq!(execute(&engine, &Op::MatMul, operands()).unwrap_err(), error);
    let region = Recorder::trace(&[*x.ty()], |x| vec![x[0].exp().sum(&[0])]);
    let one = [x.clone().into()].into_iter().collect();
    assert_eq!(execute(&engine, &Op::Fused(FusedOp::new(region)), one).unwrap_err(), error);
}

/// A custom op that doubles its operand, by the enabled ways.
#[derive(Debug)]
struct Double {
    expands: bool,
    evaluates: bool,
    wrong: bool,
}

impl CustomOp for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn attributes(&self) -> String {
        format!("{} {} {}", self.expands, self.evaluates, self.wrong)
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let ty = inputs[0].tensor().ok_or_else(|| Error::type_error("double", "needs a tensor", inputs))?;
        Ok([*ty].into_iter().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        let double = &inputs[0] + &inputs[0];
        self.expands.then(|| vec![if self.wrong { double.sum(&[0]) } else { double }])
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let doubled: Vec<f32> = inputs[0].to_vec::<f32>().iter().map(|x| x * 2.0).collect();
        let shape: Vec<usize> = if self.wrong { vec![1, 2] } else { inputs[0].shape().to_vec() };
        self.evaluates.then(|| Ok(vec![TensorData::new(doubled, shape)?]))
    }
}

fn double(expands: bool, evaluates: bool, wrong: bool) -> Result<TensorData> {
    let engine = Expand::new(minimal(&[]));
    let x = engine.write(TensorData::from([1.0f32, 2.0]));
    let op = Op::Custom(Custom::new(Double { expands, evaluates, wrong }));
    execute(&engine, &op, [x.into()].into_iter().collect())
}

#[test]
fn custom_ops_expand_or_are_evaluated() {
    let doubled = TensorData::from([2.0f32, 4.0]);
    assert_eq!(double(true, false, false).unwrap(), doubled);
    assert_eq!(double(false, true, false).unwrap(), doubled);
    let error = double(false, false, false).unwrap_err().to_string();
    assert!(error.starts_with("[minimal] does not run `double`"), "{error}");
    assert!(error.contains("no evaluation (operands: f32[2])"), "{error}");
    for (expands, evaluates) in [(true, false), (false, true)] {
        let error = double(expands, evaluates, true).unwrap_err().to_string();
        assert!(error.contains("instead of f32[2]"), "{error}");
    }
}

#[test]
fn a_custom_op_without_expansion_is_kept_or_an_error() {
    let op = Op::Custom(Custom::new(Double { expands: false, evaluates: true, wrong: false }));
    let program = Recorder::trace(&[TensorType::new([2], DType::F32)], |x| vec![x[0].apply(op, &[])]);
    assert!(expand_program(&program, MINIMAL).is_err());
    assert_eq!(expand_program(&program, kiln_ir::OpSet::ALL).unwrap(), program);
}

#[test]
fn an_op_that_is_neither_native_nor_expandable_is_an_error() {
    let nothing = Limited::new(Arc::new(Reference::new()), kiln_ir::OpSet::default());
    let engine = Expand::new(nothing);
    let x = engine.write(TensorData::from([[1.0f32, 2.0]]));
    let error = execute(&engine, &Op::Softmax { axis: 1, log: false }, [x.into()].into_iter().collect());
    assert!(error.unwrap_err().to_string().contains("does not run `reduce_max`"));
}
