//! Plain numbers as elements, and dispatch over dtypes.

use kiln_ir::{DType, Element, Scalar};

/// Runs code with a type alias for a dtype's Rust type.
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {{
        let dtype: kiln_ir::DType = $dtype;
        if dtype.is_bool() {
            type $T = bool;
            $body
        } else {
            $crate::scalar::with_number!(dtype, $T => $body)
        }
    }};
}
pub(crate) use with_dtype;

/// As [`with_dtype`], with `bool` as the bytes 0 and 1.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use kiln_ir::DType as D;
        match $dtype {
            D::F64 => {
                type $T = f64;
                $body
            }
            D::F32 => {
                type $T = f32;
                $body
            }
            D::F16 => {
                type $T = half::f16;
                $body
            }
            D::BF16 => {
                type $T = half::bf16;
                $body
            }
            D::I64 => {
                type $T = i64;
                $body
            }
            D::I32 => {
                type $T = i32;
                $body
            }
            D::I16 => {
                type $T = i16;
                $body
            }
            D::I8 => {
                type $T = i8;
                $body
            }
            D::U64 => {
                type $T = u64;
                $body
            }
            D::U32 => {
                type $T = u32;
                $body
            }
            D::U16 => {
                type $T = u16;
                $body
            }
            D::U8 | D::Bool => {
                type $T = u8;
                $body
            }
        }
    }};
}
pub(crate) use with_number;

/// Runs code with an unsigned type of an element's size.
macro_rules! with_size {
    ($size:expr, $T:ident => $body:expr) => {
        match $size {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            _ => {
                type $T = u64;
                $body
            }
        }
    };
}
pub(crate) use with_size;

/// The number as an element of a dtype, in bytes, followed by zeros.
#[inline]
pub(crate) fn scalar_bytes(scalar: Scalar, dtype: DType) -> [u8; 8] {
    fn bytes<T: Element>(scalar: Scalar) -> [u8; 8] {
        let element: T = scalar.element();
        let mut bytes = [0; 8];
        // SAFETY: an element has at most 8 bytes, none of them padding.
        unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping((&raw const element).cast(), size_of::<T>());
        }
        bytes
    }
    with_dtype!(dtype, T => bytes::<T>(scalar))
}
