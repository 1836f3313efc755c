//! Pooling.

use crate::tensor::ok;
use crate::{Backend, Int, Tensor};
use kiln_ir::PoolOptions;

macro_rules! poolings {
    ($($axes:literal $rank:literal $max:ident $indices:ident $max_gradient:ident $unpool:ident $average:ident
       $average_gradient:ident $divisor:ident $fractional:ident $fractional_indices:ident $lp:ident $adaptive:ident $adaptive_max:ident $adaptive_indices:ident;)*) => {$(
        /// Computes the maximum of each window over the spatial dimensions of `[batch, channels, space..]`; NaN is the
        /// maximum. The gradient flows to the first of equal maxima, and of several NaN, where PyTorch's flows to the
        /// last NaN ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool2d.html)).
        #[track_caller]
        pub fn $max<B: Backend>(x: Tensor<B, $rank>, options: &PoolOptions<$axes>) -> Tensor<B, $rank> {
            x.map(|any| any.max_pool(&options.pooling()))
        }

        #[doc = concat!("As [`", stringify!($max), "`], also returning the row-major indices of the maxima in the spatial dimensions, for")]
        #[doc = concat!("[`", stringify!($unpool), "`].")]
        #[track_caller]
        pub fn $indices<B: Backend>(
            x: Tensor<B, $rank>,
            options: &PoolOptions<$axes>,
        ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
            let (y, indices) = ok(x.into_any().max_pool_with_indices(&options.pooling()));
            (Tensor::from_any(y), Tensor::from_any(indices))
        }

        #[doc = concat!("The gradient of [`", stringify!($max), "`] for its operand, given the gradient of its result. The first")]
        /// maximum of a window receives the gradient of the window.
        #[track_caller]
        pub fn $max_gradient<B: Backend>(
            gradient: Tensor<B, $rank>,
            x: Tensor<B, $rank>,
            options: &PoolOptions<$axes>,
        ) -> Tensor<B, $rank> {
            gradient.map(|any| any.max_pool_gradient(x.into_any(), &options.pooling()))
        }

        #[doc = concat!("Writes elements to the positions that [`", stringify!($indices), "`] returned, zeros")]
        /// elsewhere; `size` are the lengths of the spatial dimensions of the result. Of duplicate indices, the last
        /// element is stored
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool2d.html)).
        #[track_caller]
        pub fn $unpool<B: Backend>(
            x: Tensor<B, $rank>,
            indices: Tensor<B, $rank, Int>,
            size: [usize; $axes],
        ) -> Tensor<B, $rank> {
            x.map(|any| any.max_unpool(indices.into_any(), &size))
        }

        /// Computes the mean of each window over the spatial dimensions of `[batch, channels, space..]`;
        /// `include_padding` counts padding in the divisor
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool2d.html)).
        #[track_caller]
        pub fn $average<B: Backend>(
            x: Tensor<B, $rank>,
            options: &PoolOptions<$axes>,
            include_padding: bool,
        ) -> Tensor<B, $rank> {
            x.map(|any| any.avg_pool(&options.pooling(), include_padding))
        }

        #[doc = concat!("The gradient of [`", stringify!($average), "`] for its operand with spatial dimensions `size`, given")]
        /// that of its result.
        #[track_caller]
        pub fn $average_gradient<B: Backend>(
            gradient: Tensor<B, $rank>,
            size: [usize; $axes],
            options: &PoolOptions<$axes>,
            include_padding: bool,
        ) -> Tensor<B, $rank> {
            gradient.map(|any| any.avg_pool_gradient(&size, &options.pooling(), include_padding))
        }

        #[doc = concat!("The sum of each window of [`", stringify!($average), "`], divided by one number instead of the window's count:")]
        /// PyTorch's `divisor_override`
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool2d.html)).
        ///
        /// # Panics
        /// When the divisor is 0.
        #[track_caller]
        pub fn $divisor<B: Backend>(
            x: Tensor<B, $rank>,
            options: &PoolOptions<$axes>,
            divisor: usize,
        ) -> Tensor<B, $rank> {
            x.map(|any| any.avg_pool_with_divisor(&options.pooling(), divisor))
        }

        /// Computes fractional max pooling: the maximum of windows at random positions over the spatial dimensions of
        /// `[batch, channels, space..]`. `size` windows of `window` elements cover each spatial dimension. `samples`,
        /// `[batch, channels, axes]` in `0..1`, determine their positions, in the order of the axes (PyTorch's function
        /// for two axes has the last axis first). By default they are drawn with the device's next key ([Graham
        /// 2014](https://arxiv.org/abs/1412.6071),
        /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool2d.html)).
        ///
        /// # Panics
        /// When the windows do not fit into an axis, or `samples` has another shape.
        #[track_caller]
        pub fn $fractional<B: Backend>(
            x: Tensor<B, $rank>,
            window: [usize; $axes],
            size: [usize; $axes],
            samples: Option<Tensor<B, 3>>,
        ) -> Tensor<B, $rank> {
            x.map(|any| any.fractional_max_pool(&window, &size, samples.map(Tensor::into_any)))
        }

        #[doc = concat!("As [`", stringify!($fractional), "`], also returning the row-major indices of the maxima in the spatial")]
        #[doc = concat!("dimensions, for [`", stringify!($unpool), "`]. The gradient flows to these elements.")]
        ///
        /// # Panics
        /// When the windows do not fit into an axis, or `samples` has another shape.
        #[track_caller]
        pub fn $fractional_indices<B: Backend>(
            x: Tensor<B, $rank>,
            window: [usize; $axes],
            size: [usize; $axes],
            samples: Option<Tensor<B, 3>>,
        ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
            let samples = samples.map(Tensor::into_any);
            let (y, indices) = ok(x.into_any().fractional_max_pool_with_indices(&window, &size, samples));
            (Tensor::from_any(y), Tensor::from_any(indices))
        }

        /// Computes the power-average pooling `(Σ x^p)^(1/p)` of each window over the spatial dimensions of
        /// `[batch, channels, space..]`. Where the sum is 0, its gradient is 0. A window that extends beyond the end is
        /// scaled to a whole window of the same mean, as in PyTorch
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool2d.html)).
        ///
        /// # Panics
        /// When `p` is not positive and finite.
        #[track_caller]
        pub fn $lp<B: Backend>(x: Tensor<B, $rank>, p: f64, options: &PoolOptions<$axes>) -> Tensor<B, $rank> {
            x.map(|any| any.lp_pool(p, &options.pooling()))
        }

        /// Computes adaptive average pooling: the mean of windows that split the spatial dimensions of
        /// `[batch, channels, space..]` into `size` parts. Part `i` of `n` covers
        /// `floor(i length / n) .. ceil((i + 1) length / n)`
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool2d.html)).
        #[track_caller]
        pub fn $adaptive<B: Backend>(x: Tensor<B, $rank>, size: [usize; $axes]) -> Tensor<B, $rank> {
            x.map(|any| any.adaptive_avg_pool(&size))
        }

        #[doc = concat!("Adaptive max pooling over the windows of [`", stringify!($adaptive), "`]")]
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool2d.html)).
        #[track_caller]
        pub fn $adaptive_max<B: Backend>(x: Tensor<B, $rank>, size: [usize; $axes]) -> Tensor<B, $rank> {
            x.map(|any| any.adaptive_max_pool(&size))
        }

        #[doc = concat!("As [`", stringify!($adaptive_max), "`], also returning the row-major indices of the maxima in the spatial")]
        /// dimensions.
        #[track_caller]
        pub fn $adaptive_indices<B: Backend>(
            x: Tensor<B, $rank>,
            size: [usize; $axes],
        ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
            let (y, indices) = ok(x.into_any().adaptive_max_pool_with_indices(&size));
            (Tensor::from_any(y), Tensor::from_any(indices))
        }
    )*};
}

poolings! {
    1 3
    max_pool1d max_pool1d_with_indices max_pool1d_gradient max_unpool1d avg_pool1d avg_pool1d_gradient avg_pool1d_with_divisor fractional_max_pool1d
    fractional_max_pool1d_with_indices lp_pool1d
    adaptive_avg_pool1d adaptive_max_pool1d adaptive_max_pool1d_with_indices;
    2 4
    max_pool2d max_pool2d_with_indices max_pool2d_gradient max_unpool2d avg_pool2d avg_pool2d_gradient avg_pool2d_with_divisor fractional_max_pool2d
    fractional_max_pool2d_with_indices lp_pool2d
    adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices;
    3 5
    max_pool3d max_pool3d_with_indices max_pool3d_gradient max_unpool3d avg_pool3d avg_pool3d_gradient avg_pool3d_with_divisor fractional_max_pool3d
    fractional_max_pool3d_with_indices lp_pool3d
    adaptive_avg_pool3d adaptive_max_pool3d adaptive_max_pool3d_with_indices;
}
