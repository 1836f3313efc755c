//! Untyped tensors, whose rank and dtype are known at run time. They implement every operation.

mod activation;
mod arithmetic;
mod autodiff;
mod bits;
mod blocks;
mod compare;
mod complex;
mod contraction;
mod create;
mod data;
mod elementwise;
mod emit;
mod explain;
mod fft;
mod float8;
pub(crate) mod formula;
mod grid;
mod index;
mod linalg;
mod loss;
mod module;
mod order;
mod quantize;
mod random;
mod reduce;
mod sets;
mod signal;
mod special;
mod stats;
mod validity;
mod view;

pub use complex::AnyComplex;
pub use fft::{Dct, FftNorm};
pub use float8::Float8Tensor;
#[cfg(feature = "std")]
pub(crate) use float8::MatMulAsFloat8;
pub use grid::{GridPadding, GridSampleMode, GridSampleOptions, Indexing};
pub use index::ScatterReduction;
pub(crate) use index::index_dtype;
pub use linalg::{Norm, TensordotAxes};
pub use loss::{ClassOptions, CtcOptions, Reduction, RnntOptions, TripletOptions};
pub use module::{
    AttentionOptions, BagMode, BatchNormOptions, BatchStatistics, Causal, DeformConvSpec, EmbeddingOptions,
    InterpolateMode, InterpolateOptions, InterpolateSize, RotaryLayout,
};
pub use order::Interpolation;
pub use quantize::{QuantGranularity, QuantMode, QuantParams, QuantRange, QuantScheme, Quantized};
pub use sets::UniqueAny;
pub use signal::{ConvolveMode, StftOptions, Window};
pub use stats::CdistMode;
pub use validity::Recovered;
pub use view::PadMode;
pub(crate) use view::zero;

use crate::tensor::mismatch;
use crate::{Backend, DType, Kind, Result, Shape, Stack, Tensor, TensorType};
use core::fmt;
use kiln_ir::Value;

/// A tensor whose rank, kind and backend are known at run time. Every operation returns a [`Result`].
///
/// Each operation is implemented once, here: it checks its operands by inference and emits ops. Shapes broadcast by
/// NumPy's rules. [`Tensor`] is a typed wrapper. Module traversal, files and tools that know shapes only at run time
/// use `AnyTensor`.
///
/// ```
/// use kiln_backends::Device;
/// use kiln_tensor::{AnyTensor, DType, TensorData};
///
/// let x = AnyTensor::from_data(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), &Device::cpu());
/// let y = x.clone().matmul(x)?.cast(DType::F64)?;
/// assert_eq!(y.into_data()?.to_vec::<f64>(), [7.0, 10.0, 15.0, 22.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Errors
/// Each method lists the dtypes, shapes and arguments that it does not accept. It does not repeat the errors of every
/// method:
///
/// - Tensors are on stacks of different [domains](Stack::domain), such as two devices.
/// - Promotion finds no dtype: none represents a signed integer and a `u64` ([`DType::promote`]).
/// - A result is too large for this machine.
/// - An axis is so long that the integer dtype of the stack does not represent its indices.
///
/// A failure of the computation, such as an index out of range or memory that runs out, is an error of the result. It
/// passes to the results of later ops, and methods that read elements return it. No method waits for the device unless
/// documented.
///
/// # Panics
/// Methods that add axes may panic when a result would have more than [`MAX_RANK`](kiln_ir::MAX_RANK), as
/// [`Shape::new`] does; others return an error.
#[derive(Clone)]
pub struct AnyTensor {
    /// Dropped before the stack: an engine that is dropped with its last handle does not compute dead values.
    value: Value,
    stack: Stack,
}

impl AnyTensor {
    /// Creates a tensor from a value of a stack.
    #[inline]
    pub fn new(stack: Stack, value: Value) -> AnyTensor {
        AnyTensor { stack, value }
    }

    /// Returns the stack.
    #[inline]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Converts into the value.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// Returns the type: dtype and shape.
    #[inline]
    pub fn ty(&self) -> &TensorType {
        self.value.ty()
    }

    /// Returns the shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        self.value.shape()
    }

    /// Returns the rank (number of axes).
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Returns the dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.value.dtype()
    }

    /// Converts to a typed tensor.
    ///
    /// # Errors
    /// When rank or kind differ, or the tensor is not on a device of `B`.
    pub fn try_into_tensor<B: Backend, const D: usize, K: Kind>(self) -> Result<Tensor<B, D, K>> {
        if self.shape().rank() != D || !K::holds(self.dtype()) {
            return Err(mismatch::<D, K>(self.ty()));
        }
        if !B::stack(&B::device(self.stack())).same(self.stack()) {
            let problem = alloc::format!("is on {:?}, which is not a device of the backend", self.stack());
            return Err(kiln_ir::Error::type_error("tensor", problem, &[self.ty().into()])
                .hint("move it with `to_stack`, or use the backend that created it"));
        }
        Ok(Tensor::from_any(self))
    }
}

impl fmt::Debug for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyTensor({}, {:?})", self.ty(), self.stack)
    }
}
