//! The fusion layer: values match the inner engine, for every order of recording and reading.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{
    Custom, CustomOp, Engine, Op, OperandType, Reduction, Result, ResultTypes, TensorData, Value, Var,
    block_on,
};
use std::sync::Arc;

fn fusion() -> Fusion {
    Fusion::with_mode(Arc::new(Cpu::with_threads(2)), Mode::On)
}

fn checked() -> Fusion {
    Fusion::with_mode(Arc::new(Cpu::with_threads(2)), Mode::Check)
}

fn data(len: usize, seed: u32) -> TensorData {
    let element =
        |i: usize| ((i as u32).wrapping_mul(2654435761).wrapping_add(seed * 977) % 1000) as f32 / 500.0 - 1.0;
    TensorData::new((0..len).map(element).collect(), [len]).unwrap()
}

fn matrix(rows: usize, columns: usize, seed: u32) -> TensorData {
    data(rows * columns, seed).reshape([rows, columns]).unwrap()
}

fn read(engine: &dyn Engine, value: Value) -> Vec<f32> {
    block_on(engine.read(value)).unwrap().into_vec().unwrap()
}

fn assert_close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "element {i}: {a} != {b}");
    }
}

/// Runs a body on the plain engine and through the layer, and compares.
fn same(body: impl for<'e> Fn(&'e dyn Engine) -> Vec<Var<'e>>) {
    let plain = Cpu::with_threads(1);
    let expected: Vec<Vec<f32>> = body(&plain).into_iter().map(|y| read(&plain, y.into_value())).collect();
    for layer in [fusion(), checked()] {
        let values: Vec<Value> = body(&layer).into_iter().map(Var::into_value).collect();
        for (value, expected) in values.into_iter().zip(&expected) {
            assert_close(&read(&layer, value), expected);
        }
    }
}

fn write(engine: &dyn Engine, data: TensorData) -> Var<'_> {
    Var::new(engine, engine.write(data))
}

#[test]
fn an_elementwise_chain_is_one_kernel() {
    let fusion = fusion();
    let x = write(&fusion, data(1000, 1));
    let y = ((&x * 2.0 + 1.0).tanh() - &x).exp();
    let y = read(&fusion, y.into_value());
    let x = data(1000, 1).into_vec::<f32>().unwrap();
    let expected: Vec<f32> = x.iter().map(|x| ((x * 2.0 + 1.0).tanh() - x).exp()).collect();
    assert_close(&y, &expected);
    assert_eq!(fusion.statistics().steps_run, 1);
    assert_eq!(fusion.statistics().regions_run, 1);
}

/// A custom op for `2 x + 1`.
#[derive(Debug)]
struct Doubled;

impl CustomOp for Doubled {
    fn name(&self) -> &str {
        "doubled"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(inputs.iter().filter_map(|input| input.tensor().copied()).collect())
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![&inputs[0] * 2.0 + 1.0])
    }
}

#[test]
fn expansions_of_custom_ops_are_fused() {
    let fusion = fusion();
    let x = write(&fusion, data(1000, 1)).exp();
    let y = x.apply(Op::Custom(Custom::new(Doubled)), &[]).tanh();
    let y = read(&fusion, y.into_value());
    let x = data(1000, 1).into_vec::<f32>().unwrap();
    let expected: Vec<f32> = x.iter().map(|x| (x.exp() * 2.0 + 1.0).tanh()).collect();
    assert_close(&y, &expected);
    assert_eq!(fusion.statistics().regions_run, 1);
}

#[test]
fn rows_and_their_reductions_are_one_kernel() {
    let fusion = fusion();
    let x = write(&fusion, matrix(64, 100, 1));
    let shifted = &x - &x.mean(&[1]);
    let y = &shifted * &(shifted.square().mean(&[1]) + 1e-5).rsqrt();
    let y = read(&fusion, y.into_value());
    assert_eq!(fusion.statistics().steps_run, 1, "{:?}", fusion.statistics());
    let mean: f32 = y[..100].iter().sum::<f32>() / 100.0;
    assert!(mean.abs() < 1e-5);
}

#[test]
fn values_match_the_inner_engine() {
    same(|engine| {
        let x = write(engine, matrix(33, 70, 1));
        let w = write(engine, matrix(70, 50, 2));
        let b = write(engine, matrix(1, 50, 3));
        let h = x.matmul(&w) + &b;
        let y = h.tanh() * 0.5;
        let z = &y - &y.reduce(Reduction::Max, &[1]);
        let total = z.exp().sum(&[0, 1]);
        let columns = (&y * &y).sum(&[0]);
        vec![h, y, total, columns, z.permute(&[1, 0]) * 2.0]
    });
    same(|engine| {
        let x = write(engine, matrix(24, 36, 1));
        let a = x.reshape([4, 6, 36]).sum(&[1]);
        let b = (&x + &x.permute(&[1, 0]).reshape([24, 36])) * 2.0;
        let c = x.exp().reshape([2, 12, 36]).permute(&[1, 0, 2]) + 1.0;
        vec![a, b, c]
    });
}

#[test]
fn a_matmul_used_only_transposed_is_computed_transposed() {
    same(|engine| {
        let x = write(engine, matrix(30, 20, 1));
        let g = write(engine, matrix(30, 10, 2));
        let w = write(engine, matrix(10, 20, 3));
        let slope = x.permute(&[1, 0]).matmul(&g).permute(&[1, 0]);
        let both = x.permute(&[1, 0]).matmul(&g);
        vec![w - &slope * 0.1, &both.permute(&[1, 0]) + 1.0, both * 2.0]
    });
    let fusion = fusion();
    let x = write(&fusion, matrix(30, 20, 1));
    let g = write(&fusion, matrix(30, 10, 2));
    let slope = (x.permute(&[1, 0]).matmul(&g).permute(&[1, 0]) * 2.0).into_value();
    let text = fusion.explain(&slope);
    assert!(text.contains("one kernel: matmul, mul"), "{text}");
}

#[test]
fn repeated_steps_hit_the_plan_cache() {
    let fusion = fusion();
    let mut x = fusion.write(data(512, 1));
    for step in 0..5 {
        let v = Var::new(&fusion, x);
        let y = &v * (0.5 + f64::from(step)) + 1.0;
        x = y.into_value();
        let _ = read(&fusion, x.clone());
    }
    let statistics = fusion.statistics();
    assert_eq!((statistics.plans_made, statistics.plans_found), (1, 4), "{statistics:?}");
}

#[test]
fn dead_code_is_not_computed() {
    let fusion = fusion();
    let x = write(&fusion, data(64, 1));
    drop(x.exp().sum(&[0]));
    let y = (x * 2.0).into_value();
    read(&fusion, y);
    assert_eq!(fusion.statistics().steps_run, 1);
}

#[test]
fn a_program_without_reads_has_bounded_recordings() {
    let fusion = fusion();
    let mut x = write(&fusion, data(8, 1));
    for _ in 0..20_000 {
        x = x * 1.0001 + 1e-6;
    }
    assert!(fusion.statistics().steps_run > 0, "it ran on the way");
    read(&fusion, x.into_value());
}

#[test]
fn submitted_steps_run_one_step_later_and_hit_the_plan_cache() {
    let fusion = fusion();
    let mut x = write(&fusion, data(64, 1));
    for _ in 0..10 {
        x = (&x * 0.9).tanh() + 0.1;
        fusion.submit();
    }
    let statistics = fusion.statistics();
    assert_eq!(statistics.plans_made + statistics.plans_found, 9);
    assert!(statistics.plans_found >= 7, "{statistics:?}");
    read(&fusion, x.into_value());
}

#[test]
fn values_cross_threads() {
    let fusion = Arc::new(fusion());
    let layer = fusion.clone();
    let x = std::thread::spawn(move || {
        let x = write(&*layer, data(100, 1));
        (x * 3.0).into_value()
    })
    .join()
    .unwrap();
    // The thread that recorded it has ended.
    let y = (Var::new(&*fusion, x.clone()) + 1.0).into_value();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (layer, x, y) = (fusion.clone(), x.clone(), y.clone());
            std::thread::spawn(move || {
                let sum = Var::new(&*layer, x) * f64::from(i) + Var::new(&*layer, y);
                read(&*layer, sum.into_value())
            })
        })
        .collect();
    let expected = data(100, 1).into_vec::<f32>().unwrap();
    for (i, thread) in threads.into_iter().enumerate() {
        let expected: Vec<f32> = expected.iter().map(|x| x * 3.0 * i as f32 + x * 3.0 + 1.0).collect();
        assert_close(&thread.join().unwrap(), &expected);
    }
}

#[test]
fn dead_operands_are_overwritten() {
    let cpu = Arc::new(Cpu::with_threads(1));
    let fusion = Fusion::with_mode(cpu, Mode::On);
    let x = fusion.write(data(4096, 1));
    let y = (Var::new(&fusion, x) * 2.0).into_value();
    let y = (Var::new(&fusion, y) + 1.0).into_value();
    let expected: Vec<f32> = data(4096, 1).into_vec::<f32>().unwrap().iter().map(|x| x * 2.0 + 1.0).collect();
    assert_close(&read(&fusion, y), &expected);
}

#[test]
fn explain_names_the_kernels() {
    let fusion = fusion();
    let x = write(&fusion, matrix(8, 8, 1));
    let y = (x.matmul(&x) * 2.0).exp().sum(&[0, 1]).into_value();
    let text = fusion.explain(&y);
    assert!(text.contains("one kernel"), "{text}");
    assert!(text.contains("matmul"), "{text}");
}

/// A fusion layer, and a weak reference that tells whether its engine is alive.
fn watched(mode: Mode) -> (Fusion, std::sync::Weak<dyn Engine>) {
    let engine: Arc<dyn Engine> = Arc::new(Cpu::with_threads(1));
    let alive = Arc::downgrade(&engine);
    (Fusion::with_mode(engine, mode), alive)
}

#[test]
fn an_engine_is_dropped_with_its_last_handle() {
    for mode in [Mode::On, Mode::Check, Mode::Off] {
        let (fusion, alive) = watched(mode);
        let x = fusion.write(data(64, 1));
        let y = (Var::new(&fusion, x.clone()) * 2.0).into_value();
        assert_eq!(read(&fusion, y.clone()).len(), 64);
        // Some ops are pending, in two submitted steps, and are never read.
        let waits = (Var::new(&fusion, y.clone()) + 1.0).into_value();
        fusion.submit();
        drop((Var::new(&fusion, waits) * 3.0).into_value());
        std::thread::scope(|scope| {
            // A scope waits for the closure, `join` for the thread's own queue too.
            scope.spawn(|| drop(Var::new(&fusion, y.clone()) * 5.0)).join().unwrap();
        });
        let handle = fusion.clone();
        drop(fusion);
        assert!(alive.upgrade().is_some(), "{mode:?}: a handle is left");
        drop((handle, x, y));
        assert!(alive.upgrade().is_none(), "{mode:?}: nothing is left");
    }
}

#[test]
fn values_outlive_the_last_handle() {
    let (fusion, alive) = watched(Mode::On);
    let inner = fusion.inner().clone();
    let x = (Var::new(&fusion, fusion.write([1.0f32, 2.0].into())) * 2.0).into_value();
    drop(fusion);
    let other = Fusion::with_mode(inner, Mode::On);
    assert_eq!(read(&other, x), [2.0, 4.0]);
    drop(other);
    assert!(alive.upgrade().is_none());
}
