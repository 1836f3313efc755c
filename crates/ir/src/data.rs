//! Tensor data on the host.

use crate::number::Number;
use crate::{DType, Error, Result, Scalar, Shape, TensorType};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use half::{bf16, f16};

/// The contents of a tensor on the host: elements in row-major order, their dtype and a shape.
///
/// It is created from a `Vec` and converted back without copying.
///
/// ```
/// use kiln_ir::{DType, TensorData};
///
/// let data = TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap();
/// assert_eq!(data.dtype(), DType::F32);
/// assert_eq!(data.bytes().len(), 24);
/// assert_eq!(data.into_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// ```
#[derive(Clone, PartialEq)]
pub struct TensorData {
    shape: Shape,
    elements: Elements,
}

impl TensorData {
    /// Creates data from elements and a shape.
    ///
    /// # Errors
    /// When the number of elements does not match the shape.
    pub fn new<E: Element>(elements: Vec<E>, shape: impl Into<Shape>) -> Result<TensorData> {
        TensorData::from_elements(E::wrap(elements), shape.into())
    }

    /// Creates data from elements whose dtype is known at run time, and a shape.
    ///
    /// # Errors
    /// When the number of elements does not match the shape.
    pub fn from_elements(elements: Elements, shape: Shape) -> Result<TensorData> {
        if shape.checked_num_elements() != Some(elements.len()) {
            let problem = format!("{} elements do not fill the shape {shape}", elements.len());
            return Err(Error::value("data", problem)
                .hint("the lengths of the shape must multiply to the number of elements"));
        }
        Ok(TensorData { shape, elements })
    }

    /// Creates data from the bytes of elements of `dtype` in native byte order. Copies.
    ///
    /// # Errors
    /// When the number of bytes does not match the type, or a `bool` is neither 0 nor 1.
    pub fn from_bytes(bytes: &[u8], ty: TensorType) -> Result<TensorData> {
        let expected = ty.checked_num_bytes();
        if expected != Some(bytes.len()) {
            return Err(Error::value("data", format!("{} bytes do not fill {ty}", bytes.len()))
                .hint("the bytes are the number of elements times the size of one"));
        }
        TensorData::from_elements(Elements::from_bytes(bytes, ty.dtype)?, ty.shape)
    }

    /// Returns a tensor of zeros (`false`) of that type.
    pub fn zeros(ty: TensorType) -> TensorData {
        TensorData { shape: ty.shape, elements: Elements::zeros(ty.dtype, ty.num_elements()) }
    }

    /// Returns a rank-0 tensor of one number.
    pub fn scalar<E: Element>(element: E) -> TensorData {
        TensorData { shape: Shape::default(), elements: E::wrap(alloc::vec![element]) }
    }

    /// Returns a plain number as a rank-0 operand on the host. It has the dtype of the tensor operands (`beside`) if
    /// that can represent the number, otherwise its [own](Scalar::default_dtype). Integers stay exact: one that the
    /// dtype would round or wrap keeps its own dtype.
    ///
    /// ```
    /// use kiln_ir::{DType, Scalar, TensorData};
    /// assert_eq!(TensorData::operand(Scalar::Int(3), Some(DType::F32)).dtype(), DType::F32);
    /// let odd = TensorData::operand(Scalar::Int((1 << 53) + 1), Some(DType::F64));
    /// assert_eq!(odd.to_vec::<i64>(), [(1 << 53) + 1]);
    /// ```
    pub fn operand(scalar: Scalar, beside: Option<DType>) -> TensorData {
        let exact = |dtype: DType| match scalar {
            Scalar::Int(_) | Scalar::UInt(_) => Elements::hold(dtype, i128::from_scalar(scalar)),
            Scalar::Float(_) | Scalar::Bool(_) => true,
        };
        let dtype = beside.filter(|&dtype| scalar.fits(dtype) && exact(dtype));
        let elements = Elements::of_scalar(scalar, dtype.unwrap_or(scalar.default_dtype()));
        TensorData { shape: Shape::default(), elements }
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.elements.dtype()
    }

    /// Returns the shape and dtype.
    pub fn ty(&self) -> TensorType {
        TensorType { shape: self.shape, dtype: self.dtype() }
    }

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.elements.len()
    }

    /// Returns the elements, as an enum over dtypes.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Returns the elements, mutable.
    pub fn elements_mut(&mut self) -> &mut Elements {
        &mut self.elements
    }

    /// Unwraps the elements.
    pub fn into_elements(self) -> Elements {
        self.elements
    }

    /// Returns the elements as bytes, in native byte order.
    pub fn bytes(&self) -> &[u8] {
        self.elements.bytes()
    }

    /// Returns the elements as a slice of `E`.
    ///
    /// # Errors
    /// When the dtype differs; [`convert`](TensorData::convert) changes it.
    pub fn as_slice<E: Element>(&self) -> Result<&[E]> {
        E::slice(&self.elements).ok_or_else(|| self.wrong_dtype(E::DTYPE))
    }

    /// Converts to a `Vec` of `E` without copying.
    ///
    /// # Errors
    /// When the dtype differs; [`convert`](TensorData::convert) changes it.
    pub fn into_vec<E: Element>(self) -> Result<Vec<E>> {
        let wrong = self.wrong_dtype(E::DTYPE);
        E::unwrap(self.elements).ok_or(wrong)
    }

    /// Copies the elements to a `Vec` of `E`, converted like [`Op::Cast`](crate::Op::Cast) if the dtype differs.
    pub fn to_vec<E: Element>(&self) -> Vec<E> {
        match E::slice(&self.elements) {
            Some(slice) => slice.to_vec(),
            None => E::unwrap(self.elements.cast(E::DTYPE)).unwrap_or_default(),
        }
    }

    /// Iterates over the elements in row-major order as `E`, converted like [`Op::Cast`](crate::Op::Cast). Copies only
    /// if the dtype differs.
    ///
    /// ```
    /// use kiln_ir::TensorData;
    ///
    /// let data = TensorData::from([[1i32, 2], [3, 4]]);
    /// assert_eq!(data.iter::<f32>().sum::<f32>(), 10.0);
    /// ```
    pub fn iter<E: Element>(&self) -> impl DoubleEndedIterator<Item = E> + ExactSizeIterator + use<'_, E> {
        let elements = match E::slice(&self.elements) {
            Some(slice) => Cow::Borrowed(slice),
            None => Cow::Owned(self.to_vec::<E>()),
        };
        (0..elements.len()).map(move |i| elements[i])
    }

    /// Returns the same data in another dtype, converted like [`Op::Cast`](crate::Op::Cast).
    #[must_use]
    pub fn convert(self, dtype: DType) -> TensorData {
        if self.dtype() == dtype {
            return self;
        }
        TensorData { shape: self.shape, elements: self.elements.cast(dtype) }
    }

    /// Returns the same elements in another shape.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<TensorData> {
        TensorData::from_elements(self.elements, shape.into())
    }

    fn wrong_dtype(&self, wanted: DType) -> Error {
        Error::value("data", format!("contains {}, not {wanted}", self.ty()))
            .hint("convert it first: `data.convert(dtype)` or `data.to_vec::<E>()`")
    }
}

impl fmt::Debug for TensorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorData({}, {:?})", self.ty(), self.elements)
    }
}

impl<E: Element, const N: usize> From<[E; N]> for TensorData {
    fn from(elements: [E; N]) -> TensorData {
        TensorData { shape: [N].into(), elements: E::wrap(elements.to_vec()) }
    }
}

impl<E: Element, const N: usize, const M: usize> From<[[E; M]; N]> for TensorData {
    fn from(elements: [[E; M]; N]) -> TensorData {
        TensorData { shape: [N, M].into(), elements: E::wrap(elements.as_flattened().to_vec()) }
    }
}

impl<E: Element, const N: usize, const M: usize, const L: usize> From<[[[E; L]; M]; N]> for TensorData {
    fn from(elements: [[[E; L]; M]; N]) -> TensorData {
        let flat = elements.as_flattened().as_flattened().to_vec();
        TensorData { shape: [N, M, L].into(), elements: E::wrap(flat) }
    }
}

impl<E: Element, const N: usize, const M: usize, const L: usize, const K: usize> From<[[[[E; K]; L]; M]; N]>
    for TensorData
{
    fn from(elements: [[[[E; K]; L]; M]; N]) -> TensorData {
        let flat = elements.as_flattened().as_flattened().as_flattened().to_vec();
        TensorData { shape: [N, M, L, K].into(), elements: E::wrap(flat) }
    }
}

impl<E: Element> From<Vec<E>> for TensorData {
    fn from(elements: Vec<E>) -> TensorData {
        TensorData { shape: [elements.len()].into(), elements: E::wrap(elements) }
    }
}

impl<E: Element> From<&[E]> for TensorData {
    fn from(elements: &[E]) -> TensorData {
        elements.to_vec().into()
    }
}

/// A Rust type of tensor elements.
pub trait Element:
    Copy
    + Send
    + Sync
    + PartialEq
    + PartialOrd
    + Default
    + fmt::Debug
    + fmt::Display
    + bytemuck::NoUninit
    + 'static
{
    /// The dtype of the type.
    const DTYPE: DType;

    /// Wraps a vector of elements in [`Elements`].
    fn wrap(elements: Vec<Self>) -> Elements;

    /// Unwraps the vector, if it is of this type.
    fn unwrap(elements: Elements) -> Option<Vec<Self>>;

    /// The elements, if they are of this type.
    fn slice(elements: &Elements) -> Option<&[Self]>;

    /// The elements, mutable, if they are of this type.
    fn slice_mut(elements: &mut Elements) -> Option<&mut [Self]>;

    /// The number as `f64`; `true` is 1.
    fn to_f64(self) -> f64;

    /// Converts from `f64` like [`Op::Cast`](crate::Op::Cast), to the nearest value.
    fn from_f64(x: f64) -> Self;

    /// The number as `i128`: floats truncate and saturate, NaN becomes 0.
    fn to_i128(self) -> i128;

    /// Converts from an integer: wraps in integers, rounds in floats; `bool` is whether it is nonzero.
    fn from_i128(x: i128) -> Self;
}

macro_rules! elements {
    ($($variant:ident $ty:ty),* $(,)?) => {
        /// Elements of a dtype known at run time: one `Vec` per dtype.
        #[derive(Clone, PartialEq)]
        pub enum Elements {
            $(#[doc = concat!("Elements of type `", stringify!($ty), "`.")] $variant(Vec<$ty>),)*
        }

        impl Elements {
            /// Returns the dtype.
            pub fn dtype(&self) -> DType {
                match self { $(Elements::$variant(_) => DType::$variant,)* }
            }

            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                match self { $(Elements::$variant(v) => v.len(),)* }
            }

            /// Returns the elements as bytes, in native byte order.
            pub fn bytes(&self) -> &[u8] {
                match self { $(Elements::$variant(v) => bytemuck::cast_slice(v),)* }
            }

            /// Zeros (`false`).
            pub fn zeros(dtype: DType, len: usize) -> Elements {
                match dtype { $(DType::$variant => Elements::$variant(alloc::vec![<$ty>::default(); len]),)* }
            }

            /// Returns a plain number as the only element, converted like [`Scalar::element`].
            pub fn of_scalar(scalar: Scalar, dtype: DType) -> Elements {
                match dtype { $(DType::$variant => Elements::$variant(alloc::vec![scalar.element()]),)* }
            }

            /// Whether the dtype can represent the integer exactly.
            fn hold(dtype: DType, x: i128) -> bool {
                match dtype { $(DType::$variant => <$ty as Element>::to_i128(Element::from_i128(x)) == x,)* }
            }

            fn cast_to<E: Element>(&self) -> Vec<E> {
                match self { $(Elements::$variant(v) => v.iter().map(|&x| convert::<$ty, E>(x)).collect(),)* }
            }

            /// Casts the elements to another dtype, like [`Op::Cast`](crate::Op::Cast).
            #[must_use]
            pub fn cast(&self, dtype: DType) -> Elements {
                match dtype { $(DType::$variant => Elements::$variant(self.cast_to()),)* }
            }
        }

        impl fmt::Debug for Elements {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Elements::$variant(v) => fmt::Debug::fmt(v, f),)* }
            }
        }

        $(impl Element for $ty {
            const DTYPE: DType = DType::$variant;

            fn wrap(elements: Vec<$ty>) -> Elements {
                Elements::$variant(elements)
            }

            fn unwrap(elements: Elements) -> Option<Vec<$ty>> {
                if let Elements::$variant(v) = elements { Some(v) } else { None }
            }

            fn slice(elements: &Elements) -> Option<&[$ty]> {
                if let Elements::$variant(v) = elements { Some(v) } else { None }
            }

            fn slice_mut(elements: &mut Elements) -> Option<&mut [$ty]> {
                if let Elements::$variant(v) = elements { Some(v) } else { None }
            }

            number!($variant);
        })*
    };
}

macro_rules! number {
    (F16) => {
        number!(half);
    };
    (BF16) => {
        number!(half);
    };
    (half) => {
        fn to_f64(self) -> f64 {
            Self::to_f64(self)
        }
        fn from_f64(x: f64) -> Self {
            Self::from_f32(to_odd_f32(x))
        }
        fn to_i128(self) -> i128 {
            Self::to_f64(self) as i128
        }
        fn from_i128(x: i128) -> Self {
            Self::from_f32(to_odd_f32(to_odd_f64(x)))
        }
    };
    (Bool) => {
        fn to_f64(self) -> f64 {
            self as u8 as f64
        }
        fn from_f64(x: f64) -> Self {
            x != 0.0
        }
        fn to_i128(self) -> i128 {
            self as i128
        }
        fn from_i128(x: i128) -> Self {
            x != 0
        }
    };
    ($primitive:ident) => {
        fn to_f64(self) -> f64 {
            self as f64
        }
        fn from_f64(x: f64) -> Self {
            x as Self
        }
        fn to_i128(self) -> i128 {
            self as i128
        }
        fn from_i128(x: i128) -> Self {
            x as Self
        }
    };
}

elements! {
    F64 f64, F32 f32, F16 f16, BF16 bf16,
    I64 i64, I32 i32, I16 i16, I8 i8,
    U64 u64, U32 u32, U16 u16, U8 u8,
    Bool bool,
}

/// Converts one element like [`Op::Cast`](crate::Op::Cast): integers wrap to integers, floats truncate and saturate to
/// integers, and everything is rounded once, to nearest.
fn convert<A: Element, B: Element>(x: A) -> B {
    if A::DTYPE.is_float() { B::from_f64(x.to_f64()) } else { B::from_i128(x.to_i128()) }
}

/// Rounds to odd: if the number is between two `f32`, the one whose last bit is set. A later rounding to 16 bits, at
/// least two bits shorter, then returns the correctly rounded value ([Boldo and Melquiond
/// 2008](https://doi.org/10.1109/TC.2007.70819)).
fn to_odd_f32(x: f64) -> f32 {
    let nearest = x as f32;
    let exact = f64::from(nearest) == x || x.is_nan();
    if exact || nearest.to_bits() % 2 == 1 {
        return nearest;
    }
    let too_far = f64::from(nearest).abs() > x.abs();
    f32::from_bits(if too_far { nearest.to_bits() - 1 } else { nearest.to_bits() + 1 })
}

/// Rounds an integer to odd in `f64`, for a later rounding to fewer bits.
fn to_odd_f64(x: i128) -> f64 {
    let bits = 128 - x.unsigned_abs().leading_zeros();
    let dropped = bits.saturating_sub(53);
    let rest = x & ((1 << dropped) - 1);
    ((x - rest) | i128::from(rest != 0) << dropped) as f64
}

impl Elements {
    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Creates elements of `dtype` from bytes in native byte order. Copies.
    ///
    /// # Errors
    /// When the number of bytes is not a multiple of the dtype's size, or a `bool` is neither 0 nor 1.
    pub fn from_bytes(bytes: &[u8], dtype: DType) -> Result<Elements> {
        if !bytes.len().is_multiple_of(dtype.size()) {
            let problem = format!("{} bytes are not whole elements of {dtype}", bytes.len());
            return Err(Error::value("data", problem));
        }
        if dtype == DType::Bool {
            return bools(bytes).map(Elements::Bool);
        }
        Ok(match dtype {
            DType::F64 => Elements::F64(bytemuck::pod_collect_to_vec(bytes)),
            DType::F32 => Elements::F32(bytemuck::pod_collect_to_vec(bytes)),
            DType::F16 => Elements::F16(bytemuck::pod_collect_to_vec(bytes)),
            DType::BF16 => Elements::BF16(bytemuck::pod_collect_to_vec(bytes)),
            DType::I64 => Elements::I64(bytemuck::pod_collect_to_vec(bytes)),
            DType::I32 => Elements::I32(bytemuck::pod_collect_to_vec(bytes)),
            DType::I16 => Elements::I16(bytemuck::pod_collect_to_vec(bytes)),
            DType::I8 => Elements::I8(bytemuck::pod_collect_to_vec(bytes)),
            DType::U64 => Elements::U64(bytemuck::pod_collect_to_vec(bytes)),
            DType::U32 => Elements::U32(bytemuck::pod_collect_to_vec(bytes)),
            DType::U16 => Elements::U16(bytemuck::pod_collect_to_vec(bytes)),
            DType::U8 | DType::Bool => Elements::U8(bytes.to_vec()),
        })
    }
}

fn bools(bytes: &[u8]) -> Result<Vec<bool>> {
    if let Some(place) = bytes.iter().position(|&byte| byte > 1) {
        let problem = format!("byte {} at {place} is not a bool (0 or 1)", bytes[place]);
        return Err(Error::value("data", problem).hint("compare with 0 to convert other numbers to bool"));
    }
    Ok(bytes.iter().map(|&byte| byte == 1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number is just above the midpoint of two values: double rounding would first reach the midpoint, then round
    /// down.
    #[test]
    fn conversions_round_once() {
        let middle = |bits: i32| 1.0 + 2f64.powi(-bits) + 2f64.powi(-45);
        assert_eq!(convert::<f64, f16>(middle(11)).to_f64(), 1.0 + 2f64.powi(-10));
        assert_eq!(convert::<f64, bf16>(middle(8)).to_f64(), 1.0 + 2f64.powi(-7));
        assert_eq!(convert::<i64, bf16>((1 << 60) + (1 << 52) + 1).to_f64(), 2f64.powi(60) + 2f64.powi(53));
        assert_eq!(convert::<i64, bf16>(-(1 << 60) - (1 << 52) + 1).to_f64(), -(2f64.powi(60)));
        let above = (1i64 << 60) + (1 << 36) + 1;
        assert_eq!(convert::<i64, f32>(above), ((1i64 << 60) + (1 << 37)) as f32);
    }

    #[test]
    fn conversions_to_16_bit_floats_at_range_limits() {
        for x in [f64::INFINITY, f64::NEG_INFINITY, 0.0, 1e300, -1e-300, 65520.0, 65519.9, 6e-8] {
            assert_eq!(convert::<f64, f16>(x).to_f64(), f16::from_f64_const(x).to_f64(), "{x}");
        }
        assert!(convert::<f64, bf16>(f64::NAN).is_nan());
        assert!(convert::<f64, f16>(-1e-300).is_sign_negative());
        assert_eq!(convert::<f64, bf16>(3.4e38), bf16::INFINITY);
    }
}
