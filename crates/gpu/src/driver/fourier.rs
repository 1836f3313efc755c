//! The descriptor of an FFT call to a vendor's library.

use super::DevicePtr;
use kiln_ir::DType;
use std::sync::Arc;

/// A transform with its memory.
pub struct Transform<M> {
    /// The lines and the kind of the transform.
    pub fourier: Arc<Fourier>,
    /// The first elements of the operand and of the result. Lines have no gaps; of complex numbers the real part comes first, the
    /// imaginary one right after it.
    pub tensors: [DevicePtr<M>; 2],
    /// Memory besides.
    pub workspace: DevicePtr<M>,
}

/// Transforms of lines, all of the same length, without their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fourier {
    /// Which sides are real.
    pub kind: FourierKind,
    /// Of real numbers and of the parts of complex ones: `f32` or `f64`.
    pub dtype: DType,
    /// How many points a line has: half a spectrum has `points / 2 + 1` complex numbers.
    pub points: usize,
    /// How many lines.
    pub count: usize,
}

/// Which sides of a transform are real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FourierKind {
    /// None.
    Complex {
        /// Whether the exponent is positive.
        inverse: bool,
    },
    /// The operand; the result is half a spectrum, by a negative exponent.
    FromReal,
    /// The result; the operand is half a spectrum, and the exponent positive.
    ToReal,
}
