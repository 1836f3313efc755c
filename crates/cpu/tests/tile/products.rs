//! Regions with a matmul or a convolution.

use super::*;

#[test]
fn epilogues_of_matmuls_and_convolutions() {
    for [m, k, n] in [[1, 1, 1], [5, 7, 3], [100, 33, 300]] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let types = [ty(&[m, k], dtype), ty(&[k, n], dtype), ty(&[n], dtype), ty(&[m, n], dtype)];
            let mut case = case(format!("{dtype} {m}x{k}x{n}"), &types, |v| {
                let y = v[0].matmul(&v[1]);
                let y = &y + &v[2].broadcast(y.shape());
                vec![&y.tanh() + &v[3], y]
            });
            case.tolerance *= 4.0;
            case.check();
        }
    }
    let spec =
        ConvSpec { stride: vec![1, 1], padding: vec![(1, 1), (1, 1)], dilation: vec![1, 1], groups: 1 };
    let types = [ty(&[2, 3, 9, 8], DType::F32), ty(&[4, 3, 3, 3], DType::F32), ty(&[4, 1, 1], DType::F32)];
    let op = Op::Conv { spec, pass: ConvPass::Forward };
    let program = Recorder::trace(&types, |v| {
        let y = v[0].apply(op, &[&v[1]]);
        vec![(&y + &v[2].broadcast(y.shape())).max(&y.scalar(0.0))]
    });
    let mut case = case("convolution", &types, |v| vec![v[0].clone()]);
    case.op = FusedOp::new(program);
    case.tolerance *= 4.0;
    case.check();
}

/// The matmul reads the integers if the region has the pattern, also after a flag operand. Without a pattern, the
/// region runs op by op, with the same results.
#[test]
fn the_dequantize_pattern_reads_quantized_weights() {
    let types = [
        ty(&[1], DType::Bool),
        ty(&[3, 12], DType::F32),
        ty(&[10, 12], DType::I8),
        ty(&[5, 4], DType::F32),
        ty(&[5, 4], DType::I8),
    ];
    let plain = case("quantised", &types, |v| {
        vec![v[1].matmul(&v[2].apply(Op::Dequantize, &[&v[3], &v[4]]).transpose())]
    });
    let guarded = case("quantised behind a flag", &types, |v| {
        let y = v[1].matmul(&v[2].apply(Op::Dequantize, &[&v[3], &v[4]]).transpose());
        vec![v[0].reshape([1, 1]).broadcast(y.shape()).select(&y, &y.scalar(0.0))]
    });
    for mut case in [plain, guarded] {
        let pattern = kiln_kernel::match_quantized_matmul(case.op.program()).unwrap();
        for flag in [true, false] {
            case.inputs[0] = TensorData::new(vec![flag], [1]).unwrap();
            for pattern in [Pattern::Loop, Pattern::QuantizedMatMul(pattern)] {
                let cpu = Cpu::with_threads(1);
                case.op = FusedOp::with_pattern(case.op.shared().clone(), pattern).unwrap();
                case.check_in(&cpu, MemoryLayout::Owned, "");
                let is_read = *case.op.pattern() != Pattern::Loop;
                let is_whole = case.name == "quantised" || flag;
                assert!(!is_whole || cpu.compiled_regions() == usize::from(is_read), "{}", case.name);
            }
        }
    }
}
