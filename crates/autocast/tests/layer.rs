//! The layer: the dtype of each op, the casts, and the dtypes that the program sees.

use kiln_autocast::{Autocast, LowPrecision};
use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_ir::{
    Axes, Binary, BoxFuture, Caps, Comparison, Custom, CustomOp, DType, DTypeSet, Engine, FusedOp, Op, OpSet,
    Operand, OperandType, Operands, Program, Recorder, Reduction, Result, ResultTypes, TensorData,
    TensorType, Unary, UpdateMode, Value, Values, Var, block_on, infer,
};
use kiln_reference::Reference;
use std::sync::{Arc, Mutex};

/// The reference engine with a log of the executed ops: `matmul bf16 bf16`.
struct Watched {
    engine: Reference,
    caps: Caps,
    log: Mutex<Vec<String>>,
}

impl Watched {
    fn new(dtypes: DTypeSet) -> Arc<Watched> {
        let engine = Reference::new();
        let machine = engine.caps().machine;
        let caps = Caps { name: "watched".into(), dtypes, native: OpSet::ALL, machine };
        Arc::new(Watched { engine, caps, log: Mutex::default() })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Engine for Watched {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let mut line = op.name().to_string();
        for value in inputs.iter().filter_map(Operand::value) {
            line += &format!(" {}", value.dtype());
        }
        self.log.lock().unwrap().push(line);
        let types: Vec<_> = infer(op, &kiln_ir::OperandType::list(&inputs)).unwrap().to_vec();
        assert_eq!(types, results, "{op:?}");
        self.engine.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.engine.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.engine.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.engine)
    }
}

fn bf16() -> (Arc<Watched>, Autocast) {
    let watched = Watched::new(DTypeSet::ALL);
    (watched.clone(), Autocast::new(watched, LowPrecision::BF16))
}

fn f16() -> (Arc<Watched>, Autocast) {
    let watched = Watched::new(DTypeSet::ALL);
    (watched.clone(), Autocast::new(watched, LowPrecision::F16))
}

fn matrix(layer: &dyn Engine) -> Var<'_> {
    Var::new(layer, layer.write([[1.0f32, 2.0], [3.0, -4.0]].into()))
}

fn held(layer: &Autocast, var: &Var<'_>) -> DType {
    assert_eq!(var.dtype(), DType::F32, "what the program sees");
    layer.stored_dtype(var.operand().value().unwrap())
}

fn read(layer: &dyn Engine, var: Var<'_>) -> Vec<f32> {
    block_on(layer.read(var.into_value())).unwrap().into_vec().unwrap()
}

#[test]
fn contractions_and_elementwise_ops_after_them_run_in_16_bits() {
    let (watched, layer) = bf16();
    let x = matrix(&layer);
    let y = x.matmul(&x);
    assert_eq!(held(&layer, &y), DType::BF16);
    assert_eq!(watched.take(), ["cast f32", "matmul bf16 bf16"], "one cast for both uses");
    let z = (&y + &y).tanh().permute(&[1, 0]);
    assert_eq!(held(&layer, &z), DType::BF16);
    assert_eq!(watched.take(), ["add bf16 bf16", "tanh bf16", "permute bf16"]);
    let sum = z.sum(&[1]);
    assert_eq!(held(&layer, &sum), DType::F32);
    assert_eq!(watched.take(), ["cast bf16", "reduce_sum f32"]);
    let greatest = z.reduce(Reduction::Max, &[1]);
    assert_eq!(held(&layer, &greatest), DType::BF16);
    assert_eq!(watched.take(), ["reduce_max bf16"]);
    let e = z.exp();
    assert_eq!(held(&layer, &e), DType::F32);
    assert_eq!(watched.take(), ["cast bf16", "exp f32"]);
    let mixed = &z + &e;
    assert_eq!(held(&layer, &mixed), DType::F32);
    assert_eq!(watched.take(), ["cast bf16", "add f32 f32"]);
    assert_eq!(read(&layer, y), [7.0, -6.0, -9.0, 22.0]);
    assert_eq!(watched.take(), ["cast bf16"], "reading gives f32");
}

#[test]
fn each_precision_class_runs_in_its_dtype() {
    let (watched, layer) = bf16();
    let run = |op: Op, inputs: Vec<Operand>| {
        let types = infer(&op, &kiln_ir::OperandType::list(&inputs)).unwrap();
        watched.take();
        let values = layer.execute(&op, inputs.into_iter().collect(), &types);
        let log = watched.take().into_iter().filter(|line| !line.starts_with("cast ")).collect::<Vec<_>>();
        let held: Vec<DType> = values.iter().map(|value| layer.stored_dtype(value)).collect();
        for (value, ty) in values.iter().zip(&types) {
            assert_eq!(value.ty(), ty, "what the program sees of {op:?}");
        }
        (log.join("; "), held)
    };
    let x = matrix(&layer);
    let low: Operand = x.matmul(&x).into_operand();
    let index: Operand = layer.write([[0i32, 1], [1, 0]].into()).into();
    let full: Operand = x.into_operand();
    let axes = Axes::new(&[0]);
    let softmax = Op::Softmax { axis: 1, log: false };
    let norm = Op::Norm { kind: kiln_ir::NormKind::Rms, axes: 1, epsilon: 1e-5.into() };
    let scatter = |mode| Op::Scatter { axis: 0, mode };
    let sum = Op::Reduce { reduction: Reduction::Sum, axes };
    let prod_scan = Op::Scan { reduction: Reduction::Prod, axis: 0, reverse: false, exclusive: false };
    let bits = Op::Bitcast(DType::I32);
    let one = |operand: &Operand| vec![operand.clone()];
    let three = |base: &Operand, source: &Operand| vec![base.clone(), index.clone(), source.clone()];
    let (b, f, i) = (DType::BF16, DType::F32, DType::I32);
    let table = [
        (Op::MatMul, vec![full.clone(), low.clone()], "matmul bf16 bf16", b),
        (softmax, one(&low), "softmax f32", f),
        (norm, one(&low), "rms_norm f32", f),
        (sum, one(&low), "reduce_sum f32", f),
        (prod_scan, one(&low), "scan_prod f32", f),
        (Op::Unary(Unary::Ln), one(&low), "ln f32", f),
        (Op::Unary(Unary::Erf), one(&low), "erf bf16", b),
        (Op::Binary(Binary::Pow), vec![low.clone(), low.clone()], "pow f32 f32", f),
        (Op::Binary(Binary::Mul), vec![low.clone(), low.clone()], "mul bf16 bf16", b),
        (Op::Binary(Binary::Mul), vec![low.clone(), full.clone()], "mul f32 f32", f),
        (Op::Compare(Comparison::Lt), vec![low.clone(), low.clone()], "lt bf16 bf16", DType::Bool),
        (scatter(UpdateMode::Add), three(&low, &low), "scatter f32 i32 f32", f),
        (scatter(UpdateMode::Set), three(&low, &low), "scatter bf16 i32 bf16", b),
        (Op::Gather { axis: 0 }, vec![low.clone(), index.clone()], "gather bf16 i32", b),
        (Op::Concat { axis: 0 }, vec![low.clone(), full.clone()], "concat f32 f32", f),
        (Op::Concat { axis: 0 }, vec![low.clone(), low.clone()], "concat bf16 bf16", b),
        (bits, one(&low), "bitcast f32", i),
        (Op::NonZero { index: i }, one(&low), "nonzero bf16", i),
    ];
    for (op, inputs, expected, held) in table {
        let (log, found) = run(op.clone(), inputs);
        assert_eq!(log, expected, "{op:?}");
        assert_eq!(found[0], held, "{op:?}");
    }
    let sort = Op::Sort { axis: 0, descending: false, index: i };
    assert_eq!(run(sort, one(&low)).1, [b, i]);
}

#[test]
fn attention_keeps_its_log_sum_exp_in_f32() {
    let (watched, layer) = bf16();
    let q = Var::new(&layer, layer.write(TensorData::zeros(TensorType::new([1, 1, 2, 4], DType::F32))));
    let spec = kiln_ir::AttentionSpec { scale: 0.5.into(), causal: Some(0) };
    let inputs: Operands = (0..3).map(|_| q.clone().into_operand()).collect();
    let op = Op::Attention(spec);
    let types = infer(&op, &kiln_ir::OperandType::list(&inputs)).unwrap();
    let values = layer.execute(&op, inputs.clone(), &types);
    assert_eq!([0, 1].map(|i| layer.stored_dtype(&values[i])), [DType::BF16, DType::F32]);
    let op = Op::AttentionGrad(spec);
    let mut all: Operands = [values[0].clone().into()].into_iter().collect();
    all.extend(inputs);
    all.extend(values.into_iter().map(Operand::Value));
    let types = infer(&op, &kiln_ir::OperandType::list(&all)).unwrap();
    watched.take();
    let gradients = layer.execute(&op, all, &types);
    assert_eq!(watched.take(), ["attention_grad bf16 bf16 bf16 bf16 bf16 f32"]);
    assert!(gradients.iter().all(|gradient| layer.stored_dtype(gradient) == DType::BF16));
}

#[test]
fn scalar_operands_keep_their_precision() {
    let (watched, layer) = f16();
    let x = matrix(&layer);
    let low = x.matmul(&x);
    watched.take();
    assert_eq!(held(&layer, &(&low * 0.5)), DType::F16);
    assert_eq!(watched.take(), ["mul f16"], "f16 holds the number");
    assert_eq!(held(&layer, &(&low * 0.1)), DType::F16);
    assert_eq!(watched.take(), ["cast f16", "mul f32", "cast f32"], "computed in f32, rounded once");
    assert_eq!(held(&layer, &low.min(&low.scalar(0.1))), DType::F32);
    assert_eq!(watched.take(), ["cast f16", "min f32"], "gradients look for the number in the result");
    let beyond = &low - 1e9;
    assert_eq!(held(&layer, &beyond), DType::F32);
    assert_eq!(watched.take(), ["cast f16", "sub f32"], "beyond the range of f16");
    assert!(read(&layer, beyond).iter().all(|x| x.is_finite()));
    assert_eq!(held(&layer, &(&low + 1e-8)), DType::F32);
    watched.take();
    assert_eq!(held(&layer, &low.max(&low.scalar(f64::NEG_INFINITY))), DType::F16);
    assert_eq!(watched.take(), ["max f16"]);
}

#[test]
fn explicit_casts_change_the_visible_dtype() {
    let (watched, layer) = bf16();
    let low = matrix(&layer).matmul(&matrix(&layer));
    watched.take();
    let cast = |dtype: DType| {
        let inputs = [low.clone().into_operand()].into_iter().collect();
        layer.execute(&Op::Cast(dtype), inputs, &[low.ty().with_dtype(dtype)]).remove(0)
    };
    let explicit = cast(DType::BF16);
    assert_eq!(explicit.dtype(), DType::BF16);
    assert_eq!(watched.take(), [""; 0], "it is there already");
    let full = cast(DType::F32);
    assert_eq!((full.dtype(), layer.stored_dtype(&full)), (DType::F32, DType::F32));
    assert_eq!(watched.take(), ["cast bf16"]);
    assert_eq!(cast(DType::I32).dtype(), DType::I32);
    assert_eq!(watched.take(), ["cast bf16"]);
}

#[test]
fn dtypes_other_than_f32_are_unchanged() {
    let (watched, layer) = bf16();
    let wide = Var::new(&layer, layer.write([[1.0f64, 2.0], [3.0, 4.0]].into()));
    let narrow = wide.cast(DType::F16);
    let whole = wide.cast(DType::I8);
    watched.take();
    for x in [&wide, &narrow, &whole] {
        let _ = x.matmul(x);
    }
    assert_eq!(watched.take(), ["matmul f64 f64", "matmul f16 f16", "matmul i8 i8"]);
    assert_eq!(narrow.exp().dtype(), DType::F16);
    assert_eq!(watched.take(), ["exp f16"]);
}

#[test]
fn a_parameter_is_cast_once_for_each_step() {
    let (watched, layer) = bf16();
    let tape = Autodiff::new(Arc::new(layer.clone()), Checkpointing::None);
    let weight = tape.write([[0.5f32, 1.0], [2.0, -1.0]].into());
    for _ in 0..2 {
        let leaf = tape.require_grad(weight.clone());
        let w = Var::new(&tape, leaf.clone());
        let x = matrix(&tape);
        let loss = x.matmul(&w).tanh().matmul(&w).sum(&[0, 1]).into_value();
        let gradients = tape.backward_owned(loss, None).unwrap();
        let gradient = gradients.get(&leaf).unwrap();
        assert_eq!(gradient.dtype(), DType::F32);
        assert_eq!(layer.stored_dtype(&gradient), DType::F32, "optimizers compute in f32");
    }
    let log = watched.take();
    let casts = |dtype: &str| log.iter().filter(|line| **line == format!("cast {dtype}")).count();
    // One cast of the unchanged weight; in each step, casts of the data and of the gradient of the sum.
    assert_eq!(casts("f32"), 1 + 2 * 2, "{log:?}");
    let matmuls = log.iter().filter(|line| line.starts_with("matmul"));
    assert!(matmuls.clone().all(|line| line == "matmul bf16 bf16"), "{log:?}");
    assert_eq!(matmuls.count(), 2 * (2 + 3));
}

#[test]
fn matmul_operands_are_saved_for_backward_in_16_bits() {
    let (_, layer) = bf16();
    let x = layer.write([[1.0f32, 2.0], [3.0, 4.0]].into());
    let kept = layer.saved_for_backward(&Op::MatMul, 0, &x);
    assert_eq!((kept.dtype(), layer.stored_dtype(&kept)), (DType::F32, DType::BF16));
    let kept = layer.saved_for_backward(&Op::Unary(Unary::Exp), 0, &x);
    assert_eq!(layer.stored_dtype(&kept), DType::F32);
}

/// `exp`, stored in the precision of its operand or of `exp`.
#[derive(Debug)]
struct Exponential(Option<usize>);

impl CustomOp for Exponential {
    fn name(&self) -> &str {
        "exponential"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        infer(&Op::Unary(Unary::Exp), inputs)
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn match_precision(&self) -> Option<usize> {
        self.0
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![inputs[0].exp()])
    }
}

#[test]
fn an_expression_is_stored_in_the_precision_of_its_ops_or_operand() {
    let (watched, layer) = bf16();
    let full = matrix(&layer);
    let low = full.matmul(&full);
    watched.take();
    let exponential = |x: &Var<'_>, like| {
        let y = x.apply(Op::Custom(Custom::new(Exponential(like))), &[]);
        (held(&layer, &y), watched.take())
    };
    let lines = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<Vec<_>>();
    assert_eq!(exponential(&low, None), (DType::F32, lines(&["cast bf16", "exp f32"])));
    assert_eq!(exponential(&low, Some(0)), (DType::BF16, lines(&["cast bf16", "exp f32", "cast f32"])));
    assert_eq!(exponential(&full, Some(0)), (DType::F32, lines(&["exp f32"])));
}

#[test]
fn regions_of_a_layer_above_run_op_by_op() {
    let (watched, layer) = bf16();
    let ty = TensorType::new([2, 2], DType::F32);
    let program: Program = Recorder::trace(&[ty], |x| vec![x[0].matmul(&x[0]).exp()]);
    let x = matrix(&layer).into_operand();
    let op = Op::Fused(FusedOp::new(program));
    let values = layer.execute(&op, [x].into_iter().collect(), &[ty]);
    assert_eq!(watched.take(), ["cast f32", "matmul bf16 bf16", "cast bf16", "exp f32"]);
    assert_eq!(values[0].ty(), &ty);
}

#[test]
fn an_engine_without_the_low_precision_dtype_is_an_error() {
    let watched = Watched::new(DTypeSet::of(&[DType::F32]));
    let layer = Autocast::new(watched, LowPrecision::F16);
    let x = matrix(&layer);
    let error = block_on(layer.read(x.matmul(&x).into_value())).unwrap_err().to_string();
    assert!(error.starts_with("[autocast] `watched` does not compute with f16\n  hint: "), "{error}");
    assert_eq!(read(&layer, x.exp()).len(), 4, "the rest runs");
}

#[test]
fn poison_propagates() {
    let (_, layer) = bf16();
    let x = matrix(&layer);
    let index = Var::new(&layer, layer.write([5i32].into()));
    let gone = x.take(0, &index).broadcast([2, 2]);
    assert!(block_on(layer.read(gone.matmul(&x).into_value())).is_err());
}
