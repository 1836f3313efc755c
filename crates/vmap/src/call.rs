//! An op on batched operands, as input of the batching rules.

use crate::Vmap;
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Engine, Error, Op, Operand, Operands, Result, Shape, TensorType, Values, Var};
use smallvec::SmallVec;

/// An op with its operands on the inner engine.
pub(crate) struct Call<'a> {
    layer: &'a Vmap,
    pub(crate) op: &'a Op,
    /// The number of examples.
    pub(crate) n: usize,
    inputs: SmallVec<[Input<'a>; 4]>,
    /// The types of the results of one example.
    pub(crate) results: &'a [TensorType],
}

/// An operand on the inner engine.
enum Input<'a> {
    /// Batched: the examples are the leading axis.
    Batched(Var<'a>),
    /// Shared by all examples: a tensor, or a plain number.
    Shared(Var<'a>),
}

impl<'a> Call<'a> {
    pub(crate) fn open(
        layer: &'a Vmap,
        op: &'a Op,
        operands: Operands,
        results: &'a [TensorType],
    ) -> Result<Call<'a>> {
        let engine = &**layer.inner();
        let types = kiln_ir::OperandType::list(&operands);
        let ranks = types.iter().filter_map(|ty| ty.tensor()).chain(results).map(TensorType::rank);
        layer.check_rank(ranks.max().unwrap_or(0))?;
        let counts = operands.iter().filter_map(|operand| layer.num_examples(operand.value()?));
        let counts: SmallVec<[usize; 4]> = counts.collect();
        let n = counts.first().copied().unwrap_or(0);
        if let Some(other) = counts.iter().find(|&&count| count != n) {
            let problem = format!("one operand has a batch of {n} examples, another of {other}");
            return Err(Error::type_error(op.name(), problem, &types)
                .hint("all batched arguments of `vmap` have the same number of examples"));
        }
        drop(types);
        let input = |operand| match operand {
            Operand::Scalar(scalar) => Input::Shared(Var::new(engine, scalar)),
            Operand::Value(value) => match layer.open(value) {
                Ok(examples) => Input::Batched(Var::new(engine, examples)),
                Err(shared) => Input::Shared(Var::new(engine, shared)),
            },
        };
        let inputs = operands.into_iter().map(input).collect();
        Ok(Call { layer, op, n, inputs, results })
    }

    pub(crate) fn engine(&self) -> &'a dyn Engine {
        &**self.layer.inner()
    }

    /// The number of operands.
    pub(crate) fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether the operand differs between examples.
    pub(crate) fn is_batched(&self, place: usize) -> bool {
        matches!(self.inputs.get(place), Some(Input::Batched(_)))
    }

    /// The operand unchanged: batched, or shared.
    pub(crate) fn input(&self, place: usize) -> &Var<'a> {
        match &self.inputs[place] {
            Input::Batched(var) | Input::Shared(var) => var,
        }
    }

    /// The operand with a leading axis of examples, broadcast if shared; a plain number unchanged.
    pub(crate) fn examples(&self, place: usize) -> Var<'a> {
        self.aligned(&self.inputs[place])
    }

    /// The shape of one example of an operand.
    pub(crate) fn shape(&self, place: usize) -> Shape {
        match &self.inputs[place] {
            Input::Batched(var) => var.shape().without(0),
            Input::Shared(var) => var.shape(),
        }
    }

    /// A shape of one example with a leading axis of examples.
    pub(crate) fn with_examples(&self, shape: &[usize]) -> Shape {
        core::iter::once(self.n).chain(shape.iter().copied()).collect()
    }

    fn aligned(&self, input: &Input<'a>) -> Var<'a> {
        match input {
            Input::Batched(var) => var.clone(),
            Input::Shared(var) if var.is_scalar() => var.clone(),
            Input::Shared(var) => var.broadcast(self.with_examples(&var.shape())),
        }
    }

    /// Runs an op on all operands with a leading axis of examples. Operands are moved, so that the engine may reuse
    /// them.
    pub(crate) fn run(mut self, op: &Op) -> Vec<Var<'a>> {
        let inputs = core::mem::take(&mut self.inputs);
        let operand = |input| match input {
            Input::Batched(var) => var.into_operand(),
            Input::Shared(_) => self.aligned(&input).into_operand(),
        };
        let operands: Operands = inputs.into_iter().map(operand).collect();
        Var::emit(self.engine(), op, operands)
    }

    /// The results of an op whose results are shared by all examples, broadcast.
    pub(crate) fn alone(self) -> Vec<Var<'a>> {
        let operands: Operands = (0..self.len()).map(|place| self.input(place).operand().clone()).collect();
        let results = Var::emit(self.engine(), self.op, operands).into_iter();
        results.map(|var| var.broadcast(self.with_examples(&var.shape()))).collect()
    }

    /// Empty results, for zero examples.
    pub(crate) fn nothing(&self) -> Vec<Var<'a>> {
        let none = |ty: &TensorType| Var::zeros(self.engine(), ty.with_shape(self.with_examples(&ty.shape)));
        self.results.iter().map(none).collect()
    }

    /// An error of the op.
    pub(crate) fn error(&self, problem: &str) -> Error {
        Error::unsupported("vmap", format!("`{}` {problem}", self.op.name()))
    }

    /// Wraps the batched results of the inner engine.
    pub(crate) fn wrap(layer: &Vmap, results: Vec<Var<'_>>) -> Values {
        results.into_iter().map(|var| layer.wrap(var.into_value())).collect()
    }
}

/// Reshapes to `split`, permutes by `order`, and reshapes to `shape`.
pub(crate) fn regrouped<'e>(x: &Var<'e>, split: &[usize], order: &[usize], shape: &[usize]) -> Var<'e> {
    x.reshape(split).permute(order).reshape(shape)
}

/// The product of lengths.
pub(crate) fn product(lengths: &[usize]) -> usize {
    lengths.iter().product()
}

/// Concatenates two lists of lengths.
pub(crate) fn joined(first: &[usize], rest: &[usize]) -> Vec<usize> {
    first.iter().chain(rest).copied().collect()
}
