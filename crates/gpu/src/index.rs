//! Gather, scatter and index-select kernels.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Argument, Arguments, Driver, Step};
use crate::native::{Native, length};
use crate::suspicion::{Suspicion, Wrong};
use crate::view::tensor;
use kiln_ir::{
    DType, Engine, Error, Layout, Op, Operand, Operands, Result, TensorType, UpdateMode, Value, Values,
};
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) const SOURCE: &str = include_str!("native/index.cu");

/// The maximum indexed length whose sums a block accumulates in shared memory.
const MOST_SUMS: usize = 4096;

/// Limits on the number of blocks with their own sums: fewer leave a device idle, more do not run faster.
const FEWEST_BLOCKS: usize = 32;
const MOST_BLOCKS: usize = 512;

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
        let native = Native::new(SOURCE, "kiln_take")
            .name("KILN_TAKE", "")
            .name("INDEX_AT", entries.place())
            .size("E", x_ty.dtype)
            .dtype("I", index_ty.dtype);
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
        self.native(native, total, arguments)?;
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
        let index_dtype = index_ty.dtype;
        let count = match entries {
            Entries::List => index_ty.num_elements(),
            Entries::Each => index_ty.shape[axis],
        };
        let (index, source) = (self.contiguous(index, index_dtype)?, self.contiguous(source, computed)?);
        let sides = AxisExtents::new(&ty.shape, axis);
        let base = core::mem::replace(&mut inputs[0], Operand::Scalar(kiln_ir::Scalar::Int(0)));
        let result = self.owned(base, TensorType { dtype: computed, ..ty })?;
        let total = source_shape.num_elements();
        let sizes = || [length(total), length(sides.length), length(count), length(sides.after)];
        let named = |entry, part| {
            Native::new(SOURCE, entry)
                .name(part, "")
                .name("INDEX_AT", entries.place())
                .dtype("I", index_dtype)
        };
        match mode {
            UpdateMode::Set if count == 1 => {
                let set = named("kiln_set_one", "KILN_SET_ONE").size("E", ty.dtype);
                let mut arguments = smallvec![
                    source.place(computed),
                    index.place(index_dtype),
                    result.place(computed),
                    suspicion.place()
                ];
                arguments.extend(sizes());
                self.native(set, total, arguments)?;
            }
            UpdateMode::Set => {
                if i32::try_from(count).is_err() {
                    return Err(Error::unsupported(
                        "gpu",
                        "an index has more than 2³¹ entries along its axis",
                    ));
                }
                let places = match entries {
                    Entries::List => sides.length,
                    Entries::Each => sides.before * sides.length * sides.after,
                };
                let winner = self.block(places * 4)?;
                self.queue.push(Step::Fill { to: winner.at(0), bytes: places * 4, value: 0xff })?;
                let winner = || Argument::Pointer(winner.at(0));
                let claim = named("kiln_claim", "KILN_CLAIM").name("WINNER_AT", entries.winner());
                let mut arguments = smallvec![index.place(index_dtype), winner(), suspicion.place()];
                arguments.extend(sizes());
                self.native(claim, total, arguments)?;
                let set =
                    named("kiln_set", "KILN_SET").name("WINNER_AT", entries.winner()).size("E", ty.dtype);
                let mut arguments = smallvec![
                    source.place(computed),
                    index.place(index_dtype),
                    winner(),
                    result.place(computed),
                    suspicion.place()
                ];
                arguments.extend(sizes());
                self.native(set, total, arguments)?;
            }
            UpdateMode::Add | UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => {
                let mut arguments: Arguments<D::Memory> = smallvec![
                    source.place(computed),
                    index.place(index_dtype),
                    result.place(computed),
                    suspicion.place()
                ];
                if let Some(blocks) = blocks_of_sums(mode, &sides, total) {
                    let nothing = if computed.is_float() { "((A)-0.0)" } else { "((A)0)" };
                    let native = named("kiln_combine_few", "KILN_COMBINE_FEW")
                        .name("PLACES", MOST_SUMS)
                        .name("NOTHING", nothing);
                    arguments.extend([length(total), length(sides.length)]);
                    self.native_blocks(combining(native, mode, computed), blocks, arguments)?;
                } else {
                    let native = combining(named("kiln_combine", "KILN_COMBINE"), mode, computed);
                    arguments.extend(sizes());
                    self.native(native, total, arguments)?;
                }
            }
        }
        if total == 0 {
            self.check_index((&index, &index_ty), sides.length, &suspicion)?;
        }
        all.push(&suspicion);
        let value = Array { suspicions: all, ..result }.into_value(TensorType { dtype: computed, ..ty });
        if computed == ty.dtype {
            return Ok(smallvec![value]);
        }
        Ok(smallvec![self.cast(&Operand::Value(value), ty.dtype)?])
    }

    /// Checks the entries of a contiguous index without moving elements.
    pub(crate) fn check_index(
        &self,
        (index, ty): (&Array<D>, &TensorType),
        length_of_axis: usize,
        suspicion: &Suspicion<D>,
    ) -> Result<()> {
        let native = Native::new(SOURCE, "kiln_check").name("KILN_CHECK", "").dtype("I", ty.dtype);
        let total = ty.num_elements();
        let arguments =
            smallvec![index.place(ty.dtype), suspicion.place(), length(total), length(length_of_axis)];
        self.native(native, total, arguments)
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
    (mode == UpdateMode::Add && is_small && blocks >= FEWEST_BLOCKS).then_some(blocks.min(MOST_BLOCKS))
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

fn combining(native: Native, mode: UpdateMode, dtype: DType) -> Native {
    let ty = kiln_kernel::print::held_type(dtype);
    let word = if dtype.size() == 8 { DType::U64 } else { DType::U32 };
    let native = native.name("A", ty).name("WORD", kiln_kernel::print::held_type(word));
    match mode {
        // Signed sums wrap like unsigned ones.
        UpdateMode::Add if dtype.is_float() || dtype == DType::I32 || !dtype.is_signed_int() => {
            native.name("ATOMIC_ADD", "")
        }
        UpdateMode::Add | UpdateMode::Set => native.name("COMBINE(a, b)", "((WORD)(a) + (WORD)(b))"),
        UpdateMode::Mul if dtype.is_float() => native.name("COMBINE(a, b)", "((a) * (b))"),
        UpdateMode::Mul => native.name("COMBINE(a, b)", "((WORD)(a) * (WORD)(b))"),
        UpdateMode::Min => native.name("COMBINE(a, b)", "kiln_min<A>(a, b)"),
        UpdateMode::Max => native.name("COMBINE(a, b)", "kiln_max<A>(a, b)"),
    }
}
