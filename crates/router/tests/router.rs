//! Placement, policies, fallbacks and errors of a router over two engines.

use kiln_cpu::Cpu;
use kiln_fusion::Fusion;
use kiln_ir::{
    Binary, Custom, CustomOp, DType, Engine, Expand, MINIMAL, Op, OpKind, OpSet, Operand, OperandType,
    Operands, Reduction, Result, ResultTypes, TensorData, TensorType, Unary, Value, Var, block_on, expanding,
    infer,
};
use kiln_reference::{Limited, Reference};
use kiln_router::{Member, Router, TransferPolicy, Transfers};
use std::sync::Arc;

fn cpu() -> Arc<dyn Engine> {
    expanding(Arc::new(Cpu::with_threads(1)))
}

fn fused() -> Arc<dyn Engine> {
    Arc::new(Fusion::new(cpu()))
}

fn pair() -> Router {
    Router::new([Member::new("flex", cpu()), Member::new("cpu", fused())])
}

/// The first member runs these ops only, the second all.
fn limited(native: OpSet) -> Router {
    let few = Limited::new(Arc::new(Reference::new()), native);
    Router::new([Member::new("few", expanding(Arc::new(few))), Member::new("all", cpu())])
}

fn on(router: &Router, data: impl Into<TensorData>, member: usize) -> Value {
    router.to_device(router.write(data.into()), member)
}

fn run(engine: &dyn Engine, op: Op, operands: &[&Value]) -> Value {
    let inputs: Operands = operands.iter().map(|value| Operand::from(*value)).collect();
    let types = infer(&op, &OperandType::list(&inputs)).unwrap();
    engine.execute(&op, inputs, &types).remove(0)
}

fn add(engine: &dyn Engine, a: &Value, b: &Value) -> Value {
    run(engine, Op::Binary(Binary::Add), &[a, b])
}

fn read(engine: &dyn Engine, value: &Value) -> Result<TensorData> {
    block_on(engine.read(value.clone()))
}

fn floats(engine: &dyn Engine, value: &Value) -> Vec<f64> {
    read(engine, value).unwrap().to_vec()
}

fn said(engine: &dyn Engine, value: &Value) -> String {
    read(engine, value).unwrap_err().to_string()
}

#[test]
fn every_dtype_moves() {
    let router = pair();
    for dtype in DType::ALL {
        let data = TensorData::from([0.0f64, 1.0, 1.0, 0.0, 1.0]).convert(dtype);
        let there = router.to_device(on(&router, data.clone(), 0), 1);
        assert_eq!(router.device_of(&there), Some(1));
        let back = router.to_device(there, 0);
        assert_eq!(read(&router, &back).unwrap(), data, "{dtype}");
    }
    let count = router.statistics().explicit.transfers;
    assert_eq!(count, 2 * DType::ALL.len() as u64);
}

#[test]
fn empty_and_scalar_tensors_move() {
    let router = pair();
    for shape in [vec![], vec![0], vec![2, 0, 3], vec![1, 1]] {
        let data = TensorData::zeros(TensorType::new(shape.as_slice(), DType::F32));
        let there = router.to_device(on(&router, data.clone(), 0), 1);
        assert_eq!(read(&router, &there).unwrap(), data);
    }
}

#[test]
fn making_a_value_costs_no_transfer() {
    let router = pair();
    let x = on(&router, [1.0f32, 2.0], 1);
    let one = Var::full(&router, *x.ty(), 1.0).into_value();
    assert_eq!(router.device_of(&one), None);
    // A constant, data and an expression of both are made where they are needed.
    let y = router.write([3.0f32, 4.0].into());
    let unplaced = add(&router, &one, &y);
    assert_eq!(router.device_of(&unplaced), None);
    let sum = add(&router, &x, &unplaced);
    assert_eq!((router.device_of(&sum), floats(&router, &sum)), (Some(1), vec![5.0, 7.0]));
    let other = add(&router, &on(&router, [1.0f32, 1.0], 0), &unplaced);
    assert_eq!((router.device_of(&other), floats(&router, &other)), (Some(0), vec![5.0, 6.0]));
    assert_eq!(floats(&router, &unplaced), [4.0, 5.0]);
    assert_eq!(router.statistics().automatic, Transfers::default());
    assert_eq!(router.statistics().explicit, Transfers::default());
}

#[test]
fn long_expressions_of_constants_do_not_recurse_without_end() {
    let router = pair();
    let mut x = Var::full(&router, TensorType::new([2], DType::F32), 0.0);
    for _ in 0..10_000 {
        x = x + 1.0;
    }
    assert_eq!(floats(&router, &x.into_value()), [10_000.0; 2]);
}

#[test]
fn operands_meet_where_most_bytes_are() {
    let router = pair();
    let (small, large) = (on(&router, [[1.0f32, 2.0]], 0), on(&router, [[1.0f32, 2.0], [3.0, 4.0]], 1));
    let product = run(&router, Op::MatMul, &[&small, &large]);
    assert_eq!((router.device_of(&product), floats(&router, &product)), (Some(1), vec![7.0, 10.0]));
    let statistics = router.statistics();
    assert_eq!(statistics.automatic, Transfers { transfers: 1, bytes: 8 });
    let ops: Vec<u64> = statistics.members.iter().map(|member| member.ops).collect();
    assert_eq!(ops, [0, 1]);
    router.reset_statistics();
    assert_eq!(router.statistics().automatic, Transfers::default());
}

#[test]
fn policies() {
    let router = pair();
    let (x, y) = (on(&router, [1.0f32], 0), on(&router, [[1.0f32], [2.0]], 1));
    let concat = |router: &Router| {
        let x = run(router, Op::Reshape([1, 1].into()), &[&x]);
        run(router, Op::Concat { axis: 0 }, &[&x, &y])
    };
    assert_eq!(router.device_of(&concat(&router)), Some(1));
    router.set_policy(TransferPolicy::MoveToFirst);
    assert_eq!(router.device_of(&concat(&router)), Some(0));
    for policy in [TransferPolicy::Error, TransferPolicy::Explicit] {
        router.set_policy(policy);
        let text = said(&router, &concat(&router));
        assert!(text.contains("several devices: flex, cpu"), "{text}");
        // Moves by hand stay possible.
        let moved = router.to_device(y.clone(), 0);
        assert_eq!(floats(&router, &run(&router, Op::Reshape([2].into()), &[&moved])), [1.0, 2.0]);
    }
}

#[test]
fn an_op_that_a_member_lacks_runs_on_the_next() {
    let router = limited(OpSet::ALL.without(&[OpKind::Unary, OpKind::Fused]));
    let x = on(&router, [0.0f32, 1.0], 0);
    let y = run(&router, Op::Unary(Unary::Exp), &[&x]);
    assert_eq!(router.device_of(&y), Some(0), "results come back");
    assert!((floats(&router, &y)[1] - 1f64.exp()).abs() < 1e-6);
    let statistics = router.statistics();
    assert_eq!((statistics.fallbacks, statistics.automatic.transfers), (1, 2));

    router.set_policy(TransferPolicy::Error);
    assert!(read(&router, &run(&router, Op::Unary(Unary::Exp), &[&x])).is_ok());
    router.set_policy(TransferPolicy::Explicit);
    let text = said(&router, &run(&router, Op::Unary(Unary::Exp), &[&x]));
    assert!(text.contains("exp"), "{text}");
}

#[test]
fn an_op_is_expanded_where_it_is_and_its_parts_find_their_members() {
    let native = MINIMAL.without(&[OpKind::Unary]);
    let router = limited(native);
    let x = on(&router, [[1.0f32, 2.0, 3.0]], 0);
    let y = run(&router, Op::Softmax { axis: 1, log: false }, &[&x]);
    let reference = expanding(Arc::new(Reference::new()));
    let expected = run(
        &*reference,
        Op::Softmax { axis: 1, log: false },
        &[&reference.write([[1.0f32, 2.0, 3.0]].into())],
    );
    let (found, expected) = (floats(&router, &y), floats(&*reference, &expected));
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
    let statistics = router.statistics();
    assert!(statistics.expansions > 0 && statistics.fallbacks > 0, "{statistics:?}");
    assert_eq!(router.device_of(&y), Some(0));
}

#[test]
fn an_engine_in_reserve_is_opened_when_it_is_needed() {
    let few = Limited::new(Arc::new(Reference::new()), OpSet::ALL.without(&[OpKind::Unary]));
    let open = Box::new(|| Member::new("reserve", expanding(Arc::new(Reference::new()))));
    let router = Router::new([Member::new("few", expanding(Arc::new(few)))]).with_reserve([open as Box<_>]);
    let x = on(&router, [4.0f32], 0);
    assert_eq!(floats(&router, &add(&router, &x, &x)), [8.0]);
    assert_eq!(router.members().len(), 1);
    assert_eq!(floats(&router, &run(&router, Op::Unary(Unary::Sqrt), &[&x])), [2.0]);
    assert_eq!(router.members()[1].name(), "reserve");
}

#[test]
fn errors_follow_values_across_members() {
    let router = pair();
    let index = on(&router, [7i32], 0);
    let x = on(&router, [1.0f32, 2.0], 0);
    let failed = run(&router, Op::Take { axis: 0 }, &[&x, &index]);
    let there = router.to_device(failed.clone(), 1);
    let sum = add(&router, &there, &on(&router, [1.0f32], 1));
    for value in [failed, there, sum] {
        let text = said(&router, &value);
        assert!(text.contains('7'), "{text}");
    }
    assert_eq!(floats(&router, &add(&router, &x, &x)), [2.0, 4.0], "other values are unharmed");
    assert!(block_on(router.sync()).is_ok());
}

#[test]
fn a_pending_error_surfaces_after_a_move() {
    let router = pair();
    // On the fused member it is not known before the value is read.
    let failed = run(&router, Op::Take { axis: 0 }, &[&on(&router, [1.0f32], 1), &on(&router, [5i32], 1)]);
    let moved = router.to_device(failed, 0);
    let text = said(&router, &add(&router, &moved, &on(&router, [1.0f32], 0)));
    assert!(text.contains('5'), "{text}");
}

#[test]
fn a_selection_stops_poison_on_any_member() {
    let router = pair();
    let bad = run(&router, Op::Take { axis: 0 }, &[&on(&router, [1.0f32], 0), &on(&router, [9i32], 0)]);
    let (yes, good) = (on(&router, [true], 1), on(&router, [2.0f32], 0));
    let picked = run(&router, Op::Select, &[&yes, &good, &bad]);
    assert_eq!(floats(&router, &picked), [2.0]);
}

#[test]
fn wrong_devices_and_foreign_values_are_errors() {
    let router = pair();
    let lost = router.to_device(router.write([1.0f32].into()), 2);
    assert!(said(&router, &lost).contains("no device 2"));
    let foreign = cpu().write([1.0f32].into());
    let text = said(&router, &add(&router, &foreign, &on(&router, [1.0f32], 0)));
    assert!(text.contains("of no member"), "{text}");
    assert!(said(&router, &pair().write([1.0f32].into())).contains("of no member"));
}

#[test]
fn values_of_other_engines_are_imported() {
    let (engine, router) = (cpu(), pair());
    let known = Router::new([Member::new("a", fused()), Member::new("b", engine.clone())]);
    let x = engine.write([1.0f32, 2.0].into());
    let here = known.import(&*engine, x.clone());
    assert_eq!(known.device_of(&here), Some(1), "it stays on its engine");
    assert_eq!(floats(&known, &here), [1.0, 2.0]);
    assert_eq!(floats(&router, &router.import(&*engine, x)), [1.0, 2.0]);
    let across = router.import(&known, here.clone());
    assert_eq!(floats(&router, &across), [1.0, 2.0]);
    assert!(known.import(&known, here.clone()).same(&here));
    assert_eq!(floats(&*engine, &engine.import(&known, here)), [1.0, 2.0]);
}

#[test]
fn a_router_may_be_a_member() {
    let router = Router::new([Member::new("inner", Arc::new(pair())), Member::new("cpu", cpu())]);
    let (x, y) = (on(&router, [1.0f32], 0), on(&router, [2.0f32], 1));
    assert_eq!(floats(&router, &add(&router, &x, &y)), [3.0]);
}

#[test]
fn fusion_goes_around_a_router_and_below_it() {
    let router = Arc::new(pair());
    let engine = Fusion::new(expanding(router.clone()));
    let (x, y) = (engine.write([[1.0f32, 2.0]].into()), on(&router, [[3.0f32, 4.0]], 1));
    let y = Var::new(&engine, engine.lift(y));
    let z = ((Var::new(&engine, x) * &y).unary(Unary::Exp) + 1.0).reduce(Reduction::Sum, &[0, 1]);
    let found = floats(&engine, &z.into_value())[0];
    assert!((found - (3f64.exp() + 8f64.exp() + 2.0)).abs() < 1e-2, "{found}");
}

/// The region `(x + 1, -y)`.
fn region() -> Op {
    let ty = TensorType::new([1], DType::F32);
    let recorder = kiln_ir::Recorder::new(&[ty, ty]);
    let [x, y]: [Value; 2] = recorder.inputs().into_iter().collect::<Vec<_>>().try_into().unwrap();
    let sum = (Var::new(&recorder, x) + 1.0).into_value();
    let negative = (-Var::new(&recorder, y)).into_value();
    let program = recorder.finish(&[sum.into(), negative.into()]);
    Op::Fused(kiln_ir::FusedOp::new(program))
}

#[test]
fn a_poisoned_operand_of_a_region_harms_only_what_depends_on_it() {
    let router = pair();
    for member in [0, 1] {
        let x = on(&router, [1.0f32], member);
        let bad = Value::poisoned(*x.ty(), kiln_ir::Error::value("test", "was never there"));
        let inputs: Operands = [Operand::Value(bad), Operand::Value(x)].into_iter().collect();
        let types = infer(&region(), &OperandType::list(&inputs)).unwrap();
        let values = router.execute(&region(), inputs, &types);
        assert!(said(&router, &values[0]).contains("never there"));
        assert_eq!(floats(&router, &values[1]), [-1.0], "member {member}");
    }
}

#[test]
fn memory_and_explanations_are_those_of_members() {
    let router = pair();
    let before = router.memory().unwrap().usage().live_bytes;
    let x = on(&router, TensorData::zeros(TensorType::new([1 << 20], DType::F32)), 0);
    let used = router.memory().unwrap().usage().live_bytes - before;
    assert!((4 << 20..6 << 20).contains(&used), "counted once: {used}");
    assert_eq!(router.explain(&x), None, "an eager member has nothing to explain");
    let y = on(&router, [1.0f32, 2.0], 1);
    let text = router.explain(&run(&router, Op::Unary(Unary::Exp), &[&y])).unwrap();
    assert!(text.starts_with("on cpu\n"), "{text}");
    router.submit();
    assert_eq!(router.outcome(&x), Some(Ok(())));
}

#[test]
fn threads_share_a_router() {
    let router = pair();
    let x = on(&router, [1.0f32, 2.0], 0);
    std::thread::scope(|scope| {
        for member in [0, 1, 0, 1] {
            let (router, x) = (&router, &x);
            scope.spawn(move || {
                for number in 0..50 {
                    let y = on(router, [f64::from(number) as f32, 1.0], member);
                    assert_eq!(floats(router, &add(router, x, &y)), [1.0 + f64::from(number), 3.0]);
                }
            });
        }
    });
}

/// Adds a number, in one of the ways in which a custom op may run.
#[derive(Debug)]
struct Shift {
    way: &'static str,
}

impl CustomOp for Shift {
    fn name(&self) -> &str {
        self.way
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(inputs.iter().filter_map(|input| input.tensor().copied()).take(1).collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        (self.way == "expanded").then(|| vec![&inputs[0] + &inputs[1]])
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let [a, b] = inputs else { return None };
        let sum: Vec<f32> = a.to_vec::<f32>().iter().zip(b.to_vec::<f32>()).map(|(a, b)| a + b).collect();
        (self.way == "evaluated").then(|| Ok(vec![TensorData::new(sum, *a.shape())?]))
    }
}

#[test]
fn custom_ops_run_where_their_operands_meet() {
    for way in ["expanded", "evaluated"] {
        let router = pair();
        let (x, y) = (on(&router, [1.0f32, 2.0], 0), on(&router, [3.0f32, 4.0], 1));
        let sum = run(&router, Op::Custom(Custom::new(Shift { way })), &[&x, &y]);
        assert_eq!((router.device_of(&sum), floats(&router, &sum)), (Some(0), vec![4.0, 6.0]), "{way}");
    }
}

#[test]
fn kernels_of_a_member_run_custom_ops_there() {
    let engine = Expand::new(Cpu::with_threads(1));
    engine.register_kernel("registered", |_, inputs| Ok(vec![inputs[0].clone()]));
    let router = Router::new([Member::new("plain", cpu()), Member::new("kernels", Arc::new(engine))]);
    let x = on(&router, [1.0f32], 1);
    let op = || Op::Custom(Custom::new(Shift { way: "registered" }));
    assert_eq!(floats(&router, &run(&router, op(), &[&x])), [1.0]);
    let text = said(&router, &run(&router, op(), &[&on(&router, [1.0f32], 0)]));
    assert!(text.contains("registered"), "{text}");
}
