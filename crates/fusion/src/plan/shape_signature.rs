//! Shape generalization: recordings that differ in dim lengths alone and share a plan's structure.
//!
//! The planner's decisions depend on few facts about lengths: which are equal, which are 1, which tensor is larger,
//! whether a product of lengths reaches a threshold, and which axes a reshape merges or splits. [`Likeness`] holds
//! these facts. Two recordings of equal ops, wiring and likeness get equal groups. A plan for one becomes a plan for
//! the other once its types are replaced. Where the facts cannot be derived from single shapes, the lengths themselves
//! are part of the likeness.

use super::Structure;
use super::group::WORTH_SHARING;
use crate::limits::{COLUMN_THREADS, Limits};
use crate::record::Source;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{DType, FxHasher, Lengths, LoopAttributes, LoopOp, Op, Shape, TensorType};
use smallvec::SmallVec;

/// The maximum number of distinct shapes of a recording; larger recordings have no likeness.
const MAX_SHAPES: usize = 512;

/// The maximum number of axes longer than 1 whose products of lengths are enumerated.
const MAX_AXES: usize = 6;

/// The planner's facts about the lengths in a recording.
#[derive(Debug)]
pub(super) struct ShapeSignature {
    hash: u64,
    /// The encoded facts.
    facts: Vec<u32>,
    /// The distinct shapes of the recording, in order of first occurrence.
    shapes: Vec<Shape>,
    /// The shape of each external, then of each result, as an index into `shapes`.
    places: Vec<u32>,
}

impl ShapeSignature {
    /// Computes the likeness of a recording; `None` if that is too expensive, or if a tensor has no elements.
    pub(super) fn of(structure: &Structure, limits: Limits) -> Option<ShapeSignature> {
        let mut by_shape: BTreeMap<&[usize], u32> = BTreeMap::new();
        let mut shapes: Vec<Shape> = Vec::new();
        let mut places = Vec::with_capacity(structure.externals.len() + structure.alive.len());
        for ty in structure.types() {
            let place = *by_shape.entry(&ty.shape).or_insert_with(|| {
                shapes.push(ty.shape);
                shapes.len() as u32 - 1
            });
            if shapes.len() > MAX_SHAPES {
                return None;
            }
            places.push(place);
        }
        let mut builder = SignatureBuilder { limits, facts: Vec::new(), lengths: BTreeMap::new() };
        builder.symbols(&shapes)?;
        builder.products(structure, &shapes);
        builder.sizes(&shapes);
        builder.reshapes(structure, &shapes, &places)?;
        let SignatureBuilder { facts, .. } = builder;
        let mut hasher = FxHasher::new(structure.entries.len() as u64 + 1);
        structure.entries.iter().for_each(|entry| hasher.write_u8(entry.op.kind() as u8));
        (&facts, &places, &structure.alive).hash(&mut hasher);
        Some(ShapeSignature { hash: hasher.finish(), facts, shapes, places })
    }

    /// A hash of the facts and of the ops of the recording.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether two recordings of equal ops and wiring get equal groups.
    pub(super) fn matches(&self, other: &ShapeSignature) -> bool {
        self.hash == other.hash && self.places == other.places && self.facts == other.facts
    }

    /// Maps each shape of this recording to its shape in a recording of equal likeness.
    pub(super) fn replacements(&self, other: &ShapeSignature) -> BTreeMap<Vec<usize>, Shape> {
        self.shapes.iter().map(|shape| shape.to_vec()).zip(other.shapes.iter().copied()).collect()
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.facts.len() * 4 + self.places.len() * 4 + self.shapes.len() * size_of::<Shape>()
    }
}

impl Structure {
    /// The types of all externals, then of all results.
    fn types(&self) -> impl Iterator<Item = &TensorType> {
        self.externals.iter().chain(self.entries.iter().flat_map(|entry| &entry.results))
    }
}

/// Whether two ops are equal except for lengths that the planner ignores or that the result types also contain.
pub(super) fn equal_but_for_lengths(a: &Op, b: &Op) -> bool {
    a == b
        || match (a, b) {
            (Op::Full(a), Op::Full(b)) => a.dtype == b.dtype,
            (Op::Iota { ty: a, axis }, Op::Iota { ty: b, axis: other }) => {
                a.dtype == b.dtype && axis == other
            }
            (Op::Random { ty: a, distribution }, Op::Random { ty: b, distribution: other }) => {
                a.dtype == b.dtype && distribution == other
            }
            (Op::Slice(a), Op::Slice(b)) => a.len() == b.len(),
            (Op::Windows { axis, .. }, Op::Windows { axis: other, .. }) => axis == other,
            (Op::Loop(a), Op::Loop(b)) => {
                let roles = |looped: &LoopOp| LoopAttributes { steps: 0, ..looped.attributes() };
                roles(a) == roles(b)
            }
            pair => matches!(
                pair,
                (Op::Reshape(_), Op::Reshape(_))
                    | (Op::Broadcast(_), Op::Broadcast(_))
                    | (Op::SliceUpdate { .. }, Op::SliceUpdate { .. })
                    | (Op::Resize { .. }, Op::Resize { .. })
                    | (Op::Conv { .. }, Op::Conv { .. })
                    | (Op::Pool(_), Op::Pool(_))
                    | (Op::PoolGrad { .. }, Op::PoolGrad { .. })
                    | (Op::TopK { .. }, Op::TopK { .. })
            ),
        }
}

/// The op of a region for other lengths, reconstructed from the type of its result; `None` where the type does not
/// determine it.
pub(super) fn of_type(op: &Op, ty: TensorType) -> Option<Op> {
    match op.info().lengths {
        Lengths::Independent => Some(op.clone()),
        Lengths::OfResult => with_lengths(op, ty),
        // The result type does not determine the attributes.
        Lengths::Other => None,
    }
}

/// An op whose attributes contain the lengths of its result, with the lengths of `ty`.
fn with_lengths(op: &Op, ty: TensorType) -> Option<Op> {
    if let Op::Full(_) = op {
        Some(Op::Full(ty))
    } else if let Op::Iota { axis, .. } = op {
        Some(Op::Iota { ty, axis: *axis })
    } else if let Op::Reshape(_) = op {
        Some(Op::Reshape(ty.shape))
    } else if let Op::Broadcast(_) = op {
        Some(Op::Broadcast(ty.shape))
    } else {
        None
    }
}

/// Collects the facts of a likeness.
struct SignatureBuilder {
    limits: Limits,
    facts: Vec<u32>,
    /// A symbol for each length, in order of first occurrence.
    lengths: BTreeMap<usize, u32>,
}

impl SignatureBuilder {
    fn add(&mut self, fact: usize) {
        self.facts.push(fact as u32);
    }

    /// Adds a length itself, where no weaker fact suffices.
    fn add_length(&mut self, length: usize) {
        self.facts.extend([length as u32, (length as u64 >> 32) as u32]);
    }

    /// Adds which lengths are equal, and which are 1. `None` if one is 0.
    fn symbols(&mut self, shapes: &[Shape]) -> Option<()> {
        self.lengths.insert(1, 0);
        for shape in shapes {
            self.add(shape.rank());
            for &length in shape.iter() {
                if length == 0 {
                    return None;
                }
                let next = self.lengths.len() as u32;
                let symbol = *self.lengths.entry(length).or_insert(next);
                self.facts.push(symbol);
            }
        }
        Some(())
    }

    /// Adds which thresholds the products of lengths reach. Row lengths and row counts are such products.
    fn products(&mut self, structure: &Structure, shapes: &[Shape]) {
        let maxima: BTreeSet<usize> = structure.types().filter_map(|ty| greatest(ty.dtype)).collect();
        let many = [self.limits.resident_row.saturating_add(1), self.limits.many_rows];
        for shape in shapes {
            for &length in shape.iter() {
                self.add(maxima.iter().filter(|&&greatest| length > greatest).count());
            }
            self.add(usize::from(shape.num_elements() >= WORTH_SHARING));
            let long: SmallVec<[usize; 6]> = shape.iter().copied().filter(|&length| length > 1).collect();
            if long.len() > MAX_AXES {
                long.iter().for_each(|&length| self.add_length(length));
                continue;
            }
            let products = products(&long);
            for &product in &products {
                self.add(many.iter().filter(|&&threshold| product >= threshold).count());
            }
            if self.limits.columns {
                self.columns(&products);
            }
        }
    }

    /// Adds the facts that decide whether threads can hold column totals: the number of elements per thread of
    /// `COLUMN_THREADS` along an axis, and the pairs of axis products that multiply to the total.
    fn columns(&mut self, products: &[usize]) {
        /// The count from which threads cannot hold the totals in any case.
        const MAX_PER_THREAD: usize = 65;
        let Some((&total, parts)) = products.split_last() else { return };
        for (i, &part) in parts.iter().enumerate() {
            self.add(part.div_ceil(COLUMN_THREADS).min(MAX_PER_THREAD));
            for (j, &other) in parts.iter().enumerate().skip(i) {
                if part.checked_mul(other) == Some(total) {
                    self.add(i);
                    self.add(j);
                }
            }
        }
    }

    /// Adds the order of tensor sizes, and of their doubles.
    fn sizes(&mut self, shapes: &[Shape]) {
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for (place, shape) in shapes.iter().enumerate() {
            let size = shape.num_elements();
            sizes.extend([(size, 2 * place), (size.saturating_mul(2), 2 * place + 1)]);
        }
        if self.limits.columns {
            // The planner also compares tensors with rows.
            let next = 2 * shapes.len();
            let rows = shapes.iter().flat_map(|shape| {
                (1..shape.rank()).map(|from| shape[from..].iter().product()).collect::<SmallVec<[usize; 6]>>()
            });
            sizes.extend(rows.enumerate().map(|(i, row)| (row, next + i)));
        }
        sizes.sort_unstable();
        let mut before = None;
        for (size, of) in sizes {
            self.add(of << 1 | usize::from(before == Some(size)));
            before = Some(size);
        }
    }

    /// Adds which axes each reshape merges or splits. `None` if an operand is a plain number.
    fn reshapes(&mut self, structure: &Structure, shapes: &[Shape], places: &[u32]) -> Option<()> {
        let externals = structure.externals.len();
        let mut pairs: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut result = externals;
        for entry in &structure.entries {
            if let (Op::Reshape(_), Some(&source)) = (&entry.op, entry.operands.first()) {
                let operand = match source {
                    Source::External(place) => place as usize,
                    Source::Result(result) => externals + result as usize,
                    Source::Number(_) | Source::Constant(_) => return None,
                };
                pairs.insert((places[operand], places[result]));
            }
            result += entry.results.len();
        }
        let mut joins: Vec<(usize, Factors)> = Vec::new();
        for (from, to) in pairs {
            self.reshape(&shapes[from as usize], &shapes[to as usize], &mut joins);
        }
        let parts: BTreeMap<usize, Factors> = joins.iter().cloned().collect();
        for (joined, factors) in &joins {
            let (mut known, mut own) = (Factors::new(), Factors::new());
            cut(&parts, *joined, &mut known);
            factors.iter().for_each(|&factor| cut(&parts, factor, &mut own));
            if known != own {
                [*joined].iter().chain(&known).chain(&own).for_each(|&length| self.add_length(length));
            }
        }
        Some(())
    }

    /// Adds the axes that a reshape merges or splits, with their factors. Where several axes become several others, the
    /// factorization depends on the lengths themselves.
    fn reshape(&mut self, from: &Shape, to: &Shape, joins: &mut Vec<(usize, Factors)>) {
        let long =
            |shape: &Shape| -> Factors { shape.iter().copied().filter(|&length| length > 1).collect() };
        let (from, to) = (long(from), long(to));
        let (mut i, mut j) = (0, 0);
        while i < from.len() && j < to.len() {
            let (start, begin) = (i, j);
            let (mut left, mut right) = (from[i], to[j]);
            (i, j) = (i + 1, j + 1);
            while left != right {
                let (side, next, product) =
                    if left < right { (&from, &mut i, &mut left) } else { (&to, &mut j, &mut right) };
                let Some(&length) = side.get(*next) else { break };
                *product = product.saturating_mul(length);
                *next += 1;
            }
            self.add(i - start);
            self.add(j - begin);
            match (&from[start..i], &to[begin..j]) {
                ([_], [_]) => {}
                ([joined], factors) | (factors, [joined]) => joins.push((*joined, factors.into())),
                (left, right) => left.iter().chain(right).for_each(|&length| self.add_length(length)),
            }
        }
    }
}

/// The lengths of merged axes, outermost first.
type Factors = SmallVec<[usize; 6]>;

/// Appends the finest known factors of an axis to `all`.
fn cut(parts: &BTreeMap<usize, Factors>, length: usize, all: &mut Factors) {
    match parts.get(&length) {
        Some(factors) => factors.iter().for_each(|&factor| cut(parts, factor, all)),
        None => all.push(length),
    }
}

/// The products of all subsets of lengths, the full product last.
fn products(lengths: &[usize]) -> SmallVec<[usize; 16]> {
    let mut products: SmallVec<[usize; 16]> = SmallVec::from_elem(1, 1);
    for &length in lengths {
        for i in 0..products.len() {
            products.push(products[i].saturating_mul(length));
        }
    }
    products
}

/// The greatest length that an index of the dtype can represent.
fn greatest(dtype: DType) -> Option<usize> {
    let bits = dtype.size() * 8 - usize::from(dtype.is_signed_int());
    // For dtypes that are not integers, indices are `i32`.
    let bits = if dtype.is_float() || dtype.is_bool() { 31 } else { bits };
    (bits < usize::BITS as usize).then(|| (1 << bits) - 1)
}
