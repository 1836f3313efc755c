//! The JVP of one op.

use super::Forward;
use super::derive::{Derived, Source};
use super::rule::{Rule, rule_of};
use crate::gradients::add;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    Binary, Engine, Error, Op, Operand, OperandType, Operands, Scalar, TensorType, Unary, Value, Values, Var,
    expand, poisoned,
};
use smallvec::{SmallVec, smallvec};

/// The tangents of operands or results, `None` for constants.
type Tangents = SmallVec<[Option<Value>; 3]>;

/// One op with its operands split into primals and tangents.
pub(super) struct Call<'a> {
    layer: &'a Forward,
    op: &'a Op,
    primals: Operands,
    tangents: Tangents,
}

impl<'a> Call<'a> {
    pub(super) fn execute(
        layer: &'a Forward,
        op: &'a Op,
        inputs: Operands,
        results: &[TensorType],
    ) -> Values {
        let rule = rule_of(op);
        if rule == Rule::Expansion {
            return expanded(layer, op, &inputs)
                .unwrap_or_else(|| poisoned(results, &undefined(op, "implement an expansion for the op")));
        }
        let call = Call::open(layer, op, &mut { inputs });
        match rule {
            Rule::Constant | Rule::Expansion => call.constant(results),
            Rule::Undefined(hint) => call.undefined(results, &undefined(op, hint)),
            Rule::Sum => call.sum(results),
            Rule::Linear(places) => call.linear(results, places),
            Rule::Bilinear => call.bilinear(results),
            Rule::Transposed => call.transposed(results),
        }
    }

    fn open(layer: &'a Forward, op: &'a Op, inputs: &mut Operands) -> Call<'a> {
        let (mut primals, mut tangents) = (Operands::new(), Tangents::new());
        for operand in inputs.drain(..) {
            let (primal, tangent) = match operand {
                Operand::Scalar(scalar) => (scalar.into(), None),
                Operand::Value(value) => {
                    let (primal, tangent) = layer.open(value);
                    (primal.into(), tangent)
                }
            };
            primals.push(primal);
            tangents.push(tangent);
        }
        Call { layer, op, primals, tangents }
    }

    fn engine(&self) -> &'a dyn Engine {
        &*self.layer.inner
    }

    /// The engine that computes tangents.
    fn tangent_engine(&self) -> &'a dyn Engine {
        &*self.layer.tangents
    }

    fn primal(&mut self, results: &[TensorType]) -> Values {
        self.engine().execute(self.op, core::mem::take(&mut self.primals), results)
    }

    /// Joins the results with their tangents. A poisoned result has no tangent, so that its error shows.
    fn joined(&self, primals: Values, tangents: impl IntoIterator<Item = Option<Value>>) -> Values {
        let join = |(primal, tangent): (Value, Option<Value>)| match tangent {
            Some(tangent) if primal.dtype().is_float() && primal.error().is_none() => {
                self.layer.wrap(primal, tangent)
            }
            Some(_) | None => primal,
        };
        let rest = core::iter::repeat(None);
        primals.into_iter().zip(tangents.into_iter().chain(rest)).map(join).collect()
    }

    fn constant(mut self, results: &[TensorType]) -> Values {
        self.primal(results)
    }

    /// Returns the values with poisoned tangents: only reading a tangent returns the error.
    fn undefined(mut self, results: &[TensorType], error: &Error) -> Values {
        let primals = self.primal(results);
        let tangents: Tangents =
            primals.iter().map(|value| Some(Value::poisoned(*value.ty(), error.clone()))).collect();
        self.joined(primals, tangents)
    }

    fn sum(mut self, results: &[TensorType]) -> Values {
        let mut tangents = core::mem::take(&mut self.tangents).into_iter();
        let both = (tangents.next().flatten(), tangents.next().flatten());
        let primals = self.primal(results);
        let engine = self.tangent_engine();
        let run = |op: &Op, operands: Operands| engine.execute(op, operands, results).pop();
        let is_difference = matches!(self.op, Op::Binary(Binary::Sub));
        let tangent = match both {
            (Some(a), Some(b)) => run(self.op, smallvec![a.into(), b.into()]),
            (None, Some(b)) if is_difference => run(&Op::Unary(Unary::Neg), smallvec![b.into()]),
            (Some(one), None) | (None, Some(one)) => Some(one),
            (None, None) => None,
        };
        self.joined(primals, [tangent])
    }

    fn linear(mut self, results: &[TensorType], places: u32) -> Values {
        let is_linear = |place: usize| places == u32::MAX || (place < 32 && places & (1 << place) != 0);
        let mut changes = false;
        let mut operands = Operands::new();
        let tangents = core::mem::take(&mut self.tangents);
        for (place, tangent) in tangents.into_iter().enumerate() {
            operands.push(match tangent {
                Some(tangent) if is_linear(place) => {
                    changes = true;
                    tangent.into()
                }
                None if is_linear(place) => self.nothing(place),
                Some(_) | None => self.primals[place].clone(),
            });
        }
        if !changes {
            return self.constant(results);
        }
        let primals = self.primal(results);
        let tangents = self.tangent_engine().execute(self.op, operands, results);
        self.joined(primals, tangents.into_iter().map(Some))
    }

    /// A zero tangent for a constant operand, in an op that takes other tangents too.
    fn nothing(&self, place: usize) -> Operand {
        match &self.primals[place] {
            Operand::Scalar(_) => Scalar::Float(0.0).into(),
            Operand::Value(_) if matches!(self.op, Op::Select) => Scalar::Float(0.0).into(),
            Operand::Value(value) => Var::zeros(self.engine(), *value.ty()).into_operand(),
        }
    }

    fn bilinear(mut self, results: &[TensorType]) -> Values {
        let tangents = core::mem::take(&mut self.tangents);
        let term = |(place, tangent): (usize, Option<Value>)| {
            let mut operands = self.primals.clone();
            operands[place] = tangent?.into();
            Some(operands)
        };
        let terms: Vec<Operands> = tangents.into_iter().enumerate().filter_map(term).collect();
        let primals = self.primal(results);
        let engine = self.tangent_engine();
        let products = terms.into_iter().map(|operands| engine.execute(self.op, operands, results).remove(0));
        let tangent = products.reduce(|a, b| add(engine, a, b));
        self.joined(primals, [tangent])
    }

    fn transposed(self, results: &[TensorType]) -> Values {
        let active: SmallVec<[bool; 3]> = self.tangents.iter().map(Option::is_some).collect();
        let derived = self.layer.derived.get(self.op, &OperandType::list(&self.primals), results, &active);
        match derived {
            Ok(derived) => self.through(&derived, results),
            Err(error) => self.without_rule(results, &error),
        }
    }

    /// Runs a derived program on the operands, the results and the tangents.
    fn through(mut self, derived: &Arc<Derived>, results: &[TensorType]) -> Values {
        let read = |source: &Source| match *source {
            Source::Operand(place) => self.primals[place].value().cloned(),
            Source::Result(_) => None,
            Source::Tangent(place) => self.tangents[place].clone(),
        };
        let mut given: SmallVec<[Option<Value>; 8]> = derived.sources.iter().map(read).collect();
        self.tangents.clear();
        let primals = self.primal(results);
        for (value, source) in given.iter_mut().zip(&derived.sources) {
            if let Source::Result(place) = *source {
                *value = primals.get(place).cloned();
            }
        }
        let mut found =
            derived.program.run(self.tangent_engine(), given.into_iter().flatten().collect()).into_iter();
        let tangents: Tangents =
            derived.changes.iter().map(|&changes| if changes { found.next() } else { None }).collect();
        self.joined(primals, tangents)
    }

    /// Falls back to the expansion of a custom op whose rule cannot be transposed.
    fn without_rule(self, results: &[TensorType], error: &Error) -> Values {
        let join = |(primal, tangent): (&Operand, &Option<Value>)| match (primal, tangent) {
            (Operand::Value(value), Some(tangent)) => self.layer.wrap(value.clone(), tangent.clone()).into(),
            (operand, _) => operand.clone(),
        };
        let duals: Operands = self.primals.iter().zip(&self.tangents).map(join).collect();
        if let Op::Custom(custom) = self.op {
            return match custom.expand_values(self.layer, &duals, results) {
                Some(Ok(values)) => values,
                Some(Err(error)) => poisoned(results, &error),
                None => self.undefined(results, error),
            };
        }
        match expanded(self.layer, self.op, &duals) {
            Some(values) if values.iter().map(Value::ty).eq(results) => values,
            Some(_) | None => self.undefined(results, error),
        }
    }
}

/// The results by the op's expansion, run on the layer itself.
fn expanded(layer: &Forward, op: &Op, inputs: &[Operand]) -> Option<Values> {
    if let Op::Fused(fused) = op {
        return Some(fused.program().run_region(layer, inputs.iter().cloned().collect()));
    }
    let inputs: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(layer, operand.clone())).collect();
    Some(expand(layer, op, &inputs)?.into_iter().map(Var::into_value).collect())
}

fn undefined(op: &Op, hint: &str) -> Error {
    Error::gradient(op.name(), "has no derivative").hint(hint)
}
