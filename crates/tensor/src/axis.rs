//! Axis arguments: non-negative from the front, negative from the end.

use alloc::format;
use core::fmt::Display;
use kiln_ir::{Error, MAX_RANK, Result, TensorType};
use smallvec::SmallVec;

/// An axis of a tensor (PyTorch's `dim`): 0 is the first, -1 the last.
///
/// Methods accept `impl Into<Axis>`: any integer type.
///
/// ```
/// use kiln_tensor::{Axis, DType, TensorType};
///
/// let ty = TensorType::new([2, 3], DType::F32);
/// assert_eq!(Axis::from(-1).of("sum", &ty)?, 1);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis(isize);

impl Axis {
    /// Returns the index of the axis in a tensor of this type.
    ///
    /// # Errors
    /// When the axis is out of range; the message begins with the name of the op.
    #[inline]
    pub fn of(self, op: &str, ty: &TensorType) -> Result<usize> {
        match self.within(ty.rank()) {
            Some(axis) => Ok(axis),
            None => Err(out_of_range(op, self.0, ty)),
        }
    }

    /// Returns the index among `rank` axes, or `None` when out of range.
    #[inline]
    pub fn within(self, rank: usize) -> Option<usize> {
        let axis = if self.0 < 0 { self.0 + rank as isize } else { self.0 };
        usize::try_from(axis).ok().filter(|&axis| axis < rank)
    }
}

#[cold]
pub(crate) fn out_of_range(op: &str, axis: impl Display, ty: &TensorType) -> Error {
    let rank = ty.rank();
    let error = Error::type_error(op, format!("axis {axis} is out of range for {rank} axes"), &[ty.into()]);
    match rank {
        0 => error.hint("a tensor without axes is a single element"),
        _ => error
            .hint(format!("axes range from 0 to {}, or from -1 to -{rank} counted from the end", rank - 1)),
    }
}

/// Several axes, for methods that accept `impl Into<AxisList>`: `[0, 1]`, `&[0, -1]`, a slice or a vector of integers,
/// or one integer.
#[derive(Clone, Debug, Default)]
pub struct AxisList(SmallVec<[Axis; 4]>);

impl AxisList {
    /// Returns the indices of the axes in a tensor of this type, in the order given.
    ///
    /// # Errors
    /// When an axis is out of range or repeated.
    pub fn of(&self, op: &str, ty: &TensorType) -> Result<SmallVec<[usize; MAX_RANK]>> {
        let mut axes = SmallVec::new();
        for axis in &self.0 {
            let axis = axis.of(op, ty)?;
            if axes.contains(&axis) {
                return Err(Error::type_error(op, format!("axis {axis} is named twice"), &[ty.into()])
                    .hint("name each axis once; negative ones count from the end"));
            }
            axes.push(axis);
        }
        Ok(axes)
    }

    /// Like [`of`](AxisList::of), in ascending order.
    ///
    /// # Errors
    /// When an axis is out of range or repeated.
    pub fn sorted_of(&self, op: &str, ty: &TensorType) -> Result<SmallVec<[usize; MAX_RANK]>> {
        let mut axes = self.of(op, ty)?;
        axes.sort_unstable();
        Ok(axes)
    }

    /// Creates a list of one axis.
    pub(crate) fn of_one(axis: Axis) -> AxisList {
        AxisList(smallvec::smallvec![axis])
    }

    /// Creates a list of two axes.
    pub(crate) fn of_two(a: Axis, b: Axis) -> AxisList {
        AxisList(smallvec::smallvec![a, b])
    }

    /// Returns the number of axes in the list.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl From<$ty> for Axis {
            #[inline]
            fn from(axis: $ty) -> Axis {
                Axis(axis as isize)
            }
        }

        impl From<$ty> for AxisList {
            /// Creates a list of one axis.
            fn from(axis: $ty) -> AxisList {
                AxisList::from([axis])
            }
        }
    )*};
}

integers!(isize, usize, i32, i64);

impl<A: Into<Axis> + Copy, const N: usize> From<[A; N]> for AxisList {
    fn from(axes: [A; N]) -> AxisList {
        axes.as_slice().into()
    }
}

impl<A: Into<Axis> + Copy, const N: usize> From<&[A; N]> for AxisList {
    fn from(axes: &[A; N]) -> AxisList {
        axes.as_slice().into()
    }
}

impl<A: Into<Axis> + Copy> From<&[A]> for AxisList {
    fn from(axes: &[A]) -> AxisList {
        AxisList(axes.iter().map(|&axis| axis.into()).collect())
    }
}

impl<A: Into<Axis> + Copy> From<&alloc::vec::Vec<A>> for AxisList {
    fn from(axes: &alloc::vec::Vec<A>) -> AxisList {
        axes.as_slice().into()
    }
}

impl<A: Into<Axis> + Copy, const N: usize> From<&SmallVec<[A; N]>> for AxisList
where
    [A; N]: smallvec::Array<Item = A>,
{
    fn from(axes: &SmallVec<[A; N]>) -> AxisList {
        axes.as_slice().into()
    }
}
