//! The switch between hand-written CUDA and block kernels on one kind of device.

use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{
    ConvPass, ConvSpec, DType, Engine, MemoryConfig, Op, OperandType, PoolKind, PoolSpec, Reduction,
    ResizeMode, TensorData, TensorType, Value, infer,
};

fn engine(native: bool) -> Gpu<DryDriver> {
    let driver = DryDriver::new(DeviceInfo::absent("switch"), |_| Ok(Vec::new())).with_libraries();
    Gpu::new(driver, MemoryConfig::new()).with_native_kernels(native)
}

/// The names of the steps of an op on zeros.
fn steps(native: bool, op: &Op, inputs: &[TensorType]) -> Vec<String> {
    let engine = engine(native);
    let inputs: Vec<Value> = inputs.iter().map(|ty| engine.write(TensorData::zeros(*ty))).collect();
    engine.trace(true);
    let types: Vec<OperandType<'_>> = inputs.iter().map(|input| OperandType::Tensor(input.ty())).collect();
    let results = infer(op, &types).unwrap_or_else(|error| panic!("{error}"));
    let _results = engine.execute(op, inputs.iter().cloned().map(Into::into).collect(), &results);
    engine.traced().into_iter().map(|step| step.name).collect()
}

fn float<const N: usize>(shape: [usize; N]) -> TensorType {
    TensorType::new(shape, DType::F32)
}

/// One op of each file of `src/native`, except those of [`libraries_run_without_hand_written_kernels`].
#[test]
fn block_kernels_take_the_place_of_hand_written_ones() {
    let index = TensorType::new([3], DType::I32);
    let sort = |k: Option<usize>| match k {
        Some(k) => Op::TopK { axis: 0, k, largest: true, index: DType::I32 },
        None => Op::Sort { axis: 0, descending: false, index: DType::I32 },
    };
    let scan = Op::Scan { reduction: Reduction::Sum, axis: 1, reverse: false, exclusive: false };
    let resize = Op::Resize { size: vec![9, 9], mode: ResizeMode::Linear, align_corners: false };
    let ops = [
        (Op::Take { axis: 0 }, vec![float([8, 8]), index]),
        (sort(None), vec![float([100])]),
        (sort(Some(4)), vec![float([100])]),
        (scan, vec![float([4096, 4])]),
        (Op::Pool(PoolSpec::new(PoolKind::Max, &[2, 2])), vec![float([1, 2, 4, 4])]),
        (resize, vec![float([1, 2, 4, 4])]),
        (Op::MatMul, vec![float([1, 64]), float([64, 64])]),
    ];
    for (op, inputs) in ops {
        let hand_written = |native| {
            let names = steps(native, &op, &inputs);
            assert!(!names.is_empty(), "{op:?}");
            names.iter().any(|name| name.starts_with("kiln_"))
        };
        assert!(hand_written(true), "{op:?} runs no hand-written kernel");
        assert!(!hand_written(false), "{op:?} runs a hand-written kernel");
    }
}

/// The kernels around a library's convolution have no block form: generated ones run instead.
#[test]
fn libraries_run_without_hand_written_kernels() {
    let half = |shape: [usize; 4]| TensorType::new(shape, DType::F16);
    let conv = Op::Conv { spec: ConvSpec::new(2), pass: ConvPass::Forward };
    for (inputs, kernel) in [
        ([half([2, 16, 8, 8]), half([16, 16, 3, 3])], "kiln_transpose"),
        ([half([2, 3, 8, 8]), half([16, 3, 3, 3])], "kiln_pad_channels"),
    ] {
        assert!(steps(true, &conv, &inputs).iter().any(|name| name == kernel), "no {kernel}");
        let names = steps(false, &conv, &inputs);
        assert!(!names.is_empty() && names.iter().all(|name| !name.starts_with("kiln_")), "{names:?}");
    }
}
