//! Concatenation and stacking.

use super::ok;
use crate::{AnyTensor, Axis, Backend, Kind, Tensor};
use alloc::vec::Vec;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Concatenates tensors along an axis.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cat.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0]], &device);
    /// let y = Tensor::<Flex, 2>::from_floats([[3.0, 4.0]], &device);
    /// assert_eq!(Tensor::cat(vec![x, y], 1).into_data().to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Without tensors, or when their shapes differ outside the axis.
    #[doc(alias = "concatenate")]
    #[doc(alias = "concat")]
    #[track_caller]
    pub fn cat(tensors: Vec<Self>, axis: impl Into<Axis>) -> Self {
        Tensor::from_any(ok(AnyTensor::cat(untyped(tensors), axis)))
    }

    /// Stacks tensors of one shape along a new axis, which is axis `axis` of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.stack.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([3.0, 4.0], &device);
    /// assert_eq!(Tensor::stack::<2>(vec![x, y], 1).into_data().to_vec::<f32>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Without tensors, when their shapes differ, or when `D2` is not `D + 1`.
    #[track_caller]
    pub fn stack<const D2: usize>(tensors: Vec<Self>, axis: impl Into<Axis>) -> Tensor<B, D2, K> {
        join("stack", AnyTensor::stack_tensors(untyped(tensors), axis))
    }

    /// Concatenates tensors horizontally: along axis 1, vectors along axis 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.hstack.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([3.0], &device);
    /// assert_eq!(Tensor::hstack(vec![x, y]).into_data().to_vec::<f32>(), [1.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// Without tensors, or when their shapes differ outside the axis.
    #[track_caller]
    pub fn hstack(tensors: Vec<Self>) -> Self {
        join("hstack", AnyTensor::hstack(untyped(tensors)))
    }

    /// Concatenates tensors vertically, along axis 0; vectors are rows. `D2` is the greater of `D` and 2.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.vstack.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([3.0, 4.0], &device);
    /// assert_eq!(Tensor::vstack::<2>(vec![x, y]).dims(), [2, 2]);
    /// ```
    ///
    /// # Panics
    /// Without tensors, when their shapes differ outside the axis, or `D2` does not match.
    #[track_caller]
    pub fn vstack<const D2: usize>(tensors: Vec<Self>) -> Tensor<B, D2, K> {
        join("vstack", AnyTensor::vstack(untyped(tensors)))
    }

    /// Concatenates tensors along axis 2, after [`atleast_3d`](Tensor::atleast_3d). `D2` is the greater of `D` and 3.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.dstack.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([3.0, 4.0], &device);
    /// assert_eq!(Tensor::dstack::<3>(vec![x, y]).into_data().to_vec::<f32>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Without tensors, when their shapes differ outside the axis, or `D2` does not match.
    #[track_caller]
    pub fn dstack<const D2: usize>(tensors: Vec<Self>) -> Tensor<B, D2, K> {
        join("dstack", AnyTensor::dstack(untyped(tensors)))
    }

    /// Concatenates tensors along axis 1; vectors are columns. `D2` is the greater of `D` and 2.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.column_stack.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([3.0, 4.0], &device);
    /// assert_eq!(Tensor::column_stack::<2>(vec![x, y]).into_data().to_vec::<f32>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Without tensors, when their shapes differ outside the axis, or `D2` does not match.
    #[track_caller]
    pub fn column_stack<const D2: usize>(tensors: Vec<Self>) -> Tensor<B, D2, K> {
        join("column_stack", AnyTensor::column_stack(untyped(tensors)))
    }
}

impl<B: Backend, K: Kind> Tensor<B, 2, K> {
    /// Builds a block-diagonal matrix; elements outside the blocks are 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.block_diag.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0]], &device);
    /// let y = Tensor::<Flex, 2>::from_floats([[3.0]], &device);
    /// assert_eq!(Tensor::block_diag(vec![x, y]).into_data().to_vec::<f32>(), [1.0, 2.0, 0.0, 0.0, 0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// Without matrices.
    #[track_caller]
    pub fn block_diag(blocks: Vec<Self>) -> Self {
        join("block_diag", AnyTensor::block_diag(untyped(blocks)))
    }
}

fn untyped<B: Backend, const D: usize, K: Kind>(tensors: Vec<Tensor<B, D, K>>) -> Vec<AnyTensor> {
    tensors.into_iter().map(Tensor::into_any).collect()
}

#[track_caller]
fn join<B: Backend, const D: usize, K: Kind>(op: &str, joined: crate::Result<AnyTensor>) -> Tensor<B, D, K> {
    Tensor::from_ranked(op, ok(joined))
}
