//! Kinds of elements: float, integer and boolean.

use crate::{DType, Stack};
use core::fmt::Debug;

/// The kind of a tensor's elements, as a type parameter. The dtype within a kind is known at run time.
pub trait Kind: Copy + Default + Debug + Send + Sync + 'static + private::Sealed {
    /// The name of the kind: `Float`, `Int` or `Bool`.
    const NAME: &'static str;

    /// Returns the dtype of new tensors of this kind on a stack.
    fn default_dtype(stack: &Stack) -> DType;

    /// Returns whether a dtype is of this kind.
    fn holds(dtype: DType) -> bool;
}

/// A kind with arithmetic: [`Float`] or [`Int`].
pub trait Numeric: Kind {}

/// Floating-point elements; `f32` by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Float;

/// Integer elements; `i32` by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Int;

/// Boolean elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bool;

impl Kind for Float {
    const NAME: &'static str = "Float";
    fn default_dtype(stack: &Stack) -> DType {
        stack.float_dtype()
    }
    fn holds(dtype: DType) -> bool {
        dtype.is_float()
    }
}

impl Kind for Int {
    const NAME: &'static str = "Int";
    fn default_dtype(stack: &Stack) -> DType {
        stack.int_dtype()
    }
    fn holds(dtype: DType) -> bool {
        dtype.is_int()
    }
}

impl Kind for Bool {
    const NAME: &'static str = "Bool";
    fn default_dtype(_stack: &Stack) -> DType {
        DType::Bool
    }
    fn holds(dtype: DType) -> bool {
        dtype.is_bool()
    }
}

impl Numeric for Float {}
impl Numeric for Int {}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Float {}
    impl Sealed for super::Int {}
    impl Sealed for super::Bool {}
}
