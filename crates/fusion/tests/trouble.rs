//! Robustness: panics during execution, contention between threads, dead graphs, bad data.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{
    Custom, CustomOp, Engine, Expand, Op, Operand, OperandType, Operands, Result, ResultTypes, SliceAxis,
    TensorData, TensorType, Unary, Value, Values, Var, block_on, infer,
};
use smallvec::smallvec;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn fusion() -> Fusion {
    Fusion::with_mode(Arc::new(Expand::new(Cpu::with_threads(2))), Mode::On)
}

fn floats(len: usize) -> TensorData {
    TensorData::new((0..len).map(|i| i as f32 / len as f32).collect(), [len]).unwrap()
}

fn read(engine: &dyn Engine, value: Value) -> Result<Vec<f32>> {
    block_on(engine.read(value))?.into_vec()
}

fn execute(engine: &dyn Engine, op: &Op, operands: Operands) -> Values {
    let types = infer(op, &OperandType::list(&operands)).unwrap();
    engine.execute(op, operands, &types)
}

/// Fails the test instead of hanging.
fn in_time(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(120)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
        Ok(()) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(payload) = thread.join() {
                std::panic::resume_unwind(payload);
            }
        }
    }
}

/// Fusion over an engine that panics at a sine while the switch is on.
fn trapped(switch: &'static AtomicBool) -> Fusion {
    let is_sine = |op: &Op| *op == Op::Unary(Unary::Sin);
    let engine = Changed::new(Cpu::with_threads(2)).watched(move |op| {
        let has_sine = if let Op::Fused(region) = op {
            region.program().instructions.iter().any(|step| is_sine(&step.op))
        } else {
            is_sine(op)
        };
        assert!(!(has_sine && switch.load(Ordering::SeqCst)), "the trap shuts");
    });
    engine.fused()
}

/// A custom op that waits for another one to run, and then reads a value.
struct Meeting {
    fusion: Fusion,
    others: Arc<Barrier>,
    value: Value,
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("meeting")
    }
}

impl CustomOp for Meeting {
    fn name(&self) -> &str {
        "meeting"
    }

    fn infer(&self, _inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(smallvec![*self.value.ty()])
    }

    fn evaluate(&self, _inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        self.others.wait();
        Some(block_on(self.fusion.read(self.value.clone())).map(|data| vec![data]))
    }
}

#[test]
fn a_panic_between_recording_and_execution_loses_no_values() {
    let fusion = fusion();
    let x = fusion.write(floats(64));
    let y = (Var::new(&fusion, x.clone()) * 2.0).into_value();
    let kept = y.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let z = (Var::new(&fusion, y) + 1.0).exp();
        assert!(z.rank() == 7, "a mistake of the program");
    }));
    assert!(result.is_err());
    let found = read(&fusion, kept).unwrap();
    assert_eq!(found[32], 1.0);
}

#[test]
fn a_panic_during_execution_poisons_only_values_of_that_plan() {
    static SWITCH: AtomicBool = AtomicBool::new(false);
    in_time(|| {
        let fusion = trapped(&SWITCH);
        let earlier = (Var::new(&fusion, fusion.write(floats(64))) + 1.0).into_value();
        fusion.flush();
        let y = (Var::new(&fusion, fusion.write(floats(64))) * 2.0).sin();
        let z = (y.clone() * 3.0).into_value();
        let y = y.into_value();
        SWITCH.store(true, Ordering::SeqCst);
        let panicked = catch_unwind(AssertUnwindSafe(|| read(&fusion, z.clone())));
        SWITCH.store(false, Ordering::SeqCst);
        // The inner engine may propagate the panic or return an error; no thread blocks and no read returns data.
        if let Ok(result) = panicked {
            assert!(result.is_err());
        }
        for value in [y, z] {
            assert!(read(&fusion, value).is_err(), "a value that was not computed is no data");
        }
        assert_eq!(read(&fusion, earlier).unwrap()[0], 1.0);
        let after = Var::new(&fusion, fusion.write(floats(64))) * 2.0 + 1.0;
        assert_eq!(read(&fusion, after.into_value()).unwrap()[32], 2.0);
    });
}

#[test]
fn custom_ops_that_read_values_of_other_threads_do_not_deadlock() {
    in_time(|| {
        let (fusion, others) = (fusion(), Arc::new(Barrier::new(2)));
        let (to_first, from_second) = std::sync::mpsc::channel::<Value>();
        let (to_second, from_first) = std::sync::mpsc::channel::<Value>();
        let run = |add: f64, give: std::sync::mpsc::Sender<Value>, take: std::sync::mpsc::Receiver<Value>| {
            let x = (Var::new(&fusion, fusion.write(floats(4))) + add).into_value();
            give.send(x.clone()).unwrap();
            let value = take.recv().unwrap();
            let meeting = Meeting { fusion: fusion.clone(), others: others.clone(), value };
            let met =
                execute(&fusion, &Op::Custom(Custom::new(meeting)), smallvec![Operand::Value(x)]).remove(0);
            read(&fusion, (Var::new(&fusion, met) * 2.0).into_value()).unwrap()
        };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| run(2.0, to_first, from_first));
            assert_eq!(run(1.0, to_second, from_second), [4.0, 4.5, 5.0, 5.5]);
            assert_eq!(second.join().unwrap(), [2.0, 2.5, 3.0, 3.5]);
        });
    });
}

#[test]
fn an_index_out_of_range_in_a_region_is_reported_at_the_read() {
    let fusion = fusion();
    let table = Var::new(&fusion, fusion.write(floats(8)));
    let index = Var::new(&fusion, fusion.write(TensorData::from([1i32, 9])));
    let picked = (table.exp() + 1.0).take(0, &index);
    let after = (picked.exp() * 2.0).into_value();
    let other = (table.exp() + 1.0).into_value();
    let error = read(&fusion, after).unwrap_err().to_string();
    assert!(error.contains("9"), "{error}");
    assert!(read(&fusion, other).is_ok());
    let table = table.reshape([8, 1]).broadcast([8, 4]) * 2.0;
    let index = Var::new(&fusion, fusion.write(TensorData::from([0i32, 1, 2, 11]).reshape([1, 4]).unwrap()));
    let picked = (table.gather(0, &index) + 1.0).into_value();
    let error = read(&fusion, picked).unwrap_err().to_string();
    assert!(error.contains("11"), "{error}");
}

/// The region reruns op by op, on operands that its first run must not have overwritten.
#[test]
fn an_index_out_of_range_poisons_only_dependent_values() {
    let results = |engine: &dyn Engine| -> Vec<Result<Vec<f32>>> {
        let rows = floats(32).reshape([8, 4]).unwrap();
        let index = TensorData::from([0i32, 1, 2, 3, 0, 1, 2, 9]).reshape([8, 1]).unwrap();
        let x = Var::new(engine, engine.write(rows)).exp();
        let picked = x.gather(1, &Var::new(engine, engine.write(index)));
        let results = [&x * 2.0, &picked + 1.0, x.sum(&[1])].map(Var::into_value);
        drop((x, picked));
        results.into_iter().map(|value| read(engine, value)).collect()
    };
    let fusion = fusion();
    let (expected, found) = (results(&Cpu::with_threads(1)), results(&fusion));
    assert_eq!(fusion.statistics().regions_run, 1);
    for (expected, found) in expected.iter().zip(&found) {
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-5 * a.abs();
                assert!(!expected.iter().zip(found).any(far), "{expected:?} {found:?}");
            }
            (Err(expected), Err(found)) => assert_eq!(expected.to_string(), found.to_string()),
            (expected, found) => panic!("{expected:?} instead of {found:?}"),
        }
    }
    assert!(found[1].is_err() && found[0].is_ok() && found[2].is_ok());
}

#[test]
fn a_huge_graph_without_reads_is_executed_in_pieces() {
    let fusion = fusion();
    let mut held = Vec::new();
    let mut x = Var::new(&fusion, fusion.write(floats(1 << 16)));
    for step in 0..6_000 {
        x = x * 0.999 + 1e-3;
        if step % 500 == 0 {
            held.push(x.clone().into_value());
        }
    }
    let statistics = fusion.statistics();
    assert!(statistics.steps_run > 0, "{statistics:?}");
    for value in held {
        assert!(read(&fusion, value).unwrap().iter().all(|x| x.is_finite()));
    }
    // Memory of operands that only the recording keeps alive is also bounded, even with few ops.
    let memory = fusion.memory().unwrap();
    drop(x);
    block_on(fusion.sync()).unwrap();
    memory.reset_peak();
    let before = memory.usage().live_bytes;
    let mut held = Vec::new();
    for _ in 0..200 {
        let big = Var::new(
            &fusion,
            fusion.write(TensorData::zeros(TensorType::new([2 << 20], kiln_ir::DType::F32))),
        );
        held.push(big.sum(&[0]).into_value());
    }
    let peak = memory.usage().peak_live_bytes - before;
    assert!(peak < (512 << 20) + (64 << 20), "{} MiB", peak >> 20);
    assert!(held.into_iter().all(|value| read(&fusion, value).unwrap() == [0.0]));
}

#[test]
fn new_shapes_make_new_plans_and_the_cache_stays_bounded() {
    let fusion = fusion();
    for len in 1..400 {
        let x = Var::new(&fusion, fusion.write(floats(len)));
        let y = (x.exp() + 1.0).ln().into_value();
        let found = read(&fusion, y).unwrap();
        assert!((found[0] - 2f32.ln()).abs() < 1e-6 && found.len() == len);
    }
    assert_eq!(fusion.statistics().plans_made, 399);
}

#[test]
fn the_limit_of_plans_holds_and_eviction_changes_no_result() {
    let fusion = fusion();
    let run = |len: usize| {
        let x = Var::new(&fusion, fusion.write(floats(len)));
        let found = read(&fusion, (x.exp() + 1.0).ln().into_value()).unwrap();
        assert!((found[0] - 2f32.ln()).abs() < 1e-6 && found.len() == len);
        fusion.statistics()
    };
    (1..99).for_each(|len| _ = run(len));
    let unlimited = run(99).plan_bytes;
    let most = unlimited / 4;
    fusion.set_plan_limit(usize::try_from(most).unwrap());
    assert!((1..=most).contains(&fusion.statistics().plan_bytes), "applied at once");
    for len in 1..300 {
        let bytes = run(len).plan_bytes;
        assert!(bytes <= most, "{bytes} bytes of {most} after length {len}");
    }
    // Without a cache, each step of another length derives or makes a plan; of the same length it finds the newest.
    fusion.set_plan_limit(0);
    let before = run(7);
    let after = run(7);
    assert_eq!(after.plans_made, before.plans_made);
    assert!(run(8).plans_made > after.plans_made && run(7).plans_made > after.plans_made + 1);
    assert!(fusion.statistics().plan_bytes < unlimited / 10);
}

#[test]
fn regions_that_cannot_fuse_are_executed_correctly() {
    let fusion = fusion();
    let empty =
        Var::new(&fusion, fusion.write(TensorData::zeros(TensorType::new([0, 3], kiln_ir::DType::F32))));
    let y = (empty.exp() + 1.0).sum(&[0]).into_value();
    assert_eq!(read(&fusion, y).unwrap(), [0.0; 3]);
    let x = Var::new(&fusion, fusion.write(floats(36).reshape([6, 6]).unwrap()));
    let diagonal =
        (&x * &x.transpose() + x.slice_axis(0, SliceAxis { start: 5, len: 6, step: -1 })).sum(&[1]);
    let found = read(&fusion, diagonal.into_value()).unwrap();
    let at = |i: usize, j: usize| (i * 6 + j) as f32 / 36.0;
    for (i, found) in found.into_iter().enumerate() {
        let expected: f32 = (0..6).map(|j| at(i, j) * at(j, i) + at(5 - i, j)).sum();
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
    // More operands than one kernel binds.
    let all: Vec<Var<'_>> = (0..80).map(|_| Var::new(&fusion, fusion.write(floats(16)))).collect();
    let sum = all.iter().fold(Var::new(&fusion, fusion.write(floats(16))), |sum, x| sum * 0.5 + x * 0.5);
    let found = read(&fusion, sum.into_value()).unwrap();
    assert!(found.iter().zip(floats(16).into_vec::<f32>().unwrap()).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn many_threads_share_one_layer() {
    in_time(|| {
        let fusion = fusion();
        let shared: Vec<Value> = (0..4)
            .map(|i| (Var::new(&fusion, fusion.write(floats(256))) + f64::from(i)).into_value())
            .collect();
        let threads: Vec<_> = (0..8)
            .map(|thread: usize| {
                let (fusion, shared) = (fusion.clone(), shared.clone());
                std::thread::spawn(move || {
                    let mut last = shared[thread % 4].clone();
                    for step in 0..200 {
                        let other = shared[(thread + step) % 4].clone();
                        let mixed = Var::new(&fusion, last) * 0.5 + Var::new(&fusion, other) * 0.5;
                        last = mixed.into_value();
                        match step % 7 {
                            0 => drop(read(&fusion, last.clone()).unwrap()),
                            1 => fusion.submit(),
                            2 => block_on(fusion.sync()).unwrap(),
                            _ => {}
                        }
                    }
                    last
                })
            })
            .collect();
        let results: Vec<Value> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for value in results {
            let found = read(&fusion, value).unwrap();
            assert!(found.iter().all(|x| (0.0..=4.0).contains(x)), "{found:?}");
            let steps = found.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(steps.into_iter().all(|step| (step - 1.0 / 256.0).abs() < 1e-5));
        }
    });
}

#[test]
fn submitted_steps_return_correct_results() {
    let fusion = fusion();
    let mut x = Var::new(&fusion, fusion.write(floats(32)));
    let mut seen = Vec::new();
    for _ in 0..10 {
        x = (&x * 0.5) + 0.25;
        seen.push(x.clone().into_value());
        fusion.submit();
    }
    let mut expected = floats(32).into_vec::<f32>().unwrap();
    for value in seen {
        expected.iter_mut().for_each(|x| *x = *x * 0.5 + 0.25);
        assert_eq!(read(&fusion, value).unwrap(), expected);
    }
}
