//! Tensors over the limit of a binding, which kernels bind in parts, against the reference. A small limit gives small
//! tensors parts. On a machine without an adapter, the tests print the reason and pass.

use kiln_gpu::Driver;
use kiln_ir::{
    Axes, Binary, Comparison, DType, Engine, Expand, FusedOp, Op, Operand, OperandType, Recorder, Reduction,
    Result, SliceAxis, TensorData, TensorType, Unary, UpdateMode, Value, block_on, infer,
};
use kiln_suite::engines::REFERENCE;
use kiln_wgpu::{Api, Profile, WgpuDevice, WgpuOptions};

/// The bytes of a binding: 1024 elements of 4 bytes.
const LIMIT: u64 = 4096;

/// The device with small bindings; `None` without an adapter.
fn engine(profile: Profile) -> Option<Expand> {
    let options = WgpuOptions::default().with_profile(profile).with_binding_bytes(LIMIT);
    match kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options) {
        Ok(engine) => {
            assert_eq!(engine.driver().info().binding_bytes, Some(LIMIT as usize));
            Some(Expand::around(engine))
        }
        Err(reason) => {
            println!("skipped: no adapter: {reason}");
            None
        }
    }
}

/// Runs the first op on the operands, and each other op on the first result of the one before. Returns the results of
/// the last.
fn run(engine: &dyn Engine, ops: &[Op], operands: &[TensorData]) -> Result<Vec<TensorData>> {
    let mut values: Vec<Value> = operands.iter().map(|data| engine.write(data.clone())).collect();
    for (place, op) in ops.iter().enumerate() {
        if place > 0 {
            values.truncate(1);
        }
        let types = {
            let given = values.iter().map(|value| OperandType::Tensor(value.ty()));
            infer(op, &given.collect::<Vec<_>>())?
        };
        values = engine.execute(op, values.into_iter().map(Operand::Value).collect(), &types).into_vec();
    }
    values.into_iter().map(|value| block_on(engine.read(value))).collect()
}

/// Checks a chain of ops against the reference. All values are small integers, so that every result is exact.
fn check(engine: &Expand, name: &str, ops: &[Op], operands: &[TensorData]) {
    let expected = run(&*(REFERENCE.open)(), ops, operands).unwrap();
    let found = run(engine, ops, operands).unwrap_or_else(|error| panic!("{name}: {error}"));
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(found == expected, "{name}: result {place} differs from the reference");
    }
}

/// Small numbers in a fixed order that repeats late.
fn numbers(count: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| (i * 7919 + i / 13) % most)
}

fn floats<const N: usize>(shape: [usize; N]) -> TensorData {
    let values: Vec<f32> = numbers(shape.iter().product(), 17).map(|x| x as f32 - 8.0).collect();
    TensorData::new(values, shape).unwrap()
}

fn indices<const N: usize>(shape: [usize; N], below: usize) -> TensorData {
    let values: Vec<i32> = numbers(shape.iter().product(), below).map(|x| x as i32).collect();
    TensorData::new(values, shape).unwrap()
}

fn bytes<const N: usize>(shape: [usize; N]) -> TensorData {
    let values: Vec<u8> = numbers(shape.iter().product(), 200).map(|x| x as u8).collect();
    TensorData::new(values, shape).unwrap()
}

fn slice(start: usize, len: usize, step: isize) -> Op {
    Op::Slice(vec![SliceAxis { start, len, step }])
}

fn sum(axes: &[usize]) -> Op {
    Op::Reduce { reduction: Reduction::Sum, axes: Axes::new(axes) }
}

#[test]
fn generated_kernels_read_and_write_parts() {
    let Some(engine) = engine(Profile::Adapter) else { return };
    let check = |name: &str, ops: &[Op], operands: &[TensorData]| check(&engine, name, ops, operands);
    check("add", &[Op::Binary(Binary::Add)], &[floats([3000]), floats([3000])]);
    check("add of an odd length", &[Op::Binary(Binary::Add)], &[floats([2999]), floats([2999])]);
    check("sum of rows", &[sum(&[1])], &[floats([50, 100])]);
    check("sum of columns", &[sum(&[0])], &[floats([50, 100])]);
    check("sum of all", &[sum(&[0, 1])], &[floats([50, 300])]);
    check("many sums", &[sum(&[1])], &[floats([3000, 3])]);
    check("transpose", &[Op::Permute(Axes::new(&[1, 0])), Op::Copy], &[floats([60, 70])]);
    check("cast of u8", &[Op::Cast(DType::F32)], &[bytes([10_000])]);
    check("cast to u8", &[Op::Cast(DType::U8), Op::Cast(DType::I32)], &[indices([10_000], 200)]);
    check("cast to f16", &[Op::Cast(DType::F16), Op::Cast(DType::F32)], &[floats([9000])]);
    check("comparison", &[Op::Compare(Comparison::Lt)], &[bytes([20_000]), bytes([20_000])]);
    check("concatenation", &[Op::Concat { axis: 1 }], &[floats([30, 50]), floats([30, 90])]);
}

#[test]
fn views_bind_what_they_reach() {
    let Some(engine) = engine(Profile::Adapter) else { return };
    let check = |name: &str, ops: &[Op], operands: &[TensorData]| check(&engine, name, ops, operands);
    let neg = Op::Unary(Unary::Neg);
    check("a part of a tensor", &[slice(1500, 100, 1), neg.clone()], &[floats([6000])]);
    check("a slice in two parts", &[slice(1000, 1100, 1), neg.clone()], &[floats([6000])]);
    check("every other element", &[slice(3, 2900, 2), neg.clone()], &[floats([6000])]);
    check("backwards", &[slice(5990, 2900, -2), neg.clone()], &[floats([6000])]);
    check("a short slice backwards", &[slice(3000, 20, -3), neg.clone()], &[floats([6000])]);
    check("bytes at an odd place", &[slice(4999, 3001, 1), Op::Cast(DType::I32)], &[bytes([9000])]);
    let update = Op::SliceUpdate {
        slices: vec![SliceAxis { start: 1001, len: 2000, step: 2 }],
        mode: UpdateMode::Set,
    };
    check("an update of a slice", &[update], &[floats([6000]), floats([2000])]);
}

#[test]
fn block_kernels_read_and_write_parts() {
    let Some(engine) = engine(Profile::Adapter) else { return };
    let check = |name: &str, ops: &[Op], operands: &[TensorData]| check(&engine, name, ops, operands);
    let table = || floats([60, 64]);
    check("take", &[Op::Take { axis: 0 }], &[table(), indices([50], 60)]);
    check("gather", &[Op::Gather { axis: 0 }], &[table(), indices([60, 64], 60)]);
    check("gather of bytes", &[Op::Gather { axis: 0 }], &[bytes([150, 64]), indices([90, 64], 150)]);
    for mode in [UpdateMode::Set, UpdateMode::Add, UpdateMode::Max] {
        let name = format!("scatter {mode:?}");
        check(&name, &[Op::Scatter { axis: 0, mode }], &[table(), indices([60, 64], 60), table()]);
        let name = format!("put {mode:?}");
        check(&name, &[Op::Put { axis: 0, mode }], &[table(), indices([50], 60), floats([50, 64])]);
    }
    check("matmul", &[Op::MatMul], &[floats([40, 64]), floats([64, 48])]);
    check("batched matmul", &[Op::MatMul], &[floats([3, 40, 32]), floats([3, 32, 48])]);
    let sort = |axis| Op::Sort { axis, descending: false, index: DType::I32 };
    check("sort of a line", &[sort(0)], &[floats([5000])]);
    check("sort of rows", &[sort(1)], &[floats([20, 300])]);
    check("sort of bytes", &[sort(0)], &[bytes([10_000])]);
    let scan = Op::Scan { reduction: Reduction::Sum, axis: 0, reverse: false, exclusive: false };
    check("scan", &[scan], &[indices([5000], 17)]);
}

/// The region of a sum of five tensors, of two parts each, needs at least ten bindings. Each of its ops needs six.
#[test]
fn a_region_with_too_many_bindings_runs_op_by_op() {
    let Some(engine) = engine(Profile::WebGpu) else { return };
    let ty = TensorType::new([2000], DType::F32);
    let program = Recorder::trace(&[ty; 5], |x| vec![&x[0] + &x[1] + &x[2] + &x[3] + &x[4]]);
    let operands = [(); 5].map(|()| floats([2000]));
    check(&engine, "a sum of five", &[Op::Fused(FusedOp::new(program))], &operands);
}

#[test]
fn an_op_with_too_many_bindings_is_an_error_of_its_results() {
    let Some(engine) = engine(Profile::WebGpu) else { return };
    let error = run(&engine, &[Op::Binary(Binary::Add)], &[floats([6000]), floats([6000])]).unwrap_err();
    for part in ["`add`", "24000", "4096 bytes", "at most 8"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let error =
        run(&engine, &[Op::Gather { axis: 0 }], &[floats([6000]), indices([6000], 6000)]).unwrap_err();
    for part in ["kernel `kiln_", "4096 bytes", "at most 8"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    check(&engine, "another op", &[Op::Binary(Binary::Add)], &[floats([7]), floats([7])]);
}
