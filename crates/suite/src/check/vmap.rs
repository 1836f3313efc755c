//! Mode *vmap*: an op on a batch matches the op on each example.

use super::grad::{floats, gradients, loss, projection, run};
use super::{HostOperand, Outcome, differentiates, guarded, host_operands, read};
use crate::case::{Case, Input, Tolerance};
use crate::compare::difference;
use kiln_autodiff::{Autodiff, Checkpointing, Gradients};
use kiln_ir::{CollectiveKind, Engine, Op, SliceAxis, TensorData, Value, Var};
use kiln_vmap::Vmap;
use std::cell::RefCell;
use std::sync::Arc;

/// Examples per batch.
const EXAMPLES: usize = 3;

/// Gradients of one example and of a batch sum in another order.
const GRADIENT: Tolerance = Tolerance::Near { relative: 1e6, absolute: 1e6 };

/// Compares [`Vmap`] with separate runs of each example, for every subset of up to three batched operands (with more
/// operands: each alone, all but each, and all), for batches of three, one and zero examples, and for two nested
/// layers. For differentiable cases, compares per-example gradients (a tape above the layer) and batch gradients (a
/// tape below).
pub fn check_vmap(engine: &Arc<dyn Engine>, case: &Case) -> Outcome {
    let lists: Vec<Vec<HostOperand>> = (0..EXAMPLES * EXAMPLES).map(|number| example(case, number)).collect();
    let mut outcome = Outcome::default();
    let masks = masks(case);
    for mask in &masks {
        let batch = Batch { engine, case, lists: &lists, mask, n: EXAMPLES };
        let place = format!("{} batched {mask:?}", case.name);
        if let Some(text) = refused(&case.op) {
            outcome.note(
                &place,
                guarded(|| batch.error()).map(|found| differs(&found, text)).unwrap_or_else(Some),
            );
            continue;
        }
        outcome.absorb(&place, guarded(|| batch.values()).and_then(|outcome| outcome));
        if differentiates(case) {
            let result = guarded(|| batch.gradients_of_each()).and_then(|outcome| outcome);
            outcome.absorb(&format!("{place} gradients of each"), result);
            let result = guarded(|| batch.gradients_of_all()).and_then(|outcome| outcome);
            outcome.absorb(&format!("{place} gradients of all"), result);
        }
    }
    if let Some(all) = masks.last()
        && refused(&case.op).is_none()
    {
        for n in [1, 0] {
            let batch = Batch { engine, case, lists: &lists, mask: all, n };
            let place = format!("{} with {n} examples", case.name);
            outcome.absorb(&place, guarded(|| batch.values()).and_then(|outcome| outcome));
        }
        let batch = Batch { engine, case, lists: &lists, mask: all, n: EXAMPLES };
        outcome
            .absorb(&format!("{} twice", case.name), guarded(|| batch.nested()).and_then(|outcome| outcome));
    }
    outcome
}

/// Part of the error message of an op without a batching rule.
fn refused(op: &Op) -> Option<&'static str> {
    if matches!(op, Op::NonZero { .. }) {
        return Some("another shape for each example");
    }
    let Op::Collective(collective) = op else { return None };
    matches!(collective.kind, CollectiveKind::Send { .. }).then_some("cannot send one of many examples")
}

fn differs(found: &str, text: &str) -> Option<String> {
    (!found.contains(text)).then(|| format!("says {found:?}, not {text:?}"))
}

/// The operands of one example.
fn example(case: &Case, number: usize) -> Vec<HostOperand> {
    host_operands(&Case { name: format!("{}#{number}", case.name), ..case.clone() })
}

/// The subsets of batched operands; the last is all operands.
fn masks(case: &Case) -> Vec<Vec<usize>> {
    let is_filled = |place: &usize| matches!(case.inputs[*place], Input::Tensor(..));
    let places: Vec<usize> = (0..case.inputs.len()).filter(is_filled).collect();
    let chosen = |bits: usize| {
        places.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, &place)| place).collect()
    };
    let all = (1usize << places.len().min(20)) - 1;
    let few = places.len() <= 3;
    (1..=all)
        .filter(|bits: &usize| few || bits.count_ones() == 1 || (all & !bits).count_ones() <= 1)
        .map(chosen)
        .collect()
}

/// A batch of examples and its batched operands; other operands are those of the first example.
struct Batch<'a> {
    engine: &'a Arc<dyn Engine>,
    case: &'a Case,
    lists: &'a [Vec<HostOperand>],
    mask: &'a [usize],
    n: usize,
}

impl Batch<'_> {
    /// The operands of one example.
    fn list(&self, number: usize) -> Vec<HostOperand> {
        let choose = |place: usize| {
            let number = if self.mask.contains(&place) { number } else { 0 };
            self.lists[number][place].clone()
        };
        (0..self.case.inputs.len()).map(choose).collect()
    }

    /// The operands at an index of several examples, stacked.
    fn stacked(&self, place: usize, numbers: impl Iterator<Item = usize>) -> Value {
        let engine = &**self.engine;
        let data = |number: usize| match &self.lists[number][place] {
            HostOperand::Tensor(data) => data.clone(),
            HostOperand::Scalar(_) | HostOperand::SameAs(_) => panic!("operand {place} is no filled tensor"),
        };
        let row = |number: usize| {
            let row = Var::new(engine, engine.write(data(number)));
            row.reshape(row.shape().inserted(0, 1))
        };
        let rows: Vec<Var<'_>> = numbers.map(row).collect();
        if rows.is_empty() {
            let ty = data(0).ty();
            return engine.write(TensorData::zeros(ty.with_shape(ty.shape.inserted(0, 0))));
        }
        Var::concat(&rows, 0).into_value()
    }

    fn results(&self, layer: &Vmap) -> Vec<Value> {
        let write = |place: usize, data: &TensorData| match self.mask.contains(&place) {
            true => layer.batch(self.stacked(place, 0..self.n), 0),
            false => layer.write(data.clone()),
        };
        run(layer, self.case, &self.lists[0], &write).results
    }

    fn error(&self) -> String {
        let layer = Vmap::new(self.engine.clone());
        let results = self.results(&layer);
        results[0].error().map_or_else(|| "no error".into(), ToString::to_string)
    }

    fn alone(&self, number: usize) -> Vec<Value> {
        let engine = &**self.engine;
        run(engine, self.case, &self.list(number), &|_, data| engine.write(data.clone())).results
    }

    fn values(&self) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let layer = Vmap::new(self.engine.clone());
        let results = self.results(&layer);
        let types = self.case.result_types().map_err(|error| error.to_string())?;
        for (place, (value, ty)) in results.iter().zip(&types).enumerate() {
            let wrong = value.ty() != ty;
            outcome
                .note(&format!("result {place}"), wrong.then(|| format!("{} instead of {ty}", value.ty())));
            let all = layer.unbatch(value, self.n, 0);
            if self.n == 0 {
                let data = read(&**self.engine, all).map_err(|error| error.to_string())?;
                let expected = ty.with_shape(ty.shape.inserted(0, 0));
                let wrong = data.ty() != expected;
                outcome.note("no examples", wrong.then(|| format!("{} instead of {expected}", data.ty())));
                continue;
            }
            for number in 0..self.n {
                let expected = self.alone(number).swap_remove(place);
                let problem = self.compare(&all, number, expected, self.case.tolerance)?;
                outcome.note(&format!("result {place} of example {number}"), problem);
            }
        }
        Ok(outcome)
    }

    /// Compares one example of a batch with the expected result.
    fn compare(
        &self,
        all: &Value,
        number: usize,
        expected: Value,
        tolerance: Tolerance,
    ) -> Result<Option<String>, String> {
        let engine = &**self.engine;
        let host = |value: Value| read(engine, value).map_err(|error| error.to_string());
        if let Some(error) = all.error() {
            return Err(error.to_string());
        }
        let found = host(slice(engine, all, number))?;
        Ok(difference(&host(expected)?, &found, tolerance))
    }

    /// Two nested layers. The first batched operands have both batch axes, later ones have one.
    fn nested(&self) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let below = Vmap::new(self.engine.clone());
        let above = Vmap::new(Arc::new(below.clone()));
        let (rows, columns) = (EXAMPLES, 2);
        // The example of operand `place` in row `i` and column `j`.
        let number = |place: usize, i: usize, j: usize| match self.mask.iter().position(|&p| p == place) {
            Some(0) => i * columns + j,
            Some(position) if position % 2 == 1 => i,
            Some(_) => j,
            None => 0,
        };
        let write = |place: usize, data: &TensorData| match self.mask.iter().position(|&p| p == place) {
            Some(0) => {
                let all = Var::new(&**self.engine, self.stacked(place, 0..rows * columns));
                let shape = all.shape().without(0).inserted(0, columns).inserted(0, rows);
                above.batch(below.batch(all.reshape(shape).into_value(), 0), 0)
            }
            Some(position) if position % 2 == 1 => below.batch(self.stacked(place, 0..rows), 0),
            Some(_) => above.batch(below.from_inner(self.stacked(place, 0..columns)), 0),
            None => above.write(data.clone()),
        };
        let results = run(&above, self.case, &self.lists[0], &write).results;
        for (place, value) in results.iter().enumerate() {
            let all = below.unbatch(&above.unbatch(value, columns, 0), rows, 0);
            let all = Var::new(&**self.engine, all);
            let flat = all.shape().without(0).without(0).inserted(0, rows * columns);
            let all = all.reshape(flat).into_value();
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let list: Vec<HostOperand> =
                    (0..self.case.inputs.len()).map(|p| self.lists[number(p, i, j)][p].clone()).collect();
                let engine = &**self.engine;
                let mut alone = run(engine, self.case, &list, &|_, data| engine.write(data.clone())).results;
                let problem =
                    self.compare(&all, i * columns + j, alone.swap_remove(place), self.case.tolerance)?;
                outcome.note(&format!("result {place} of example {i}, {j}"), problem);
            }
        }
        Ok(outcome)
    }

    /// The gradients of one example alone, by the filled float operands.
    fn gradients_alone(&self, number: usize) -> Result<Vec<Option<TensorData>>, String> {
        gradients(&Autodiff::new(self.engine.clone(), Checkpointing::None), self.case, &self.list(number))
    }

    /// Per-example gradients: a tape above the layer.
    fn gradients_of_each(&self) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let layer = Vmap::new(self.engine.clone());
        let tape = Autodiff::new(Arc::new(layer.clone()), Checkpointing::None);
        let leaves = Leaves::default();
        let ran = run(&tape, self.case, &self.lists[0], &|place, data| {
            let value = match self.mask.contains(&place) {
                true => layer.batch(self.stacked(place, 0..self.n), 0),
                false => tape.write(data.clone()),
            };
            leaves.require(&tape, place, value)
        });
        let loss = loss(&tape, self.case, "first", floats(ran.results)).ok_or("there is no float result")?;
        let found = tape.backward(&loss, None).map_err(|error| error.to_string())?;
        for number in 0..self.n {
            for (place, expected) in self.gradients_alone(number)?.into_iter().enumerate() {
                let (Some(expected), Some(gradient)) = (expected, leaves.gradient(&found, place)) else {
                    continue;
                };
                let all = layer.unbatch(&gradient, self.n, 0);
                let problem = self.compare(&all, number, self.engine.write(expected), GRADIENT)?;
                outcome.note(&format!("operand {place} of example {number}"), problem);
            }
        }
        Ok(outcome)
    }

    /// The gradient of the sum of all examples: a tape below the layer.
    fn gradients_of_all(&self) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let tape = Autodiff::new(self.engine.clone(), Checkpointing::None);
        let layer = Vmap::new(Arc::new(tape.clone()));
        let leaves = Leaves::default();
        let ran = run(&layer, self.case, &self.lists[0], &|place, data| match self.mask.contains(&place) {
            true => layer.batch(leaves.require(&tape, place, self.stacked(place, 0..self.n)), 0),
            false => leaves.require(&tape, place, tape.write(data.clone())),
        });
        let found = tape
            .backward(&self.total(&tape, &layer, ran.results)?, None)
            .map_err(|error| error.to_string())?;
        let alone: Vec<_> =
            (0..self.n).map(|number| self.gradients_alone(number)).collect::<Result<_, _>>()?;
        for place in 0..self.case.inputs.len() {
            let Some(gradient) = leaves.gradient(&found, place) else { continue };
            let parts = || alone.iter().filter_map(|list| list[place].clone());
            if self.mask.contains(&place) {
                for (number, expected) in parts().enumerate() {
                    let problem = self.compare(&gradient, number, self.engine.write(expected), GRADIENT)?;
                    outcome.note(&format!("operand {place} of example {number}"), problem);
                }
            } else {
                let engine = &**self.engine;
                let parts = parts().map(|data| Var::new(engine, engine.write(data)));
                let Some(sum) = parts.reduce(|a, b| a + b) else { continue };
                let expected = read(engine, sum.into_value()).map_err(|error| error.to_string())?;
                let found = read(engine, gradient).map_err(|error| error.to_string())?;
                outcome.note(&format!("operand {place} of all"), difference(&expected, &found, GRADIENT));
            }
        }
        Ok(outcome)
    }

    /// The sum of the projections of all examples.
    fn total(&self, tape: &Autodiff, layer: &Vmap, results: Vec<Value>) -> Result<Value, String> {
        let terms = floats(results).into_iter().map(|(place, value)| {
            let weights = Var::new(tape, tape.write(projection(self.case, "first", place, value.shape())));
            let all = Var::new(tape, layer.unbatch(&value, self.n, 0));
            let axes: Vec<usize> = (0..all.rank()).collect();
            (&all * weights.broadcast(all.shape())).sum(&axes).reshape([])
        });
        terms.reduce(|a, b| a + b).map(Var::into_value).ok_or_else(|| "there is no float result".into())
    }
}

/// The leaves of a tape, by operand index.
#[derive(Default)]
struct Leaves(RefCell<Vec<(usize, Value)>>);

impl Leaves {
    /// The value, as a leaf of the tape if it is a float.
    fn require(&self, tape: &Autodiff, place: usize, value: Value) -> Value {
        if !value.dtype().is_float() {
            return value;
        }
        let leaf = tape.require_grad(value);
        self.0.borrow_mut().push((place, leaf.clone()));
        leaf
    }

    fn gradient(&self, found: &Gradients, place: usize) -> Option<Value> {
        let leaves = self.0.borrow();
        found.get(&leaves.iter().find(|(leaf, _)| *leaf == place)?.1)
    }
}

/// Slices one example from a batch.
fn slice(engine: &dyn Engine, all: &Value, number: usize) -> Value {
    let all = Var::new(engine, all.clone());
    let one = all.slice_axis(0, SliceAxis::range(number..number + 1));
    one.reshape(all.shape().without(0)).into_value()
}
