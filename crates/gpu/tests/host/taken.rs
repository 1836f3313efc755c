//! In-place reuse of operand memory: values are the same, and operands with other owners stay unchanged.

use crate::host::data;
use crate::host::driver::Host;
use crate::host::orders::{fused, read};
use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{DType, Engine, Memory, Op, Operand, Program, Recorder, TensorData, TensorType, Value, Var};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;

/// An update of a running mean of gradients, and of a weight by the mean.
fn update(dtypes: [DType; 3], shape: &[usize]) -> Program {
    let types = dtypes.map(|dtype| TensorType::new(shape, dtype));
    Recorder::trace(&types, |inputs| {
        let gradient = inputs[0].cast(dtypes[2]);
        let mean = &inputs[2] * 0.9 + &gradient * 0.1;
        let weight = &inputs[1] - (&mean * 0.5 + gradient).cast(dtypes[1]);
        vec![weight, mean]
    })
}

fn inputs(engine: &dyn Engine, program: &Program) -> Vec<Value> {
    let numbers = program.inputs.iter().map(|ty| data(&ty.shape, ty.dtype, Fill::Normal));
    numbers.map(|numbers| engine.write(numbers)).collect()
}

fn expected(program: &Program) -> Vec<TensorData> {
    let engine = Reference::new();
    let outputs = program.run(&engine, inputs(&engine, program).into_iter().collect());
    outputs.into_iter().map(|value| read(&engine, value)).collect()
}

fn check(expected: &[TensorData], engine: &Gpu<Host>, found: impl IntoIterator<Item = Value>) {
    for (expected, found) in expected.iter().zip(found) {
        let near = Tolerance::Near { relative: 8.0, absolute: 8.0 };
        let problem = difference(expected, &read(engine, found), near);
        assert!(problem.is_none(), "{}", problem.unwrap_or_default());
    }
}

fn engine() -> Option<Gpu<Host>> {
    Some(Gpu::new(Host::open()?, kiln_ir::MemoryConfig::new()))
}

const SINGLE: [DType; 3] = [DType::F32; 3];

#[test]
fn results_reuse_the_memory_of_dead_operands() {
    let Some(engine) = engine() else { return };
    for (dtypes, taken) in [(SINGLE, 2), ([DType::BF16, DType::F32, DType::F32], 2), ([DType::F16; 3], 2)] {
        // Whole vectors and remainders.
        for shape in [&[4096][..], &[33, 31], &[1], &[5, 1001]] {
            let program = update(dtypes, shape);
            let held: Vec<Value> = inputs(&engine, &program);
            engine.reset_peak();
            let before = engine.usage().live_bytes;
            let found = fused(&engine, &program, held.into_iter().map(Operand::Value).collect());
            assert_eq!(found.len(), taken);
            assert_eq!(
                engine.usage().peak_live_bytes,
                before,
                "{dtypes:?} {shape:?}: no block was asked for"
            );
            check(&expected(&program), &engine, found);
        }
    }
}

#[test]
fn shared_operands_are_not_overwritten() {
    let Some(engine) = engine() else { return };
    let program = update(SINGLE, &[100]);
    let expected = expected(&program);
    for kept in 0..3 {
        let held = inputs(&engine, &program);
        // The value itself, or a view of its memory.
        let seen = [held[kept].clone(), Var::new(&engine, held[kept].clone()).reshape([10, 10]).into_value()];
        let before = read(&engine, seen[0].clone());
        check(&expected, &engine, fused(&engine, &program, held.into_iter().map(Operand::Value).collect()));
        let [value, view] = seen;
        assert_eq!(read(&engine, view).bytes(), before.bytes());
        assert_eq!(read(&engine, value).bytes(), before.bytes());
    }
}

#[test]
fn operands_read_at_other_positions_are_not_overwritten() {
    let Some(engine) = engine() else { return };
    let square = TensorType::new([24, 24], DType::F32);
    let bodies: [for<'e> fn(&Var<'e>) -> Var<'e>; 4] = [
        |x| x + &x.permute(&[1, 0]),
        |x| x.permute(&[1, 0]) * 2.0,
        |x| x.slice_axis(0, kiln_ir::SliceAxis { start: 23, len: 24, step: -1 }) + 1.0,
        |x| x - &x.sum(&[1]).broadcast([24, 24]),
    ];
    for body in bodies {
        let program = Recorder::trace(&[square], |inputs| vec![body(&inputs[0])]);
        let held = inputs(&engine, &program).into_iter().map(Operand::Value).collect();
        check(&expected(&program), &engine, fused(&engine, &program, held));
    }
}

/// Threads past the last point read the last points again, and check them.
#[test]
fn checked_indices_are_not_overwritten() {
    let Some(engine) = engine() else { return };
    for count in [4, 5, 1000, 1024] {
        let types = [TensorType::new([5], DType::I32), TensorType::new([count], DType::I32)];
        let program = Recorder::trace(&types, |x| vec![x[0].apply(Op::Take { axis: 0 }, &[&x[1]]) + &x[1]]);
        let index: Vec<i32> = (0..count as i32).map(|i| i % 5).collect();
        let of = |number: &i32| [3, 1, 4, 1, 5][*number as usize] + number;
        let operands = [TensorData::from([3, 1, 4, 1, 5]), TensorData::new(index.clone(), [count]).unwrap()];
        let operands = operands.map(|data| Operand::Value(engine.write(data)));
        let found = fused(&engine, &program, operands.into_iter().collect());
        assert_eq!(read(&engine, found[0].clone()).to_vec::<i32>(), index.iter().map(of).collect::<Vec<_>>());
    }
}

/// Persistent values keep their addresses, so that the steps' graphs need no new ones.
#[test]
fn repeated_steps_converge_to_the_same_addresses() {
    const LAYERS: usize = 8;
    let dry = DryDriver::new(DeviceInfo::absent("dry"), |_| Ok(Vec::new())).with_libraries();
    let engine = Gpu::new(dry, kiln_ir::MemoryConfig::new());
    let program = update(SINGLE, &[1000]);
    let mut layers: Vec<Vec<Value>> = (0..LAYERS).map(|_| inputs(&engine, &program).split_off(1)).collect();
    let step = |layers: &mut Vec<Vec<Value>>| {
        for layer in layers {
            let gradient = Var::new(&engine, layer[0].clone()) * 0.5;
            let operands = [gradient.into_value()].into_iter().chain(core::mem::take(layer));
            *layer = fused(&engine, &program, operands.map(Operand::Value).collect());
        }
        engine.submit();
    };
    (0..10).for_each(|_| step(&mut layers));
    let before = engine.graphs();
    (0..20).for_each(|_| step(&mut layers));
    let after = engine.graphs();
    assert_eq!((after.recorded, after.steps_amended), (before.recorded, before.steps_amended), "{after:?}");
    assert_eq!(after.steps_replayed - before.steps_replayed, 20 * 2 * LAYERS as u64, "{after:?}");
}
