//! Engines with partial, conditional op support, and the layer that expands other ops.

use kiln_ir::{
    Binary, Collective, CollectiveKind, Custom, CustomOp, DType, DTypeSet, Dispatch, Engine, Expand, FusedOp,
    Op, OpKind, OpSet, Operand, OperandType, Operands, Recorder, Reduction, Result, ResultTypes, TensorData,
    TensorType, Unary, block_on, expanding, infer,
};
use kiln_reference::{Limited, Reference};
use std::sync::Arc;

/// The reference engine without `i8` matmuls, and with `i64` only as an index dtype.
fn picky() -> Arc<Limited> {
    let inner = Reference::new();
    let native = inner.caps().native.without(&[OpKind::MatMul]);
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| *dtype != DType::I64).collect();
    let runs = |op: &Op, operands: &[OperandType<'_>]| {
        let has = |dtype| {
            move |operand: &OperandType<'_>| operand.tensor().is_some_and(|ty: &TensorType| ty.dtype == dtype)
        };
        let is_by_index = matches!(op, Op::Take { .. } | Op::Gather { .. });
        (*op == Op::MatMul && !operands.iter().any(|ty| has(DType::I8)(ty) || has(DType::I64)(ty)))
            || (is_by_index && !has(DType::I64)(&operands[0]))
    };
    let limited = Limited::new(Arc::new(inner), native).with_name("picky");
    Arc::new(limited.with_dtypes(DTypeSet::of(&dtypes)).with_condition(runs))
}

fn execute(engine: &dyn Engine, op: &Op, data: &[TensorData]) -> Result<TensorData> {
    let inputs: Operands = data.iter().map(|data| engine.write(data.clone()).into()).collect();
    let types = infer(op, &OperandType::list(&inputs))?;
    block_on(engine.read(engine.execute(op, inputs, &types).remove(0)))
}

fn matrix(dtype: DType) -> TensorData {
    TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]).convert(dtype)
}

#[test]
fn ops_run_natively_for_supported_dtypes_and_expand_for_others() {
    let picky = picky();
    let engine = Expand::around(picky.clone());
    let product = |dtype| execute(&engine, &Op::MatMul, &[matrix(dtype), matrix(dtype)]).unwrap();
    assert_eq!(product(DType::F32).to_vec::<f32>(), [7.0, 10.0, 15.0, 22.0]);
    assert_eq!(picky.take_ran(), ["matmul"]);
    assert_eq!(product(DType::I8).to_vec::<f32>(), [7.0, 10.0, 15.0, 22.0]);
    let ran = picky.take_ran();
    assert!(ran.iter().any(|op| op == "mul") && ran.iter().all(|op| op != "matmul"), "{ran:?}");
}

#[test]
fn dispatch_sends_the_engine_only_unconditionally_supported_ops() {
    let picky = Arc::new(Arc::into_inner(picky()).unwrap().with_dtypes(DTypeSet::ALL));
    let layer: Arc<dyn Engine> = Arc::new(Expand::around(picky.clone()));
    let dispatch = Dispatch::new(layer.clone());
    assert!(Arc::ptr_eq(dispatch.engine(), &layer));
    let run = |op: &Op, dtype| {
        let inputs: Operands = [0; 2].map(|_| picky.write(matrix(dtype)).into()).into_iter().collect();
        let types = infer(op, &OperandType::list(&inputs)).unwrap();
        let ours = dispatch.execute(op, inputs.clone(), &types).remove(0);
        let ran = picky.take_ran();
        let theirs = layer.execute(op, inputs, &types).remove(0);
        assert_eq!(ran, picky.take_ran(), "{}", op.name());
        assert_eq!(block_on(picky.read(ours)).unwrap(), block_on(picky.read(theirs)).unwrap());
        ran
    };
    assert_eq!(run(&Op::Binary(Binary::Add), DType::F32), ["add"]);
    assert_eq!(run(&Op::MatMul, DType::F32), ["matmul"]);
    assert!(!run(&Op::MatMul, DType::I8).contains(&"matmul".to_string()));
    let program = Recorder::trace(&[TensorType::new([2, 2], DType::F32); 2], |x| vec![&x[0] + &x[1]]);
    assert_eq!(run(&Op::Fused(FusedOp::new(program)), DType::F32), ["add"]);
    // An engine without the layer gets all ops.
    let bare = Dispatch::new(picky.clone());
    let product = [0; 2].map(|_| picky.write(matrix(DType::F32)).into()).into_iter().collect();
    bare.execute(&Op::MatMul, product, &[TensorType::new([2, 2], DType::F32)]);
    assert_eq!(picky.take_ran(), ["matmul"]);
}

#[test]
fn a_dtype_may_be_supported_as_an_index_only() {
    let picky = picky();
    let engine = Expand::around(picky.clone());
    let index = TensorData::from([1i64, 0]);
    let taken = execute(&engine, &Op::Take { axis: 0 }, &[TensorData::from([5.0f32, 6.0]), index.clone()]);
    assert_eq!(taken.unwrap().to_vec::<f32>(), [6.0, 5.0]);
    assert_eq!(picky.take_ran(), ["take"]);
    let add = Op::Binary(Binary::Add);
    let error = execute(&engine, &add, &[index.clone(), index.clone()]).unwrap_err().to_string();
    let expected = "[picky] does not run `add`: i64 is not supported (operands: i64[2] x i64[2])";
    assert!(error.starts_with(expected), "{error}");
    // Result dtypes are also checked.
    let error = execute(&engine, &Op::Cast(DType::I64), &[matrix(DType::F32)]).unwrap_err().to_string();
    assert!(error.contains("`cast`: i64 is not supported (operands: f32[2, 2])"), "{error}");
    let [add, take] = [&add, &Op::Take { axis: 0 }].map(|op| {
        let ty = TensorType::new([2], DType::I64);
        engine.supports(op, &[OperandType::Tensor(&ty.with_dtype(DType::F32)), OperandType::Tensor(&ty)])
    });
    assert!(!add && take);
}

#[test]
fn regions_run_fused_if_the_engine_supports_each_op() {
    let picky = picky();
    let engine = Expand::around(picky.clone());
    let ty = TensorType::new([2, 2], DType::F32);
    let region = |product: bool| {
        let program = Recorder::trace(&[ty], |x| {
            let x = x[0].exp();
            vec![if product { x.matmul(&x) } else { &x + &x }]
        });
        FusedOp::new(program)
    };
    assert_eq!(region(true).kinds(), OpSet::of(&[OpKind::Unary, OpKind::MatMul]));
    execute(&engine, &Op::Fused(region(false)), &[matrix(DType::F32)]).unwrap();
    assert_eq!(picky.take_ran(), ["exp+add"]);
    execute(&engine, &Op::Fused(region(true)), &[matrix(DType::F32)]).unwrap();
    assert_eq!(picky.take_ran(), ["exp", "matmul"]);
    // Nested regions are also checked.
    let outer =
        Recorder::trace(&[ty], |x| vec![x[0].apply(Op::Fused(region(true)), &[]).apply(Op::Copy, &[])]);
    let kinds = OpSet::of(&[OpKind::Fused, OpKind::Copy, OpKind::Unary, OpKind::MatMul]);
    assert_eq!(outer.kinds(), kinds);
}

#[test]
fn expand_supports_ops_that_it_expands() {
    let engine = Expand::around(picky());
    let ty = |dtype| TensorType::new([2, 2], dtype);
    let supports =
        |op: &Op, ty: TensorType| engine.supports(op, &[OperandType::Tensor(&ty), OperandType::Tensor(&ty)]);
    assert!(supports(&Op::MatMul, ty(DType::I8)) && supports(&Op::MatMul, ty(DType::F32)));
    assert!(!supports(&Op::MatMul, ty(DType::I64)));
    let group = |size| {
        let kind = CollectiveKind::AllReduce(Reduction::Sum);
        let op = Op::Collective(Collective { kind, group: 0, rank: 0, size });
        engine.supports(&op, &[OperandType::Tensor(&ty(DType::F32))])
    };
    assert!(group(1) && !group(2));
}

#[test]
fn expanding_an_expanded_engine_adds_no_layer() {
    let engine = expanding(picky());
    assert!(engine.find::<Limited>().is_some() && engine.find::<Expand>().is_some());
    assert!(Arc::ptr_eq(&engine, &expanding(engine.clone())));
    assert_eq!(engine.caps().native, OpSet::ALL);
}

/// The identity as a custom op.
#[derive(Debug)]
struct Same;

impl CustomOp for Same {
    fn name(&self) -> &str {
        "same"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(inputs.iter().filter_map(|ty| ty.tensor()).copied().collect())
    }

    fn equivalent(&self) -> Option<Op> {
        Some(Op::Copy)
    }
}

#[test]
fn registered_kernels_take_precedence_and_find_their_engine() {
    let picky = picky();
    let engine = Expand::around(picky.clone());
    let same = || execute(&engine, &Op::Custom(Custom::new(Same)), &[matrix(DType::F32)]);
    assert_eq!(same().unwrap(), matrix(DType::F32));
    assert_eq!(picky.take_ran(), ["copy"], "the equivalent runs");
    engine.register_engine_kernel("same", |engine, _, inputs, results| {
        assert!(engine.find::<Limited>().is_some());
        Ok(engine.execute(&Op::Unary(Unary::Neg), inputs, results))
    });
    assert_eq!(same().unwrap().to_vec::<f32>(), [-1.0, -2.0, -3.0, -4.0]);
    engine.register_engine_kernel("same", |engine, _, inputs, _| {
        let inputs = inputs.into_iter().filter_map(|operand| match operand {
            Operand::Value(value) => Some(engine.lift(value)),
            Operand::Scalar(_) => None,
        });
        Ok(inputs.chain([engine.write(matrix(DType::I32))]).collect())
    });
    let error = same().unwrap_err().to_string();
    assert!(error.contains("`kernel` returns f32[2, 2], i32[2, 2] instead of f32[2, 2]"), "{error}");
}
