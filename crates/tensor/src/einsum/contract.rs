//! Lowering of equations to ops: diagonals, sums, and one matmul per pair of operands.

use super::grammar::{Equation, Label, LabelSet};
use super::order::Terms;
use crate::{AnyTensor, Result, Shape};
use alloc::vec::Vec;
use kiln_ir::{Axes, Binary, MAX_RANK, Op, Reduction, SliceAxis};

pub(super) fn evaluate(equation: &Equation, operands: Vec<AnyTensor>) -> Result<AnyTensor> {
    let terms = Terms::new(equation);
    let order = terms.order()?;
    let mut needed = terms.labels.clone();
    let prepared = operands.into_iter().zip(&equation.operands).zip(&terms.labels);
    let mut live = prepared
        .map(|((tensor, labels), &kept)| Term::prepare(equation, tensor, labels, kept).map(Some))
        .collect::<Result<Vec<Option<Term>>>>()?;
    for (left, right) in order {
        let result = terms.result(&needed, left, right);
        let (Some(a), Some(b)) = (live[left].take(), live[right].take()) else { continue };
        (needed[left], needed[right]) = (LabelSet::default(), LabelSet::default());
        needed.push(result);
        live.push(Some(a.contract(equation, b, result)?));
    }
    // An equation has at least one operand, and the last tensor is the result of all.
    match live.pop().flatten() {
        Some(last) => last.arranged(&equation.proper_output())?.reshape(equation.output_shape()),
        None => Err(kiln_ir::Error::type_error("einsum", "has no operand", &[])),
    }
}

/// A tensor with one label per axis, all different, none of length 1.
struct Term {
    tensor: AnyTensor,
    labels: Vec<Label>,
}

impl Term {
    /// Extracts the diagonals of repeated labels, without axes of length 1, and sums over the labels that are not kept.
    fn prepare(equation: &Equation, tensor: AnyTensor, labels: &[Label], kept: LabelSet) -> Result<Term> {
        let shape = shape_of(equation, labels);
        let mut term = Term { tensor: tensor.reshape(shape)?, labels: labels.to_vec() };
        while let Some(pair) = term.repeated() {
            term = term.diagonal(equation, pair)?;
        }
        term.summed(equation, kept)
    }

    /// Returns the indices of two axes with one label.
    fn repeated(&self) -> Option<(usize, usize)> {
        let first = |place: usize| self.labels[..place].iter().position(|label| *label == self.labels[place]);
        (0..self.labels.len()).find_map(|place| first(place).map(|first| (first, place)))
    }

    /// Extracts the diagonal of two axes with one label. Two adjacent axes of length n form one of n², whose every (n +
    /// 1)th element is on the diagonal.
    fn diagonal(self, equation: &Equation, (first, second): (usize, usize)) -> Result<Term> {
        let length = equation.length(self.labels[first]);
        let rest: Vec<usize> =
            (0..self.labels.len()).filter(|axis| *axis != first && *axis != second).collect();
        let axes: Vec<usize> = rest.iter().copied().chain([first, second]).collect();
        let side_by_side = permuted(self.tensor, &axes)?;
        let outer = |last: usize, shape: &Shape| -> Shape {
            shape.iter().take(rest.len()).copied().chain([last]).collect()
        };
        let flat = outer(length * length, side_by_side.shape());
        let flat = side_by_side.reshape(flat)?;
        let mut slices: Vec<SliceAxis> = flat.shape().iter().map(|&len| SliceAxis::all(len)).collect();
        slices[rest.len()] = SliceAxis { start: 0, len: length, step: length as isize + 1 };
        let labels = rest.iter().map(|&axis| self.labels[axis]).chain([self.labels[first]]).collect();
        Ok(Term { tensor: flat.apply(&Op::Slice(slices))?, labels })
    }

    fn summed(self, equation: &Equation, kept: LabelSet) -> Result<Term> {
        let lost: Vec<usize> =
            (0..self.labels.len()).filter(|&axis| !kept.contains(self.labels[axis])).collect();
        if lost.is_empty() {
            return Ok(self);
        }
        let labels: Vec<Label> = self.labels.into_iter().filter(|&label| kept.contains(label)).collect();
        let sum = self.tensor.apply(&Op::Reduce { reduction: Reduction::Sum, axes: Axes::new(&lost) })?;
        Ok(Term { tensor: sum.reshape(shape_of(equation, &labels))?, labels })
    }

    /// Permutes the axes to the order of these labels, which are all labels of the term.
    fn arranged(self, labels: &[Label]) -> Result<AnyTensor> {
        let place = |label: &Label| self.labels.iter().position(|own| own == label);
        let axes: Vec<usize> = labels.iter().filter_map(place).collect();
        permuted(self.tensor, &axes)
    }

    fn contract(self, equation: &Equation, other: Term, result: LabelSet) -> Result<Term> {
        let (a, b) = (LabelSet::of(&self.labels), LabelSet::of(&other.labels));
        let pick = |labels: &[Label], set: LabelSet| -> Vec<Label> {
            labels.iter().copied().filter(|&label| set.contains(label)).collect()
        };
        let shared = a.intersection(b);
        let groups = Groups {
            batch: pick(&self.labels, shared.intersection(result)),
            left: pick(&self.labels, a.without(shared)),
            right: pick(&other.labels, b.without(shared)),
            contracted: pick(&self.labels, shared.without(result)),
        };
        let tensor = match groups.contracted.is_empty() {
            true => groups.product(equation, self, other)?,
            false => groups.matmul(equation, self, other)?,
        };
        let labels = [groups.batch, groups.left, groups.right].concat();
        Ok(Term { tensor, labels })
    }
}

/// The labels of two terms: both have `batch` and `contracted`, one has `left`, the other `right`.
struct Groups {
    batch: Vec<Label>,
    left: Vec<Label>,
    right: Vec<Label>,
    contracted: Vec<Label>,
}

impl Groups {
    /// Computes `[batch.., left.., 1..] * [batch.., 1.., right..]`.
    fn product(&self, equation: &Equation, a: Term, b: Term) -> Result<AnyTensor> {
        let Groups { batch, left, right, .. } = self;
        let lengths = |labels: &[Label]| shape_of(equation, labels).to_vec();
        let shape_a: Shape = [lengths(batch), lengths(left), alloc::vec![1; right.len()]].concat().into();
        let shape_b: Shape = [lengths(batch), alloc::vec![1; left.len()], lengths(right)].concat().into();
        let a = a.arranged(&[&batch[..], left].concat())?.reshape(shape_a)?;
        let b = b.arranged(&[&batch[..], right].concat())?.reshape(shape_b)?;
        a.binary(Binary::Mul, b)
    }

    /// Computes `[batch.., left, contracted] x [batch.., contracted, right]`.
    fn matmul(&self, equation: &Equation, a: Term, b: Term) -> Result<AnyTensor> {
        let Groups { batch, left, right, contracted } = self;
        let dtype = a.tensor.dtype();
        let elements = |labels: &[Label]| shape_of(equation, labels).num_elements();
        // Batch axes stay separate, which needs no copy, unless there are too many of them.
        let lengths: Vec<usize> = match batch.len() + 2 <= MAX_RANK {
            true => shape_of(equation, batch).to_vec(),
            false => Vec::from([elements(batch)]),
        };
        let matrices = |m: usize, n: usize| -> Shape { lengths.iter().copied().chain([m, n]).collect() };
        let (m, k, n) = (elements(left), elements(contracted), elements(right));
        let a = a.arranged(&[&batch[..], left, contracted].concat())?.reshape(matrices(m, k))?;
        let b = b.arranged(&[&batch[..], contracted, right].concat())?.reshape(matrices(k, n))?;
        let product = a.apply_with(&Op::MatMul, [b.into_value().into()])?.cast(dtype)?;
        product.reshape(shape_of(equation, &[&batch[..], left, right].concat()))
    }
}

fn shape_of(equation: &Equation, labels: &[Label]) -> Shape {
    labels.iter().map(|&label| equation.length(label)).collect()
}

fn permuted(tensor: AnyTensor, axes: &[usize]) -> Result<AnyTensor> {
    match axes.iter().copied().eq(0..axes.len()) {
        true => Ok(tensor),
        false => tensor.apply(&Op::Permute(Axes::new(axes))),
    }
}
