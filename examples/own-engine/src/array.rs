//! [`Array`], the payload of the engine's values.

use crate::views::Places;
use kiln::ir::number::Number;
use kiln::ir::{Binary, Comparison, Reduction, Result, Scalar, TensorType, Unary};
use kiln::{DType, Shape, TensorData};

/// Elements in row-major order: `f32` as `f32`, all other dtypes as `i64`.
#[derive(Clone, Debug)]
pub enum Array {
    /// Elements of `f32`.
    Real(Vec<f32>),
    /// Elements of an integer dtype, or of `bool` as 0 and 1.
    Whole(Vec<i64>),
}

/// An element type with its wider type for computation: `f32` with `f64`, `i64` with `i128`.
pub(crate) trait Stored: Copy {
    type Number: Number;

    fn number(self) -> Self::Number;

    /// Converts a number to the nearest element; integers wrap.
    fn from_number(number: Self::Number, dtype: DType) -> Self;
}

impl Stored for f32 {
    type Number = f64;

    fn number(self) -> f64 {
        f64::from(self)
    }

    fn from_number(number: f64, _: DType) -> f32 {
        number as f32
    }
}

impl Stored for i64 {
    type Number = i128;

    fn number(self) -> i128 {
        i128::from(self)
    }

    fn from_number(number: i128, dtype: DType) -> i64 {
        match dtype {
            DType::I32 => i64::from(number as i32),
            DType::U32 => i64::from(number as u32),
            DType::U8 => i64::from(number as u8),
            _ => number as i64,
        }
    }
}

/// Evaluates an expression for the elements of either variant, and wraps the result in the same variant.
macro_rules! each {
    ($array:expr, $elements:ident => $result:expr) => {
        match $array {
            Array::Real($elements) => Array::Real($result),
            Array::Whole($elements) => Array::Whole($result),
        }
    };
}

impl Array {
    pub(crate) fn from_data(data: TensorData) -> Array {
        match data.dtype() {
            DType::F32 => Array::Real(data.to_vec()),
            _ => Array::Whole(data.to_vec()),
        }
    }

    pub(crate) fn to_data(&self, ty: TensorType) -> Result<TensorData> {
        let data = match self {
            Array::Real(elements) => TensorData::new(elements.clone(), ty.shape)?,
            Array::Whole(elements) => TensorData::new(elements.clone(), ty.shape)?,
        };
        Ok(data.convert(ty.dtype))
    }

    pub(crate) fn full(scalar: Scalar, dtype: DType, count: usize) -> Array {
        match dtype {
            DType::F32 => Array::Real(vec![scalar.to_f64() as f32; count]),
            _ => Array::Whole(vec![i64::from_number(i128::from_scalar(scalar), dtype); count]),
        }
    }

    pub(crate) fn iota(ty: &TensorType, axis: usize) -> Array {
        let inner: usize = ty.shape[axis + 1..].iter().product();
        let index = (0..ty.num_elements()).map(|place| place / inner % ty.shape[axis]);
        match ty.dtype {
            DType::F32 => Array::Real(index.map(|index| index as f32).collect()),
            dtype => Array::Whole(index.map(|index| i64::from_number(index as i128, dtype)).collect()),
        }
    }

    pub(crate) fn unary(&self, function: Unary, dtype: DType) -> Array {
        each!(self, x => x.iter().map(|x| Stored::from_number(x.number().unary(function, dtype), dtype)).collect())
    }

    pub(crate) fn binary(&self, function: Binary, other: &Array, dtype: DType) -> Array {
        fn pairs<T: Stored>(a: &[T], b: &[T], function: Binary, dtype: DType) -> Vec<T> {
            let each =
                |(a, b): (&T, &T)| T::from_number(a.number().binary(function, b.number(), dtype), dtype);
            a.iter().zip(b).map(each).collect()
        }
        match (self, other) {
            (Array::Real(a), Array::Real(b)) => Array::Real(pairs(a, b, function, dtype)),
            (Array::Whole(a), Array::Whole(b)) => Array::Whole(pairs(a, b, function, dtype)),
            (Array::Real(_), Array::Whole(_)) | (Array::Whole(_), Array::Real(_)) => {
                unreachable!("inference refuses operands of different dtypes")
            }
        }
    }

    pub(crate) fn compare(&self, comparison: Comparison, other: &Array) -> Array {
        fn pairs<T: Stored>(a: &[T], b: &[T], comparison: Comparison) -> Vec<i64> {
            a.iter().zip(b).map(|(a, b)| i64::from(a.number().compares(comparison, b.number()))).collect()
        }
        match (self, other) {
            (Array::Real(a), Array::Real(b)) => Array::Whole(pairs(a, b, comparison)),
            (Array::Whole(a), Array::Whole(b)) => Array::Whole(pairs(a, b, comparison)),
            (Array::Real(_), Array::Whole(_)) | (Array::Whole(_), Array::Real(_)) => {
                unreachable!("inference refuses operands of different dtypes")
            }
        }
    }

    /// Elementwise selection with `self` as condition: elements of `a` where it is true, else of `b`.
    pub(crate) fn select(&self, a: &Array, b: &Array) -> Array {
        let Array::Whole(condition) = self else { unreachable!("inference asks for `bool`") };
        fn picked<T: Copy>(condition: &[i64], a: &[T], b: &[T]) -> Vec<T> {
            condition
                .iter()
                .zip(a.iter().zip(b))
                .map(|(holds, (a, b))| if *holds != 0 { *a } else { *b })
                .collect()
        }
        match (a, b) {
            (Array::Real(a), Array::Real(b)) => Array::Real(picked(condition, a, b)),
            (Array::Whole(a), Array::Whole(b)) => Array::Whole(picked(condition, a, b)),
            (Array::Real(_), Array::Whole(_)) | (Array::Whole(_), Array::Real(_)) => {
                unreachable!("inference refuses operands of different dtypes")
            }
        }
    }

    /// Reinterprets the bits as another dtype of the same size.
    pub(crate) fn bitcast(&self, dtype: DType) -> Array {
        match (self, dtype) {
            (Array::Real(x), DType::F32) => Array::Real(x.clone()),
            (Array::Whole(x), DType::F32) => {
                Array::Real(x.iter().map(|x| f32::from_bits(*x as u32)).collect())
            }
            (Array::Real(x), _) => {
                Array::Whole(x.iter().map(|x| Stored::from_number(i128::from(x.to_bits()), dtype)).collect())
            }
            (Array::Whole(x), _) => {
                Array::Whole(x.iter().map(|x| Stored::from_number(x.number(), dtype)).collect())
            }
        }
    }

    /// Gathers the elements at the given indices. `shape` is the shape of the result.
    pub(crate) fn picked(&self, places: Places, shape: &Shape) -> Array {
        let places = places.of(shape);
        each!(self, x => places.iter().map(|place| x[*place]).collect())
    }

    pub(crate) fn concat(arrays: &[&Array], lengths: &[usize], shape: &Shape, axis: usize) -> Array {
        let outer: usize = shape[..axis].iter().product();
        let inner: usize = shape[axis + 1..].iter().product();
        fn joined<T: Copy>(rows: &[(&[T], usize)], outer: usize) -> Vec<T> {
            let row = |i: usize| rows.iter().flat_map(move |(x, len)| &x[i * len..][..*len]);
            (0..outer).flat_map(row).copied().collect()
        }
        let rows = arrays.iter().zip(lengths);
        match arrays[0] {
            Array::Real(_) => {
                let real = rows.filter_map(|(array, length)| match array {
                    Array::Real(x) => Some((&x[..], length * inner)),
                    Array::Whole(_) => None,
                });
                Array::Real(joined(&real.collect::<Vec<_>>(), outer))
            }
            Array::Whole(_) => {
                let whole = rows.filter_map(|(array, length)| match array {
                    Array::Whole(x) => Some((&x[..], length * inner)),
                    Array::Real(_) => None,
                });
                Array::Whole(joined(&whole.collect::<Vec<_>>(), outer))
            }
        }
    }

    /// Reduces all elements with the same result index. `shape` is the operand's shape, `ty` the result's type.
    pub(crate) fn reduced(
        &self,
        reduction: Reduction,
        places: Places,
        shape: &Shape,
        ty: &TensorType,
    ) -> Array {
        fn totals<T: Stored>(x: &[T], places: &[usize], reduction: Reduction, ty: &TensorType) -> Vec<T> {
            let identity = T::Number::from_scalar(reduction.identity(ty.dtype));
            let mut totals = vec![identity; ty.num_elements()];
            for (x, place) in x.iter().zip(places) {
                totals[*place] = totals[*place].combined(reduction, x.number());
            }
            totals.into_iter().map(|total| T::from_number(total, ty.dtype)).collect()
        }
        let places = places.of(shape);
        each!(self, x => totals(x, &places, reduction, ty))
    }

    /// The multi-indices of nonzero elements, as rows of a `[count, rank]` array, and the count.
    pub(crate) fn nonzero(&self, shape: &Shape) -> (Array, usize) {
        let found: Vec<usize> = match self {
            Array::Real(x) => (0..x.len()).filter(|i| x[*i] != 0.0).collect(),
            Array::Whole(x) => (0..x.len()).filter(|i| x[*i] != 0).collect(),
        };
        let index = |place: usize, axis: usize| {
            let inner: usize = shape[axis + 1..].iter().product();
            (place / inner % shape[axis]) as i64
        };
        let rows = found.iter().flat_map(|place| (0..shape.rank()).map(move |axis| index(*place, axis)));
        (Array::Whole(rows.collect()), found.len())
    }

    /// Batched matmul. `depth` is the length of the contracted dim, `shape` the shape of the result.
    pub(crate) fn matmul(&self, other: &Array, depth: usize, shape: &Shape) -> Array {
        let (Array::Real(a), Array::Real(b)) = (self, other) else { unreachable!("only `f32` is supported") };
        let (rows, columns) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
        let mut y = vec![0f32; shape.num_elements()];
        for (row, y) in y.chunks_mut(columns.max(1)).enumerate() {
            let b = &b[row / rows * depth * columns..][..depth * columns];
            for (a, b) in a[row * depth..][..depth].iter().zip(b.chunks(columns.max(1))) {
                for (y, b) in y.iter_mut().zip(b) {
                    *y += a * b;
                }
            }
        }
        Array::Real(y)
    }
}
