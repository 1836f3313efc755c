//! Vector, matrix and tensor products.

use crate::{AnyTensor, Axis, AxisList, Error, Result, Shape};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Axes, Binary, MAX_RANK, Op, Reduction, SliceAxis};
use smallvec::SmallVec;

/// The axes that [`AnyTensor::tensordot`] sums over. A count `n` means the last `n` axes of the left and the first `n`
/// of the right operand. Two lists of equal length, `([1, 0], [0, 1])`, are paired in order.
#[derive(Clone, Debug)]
pub struct TensordotAxes(Pairs);

#[derive(Clone, Debug)]
enum Pairs {
    Count(usize),
    Lists(AxisList, AxisList),
}

impl From<usize> for TensordotAxes {
    fn from(count: usize) -> TensordotAxes {
        TensordotAxes(Pairs::Count(count))
    }
}

impl<A: Into<AxisList>, B: Into<AxisList>> From<(A, B)> for TensordotAxes {
    fn from((left, right): (A, B)) -> TensordotAxes {
        TensordotAxes(Pairs::Lists(left.into(), right.into()))
    }
}

type AxisVec = SmallVec<[usize; MAX_RANK]>;

impl TensordotAxes {
    fn of(&self, a: &AnyTensor, b: &AnyTensor) -> Result<(AxisVec, AxisVec)> {
        let error = |problem: alloc::string::String| {
            Error::type_error("tensordot", problem, &[a.ty().into(), b.ty().into()])
                .hint("axes that are summed over pair up in order and have equal lengths")
        };
        let (left, right): (AxisVec, AxisVec) = match &self.0 {
            Pairs::Count(count) if *count > a.rank().min(b.rank()) => {
                return Err(error(format!("{count} axes are more than an operand has")));
            }
            Pairs::Count(count) => ((a.rank() - count..a.rank()).collect(), (0..*count).collect()),
            Pairs::Lists(left, right) => (left.of("tensordot", a.ty())?, right.of("tensordot", b.ty())?),
        };
        if left.len() != right.len() {
            return Err(error(format!("{} axes of the left, {} of the right", left.len(), right.len())));
        }
        if let Some((&i, &j)) = left.iter().zip(&right).find(|&(&i, &j)| a.shape()[i] != b.shape()[j]) {
            return Err(error(format!("axis {i} of the left and axis {j} of the right differ in length")));
        }
        Ok((left, right))
    }
}

impl AnyTensor {
    /// Computes the outer product of two vectors, `[m] x [n] -> [m, n]`. See [`linalg::outer`](crate::linalg::outer).
    ///
    /// # Errors
    /// When the tensors are not vectors, or both are `bool`.
    pub fn outer(self, other: AnyTensor) -> Result<AnyTensor> {
        if self.rank() != 1 || other.rank() != 1 {
            return Err(vectors("outer", &self, &other)
                .hint("`outer` expects two vectors; `outer_dim` accepts more axes"));
        }
        self.outer_dim(other, 0)
    }

    /// Computes outer products along an axis. See [`linalg::outer_dim`](crate::linalg::outer_dim).
    ///
    /// # Errors
    /// When the axis is out of range, ranks differ, the other axes do not broadcast, or both tensors are `bool`.
    pub fn outer_dim(self, other: AnyTensor, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.outer_along(other, axis.into())
    }

    fn outer_along(self, other: AnyTensor, axis: Axis) -> Result<AnyTensor> {
        let axis = axis.of("outer_dim", self.ty())?;
        if self.rank() != other.rank() {
            let types = [self.ty().into(), other.ty().into()];
            return Err(Error::type_error("outer_dim", "ranks differ", &types)
                .hint("`unsqueeze` adds axes in front of the one with fewer"));
        }
        let (a, b) = (self.shape().inserted(axis + 1, 1), other.shape().inserted(axis, 1));
        self.reshape(a)?.binary(Binary::Mul, other.reshape(b)?)
    }

    /// Computes the dot product of two vectors, of shape `[1]`. See [`Tensor::dot`](crate::Tensor::dot).
    ///
    /// # Errors
    /// When the tensors are not vectors of one length, or both are `bool`.
    pub fn dot(self, other: AnyTensor) -> Result<AnyTensor> {
        if self.rank() != 1 || other.rank() != 1 || self.shape() != other.shape() {
            return Err(vectors("dot", &self, &other)
                .hint("`dot` expects two vectors of one length; `matmul` accepts matrices"));
        }
        let dtype = self.dtype();
        let (x, other) = self.widened_with(other)?;
        x.binary(Binary::Mul, other)?.reduce_all(Reduction::Sum)?.cast(dtype)
    }

    /// Computes dot products along an axis, which is kept with length 1; the other axes broadcast. See
    /// [`linalg::vecdot`](crate::linalg::vecdot).
    ///
    /// # Errors
    /// When the shapes do not broadcast, the axis is out of range, or both tensors are `bool`.
    pub fn vecdot(self, other: AnyTensor, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let dtype = self.dtype();
        let (x, other) = self.widened_with(other)?;
        let product = x.binary(Binary::Mul, other);
        let product = product.map_err(|error| error.in_op("vecdot"))?;
        let axis = axis.into().of("vecdot", product.ty())?;
        sum_axis(product, axis)?.cast(dtype)
    }

    /// Computes matrix-vector products, `[.., m, n] x [.., n] -> [.., m]`. See
    /// [`linalg::matvec`](crate::linalg::matvec).
    ///
    /// # Errors
    /// When the matrix has fewer than two axes or the vector none, the inner sizes differ, the batch axes do not
    /// broadcast, or the dtypes differ or are `bool`.
    #[doc(alias = "mv")]
    pub fn matvec(self, vector: AnyTensor) -> Result<AnyTensor> {
        if self.rank() < 2 || vector.rank() < 1 {
            let types = [self.ty().into(), vector.ty().into()];
            return Err(Error::type_error("matvec", "needs a matrix and a vector", &types)
                .hint("the matrix comes first: `[.., m, n] x [.., n]`"));
        }
        if self.shape().last() != vector.shape().last() {
            let types = [self.ty().into(), vector.ty().into()];
            return Err(Error::type_error("matvec", "inner sizes differ", &types)
                .hint("rows of the matrix are as long as the vector: `[.., m, n] x [.., n]`"));
        }
        let column = vector.shape().inserted(vector.rank(), 1);
        let product = self.matmul(vector.reshape(column)?)?;
        let shape = product.shape().without(product.rank() - 1);
        product.reshape(shape)
    }

    /// Computes the inner products of the last axes of all pairs, `[a.., k] x [b.., k] -> [a.., b..]`. See
    /// [`linalg::inner`](crate::linalg::inner).
    ///
    /// # Errors
    /// When the last axes differ in length, or the dtypes differ or are `bool`.
    pub fn inner_product(self, other: AnyTensor) -> Result<AnyTensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.binary(Binary::Mul, other);
        }
        self.tensordot(other, ([-1], [-1]))
    }

    /// Contracts pairs of axes. See [`linalg::tensordot`](crate::linalg::tensordot).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, the axes of both tensors do not pair up in equal lengths, or the
    /// dtypes differ or are `bool`.
    pub fn tensordot(self, other: AnyTensor, axes: impl Into<TensordotAxes>) -> Result<AnyTensor> {
        self.tensordot_over(other, &axes.into())
    }

    fn tensordot_over(self, other: AnyTensor, axes: &TensordotAxes) -> Result<AnyTensor> {
        self.in_same_domain("tensordot", &other)?;
        let (left, right) = axes.of(&self, &other)?;
        let free = |tensor: &AnyTensor, used: &AxisVec| -> AxisVec {
            (0..tensor.rank()).filter(|axis| !used.contains(axis)).collect()
        };
        let (rows, columns) = (free(&self, &left), free(&other, &right));
        let shape: Shape = rows
            .iter()
            .map(|&axis| self.shape()[axis])
            .chain(columns.iter().map(|&axis| other.shape()[axis]))
            .collect();
        let dtype = self.dtype();
        let a = matrix(self, &rows, &left)?;
        let b = matrix(other, &right, &columns)?;
        a.apply_with(&Op::MatMul, [b.into_value().into()])?.cast(dtype)?.reshape(shape)
    }

    /// Computes the Kronecker product. See [`linalg::kron`](crate::linalg::kron).
    ///
    /// # Errors
    /// When the product needs more than [`MAX_RANK`] axes that are longer than 1, or both tensors are `bool`.
    pub fn kron(self, other: AnyTensor) -> Result<AnyTensor> {
        let rank = self.rank().max(other.rank());
        let lengths = |shape: &Shape| -> Vec<usize> {
            core::iter::repeat_n(1, rank - shape.rank()).chain(shape.iter().copied()).collect()
        };
        let (a, b) = (lengths(self.shape()), lengths(other.shape()));
        // Axes of length 1 are merged: [a0, 1, a1, 1] * [1, b0, 1, b1].
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (&m, &n) in a.iter().zip(&b) {
            if m != 1 {
                left.push(m);
                right.push(1);
            }
            if n != 1 {
                left.push(1);
                right.push(n);
            }
        }
        if left.len() > MAX_RANK {
            let problem = format!("the product needs {} axes, more than {MAX_RANK}", left.len());
            return Err(Error::type_error("kron", problem, &[self.ty().into(), other.ty().into()])
                .hint("join axes that belong together first"));
        }
        let product = self.reshape(left)?.binary(Binary::Mul, other.reshape(right)?)?;
        product.reshape(a.iter().zip(&b).map(|(m, n)| m * n).collect::<Shape>())
    }

    /// Computes cross products along an axis of length 3; the other axes broadcast. See
    /// [`Tensor::cross`](crate::Tensor::cross).
    ///
    /// # Errors
    /// When the axis is out of range or does not have length 3 in both, ranks differ, the other axes do not broadcast,
    /// or both tensors are `bool`.
    pub fn cross(self, other: AnyTensor, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.cross_along(other, axis.into())
    }

    fn cross_along(self, other: AnyTensor, axis: Axis) -> Result<AnyTensor> {
        let axis = axis.of("cross", self.ty())?;
        if self.rank() != other.rank() || self.shape()[axis] != 3 || other.shape()[axis] != 3 {
            let types = [self.ty().into(), other.ty().into()];
            return Err(Error::type_error(
                "cross",
                format!("axis {axis} must have length 3 in both"),
                &types,
            )
            .hint("cross products are of vectors in three dimensions"));
        }
        // (a × b)[i] = a[i + 1] b[i + 2] - a[i + 2] b[i + 1], indices modulo 3.
        let turned = |tensor: &AnyTensor, by: usize| {
            let from = |start: usize, len: usize| {
                let mut slices: Vec<SliceAxis> =
                    tensor.shape().iter().map(|&length| SliceAxis::all(length)).collect();
                slices[axis] = SliceAxis { start, len, step: 1 };
                tensor.clone().slice_axes(slices)
            };
            AnyTensor::cat(Vec::from([from(by, 3 - by)?, from(0, by)?]), axis)
        };
        let first = turned(&self, 1)?.binary(Binary::Mul, turned(&other, 2)?)?;
        first.binary(Binary::Sub, turned(&self, 2)?.binary(Binary::Mul, turned(&other, 1)?)?)
    }

    /// Computes the trace, the sum of the diagonal of the last two axes, `[.., m, n] -> [..]`. See
    /// [`linalg::trace`](crate::linalg::trace).
    ///
    /// # Errors
    /// When there are fewer than two axes, or the tensor is `bool`.
    pub fn trace(self) -> Result<AnyTensor> {
        if self.rank() < 2 {
            return Err(Error::type_error("trace", "needs at least 2 axes", &[self.ty().into()])
                .hint("`sum` reduces a vector; `diag` converts it to a matrix"));
        }
        let diagonal = self.diagonal(0, -2, -1)?;
        let last = diagonal.rank() - 1;
        let shape = diagonal.shape().without(last);
        sum_axis(diagonal, last)?.reshape(shape)
    }
}

#[cold]
fn vectors(op: &str, a: &AnyTensor, b: &AnyTensor) -> Error {
    let problem =
        if a.rank() == 1 && b.rank() == 1 { "lengths differ" } else { "needs two tensors of one axis" };
    Error::type_error(op, problem, &[a.ty().into(), b.ty().into()])
}

/// Computes the sum along an axis, which is kept with length 1.
pub(super) fn sum_axis(tensor: AnyTensor, axis: usize) -> Result<AnyTensor> {
    tensor.apply(&Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(axis) })
}

/// Returns the axes of the rows and those of the columns, each merged to one.
fn matrix(tensor: AnyTensor, rows: &[usize], columns: &[usize]) -> Result<AnyTensor> {
    let count = |axes: &[usize]| axes.iter().map(|&axis| tensor.shape()[axis]).product::<usize>();
    let shape = [count(rows), count(columns)];
    let axes: AxisVec = rows.iter().chain(columns).copied().collect();
    let in_order = axes.iter().copied().eq(0..tensor.rank());
    let tensor = if in_order { tensor } else { tensor.apply(&Op::Permute(Axes::new(&axes)))? };
    tensor.reshape(shape)
}
