//! Matmuls, cross products and dot products.

use crate::tensor::forward::forward;
use crate::{AnyTensor, Axis, Backend, Error, Numeric, Tensor};

impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Computes the matmul over the last two axes, `[.., m, k] x [.., k, n] -> [.., m, n]`; the batch axes before them
    /// broadcast. See [`linalg`](crate::linalg) for matmuls with vectors and [`einsum`](crate::einsum()) for other
    /// contractions.
    ///
    /// # Panics
    /// When inner or batch sizes differ, or with fewer than two axes.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// assert_eq!(x.clone().matmul(x).into_data().to_vec::<f32>(), [7.0, 10.0, 15.0, 22.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.matmul.html>
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "dot")]
    #[track_caller]
    pub fn matmul(self, other: Self) -> Self {
        self.map(
            |any| {
                if D < 2 { Err(needs_matrices(&any, other.as_any())) } else { any.matmul(other.into_any()) }
            },
        )
    }

    /// Computes cross products of vectors along an axis of length 3; the other axes broadcast.
    ///
    /// # Panics
    /// When the axis does not have length 3.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 0.0, 0.0], &Default::default());
    /// let y = Tensor::<Flex, 1>::from_floats([0.0f32, 1.0, 0.0], &Default::default());
    /// assert_eq!(x.cross(y, 0).into_data().to_vec::<f32>(), [0.0, 0.0, 1.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.linalg.cross.html>
    #[track_caller]
    pub fn cross(self, other: Self, axis: impl Into<Axis>) -> Self {
        self.map(|any| any.cross(other.into_any(), axis))
    }
}

/// Returns the error of a matmul of two vectors: its result has rank 0, which the method's type cannot express.
#[cold]
fn needs_matrices(a: &AnyTensor, b: &AnyTensor) -> Error {
    Error::type_error("matmul", "needs at least 2 axes", &[a.ty().into(), b.ty().into()])
        .hint("`dot`, `linalg::outer` and `linalg::matvec` are for vectors")
}

forward! {
    impl[B: Backend, K: Numeric] Tensor<B, 1, K>;

    /// Computes the dot product: the sum of the elementwise products, of shape `[1]`.
    ///
    /// # Panics
    /// When the lengths differ.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([3.0f32, 4.0], &Default::default());
    /// assert_eq!(x.clone().dot(x).into_data().to_vec::<f32>(), [25.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.dot.html>
    pub fn dot(self, other: Self as any) -> Self;
}
