//! The behavior of the layer, except its rules, which the suite checks for every op.

use kiln_ir::{
    Custom, CustomOp, DType, Engine, Error, Expand, Op, Operand, OperandType, Operands, RandomKind, Result,
    ResultTypes, Scalar, TensorData, TensorType, Value, Var, block_on, infer,
};
use kiln_reference::Reference;
use kiln_vmap::{Randomness, Vmap};
use std::sync::Arc;

fn layer() -> Vmap {
    Vmap::new(Arc::new(Expand::new(Reference::new())))
}

fn batch<'e>(layer: &'e Vmap, data: impl Into<TensorData>) -> Var<'e> {
    Var::new(layer, layer.batch(layer.inner().write(data.into()), 0))
}

fn read(engine: &dyn Engine, value: Value) -> Result<Vec<f64>> {
    block_on(engine.read(value)).map(|data| data.to_vec::<f64>())
}

fn all(layer: &Vmap, var: Var<'_>, examples: usize) -> Vec<f64> {
    read(&**layer.inner(), layer.unbatch(&var.into_value(), examples, 0)).expect("it is healthy")
}

fn draw(engine: &dyn Engine, key: impl Into<Operand>) -> Value {
    let ty = TensorType::new([4], DType::F32);
    let op = Op::Random { ty, distribution: RandomKind::Uniform };
    let inputs: Operands = [key.into()].into_iter().collect();
    let types = infer(&op, &OperandType::list(&inputs)).expect("a valid op");
    engine.execute(&op, inputs, &types).remove(0)
}

#[test]
fn unbatched_values_are_the_inner_engines_values() {
    let layer = layer();
    let shared = Var::new(&layer, layer.write([1.0f32, 2.0].into()));
    let sum = (&shared + &shared).into_value();
    assert!(!layer.is_batched(&sum));
    assert_eq!(all(&layer, Var::new(&layer, sum), 2), [2.0, 4.0, 2.0, 4.0]);
}

#[test]
fn any_axis_may_be_the_batch_axis() {
    let layer = layer();
    let columns = layer.inner().write([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]].into());
    let column = layer.batch(columns, 1);
    assert_eq!(*column.ty(), TensorType::new([2], DType::F32));
    assert_eq!(layer.num_examples(&column), Some(3));
    let out = layer.unbatch(&column, 3, 1);
    assert_eq!(read(&**layer.inner(), out), Ok(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let error = layer.batch(layer.inner().write([1.0f32].into()), 1).error().map(ToString::to_string);
    assert!(
        error.expect("it is poisoned").starts_with("[vmap] no axis 1 for the examples: f32[1]\n  hint: ")
    );
    let error = layer.unbatch(&column, 3, 2).error().map(ToString::to_string);
    assert_eq!(error.as_deref(), Some("[vmap] a result of 1 axes has no axis 2 for the examples: f32[2]"));
}

#[test]
fn batches_of_different_sizes_are_an_error() {
    let layer = layer();
    let sum = batch(&layer, [1.0f32, 2.0]) + batch(&layer, [1.0f32, 2.0, 3.0]);
    assert_eq!(
        sum.into_value().error().map(ToString::to_string).as_deref(),
        Some(
            "[add] one operand has a batch of 2 examples, another of 3: f32[] x f32[]\n  hint: all batched \
             arguments of `vmap` have the same number of examples"
        )
    );
}

#[test]
fn reading_a_batched_value_is_an_error() {
    let layer = layer();
    let error =
        read(&layer, batch(&layer, [1.0f32, 2.0]).into_value()).expect_err("there is no single value");
    assert!(
        error.to_string().starts_with("[vmap] a batched tensor of 2 examples is read\n  hint: "),
        "{error}"
    );
}

#[test]
fn an_example_may_have_at_most_max_rank_minus_one_axes() {
    let layer = layer();
    let x = batch(&layer, [1.0f32, 2.0]);
    let most = x.reshape(vec![1; kiln_ir::MAX_RANK - 1]);
    assert_eq!(all(&layer, most.clone(), 2), [1.0, 2.0]);
    let error = most.reshape(vec![1; kiln_ir::MAX_RANK]).into_value().error().map(ToString::to_string);
    assert!(
        error
            .expect("there is no axis left")
            .starts_with("[vmap] one example has 12 axes, which leaves none"),
    );
}

#[test]
fn an_index_out_of_range_in_one_example_is_an_error() {
    let layer = layer();
    let x = batch(&layer, [[1.0f32, 2.0], [3.0, 4.0]]);
    let index = batch(&layer, [[0i32, 1], [2, 0]]);
    let found = layer.unbatch(&x.take(0, &index).into_value(), 2, 0);
    let error = read(&**layer.inner(), found).expect_err("2 is out of range");
    assert!(error.to_string().contains("[gather]"), "{error}");
}

#[test]
fn poison_propagates() {
    let layer = layer();
    let error = Error::value("test", "broken");
    let broken = Value::poisoned(TensorType::new([], DType::F32), error.clone());
    let sum = batch(&layer, [1.0f32, 2.0]) + Var::new(&layer, broken.clone());
    let sum = sum.into_value();
    assert_eq!(sum.error(), Some(&error));
    assert_eq!(layer.unbatch(&sum, 2, 0).error(), Some(&error));
}

#[test]
fn randomness_is_different_same_or_an_error() {
    let layer = layer();
    let draw_in = |randomness| layer.scope(3, randomness, || draw(&layer, Scalar::Int(7)));
    let alone = read(&**layer.inner(), draw(&**layer.inner(), Scalar::Int(7))).expect("it is healthy");

    let same = draw_in(Randomness::Same);
    assert!(!layer.is_batched(&same));
    assert_eq!(read(&layer, same), Ok(alone.clone()));

    let different = all(&layer, Var::new(&layer, draw_in(Randomness::Different)), 3);
    let rows: Vec<&[f64]> = different.chunks(4).collect();
    assert_eq!(rows[0], alone);
    assert!(rows[0] != rows[1] && rows[1] != rows[2]);

    let error = draw_in(Randomness::Error).error().map(ToString::to_string);
    assert!(error.expect("it is refused").starts_with("[vmap] random ops inside `vmap`\n  hint: "));
    // Outside of any function of the layer there are no examples.
    assert!(!layer.is_batched(&draw(&layer, Scalar::Int(7))));
}

#[test]
fn batched_keys_draw_as_single_keys() {
    let layer = layer();
    let keys = layer.batch(layer.inner().write([3u64, 5].into()), 0);
    let drawn = all(&layer, Var::new(&layer, draw(&layer, keys)), 2);
    let alone = |key: i64| read(&**layer.inner(), draw(&**layer.inner(), Scalar::Int(key)));
    assert_eq!(Ok(drawn[..4].to_vec()), alone(3));
    assert_eq!(Ok(drawn[4..].to_vec()), alone(5));
}

#[test]
fn nested_batches_draw_different_randoms_along_both_axes() {
    let below = layer();
    let above = Vmap::new(Arc::new(below.clone()));
    let drawn = below.scope(2, Randomness::Different, || {
        above.scope(3, Randomness::Different, || draw(&above, Scalar::Int(1)))
    });
    let numbers = read(&**below.inner(), below.unbatch(&above.unbatch(&drawn, 3, 0), 2, 0));
    let mut numbers = numbers.expect("it is healthy");
    assert_eq!(numbers.len(), 24);
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    assert_eq!(numbers.len(), 24);
}

/// A custom op that adds 1, by one of several ways.
#[derive(Clone, Copy, Debug)]
struct Increment(Way);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// By an op that supports batch dims.
    Batched,
    /// By an op that returns a wrong type when batched.
    Wrong,
    Expanded,
    OnTheHost,
}

impl CustomOp for Increment {
    fn name(&self) -> &str {
        "increment"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let ty = *inputs[0].tensor().expect("a tensor");
        let dtype = if self.0 == Way::Wrong && ty.rank() > 1 { DType::F64 } else { ty.dtype };
        Ok([ty.with_dtype(dtype)].into_iter().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        (self.0 == Way::Expanded).then(|| vec![&inputs[0] + 1.0])
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let shape = *inputs[0].shape();
        let numbers: Vec<f32> = inputs[0].to_vec::<f32>().into_iter().map(|x| x + 1.0).collect();
        Some(TensorData::new(numbers, shape).map(|data| vec![data]))
    }

    fn batched(&self) -> Option<Custom> {
        matches!(self.0, Way::Batched | Way::Wrong).then(|| Custom::new(*self))
    }
}

#[test]
fn custom_ops_run_batched_expanded_or_one_by_one() {
    let layer = layer();
    for way in [Way::Batched, Way::Expanded, Way::OnTheHost] {
        let x = batch(&layer, [[1.0f32, 2.0], [3.0, 4.0]]);
        let y = x.apply(Op::Custom(Custom::new(Increment(way))), &[]);
        assert_eq!(all(&layer, y, 2), [2.0, 3.0, 4.0, 5.0], "{way:?}");
    }
    let x = batch(&layer, [[1.0f32, 2.0], [3.0, 4.0]]);
    let error = x.apply(Op::Custom(Custom::new(Increment(Way::Wrong))), &[]).into_value();
    let error = error.error().map(ToString::to_string).expect("the types differ");
    assert!(
        error.starts_with("[vmap] `increment` returns other types for a batch than for one example"),
        "{error}"
    );
}
