//! Indices out of range: messages match the reference, and independent results are correct.

use crate::host::check;
use crate::host::driver::Host;
use crate::host::orders::fused;
use kiln_gpu::Gpu;
use kiln_ir::{
    DType, Engine, Op, Operand, Program, Recorder, Reduction, TensorData, TensorType, UpdateMode, Value, Var,
    block_on,
};
use kiln_reference::Reference;
use kiln_suite::case::Tolerance;

fn engine() -> Option<Gpu<Host>> {
    Some(Gpu::new(Host::open()?, kiln_ir::MemoryConfig::new()))
}

/// The elements, or the error message.
fn outcome(engine: &dyn Engine, value: Value) -> Result<Vec<f64>, String> {
    block_on(engine.read(value)).map(|data| data.to_vec::<f64>()).map_err(|error| error.to_string())
}

fn counted(shape: &[usize]) -> TensorData {
    let count = shape.iter().product::<usize>();
    TensorData::new((0..count).map(|i| (i % 40) as f32 / 8.0).collect(), shape).unwrap()
}

/// Runs a program as one region on the device and op by op on the reference.
#[track_caller]
fn alike(program: &Program, inputs: &[TensorData]) -> Vec<Result<Vec<f64>, String>> {
    let Some(host) = engine() else { return Vec::new() };
    let reference = Reference::new();
    let written =
        |engine: &dyn Engine| inputs.iter().map(|data| engine.write(data.clone())).collect::<Vec<_>>();
    let expected = program.run(&reference, written(&reference).into_iter().collect());
    let inputs = written(&host).into_iter().map(Operand::Value).collect();
    host.trace(true);
    let found = fused(&host, program, inputs);
    let launches = host.traced().iter().filter(|step| step.name != "fill").count();
    assert_eq!(launches, 1, "the region is one kernel");
    let mut outcomes = Vec::new();
    for (place, (expected, found)) in expected.into_iter().zip(found).enumerate() {
        let (expected, found) = (outcome(&reference, expected), outcome(&host, found));
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * a.abs().max(1.0);
                assert!(expected.iter().zip(found).all(close), "result {place}: {expected:?} {found:?}");
            }
            (expected, found) => assert_eq!(expected, found, "result {place}"),
        }
        outcomes.push(found);
    }
    outcomes
}

fn gather<'e>(x: &Var<'e>, index: &Var<'e>) -> Var<'e> {
    x.apply(Op::Gather { axis: 1 }, &[index])
}

/// The loss reads the labels and the probabilities do not.
#[test]
fn a_label_out_of_range_poisons_the_loss_but_not_the_probabilities() {
    let types = [TensorType::new([4, 3], DType::F32), TensorType::new([4, 1], DType::I32)];
    let program = Recorder::trace(&types, |inputs| {
        let top = inputs[0].reduce(Reduction::Max, &[1]).broadcast([4, 3]);
        let powers = (&inputs[0] - top).exp();
        let p = &powers / powers.sum(&[1]).broadcast([4, 3]);
        let loss = -gather(&p.ln(), &inputs[1]);
        vec![loss, p]
    });
    let labels = |labels: [i32; 4]| TensorData::new(labels.to_vec(), [4, 1]).unwrap();
    let logits = counted(&[4, 3]);
    assert!(alike(&program, &[logits.clone(), labels([0, 2, 1, 0])]).iter().all(Result::is_ok));
    // The error names the first of two invalid indices.
    let outcomes = alike(&program, &[logits, labels([0, 2, 3, -1])]);
    if let [loss, p] = outcomes.as_slice() {
        let message = loss.as_ref().unwrap_err();
        assert!(
            message.contains("index 3 at position [2, 0] is out of range for axis 1 of length 3"),
            "{message}"
        );
        assert!(p.is_ok());
    }
}

#[test]
fn each_index_of_a_region_poisons_only_dependent_results() {
    let index = TensorType::new([5, 1], DType::I64);
    let types = [TensorType::new([5, 7], DType::F32), index, index];
    let program = Recorder::trace(&types, |inputs| {
        let x = inputs[0].exp();
        let (a, b) = (gather(&x, &inputs[1]), gather(&x, &inputs[2]));
        let both = &a + &b;
        vec![x, a, b, both]
    });
    let list = |wrong: Option<(usize, i64)>| {
        let mut list = vec![0i64, 1, 2, 3, 6];
        wrong.into_iter().for_each(|(at, index)| list[at] = index);
        TensorData::new(list, [5, 1]).unwrap()
    };
    for (a, b) in [(None, Some((4, 7))), (Some((1, -2)), None), (Some((3, 1 << 20)), Some((0, 9)))] {
        let outcomes = alike(&program, &[counted(&[5, 7]), list(a), list(b)]);
        let expected = [true, a.is_none(), b.is_none(), a.is_none() && b.is_none()];
        assert!(outcomes.iter().zip(expected).all(|(outcome, is_ok)| outcome.is_ok() == is_ok));
    }
}

/// Elementwise kernels merge axes and use vectors.
#[test]
fn error_positions_are_correct_in_elementwise_kernels() {
    let (x, index) = (TensorType::new([5, 24, 64], DType::F32), TensorType::new([5, 24, 1], DType::I32));
    let program = Recorder::trace(&[x, index, index.with_dtype(DType::F32)], |inputs| {
        let y = inputs[0].exp();
        let scatter = Op::Scatter { axis: 2, mode: UpdateMode::Add };
        vec![y.apply(scatter, &[&inputs[1], &inputs[2]]) * 2.0, y]
    });
    for wrong in [[0, 0], [3, 17], [4, 23]] {
        let mut list: Vec<i32> = (0..120).map(|i| i % 64).collect();
        list[wrong[0] * 24 + wrong[1]] = 64;
        let index = TensorData::new(list, [5, 24, 1]).unwrap();
        let outcomes = alike(&program, &[counted(&[5, 24, 64]), index, counted(&[5, 24, 1])]);
        if let [scattered, y] = outcomes.as_slice() {
            let position = format!("index 64 at position [{}, {}, 0]", wrong[0], wrong[1]);
            assert!(scattered.as_ref().unwrap_err().contains(&position) && y.is_ok(), "{scattered:?}");
        }
    }
}

/// Bounds-check flags of a region's operands pass only to results that read them.
#[test]
fn a_poisoned_operand_of_a_region_poisons_only_results_that_read_it() {
    let Some(host) = engine() else { return };
    let ty = TensorType::new([4, 4], DType::F32);
    let program = Recorder::trace(&[ty, ty], |inputs| {
        let (a, b) = (inputs[0].exp(), inputs[1].exp());
        let both = &a + &b;
        vec![a, b, both]
    });
    let x = Var::new(&host, host.write(counted(&[4, 4])));
    let index = |last: i32| Var::new(&host, host.write(TensorData::new(vec![0, 1, 2, last], [4]).unwrap()));
    let taken = [4, 3].map(|last| x.take(0, &index(last)).into_operand());
    let found = fused(&host, &program, taken.into_iter().collect());
    let is_ok = |found: Vec<Value>| -> Vec<bool> {
        found.into_iter().map(|value| outcome(&host, value).is_ok()).collect()
    };
    assert_eq!(is_ok(found), [false, true, false]);
    // The same for a value that is already poisoned.
    let poisoned = Value::poisoned(ty, kiln_ir::Error::value("test", "it never was"));
    let operands = [poisoned.into(), x.into_operand()];
    assert_eq!(is_ok(fused(&host, &program, operands.into_iter().collect())), [false, true, false]);
}

/// A program, run on an engine.
type Body<'a> = &'a dyn Fn(&dyn Engine) -> Result<Vec<f64>, String>;

#[test]
fn index_error_messages_match_the_reference() {
    let Some(host) = engine() else { return };
    let reference = Reference::new();
    let engines: [&dyn Engine; 2] = [&reference, &host];
    let compare = |case: &str, body: Body| {
        let [expected, found] = engines.map(body);
        assert!(expected.is_err(), "{case}");
        assert_eq!(expected, found, "{case}");
    };
    let list = TensorData::new(vec![0i32, 2, 1, 5, -7, 9], [3, 2]).unwrap();
    compare("take", &|engine| {
        let x = Var::new(engine, engine.write(counted(&[5, 3])));
        outcome(engine, x.take(0, &Var::new(engine, engine.write(list.clone()))).into_value())
    });
    for dtype in [DType::I8, DType::U8, DType::I64, DType::U64] {
        compare("gather", &|engine| {
            let x = Var::new(engine, engine.write(counted(&[3, 4])));
            let index = TensorData::new(vec![3i32, 1, 0, 100, 2, 101], [3, 2]).unwrap();
            let index = Var::new(engine, engine.write(index)).cast(dtype);
            outcome(engine, gather(&x, &index).into_value())
        });
    }
    for mode in [UpdateMode::Set, UpdateMode::Add] {
        compare("put", &|engine| {
            let (x, y) = (counted(&[5, 3]), counted(&[2, 3]));
            let index = TensorData::new(vec![4i64, -1], [2]).unwrap();
            let [x, y, index] = [x, y, index].map(|data| Var::new(engine, engine.write(data)));
            outcome(engine, x.put(0, mode, &index, &y).into_value())
        });
        compare("scatter", &|engine| {
            let (x, y) = (counted(&[2, 3, 2]), counted(&[2, 4, 2]));
            let index = TensorData::new((0..16).map(|i| i % 5).collect::<Vec<i32>>(), [2, 4, 2]).unwrap();
            let [x, y, index] = [x, y, index].map(|data| Var::new(engine, engine.write(data)));
            outcome(engine, x.apply(Op::Scatter { axis: 1, mode }, &[&index, &y]).into_value())
        });
    }
    // An index too large for the flag's word is reported as "or more".
    let x = Var::new(&host, host.write(counted(&[5])));
    let far = Var::new(&host, host.write(TensorData::new(vec![0i64, 1 << 40], [2]).unwrap()));
    let message = outcome(&host, x.take(0, &far).into_value()).unwrap_err();
    assert!(message.contains("index 2147483647 or more at position [1]"), "{message}");
}

/// Blocks accumulate entries of few positions before they add to the tensor.
#[test]
fn scatter_add_to_few_positions() {
    let dtypes = [DType::F32, DType::F64, DType::F16, DType::I32, DType::I64, DType::U8, DType::U64];
    for dtype in dtypes {
        for op in [Op::Put { axis: 0, mode: UpdateMode::Add }, Op::Scatter { axis: 0, mode: UpdateMode::Add }]
        {
            // Sums of zeros of one sign keep the sign; one position gets no entry.
            let base = TensorData::new(vec![-0.0f32, 1.0, -0.0, 3.0, -0.0], [5]).unwrap();
            let source: Vec<f32> =
                (0..4000).map(|i| if i % 4 == 0 { -0.0 } else { (i % 3) as f32 }).collect();
            let index = TensorData::new((0..4000).map(|i| i % 4).collect::<Vec<i32>>(), [4000]).unwrap();
            let source = TensorData::new(source, [4000]).unwrap();
            let of = |data: &TensorData| data.clone().convert(dtype);
            check(&op, &[of(&base), index.clone(), of(&source)], Tolerance::Bits);
        }
    }
    let Some(host) = engine() else { return };
    let put = |engine: &dyn Engine| {
        let index: Vec<i32> = (0..4000).map(|i| if i == 3210 { 5 } else { i % 5 }).collect();
        let write = |data: TensorData| Var::new(engine, engine.write(data));
        let index = write(TensorData::new(index, [4000]).unwrap());
        let counts = write(counted(&[5])).put(0, UpdateMode::Add, &index, &write(counted(&[4000])));
        outcome(engine, counts.into_value())
    };
    assert_eq!(put(&host), put(&Reference::new()));
}
