//! A deterministic engine: sums by index in the order of the entries, and results of regions that do not depend on which ops
//! are recorded together.

use crate::host::driver::Host;
use kiln_gpu::Gpu;
use kiln_ir::{
    DType, Engine, MemoryConfig, Op, Operand, OperandType, Operands, Program, Recorder, Reduction,
    TensorData, TensorType, UpdateMode, Value, block_on, infer,
};
use kiln_reference::Reference;
use std::time::Duration;

/// Engines with hand-written and with block kernels; none without a compiler.
fn engines() -> Vec<(&'static str, Gpu<Host>)> {
    let engine = |host: Host| Gpu::new(host.in_order(), MemoryConfig::new());
    let native = Host::open().map(|host| ("native", engine(host)));
    let block = Host::open().map(|host| ("block", engine(host.without_library())));
    native.into_iter().chain(block).collect()
}

/// Numbers of very different sizes, whose sum depends on the order.
fn uneven(count: usize) -> Vec<f32> {
    let number = |i: usize| {
        let sign = if i.is_multiple_of(3) { -1.0 } else { 1.0 };
        sign * (1.0 + i as f32 * 0.37) * 10f32.powi((i * 7 % 11) as i32 - 5)
    };
    (0..count).map(number).collect()
}

/// Indices below a length, most of them several times.
fn indices(count: usize, length: usize) -> Vec<i64> {
    (0..count).map(|i| ((i * i + i / 3) % length) as i64).collect()
}

fn run(engine: &dyn Engine, op: &Op, inputs: &[TensorData]) -> Result<TensorData, String> {
    let types: Vec<TensorType> = inputs.iter().map(TensorData::ty).collect();
    let results = infer(op, &types.iter().map(OperandType::Tensor).collect::<Vec<_>>()).unwrap();
    let operands: Operands = inputs.iter().map(|data| Operand::Value(engine.write(data.clone()))).collect();
    let value = engine.execute(op, operands, &results).remove(0);
    block_on(engine.read(value)).map_err(|error| error.to_string())
}

/// The reference adds in the order of the entries, in `f64` for `f32`; exact here by comparing with a plain loop.
#[test]
fn sums_by_index_have_the_order_of_the_entries() {
    for (before, length, count, after) in
        [(1, 5, 100, 1), (1, 7, 2, 3), (3, 4, 33, 5), (2, 1, 300, 2), (1, 9000, 5000, 1), (4, 3, 1, 2)]
    {
        let base = uneven(before * length * after);
        for is_list in [true, false] {
            let entries = if is_list { count } else { before * count * after };
            let (index, source) = (indices(entries, length), uneven(before * count * after));
            for (mode, combine) in
                [(UpdateMode::Add, (|a, b| a + b) as fn(f32, f32) -> f32), (UpdateMode::Mul, |a, b| a * b)]
            {
                let mut expected = base.clone();
                for p in 0..source.len() {
                    let (a, i, b) = (p % after, p / after % count, p / after / count);
                    let at = index[if is_list { i } else { p }] as usize;
                    let place = &mut expected[(b * length + at) * after + a];
                    *place = combine(*place, source[p]);
                }
                let op = if is_list { Op::Put { axis: 1, mode } } else { Op::Scatter { axis: 1, mode } };
                let of_index: &[usize] = if is_list { &[count] } else { &[before, count, after] };
                let inputs = [
                    TensorData::new(base.clone(), [before, length, after]).unwrap(),
                    TensorData::new(index.clone(), of_index).unwrap(),
                    TensorData::new(source.clone(), [before, count, after]).unwrap(),
                ];
                for (kernels, engine) in engines() {
                    let found = run(&engine, &op, &inputs).unwrap().to_vec::<f32>();
                    let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{kernels}: {op:?} [{before}, {length}, {after}] by {of_index:?}");
                }
            }
        }
    }
}

#[test]
fn dtypes_of_indices_and_floats_match_the_reference() {
    for index in [DType::I32, DType::I64, DType::U8, DType::I16, DType::U32] {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for mode in [UpdateMode::Add, UpdateMode::Mul, UpdateMode::Min, UpdateMode::Max] {
                // All sums and products are exact.
                let exact = |count: usize| (0..count).map(|i| (1 + i % 2) as f32).collect::<Vec<f32>>();
                let data = |count: usize| TensorData::new(exact(count), [count]).unwrap().convert(dtype);
                let list = TensorData::new(indices(9, 4), [9]).unwrap().convert(index);
                let inputs = [data(4), list, data(9)];
                let op = Op::Put { axis: 0, mode };
                let expected = run(&Reference::new(), &op, &inputs);
                for (kernels, engine) in engines() {
                    assert_eq!(
                        run(&engine, &op, &inputs),
                        expected,
                        "{kernels}: {mode:?} {dtype} by {index}"
                    );
                }
            }
        }
    }
}

/// The error names the first entry that is out of range, as without the switch.
#[test]
fn an_index_out_of_range_is_the_error_of_the_reference() {
    for wrong in [-1, 4, i64::MAX] {
        for op in [Op::Put { axis: 0, mode: UpdateMode::Add }, Op::Scatter { axis: 0, mode: UpdateMode::Add }]
        {
            let mut list = indices(9, 4);
            (list[3], list[7]) = (wrong, wrong);
            let data = |count: usize| TensorData::new(uneven(count), [count]).unwrap();
            let inputs = [data(4), TensorData::new(list, [9]).unwrap(), data(9)];
            let expected = run(&Reference::new(), &op, &inputs).unwrap_err();
            // An index too large for the flag's word is reported as "or more".
            let expected = expected.replace(&i64::MAX.to_string(), "2147483647 or more");
            for (kernels, engine) in engines() {
                assert_eq!(run(&engine, &op, &inputs).unwrap_err(), expected, "{kernels}: {op:?} {wrong}");
            }
        }
    }
}

/// Without elements, nothing is sorted, and the index is still checked.
#[test]
fn updates_without_elements_change_nothing() {
    let op = Op::Put { axis: 0, mode: UpdateMode::Add };
    let empty = |shape: [usize; 2]| TensorData::zeros(TensorType::new(shape, DType::F32));
    for (kernels, engine) in engines() {
        let list = |index: i32| TensorData::new(vec![0, index], [2]).unwrap();
        assert!(run(&engine, &op, &[empty([3, 0]), list(2), empty([2, 0])]).is_ok(), "{kernels}");
        assert!(run(&engine, &op, &[empty([3, 0]), list(3), empty([2, 0])]).is_err(), "{kernels}");
        let none = TensorData::zeros(TensorType::new([0], DType::I32));
        let found = run(&engine, &op, &[empty([3, 2]), none, empty([0, 2])]);
        assert_eq!(found, Ok(empty([3, 2])), "{kernels}");
    }
}

/// Runs a program as one region, and op by op.
fn both_ways(engine: &Gpu<Host>, program: &Program, inputs: &[TensorData]) -> [Vec<TensorData>; 2] {
    let write = || inputs.iter().map(|data| Operand::Value(engine.write(data.clone()))).collect::<Operands>();
    let read = |value: Value| block_on(engine.read(value)).unwrap();
    let region = crate::host::orders::fused(engine, program, write());
    let apart = program.run_region(engine, write());
    [region.into_iter().map(read).collect(), apart.into_iter().map(read).collect()]
}

#[test]
fn sums_of_regions_are_those_of_the_ops_alone() {
    let ty = TensorType::new([70, 300], DType::F32);
    let programs = [
        Recorder::trace(&[ty, ty], |x| vec![(&x[0] * &x[1]).sum(&[1])]),
        Recorder::trace(&[ty, ty], |x| vec![(&x[0] * &x[1]).sum(&[0]), &x[0] + &x[1]]),
        Recorder::trace(&[ty, ty], |x| {
            let mean = x[0].reduce(Reduction::Sum, &[1]) * (1.0 / 300.0);
            vec![&x[1] * (&x[0] - mean.broadcast([70, 300]))]
        }),
        Recorder::trace(&[ty, ty], |x| vec![x[0].permute(&[1, 0]).sum(&[1]), (&x[0] * 2.0).sum(&[0, 1])]),
    ];
    let data = |shift: usize| TensorData::new(uneven(70 * 300 + shift)[shift..].to_vec(), [70, 300]).unwrap();
    for (number, program) in programs.iter().enumerate() {
        for (kernels, engine) in engines() {
            let [region, apart] = both_ways(&engine, program, &[data(0), data(5)]);
            assert_eq!(region, apart, "{kernels}: program {number}");
        }
    }
}

/// The planner learns it from the machine, and an epilogue of the library would round otherwise.
#[test]
fn the_machine_states_that_regions_are_exact() {
    for (kernels, engine) in engines() {
        let machine = engine.caps().machine;
        assert!(machine.exact_regions, "{kernels}");
        assert_eq!(machine.products, kiln_ir::Products::Library { epilogues: false }, "{kernels}");
    }
    let Some(host) = Host::open() else { return };
    assert!(!Gpu::new(host, MemoryConfig::new()).caps().machine.exact_regions);
}

#[test]
fn nothing_is_chosen_by_time() {
    let Some(host) = Host::open() else { return };
    let engine = Gpu::new(host.without_library().in_order(), MemoryConfig::new());
    let data = TensorData::new(uneven(64 * 64), [64, 64]).unwrap();
    run(&engine, &Op::MatMul, &[data.clone(), data]).unwrap();
    assert_eq!(engine.tune(Duration::from_secs(60)), Ok(0));
}
