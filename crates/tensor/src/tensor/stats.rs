//! Statistics: covariances, histograms, distances.

use super::ok;
use crate::stats::CdistMode;
use crate::tensor::forward::forward;
use crate::{Axis, Backend, Int, Tensor};

forward! {
    impl[B: Backend] Tensor<B, 2>;

    /// Computes the covariance matrix of variables whose observations are along `axis`, `[variables, variables]`: sums
    /// of products of deviations over `n - correction`. `torch.cov(x)` is `x.cov(1, 1.0)`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cov.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 3.0], [2.0, 6.0]], &device);
    /// assert_eq!(x.cov(1, 1.0).into_data().to_vec::<f32>(), [2.0, 4.0, 4.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// When the tensor does not have 2 axes.
    pub fn cov(self, axis: impl Into<Axis>, correction: f64) -> Self;

    /// Computes Pearson's correlation coefficients of variables whose observations are along `axis`,
    /// `[variables, variables]`, clamped to -1 and 1. NaN where a variable is constant.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.corrcoef.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 3.0], [6.0, 2.0]], &device);
    /// assert_eq!(x.corrcoef(1).into_data().to_vec::<f32>(), [1.0, -1.0, -1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// When the tensor does not have 2 axes.
    pub fn corrcoef(self, axis: impl Into<Axis>) -> Self;

    /// Computes the distances between the rows of a matrix, each pair once: rows 0 and 1, 0 and 2, and so on,
    /// `[n (n - 1) / 2]`. See [`cdist`](Tensor::cdist).
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pdist.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[0.0, 0.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.pdist(2.0).into_data().to_vec::<f32>(), [5.0]);
    /// ```
    ///
    /// # Panics
    /// When `p` is negative or NaN.
    pub fn pdist(self, p: f64) -> Tensor<B, 1>;
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D>;

    /// Computes the `p`-norm distances between all rows of two tensors, `[.., n, dim]` and `[.., m, dim]` to
    /// `[.., n, m]`; the batch axes broadcast. With `p` of 0 the distance is the number of elements that differ; with
    /// infinity it is the greatest difference. Several equal greatest differences share the gradient (in PyTorch each
    /// gets all of it). Where a distance is 0, its gradient is 0.
    ///
    /// With `p` of 2 and more than 25 rows on either side, a matmul computes the distances, as in PyTorch: fast, but
    /// less accurate where rows nearly coincide. [`cdist_with_mode`](Tensor::cdist_with_mode) selects the method.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cdist.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[0.0, 0.0]], &device);
    /// let y = Tensor::<Flex, 2>::from_floats([[3.0, 4.0], [0.0, 1.0]], &device);
    /// assert_eq!(x.cdist(y, 2.0).into_data().to_vec::<f32>(), [5.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// When the rows differ in length, or `p` is negative or NaN.
    pub fn cdist(self, other: Self as any, p: f64) -> Self;

    /// Like [`cdist`](Tensor::cdist), with a choice of how Euclidean distances are computed: PyTorch's `compute_mode`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, stats::CdistMode};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::full([100, 3], 1000.1, &device);
    /// assert_eq!(x.clone().cdist_with_mode(x, 2.0, CdistMode::Direct).max().into_scalar::<f32>(), 0.0);
    /// ```
    ///
    /// # Panics
    /// As [`cdist`](Tensor::cdist).
    pub fn cdist_with_mode(self, other: Self as any, p: f64, mode: CdistMode) -> Self;

    /// Counts the elements in each of `bins` equally wide bins over a range, `[bins]`. The default range is from the
    /// least to the greatest element. A bin includes its lower edge, the last bin both edges. Elements outside and NaN
    /// are not counted; no element is counted if NaN makes the default range NaN. No gradient.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.histc.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.histc(2, Some((1.0, 3.0))).into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When `bins` is 0, or the range is invalid.
    pub fn histc(self, bins: usize, range: Option<(f64, f64)>) -> Tensor<B, 1>;
}

impl<B: Backend, const D: usize> Tensor<B, D> {
    /// Computes a histogram of `bins` equally wide bins: the number of elements in each, or the sums of their weights,
    /// `[bins]`, and the edges, `[bins + 1]`. With `density` the counts are divided by their sum and the bin widths.
    /// See [`histc`](Tensor::histc).
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.histogram.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let (counts, edges) = x.histogram(2, None, None, false);
    /// assert_eq!(counts.into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// assert_eq!(edges.into_data().to_vec::<f32>(), [1.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When `bins` is 0, the range is invalid, or the number of weights is not the number of elements.
    #[track_caller]
    pub fn histogram(
        self,
        bins: usize,
        range: Option<(f64, f64)>,
        weights: Option<Self>,
        density: bool,
    ) -> (Tensor<B, 1>, Tensor<B, 1>) {
        let weights = weights.map(Tensor::into_any);
        let (counts, edges) = ok(self.into_any().histogram(bins, range, weights, density));
        (Tensor::from_any(counts), Tensor::from_any(edges))
    }

    /// Computes a [`histogram`](Tensor::histogram) of the bins between edges in ascending order.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.histogram.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let edges = Tensor::<Flex, 1>::from_floats([0.0, 1.5, 9.0], &device);
    /// assert_eq!(x.histogram_between(edges, None, false).into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two edges, or when the number of weights is not the number of elements.
    #[track_caller]
    pub fn histogram_between(
        self,
        edges: Tensor<B, 1>,
        weights: Option<Self>,
        density: bool,
    ) -> Tensor<B, 1> {
        let weights = weights.map(Tensor::into_any);
        self.convert(|x| x.histogram_between(edges.into_any(), weights, density))
    }
}

impl<B: Backend> Tensor<B, 1, Int> {
    /// Counts the occurrences of each of the integers 0, 1, … up to the maximum, with at least `min_length` counts.
    /// Waits for the device to read the minimum and the maximum, because the shape depends on them. The device counts.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.bincount.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 3, 1], &device);
    /// assert_eq!(x.bincount(0).into_data().to_vec::<i32>(), [0, 2, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// When an element is negative.
    #[track_caller]
    pub fn bincount(self, min_length: usize) -> Self {
        self.map(|x| x.bincount(None, min_length))
    }

    /// Like [`bincount`](Tensor::bincount), without blocking the thread.
    ///
    /// # Errors
    /// When an element is negative.
    pub async fn bincount_async(self, min_length: usize) -> crate::Result<Self> {
        Ok(Tensor::from_any(self.into_any().bincount_async(None, min_length).await?))
    }

    /// Computes the sum of the weights of each of the integers 0, 1, …; see [`bincount`](Tensor::bincount). Waits for
    /// the device.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.bincount.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 3, 1], &device);
    /// let w = Tensor::<Flex, 1>::from_floats([0.5, 1.0, 0.25], &device);
    /// assert_eq!(x.bincount_weighted(w, 0).into_data().to_vec::<f32>(), [0.0, 0.75, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// When an element is negative, or the number of weights is not the number of elements.
    #[track_caller]
    pub fn bincount_weighted(self, weights: Tensor<B, 1>, min_length: usize) -> Tensor<B, 1> {
        self.convert(|x| x.bincount(Some(weights.into_any()), min_length))
    }

    /// Like [`bincount_weighted`](Tensor::bincount_weighted), without blocking the thread.
    ///
    /// # Errors
    /// When an element is negative, or the number of weights is not the number of elements.
    pub async fn bincount_weighted_async(
        self,
        weights: Tensor<B, 1>,
        min_length: usize,
    ) -> crate::Result<Tensor<B, 1>> {
        let weights = Some(weights.into_any());
        Ok(Tensor::from_any(self.into_any().bincount_async(weights, min_length).await?))
    }
}
