//! The contraction order of operands, two at a time.

use super::grammar::{Equation, LabelSet, letter};
use crate::{Result, Shape};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use kiln_ir::{Error, MAX_RANK};

/// Up to this many operands all orders are compared: 3⁸ splits take less than a millisecond.
const OPTIMAL_UP_TO: usize = 8;

/// The contraction order of [`einsum`](crate::einsum): the pairs of operands in order, with their costs.
///
/// Up to eight operands the order is optimal: the fewest operations, and of those the fewest elements of intermediate
/// results. Beyond, each step contracts the pair whose result grows the least over its operands. Axes of length 1 are
/// dropped, and axes of only one operand are summed first.
///
/// ```
/// use kiln_tensor::{EinsumPath, Shape};
///
/// let path = EinsumPath::new("ij,jk,kl->il", &[[2, 30].into(), [30, 40].into(), [40, 50].into()])?;
/// assert_eq!((path.steps()[0].left, path.steps()[0].right), (0, 1));
/// assert_eq!(path.flops(), 2 * 2 * 30 * 40 + 2 * 2 * 40 * 50);
/// println!("{path}");
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// See [`numpy.einsum_path`](https://numpy.org/doc/stable/reference/generated/numpy.einsum_path.html).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EinsumPath {
    equation: String,
    operands: usize,
    steps: Vec<EinsumStep>,
    naive_flops: u128,
}

/// One contraction of two tensors. Tensors have indices: the operands in order, then the results of the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EinsumStep {
    /// Index of the left tensor.
    pub left: usize,
    /// Index of the right tensor.
    pub right: usize,
    /// Equation of the step. Greek letters are axes of `...`.
    pub equation: String,
    /// Number of multiplications and additions.
    pub flops: u128,
    /// Number of elements of the result.
    pub elements: u128,
}

impl EinsumPath {
    /// Computes the order for operands of these shapes.
    ///
    /// # Errors
    /// When the equation is malformed or does not match the shapes.
    pub fn new(equation: &str, shapes: &[Shape]) -> Result<EinsumPath> {
        let parsed = Equation::parse(equation, shapes).map_err(|problem| problem.into_error(&[]))?;
        let terms = Terms::new(&parsed);
        let order = terms.order()?;
        let mut live = terms.labels.clone();
        let mut steps = Vec::new();
        for &(left, right) in &order {
            let (a, b) = (live[left], live[right]);
            let result = terms.result(&live, left, right);
            steps.push(EinsumStep {
                left,
                right,
                equation: format!("{},{}->{}", letters(a), letters(b), letters(result)),
                flops: terms.flops(a, b, result),
                elements: parsed.elements(result),
            });
            (live[left], live[right]) = (LabelSet::default(), LabelSet::default());
            live.push(result);
        }
        let all = parsed.operands.iter().flatten().copied().collect::<Vec<_>>();
        let naive_flops = parsed.elements(LabelSet::of(&all)).saturating_mul(shapes.len().max(1) as u128);
        Ok(EinsumPath { equation: equation.into(), operands: shapes.len(), steps, naive_flops })
    }

    /// Returns the contractions in execution order.
    pub fn steps(&self) -> &[EinsumStep] {
        &self.steps
    }

    /// Returns the number of multiplications and additions of all steps.
    pub fn flops(&self) -> u128 {
        self.steps.iter().fold(0, |sum, step| sum.saturating_add(step.flops))
    }

    /// Returns the number of multiplications and additions of one loop nest over all letters.
    pub fn naive_flops(&self) -> u128 {
        self.naive_flops
    }

    /// Returns the number of elements of the largest result of a step.
    pub fn largest(&self) -> u128 {
        self.steps.iter().map(|step| step.elements).max().unwrap_or(0)
    }
}

impl fmt::Display for EinsumPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "einsum `{}`: {} operands, {} contractions",
            self.equation,
            self.operands,
            self.steps.len()
        )?;
        for (number, step) in self.steps.iter().enumerate() {
            let (result, equation) = (self.operands + number, &step.equation);
            let EinsumStep { left, right, flops, elements, .. } = step;
            writeln!(f, "  {result} = {left} x {right}  {equation}  {flops} flops, {elements} elements")?;
        }
        let (flops, naive, largest) = (self.flops(), self.naive_flops, self.largest());
        write!(f, "{flops} flops ({naive} in one loop), largest result {largest} elements")
    }
}

fn letters(labels: LabelSet) -> String {
    labels.iter().map(letter).collect()
}

/// The operands as sets of labels, each without axes of length 1 and without axes that only it has and that are summed.
pub(super) struct Terms<'e> {
    equation: &'e Equation,
    pub(super) labels: Vec<LabelSet>,
    output: LabelSet,
}

impl<'e> Terms<'e> {
    pub(super) fn new(equation: &'e Equation) -> Terms<'e> {
        let output = LabelSet::of(&equation.proper_output());
        let all: Vec<LabelSet> = equation.operands.iter().map(|labels| LabelSet::of(labels)).collect();
        let elsewhere = |place: usize| {
            let others = all.iter().enumerate().filter(|&(other, _)| other != place);
            others.fold(output, |set, (_, &labels)| set.union(labels))
        };
        let labels = (0..all.len()).map(|place| all[place].intersection(elsewhere(place))).collect();
        Terms { equation, labels, output }
    }

    /// Returns the tensors to contract, in order: indices of the operands first, then of the results.
    pub(super) fn order(&self) -> Result<Vec<(usize, usize)>> {
        let order = match self.labels.len() {
            0 | 1 => Some(Vec::new()),
            2 => (self.result(&self.labels, 0, 1).len() <= MAX_RANK).then(|| Vec::from([(0, 1)])),
            3..=OPTIMAL_UP_TO => self.optimal(),
            _ => self.greedy(),
        };
        order.ok_or_else(|| {
            let problem = format!("every order has an intermediate result of more than {MAX_RANK} axes");
            Error::type_error("einsum", problem, &[]).hint("contract some of the operands first")
        })
    }

    /// Returns the labels of a contraction's result: the labels that the output or another tensor still needs.
    /// Contracted tensors are empty.
    pub(super) fn result(&self, live: &[LabelSet], left: usize, right: usize) -> LabelSet {
        let others = live.iter().enumerate().filter(|&(place, _)| place != left && place != right);
        let needed = others.fold(self.output, |set, (_, &labels)| set.union(labels));
        live[left].union(live[right]).intersection(needed)
    }

    /// Counts a multiplication, and an addition if a label is summed, for each combination of indices.
    fn flops(&self, a: LabelSet, b: LabelSet, result: LabelSet) -> u128 {
        let all = a.union(b);
        let each = if all == result { 1 } else { 2 };
        self.equation.elements(all).saturating_mul(each)
    }

    /// Finds the optimal order by dynamic programming over sets of operands: the optimal order of a set is its best
    /// split.
    fn optimal(&self) -> Option<Vec<(usize, usize)>> {
        let count = self.labels.len();
        let everything = (1usize << count) - 1;
        let union = |set: usize| {
            let inside = (0..count).filter(|operand| set >> operand & 1 == 1);
            inside.fold(LabelSet::default(), |labels, operand| labels.union(self.labels[operand]))
        };
        let unions: Vec<LabelSet> = (0..=everything).map(union).collect();
        let result = |set: usize| match set.count_ones() {
            1 => unions[set],
            _ => unions[set].intersection(self.output.union(unions[everything & !set])),
        };
        let mut best: Vec<Option<Best>> = vec![None; everything + 1];
        for set in 1..=everything {
            best[set] = match set.count_ones() {
                1 => Some(Best::default()),
                _ if result(set).len() > MAX_RANK => None,
                _ => self.best_split(set, &best, &result),
            };
        }
        best[everything].as_ref()?;
        let mut order = Vec::new();
        emit(everything, &best, count, &mut order);
        Some(order)
    }

    fn best_split(
        &self,
        set: usize,
        best: &[Option<Best>],
        result: &impl Fn(usize) -> LabelSet,
    ) -> Option<Best> {
        let lowest = set & set.wrapping_neg();
        let all = result(set);
        let elements = self.equation.elements(all);
        let mut found: Option<Best> = None;
        let mut part = (set - 1) & set;
        while part > 0 {
            // Each split occurs twice; only the one whose left part has the first operand is evaluated.
            if part & lowest != 0
                && let (Some(a), Some(b)) = (&best[part], &best[set & !part])
            {
                let here = self.flops(result(part), result(set & !part), all);
                let flops = a.flops.saturating_add(b.flops).saturating_add(here);
                let size = a.elements.saturating_add(b.elements).saturating_add(elements);
                if found.as_ref().is_none_or(|found| (flops, size) < (found.flops, found.elements)) {
                    found = Some(Best { flops, elements: size, left: part });
                }
            }
            part = (part - 1) & set;
        }
        found
    }

    /// Finds an order greedily: repeatedly contracts the pair whose result is smallest compared with its operands.
    fn greedy(&self) -> Option<Vec<(usize, usize)>> {
        let mut live: Vec<LabelSet> = self.labels.clone();
        let mut open: Vec<usize> = (0..live.len()).collect();
        let mut order = Vec::new();
        while open.len() > 1 {
            let pairs =
                open.iter().enumerate().flat_map(|(i, &a)| open[i + 1..].iter().map(move |&b| (a, b)));
            let growth = |&(a, b): &(usize, usize)| {
                let result = self.result(&live, a, b);
                let size =
                    |labels: LabelSet| self.equation.elements(labels).min(i128::MAX as u128 / 4) as i128;
                (size(result) - size(live[a]) - size(live[b]), self.flops(live[a], live[b], result))
            };
            let fits = |&(a, b): &(usize, usize)| self.result(&live, a, b).len() <= MAX_RANK;
            let (a, b) = pairs.filter(fits).min_by_key(growth)?;
            let result = self.result(&live, a, b);
            open.retain(|&tensor| tensor != a && tensor != b);
            open.push(live.len());
            (live[a], live[b]) = (LabelSet::default(), LabelSet::default());
            live.push(result);
            order.push((a, b));
        }
        Some(order)
    }
}

/// The cheapest contraction of a set of operands.
#[derive(Clone, Debug, Default)]
struct Best {
    flops: u128,
    elements: u128,
    /// The operands of the left part; the others are the right one.
    left: usize,
}

/// Appends the contractions that compute a set, and returns the index of its tensor.
fn emit(set: usize, best: &[Option<Best>], count: usize, order: &mut Vec<(usize, usize)>) -> usize {
    let left = match &best[set] {
        Some(Best { left, .. }) if set.count_ones() > 1 => *left,
        Some(_) | None => return set.trailing_zeros() as usize,
    };
    let pair = (emit(left, best, count, order), emit(set & !left, best, count, order));
    order.push(pair);
    count + order.len() - 1
}
