//! Activations, losses and module functions.

use super::*;
use kiln_tensor::module::{AttentionOptions, ConvOptions, PoolOptions};
use kiln_tensor::{activation, loss, module};

fn image(channels: usize) -> Tensor<Flex, 4> {
    Tensor::ones([1, channels, 8, 8], &DEVICE)
}

/// Logits of 3 classes at 4 places, with the classes as the last axis.
fn sequence() -> Tensor<Flex, 3> {
    Tensor::ones([2, 4, 3], &DEVICE)
}

fn heads(count: usize, dim: usize) -> Tensor<Flex, 4> {
    Tensor::ones([1, count, 5, dim], &DEVICE)
}

fn conv(weight: [usize; 4], options: &ConvOptions<2>) -> Tensor<Flex, 4> {
    module::conv2d(image(3), Tensor::ones(weight, &DEVICE), None, options)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("softmax: an axis out of range", || activation::softmax(x(), 2)),
        panics("log_softmax: an axis out of range", || activation::log_softmax(x(), 4)),
        panics("cross_entropy: a target out of range", || {
            loss::cross_entropy(x(), indices([0, 9]), &Default::default()).into_data()
        }),
        panics("cross_entropy: another batch", || {
            loss::cross_entropy(x(), indices([0, 1, 2]), &Default::default())
        }),
        panics("cross_entropy: classes as the last axis", || {
            loss::cross_entropy(
                sequence(),
                Tensor::<Flex, 2, Int>::zeros([2, 4], &DEVICE),
                &Default::default(),
            )
        }),
        panics("nll: classes as the last axis", || {
            let targets = Tensor::<Flex, 2, Int>::zeros([2, 4], &DEVICE);
            loss::nll(sequence(), targets, &Default::default())
        }),
        fails("cross_entropy: targets with an axis of length 1", || {
            let targets = Tensor::<Flex, 2, Int>::zeros([2, 1], &DEVICE).into_any();
            x().into_any().cross_entropy_loss(targets, &Default::default())
        }),
        fails("cross_entropy: float class indices", || {
            let labels = Tensor::<Flex, 1>::zeros([2], &DEVICE).into_any();
            x().into_any().cross_entropy_loss(labels, &Default::default())
        }),
        fails("cross_entropy: integers for each class", || {
            x().into_any().cross_entropy_loss(i().into_any(), &Default::default())
        }),
        panics("cross_entropy: probabilities of another shape", || {
            loss::cross_entropy(x(), Tensor::<Flex, 2>::ones([2, 4], &DEVICE), &Default::default())
        }),
        panics("mse: shapes", || loss::mse(x(), Tensor::ones([4, 3], &DEVICE), loss::Reduction::Mean)),
        panics("linear: inner sizes", || module::linear(x(), Tensor::ones([5, 4], &DEVICE), None)),
        panics("linear: a bias of another length", || {
            module::linear(x(), Tensor::ones([5, 3], &DEVICE), Some(Tensor::ones([4], &DEVICE)))
        }),
        panics("conv: channels", || conv([4, 2, 3, 3], &ConvOptions::default())),
        panics("conv: groups", || conv([4, 1, 3, 3], &ConvOptions::new([1, 1], [0, 0], [1, 1], 3))),
        panics("conv: a kernel larger than the image", || conv([4, 3, 9, 9], &ConvOptions::default())),
        panics("conv: a stride of 0", || conv([4, 3, 3, 3], &ConvOptions::new([0, 1], [0, 0], [1, 1], 1))),
        panics("conv: a bias of another length", || {
            let weight = Tensor::ones([4, 3, 3, 3], &DEVICE);
            module::conv2d(image(3), weight, Some(Tensor::ones([5], &DEVICE)), &ConvOptions::default())
        }),
        panics("conv_transpose: channels", || {
            let weight = Tensor::ones([4, 2, 3, 3], &DEVICE);
            module::conv_transpose2d(image(3), weight, None, &ConvOptions::default(), [0, 0])
        }),
        panics("max_pool: a window larger than the image", || {
            module::max_pool2d(image(3), &PoolOptions::new([9, 9]))
        }),
        panics("avg_pool: a window of 0", || module::avg_pool2d(image(3), &PoolOptions::new([0, 2]), true)),
        panics("adaptive_avg_pool: no parts", || module::adaptive_avg_pool2d(image(3), [0, 2])),
        panics("embedding: an index out of range", || {
            module::embedding(x(), Tensor::<Flex, 2, Int>::from_ints([[0, 2]], &DEVICE)).into_data()
        }),
        panics("layer_norm: a weight of another length", || {
            module::layer_norm(x(), Some(Tensor::ones([2], &DEVICE)), None, 1e-5)
        }),
        panics("rms_norm: a weight of another length", || {
            module::rms_norm(x(), Some(Tensor::ones([4], &DEVICE)), 1e-5)
        }),
        panics("attention: dims", || {
            module::attention(heads(2, 4), heads(2, 6), heads(2, 6), None, AttentionOptions::default())
        }),
        panics("attention: heads", || {
            module::attention(heads(3, 4), heads(2, 4), heads(2, 4), None, AttentionOptions::default())
        }),
    ]
}
