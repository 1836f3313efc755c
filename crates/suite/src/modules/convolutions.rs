//! Convolutions, padding and images.

use super::{ModuleRow, Twin, one, row, t};
use crate::case::Fill;
use crate::methods::{floats, normal};
use kiln_backends::Dyn;
use kiln_nn::*;

fn pad() -> Twin {
    Twin::Golden("nn_layer", "pad")
}

pub(super) fn rows() -> Vec<ModuleRow> {
    let mut rows = convolutions();
    rows.extend(padding());
    rows.extend(images());
    rows
}

fn convolutions() -> Vec<ModuleRow> {
    vec![
        row!(
            "Conv1d",
            Twin::Golden("conv", "conv1d"),
            |d| Conv1dConfig::new([2, 3], [2]).init::<Dyn>(d),
            3,
            normal(&[1, 2, 3])
        ),
        row!(
            "ConvTranspose1d",
            Twin::Golden("conv", "conv_transpose1d"),
            |d| ConvTranspose1dConfig::new([2, 3], [2]).init::<Dyn>(d),
            3,
            normal(&[1, 2, 3])
        ),
        row!(
            "Conv2d",
            Twin::Golden("conv", "conv2d"),
            |d| Conv2dConfig::new([2, 3], [2, 2]).init::<Dyn>(d),
            4,
            normal(&[1, 2, 3, 3])
        ),
        row!(
            "ConvTranspose2d",
            Twin::Golden("conv", "conv_transpose2d"),
            |d| ConvTranspose2dConfig::new([2, 3], [2, 2]).init::<Dyn>(d),
            4,
            normal(&[1, 2, 3, 3])
        ),
        row!(
            "Conv3d",
            Twin::Golden("conv", "conv3d"),
            |d| Conv3dConfig::new([2, 3], [2, 2, 2]).init::<Dyn>(d),
            5,
            normal(&[1, 2, 3, 3, 3])
        ),
        row!(
            "ConvTranspose3d",
            Twin::Golden("conv", "conv_transpose3d"),
            |d| ConvTranspose3dConfig::new([2, 3], [2, 2, 2]).init::<Dyn>(d),
            5,
            normal(&[1, 2, 3, 3, 3])
        ),
        row!(
            "DeformConv2d",
            Twin::Golden("method_module", "deform_conv2d"),
            |d| DeformConv2dConfig::new([2, 3], [2, 2]).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), None)),
            [normal(&[1, 2, 3, 3]), floats(&[1, 8, 2, 2], Fill::Uniform(0.1, 0.4))]
        ),
    ]
}

fn padding() -> Vec<ModuleRow> {
    vec![
        row!("ZeroPad1d", pad(), |_| ZeroPad1d::uniform(1), 3, normal(&[1, 2, 3])),
        row!("ZeroPad2d", pad(), |_| ZeroPad2d::uniform(1), 4, normal(&[1, 2, 3, 3])),
        row!("ZeroPad3d", pad(), |_| ZeroPad3d::uniform(1), 5, normal(&[1, 2, 3, 3, 3])),
        row!("ReflectionPad1d", pad(), |_| ReflectionPad1d::uniform(1), 3, normal(&[1, 2, 3])),
        row!("ReflectionPad2d", pad(), |_| ReflectionPad2d::uniform(1), 4, normal(&[1, 2, 3, 3])),
        row!("ReflectionPad3d", pad(), |_| ReflectionPad3d::uniform(1), 5, normal(&[1, 2, 3, 3, 3])),
        row!("ReplicationPad1d", pad(), |_| ReplicationPad1d::uniform(1), 3, normal(&[1, 2, 3])),
        row!("ReplicationPad2d", pad(), |_| ReplicationPad2d::uniform(1), 4, normal(&[1, 2, 3, 3])),
        row!("ReplicationPad3d", pad(), |_| ReplicationPad3d::uniform(1), 5, normal(&[1, 2, 3, 3, 3])),
        row!("CircularPad1d", pad(), |_| CircularPad1d::uniform(1), 3, normal(&[1, 2, 3])),
        row!("CircularPad2d", pad(), |_| CircularPad2d::uniform(1), 4, normal(&[1, 2, 3, 3])),
        row!("CircularPad3d", pad(), |_| CircularPad3d::uniform(1), 5, normal(&[1, 2, 3, 3, 3])),
        row!("ConstantPad1d", pad(), |_| ConstantPad1d::uniform(1, 0.5), 3, normal(&[1, 2, 3])),
        row!("ConstantPad2d", pad(), |_| ConstantPad2d::uniform(1, 0.5), 4, normal(&[1, 2, 3, 3])),
        row!("ConstantPad3d", pad(), |_| ConstantPad3d::uniform(1, 0.5), 5, normal(&[1, 2, 3, 3, 3])),
    ]
}

fn images() -> Vec<ModuleRow> {
    vec![
        row!(
            "Interpolate1d",
            Twin::Golden("resize", "resize"),
            |_| Interpolate1dConfig::new().with_output_size(Some([4])).init(),
            3,
            normal(&[1, 2, 3])
        ),
        row!(
            "Interpolate2d",
            Twin::Golden("resize", "resize"),
            |_| Interpolate2dConfig::new().with_output_size(Some([4, 4])).init(),
            4,
            normal(&[1, 2, 3, 3])
        ),
        row!(
            "Interpolate3d",
            Twin::Golden("resize", "resize"),
            |_| Interpolate3dConfig::new().with_output_size(Some([4, 4, 4])).init(),
            5,
            normal(&[1, 2, 3, 3, 3])
        ),
        row!(
            "Upsample",
            Twin::Golden("nn_layer", "upsample"),
            |_| Upsample::bilinear(2.0),
            4,
            normal(&[1, 2, 2, 3])
        ),
        row!(
            "PixelShuffle",
            Twin::Golden("index", "pixel_shuffle"),
            |_| PixelShuffleConfig::new(2).init(),
            4,
            normal(&[1, 4, 2, 2])
        ),
        row!(
            "PixelUnshuffle",
            Twin::Golden("index", "pixel_unshuffle"),
            |_| PixelUnshuffleConfig::new(2).init(),
            4,
            normal(&[1, 1, 4, 4])
        ),
        row!(
            "ChannelShuffle",
            Twin::Golden("nn_layer", "channel_shuffle"),
            |_| ChannelShuffleConfig::new(2).init(),
            3,
            normal(&[1, 4, 2])
        ),
        row!(
            "Unfold4d",
            Twin::Golden("nn_layer", "unfold"),
            |_| Unfold4dConfig::new([2, 2]).init(),
            4,
            normal(&[1, 2, 3, 3])
        ),
        row!(
            "Fold4d",
            Twin::Golden("nn_layer", "fold"),
            |_| Fold4dConfig::new([3, 3], [2, 2]).init(),
            3,
            normal(&[1, 4, 4])
        ),
    ]
}
