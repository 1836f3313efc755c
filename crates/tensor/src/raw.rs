//! The tensor without type parameters, where all work happens.

use crate::{DType, Distribution, Error, Number, Result, Scalar, Shape, Stack, TensorData, TensorType};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    Axes, Binary, Comparison, Extremum, MAX_RANK, Op, Operand, OperandType, Operands, PadAxis, RandomKind,
    Reduction, SliceAxis, Unary, UpdateMode, Value, Values, infer, infer_alike,
};
use smallvec::{SmallVec, smallvec};

/// A value and the stack that runs it. Every method checks its operands by inference and emits ops; shapes
/// broadcast as NumPy's do.
///
/// [`Tensor`](crate::Tensor) and [`AnyTensor`](crate::AnyTensor) are shells around it; extensions may use it directly.
///
/// # Errors
/// All methods return the error of inference when operands do not suit; none waits for the device unless it says so.
#[derive(Clone, Debug)]
pub struct Raw {
    stack: Stack,
    value: Value,
}

impl Raw {
    /// A value of a stack.
    #[inline]
    pub fn new(stack: Stack, value: Value) -> Raw {
        Raw { stack, value }
    }

    /// The stack.
    #[inline]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Gives up the value.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The type.
    #[inline]
    pub fn ty(&self) -> &TensorType {
        self.value.ty()
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        self.value.shape()
    }

    /// The dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.value.dtype()
    }

    /// Runs any op on operands of one stack; all its results.
    pub fn emit(stack: &Stack, op: &Op, inputs: Operands) -> Result<Values> {
        let types = infer(op, &OperandType::list(&inputs))?;
        Ok(stack.engine().execute(op, inputs, &types))
    }

    /// Runs an op with `self` as the only operand and a single result.
    #[inline]
    pub fn apply(self, op: &Op) -> Result<Raw> {
        let types = infer(op, &[OperandType::Tensor(self.value.ty())])?;
        let results = self.stack.engine().execute(op, smallvec![Operand::Value(self.value)], &types);
        Raw::only(self.stack, op, results)
    }

    /// The result of an op that gives one.
    #[inline]
    fn only(stack: Stack, op: &Op, mut results: Values) -> Result<Raw> {
        match results.pop() {
            Some(value) => Ok(Raw { stack, value }),
            None => Err(Error::type_error(op.name(), "gives no result", &[])),
        }
    }

    /// Runs an op with `self` first; all results.
    pub fn apply_many(self, op: &Op, rest: impl IntoIterator<Item = Operand>) -> Result<Vec<Raw>> {
        let Raw { stack, value } = self;
        let inputs: Operands = core::iter::once(value.into()).chain(rest).collect();
        let results = Raw::emit(&stack, op, inputs)?;
        Ok(results.into_iter().map(|value| Raw::new(stack.clone(), value)).collect())
    }

    /// Runs an op with `self` first; the first result.
    pub fn apply_with(self, op: &Op, rest: impl IntoIterator<Item = Operand>) -> Result<Raw> {
        let Raw { stack, value } = self;
        let inputs: Operands = core::iter::once(value.into()).chain(rest).collect();
        let mut results = Raw::emit(&stack, op, inputs)?;
        Ok(Raw { stack, value: results.swap_remove(0) })
    }

    #[inline]
    fn on_same_stack(&self, op: &str, other: &Raw) -> Result<()> {
        if self.stack.same(&other.stack) { Ok(()) } else { Err(self.on_other_stack(op, other)) }
    }

    #[cold]
    fn on_other_stack(&self, op: &str, other: &Raw) -> Error {
        let problem = format!("tensors are on different devices: {:?} and {:?}", self.stack, other.stack);
        Error::type_error(op, problem, &[self.ty().into(), other.ty().into()])
            .hint("move one of them with `to_device`")
    }

    // From nothing.

    /// A tensor filled with a number.
    pub fn full(stack: &Stack, ty: TensorType, x: Scalar) -> Result<Raw> {
        let mut results = Raw::emit(stack, &Op::Full(ty), smallvec![Operand::Scalar(x)])?;
        Ok(Raw::new(stack.clone(), results.swap_remove(0)))
    }

    /// Zeros (`false`).
    pub fn zeros(stack: &Stack, ty: TensorType) -> Result<Raw> {
        Raw::full(stack, ty, if ty.dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(0) })
    }

    /// Indices along an axis.
    pub fn iota(stack: &Stack, ty: TensorType, axis: usize) -> Result<Raw> {
        let mut results = Raw::emit(stack, &Op::Iota { ty, axis }, smallvec![])?;
        Ok(Raw::new(stack.clone(), results.swap_remove(0)))
    }

    /// Data from the host.
    pub fn from_data(stack: &Stack, data: TensorData) -> Raw {
        Raw::new(stack.clone(), stack.engine().write(data))
    }

    /// Random numbers, with the next key of the stack.
    pub fn random(stack: &Stack, ty: TensorType, distribution: Distribution) -> Result<Raw> {
        let draw = |ty: TensorType, distribution: RandomKind| {
            let key = Operand::Scalar(Scalar::UInt(stack.keys().next_key()));
            let mut results = Raw::emit(stack, &Op::Random { ty, distribution }, smallvec![key])?;
            Ok::<Raw, Error>(Raw::new(stack.clone(), results.swap_remove(0)))
        };
        let float = if ty.dtype.is_float() { ty } else { ty.with_dtype(stack.float_dtype()) };
        let drawn = match distribution {
            Distribution::Default if ty.dtype.is_int() => return draw(ty, RandomKind::Bits),
            Distribution::Default if ty.dtype.is_float() => return draw(ty, RandomKind::Uniform),
            Distribution::Default => draw(float, RandomKind::Uniform)?.compare_scalar(Comparison::Lt, 0.5)?,
            Distribution::Bernoulli(p) => {
                draw(float, RandomKind::Uniform)?.compare_scalar(Comparison::Lt, p)?
            }
            Distribution::Uniform(low, high) => draw(float, RandomKind::Uniform)?
                .binary_scalar(Binary::Mul, high - low)?
                .binary_scalar(Binary::Add, low)?,
            Distribution::Normal(mean, deviation) => draw(float, RandomKind::Normal)?
                .binary_scalar(Binary::Mul, deviation)?
                .binary_scalar(Binary::Add, mean)?,
        };
        let floors = ty.dtype.is_int() && drawn.dtype().is_float();
        let drawn = if floors { drawn.unary(Unary::Floor)? } else { drawn };
        drawn.cast(ty.dtype)
    }

    // Per element.

    /// A function of each element.
    #[inline]
    pub fn unary(self, function: Unary) -> Result<Raw> {
        self.apply(&Op::Unary(function))
    }

    /// A function of two elements; broadcasts.
    #[inline]
    pub fn binary(self, function: Binary, other: Raw) -> Result<Raw> {
        let Raw { stack, value } = other;
        self.pairwise(&Op::Binary(function), &stack, value)
    }

    /// As [`binary`](Raw::binary), keeping the other operand: cheaper than a clone of it.
    #[inline]
    pub fn binary_with(self, function: Binary, other: &Raw) -> Result<Raw> {
        self.pairwise(&Op::Binary(function), &other.stack, other.value.clone())
    }

    /// A function of each element and a number.
    #[inline]
    pub fn binary_scalar(self, function: Binary, x: impl Number) -> Result<Raw> {
        let operands = smallvec![Operand::Value(self.value), Operand::Scalar(x.scalar())];
        let mut results = Raw::emit(&self.stack, &Op::Binary(function), operands)?;
        Ok(Raw { stack: self.stack, value: results.swap_remove(0) })
    }

    /// A function of a number and each element.
    #[inline]
    pub fn scalar_binary(self, x: impl Number, function: Binary) -> Result<Raw> {
        let operands = smallvec![Operand::Scalar(x.scalar()), Operand::Value(self.value)];
        let mut results = Raw::emit(&self.stack, &Op::Binary(function), operands)?;
        Ok(Raw { stack: self.stack, value: results.swap_remove(0) })
    }

    /// A comparison of two elements; broadcasts.
    pub fn compare(self, comparison: Comparison, other: Raw) -> Result<Raw> {
        let Raw { stack, value } = other;
        self.pairwise(&Op::Compare(comparison), &stack, value)
    }

    /// A comparison of each element with a number.
    pub fn compare_scalar(self, comparison: Comparison, x: impl Number) -> Result<Raw> {
        self.apply_with(&Op::Compare(comparison), [Operand::Scalar(x.scalar())])
    }

    /// A comparison of a number with each element.
    pub fn scalar_compare(self, x: impl Number, comparison: Comparison) -> Result<Raw> {
        let operands = smallvec![Operand::Scalar(x.scalar()), Operand::Value(self.value)];
        let mut results = Raw::emit(&self.stack, &Op::Compare(comparison), operands)?;
        Ok(Raw { stack: self.stack, value: results.swap_remove(0) })
    }

    #[inline]
    fn pairwise(self, op: &Op, stack: &Stack, other: Value) -> Result<Raw> {
        if self.stack.same(stack)
            && let Some(ty) = infer_alike(op, self.value.ty(), other.ty())
        {
            let operands = smallvec![Operand::Value(self.value), Operand::Value(other)];
            let results = self.stack.engine().execute(op, operands, &[ty]);
            return Raw::only(self.stack, op, results);
        }
        self.pairwise_any(op, Raw::new(stack.clone(), other))
    }

    /// Two tensors that may differ in everything.
    #[inline(never)]
    fn pairwise_any(self, op: &Op, other: Raw) -> Result<Raw> {
        self.on_same_stack(op.name(), &other)?;
        let (a, b) =
            if self.shape() == other.shape() { (self, other) } else { Raw::broadcast_pair(op, self, other)? };
        let results = Raw::emit(&a.stack, op, smallvec![Operand::Value(a.value), Operand::Value(b.value)])?;
        Raw::only(a.stack, op, results)
    }

    fn broadcast_pair(op: &Op, a: Raw, b: Raw) -> Result<(Raw, Raw)> {
        match kiln_ir::infer::broadcast_shapes(a.shape(), b.shape()) {
            Some(shape) => Ok((a.broadcast(shape)?, b.broadcast(shape)?)),
            // Inference of the op itself makes the message.
            None => infer(op, &[a.ty().into(), b.ty().into()]).map(|_| (a, b)),
        }
    }

    /// `a` where this `bool` holds, otherwise `b`; broadcasts.
    pub fn select(self, a: Raw, b: Raw) -> Result<Raw> {
        self.on_same_stack("select", &a)?;
        self.on_same_stack("select", &b)?;
        let shape = kiln_ir::infer::broadcast_shapes(self.shape(), a.shape())
            .and_then(|shape| kiln_ir::infer::broadcast_shapes(&shape, b.shape()));
        let Some(shape) = shape else {
            return self.apply_with(&Op::Select, [a.value.into(), b.value.into()]);
        };
        let (a, b) = (a.broadcast(shape)?, b.broadcast(shape)?);
        self.broadcast(shape)?.apply_with(&Op::Select, [a.value.into(), b.value.into()])
    }

    /// Where this `bool` holds the number, otherwise `b`; broadcasts.
    pub fn select_scalar(self, x: impl Number, b: Raw) -> Result<Raw> {
        self.on_same_stack("select", &b)?;
        let shape = kiln_ir::infer::broadcast_shapes(self.shape(), b.shape());
        let (condition, b) = match shape {
            Some(shape) => (self.broadcast(shape)?, b.broadcast(shape)?),
            None => (self, b),
        };
        condition.apply_with(&Op::Select, [Operand::Scalar(x.scalar()), b.value.into()])
    }

    /// Another dtype; nothing is emitted where it is right already.
    pub fn cast(self, dtype: DType) -> Result<Raw> {
        if self.dtype() == dtype { Ok(self) } else { self.apply(&Op::Cast(dtype)) }
    }

    // The same elements elsewhere.

    /// Another shape.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<Raw> {
        let shape = shape.into();
        if *self.shape() == shape { Ok(self) } else { self.apply(&Op::Reshape(shape)) }
    }

    /// Repeats axes of length 1 and adds axes in front.
    pub fn broadcast(self, shape: impl Into<Shape>) -> Result<Raw> {
        let shape = shape.into();
        if *self.shape() == shape { Ok(self) } else { self.apply(&Op::Broadcast(shape)) }
    }

    /// Axes in another order.
    pub fn permute(self, axes: &[usize]) -> Result<Raw> {
        self.check_axes("permute", axes)?;
        self.apply(&Op::Permute(Axes::new(axes)))
    }

    /// Exchanges two axes.
    pub fn swap_axes(self, a: usize, b: usize) -> Result<Raw> {
        self.check_axes("swap_dims", &[a, b])?;
        let mut axes: SmallVec<[usize; MAX_RANK]> = (0..self.shape().rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// A strided range of each axis.
    pub fn slice(self, slices: Vec<SliceAxis>) -> Result<Raw> {
        self.apply(&Op::Slice(slices))
    }

    /// A strided range of one axis.
    pub fn slice_axis(self, axis: usize, slice: SliceAxis) -> Result<Raw> {
        self.check_axes("slice", &[axis])?;
        let mut slices: Vec<SliceAxis> = self.shape().iter().map(|&len| SliceAxis::all(len)).collect();
        slices[axis] = slice;
        self.slice(slices)
    }

    /// Elements of some axes in reverse order.
    pub fn flip(self, axes: &[usize]) -> Result<Raw> {
        self.check_axes("flip", axes)?;
        let range = |(axis, &len): (usize, &usize)| match axes.contains(&axis) {
            true => SliceAxis { start: len.saturating_sub(1), len, step: -1 },
            false => SliceAxis::all(len),
        };
        let slices = self.shape().iter().enumerate().map(range).collect();
        self.slice(slices)
    }

    /// Puts a number around the elements.
    pub fn pad(self, pads: Vec<PadAxis>, x: impl Number) -> Result<Raw> {
        self.apply_with(&Op::Pad(pads), [Operand::Scalar(x.scalar())])
    }

    /// Tensors one after the other along an axis.
    pub fn concat(tensors: Vec<Raw>, axis: usize) -> Result<Raw> {
        let mut rest = tensors.into_iter();
        let Some(first) = rest.next() else {
            return Err(Error::type_error("concat", "needs at least one tensor", &[]));
        };
        let rest: Vec<Raw> = rest.collect();
        for other in &rest {
            first.on_same_stack("concat", other)?;
        }
        first.apply_with(&Op::Concat { axis }, rest.into_iter().map(|raw| raw.value.into()))
    }

    // Many to one, and order.

    /// Combines all elements along axes (in any order), which stay with length 1.
    pub fn reduce(self, reduction: Reduction, axes: &[usize]) -> Result<Raw> {
        if axes.is_empty() {
            return Ok(self);
        }
        self.check_axes("reduce", axes)?;
        let mut axes: SmallVec<[usize; MAX_RANK]> = axes.iter().copied().collect();
        axes.sort_unstable();
        self.apply(&Op::Reduce { reduction, axes: Axes::new(&axes) })
    }

    /// Combines all elements into a tensor of shape `[1]`.
    pub fn reduce_all(self, reduction: Reduction) -> Result<Raw> {
        let axes: SmallVec<[usize; MAX_RANK]> = (0..self.shape().rank()).collect();
        self.reduce(reduction, &axes)?.reshape([1])
    }

    /// The mean along axes, which stay with length 1.
    pub fn mean(self, axes: &[usize]) -> Result<Raw> {
        self.check_axes("mean", axes)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        self.reduce(Reduction::Sum, axes)?.binary_scalar(Binary::Div, count)
    }

    /// Where along an axis the extreme element is.
    pub fn arg_reduce(self, extremum: Extremum, axis: usize) -> Result<Raw> {
        let index = self.stack.int_dtype();
        self.apply(&Op::ArgReduce { extremum, axis, index })
    }

    /// Running reduction along an axis.
    pub fn scan(self, reduction: Reduction, axis: usize) -> Result<Raw> {
        self.apply(&Op::Scan { reduction, axis, reverse: false, exclusive: false })
    }

    // By index.

    /// Replaces an axis by the axes of the index.
    pub fn take(self, axis: usize, index: Raw) -> Result<Raw> {
        self.on_same_stack("take", &index)?;
        self.apply_with(&Op::Take { axis }, [index.value.into()])
    }

    /// Picks along an axis, for each element of the index.
    pub fn gather(self, axis: usize, index: Raw) -> Result<Raw> {
        self.on_same_stack("gather", &index)?;
        self.apply_with(&Op::Gather { axis }, [index.value.into()])
    }

    /// The reverse of [`take`](Raw::take).
    pub fn put(self, axis: usize, index: Raw, source: Raw, mode: UpdateMode) -> Result<Raw> {
        self.on_same_stack("put", &index)?;
        self.on_same_stack("put", &source)?;
        self.apply_with(&Op::Put { axis, mode }, [index.value.into(), source.value.into()])
    }

    /// The reverse of [`gather`](Raw::gather).
    pub fn scatter(self, axis: usize, index: Raw, source: Raw, mode: UpdateMode) -> Result<Raw> {
        self.on_same_stack("scatter", &index)?;
        self.on_same_stack("scatter", &source)?;
        self.apply_with(&Op::Scatter { axis, mode }, [index.value.into(), source.value.into()])
    }

    // Contractions.

    /// Matrix products over the last two axes; the axes before broadcast.
    pub fn matmul(self, other: Raw) -> Result<Raw> {
        self.on_same_stack("matmul", &other)?;
        let (m, n) = (self.shape().rank(), other.shape().rank());
        let same_batch = m < 2 || n < 2 || self.shape()[..m - 2] == other.shape()[..n - 2];
        let inner_differ = m < 2 || n < 2 || self.shape()[m - 1] != other.shape()[n - 2];
        if same_batch || inner_differ {
            return self.apply_with(&Op::MatMul, [other.value.into()]);
        }
        let batch =
            kiln_ir::infer::broadcast_shapes(&self.shape()[..m - 2].into(), &other.shape()[..n - 2].into());
        let Some(batch) = batch else { return self.apply_with(&Op::MatMul, [other.value.into()]) };
        let full = |last: &[usize]| batch.iter().chain(last).copied().collect::<Shape>();
        let (a, b) = (full(&self.shape()[m - 2..]), full(&other.shape()[n - 2..]));
        let other = other.broadcast(b)?;
        self.broadcast(a)?.apply_with(&Op::MatMul, [other.value.into()])
    }

    // Edges.

    /// Brings the elements to the host. Waits for the device.
    pub fn into_data(self) -> Result<TensorData> {
        kiln_ir::block_on(self.stack.engine().read(self.value))
    }

    /// Brings the elements to the host without blocking the thread.
    pub async fn into_data_async(self) -> Result<TensorData> {
        self.stack.engine().read(self.value).await
    }

    /// The same elements on another stack. Waits for the device, unless it is the same stack.
    pub fn to_stack(self, stack: &Stack) -> Result<Raw> {
        if self.stack.same(stack) {
            return Ok(self);
        }
        Ok(Raw::from_data(stack, self.into_data()?))
    }

    pub(crate) fn check_axes(&self, op: &str, axes: &[usize]) -> Result<()> {
        let rank = self.shape().rank();
        if let Some(axis) = axes.iter().find(|&&axis| axis >= rank) {
            let problem = format!("axis {axis} is out of range for {rank} axes");
            return Err(Error::type_error(op, problem, &[self.ty().into()]));
        }
        Ok(())
    }
}
