//! Products of several matrices, and structured matrices.

use super::typed;
use crate::any;
use kiln_tensor::{Backend, Tensor};

/// Computes the product of two or more matrices, in the order with the fewest multiplications. [`any::multi_dot`] also
/// accepts vectors at both ends.
///
/// Equivalent to `torch.linalg`'s
/// [`multi_dot`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.multi_dot.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::multi_dot;
/// use kiln_tensor::Tensor;
///
/// let ones = |shape| Tensor::<Flex, 2>::ones(shape, &Default::default());
/// let y = multi_dot(vec![ones([2, 50]), ones([50, 3]), ones([3, 1])]);
/// assert_eq!(y.into_data().to_vec::<f32>(), [150.0, 150.0]);
/// ```
///
/// # Panics
/// When there are fewer than two matrices, or inner sizes differ.
#[doc(alias = "chain_matmul")]
#[track_caller]
pub fn multi_dot<B: Backend>(matrices: Vec<Tensor<B, 2>>) -> Tensor<B, 2> {
    typed(any::multi_dot(matrices.into_iter().map(Tensor::into_any).collect()))
}

functions! {
    /// Computes the Vandermonde matrices of `x` `[.., m]`: `[.., m, count]` with the powers 0 to `count - 1` of each
    /// element along the last dimension. `count` is `m` by default. `D2` is `D + 1`.
    ///
    /// Equivalent to [`torch.linalg.vander`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.vander.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::vander;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([2.0, 3.0], &Default::default());
    /// let v: Tensor<Flex, 2> = vander(x, Some(3));
    /// assert_eq!(v.into_data().to_vec::<f32>(), [1.0, 2.0, 4.0, 1.0, 3.0, 9.0]);
    /// ```
    ///
    /// # Panics
    /// When `D` is 0 or `D2` is not `D + 1`.
    pub fn vander[B: Backend, const D: usize, const D2: usize](
        x: Tensor<B, D> as any,
        count: Option<usize>,
    ) -> Tensor<B, D2>;

    /// Computes the first `n` columns of the products of Householder reflections `H₁ H₂ … H_k`, with
    /// `H_i = I - τ_i v_i v_iᵀ`.
    ///
    /// `a` is `[.., m, n]` with `m >= n`. Column `i` contains `v_i` below the diagonal; `v_i` is 1 on the diagonal and 0
    /// above. `tau` is `[.., k]` with `k <= n`. The result is `[.., m, n]`. `D1` is `D - 1`.
    ///
    /// Equivalent to `torch.linalg`'s
    /// [`householder_product`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.householder_product.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::householder_product;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[9.0], [1.0]], &Default::default());
    /// let tau = Tensor::<Flex, 1>::from_floats([1.0], &Default::default());
    /// assert_eq!(householder_product(a, tau).into_data().to_vec::<f32>(), [0.0, -1.0]);
    /// ```
    ///
    /// # Panics
    /// When there are more columns than rows, more factors than columns, or batch dimensions differ.
    #[doc(alias = "orgqr")]
    pub fn householder_product[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
        tau: Tensor<B, D1> as any,
    ) -> Tensor<B, D>;
}
