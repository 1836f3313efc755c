//! Batching rules of custom ops, and of random numbers with per-example keys.

use crate::Vmap;
use crate::call::Call;
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    Custom, Op, Operand, OperandType, Operands, RandomKind, Result, SliceAxis, TensorType, Values, Var, infer,
};

/// Runs the op's expansion on the layer; `None` if it has none.
///
/// # Errors
/// When the expansion's types differ from the inferred ones.
pub(super) fn expanded(
    layer: &Vmap,
    custom: &Custom,
    inputs: &[Operand],
    results: &[TensorType],
) -> Result<Option<Values>> {
    custom.expand_values(layer, inputs, results).transpose()
}

/// Runs the op's batched form.
///
/// # Errors
/// When that op does not accept the operands, or returns other types.
pub(super) fn at_once<'a>(call: Call<'a>, batched: Custom) -> Result<Vec<Var<'a>>> {
    let operands: Operands = (0..call.len()).map(|place| call.examples(place).into_operand()).collect();
    let op = Op::Custom(batched);
    let types = infer(&op, &OperandType::list(&operands))?;
    let expected = call.results.iter().map(|ty| ty.with_shape(call.with_examples(&ty.shape)));
    if !types.iter().copied().eq(expected) {
        let hint = "`batched` of the op must return results with the batch dimension first";
        return Err(call.error("returns other types for a batch than for one example").hint(hint));
    }
    let values = call.engine().execute(&op, operands, &types);
    Ok(values.into_iter().map(|value| Var::new(call.engine(), value)).collect())
}

/// Runs the op on one example after the other.
///
/// # Errors
/// When results of different examples differ in shape.
pub(super) fn one_by_one<'a>(call: &Call<'a>, custom: &Custom) -> Result<Vec<Var<'a>>> {
    let op = Op::Custom(custom.clone());
    let mut columns: Vec<Vec<Var<'a>>> = call.results.iter().map(|_| Vec::with_capacity(call.n)).collect();
    for number in 0..call.n {
        let operands: Operands = (0..call.len()).map(|place| example(call, place, number)).collect();
        let types = infer(&op, &OperandType::list(&operands))?;
        let values = call.engine().execute(&op, operands, &types);
        for ((column, value), ty) in columns.iter_mut().zip(values).zip(call.results) {
            if value.ty() != ty {
                let problem = format!("returns {} for example {number}, {ty} for others", value.ty());
                return Err(call.error(&problem));
            }
            let value = Var::new(call.engine(), value);
            column.push(value.reshape(value.shape().inserted(0, 1)));
        }
    }
    Ok(columns.into_iter().map(|column| Var::concat(&column, 0)).collect())
}

/// One example of an operand.
fn example(call: &Call<'_>, place: usize, number: usize) -> Operand {
    let var = call.input(place);
    if !call.is_batched(place) {
        return var.operand().clone();
    }
    let one = var.slice_axis(0, SliceAxis::range(number..number + 1));
    one.reshape(call.shape(place)).into_operand()
}

/// Random numbers with per-example keys: each example draws the same numbers as without batching.
pub(super) fn random<'a>(call: &Call<'a>, ty: &TensorType, distribution: RandomKind) -> Var<'a> {
    let draw = |number: usize| {
        let key: Operands = [example(call, 0, number)].into_iter().collect();
        let drawn = Var::emit(call.engine(), &Op::Random { ty: *ty, distribution }, key).remove(0);
        drawn.reshape(ty.shape.inserted(0, 1))
    };
    let drawn: Vec<Var<'a>> = (0..call.n).map(draw).collect();
    Var::concat(&drawn, 0)
}
