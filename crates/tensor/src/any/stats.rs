//! Statistics: covariances, histograms, distances.

use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, Reduction, Unary, UpdateMode};

/// The method of [`cdist`](crate::Tensor::cdist) for Euclidean distances; other norms are always direct.
///
/// A matmul allocates only the result and runs at the speed of matmuls, but suffers cancellation. The distance of rows
/// that nearly coincide has an absolute error of about `‖row‖ √ε`, 3e-4 of the norm in `f32`.
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.cdist.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CdistMode {
    /// By a matmul if one of the tensors has more than 25 rows, direct otherwise: PyTorch's default,
    /// `use_mm_for_euclid_dist_if_necessary`. Direct under mixed precision, whose matmuls are too coarse.
    #[default]
    MatmulIfLarge,
    /// By a matmul, `√(‖x‖² + ‖y‖² - 2 x·y)`: PyTorch's `use_mm_for_euclid_dist`.
    Matmul,
    /// By differences of elements: PyTorch's `donot_use_mm_for_euclid_dist`.
    Direct,
}

/// With more rows than this, in either tensor, distances are computed by a matmul. PyTorch's rule.
const MAX_DIRECT_ROWS: usize = 25;

/// The maximum number of differences that engines without fusion store at once.
const MAX_DIFFERENCES: usize = 1 << 26;

/// The maximum number of bins of a histogram, and of counts of a `bincount`: 1 GiB of `i32`. More indicate a mistake in
/// an argument or in the data, which is an error before memory is allocated.
const MAX_BINS: usize = 1 << 28;

impl AnyTensor {
    /// Computes the covariance matrix of variables whose observations are along an axis. See
    /// [`Tensor::cov`](crate::Tensor::cov).
    ///
    /// # Errors
    /// When the tensor is not a matrix of floats, or the axis is out of range.
    pub fn cov(self, axis: impl Into<Axis>, correction: f64) -> Result<AnyTensor> {
        let axis = axis.into().of("cov", self.ty())?;
        if self.rank() != 2 || !self.dtype().is_float() {
            let problem = "needs floats with 2 axes, variables and observations";
            return Err(Error::type_error("cov", problem, &[self.ty().into()])
                .hint("`axis` is the axis of the observations"));
        }
        let dtype = self.dtype();
        let rows = if axis == 1 { self } else { self.transpose()? }.widened()?;
        let degrees = (rows.shape()[1] as f64 - correction).max(0.0);
        let mean = rows.clone().mean_over(&[1])?;
        let near = rows.binary(Binary::Sub, mean)?;
        // The rounding error of the mean.
        let rest = near.clone().mean_over(&[1])?;
        let centered = near.binary(Binary::Sub, rest)?;
        let turned = centered.clone().transpose()?;
        centered.matmul(turned)?.binary_scalar(Binary::Div, degrees)?.cast(dtype)
    }

    /// Computes the correlation matrix of variables whose observations are along an axis. See
    /// [`Tensor::corrcoef`](crate::Tensor::corrcoef).
    ///
    /// # Errors
    /// As [`cov`](AnyTensor::cov).
    pub fn corrcoef(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let (dtype, x) = (self.dtype(), self.widened_floats()?);
        let covariance = x.cov(axis, 0.0)?;
        let deviation = covariance.clone().diagonal(0, 0, 1)?.unary(Unary::Sqrt)?;
        let rows = deviation.clone().unsqueeze_dim(1)?;
        let ratio = covariance.binary(Binary::Div, rows)?.binary(Binary::Div, deviation)?;
        ratio.binary_scalar(Binary::Max, -1.0)?.binary_scalar(Binary::Min, 1.0)?.cast(dtype)
    }

    /// Counts the elements in each of equally wide bins. See [`Tensor::histc`](crate::Tensor::histc).
    ///
    /// # Errors
    /// When the dtype is not a float, `bins` is 0 or above 2²⁸, or the bounds of the range descend or are not finite.
    pub fn histc(self, bins: usize, range: Option<(f64, f64)>) -> Result<AnyTensor> {
        let edges = self.bin_edges("histc", bins, range)?;
        self.detach().counted("histc", edges, None)
    }

    /// Computes a histogram of equally wide bins: the counts or sums of weights, and the edges. See
    /// [`Tensor::histogram`](crate::Tensor::histogram).
    ///
    /// # Errors
    /// As [`histc`](AnyTensor::histc), and when the weights are `bool` or not as many as the elements.
    pub fn histogram(
        self,
        bins: usize,
        range: Option<(f64, f64)>,
        weights: Option<AnyTensor>,
        density: bool,
    ) -> Result<(AnyTensor, AnyTensor)> {
        let edges = self.bin_edges("histogram", bins, range)?;
        let counts = self.detach().counted("histogram", edges.clone(), weights)?;
        Ok((if density { counts.density(edges.clone())? } else { counts }, edges))
    }

    /// Computes a histogram of the bins between the given edges. See
    /// [`Tensor::histogram_between`](crate::Tensor::histogram_between).
    ///
    /// # Errors
    /// When the edges are not a vector of at least two numbers in the tensor's dtype, or the weights are `bool` or not
    /// as many as the elements.
    pub fn histogram_between(
        self,
        edges: AnyTensor,
        weights: Option<AnyTensor>,
        density: bool,
    ) -> Result<AnyTensor> {
        if edges.rank() != 1 || edges.shape()[0] < 2 || edges.dtype() != self.dtype() {
            let problem = "the edges must be at least 2 numbers of the tensor's dtype";
            return Err(Error::type_error(
                "histogram_between",
                problem,
                &[self.ty().into(), edges.ty().into()],
            ));
        }
        let counts = self.detach().counted("histogram_between", edges.clone(), weights)?;
        if density { counts.density(edges) } else { Ok(counts) }
    }

    /// Computes the edges of equally wide bins over a range, or over all elements.
    fn bin_edges(&self, op: &str, bins: usize, range: Option<(f64, f64)>) -> Result<AnyTensor> {
        let wrong = |problem: &str| {
            Err(Error::type_error(op, problem, &[self.ty().into()]).hint(
                "bins of equal width need two finite bounds; default: the least and the greatest element",
            ))
        };
        if !self.dtype().is_float() {
            return wrong("needs floats");
        }
        if bins == 0 {
            return wrong("needs at least 1 bin");
        }
        if bins > MAX_BINS {
            return wrong(&format!("{bins} bins are more than {MAX_BINS}"));
        }
        let (low, high) = match range {
            Some((low, high)) if !(low.is_finite() && high.is_finite() && low <= high) => {
                return wrong(&format!("{low} to {high} is not a range"));
            }
            Some((low, high)) => (self.number(low)?, self.number(high)?),
            None if self.shape().num_elements() == 0 => (self.number(0.0)?, self.number(1.0)?),
            None => {
                let x = self.clone().detach();
                (x.clone().min()?, x.max()?)
            }
        };
        // A range of width 0 is widened, with its value in the middle.
        let flat = low.clone().compare(Comparison::Eq, high.clone())?.cast(self.dtype())?;
        let half = flat.binary_scalar(Binary::Mul, 0.5)?;
        let (low, high) = (low.binary(Binary::Sub, half.clone())?, high.binary(Binary::Add, half)?);
        let places = self.ty().with_shape([bins + 1]);
        let share = AnyTensor::iota(places, 0, self.stack())?.binary_scalar(Binary::Div, bins)?;
        let edges = share.binary(Binary::Mul, high.clone().binary(Binary::Sub, low.clone())?)?;
        let inner = edges.binary(Binary::Add, low)?.narrow(0, 0, bins)?;
        AnyTensor::cat([inner, high].into(), 0)
    }

    /// Creates a tensor of one number in the tensor's dtype, `[1]`.
    fn number(&self, x: f64) -> Result<AnyTensor> {
        AnyTensor::full(self.ty().with_shape([1]), x, self.stack())
    }

    /// Computes counts, or sums of weights, between edges. A bin includes its lower edge, the last bin both edges.
    fn counted(self, op: &str, edges: AnyTensor, weights: Option<AnyTensor>) -> Result<AnyTensor> {
        let (x, bins) = (self.flatten_all()?, edges.shape()[0] - 1);
        if let Some(weights) = &weights
            && weights.shape().num_elements() != x.shape()[0]
        {
            let problem = "needs one weight for each element";
            return Err(Error::type_error(op, problem, &[x.ty().into(), weights.ty().into()])
                .hint("the weights have the shape of the tensor"));
        }
        let weights = match weights {
            Some(weights) => weights.flatten_all()?,
            None => AnyTensor::ones(*x.ty(), x.stack())?,
        };
        let last = edges.clone().narrow(0, bins, 1)?;
        let place = edges.searchsorted(x.clone(), true)?.binary_scalar(Binary::Sub, 1)?;
        let on_end = x.compare(Comparison::Eq, last)?;
        let place = on_end.if_else_number(bins - 1, place)?;
        let below = place.clone().compare_scalar(Comparison::Lt, 0)?;
        let above = place.clone().scalar_compare(bins, Comparison::Le)?;
        let outside = below.binary(Binary::Or, above)?;
        // Elements outside the range are counted in an extra bin.
        let place = outside.if_else_number(bins, place)?;
        let none = AnyTensor::zeros(weights.ty().with_shape([bins + 1]), weights.stack())?;
        none.put(0, place, weights, UpdateMode::Add)?.narrow(0, 0, bins)
    }

    /// Divides counts by their sum and the widths of the bins.
    fn density(self, edges: AnyTensor) -> Result<AnyTensor> {
        let total = self.clone().sum()?;
        let widths = edges.diff(1, 0)?.cast(self.dtype())?;
        self.binary(Binary::Div, total)?.binary(Binary::Div, widths)
    }

    /// Counts the occurrences of each integer, or sums their weights. Waits for the device. See
    /// [`Tensor::bincount`](crate::Tensor::bincount).
    ///
    /// # Errors
    /// When the tensor is not a vector of integers from 0 to below 2²⁸, `min_length` is above 2²⁸, the weights have
    /// another shape or are `bool`, or the computation of the integers failed.
    pub fn bincount(self, weights: Option<AnyTensor>, min_length: usize) -> Result<AnyTensor> {
        let extremes = match self.extremes(weights.as_ref())? {
            Some(extremes) => extremes.wait("await `bincount_async`")?.to_vec::<i64>(),
            None => Vec::new(),
        };
        self.count_integers(&extremes, weights, min_length)
    }

    /// Like [`bincount`](AnyTensor::bincount), without blocking the thread.
    ///
    /// # Errors
    /// As [`bincount`](AnyTensor::bincount).
    pub async fn bincount_async(self, weights: Option<AnyTensor>, min_length: usize) -> Result<AnyTensor> {
        let extremes = match self.extremes(weights.as_ref())? {
            Some(extremes) => extremes.into_data_async().await?.to_vec::<i64>(),
            None => Vec::new(),
        };
        self.count_integers(&extremes, weights, min_length)
    }

    /// Checks the operands of `bincount`. Returns the least and the greatest integer, `[2]`: one read copies both.
    /// `None` without integers.
    fn extremes(&self, weights: Option<&AnyTensor>) -> Result<Option<AnyTensor>> {
        if !self.dtype().is_int() || self.rank() != 1 {
            return Err(self.not_countable("needs integers with exactly 1 axis"));
        }
        if weights.is_some_and(|weights| weights.shape() != self.shape()) {
            return Err(self.not_countable("needs one weight for each number"));
        }
        if self.shape()[0] == 0 {
            return Ok(None);
        }
        let (least, greatest) = (self.clone().min()?, self.clone().max()?);
        AnyTensor::cat([least, greatest].into(), 0).map(Some)
    }

    fn not_countable(&self, problem: &str) -> Error {
        Error::type_error("bincount", problem, &[self.ty().into()])
            .hint("it counts how often each integer from 0 on occurs in a vector")
    }

    /// Counts integers whose least and greatest are known.
    fn count_integers(
        self,
        extremes: &[i64],
        weights: Option<AnyTensor>,
        min_length: usize,
    ) -> Result<AnyTensor> {
        if let Some(number) = extremes.first().filter(|&&least| least < 0) {
            return Err(self.not_countable(&format!("{number} is negative")));
        }
        let greatest = extremes.last().copied();
        let length = greatest.map_or(0, |greatest| greatest as usize + 1).max(min_length);
        if length > MAX_BINS {
            let what = match greatest {
                Some(greatest) if greatest as usize >= min_length => format!("the number {greatest}"),
                Some(_) | None => format!("a length of {min_length}"),
            };
            return Err(Error::type_error("bincount", format!("{what} requires too many counts"), &[self.ty().into()])
                .hint(format!(
                    "each number from 0 on has a count, {MAX_BINS} at most: `unique_with_counts` counts sparse numbers"
                )));
        }
        let ty = match &weights {
            Some(weights) => weights.ty().with_shape([length]),
            None => self.ty().with_dtype(self.stack().int_dtype()).with_shape([length]),
        };
        let weights = match weights {
            Some(weights) => weights,
            None => AnyTensor::ones(ty.with_shape(*self.shape()), self.stack())?,
        };
        AnyTensor::zeros(ty, self.stack())?.put(0, self, weights, UpdateMode::Add)
    }

    /// Computes the distances between the rows of two tensors. See [`Tensor::cdist`](crate::Tensor::cdist).
    ///
    /// # Errors
    /// As [`cdist_with_mode`](AnyTensor::cdist_with_mode).
    pub fn cdist(self, other: AnyTensor, p: f64) -> Result<AnyTensor> {
        self.cdist_with_mode(other, p, CdistMode::default())
    }

    /// Like [`cdist`](AnyTensor::cdist), with a choice of the method. See
    /// [`Tensor::cdist_with_mode`](crate::Tensor::cdist_with_mode).
    ///
    /// # Errors
    /// When a tensor has fewer than two axes, the rows differ in length, the axes before them do not broadcast, neither
    /// dtype is a float, or `p` is negative or NaN. Distances by a matmul need equal dtypes.
    pub fn cdist_with_mode(self, other: AnyTensor, p: f64, mode: CdistMode) -> Result<AnyTensor> {
        self.in_same_domain("cdist", &other)?;
        let wrong = |problem: &str| {
            Err(Error::type_error("cdist", problem, &[self.ty().into(), other.ty().into()])
                .hint("the distances are those between the rows, along the last axis"))
        };
        if self.rank() < 2 || other.rank() < 2 {
            return wrong("needs at least 2 axes, rows and their elements");
        }
        if self.shape().last() != other.shape().last() {
            return wrong("the rows differ in length");
        }
        let rows = [&self, &other].map(|x| x.shape()[x.rank() - 2]);
        let is_product = match mode {
            CdistMode::MatmulIfLarge => {
                rows.into_iter().any(|rows| rows > MAX_DIRECT_ROWS)
                    && !self.stack().engine().mixes_precision()
            }
            CdistMode::Matmul => true,
            CdistMode::Direct => false,
        };
        if is_product && p == 2.0 && self.dtype().is_float() {
            return self.distance_by_product(other);
        }
        // Chunks of rows limit the differences that an engine without fusion stores.
        let of_a_row = self.shape().num_elements() / rows[0].max(1);
        let batch = of_a_row.max(other.shape().num_elements() / rows[1].max(1));
        let part = (MAX_DIFFERENCES / (batch * rows[1]).max(1)).max(1);
        let dtype = self.dtype();
        let (x, other) = self.unsqueeze_dim(-2)?.widened_with(other.unsqueeze_dim(-3)?)?;
        let distances =
            |x: AnyTensor| x.binary(Binary::Sub, other.clone())?.distance("cdist", p)?.cast(dtype);
        if rows[0] <= part {
            return distances(x);
        }
        let parts = (0..rows[0]).step_by(part);
        let parts = parts.map(|start| distances(x.clone().narrow(-3, start, part.min(rows[0] - start))?));
        AnyTensor::cat(parts.collect::<Result<Vec<_>>>()?, -2)
    }

    /// Computes Euclidean distances between rows by a matmul: `√(‖x‖² + ‖y‖² - 2 x·y)`, clamped to 0.
    fn distance_by_product(self, other: AnyTensor) -> Result<AnyTensor> {
        let dtype = self.dtype();
        let (x, y) = (self.widened()?, other.widened()?);
        let squares =
            |x: &AnyTensor| x.clone().binary(Binary::Mul, x.clone())?.reduce(Reduction::Sum, &[x.rank() - 1]);
        let sums = squares(&x)?.binary(Binary::Add, squares(&y)?.transpose()?)?;
        let products = x.matmul(y.transpose()?)?.binary_scalar(Binary::Mul, 2.0)?;
        sums.binary(Binary::Sub, products)?.binary_scalar(Binary::Max, 0.0)?.root()?.cast(dtype)
    }

    /// Computes the distances between the rows of one matrix, each pair once. See
    /// [`Tensor::pdist`](crate::Tensor::pdist).
    ///
    /// # Errors
    /// When the tensor is not a matrix of floats, has more than 16,384 rows, or `p` is negative or NaN.
    pub fn pdist(self, p: f64) -> Result<AnyTensor> {
        if self.rank() != 2 {
            return Err(Error::type_error("pdist", "needs exactly 2 axes", &[self.ty().into()])
                .hint("the distances are those between the rows of a matrix"));
        }
        let rows = self.shape()[0];
        let pairs = AnyTensor::triu_indices(rows, rows, 1, self.stack())?;
        let mut pairs = pairs.unbind(0)?.into_iter();
        let (Some(first), Some(second)) = (pairs.next(), pairs.next()) else {
            return Err(Error::type_error("pdist", "has no pairs", &[self.ty().into()]));
        };
        let (dtype, x) = (self.dtype(), self.widened_floats()?);
        let differences = x.clone().take(0, first)?.binary(Binary::Sub, x.take(0, second)?)?;
        differences.distance("pdist", p)?.cast(dtype)
    }

    /// Computes the `p`-norm along the last axis, which is removed. Its gradient at 0 is 0.
    fn distance(self, op: &str, p: f64) -> Result<AnyTensor> {
        if p.is_nan() || p < 0.0 || !self.dtype().is_float() {
            let problem = format!("needs floats and a norm of at least 0, not {p}");
            return Err(Error::type_error(op, problem, &[self.ty().into()]).hint(
                "2 is the distance in space, 1 that along the axes, infinity the greatest difference",
            ));
        }
        let last = self.rank() - 1;
        let shape = self.shape().without(last);
        let norm = if p == 0.0 {
            let dtype = self.dtype();
            let counts = self.clone().truth()?.cast(dtype)?;
            counts.with_zero_gradient_of(self)?.reduce(Reduction::Sum, &[last])?
        } else if p == 1.0 {
            self.unary(Unary::Abs)?.reduce(Reduction::Sum, &[last])?
        } else if p == 2.0 {
            self.square()?.reduce(Reduction::Sum, &[last])?.root()?
        } else if p.is_infinite() {
            self.not_below_zero()?.reduce(Reduction::Max, &[last])?
        } else {
            self.unary(Unary::Abs)?.power(p)?.reduce(Reduction::Sum, &[last])?.power(1.0 / p)?
        };
        norm.reshape(shape)
    }

    /// Returns the absolute values, or one 0 for an empty last axis, so that the maximum of no elements is 0.
    fn not_below_zero(self) -> Result<AnyTensor> {
        let (last, dtype) = (self.rank() - 1, self.dtype());
        if self.shape()[last] > 0 {
            return self.unary(Unary::Abs);
        }
        AnyTensor::zeros(self.ty().with_shape(self.shape().with(last, 1)).with_dtype(dtype), self.stack())
    }

    /// Raises non-negative elements to a power; the gradient at 0 is 0.
    fn power(self, exponent: f64) -> Result<AnyTensor> {
        let is_zero = self.clone().compare_scalar(Comparison::Eq, 0.0)?;
        let power = is_zero.clone().if_else_number(1.0, self)?.binary_scalar(Binary::Pow, exponent)?;
        is_zero.if_else_number(0.0, power)
    }
}
