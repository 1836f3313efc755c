//! Pooling.

use super::{ModuleRow, Twin, one, row, t};
use crate::methods::{Method, distinct, normal, positive};
use kiln_nn::*;

fn pool(op: &'static str) -> Twin {
    Twin::Golden("pool", op)
}

fn once(method: Method) -> Method {
    method.once("a maximum is piecewise linear")
}

pub(super) fn rows() -> Vec<ModuleRow> {
    vec![
        row!("MaxPool1d", pool("max_pool1d"), |_| MaxPool1dConfig::new([2]).init(), 3, distinct(&[1, 2, 4]))
            .with(once),
        row!("AvgPool1d", pool("avg_pool1d"), |_| AvgPool1dConfig::new([2]).init(), 3, normal(&[1, 2, 4])),
        row!(
            "LpPool1d",
            Twin::Golden("nn_layer", "lp_pool1d"),
            |_| LpPool1dConfig::new(2.0, [2]).init(),
            3,
            positive(&[1, 2, 4])
        ),
        row!(
            "AdaptiveAvgPool1d",
            pool("adaptive_avg_pool1d"),
            |_| AdaptiveAvgPool1dConfig::new([2]).init(),
            3,
            normal(&[1, 2, 4])
        ),
        row!(
            "AdaptiveMaxPool1d",
            Twin::Golden("pool", "adaptive_max_pool1d"),
            |_| AdaptiveMaxPool1dConfig::new([2]).init(),
            3,
            distinct(&[1, 2, 4])
        )
        .with(once),
        row!(
            "MaxUnpool1d",
            Twin::Golden("nn_layer", "max_unpool"),
            |_| MaxUnpool1dConfig::new([2]).init(),
            |m, x| {
                let (y, indices) = MaxPool1dConfig::new([2]).init().forward_with_indices(t(&x[0]));
                one(m.forward(y, indices))
            },
            [distinct(&[1, 2, 4])]
        )
        .with(once),
        row!(
            "MaxPool2d",
            pool("max_pool2d"),
            |_| MaxPool2dConfig::new([2, 2]).init(),
            4,
            distinct(&[1, 2, 4, 4])
        )
        .with(once),
        row!(
            "AvgPool2d",
            pool("avg_pool2d"),
            |_| AvgPool2dConfig::new([2, 2]).init(),
            4,
            normal(&[1, 2, 4, 4])
        ),
        row!(
            "LpPool2d",
            Twin::Golden("nn_layer", "lp_pool2d"),
            |_| LpPool2dConfig::new(2.0, [2, 2]).init(),
            4,
            positive(&[1, 2, 4, 4])
        ),
        row!(
            "AdaptiveAvgPool2d",
            pool("adaptive_avg_pool2d"),
            |_| AdaptiveAvgPool2dConfig::new([2, 2]).init(),
            4,
            normal(&[1, 2, 4, 4])
        ),
        row!(
            "AdaptiveMaxPool2d",
            Twin::Golden("pool", "adaptive_max_pool2d"),
            |_| AdaptiveMaxPool2dConfig::new([2, 2]).init(),
            4,
            distinct(&[1, 2, 4, 4])
        )
        .with(once),
        row!(
            "MaxUnpool2d",
            Twin::Golden("nn_layer", "max_unpool"),
            |_| MaxUnpool2dConfig::new([2, 2]).init(),
            |m, x| {
                let (y, indices) = MaxPool2dConfig::new([2, 2]).init().forward_with_indices(t(&x[0]));
                one(m.forward(y, indices))
            },
            [distinct(&[1, 2, 4, 4])]
        )
        .with(once),
        row!(
            "MaxPool3d",
            pool("max_pool3d"),
            |_| MaxPool3dConfig::new([2, 2, 2]).init(),
            5,
            distinct(&[1, 2, 4, 4, 4])
        )
        .with(once),
        row!(
            "AvgPool3d",
            pool("avg_pool3d"),
            |_| AvgPool3dConfig::new([2, 2, 2]).init(),
            5,
            normal(&[1, 2, 4, 4, 4])
        ),
        row!(
            "LpPool3d",
            Twin::Golden("nn_layer", "lp_pool3d"),
            |_| LpPool3dConfig::new(2.0, [2, 2, 2]).init(),
            5,
            positive(&[1, 2, 4, 4, 4])
        ),
        row!(
            "AdaptiveAvgPool3d",
            pool("adaptive_avg_pool3d"),
            |_| AdaptiveAvgPool3dConfig::new([2, 2, 2]).init(),
            5,
            normal(&[1, 2, 4, 4, 4])
        ),
        row!(
            "AdaptiveMaxPool3d",
            Twin::Golden("nn_layer", "adaptive_max_pool3d"),
            |_| AdaptiveMaxPool3dConfig::new([2, 2, 2]).init(),
            5,
            distinct(&[1, 2, 4, 4, 4])
        )
        .with(once),
        row!(
            "MaxUnpool3d",
            Twin::Golden("nn_layer", "max_unpool"),
            |_| MaxUnpool3dConfig::new([2, 2, 2]).init(),
            |m, x| {
                let (y, indices) = MaxPool3dConfig::new([2, 2, 2]).init().forward_with_indices(t(&x[0]));
                one(m.forward(y, indices))
            },
            [distinct(&[1, 2, 4, 4, 4])]
        )
        .with(once),
        row!(
            "FractionalMaxPool2d",
            Twin::Golden("nn_layer", "fractional_max_pool"),
            |_| FractionalMaxPool2dConfig::new([2, 2]).with_output_size(Some([2, 2])).init(),
            4,
            distinct(&[1, 2, 4, 4])
        )
        .with(once),
        row!(
            "FractionalMaxPool3d",
            Twin::Golden("nn_layer", "fractional_max_pool"),
            |_| FractionalMaxPool3dConfig::new([2, 2, 2]).with_output_size(Some([2, 2, 2])).init(),
            5,
            distinct(&[1, 2, 4, 4, 4])
        )
        .with(once),
    ]
}
