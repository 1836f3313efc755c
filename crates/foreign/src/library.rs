//! The interface of a library: its devices and its kernels.

use crate::call::Call;
use core::fmt;
use kiln_ir::{
    Binary, Comparison, ConvPass, ConvSpec, DType, Extremum, NormKind, OpKind, OpSet, PadAxis, PoolSpec,
    Reduction, Result, Scalar, SliceAxis, TensorData, TensorType, Unary, UpdateMode,
};

/// A result of a library.
pub type Outcome<L, T = <L as Library>::Tensor> = core::result::Result<T, <L as Library>::Error>;

/// The result of an op by a library's kernels; `None` where they would not give Kiln's result, so that the host runs the op.
pub type Native<L, T = <L as Library>::Tensor> = Outcome<L, Option<T>>;

/// The kinds of ops that the kernels of every library run, on `f32` at least. Arithmetic on dtypes that a library lacks runs on
/// the host.
pub const NATIVE: OpSet = OpSet::of(&[
    OpKind::Full,
    OpKind::Iota,
    OpKind::Unary,
    OpKind::Binary,
    OpKind::Compare,
    OpKind::Select,
    OpKind::Cast,
    OpKind::Reshape,
    OpKind::Permute,
    OpKind::Broadcast,
    OpKind::Slice,
    OpKind::Pad,
    OpKind::Concat,
    OpKind::Windows,
    OpKind::Copy,
    OpKind::Reduce,
    OpKind::ArgReduce,
    OpKind::Sort,
    OpKind::TopK,
    OpKind::Take,
    OpKind::Gather,
    OpKind::Put,
    OpKind::Scatter,
    OpKind::SliceUpdate,
    OpKind::CheckIndex,
    OpKind::MatMul,
    OpKind::Conv,
    OpKind::Pool,
    OpKind::Softmax,
    OpKind::LogSumExp,
    OpKind::Norm,
]);

/// A library of tensors, opened for one device.
pub trait Library: Sized + Send + Sync + 'static {
    /// Names a device. Its text is the name of the engine.
    type Device: Copy + PartialEq + fmt::Display + Send + Sync + 'static;
    /// A tensor. A clone has the same elements in memory.
    type Tensor: Clone + Send + Sync + 'static;
    /// The error of a failed call.
    type Error: fmt::Display;

    /// The name of the library in errors.
    const NAME: &'static str;
    /// The kinds of ops that the kernels run, on `f32` at least: [`NATIVE`](const@NATIVE) and others.
    const NATIVE: OpSet;
    /// The kinds of ops that run on the host for every operand: the library lacks them, and an expansion would be slow or inexact.
    const ON_HOST: OpSet;

    /// Opens a device.
    ///
    /// # Errors
    /// When the library or the device is missing.
    fn open(device: Self::Device) -> Result<Self>;

    /// The threads of an op on the processor; 1 on other devices.
    fn threads(&self) -> usize;

    /// Whether results of so many bytes fit in memory. Returns false only if the library would end the process.
    fn has_memory(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Waits for the work of the device.
    ///
    /// # Errors
    /// Those of the device.
    fn synchronize(&self) -> Outcome<Self, ()>;

    /// Copies elements to the device.
    ///
    /// # Errors
    /// When the device has no memory for them.
    fn write(&self, data: TensorData) -> Outcome<Self>;

    /// Copies a tensor, which has elements of this type, to the host.
    ///
    /// # Errors
    /// Those of the device, and when the host has no memory for the elements.
    fn read(x: &Self::Tensor, ty: TensorType) -> Outcome<Self, TensorData>;

    /// An error with this text.
    fn error(problem: String) -> Self::Error;

    /// The text of an error.
    fn message(error: &Self::Error) -> String {
        error.to_string()
    }

    /// The lengths of a tensor.
    fn dims(x: &Self::Tensor) -> Vec<usize>;

    /// Floats for computation: those of 16 bits become `f32`, which is exact. Other tensors stay.
    ///
    /// # Errors
    /// Those of the device.
    fn widened(x: &Self::Tensor) -> Outcome<Self>;

    /// Converts a result to the dtype in which the library stores elements of `dtype`. Integers wrap.
    ///
    /// # Errors
    /// Those of the device.
    fn rounded(x: &Self::Tensor, dtype: DType) -> Outcome<Self>;
}

/// Creation, views and movement. These run on the bits of every dtype.
pub trait View: Library {
    /// The numbers from 0 to `length`, exclusive, in the dtype of the result. `f32` has all of them exactly, if that is a float of
    /// 16 bits.
    fn count(call: &Call<'_, Self>, length: usize) -> Native<Self>;
    /// The same elements in row-major order, with other lengths.
    fn reshape(x: &Self::Tensor, dims: &[usize]) -> Outcome<Self>;
    /// The axes in another order.
    fn permute(x: &Self::Tensor, axes: &[usize]) -> Outcome<Self>;
    /// A view that repeats elements.
    fn broadcast(x: &Self::Tensor, dims: &[usize]) -> Outcome<Self>;
    /// The elements in row-major order in memory.
    fn contiguous(x: &Self::Tensor) -> Outcome<Self>;
    /// The tensors one after the other along an axis.
    fn concat(parts: &[Self::Tensor], axis: usize) -> Outcome<Self>;
    /// [`Op::Slice`](kiln_ir::Op::Slice).
    fn slice(call: &Call<'_, Self>, x: &Self::Tensor, slices: &[SliceAxis]) -> Native<Self>;
    /// [`Op::Pad`](kiln_ir::Op::Pad).
    fn pad(call: &Call<'_, Self>, x: &Self::Tensor, pads: &[PadAxis], number: Scalar) -> Outcome<Self>;
    /// [`Op::Windows`](kiln_ir::Op::Windows).
    fn windows(
        call: &Call<'_, Self>,
        x: &Self::Tensor,
        axis: usize,
        size: usize,
        step: usize,
        dilation: usize,
    ) -> Native<Self>;
    /// [`Op::SliceUpdate`](kiln_ir::Op::SliceUpdate).
    fn slice_update(
        base: &Self::Tensor,
        source: &Self::Tensor,
        slices: &[SliceAxis],
        mode: UpdateMode,
        dtype: DType,
    ) -> Native<Self>;
    /// [`Op::NonZero`](kiln_ir::Op::NonZero), in any dtype of integers.
    fn non_zero(x: &Self::Tensor) -> Native<Self> {
        let _ = x;
        Ok(None)
    }
}

/// Functions of one, two and three elements, and conversions. `dtype` is that of the operands.
pub trait Elementwise: Library {
    /// [`Op::Unary`](kiln_ir::Op::Unary). The operand is [widened](Library::widened), the result will be rounded.
    fn unary(call: &Call<'_, Self>, x: &Self::Tensor, function: Unary, dtype: DType) -> Native<Self>;
    /// [`Op::Binary`](kiln_ir::Op::Binary). The operands are [widened](Library::widened), the result will be rounded.
    fn binary(a: &Self::Tensor, b: &Self::Tensor, function: Binary, dtype: DType) -> Native<Self>;
    /// [`Op::Compare`](kiln_ir::Op::Compare).
    fn compare(a: &Self::Tensor, b: &Self::Tensor, comparison: Comparison, dtype: DType) -> Native<Self>;
    /// `mask ? a : b` for each element.
    fn select(mask: &Self::Tensor, a: &Self::Tensor, b: &Self::Tensor) -> Outcome<Self>;
    /// [`Op::Cast`](kiln_ir::Op::Cast) to another dtype.
    fn cast(x: &Self::Tensor, from: DType, to: DType) -> Native<Self>;
    /// [`Op::Bitcast`](kiln_ir::Op::Bitcast).
    fn bitcast(x: &Self::Tensor, from: DType, to: DType) -> Native<Self>;
}

/// Reductions, scans and sorting.
pub trait Reduce: Library {
    /// [`Op::Reduce`](kiln_ir::Op::Reduce) over one axis or more. The operand is [widened](Library::widened), the result will be
    /// rounded.
    fn reduce(x: &Self::Tensor, reduction: Reduction, axes: &[usize], dtype: DType) -> Native<Self>;
    /// [`Op::ArgReduce`](kiln_ir::Op::ArgReduce).
    fn arg_reduce(call: &Call<'_, Self>, extremum: Extremum, axis: usize) -> Native<Self>;
    /// [`Op::Scan`](kiln_ir::Op::Scan).
    fn scan(
        call: &Call<'_, Self>,
        reduction: Reduction,
        axis: usize,
        reverse: bool,
        exclusive: bool,
    ) -> Native<Self> {
        let _ = (call, reduction, axis, reverse, exclusive);
        Ok(None)
    }
    /// The first `k` entries of a stable sort along an axis, with their places in the dtype `index`.
    fn sort(
        call: &Call<'_, Self>,
        axis: usize,
        k: usize,
        descending: bool,
        index: DType,
    ) -> Native<Self, [Self::Tensor; 2]>;
}

/// Ops by index.
pub trait Index: Library {
    /// Numbers of a dtype as the library takes indices, if all are in `0..length`. Otherwise the host runs the op, whose error
    /// names the index and its position.
    fn indices(x: &Self::Tensor, dtype: DType, length: usize) -> Native<Self>;
    /// The slices at a list of indices along an axis.
    fn index_select(x: &Self::Tensor, index: &Self::Tensor, axis: usize) -> Outcome<Self>;
    /// [`Op::Gather`](kiln_ir::Op::Gather).
    fn gather(x: &Self::Tensor, index: &Self::Tensor, axis: usize) -> Outcome<Self>;
    /// Whether [`scatter`](Index::scatter) writes in this mode as Kiln does.
    fn has_mode(call: &Call<'_, Self>, mode: UpdateMode) -> bool;
    /// [`Op::Scatter`](kiln_ir::Op::Scatter): writes each element of the source at its index along an axis, in order.
    fn scatter(
        base: &Self::Tensor,
        index: &Self::Tensor,
        source: &Self::Tensor,
        axis: usize,
        mode: UpdateMode,
        dtype: DType,
    ) -> Outcome<Self>;
}

/// Matrix products, convolutions and pooling.
pub trait Contraction: Library {
    /// [`Op::MatMul`](kiln_ir::Op::MatMul).
    fn matmul(call: &Call<'_, Self>) -> Native<Self>;
    /// Whether the library has this convolution of floats.
    fn has_conv(spec: &ConvSpec, pass: &ConvPass) -> bool;
    /// [`Op::Conv`](kiln_ir::Op::Conv). The operands are [widened](Library::widened), the result will be rounded.
    fn conv(
        call: &Call<'_, Self>,
        a: &Self::Tensor,
        b: &Self::Tensor,
        spec: &ConvSpec,
        pass: &ConvPass,
    ) -> Outcome<Self>;
    /// Whether the library has this pooling of floats.
    fn has_pool(spec: &PoolSpec) -> bool;
    /// [`Op::Pool`](kiln_ir::Op::Pool), perhaps with more axes of length 1. The operand is [widened](Library::widened), the result
    /// will be rounded.
    fn pool(call: &Call<'_, Self>, x: &Self::Tensor, spec: &PoolSpec) -> Outcome<Self>;
}

/// Softmax and normalisation. Operands are [widened](Library::widened), results will be rounded.
pub trait Composite: Library {
    /// [`Op::Softmax`](kiln_ir::Op::Softmax).
    fn softmax(x: &Self::Tensor, axis: usize, log: bool) -> Outcome<Self>;
    /// [`Op::LogSumExp`](kiln_ir::Op::LogSumExp).
    fn log_sum_exp(x: &Self::Tensor, axis: usize) -> Outcome<Self>;
    /// [`Op::Norm`](kiln_ir::Op::Norm) with a weight and a bias, if the op has them.
    fn norm(
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        bias: Option<&Self::Tensor>,
        kind: NormKind,
        axes: usize,
        epsilon: f64,
    ) -> Outcome<Self>;
}

/// A library with all kernels.
pub trait Kernels: View + Elementwise + Reduce + Index + Contraction + Composite {}

impl<L: View + Elementwise + Reduce + Index + Contraction + Composite> Kernels for L {}
