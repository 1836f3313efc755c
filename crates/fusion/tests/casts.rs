//! Casts after views: where they are computed, and that values are bitwise equal.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode, Plan, StepKind};
use kiln_ir::{DType, Engine, Recorder, SliceAxis, TensorData, TensorType, Value, Var, block_on};
use std::sync::Arc;

const ROWS: usize = 6;
const COLUMNS: usize = 12;

/// Thirds of the columns of `x · w + bias`, as attention heads, cast to 16 bits.
fn heads<'e>(x: &Var<'e>, w: &Var<'e>, bias: &Var<'e>, dtypes: [DType; 3]) -> Vec<Var<'e>> {
    let y = x.matmul(w).cast(DType::F32) + bias.broadcast([ROWS, COLUMNS]);
    let third = |i: usize| {
        let columns = SliceAxis { start: i * COLUMNS / 3, len: COLUMNS / 3, step: 1 };
        y.slice_axis(1, columns).reshape([ROWS, 2, 2]).permute(&[1, 0, 2]).cast(dtypes[i])
    };
    [0, 1, 2].map(third).to_vec()
}

/// The types of results that steps other than views store.
fn stored(body: impl for<'e> Fn(&[Var<'e>]) -> Vec<Var<'e>>) -> Vec<DType> {
    let types = [[ROWS, 5], [5, COLUMNS]].map(|shape| TensorType::new(shape, DType::BF16));
    let bias = TensorType::new([1, COLUMNS], DType::F32);
    let program = Recorder::trace(&[types[0], types[1], bias], |inputs| body(inputs));
    let plan = Plan::of_program(&program);
    let regions = plan.steps().iter().filter(|step| step.kind() == StepKind::Region);
    regions.flat_map(|step| step.results().iter().map(|ty| ty.dtype)).collect()
}

const LOW: [DType; 3] = [DType::BF16; 3];

#[test]
fn values_read_only_in_16_bits_are_stored_in_16_bits() {
    let found = stored(|inputs| heads(&inputs[0], &inputs[1], &inputs[2], LOW));
    assert_eq!(found, [DType::BF16]);
}

#[test]
fn values_also_read_in_f32_are_stored_in_f32() {
    // Used without a cast, or with another cast.
    let found = stored(|inputs| {
        let heads = heads(&inputs[0], &inputs[1], &inputs[2], LOW);
        let y = inputs[0].matmul(&inputs[1]).cast(DType::F32) + inputs[2].broadcast([ROWS, COLUMNS]);
        heads.into_iter().chain([y]).collect()
    });
    assert!(found.contains(&DType::F32), "{found:?}");
    let mixed = [DType::BF16, DType::F16, DType::BF16];
    let found = stored(|inputs| heads(&inputs[0], &inputs[1], &inputs[2], mixed));
    assert_eq!(found, [DType::F32]);
}

fn write<'e>(engine: &'e dyn Engine, shape: [usize; 2], seed: usize) -> Var<'e> {
    let list: Vec<f32> =
        (0..shape[0] * shape[1]).map(|i| ((i * 37 + seed) % 101) as f32 / 17.0 - 3.0).collect();
    Var::new(engine, engine.write(TensorData::new(list, shape).unwrap()))
}

/// The bits of all results and of all other live values.
fn bits(engine: &dyn Engine, dtypes: [DType; 3], twice: bool) -> Vec<Vec<u8>> {
    let (x, w) = (write(engine, [ROWS, 5], 1).cast(LOW[0]), write(engine, [5, COLUMNS], 2).cast(LOW[0]));
    let mut heads = heads(&x, &w, &write(engine, [1, COLUMNS], 3), dtypes);
    if twice {
        // A cast of the same view once more, a cast of a cast, and a view of one.
        let wide = (&x * 2.0).cast(DType::F64).permute(&[1, 0]).cast(DType::F32);
        heads.extend([wide.reshape([ROWS * 5]).cast(DType::F16), wide.permute(&[1, 0]).cast(DType::F16)]);
        heads.push(heads[0].permute(&[2, 1, 0]));
    }
    let values: Vec<Value> = heads.into_iter().map(Var::into_value).collect();
    values.into_iter().map(|value| block_on(engine.read(value)).unwrap().bytes().to_vec()).collect()
}

#[test]
fn values_are_bitwise_equal() {
    let layer = Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::On);
    for dtypes in [LOW, [DType::F16; 3], [DType::BF16, DType::F16, DType::F32]] {
        for twice in [false, true] {
            assert_eq!(bits(&layer, dtypes, twice), bits(&Cpu::with_threads(1), dtypes, twice), "{dtypes:?}");
        }
    }
}
