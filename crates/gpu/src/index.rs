//! Gather, scatter and index-select kernels.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::{self, BlockKey};
use crate::driver::{Argument, Arguments, Driver, Step};
use crate::native::{Native, length};
use crate::strided::bits;
use crate::suspicion::{Suspicion, Wrong};
use crate::view::tensor;
use kiln_ir::{
    DType, Engine, Error, Layout, Op, Operand, Operands, Result, Shape, TensorType, UpdateMode, Value, Values,
};
use kiln_kernel::block::Atomic;
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) const SOURCE: &str = include_str!("native/index.cu");

/// The maximum indexed length whose sums a block accumulates in shared memory.
pub(crate) const MOST_SUMS: usize = 4096;

/// Limits on the number of blocks with their own sums: fewer leave a device idle, more do not run faster.
const FEWEST_BLOCKS: usize = 32;
const MAX_BLOCKS: usize = 512;

/// The extents of the axes before, along and after the indexed axis.
pub(crate) struct AxisExtents {
    pub(crate) before: usize,
    pub(crate) length: usize,
    pub(crate) after: usize,
}

impl AxisExtents {
    pub(crate) fn new(shape: &[usize], axis: usize) -> AxisExtents {
        let product = |lengths: &[usize]| lengths.iter().product();
        AxisExtents {
            before: product(&shape[..axis]),
            length: shape[axis],
            after: product(&shape[axis + 1..]),
        }
    }
}

/// Whether an index is one list for all positions, or has an entry for each element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entries {
    /// [`Op::Take`] and [`Op::Put`].
    List,
    /// [`Op::Gather`] and [`Op::Scatter`].
    Each,
}

impl Entries {
    /// The key of a block kernel.
    fn key(self, name: &'static str) -> BlockKey {
        BlockKey::new(name).with(self == Entries::Each)
    }

    fn place(self) -> &'static str {
        match self {
            Entries::List => "i",
            Entries::Each => "p",
        }
    }

    /// The position where the winner among entries with equal targets is recorded, as source text.
    fn winner(self) -> &'static str {
        match self {
            Entries::List => "at",
            Entries::Each => "(b * length + at) * after + a",
        }
    }
}

/// A write by index: contiguous operands and their sizes.
struct Update<'a, D: Driver> {
    entries: Entries,
    sides: AxisExtents,
    /// Entries of the index along the axis.
    count: usize,
    /// The number of elements of the source.
    total: usize,
    source: &'a Array<D>,
    index: &'a Array<D>,
    index_ty: TensorType,
    result: &'a Array<D>,
    /// The dtype of the source and the result.
    dtype: DType,
    suspicion: &'a Suspicion<D>,
}

impl<D: Driver> Update<'_, D> {
    /// Source, index, result and flag.
    fn tensors(&self) -> Arguments<D::Memory> {
        smallvec![
            self.source.place(self.dtype),
            self.index.place(self.index_ty.dtype),
            self.result.place(self.dtype),
            self.suspicion.place(),
        ]
    }

    fn sizes(&self) -> [Argument<D::Memory>; 4] {
        [self.total, self.sides.length, self.count, self.sides.after].map(length)
    }

    fn native(&self, entry: &'static str, part: &'static str) -> Native {
        Native::new(SOURCE, entry)
            .name(part, "")
            .name("INDEX_AT", self.entries.place())
            .dtype("I", self.index_ty.dtype)
    }

    fn key(&self, name: &'static str) -> BlockKey {
        self.entries.key(name).dtype(self.index_ty.dtype)
    }
}

impl<D: Driver> Gpu<D> {
    pub(crate) fn take(
        &self,
        entries: Entries,
        axis: usize,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let (x, x_ty) = tensor::<D>(inputs, 0)?;
        let (index, index_ty) = tensor::<D>(inputs, 1)?;
        let (x, index) = (self.contiguous(x, x_ty.dtype)?, self.contiguous(index, index_ty.dtype)?);
        let sides = AxisExtents::new(&x_ty.shape, axis);
        let count = match entries {
            Entries::List => index_ty.num_elements(),
            Entries::Each => index_ty.shape[axis],
        };
        let result = self.uninit(&results[0])?;
        let op = if entries == Entries::List { "take" } else { "gather" };
        let wrong = Wrong::Native { op, axis, length: sides.length, indices: index_ty.shape };
        let suspicion = self.suspicion(wrong)?;
        let total = results[0].num_elements();
        let arguments = smallvec![
            x.place(x_ty.dtype),
            index.place(index_ty.dtype),
            result.place(x_ty.dtype),
            suspicion.place(),
            length(total),
            length(sides.length),
            length(count),
            length(sides.after),
        ];
        if self.has_native() {
            let native = Native::new(SOURCE, "kiln_take")
                .name("KILN_TAKE", "")
                .name("INDEX_AT", entries.place())
                .size("E", x_ty.dtype)
                .dtype("I", index_ty.dtype);
            self.native(native, total, arguments)?;
        } else {
            let (dtype, index_dtype) = (bits(x_ty.dtype), index_ty.dtype);
            let key = entries.key("take").dtype(dtype).dtype(index_dtype);
            self.run_points(key, || block::index::take(entries, dtype, index_dtype), total, arguments)?;
        }
        if total == 0 {
            self.check_index((&index, index_ty), sides.length, &suspicion)?;
        }
        let mut all = suspicions::<D>(inputs);
        all.push(&suspicion);
        Ok(smallvec![Array { suspicions: all, ..result }.into_value(results[0])])
    }

    pub(crate) fn put(
        &self,
        entries: Entries,
        axis: usize,
        mode: UpdateMode,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let ty = results[0];
        let computed = match mode {
            UpdateMode::Set => ty.dtype,
            UpdateMode::Add | UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => combined_in(ty.dtype),
        };
        let mut inputs = inputs;
        for place in [0, 2] {
            if computed != ty.dtype {
                inputs[place] = Operand::Value(self.cast(&inputs[place], computed)?);
            }
        }
        let mut all = suspicions::<D>(&inputs);
        let (index, index_ty) = tensor::<D>(&inputs, 1)?;
        let op = if entries == Entries::List { "put" } else { "scatter" };
        let wrong = Wrong::Native { op, axis, length: ty.shape[axis], indices: index_ty.shape };
        let suspicion = self.suspicion(wrong)?;
        let (source, source_ty) = tensor::<D>(&inputs, 2)?;
        let (index_ty, source_shape) = (*index_ty, source_ty.shape);
        let count = match entries {
            Entries::List => index_ty.num_elements(),
            Entries::Each => index_ty.shape[axis],
        };
        let (index, source) = (self.contiguous(index, index_ty.dtype)?, self.contiguous(source, computed)?);
        let base = core::mem::replace(&mut inputs[0], Operand::Scalar(kiln_ir::Scalar::Int(0)));
        let result = self.owned(base, TensorType { dtype: computed, ..ty })?;
        let update = Update {
            entries,
            sides: AxisExtents::new(&ty.shape, axis),
            count,
            total: source_shape.num_elements(),
            source: &source,
            index: &index,
            index_ty,
            result: &result,
            dtype: computed,
            suspicion: &suspicion,
        };
        if update.total == 0 {
            // The other lengths of an empty source may be huge.
            self.check_index((&index, &index_ty), update.sides.length, &suspicion)?;
        } else {
            match atomic(mode) {
                None if count == 1 => self.set_one(&update)?,
                None => self.set_last(&update)?,
                Some(operation) => self.combine(&update, mode, operation)?,
            }
        }
        all.push(&suspicion);
        let value = Array { suspicions: all, ..result }.into_value(TensorType { dtype: computed, ..ty });
        if computed == ty.dtype {
            return Ok(smallvec![value]);
        }
        Ok(smallvec![self.cast(&Operand::Value(value), ty.dtype)?])
    }

    /// Writes a single entry, so there are no duplicates.
    fn set_one(&self, update: &Update<'_, D>) -> Result<()> {
        let mut arguments = update.tensors();
        arguments.extend(update.sizes());
        if self.has_native() {
            let native = update.native("kiln_set_one", "KILN_SET_ONE").size("E", update.dtype);
            return self.native(native, update.total, arguments);
        }
        let (entries, dtype, index_dtype) = (update.entries, bits(update.dtype), update.index_ty.dtype);
        let build = || block::index::set_one(entries, dtype, index_dtype);
        self.run_points(update.key("set_one").dtype(dtype), build, update.total, arguments)
    }

    /// Writes entries, of which the last one with a target wins.
    fn set_last(&self, update: &Update<'_, D>) -> Result<()> {
        let &Update { entries, count, total, dtype, .. } = update;
        if i32::try_from(count).is_err() {
            return Err(Error::unsupported("gpu", "an index has more than 2³¹ entries along its axis"));
        }
        let places = match entries {
            Entries::List => update.sides.length,
            Entries::Each => update.sides.before * update.sides.length * update.sides.after,
        };
        let winner = self.block(places * 4)?;
        self.queue.push(Step::Fill { to: winner.at(0), bytes: places * 4, value: 0xff })?;
        let index_dtype = update.index_ty.dtype;
        let [source, index, result, failed] = [
            update.source.place(dtype),
            update.index.place(index_dtype),
            update.result.place(dtype),
            update.suspicion.place(),
        ];
        let winner = Argument::Pointer(winner.at(0));
        let mut claims: Arguments<D::Memory> = smallvec![index.clone(), winner.clone(), failed.clone()];
        claims.extend(update.sizes());
        let mut sets: Arguments<D::Memory> = smallvec![source, index, winner, result, failed];
        sets.extend(update.sizes());
        if self.has_native() {
            let named = |entry, part| update.native(entry, part).name("WINNER_AT", entries.winner());
            self.native(named("kiln_claim", "KILN_CLAIM"), total, claims)?;
            return self.native(named("kiln_set", "KILN_SET").size("E", dtype), total, sets);
        }
        let dtype = bits(dtype);
        let claim = || block::index::claim(entries, index_dtype);
        self.run_points(update.key("claim"), claim, total, claims)?;
        let set = || block::index::set(entries, dtype, index_dtype);
        self.run_points(update.key("set").dtype(dtype), set, total, sets)
    }

    /// Combines entries with the elements of the result. Atomic operations run in any order, on which only results of
    /// floats depend, and only if several entries have one target.
    fn combine(&self, update: &Update<'_, D>, mode: UpdateMode, operation: Atomic) -> Result<()> {
        if self.deterministic && update.dtype.is_float() && update.count > 1 {
            return self.combine_in_order(update, mode, operation);
        }
        let blocks = blocks_of_sums(mode, &update.sides, update.total);
        if !self.has_native() {
            return self.combine_by_blocks(update, blocks, operation);
        }
        let mut arguments = update.tensors();
        let dtype = update.dtype;
        if let Some(blocks) = blocks {
            let nothing = if dtype.is_float() { "((A)-0.0)" } else { "((A)0)" };
            let native = update
                .native("kiln_combine_few", "KILN_COMBINE_FEW")
                .name("PLACES", MOST_SUMS)
                .name("NOTHING", nothing);
            arguments.extend([length(update.total), length(update.sides.length)]);
            return self.native_blocks(combining(native, mode, dtype), blocks, arguments);
        }
        arguments.extend(update.sizes());
        let native = combining(update.native("kiln_combine", "KILN_COMBINE"), mode, dtype);
        self.native(native, update.total, arguments)
    }

    /// Combines entries with the elements of the result in the order of the entries, which a stable sort groups by target.
    fn combine_in_order(&self, update: &Update<'_, D>, mode: UpdateMode, operation: Atomic) -> Result<()> {
        let &Update { entries, index_ty, dtype, .. } = update;
        if i32::try_from(update.count).is_err() {
            return Err(Error::unsupported("gpu", "an index has more than 2³¹ entries along its axis"));
        }
        let (shape, axis) = match entries {
            Entries::List => (Shape::from([update.count]), 0),
            Entries::Each => (Shape::from([update.sides.before, update.count, update.sides.after]), 1),
        };
        let ty = index_ty.with_shape(shape);
        let index = Value::new(index_ty, update.index.clone());
        let flat = self.reshape(&shape, &smallvec![index.into()])?.remove(0);
        let sort = Op::Sort { axis, descending: false, index: DType::I32 };
        let types = [ty, ty.with_dtype(DType::I32)];
        let sorted = self.execute(&sort, smallvec![flat.into()], &types);
        let lines = |place: usize| {
            let lines = self.lines(Array::<D>::of(&sorted[place])?, types[place].dtype, axis)?;
            Ok::<Array<D>, Error>(lines.array)
        };
        let (keys, order) = (lines(0)?, lines(1)?);
        let mut arguments: Arguments<D::Memory> = smallvec![
            update.source.place(dtype),
            keys.place(index_ty.dtype),
            order.place(DType::I32),
            update.result.place(dtype),
            update.suspicion.place(),
        ];
        arguments.extend(update.sizes());
        if self.has_native() {
            let (line, failed_at) = match entries {
                Entries::List => ("0", "i"),
                Entries::Each => ("(b * after + a) * count", "(b * count + i) * after + a"),
            };
            let native = update
                .native("kiln_combine_sorted", "KILN_COMBINE_SORTED")
                .name("LINE", line)
                .name("FAILED_AT", failed_at);
            return self.native(functions(native, mode, dtype), update.total, arguments);
        }
        let index_dtype = index_ty.dtype;
        let key = update.key("combine_sorted").dtype(dtype).with(operation as usize);
        let build = || block::index::combine_sorted(entries, operation, dtype, index_dtype);
        self.run_points(key, build, update.total, arguments)
    }

    /// Combines by a block kernel: with atomic operations where the device has them for the dtype.
    fn combine_by_blocks(
        &self,
        update: &Update<'_, D>,
        blocks: Option<usize>,
        operation: Atomic,
    ) -> Result<()> {
        let &Update { entries, total, dtype, .. } = update;
        let sides = &update.sides;
        let index_dtype = update.index_ty.dtype;
        let key = |name| update.key(name).dtype(dtype).with(operation as usize);
        let info = self.driver.info();
        let mut arguments = update.tensors();
        if let Some(blocks) = blocks
            && dtype.size() == 4
            && info.shared_bytes >= MOST_SUMS * dtype.size()
        {
            arguments.extend([length(total), length(sides.length)]);
            let build = || block::index::combine_few(dtype, index_dtype);
            return self.run_blocks(key("combine_few"), build, blocks, arguments);
        }
        if dtype.size() == 4 || (info.language.atomics_64 && !dtype.is_float()) {
            arguments.extend(update.sizes());
            let build = || block::index::combine(entries, operation, dtype, index_dtype);
            return self.run_points(key("combine"), build, total, arguments);
        }
        let targets = sides.before * sides.length * sides.after;
        // Each thread reads the whole index, which is checked once.
        arguments.pop();
        arguments.extend([targets, sides.length, update.count, sides.after].map(length));
        let build = || block::index::combine_lines(entries, operation, dtype, index_dtype);
        self.run_points(key("combine_lines"), build, targets, arguments)?;
        self.check_index((update.index, &update.index_ty), sides.length, update.suspicion)
    }

    /// Checks the entries of a contiguous index without moving elements.
    pub(crate) fn check_index(
        &self,
        (index, ty): (&Array<D>, &TensorType),
        length_of_axis: usize,
        suspicion: &Suspicion<D>,
    ) -> Result<()> {
        let total = ty.num_elements();
        let arguments =
            smallvec![index.place(ty.dtype), suspicion.place(), length(total), length(length_of_axis)];
        if self.has_native() {
            let native = Native::new(SOURCE, "kiln_check").name("KILN_CHECK", "").dtype("I", ty.dtype);
            return self.native(native, total, arguments);
        }
        let key = BlockKey::new("check_index").dtype(ty.dtype);
        self.run_points(key, || block::index::check_index(ty.dtype), total, arguments)
    }

    /// Casts an operand to another dtype.
    pub(crate) fn cast(&self, operand: &Operand, dtype: DType) -> Result<Value> {
        let Operand::Value(value) = operand else {
            return Err(Error::unsupported("gpu", "a tensor operand is missing"));
        };
        let ty = value.ty().with_dtype(dtype);
        let mut values = self.execute(&Op::Cast(dtype), smallvec![Operand::Value(value.clone())], &[ty]);
        Ok(values.remove(0))
    }

    /// A contiguous array of an operand's elements without aliases: its own memory if possible, else a copy.
    pub(crate) fn owned(&self, operand: Operand, ty: TensorType) -> Result<Array<D>> {
        let Operand::Value(mut value) = operand else {
            return Err(Error::unsupported("gpu", "a tensor operand is missing"));
        };
        if let Some(array) = value.payload_mut::<Array<D>>()
            && array.layout.is_contiguous()
            && array.layout.offset == 0
            && Arc::strong_count(&array.block) == 1
        {
            return Ok(array.clone());
        }
        let array = Array::<D>::of(&value)?;
        let fresh = self.uninit(&ty)?;
        self.copy_elements(array, &fresh, ty.dtype)?;
        Ok(Array { layout: Layout::contiguous(ty.shape), suspicions: array.suspicions.clone(), ..fresh })
    }
}

/// The number of blocks that accumulate in shared memory before they add to the tensor, if that is cheaper. `None` if
/// each entry is added to the tensor directly.
fn blocks_of_sums(mode: UpdateMode, sides: &AxisExtents, total: usize) -> Option<usize> {
    let is_small = sides.before * sides.after == 1 && (1..=MOST_SUMS).contains(&sides.length);
    // Each block adds one sum per indexed position to the tensor.
    let blocks = total / (4 * sides.length.max(1));
    (mode == UpdateMode::Add && is_small && blocks >= FEWEST_BLOCKS).then_some(blocks.min(MAX_BLOCKS))
}

/// The dtype in which elements are combined: 4 or 8 bytes wide, for which devices have atomics.
pub(crate) fn combined_in(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I16 | DType::I8 => DType::I32,
        DType::U16 | DType::U8 | DType::Bool => DType::U32,
        DType::F64 | DType::F32 | DType::I64 | DType::I32 | DType::U64 | DType::U32 => dtype,
    }
}

/// The atomic operation of a mode; `None` if it replaces elements.
fn atomic(mode: UpdateMode) -> Option<Atomic> {
    match mode {
        UpdateMode::Set => None,
        UpdateMode::Add => Some(Atomic::Add),
        UpdateMode::Mul => Some(Atomic::Mul),
        UpdateMode::Min => Some(Atomic::Min),
        UpdateMode::Max => Some(Atomic::Max),
    }
}

/// The kernel with the function of a mode, and with its name if it is an atomic operation of the device.
fn combining(native: Native, mode: UpdateMode, dtype: DType) -> Native {
    let native = functions(native, mode, dtype);
    // Signed sums wrap like unsigned ones, but only those of 32 bits are atomic.
    let is_atomic =
        mode == UpdateMode::Add && (dtype.is_float() || dtype == DType::I32 || !dtype.is_signed_int());
    if is_atomic { native.name("ATOMIC_ADD", "") } else { native }
}

/// The kernel with the function of a mode.
fn functions(native: Native, mode: UpdateMode, dtype: DType) -> Native {
    let ty = kiln_kernel::print::held_type(dtype);
    let word = if dtype.size() == 8 { DType::U64 } else { DType::U32 };
    let native = native.name("A", ty).name("WORD", kiln_kernel::print::held_type(word));
    let function = match mode {
        UpdateMode::Add | UpdateMode::Set if dtype.is_float() => "((a) + (b))",
        UpdateMode::Add | UpdateMode::Set => "((WORD)(a) + (WORD)(b))",
        UpdateMode::Mul if dtype.is_float() => "((a) * (b))",
        UpdateMode::Mul => "((WORD)(a) * (WORD)(b))",
        UpdateMode::Min => "kiln_min<A>(a, b)",
        UpdateMode::Max => "kiln_max<A>(a, b)",
    };
    native.name("COMBINE(a, b)", function)
}
