//! Matmuls added to a tensor.

use crate::{AnyTensor, Error, Number, Result};
use kiln_ir::{Comparison, Reduction, Scalar, Unary};

impl AnyTensor {
    /// Computes `beta * self + alpha * a b`, `[m, k] x [k, n]`; `self` broadcasts to `[m, n]`. See
    /// [`linalg::addmm`](crate::linalg::addmm).
    ///
    /// # Errors
    /// When `a` and `b` are not matrices of one numeric dtype, their inner sizes differ, or the tensor does not
    /// broadcast to the product.
    pub fn addmm(
        self,
        a: AnyTensor,
        b: AnyTensor,
        beta: impl Number,
        alpha: impl Number,
    ) -> Result<AnyTensor> {
        check_ranks("addmm", &a, &b, 2, "two matrices, `[m, k]` and `[k, n]`")?;
        self.plus_product("addmm", a.matmul(b), beta.scalar(), alpha.scalar())
    }

    /// Computes `beta * self + alpha * Σ aᵢ bᵢ`, `[batch, m, k] x [batch, k, n]`; `self` broadcasts to `[m, n]`. See
    /// [`linalg::addbmm`](crate::linalg::addbmm).
    ///
    /// # Errors
    /// When `a` and `b` are not batches of matrices of one numeric dtype, their batch or inner sizes differ, or the
    /// tensor does not broadcast to the result.
    pub fn addbmm(
        self,
        a: AnyTensor,
        b: AnyTensor,
        beta: impl Number,
        alpha: impl Number,
    ) -> Result<AnyTensor> {
        check_batches("addbmm", &a, &b)?;
        let product = a.matmul(b).and_then(|products| {
            let shape = products.shape().without(0);
            products.reduce(Reduction::Sum, &[0])?.reshape(shape)
        });
        self.plus_product("addbmm", product, beta.scalar(), alpha.scalar())
    }

    /// Computes `beta * self + alpha * a b` for each matrix of a batch, `[batch, m, k] x [batch, k, n]`; `self`
    /// broadcasts to `[batch, m, n]`. See [`linalg::baddbmm`](crate::linalg::baddbmm).
    ///
    /// # Errors
    /// As [`addbmm`](AnyTensor::addbmm).
    pub fn baddbmm(
        self,
        a: AnyTensor,
        b: AnyTensor,
        beta: impl Number,
        alpha: impl Number,
    ) -> Result<AnyTensor> {
        check_batches("baddbmm", &a, &b)?;
        self.plus_product("baddbmm", a.matmul(b), beta.scalar(), alpha.scalar())
    }

    fn plus_product(
        self,
        op: &str,
        product: Result<AnyTensor>,
        beta: Scalar,
        alpha: Scalar,
    ) -> Result<AnyTensor> {
        let add = || {
            let product = product?;
            let shape = *product.shape();
            if kiln_ir::infer::broadcast_shapes(self.shape(), &shape) != Some(shape) {
                let types = [self.ty().into(), product.ty().into()];
                return Err(Error::type_error(
                    op,
                    "the first tensor does not broadcast to the product",
                    &types,
                )
                .hint("it must have the shape of the product, or length 1 where they differ"));
            }
            let product = product.mul_scalar(alpha)?;
            // NaN and infinity of a tensor whose factor is 0 are ignored, as in BLAS.
            if beta.to_f64() == 0.0 { Ok(product) } else { self.mul_scalar(beta)?.add(product) }
        };
        add().map_err(|error| error.in_op(op))
    }

    /// Scales down the slices of an axis whose norm is greater than `max_norm` to that norm. See
    /// [`linalg::renorm`](crate::linalg::renorm).
    ///
    /// # Errors
    /// When the dtype is not a float, the axis is out of range, `p` is not positive, `max_norm` is negative or NaN, or
    /// the slices have no elements and `p` is infinite.
    pub fn renorm(self, p: f64, axis: impl Into<crate::Axis>, max_norm: f64) -> Result<AnyTensor> {
        const OP: &str = "renorm";
        /// Added to a norm before the division, as in PyTorch.
        const EPSILON: f64 = 1e-7;
        let axis = axis.into().of(OP, self.ty())?;
        self.check_float(OP)?;
        if !(p > 0.0 && max_norm >= 0.0) {
            return Err(self
                .wrong(OP, alloc::format!("p is {p} and the greatest norm {max_norm}"))
                .hint("use p above 0 and a norm that is not negative"));
        }
        let others: smallvec::SmallVec<[usize; kiln_ir::MAX_RANK]> =
            (0..self.rank()).filter(|&other| other != axis).collect();
        let (dtype, x) = (self.dtype(), self.widened()?);
        let norms = x.clone().vector_norm_dims(p, &others[..])?;
        let scale = norms.clone().add_scalar(EPSILON)?.unary(Unary::Recip)?.mul_scalar(max_norm)?;
        let is_long = norms.scalar_compare(max_norm, Comparison::Lt)?;
        let one = AnyTensor::ones(*scale.ty(), scale.stack())?;
        x.mul(is_long.if_else(scale, one)?)?.cast(dtype)
    }
}

fn check_ranks(op: &str, a: &AnyTensor, b: &AnyTensor, rank: usize, wanted: &str) -> Result<()> {
    if a.rank() == rank && b.rank() == rank {
        return Ok(());
    }
    let types = [a.ty().into(), b.ty().into()];
    Err(Error::type_error(op, alloc::format!("expects {wanted}"), &types))
}

fn check_batches(op: &str, a: &AnyTensor, b: &AnyTensor) -> Result<()> {
    check_ranks(op, a, b, 3, "two batches of matrices, `[batch, m, k]` and `[batch, k, n]`")?;
    if a.shape()[0] == b.shape()[0] {
        return Ok(());
    }
    let types = [a.ty().into(), b.ty().into()];
    Err(Error::type_error(op, "the batches differ in length", &types))
}
