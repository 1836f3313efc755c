//! Operations on named tensors.

use super::{AxisName, AxisNames, Has, NamedTensor, aligned, names};
use crate::tensor::ok;
use crate::{AnyTensor, Backend, Error, Float, Numeric, Result};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::{Add, Div, Mul, Sub};
use kiln_ir::{Axes, Binary, Op, Reduction};

macro_rules! reductions {
    ($($(#[$doc:meta])* $method:ident $reduction:ident;)*) => {
        impl<B: Backend, S: AxisNames, K: Numeric> NamedTensor<B, S, K> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method<N: AxisName, I>(self, _axis: N) -> NamedTensor<B, S::Without, K>
            where
                S: Has<N, I>,
            {
                wrap(reduced(self.any, Reduction::$reduction, S::PLACE))
            }
        )*}
    };
}

reductions! {
    /// Computes the sum along an axis, which is removed.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Seq);
    /// let x: NamedTensor<Flex, (Batch, Seq)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
    /// let y: NamedTensor<Flex, (Batch,)> = x.sum(Seq);
    /// assert_eq!(y.into_tensor::<1>().into_data().to_vec::<f32>(), [3.0, 3.0]);
    /// ```
    sum Sum;
    /// Computes the maximum along an axis, which is removed.
    max Max;
    /// Computes the minimum along an axis, which is removed.
    min Min;
}

impl<B: Backend, S: AxisNames> NamedTensor<B, S, Float> {
    /// Computes the mean along an axis, which is removed.
    #[track_caller]
    pub fn mean<N: AxisName, I>(self, _axis: N) -> NamedTensor<B, S::Without, Float>
    where
        S: Has<N, I>,
    {
        let count = self.any.shape()[S::PLACE];
        let sum = reduced(self.any, Reduction::Sum, S::PLACE);
        wrap(sum.and_then(|sum| sum.binary_scalar(Binary::Div, count)))
    }

    /// Applies softmax along an axis: `exp(x) / Σ exp(x)`.
    #[track_caller]
    pub fn softmax<N: AxisName, I>(self, _axis: N) -> Self
    where
        S: Has<N, I>,
    {
        wrap(self.any.apply(&Op::Softmax { axis: S::PLACE, log: false }))
    }
}

impl<B: Backend, S: AxisNames, K: Numeric> NamedTensor<B, S, K> {
    /// Contracts two tensors: multiplies, and sums over the names that both tensors have and the result type does not.
    ///
    /// Shared names in the result are batch axes. It does not compile when the result lacks a name of only one tensor,
    /// or has a name that neither tensor has.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Input, Output);
    /// let x: NamedTensor<Flex, (Batch, Input)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
    /// let w: NamedTensor<Flex, (Output, Input)> = NamedTensor::new(Tensor::<Flex, 2>::ones([4, 3], &Default::default()));
    /// let y: NamedTensor<Flex, (Batch, Output)> = x.contract(w);
    /// assert_eq!(y.into_tensor::<2>().into_data().to_vec::<f32>(), [3.0; 8]);
    /// ```
    ///
    /// ```compile_fail
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{NamedTensor, Tensor, axes};
    ///
    /// axes!(Batch, Input, Output);
    /// let x: NamedTensor<Flex, (Batch, Input)> = NamedTensor::new(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
    /// let w: NamedTensor<Flex, (Output, Input)> = NamedTensor::new(Tensor::<Flex, 2>::ones([4, 3], &Default::default()));
    /// let y: NamedTensor<Flex, (Output,)> = x.contract(w); // only `x` has `Batch`
    /// ```
    ///
    /// # Panics
    /// When axes of one name differ in length.
    #[track_caller]
    pub fn contract<T: AxisNames, R: AxisNames>(self, other: NamedTensor<B, T, K>) -> NamedTensor<B, R, K> {
        const {
            assert!(names::distinct(R::NAMES), "two axes have the same name");
            assert!(names::covered(R::NAMES, S::NAMES, T::NAMES), "neither tensor has an axis of the result");
            assert!(
                names::covered(S::NAMES, T::NAMES, R::NAMES),
                "an axis of the left tensor alone would be summed"
            );
            assert!(
                names::covered(T::NAMES, S::NAMES, R::NAMES),
                "an axis of the right tensor alone would be summed"
            );
        }
        wrap(contracted(self.any, S::NAMES, other.any, T::NAMES, R::NAMES))
    }
}

#[track_caller]
fn wrap<B: Backend, S: AxisNames, K: crate::Kind>(any: Result<AnyTensor>) -> NamedTensor<B, S, K> {
    NamedTensor { any: ok(any), marker: PhantomData }
}

fn reduced(any: AnyTensor, reduction: Reduction, axis: usize) -> Result<AnyTensor> {
    let shape = any.shape().without(axis);
    any.apply(&Op::Reduce { reduction, axes: Axes::one(axis) })?.reshape(shape)
}

/// Checks that axes of one name have one length.
fn check_lengths(op: &str, a: &AnyTensor, a_names: &[&str], b: &AnyTensor, b_names: &[&str]) -> Result<()> {
    for (name, &length) in a_names.iter().zip(a.shape().iter()) {
        let other = b_names.iter().position(|other| other == name).map(|axis| b.shape()[axis]);
        if let Some(other) = other.filter(|&other| other != length) {
            let problem =
                format!("axis `{}` is {length} on the left and {other} on the right", names::short(name));
            return Err(Error::type_error(op, problem, &[a.ty().into(), b.ty().into()])
                .hint("axes of one name have one length; `rename` one of them if they differ in meaning"));
        }
    }
    Ok(())
}

fn contracted(
    a: AnyTensor,
    a_names: &[&str],
    b: AnyTensor,
    b_names: &[&str],
    result: &[&str],
) -> Result<AnyTensor> {
    check_lengths("contract", &a, a_names, &b, b_names)?;
    let mut known: Vec<&str> = a_names.to_vec();
    known.extend(b_names.iter().filter(|name| !a_names.contains(name)));
    let letters = |list: &[&str]| -> String {
        let place = |name: &&str| known.iter().position(|other| other == name);
        list.iter().filter_map(place).map(|place| (b'a' + place as u8) as char).collect()
    };
    let equation = format!("{},{}->{}", letters(a_names), letters(b_names), letters(result));
    AnyTensor::einsum(&equation, [a, b])
}

macro_rules! operators {
    ($($operator:ident $method:ident;)*) => {$(
        /// Computes element by element. The axes of the right tensor are among those of the left one; it broadcasts
        /// along the others.
        impl<B: Backend, S: AxisNames, T: AxisNames, K: Numeric> $operator<NamedTensor<B, T, K>> for NamedTensor<B, S, K> {
            type Output = Self;

            #[track_caller]
            fn $method(self, other: NamedTensor<B, T, K>) -> Self {
                const {
                    assert!(
                        names::subset(T::NAMES, S::NAMES),
                        "an axis of the right tensor is missing in the left one: align it first"
                    )
                }
                wrap(by_name(Binary::$operator, self.any, S::NAMES, other.any, T::NAMES))
            }
        }
    )*};
}

operators! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

fn by_name(
    function: Binary,
    a: AnyTensor,
    a_names: &[&str],
    b: AnyTensor,
    b_names: &[&str],
) -> Result<AnyTensor> {
    check_lengths(function.name(), &a, a_names, &b, b_names)?;
    let b = aligned(b, b_names, a_names)?;
    a.binary(function, b)
}
