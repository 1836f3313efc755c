//! Shape and dtype inference: the accepted operands and the result types of each op.

mod composite;
mod contraction;
mod elementwise;
mod index;
mod reduce;
mod view;

use crate::op::{greatest, least};
use crate::{
    CollectiveKind, DType, Domain, Error, LoopAttributes, LoopOp, Op, OperandType, Result, ResultTypes,
    Scalar, Shape, TensorType,
};
use alloc::format;
use alloc::string::String;
use smallvec::smallvec;

/// Checks the operands of an op and infers the types of its results.
///
/// Every engine may rely on the check: an op that passes is well-formed. For [`Op::NonZero`] alone, the inferred shape
/// is the greatest possible one.
///
/// # Errors
/// When the op does not accept the operands, or a tensor of a result's type [cannot
/// exist](TensorType::checked_num_bytes). The message names the op, the problem, the operands' types and, if there is a
/// fix, a hint.
pub fn infer(op: &Op, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
    let rule = Rule { op, inputs, checks_size: true };
    let types = rule.infer()?;
    match types.iter().find(|ty| ty.checked_num_bytes().is_none()) {
        Some(ty) => Err(rule.too_large(ty)),
        None => Ok(types),
    }
}

/// As [`infer`], of types that are too large for this machine too. Tensors of these cannot exist, but poison can.
pub(crate) fn infer_unsized(op: &Op, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
    Rule { op, inputs, checks_size: false }.infer()
}

impl Rule<'_> {
    fn infer(self) -> Result<ResultTypes> {
        let (rule, op, inputs) = (self, self.op, self.inputs);
        if let Some((least, most)) = op.info().operands {
            rule.arities(least.into(), most.into())?;
        }
        match op {
            Op::Full(ty) => rule.full(ty),
            Op::Iota { ty, axis } => rule.iota(ty, *axis),
            Op::Random { ty, distribution } => rule.random(ty, *distribution),
            Op::Unary(function) => rule.unary(*function),
            Op::Binary(function) => rule.binary(*function),
            Op::Compare(_) => rule.compare(),
            Op::Select => rule.select(),
            Op::Cast(dtype) => rule.cast(*dtype),
            Op::Bitcast(dtype) => rule.bitcast(*dtype),
            Op::Reshape(shape) => rule.reshape(shape),
            Op::Permute(axes) => rule.permute(axes),
            Op::Broadcast(shape) => rule.broadcast(shape),
            Op::Slice(slices) => rule.slice(slices),
            Op::Pad(pads) => rule.pad(pads),
            Op::Concat { axis } => rule.concat(*axis),
            Op::Windows { axis, size, step, dilation } => rule.windows(*axis, *size, *step, *dilation),
            Op::Copy => rule.same(),
            Op::Reduce { reduction, axes } => rule.reduce(*reduction, axes),
            Op::ArgReduce { axis, index, .. } => rule.arg_reduce(*axis, *index),
            Op::Scan { reduction, axis, .. } => rule.scan(*reduction, *axis),
            Op::Sort { axis, index, .. } => rule.sort(*axis, *index),
            Op::TopK { axis, k, index, .. } => rule.topk(*axis, *k, *index),
            Op::Take { axis } => rule.take(*axis),
            Op::Gather { axis } => rule.gather(*axis),
            Op::Put { axis, mode } => rule.put(*axis, *mode),
            Op::Scatter { axis, mode } => rule.scatter(*axis, *mode),
            Op::SliceUpdate { slices, mode } => rule.slice_update(slices, *mode),
            Op::NonZero { index } => rule.nonzero(*index),
            Op::CheckIndex { .. } => rule.check_index(),
            Op::Recover { watched } => rule.recover(*watched),
            Op::MatMul => rule.matmul(),
            Op::MatMulFloat8 { dtype, .. } => rule.matmul_float8(*dtype),
            Op::MatMulBlocks { format } => rule.matmul_blocks(*format),
            Op::Conv { spec, pass } => rule.conv(spec, pass),
            Op::Pool(spec) => rule.pool(spec),
            Op::PoolGrad { spec, size } => rule.pool_grad(spec, size),
            Op::Softmax { axis, .. } => rule.softmax(*axis),
            Op::LogSumExp { axis } => rule.log_sum_exp(*axis),
            Op::Norm { axes, .. } => rule.norm(*axes),
            Op::Attention(_) => rule.attention(),
            Op::AttentionGrad(_) => rule.attention_grad(),
            Op::Resize { size, .. } => rule.resize(size),
            Op::Fft { kind, axis, .. } => rule.fft(*kind, *axis),
            Op::Quantize { dtype } => rule.quantize(*dtype),
            Op::Dequantize => rule.dequantize(),
            Op::DequantizeBlocks { format, dtype } => rule.dequantize_blocks(*format, *dtype),
            Op::Collective(collective) => rule.collective(collective),
            Op::Custom(op) => op.infer(inputs),
            Op::Fused(fused) => rule.fused(fused.program()),
            Op::Loop(op) => rule.looped(op),
        }
    }
}

/// Takes the fast path of [`infer`] for the most frequent ops on two tensors of one type: the type of the only result.
/// `None` does not mean that the operands are invalid: call [`infer`].
#[inline]
pub fn infer_alike(op: &Op, a: &TensorType, b: &TensorType) -> Option<TensorType> {
    (is_arithmetic(op) && !a.dtype.is_bool() && a == b).then_some(*a)
}

/// Works like [`infer_alike`], for a tensor and a plain number in any order.
#[inline]
pub fn infer_with_number(op: &Op, ty: &TensorType, number: Scalar) -> Option<TensorType> {
    (is_arithmetic(op) && !ty.dtype.is_bool() && number.fits(ty.dtype)).then_some(*ty)
}

#[inline]
fn is_arithmetic(op: &Op) -> bool {
    if let Op::Binary(function) = op { function.info().domain == Domain::Number } else { false }
}

/// Returns the broadcast shape by NumPy's rule: aligned at the last axis, lengths equal or 1. `None` if the shapes do
/// not broadcast.
pub fn broadcast_shapes(a: &Shape, b: &Shape) -> Option<Shape> {
    let (long, short) = if a.rank() >= b.rank() { (a, b) } else { (b, a) };
    let offset = long.rank() - short.rank();
    let mut shape = *long;
    for (axis, &length) in short.iter().enumerate() {
        let here = &mut shape[offset + axis];
        if *here == 1 {
            *here = length;
        } else if length != 1 && length != *here {
            return None;
        }
    }
    Some(shape)
}

/// An op with its operands during inference.
#[derive(Clone, Copy)]
struct Rule<'a> {
    op: &'a Op,
    inputs: &'a [OperandType<'a>],
    /// Whether types that are too large are errors.
    checks_size: bool,
}

impl<'a> Rule<'a> {
    fn error(&self, problem: impl Into<String>) -> Error {
        Error::type_error(self.op.name(), problem, self.inputs)
    }

    fn arity(&self, count: usize) -> Result<()> {
        self.arities(count, count)
    }

    fn arities(&self, least: usize, most: usize) -> Result<()> {
        let n = self.inputs.len();
        if (least..=most).contains(&n) {
            return Ok(());
        }
        let range = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        Err(self.error(format!("expects {range} operands, got {n}")))
    }

    fn tensor(&self, place: usize) -> Result<&'a TensorType> {
        match self.inputs.get(place) {
            Some(OperandType::Tensor(ty)) => Ok(ty),
            Some(OperandType::Scalar(_)) => Err(self.error(format!("operand {place} must be a tensor"))),
            None => Err(self.error(format!("operand {place} is missing"))),
        }
    }

    /// The type of a single tensor operand.
    fn only(&self) -> Result<&'a TensorType> {
        self.arity(1)?;
        self.tensor(0)
    }

    fn same(&self) -> Result<ResultTypes> {
        Ok(smallvec![*self.only()?])
    }

    fn axis(&self, axis: usize, ty: &TensorType) -> Result<()> {
        if axis < ty.rank() {
            return Ok(());
        }
        let error = self.error(format!("axis {axis} is out of range for {} axes", ty.rank()));
        Err(match ty.rank() {
            0 => error.hint("a tensor without axes is a single element"),
            rank => error.hint(format!("axes range from 0 to {}", rank - 1)),
        })
    }

    fn dtype(&self, ok: bool, wanted: &str, dtype: DType) -> Result<()> {
        if ok {
            Ok(())
        } else {
            Err(self.error(format!("needs {wanted}, not {dtype}")).hint(cast_hint(wanted)))
        }
    }

    fn float(&self, ty: &TensorType) -> Result<()> {
        self.dtype(ty.dtype.is_float(), "a float dtype", ty.dtype)
    }

    fn number(&self, ty: &TensorType) -> Result<()> {
        self.dtype(!ty.dtype.is_bool(), "a numeric dtype", ty.dtype)
    }

    fn index_dtype(&self, dtype: DType) -> Result<()> {
        self.dtype(dtype.is_int(), "an integer dtype for indices", dtype)
    }

    /// Checks that a dtype can represent the indices along axes of these lengths.
    fn holds_indices(&self, index: DType, ty: &TensorType, axes: impl Iterator<Item = usize>) -> Result<()> {
        self.index_dtype(index)?;
        let bits = 8 * index.size() as u32 - u32::from(index.is_signed_int());
        let greatest = u64::MAX >> (64 - bits);
        for axis in axes {
            let length = ty.shape[axis];
            if length as u64 > greatest.saturating_add(1) {
                let problem = format!("axis {axis} has {length} elements, but {index} counts to {greatest}");
                return Err(self
                    .error(problem)
                    .hint("request indices of a wider integer dtype, or process the axis in parts"));
            }
        }
        Ok(())
    }

    fn same_dtype(&self, a: &TensorType, b: &TensorType) -> Result<()> {
        if a.dtype == b.dtype {
            return Ok(());
        }
        Err(self.error("dtypes differ").hint("cast one operand to the other's dtype"))
    }

    fn scalar_fits(&self, scalar: Scalar, dtype: DType) -> Result<()> {
        if scalar.fits(dtype) {
            return Ok(());
        }
        if scalar.beyond(dtype).is_some() {
            let range = format!("{dtype} represents {} to {}", least(dtype), greatest(dtype));
            return Err(self
                .error(format!("the number {scalar} is out of bounds for {dtype}"))
                .hint(format!("{range}: cast the tensor to a wider dtype first")));
        }
        Err(self
            .error(format!("the number {scalar} is not a value of {dtype}"))
            .hint("use a number of the tensor's kind, or cast the tensor first"))
    }

    /// The type of a tensor of this shape, after checking that its size is representable.
    fn sized(&self, shape: Shape, dtype: DType) -> Result<TensorType> {
        let ty = TensorType { shape, dtype };
        if self.checks_size && ty.checked_num_bytes().is_none() { Err(self.too_large(&ty)) } else { Ok(ty) }
    }

    fn too_large(&self, ty: &TensorType) -> Error {
        self.error(format!("a tensor of shape {} is too large for this machine", ty.shape))
            .hint("check the lengths; sparse or blocked forms of the computation need less")
    }

    fn rank_fits(&self, rank: usize) -> Result<()> {
        if rank <= crate::MAX_RANK {
            return Ok(());
        }
        Err(self
            .error(format!("the result would have {rank} axes; a tensor has at most {}", crate::MAX_RANK)))
    }

    fn collective(&self, collective: &crate::Collective) -> Result<ResultTypes> {
        if collective.size == 0 || collective.rank >= collective.size {
            let problem =
                format!("rank {} is not below the group's size {}", collective.rank, collective.size);
            return Err(self.error(problem));
        }
        let member = |n: usize| {
            let problem = || self.error(format!("member {n} is not in a group of {}", collective.size));
            (n < collective.size).then_some(()).ok_or_else(problem)
        };
        match collective.kind {
            CollectiveKind::AllReduce(_) => {
                self.number(self.only()?)?;
                self.same()
            }
            CollectiveKind::AllGather { axis } => {
                let ty = self.only()?;
                self.axis(axis, ty)?;
                let length = ty.shape[axis].saturating_mul(collective.size);
                Ok(smallvec![self.sized(ty.shape.with(axis, length), ty.dtype)?])
            }
            CollectiveKind::ReduceScatter { axis, .. } => {
                let ty = self.only()?;
                self.number(ty)?;
                self.axis(axis, ty)?;
                if !ty.shape[axis].is_multiple_of(collective.size) {
                    let problem = format!("axis {axis} does not split into {} equal parts", collective.size);
                    return Err(self.error(problem));
                }
                Ok(smallvec![ty.with_shape(ty.shape.with(axis, ty.shape[axis] / collective.size))])
            }
            CollectiveKind::Broadcast { root } => member(root).and_then(|()| self.same()),
            CollectiveKind::Send { to, .. } => member(to).and_then(|()| self.same()),
            CollectiveKind::Recv { from, ty, .. } => {
                member(from)?;
                self.arity(0)?;
                Ok(smallvec![self.sized(ty.shape, ty.dtype)?])
            }
        }
    }

    fn fused(&self, program: &crate::Program) -> Result<ResultTypes> {
        self.arity(program.inputs.len())?;
        for (place, expected) in program.inputs.iter().enumerate() {
            if let OperandType::Scalar(scalar) = self.inputs[place]
                && expected.rank() == 0
                && scalar.fits(expected.dtype)
            {
                continue;
            }
            if self.tensor(place)? != expected {
                return Err(self.error(format!("operand {place} must be {expected}")));
            }
        }
        let types = program.output_types();
        Ok(types.map_err(|slot| self.error(format!("slot {slot} does not exist")))?.into_iter().collect())
    }

    /// The body was checked when the op was created, so only the operands are left.
    fn looped(&self, op: &LoopOp) -> Result<ResultTypes> {
        let LoopAttributes { carried, scanned, steps, .. } = op.attributes();
        let body = op.body();
        self.arity(body.inputs.len())?;
        for (place, expected) in body.inputs.iter().enumerate() {
            let is_scanned = (carried..carried + scanned).contains(&place);
            let role = if is_scanned {
                "scanned"
            } else if place < carried {
                "carried"
            } else {
                "constant"
            };
            let expected = if is_scanned { self.stacked(expected, steps)? } else { *expected };
            if *self.tensor(place)? != expected {
                return Err(self.error(format!("the {role} operand {place} must be {expected}")));
            }
        }
        let types = body.output_types().map_err(|slot| self.error(format!("slot {slot} does not exist")))?;
        let result = |(place, ty): (usize, &TensorType)| {
            if place < carried { Ok(*ty) } else { self.stacked(ty, steps) }
        };
        types.iter().enumerate().map(result).collect()
    }

    /// The type of the values of all steps along a new axis 0.
    fn stacked(&self, ty: &TensorType, steps: usize) -> Result<TensorType> {
        self.rank_fits(ty.rank() + 1)?;
        self.sized(ty.shape.inserted(0, steps), ty.dtype)
    }
}

fn cast_hint(wanted: &str) -> String {
    format!("cast the operand to {wanted} first")
}
