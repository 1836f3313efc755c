//! Paddings of convolutions and pooling. Expected values are from PyTorch 1.13: `F.pad`, then the layer without padding.

use kiln as burn;

use burn::backend::Flex;
use burn::module::Param;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AvgPool1dConfig, AvgPool2dConfig, MaxPool1dConfig, MaxPool2dConfig, MaxPool3dConfig};
use burn::nn::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use burn::prelude::*;

type B = burn::backend::Autodiff<Flex>;

fn image() -> Tensor<B, 4> {
    let image = [[-1.0f32, -2.0, -3.0, 4.0], [5.0, -6.0, 7.0, -8.0], [-9.0, 10.0, -11.0, 12.0]];
    Tensor::from_data([[image]], &Default::default())
}

fn values<const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().to_vec()
}

/// One row above, two columns at the left, none below, one at the right.
const UNEQUAL: PaddingConfig2d = PaddingConfig2d::Explicit(1, 2, 0, 1);

#[test]
fn max_pooling_with_unequal_padding() {
    let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(UNEQUAL).init();
    let x = image().require_grad();
    let y = pool.forward(x.clone());
    assert_eq!((y.dims(), values(y.clone())), ([1, 1, 1, 3], vec![5.0, 7.0, 7.0]));
    let gradient = x.grad(&y.sum().backward()).unwrap().into_data().to_vec::<f32>();
    assert_eq!(gradient, [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn average_pooling_with_unequal_padding() {
    let pool = AvgPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(UNEQUAL);
    let near = |y: Tensor<B, 4>, expected: [f32; 3]| {
        let y = values(y);
        assert!(y.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
    };
    near(pool.init().forward(image()), [4.0 / 9.0, 0.0, 0.0]);
    near(pool.with_count_include_pad(false).init().forward(image()), [2.0, 0.0, 0.0]);
}

#[test]
fn same_padding_keeps_lengths_of_even_windows() {
    let pool = MaxPool2dConfig::new([2, 2]).with_strides([1, 1]).with_padding(PaddingConfig2d::Same).init();
    let (y, indices) = pool.forward_with_indices(image());
    assert_eq!(values(y), [5.0, 7.0, 7.0, 4.0, 10.0, 10.0, 12.0, 12.0, 10.0, 10.0, 12.0, 12.0]);
    assert_eq!(indices.into_data().to_vec::<i32>(), [4, 6, 6, 3, 9, 9, 11, 11, 9, 9, 11, 11]);
    // Padding of more than half a window, which the dilation spreads.
    let x = Tensor::<B, 3>::from_data([[[1.0, -2.0, 3.0, 5.0, -7.0]]], &Default::default());
    let pool = MaxPool1dConfig::new([3]).with_strides([1]).with_dilation([2]);
    let y = pool.with_padding(PaddingConfig1d::Same).init().forward(x);
    assert_eq!(values(y), [3.0, 5.0, 3.0, 5.0, 3.0]);
}

#[test]
fn paddings_of_other_ranks() {
    let x = || Tensor::<B, 3>::from_data([[[1.0, -2.0, 3.0, 5.0]]], &Default::default());
    let pool = MaxPool1dConfig::new([3]).with_strides([1]).with_padding(PaddingConfig1d::Explicit(2, 0));
    assert_eq!(values(pool.init().forward(x())), [1.0, 1.0, 3.0, 5.0]);
    let pool = AvgPool1dConfig::new([3]).with_strides([1]).with_padding(PaddingConfig1d::Explicit(2, 0));
    let y = values(pool.init().forward(x()));
    assert!(
        y.iter().zip([1.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0, 2.0]).all(|(a, b)| (a - b).abs() < 1e-6),
        "{y:?}"
    );
    let pool = MaxPool3dConfig::new([2, 2, 2]).with_padding(PaddingConfig3d::Explicit(0, 1, 1)).init();
    assert_eq!(
        pool.forward(Tensor::<B, 5>::ones([1, 1, 2, 2, 4], &Default::default())).dims(),
        [1, 1, 1, 2, 3]
    );
}

#[test]
fn a_convolution_with_unequal_padding() {
    let kernel = Tensor::<B, 1, Int>::arange(0..9, &Default::default()).float().reshape([1, 1, 3, 3]);
    let config = Conv2dConfig::new([1, 1], [3, 3]).with_bias(false);
    let conv: Conv2d<B> = config.clone().with_padding(UNEQUAL).init(&Default::default());
    let conv = Conv2d { weight: Param::from_tensor(kernel), ..conv };
    let expected = [35.0, -27.0, 18.0, -49.0, -7.0, -49.0, 2.0, -54.0, 54.0, 11.0];
    assert_eq!(values(conv.forward(image())), expected);
    // Arrays: both ends of each dimension, or pairs.
    assert_eq!(config.clone().with_padding([1, 2]).padding, PaddingConfig2d::Sides([(1, 1), (2, 2)]));
    assert_eq!(config.with_padding([(1, 0), (2, 1)]).padding, PaddingConfig2d::Sides([(1, 0), (2, 1)]));
}
