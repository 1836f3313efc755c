//! Graph rewrites before fusion: the same values in a cheaper form.

mod casts;
mod constants;
mod recover;

use super::Structure;
use crate::limits::Limits;
use crate::record::{Entry, Source};
use alloc::vec::Vec;
use kiln_ir::{Axes, Op, TensorType};

/// A rewritten recording.
pub(crate) struct Rewritten {
    pub(crate) structure: Structure,
    /// For each result, its index in the original recording.
    pub(crate) originals: Vec<Option<usize>>,
    /// The type of each result.
    types: Vec<TensorType>,
}

/// Rewrites a recording.
pub(crate) fn rewrite(original: &Structure, limits: Limits) -> Rewritten {
    let recovers = |entry: &Entry| matches!(entry.op, Op::Recover { .. });
    if !limits.selects_past_poison || !original.entries.iter().any(recovers) {
        return simpler(original, limits);
    }
    let narrowed = recover::narrowed(original);
    let mut rewritten = simpler(&narrowed.structure, limits);
    for original in &mut rewritten.originals {
        *original = original.and_then(|result| narrowed.originals[result]);
    }
    rewritten
}

fn simpler(original: &Structure, limits: Limits) -> Rewritten {
    casts::before_views(constants::folded(transpose_products(original, limits), limits))
}

/// Matmuls with more rows and columns than this add in an order that depends on the length of the sums alone. Exact
/// regions exchange the factors of no others.
const NARROW: usize = 32;

/// Rewrites matmuls whose result is only used transposed: `(A B)ᵀ = Bᵀ Aᵀ`, where the transposes of the factors are
/// views. The gradient of a weight then has the memory layout of the weight.
fn transpose_products(original: &Structure, limits: Limits) -> Rewritten {
    let transpositions = transposed_products(original, limits);
    let mut out = Rewritten::new(&original.externals);
    // The new index of each original result. A removed matmul keeps the index of its factors' transposes.
    let mut places: Vec<u32> = Vec::new();
    let mut first = 0;
    for (number, entry) in original.entries.iter().enumerate() {
        let results = entry.results.len();
        match transpositions[number] {
            Transposition::Product => places.push(u32::MAX),
            Transposition::Transpose(product) => {
                let place = out.transposed_product(original, product, &places, first, entry.results[0]);
                places.push(place);
            }
            Transposition::No => {
                let seen: Vec<_> =
                    (first..first + results).map(|result| (Some(result), original.alive[result])).collect();
                out.add(out.moved(entry, &places), &seen, &mut places);
            }
        }
        first += results;
    }
    out
}

/// The rewrite of an entry.
#[derive(Clone, Copy, PartialEq)]
enum Transposition {
    No,
    /// A matmul that is only used transposed: computed at the position of its transpose.
    Product,
    /// The transpose of that matmul.
    Transpose(usize),
}

fn transposed_products(structure: &Structure, limits: Limits) -> Vec<Transposition> {
    let makers = structure.makers();
    let mut uses = alloc::vec![0usize; makers.len()];
    let operands = structure.entries.iter().flat_map(|entry| &entry.operands);
    for source in operands {
        if let Source::Result(result) = source {
            uses[*result as usize] += 1;
        }
    }
    let mut transpositions = alloc::vec![Transposition::No; structure.entries.len()];
    for (number, entry) in structure.entries.iter().enumerate() {
        let (Op::Permute(axes), [Source::Result(result)]) = (&entry.op, entry.operands.as_slice()) else {
            continue;
        };
        let result = *result as usize;
        let product = makers[result];
        let only = uses[result] == 1 && !structure.alive[result];
        let no_numbers = || {
            let operands = &structure.entries[product].operands;
            operands.iter().all(|source| matches!(source, Source::External(_) | Source::Result(_)))
        };
        let is_narrow = entry.results[0].shape.iter().rev().take(2).any(|&length| length < NARROW);
        if only
            && !(limits.exact && is_narrow)
            && is_transpose(axes)
            && structure.entries[product].op == Op::MatMul
            && no_numbers()
        {
            transpositions[product] = Transposition::Product;
            transpositions[number] = Transposition::Transpose(product);
        }
    }
    transpositions
}

/// Whether the permutation exchanges only the last two axes.
fn is_transpose(axes: &Axes) -> bool {
    let rank = axes.len();
    rank >= 2
        && axes.iter().take(rank - 2).enumerate().all(|(to, from)| to == from)
        && axes.get(rank - 2) == rank - 1
}

impl Rewritten {
    fn new(externals: &[TensorType]) -> Rewritten {
        let structure = Structure { entries: Vec::new(), externals: externals.to_vec(), alive: Vec::new() };
        Rewritten { structure, originals: Vec::new(), types: Vec::new() }
    }

    /// Adds an entry with, for each result, its original index and whether it is live. Appends the new indices to
    /// `places`.
    fn add(&mut self, entry: Entry, seen: &[(Option<usize>, bool)], places: &mut Vec<u32>) {
        for &(original, alive) in seen {
            places.push(self.originals.len() as u32);
            self.originals.push(original);
            self.structure.alive.push(alive);
        }
        self.types.extend(&entry.results);
        self.structure.entries.push(entry);
    }

    /// Adds the transposes of the factors and their matmul, at the position of the transposed result.
    fn transposed_product(
        &mut self,
        original: &Structure,
        product: usize,
        places: &[u32],
        result: usize,
        ty: TensorType,
    ) -> u32 {
        let entry = &original.entries[product];
        let mut factors = [self.source(entry.operands[1], places), self.source(entry.operands[0], places)];
        for factor in &mut factors {
            let of = self.ty(*factor);
            let rank = of.rank();
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 2, rank - 1);
            let mut shape = of.shape;
            (shape[rank - 2], shape[rank - 1]) = (of.shape[rank - 1], of.shape[rank - 2]);
            let op = Op::Permute(Axes::new(&order));
            *factor = Source::Result(self.push(op, &[*factor], of.with_shape(shape), None, false));
        }
        let alive = original.alive[result];
        self.push(Op::MatMul, &factors, ty, Some(result), alive)
    }

    fn push(
        &mut self,
        op: Op,
        operands: &[Source],
        ty: TensorType,
        original: Option<usize>,
        alive: bool,
    ) -> u32 {
        let operands = operands.iter().copied().collect();
        self.structure.entries.push(Entry { op, operands, results: [ty].into_iter().collect() });
        self.structure.alive.push(alive);
        self.types.push(ty);
        self.originals.push(original);
        (self.originals.len() - 1) as u32
    }

    fn moved(&self, entry: &Entry, places: &[u32]) -> Entry {
        let operands = entry.operands.iter().map(|&source| self.source(source, places)).collect();
        Entry { op: entry.op.clone(), operands, results: entry.results.clone() }
    }

    fn source(&self, source: Source, places: &[u32]) -> Source {
        match source {
            Source::Result(result) => Source::Result(places[result as usize]),
            Source::External(_) | Source::Number(_) | Source::Constant(_) => source,
        }
    }

    fn ty(&self, source: Source) -> TensorType {
        match source {
            Source::External(place) => self.structure.externals[place as usize],
            Source::Result(result) => self.types[result as usize],
            Source::Number(_) | Source::Constant(_) => unreachable!("factors are tensors"),
        }
    }
}
