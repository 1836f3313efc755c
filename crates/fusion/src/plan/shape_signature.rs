//! Shape generalisation: recordings that differ in dim lengths alone and share a plan's structure.
//!
//! The planner asks few things of lengths: which are equal, which are 1, which tensor is larger, whether a product of
//! lengths reaches a threshold, and which axes a reshape joins or cuts. [`ShapeSignature`] holds the facts. Two recordings
//! of equal ops, wiring and signature get equal groups, so that a plan for one is a plan for the other once its types are
//! replaced. Where shapes one by one do not determine the facts, lengths themselves are part of the signature.

use super::Structure;
use super::group::WORTH_SHARING;
use crate::limits::{COLUMN_THREADS, Limits};
use crate::record::Source;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{DType, FxHasher, Lengths, Op, Shape, TensorType};
use smallvec::SmallVec;

/// Recordings with more shapes are not compared.
const MOST_SHAPES: usize = 512;

/// Shapes with more axes that are longer than 1 have too many products of lengths.
const MOST_AXES: usize = 6;

/// The planner's facts about the lengths in a recording.
#[derive(Debug)]
pub(super) struct ShapeSignature {
    hash: u64,
    /// All facts.
    facts: Vec<u32>,
    /// The shapes of the recording, each once, in the order in which they come.
    shapes: Vec<Shape>,
    /// The shape of each external, then of each result, by its place among `shapes`.
    places: Vec<u32>,
}

impl ShapeSignature {
    /// The signature of a recording; `None` if it is too expensive to compute, or a tensor has no elements.
    pub(super) fn of(structure: &Structure, limits: Limits) -> Option<ShapeSignature> {
        let mut by_shape: BTreeMap<&[usize], u32> = BTreeMap::new();
        let mut shapes: Vec<Shape> = Vec::new();
        let mut places = Vec::with_capacity(structure.externals.len() + structure.alive.len());
        for ty in structure.types() {
            let place = *by_shape.entry(&ty.shape).or_insert_with(|| {
                shapes.push(ty.shape);
                shapes.len() as u32 - 1
            });
            if shapes.len() > MOST_SHAPES {
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

    /// Whether two recordings of equal ops and wiring are planned alike.
    pub(super) fn matches(&self, other: &ShapeSignature) -> bool {
        self.hash == other.hash && self.places == other.places && self.facts == other.facts
    }

    /// Maps each shape of this recording to its shape in one that is planned alike.
    pub(super) fn replacements(&self, other: &ShapeSignature) -> BTreeMap<Vec<usize>, Shape> {
        self.shapes.iter().map(|shape| shape.to_vec()).zip(other.shapes.iter().copied()).collect()
    }

    /// The bytes that it takes.
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

/// Whether two ops are equal but for lengths that the planner does not look at, or that the types of results have as
/// well.
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

/// An op of a region in one that is planned alike, by the type of its result; `None` where that does not say.
pub(super) fn of_type(op: &Op, ty: TensorType) -> Option<Op> {
    match op.info().lengths {
        Lengths::Independent => Some(op.clone()),
        Lengths::OfResult => with_lengths(op, ty),
        // No type says how the attributes depend on lengths.
        Lengths::Other => None,
    }
}

/// An op whose attributes have the lengths of its result, with those of `ty`.
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

/// Collects the facts of a signature.
struct SignatureBuilder {
    limits: Limits,
    facts: Vec<u32>,
    /// A number for each length, in the order in which they come.
    lengths: BTreeMap<usize, u32>,
}

impl SignatureBuilder {
    fn add(&mut self, fact: usize) {
        self.facts.push(fact as u32);
    }

    /// A length itself, where no fact about it is enough.
    fn add_length(&mut self, length: usize) {
        self.facts.extend([length as u32, (length as u64 >> 32) as u32]);
    }

    /// Which lengths are equal, and which are 1. `None` where one is 0.
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

    /// Which thresholds the products of lengths reach: rows are such products, and so are their numbers.
    fn products(&mut self, structure: &Structure, shapes: &[Shape]) {
        let held: BTreeSet<usize> = structure.types().filter_map(|ty| greatest(ty.dtype)).collect();
        let many = [self.limits.resident_row.saturating_add(1), self.limits.many_rows];
        for shape in shapes {
            for &length in shape.iter() {
                self.add(held.iter().filter(|&&greatest| length > greatest).count());
            }
            self.add(usize::from(shape.num_elements() >= WORTH_SHARING));
            let long: SmallVec<[usize; 6]> = shape.iter().copied().filter(|&length| length > 1).collect();
            if long.len() > MOST_AXES {
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

    /// The facts that decide whether threads hold totals of columns: the number of rows of `COLUMN_THREADS` threads
    /// along an axis, and the pairs of axes whose rows and columns make up the whole.
    fn columns(&mut self, products: &[usize]) {
        /// Rows of threads that hold nothing at all.
        const MOST: usize = 65;
        let Some((&whole, parts)) = products.split_last() else { return };
        for (i, &part) in parts.iter().enumerate() {
            self.add(part.div_ceil(COLUMN_THREADS).min(MOST));
            for (j, &other) in parts.iter().enumerate().skip(i) {
                if part.checked_mul(other) == Some(whole) {
                    self.add(i);
                    self.add(j);
                }
            }
        }
    }

    /// Which tensors are larger than others, and which are more than half as large.
    fn sizes(&mut self, shapes: &[Shape]) {
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for (place, shape) in shapes.iter().enumerate() {
            let size = shape.num_elements();
            sizes.extend([(size, 2 * place), (size.saturating_mul(2), 2 * place + 1)]);
        }
        if self.limits.columns {
            // Tensors are also compared with rows.
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

    /// Which axes each reshape joins or cuts. `None` where that is not told by its shapes.
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

    /// The axes that a reshape joins or cuts, with their parts. Where several axes become several others, only the lengths
    /// themselves tell how they are cut.
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

/// The lengths of axes that are joined, outermost first.
type Factors = SmallVec<[usize; 6]>;

/// The finest parts of an axis, as far as they are known.
fn cut(parts: &BTreeMap<usize, Factors>, length: usize, all: &mut Factors) {
    match parts.get(&length) {
        Some(factors) => factors.iter().for_each(|&factor| cut(parts, factor, all)),
        None => all.push(length),
    }
}

/// The products of all sets of lengths, the whole last.
fn products(lengths: &[usize]) -> SmallVec<[usize; 16]> {
    let mut products: SmallVec<[usize; 16]> = SmallVec::from_elem(1, 1);
    for &length in lengths {
        for i in 0..products.len() {
            products.push(products[i].saturating_mul(length));
        }
    }
    products
}

/// The greatest length that an index of the dtype holds.
fn greatest(dtype: DType) -> Option<usize> {
    let bits = dtype.size() * 8 - usize::from(dtype.is_signed_int());
    // For a dtype that is no integer, indices are counted in `i32`.
    let bits = if dtype.is_float() || dtype.is_bool() { 31 } else { bits };
    (bits < usize::BITS as usize).then(|| (1 << bits) - 1)
}
