//! The two number types for computation: `f64` and `i128`.

use alloc::vec::Vec;
pub(crate) use kiln_ir::number::Number;
use kiln_ir::{DType, Element, Elements, Result, Scalar, TensorData, TensorType};

/// The elements of a tensor, converted for computation.
#[derive(Clone, Debug)]
pub(crate) enum Numbers {
    /// Elements of a float dtype.
    Real(Vec<f64>),
    /// Elements of an integer dtype, or `bool` as 0 and 1.
    Integer(Vec<i128>),
}

impl Numbers {
    /// Converts the elements of a tensor, exactly.
    pub(crate) fn of(data: &TensorData) -> Numbers {
        if data.dtype().is_float() { Numbers::Real(reals(data)) } else { Numbers::Integer(integers(data)) }
    }

    /// `count` copies of a scalar, as the number type of the dtype.
    pub(crate) fn repeated(scalar: Scalar, dtype: DType, count: usize) -> Numbers {
        if dtype.is_float() {
            Numbers::Real(alloc::vec![f64::from_scalar(scalar); count])
        } else {
            Numbers::Integer(alloc::vec![i128::from_scalar(scalar); count])
        }
    }

    /// Converts the numbers to a tensor. Floats round to nearest even, floats to integers truncate and saturate, integers
    /// wrap, and `bool` is `x != 0`.
    pub(crate) fn into_data(self, ty: TensorType) -> Result<TensorData> {
        let elements = match ty.dtype {
            DType::F64 => self.narrow::<f64>(),
            DType::F32 => self.narrow::<f32>(),
            DType::F16 => Elements::F16(self.narrowed()),
            DType::BF16 => Elements::BF16(self.narrowed()),
            DType::I64 => self.narrow::<i64>(),
            DType::I32 => self.narrow::<i32>(),
            DType::I16 => self.narrow::<i16>(),
            DType::I8 => self.narrow::<i8>(),
            DType::U64 => self.narrow::<u64>(),
            DType::U32 => self.narrow::<u32>(),
            DType::U16 => self.narrow::<u16>(),
            DType::U8 => self.narrow::<u8>(),
            DType::Bool => self.narrow::<bool>(),
        };
        TensorData::from_elements(elements, ty.shape)
    }

    fn narrow<E: Element>(self) -> Elements {
        E::wrap(self.narrowed())
    }

    fn narrowed<E: Element>(self) -> Vec<E> {
        match self {
            Numbers::Real(numbers) => numbers.into_iter().map(E::from_f64).collect(),
            Numbers::Integer(numbers) => numbers.into_iter().map(E::from_i128).collect(),
        }
    }
}

/// The elements as real numbers; `true` is 1.
pub(crate) fn reals(data: &TensorData) -> Vec<f64> {
    fn widen<E: Element>(elements: &[E]) -> Vec<f64> {
        elements.iter().map(|x| x.to_f64()).collect()
    }
    match data.elements() {
        Elements::F64(elements) => elements.clone(),
        Elements::F32(elements) => widen(elements),
        Elements::F16(elements) => widen(elements),
        Elements::BF16(elements) => widen(elements),
        Elements::I64(elements) => widen(elements),
        Elements::I32(elements) => widen(elements),
        Elements::I16(elements) => widen(elements),
        Elements::I8(elements) => widen(elements),
        Elements::U64(elements) => widen(elements),
        Elements::U32(elements) => widen(elements),
        Elements::U16(elements) => widen(elements),
        Elements::U8(elements) => widen(elements),
        Elements::Bool(elements) => widen(elements),
    }
}

/// The elements as integers; floats are truncated, `true` is 1.
pub(crate) fn integers(data: &TensorData) -> Vec<i128> {
    fn widen<E: Element>(elements: &[E]) -> Vec<i128> {
        elements.iter().map(|x| x.to_i128()).collect()
    }
    match data.elements() {
        Elements::F64(elements) => widen(elements),
        Elements::F32(elements) => widen(elements),
        Elements::F16(elements) => widen(elements),
        Elements::BF16(elements) => widen(elements),
        Elements::I64(elements) => widen(elements),
        Elements::I32(elements) => widen(elements),
        Elements::I16(elements) => widen(elements),
        Elements::I8(elements) => widen(elements),
        Elements::U64(elements) => widen(elements),
        Elements::U32(elements) => widen(elements),
        Elements::U16(elements) => widen(elements),
        Elements::U8(elements) => widen(elements),
        Elements::Bool(elements) => widen(elements),
    }
}
