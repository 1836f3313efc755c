//! Named tensors: axis names that the compiler checks.

mod names;
mod ops;

pub use names::{At, AxisName, AxisNames, Has};

use crate::tensor::ok;
use crate::{AnyTensor, Backend, Error, Float, Kind, Result, Tensor};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// A tensor with named axes: `NamedTensor<B, (Batch, Seq, Model)>`.
///
/// Names are types, declared by [`axes!`](crate::axes). Operations accept names instead of axis indices, and operands
/// are aligned by name, in any order of their axes. Swapping two axes of one length, or forgetting that a bias
/// broadcasts along another axis, does not compile. Names have no cost at run time.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{NamedTensor, Tensor, axes};
///
/// axes!(Batch, Query, Key, Dim);
///
/// fn attention(
///     q: NamedTensor<Flex, (Batch, Query, Dim)>,
///     k: NamedTensor<Flex, (Batch, Key, Dim)>,
///     v: NamedTensor<Flex, (Batch, Key, Dim)>,
/// ) -> NamedTensor<Flex, (Batch, Query, Dim)> {
///     let scores: NamedTensor<Flex, (Batch, Query, Key)> = q.contract(k);
///     scores.softmax(Key).contract(v)
/// }
///
/// let ones = |shape: [usize; 3]| Tensor::<Flex, 3>::ones(shape, &Default::default());
/// let y = attention(
///     NamedTensor::new(ones([2, 3, 4])),
///     NamedTensor::new(ones([2, 5, 4])),
///     NamedTensor::new(ones([2, 5, 4])),
/// );
/// assert_eq!((y.length(Query), y.length(Dim)), (3, 4));
/// ```
///
/// Name mismatches are compile errors. Errors about the names of two tensors together are reported by `cargo build`,
/// not by `cargo check`.
///
/// ```compile_fail
/// use kiln_backends::Flex;
/// use kiln_tensor::{NamedTensor, Tensor, axes};
///
/// axes!(Batch, Seq, Model);
/// let x: NamedTensor<Flex, (Batch, Model)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
/// let y = x.sum(Seq); // `(Batch, Model)` has no axis `Seq`
/// ```
///
/// ```compile_fail
/// use kiln_backends::Flex;
/// use kiln_tensor::{NamedTensor, Tensor, axes};
///
/// axes!(Batch, Seq, Model);
/// let x: NamedTensor<Flex, (Batch, Model)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
/// let y: NamedTensor<Flex, (Batch, Seq)> = x.permute(); // the names differ
/// ```
///
/// ```compile_fail
/// use kiln_backends::Flex;
/// use kiln_tensor::{NamedTensor, Tensor, axes};
///
/// axes!(Batch, Seq, Model);
/// let x: NamedTensor<Flex, (Batch, Model)> = NamedTensor::new(Tensor::<Flex, 3>::ones([2, 3, 4], &Default::default()));
/// ```
///
/// Use it where axes are many and easily confused, as in attention. Layers and optimizers accept plain [`Tensor`]s;
/// [`map`](NamedTensor::map) and [`into_tensor`](NamedTensor::into_tensor) convert.
///
/// # Panics
/// Methods panic when axes of one name differ in length; the message has the name.
pub struct NamedTensor<B: Backend, S: AxisNames, K: Kind = Float> {
    any: AnyTensor,
    marker: Marker<B, S, K>,
}

type Marker<B, S, K> = PhantomData<fn() -> (B, S, K)>;

impl<B: Backend, S: AxisNames, K: Kind> NamedTensor<B, S, K> {
    /// Names the axes of a tensor, in order. It does not compile when the number of names is not the rank, or a name is
    /// repeated.
    #[inline]
    pub fn new<const D: usize>(tensor: Tensor<B, D, K>) -> Self {
        const {
            assert!(S::NAMES.len() == D, "a tensor needs one name for each axis");
            assert!(names::distinct(S::NAMES), "two axes have the same name");
        }
        NamedTensor { any: tensor.into_any(), marker: PhantomData }
    }

    /// Names the axes of a tensor whose rank is known at run time.
    ///
    /// # Errors
    /// When the tensor has another rank or kind.
    pub fn try_from_any(any: AnyTensor) -> Result<Self> {
        const { assert!(names::distinct(S::NAMES), "two axes have the same name") }
        if any.rank() != S::NAMES.len() || !K::holds(any.dtype()) {
            let problem = format!("is not a tensor of kind {} with axes {}", K::NAME, names::list::<S>());
            return Err(Error::type_error("named", problem, &[any.ty().into()]));
        }
        Ok(NamedTensor { any, marker: PhantomData })
    }

    /// Converts to a plain tensor. It does not compile when the rank is not `D`.
    #[inline]
    pub fn into_tensor<const D: usize>(self) -> Tensor<B, D, K> {
        const { assert!(S::NAMES.len() == D, "the tensor has another number of axes") }
        Tensor::from_any(self.any)
    }

    /// Converts to an [`AnyTensor`], without names.
    pub fn into_any(self) -> AnyTensor {
        self.any
    }

    /// Returns the length of an axis.
    pub fn length<N: AxisName, I>(&self, _axis: N) -> usize
    where
        S: Has<N, I>,
    {
        self.any.shape()[S::PLACE]
    }

    /// Applies a function that keeps the axes: elementwise, or along one of them.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Model);
    /// let x: NamedTensor<Flex, (Batch, Model)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
    /// let y = x.map(|x: Tensor<Flex, 2>| x.exp() - 1);
    /// assert_eq!(y.length(Model), 3);
    /// ```
    #[track_caller]
    pub fn map<const D: usize>(self, f: impl FnOnce(Tensor<B, D, K>) -> Tensor<B, D, K>) -> Self {
        NamedTensor::new(f(self.into_tensor()))
    }

    /// Renames an axis.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Query, Key);
    /// let x: NamedTensor<Flex, (Batch, Query)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
    /// let y: NamedTensor<Flex, (Batch, Key)> = x.rename(Query, Key);
    /// ```
    pub fn rename<Old: AxisName, New: AxisName, I>(
        self,
        _old: Old,
        _new: New,
    ) -> NamedTensor<B, S::Renamed<New>, K>
    where
        S: Has<Old, I>,
    {
        const { assert!(names::distinct(<S::Renamed<New> as AxisNames>::NAMES), "two axes have the same name") }
        NamedTensor { any: self.any, marker: PhantomData }
    }

    /// Permutes the axes to the order of another list of names.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Seq, Head);
    /// let x: NamedTensor<Flex, (Batch, Seq, Head)> = NamedTensor::new(Tensor::<Flex, 3>::ones([2, 3, 4], &Default::default()));
    /// let y: NamedTensor<Flex, (Batch, Head, Seq)> = x.permute();
    /// assert_eq!(y.into_tensor::<3>().dims(), [2, 4, 3]);
    /// ```
    #[track_caller]
    pub fn permute<R: AxisNames>(self) -> NamedTensor<B, R, K> {
        const {
            let same = S::NAMES.len() == R::NAMES.len() && names::subset(S::NAMES, R::NAMES);
            assert!(same && names::distinct(R::NAMES), "the names of the axes differ");
        }
        self.aligned()
    }

    /// Permutes to another list of names that contains all of this tensor's names, and inserts axes of length 1 for the
    /// new names. `expand` and operators broadcast those.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Seq, Head);
    /// let x: NamedTensor<Flex, (Head, Batch)> = NamedTensor::new(Tensor::<Flex, 2>::ones([4, 2], &Default::default()));
    /// let y: NamedTensor<Flex, (Batch, Seq, Head)> = x.align();
    /// assert_eq!(y.into_tensor::<3>().dims(), [2, 1, 4]);
    /// ```
    #[track_caller]
    pub fn align<R: AxisNames>(self) -> NamedTensor<B, R, K> {
        const {
            assert!(names::subset(S::NAMES, R::NAMES), "an axis of the tensor is missing among the names");
            assert!(names::distinct(R::NAMES), "two axes have the same name");
        }
        self.aligned()
    }

    #[track_caller]
    fn aligned<R: AxisNames>(self) -> NamedTensor<B, R, K> {
        NamedTensor { any: ok(aligned(self.any, S::NAMES, R::NAMES)), marker: PhantomData }
    }
}

impl<B: Backend, S: AxisNames, K: Kind> Clone for NamedTensor<B, S, K> {
    fn clone(&self) -> Self {
        NamedTensor { any: self.any.clone(), marker: PhantomData }
    }
}

impl<B: Backend, S: AxisNames, K: Kind> fmt::Debug for NamedTensor<B, S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedTensor({}", self.any.dtype())?;
        for (name, length) in S::NAMES.iter().zip(self.any.shape().iter()) {
            write!(f, ", {} {length}", names::short(name))?;
        }
        write!(f, ")")
    }
}

/// Permutes the axes to the order of `to`; names that are not in `from` become axes of length 1.
fn aligned(any: AnyTensor, from: &[&str], to: &[&str]) -> Result<AnyTensor> {
    let place = |name: &&str| from.iter().position(|own| own == name);
    let axes: Vec<usize> = to.iter().filter_map(place).collect();
    let shape: crate::Shape = to.iter().map(|name| place(name).map_or(1, |axis| any.shape()[axis])).collect();
    let any = match axes.iter().copied().eq(0..axes.len()) {
        true => any,
        false => any.apply(&kiln_ir::Op::Permute(kiln_ir::Axes::new(&axes)))?,
    };
    any.reshape(shape)
}
