//! Functions behind neural network modules.

use super::{Method, distinct, floats, ints, normal, one, positive, two, uniform};
use crate::case::Fill;
use kiln_ir::ConvSpec;
use kiln_tensor::AnyTensor;
use kiln_tensor::module::{
    AttentionOptions, BagMode, BatchNormOptions, Causal, DeformConvSpec, EmbeddingOptions, InterpolateMode,
    InterpolateOptions, Pooling, RotaryLayout,
};

const MAXIMUM: &str = "a maximum is piecewise linear";
const NUMBERS: &str = "the result holds no floats";
const TABLE: &str = "made from nothing";
const UNSCALED: &str = "it is that of the rows before they are scaled";

pub(super) fn rows() -> Vec<Method> {
    let mut rows = linear();
    rows.extend(convolutions());
    rows.extend(poolings());
    rows.extend(adaptive());
    rows.extend(norms());
    rows.extend(dropouts());
    rows.extend(tables());
    rows.extend(attention());
    rows.extend(images());
    rows
}

fn linear() -> Vec<Method> {
    vec![
        Method::new("linear", |x| one(x[0].clone().linear(x[1].clone(), Some(x[2].clone()))))
            .on(&[normal(&[2, 3]), normal(&[4, 3]), normal(&[4])])
            .on(&[normal(&[3]), normal(&[4, 3]), normal(&[4])])
            .on(&[normal(&[2, 0, 3]), normal(&[4, 3]), normal(&[4])]),
        Method::new("bilinear", |x| {
            one(x[0].clone().bilinear(x[1].clone(), x[2].clone(), Some(x[3].clone())))
        })
        .on(&[normal(&[2, 3]), normal(&[2, 2]), normal(&[4, 3, 2]), normal(&[4])])
        .on(&[normal(&[3]), normal(&[2]), normal(&[4, 3, 2]), normal(&[4])]),
    ]
}

fn conv_spec() -> ConvSpec {
    ConvSpec { stride: vec![2, 1], padding: vec![(1, 0), (1, 1)], dilation: vec![1, 2], groups: 2 }
}

fn convolutions() -> Vec<Method> {
    vec![
        Method::new("conv", |x| one(x[0].clone().conv(x[1].clone(), Some(x[2].clone()), &conv_spec())))
            .on(&[normal(&[1, 4, 4, 5]), normal(&[2, 2, 2, 2]), normal(&[2])]),
        Method::new("conv", |x| one(x[0].clone().conv(x[1].clone(), None, &ConvSpec::new(1))))
            .variant("one axis")
            .on(&[normal(&[2, 2, 4]), normal(&[3, 2, 2])]),
        Method::new("conv_transpose", |x| {
            one(x[0].clone().conv_transpose(x[1].clone(), Some(x[2].clone()), &conv_spec(), &[1, 0]))
        })
        .on(&[normal(&[1, 4, 2, 3]), normal(&[4, 1, 2, 2]), normal(&[2])]),
        Method::new("conv_input_gradient", |x| {
            one(x[0].clone().conv_input_gradient(x[1].clone(), &[4, 5], &conv_spec()))
        })
        .on(&[normal(&[1, 2, 2, 5]), normal(&[2, 2, 2, 2])]),
        Method::new("conv_weight_gradient", |x| {
            one(x[0].clone().conv_weight_gradient(x[1].clone(), &[2, 2], &conv_spec()))
        })
        .on(&[normal(&[1, 4, 4, 5]), normal(&[1, 2, 2, 5])]),
        Method::new("deform_conv2d", |x| {
            let spec = DeformConvSpec { padding: [1, 1], groups: 2, offset_groups: 2, ..Default::default() };
            let (mask, bias) = (Some(x[3].clone()), Some(x[4].clone()));
            one(x[0].clone().deform_conv2d(x[1].clone(), x[2].clone(), mask, bias, &spec))
        })
        .on(&[
            normal(&[1, 4, 3, 3]),
            floats(&[1, 16, 4, 4], OFFSETS),
            normal(&[2, 2, 2, 2]),
            positive(&[1, 8, 4, 4]),
            normal(&[2]),
        ]),
        Method::new("unfold4d", |x| one(x[0].clone().unfold4d([2, 2], &window_spec())))
            .on(&[normal(&[1, 2, 4, 5])]),
        Method::new("fold4d", |x| one(x[0].clone().fold4d([4, 5], [2, 2], &window_spec())))
            .on(&[normal(&[1, 8, 10])]),
    ]
}

/// Offsets between the elements of the image, where sampling is smooth.
const OFFSETS: Fill = Fill::Among(&[-1.3, -0.6, -0.2, 0.3, 0.7, 1.4]);

fn window_spec() -> ConvSpec {
    ConvSpec { groups: 1, ..conv_spec() }
}

fn pooling() -> Pooling {
    Pooling {
        window: vec![2, 3],
        stride: vec![2, 1],
        padding: vec![(1, 1); 2],
        dilation: vec![1, 1],
        ceil_mode: true,
    }
}

fn poolings() -> Vec<Method> {
    vec![
        Method::new("max_pool", |x| one(x[0].clone().max_pool(&pooling())))
            .on(&[distinct(&[1, 2, 4, 5])])
            .once(MAXIMUM),
        Method::new("max_pool_with_indices", |x| two(x[0].clone().max_pool_with_indices(&pooling())))
            .on(&[distinct(&[1, 2, 4, 5])])
            .once(MAXIMUM),
        Method::new("max_pool_gradient", |x| {
            let pooling = Pooling::new(&[2]);
            one(x[0].clone().max_pool_gradient(x[1].clone(), &pooling))
        })
        .on(&[normal(&[1, 2, 3]), distinct(&[1, 2, 6])])
        .once(MAXIMUM),
        Method::new("max_unpool", |x| one(x[0].clone().max_unpool(x[1].clone(), &[2, 3])))
            .on(&[normal(&[2, 1, 1, 1]), ints(0, 5, &[2, 1, 1, 1])]),
        Method::new("avg_pool", |x| one(x[0].clone().avg_pool(&pooling(), false)))
            .on(&[normal(&[1, 2, 4, 5])]),
        Method::new("avg_pool_with_divisor", |x| one(x[0].clone().avg_pool_with_divisor(&pooling(), 3)))
            .on(&[normal(&[1, 2, 4, 5])]),
        Method::new("avg_pool_with_divisor", |x| {
            let pooling = Pooling { stride: vec![2, 3], ceil_mode: true, ..Pooling::new(&[3, 2]) };
            one(x[0].clone().avg_pool_with_divisor(&pooling, 2))
        })
        .variant("over the end")
        .on(&[normal(&[1, 2, 6, 6])]),
        Method::new("avg_pool_with_divisor", |x| {
            let pooling = Pooling {
                stride: vec![2, 1, 2],
                padding: vec![(1, 1), (0, 0), (1, 1)],
                ceil_mode: true,
                ..Pooling::new(&[2, 2, 2])
            };
            one(x[0].clone().avg_pool_with_divisor(&pooling, 5))
        })
        .variant("three axes")
        .on(&[normal(&[1, 2, 4, 3, 3])]),
        Method::new("fractional_max_pool", |x| {
            one(x[0].clone().fractional_max_pool(&[2, 1, 2], &[2, 3, 1], Some(x[1].clone())))
        })
        .variant("three axes")
        .on(&[distinct(&[1, 2, 4, 5, 3]), uniform(0.05, 0.95, &[1, 2, 3]).constant()])
        .once(MAXIMUM),
        Method::new("fractional_max_pool", |x| {
            one(x[0].clone().fractional_max_pool(&[2, 2], &[3, 2], Some(x[1].clone())))
        })
        .on(&[distinct(&[1, 2, 6, 5]), uniform(0.05, 0.95, &[1, 2, 2]).constant()])
        .once(MAXIMUM),
        Method::new("fractional_max_pool_with_indices", |x| {
            two(x[0].clone().fractional_max_pool_with_indices(&[2, 2], &[3, 2], Some(x[1].clone())))
        })
        .on(&[distinct(&[1, 2, 6, 5]), uniform(0.05, 0.95, &[1, 2, 2]).constant()])
        .once(MAXIMUM),
        Method::new("avg_pool", |x| one(x[0].clone().avg_pool(&pooling(), true)))
            .variant("padding counts")
            .on(&[normal(&[1, 2, 4, 5])]),
        Method::new("avg_pool_gradient", |x| {
            one(x[0].clone().avg_pool_gradient(&[5], &Pooling::new(&[2]), true))
        })
        .on(&[normal(&[1, 2, 2])]),
        Method::new("lp_pool", |x| one(x[0].clone().lp_pool(3.0, &Pooling::new(&[2, 2]))))
            .on(&[positive(&[1, 2, 4, 4])]),
    ]
}

fn adaptive() -> Vec<Method> {
    vec![
        Method::new("adaptive_avg_pool", |x| one(x[0].clone().adaptive_avg_pool(&[3, 2])))
            .on(&[normal(&[1, 2, 5, 4])])
            .on(&[normal(&[1, 2, 6, 4])])
            .on(&[normal(&[0, 2, 5, 4])]),
        Method::new("adaptive_max_pool", |x| one(x[0].clone().adaptive_max_pool(&[3, 2])))
            .on(&[distinct(&[1, 2, 5, 4])])
            .on(&[distinct(&[1, 2, 2, 4])]),
        Method::new("adaptive_max_pool_with_indices", |x| {
            two(x[0].clone().adaptive_max_pool_with_indices(&[3]))
        })
        .on(&[distinct(&[1, 2, 5])]),
    ]
}

fn norms() -> Vec<Method> {
    vec![
        Method::new("layer_norm", |x| {
            one(x[0].clone().layer_norm(2, Some(x[1].clone()), Some(x[2].clone()), 1e-5))
        })
        .on(&[distinct(&[2, 3, 4]), normal(&[3, 4]), normal(&[3, 4])])
        .within(128.0),
        Method::new("layer_norm", |x| one(x[0].clone().layer_norm(1, None, Some(x[1].clone()), 1e-5)))
            .variant("bias alone")
            .on(&[distinct(&[2, 4]), normal(&[4])])
            .within(128.0),
        Method::new("rms_norm", |x| one(x[0].clone().rms_norm(1, Some(x[1].clone()), 1e-5)))
            .on(&[normal(&[2, 3, 4]), normal(&[4])]),
        Method::new("group_norm", |x| {
            one(x[0].clone().group_norm(2, Some(x[1].clone()), Some(x[2].clone()), 1e-5))
        })
        .on(&[distinct(&[2, 4, 3]), normal(&[4]), normal(&[4])])
        .within(128.0),
        Method::new("instance_norm", |x| {
            one(x[0].clone().instance_norm(Some(x[1].clone()), Some(x[2].clone()), 1e-5))
        })
        .on(&[distinct(&[2, 3, 5]), normal(&[3]), normal(&[3])])
        .within(128.0),
        Method::new("batch_norm", |x| {
            let options = BatchNormOptions { training: true, ..BatchNormOptions::default() };
            let (weight, bias) = (Some(x[1].clone()), Some(x[2].clone()));
            x[0].clone().batch_norm(None, weight, bias, options).map(|(y, _)| vec![y])
        })
        .on(&[distinct(&[4, 3, 2]), normal(&[3]), normal(&[3])])
        .within(128.0),
        Method::new("batch_norm", |x| {
            let options = BatchNormOptions { training: true, ..BatchNormOptions::default() };
            let (_, running) =
                x[0].clone().batch_norm(Some((x[1].clone(), x[2].clone())), None, None, options)?;
            Ok(running.map_or_else(Vec::new, |(mean, variance)| vec![mean, variance]))
        })
        .variant("statistics")
        .on(&[distinct(&[4, 3, 2]).constant(), normal(&[3]), positive(&[3])]),
        Method::new("batch_norm", |x| {
            let running = Some((x[1].clone(), x[2].clone()));
            let options = BatchNormOptions::default();
            x[0].clone().batch_norm(running, None, None, options).map(|(y, _)| vec![y])
        })
        .variant("by running statistics")
        .on(&[normal(&[2, 3]), normal(&[3]), positive(&[3])]),
        Method::new("batch_norm_by_batch", |x| {
            let (weight, bias) = (Some(x[1].clone()), Some(x[2].clone()));
            one(x[0].clone().batch_norm_by_batch(weight, bias, 1e-5, |_| Ok(())))
        })
        .on(&[distinct(&[4, 3, 2]), normal(&[3]), normal(&[3])])
        .within(128.0),
        Method::new("local_response_norm", |x| one(x[0].clone().local_response_norm(3, 0.5, 0.75, 1.0)))
            .on(&[normal(&[2, 5, 2])])
            .on(&[normal(&[2, 0, 2])]),
    ]
}

fn dropouts() -> Vec<Method> {
    const DRAWN: &str = "a number of 16 bits may lie on the other side of the probability";
    vec![
        Method::new("dropout", |x| one(x[0].clone().dropout(0.5, true)))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[0, 4])])
            .no_half(DRAWN),
        Method::new("dropout", |x| one(x[0].clone().dropout(0.5, false)))
            .variant("not training")
            .on(&[normal(&[3, 4])]),
        Method::new("dropout_channels", |x| one(x[0].clone().dropout_channels(0.5, true)))
            .on(&[normal(&[2, 3, 4])])
            .no_half(DRAWN),
        Method::new("alpha_dropout", |x| one(x[0].clone().alpha_dropout(0.5, true)))
            .on(&[normal(&[3, 4])])
            .no_half(DRAWN),
    ]
}

fn tables() -> Vec<Method> {
    vec![
        Method::new("embedding", |x| one(x[0].clone().embedding(x[1].clone())))
            .on(&[normal(&[5, 3]), ints(0, 4, &[2, 3])])
            .on(&[normal(&[5, 3]), ints(0, 4, &[])])
            .on(&[normal(&[5, 3]), ints(0, 4, &[2, 0])]),
        Method::new("embedding_with", |x| {
            let options = EmbeddingOptions { max_norm: Some(1.0), ..EmbeddingOptions::default() };
            one(x[0].clone().embedding_with(x[1].clone(), &options))
        })
        .on(&[normal(&[4, 3]), ints(0, 3, &[2, 3])])
        .no_gradient(UNSCALED),
        Method::new("embedding_with", |x| {
            let options = EmbeddingOptions { padding_idx: Some(2), ..EmbeddingOptions::default() };
            one(x[0].clone().embedding_with(x[1].clone(), &options))
        })
        .variant("padding")
        .on(&[normal(&[4, 3]), ints(0, 3, &[2, 3])])
        .no_gradient("that of the padding is left out"),
        Method::new("embedding_with", |x| {
            let options = EmbeddingOptions { padding_idx: Some(0), max_norm: Some(2.0), norm_type: 1.0 };
            one(x[0].clone().embedding_with(x[1].clone(), &options))
        })
        .variant("padding, norm 1")
        .on(&[normal(&[4, 3]), ints(0, 3, &[2, 3])])
        .no_gradient(UNSCALED),
        Method::new("embedding_bag", |x| {
            one(x[0].clone().embedding_bag(x[1].clone(), Some(x[2].clone()), BagMode::Sum))
        })
        .on(&[normal(&[5, 3]), ints(0, 4, &[2, 3]), normal(&[2, 3])])
        .on(&[normal(&[5, 3]), ints(0, 4, &[2, 0]), normal(&[2, 0])]),
        Method::new("embedding_bag", |x| one(x[0].clone().embedding_bag(x[1].clone(), None, BagMode::Mean)))
            .variant("mean")
            .on(&[normal(&[5, 3]), ints(0, 4, &[2, 3])]),
        Method::new("embedding_bag_offsets", |x| {
            let offsets = AnyTensor::from_data([0, 2, 2], x[0].stack());
            one(x[0].clone().embedding_bag_offsets(x[1].clone(), offsets, None, BagMode::Mean))
        })
        .on(&[normal(&[5, 3]), ints(0, 4, &[6])]),
        Method::new("embedding_bag_offsets", |x| {
            let offsets = AnyTensor::from_data([0, 2, 2], x[0].stack());
            one(x[0].clone().embedding_bag_offsets(x[1].clone(), offsets, Some(x[2].clone()), BagMode::Sum))
        })
        .variant("weighted")
        .on(&[normal(&[5, 3]), ints(0, 4, &[6]), normal(&[6])]),
    ]
}

fn attention() -> Vec<Method> {
    vec![
        Method::new("attention", |x| {
            let options = AttentionOptions { causal: Causal::Last, ..Default::default() };
            one(x[0].clone().attention(x[1].clone(), x[2].clone(), None, options))
        })
        .on(&[normal(&[1, 2, 2, 3]), normal(&[1, 1, 3, 3]), normal(&[1, 1, 3, 2])]),
        Method::new("attention", |x| {
            let options = AttentionOptions { scale: Some(0.5), causal: Causal::First };
            one(x[0].clone().attention(x[1].clone(), x[2].clone(), Some(x[3].clone()), options))
        })
        .variant("masked")
        .on(&[normal(&[1, 2, 3, 2]), normal(&[1, 2, 3, 2]), normal(&[1, 2, 3, 2]), normal(&[3, 3])]),
        Method::new("causal_mask", |x| one(AnyTensor::causal_mask(2, 4, Causal::Last, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(TABLE),
        Method::new("padding_mask", |x| one(x[0].clone().padding_mask(4)))
            .on(&[ints(0, 4, &[3])])
            .no_gradient(NUMBERS),
        Method::new("rotary_embedding", |x| {
            one(x[0].clone().rotary_embedding(x[1].clone(), x[2].clone(), RotaryLayout::Halves))
        })
        .on(&[normal(&[2, 3, 4]), normal(&[3, 2]), normal(&[3, 2])]),
        Method::new("rotary_embedding", |x| {
            one(x[0].clone().rotary_embedding(x[1].clone(), x[2].clone(), RotaryLayout::Interleaved))
        })
        .variant("interleaved")
        .on(&[normal(&[2, 3, 4]), normal(&[3, 2]), normal(&[3, 2])]),
        Method::new("rotary_angles", |x| {
            two(AnyTensor::rotary_angles(2, 3, 4, 1e4, x[0].dtype(), x[0].stack()))
        })
        .on(&[normal(&[1])])
        .no_gradient(TABLE),
        Method::new("sinusoidal_positions", |x| {
            one(AnyTensor::sinusoidal_positions(3, 4, 1e4, x[0].dtype(), x[0].stack()))
        })
        .on(&[normal(&[1])])
        .no_gradient(TABLE),
    ]
}

fn images() -> Vec<Method> {
    fn smooth(mode: InterpolateMode, antialias: bool) -> InterpolateOptions {
        InterpolateOptions { mode, antialias, align_corners: false }
    }
    vec![
        Method::new("interpolate", |x| {
            one(x[0].clone().interpolate([5usize, 3], InterpolateOptions::new(InterpolateMode::Linear)))
        })
        .on(&[normal(&[1, 2, 3, 4])]),
        Method::new("interpolate", |x| {
            one(x[0].clone().interpolate([1.6, 0.6], InterpolateOptions::new(InterpolateMode::Cubic)))
        })
        .variant("cubic by factors")
        .on(&[uniform(-1.0, 1.0, &[1, 2, 3, 4])]),
        Method::new("interpolate", |x| {
            one(x[0].clone().interpolate([5usize], InterpolateOptions::new(InterpolateMode::NearestExact)))
        })
        .variant("nearest exact")
        .on(&[normal(&[1, 2, 4])]),
        Method::new("interpolate", |x| {
            one(x[0].clone().interpolate([2usize, 3], smooth(InterpolateMode::Linear, true)))
        })
        .variant("antialiased")
        .on(&[normal(&[1, 2, 5, 4])]),
        Method::new("interpolate", |x| {
            one(x[0].clone().interpolate([2usize, 3], InterpolateOptions::new(InterpolateMode::Area)))
        })
        .variant("area")
        .on(&[normal(&[1, 2, 5, 4])]),
        Method::new("pixel_shuffle", |x| one(x[0].clone().pixel_shuffle(2)))
            .on(&[normal(&[1, 8, 2, 3])])
            .on(&[normal(&[4, 2, 0])]),
        Method::new("pixel_unshuffle", |x| one(x[0].clone().pixel_unshuffle(2)))
            .on(&[normal(&[1, 2, 4, 6])])
            .on(&[normal(&[0, 4, 2])]),
        Method::new("channel_shuffle", |x| one(x[0].clone().channel_shuffle(2)))
            .on(&[normal(&[1, 6, 2])])
            .on(&[normal(&[0, 6])]),
    ]
}
