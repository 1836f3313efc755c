//! The descriptor of an FFT call to a vendor's library.

use super::DevicePtr;
use kiln_ir::DType;
use std::sync::Arc;

/// A transform with its memory.
pub struct Transform<M> {
    /// The lines and the kind of the transform.
    pub fourier: Arc<Fourier>,
    /// The first elements of the operand and of the result. Lines are contiguous; complex numbers interleave real and
    /// imaginary parts.
    pub tensors: [DevicePtr<M>; 2],
    /// The workspace.
    pub workspace: DevicePtr<M>,
}

/// Transforms of lines, all of the same length, without their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fourier {
    /// The kind of transform: complex, real to complex, or complex to real.
    pub kind: FourierKind,
    /// The dtype of real numbers and of the parts of complex ones: `f32` or `f64`.
    pub dtype: DType,
    /// The length of a line in points. Half a spectrum has `points / 2 + 1` complex numbers.
    pub points: usize,
    /// The number of lines.
    pub count: usize,
}

/// The kind of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FourierKind {
    /// Complex to complex.
    Complex {
        /// Whether the exponent is positive.
        inverse: bool,
    },
    /// Real to complex: the result is half a spectrum, with a negative exponent.
    FromReal,
    /// Complex to real: the operand is half a spectrum, and the exponent positive.
    ToReal,
}
