"""Convolutions and transposed convolutions over one, two and three spatial axes."""

import torch.nn.functional as F

from .case import Case, normal


def _conv(function):
    def run(inputs, attributes):
        return {
            "y": function(
                inputs["x"],
                inputs["weight"],
                inputs.get("bias"),
                stride=attributes["stride"],
                padding=attributes["padding"],
                dilation=attributes["dilation"],
                groups=attributes["groups"],
            )
        }

    return run


def _conv_transpose(function):
    def run(inputs, attributes):
        return {
            "y": function(
                inputs["x"],
                inputs["weight"],
                inputs.get("bias"),
                stride=attributes["stride"],
                padding=attributes["padding"],
                output_padding=attributes["output_padding"],
                groups=attributes["groups"],
                dilation=attributes["dilation"],
            )
        }

    return run


OPERATIONS = {
    "conv1d": _conv(F.conv1d),
    "conv2d": _conv(F.conv2d),
    "conv3d": _conv(F.conv3d),
    "conv_transpose1d": _conv_transpose(F.conv_transpose1d),
    "conv_transpose2d": _conv_transpose(F.conv_transpose2d),
    "conv_transpose3d": _conv_transpose(F.conv_transpose3d),
}


def _case(name, x, weight, stride=1, padding=0, dilation=1, groups=1, bias=True, dtype="f32"):
    rank = len(x) - 2
    inputs = {"x": normal(*x), "weight": normal(*weight, scale=0.5)}
    if bias:
        inputs["bias"] = normal(weight[0])
    attributes = {
        "stride": _per_axis(stride, rank),
        "padding": _per_axis(padding, rank),
        "dilation": _per_axis(dilation, rank),
        "groups": groups,
    }
    return Case(f"conv{rank}d_{name}", f"conv{rank}d", inputs, attributes, dtype=dtype)


def _transposed(
    name, x, weight, stride=1, padding=0, output_padding=0, dilation=1, groups=1, bias=True,
    dtype="f32",
):
    rank = len(x) - 2
    inputs = {"x": normal(*x), "weight": normal(*weight, scale=0.5)}
    if bias:
        inputs["bias"] = normal(weight[1] * groups)
    attributes = {
        "stride": _per_axis(stride, rank),
        "padding": _per_axis(padding, rank),
        "output_padding": _per_axis(output_padding, rank),
        "dilation": _per_axis(dilation, rank),
        "groups": groups,
    }
    op = f"conv_transpose{rank}d"
    return Case(f"{op}_{name}", op, inputs, attributes, dtype=dtype)


def _per_axis(value, rank):
    return [value] * rank if isinstance(value, int) else list(value)


CASES = [
    _case("plain", (2, 3, 8), (4, 3, 3)),
    _case("no_bias", (2, 3, 8), (4, 3, 3), bias=False),
    _case("stride", (2, 3, 9), (4, 3, 3), stride=2),
    _case("stride_beyond_kernel", (2, 3, 9), (2, 3, 2), stride=3),
    _case("padding", (2, 3, 6), (4, 3, 3), padding=2),
    _case("dilation", (2, 3, 9), (4, 3, 3), dilation=2),
    _case("groups", (2, 4, 8), (6, 2, 3), groups=2),
    _case("depthwise", (2, 4, 8), (4, 1, 3), padding=1, groups=4),
    _case("depthwise_multiplier", (2, 3, 7), (6, 1, 3), groups=3),
    _case("pointwise", (2, 3, 6), (5, 3, 1)),
    _case("whole_length", (2, 3, 5), (4, 3, 5)),
    _case("everything", (2, 4, 10), (6, 2, 3), stride=2, padding=3, dilation=2, groups=2),
    _case("f64", (1, 2, 7), (3, 2, 3), stride=2, padding=1, dtype="f64"),
    _case("plain", (2, 3, 5, 5), (4, 3, 3, 3)),
    _case("no_bias", (2, 3, 5, 5), (4, 3, 3, 3), bias=False),
    _case("stride", (1, 3, 7, 6), (4, 3, 3, 3), stride=2),
    _case("stride_uneven", (1, 2, 7, 8), (3, 2, 3, 2), stride=(3, 2)),
    _case("stride_leaves_remainder", (1, 2, 8, 8), (3, 2, 3, 3), stride=3),
    _case("padding", (1, 3, 5, 6), (4, 3, 3, 3), padding=1),
    _case("padding_uneven", (1, 2, 4, 6), (3, 2, 3, 2), padding=(2, 1)),
    _case("dilation", (1, 3, 7, 7), (4, 3, 3, 3), dilation=2),
    _case("dilation_uneven", (1, 2, 7, 8), (3, 2, 2, 3), dilation=(3, 2)),
    _case("groups", (1, 4, 5, 5), (6, 2, 3, 3), groups=2),
    _case("depthwise", (1, 4, 5, 5), (4, 1, 3, 3), padding=1, groups=4),
    _case("depthwise_multiplier", (1, 3, 5, 5), (6, 1, 3, 3), groups=3),
    _case("depthwise_strided", (1, 4, 6, 6), (4, 1, 3, 3), stride=2, padding=1, groups=4,
          bias=False),
    _case("pointwise", (2, 5, 3, 4), (4, 5, 1, 1)),
    _case("pointwise_strided", (2, 4, 5, 4), (5, 4, 1, 1), stride=2, bias=False),
    _case("kernel_wide", (1, 2, 4, 8), (3, 2, 1, 5), padding=(0, 2)),
    _case("whole_image", (2, 3, 4, 4), (3, 3, 4, 4)),
    _case(
        "everything", (1, 4, 7, 8), (4, 2, 3, 2),
        stride=(2, 3), padding=(2, 1), dilation=(2, 3), groups=2,
    ),
    _case("f64", (1, 2, 5, 4), (3, 2, 3, 2), padding=1, dtype="f64"),
    _case("plain", (1, 2, 4, 4, 4), (3, 2, 2, 2, 2)),
    _case("no_bias", (1, 2, 4, 4, 4), (2, 2, 3, 3, 3), bias=False),
    _case("stride", (1, 2, 5, 4, 5), (3, 2, 2, 2, 2), stride=2),
    _case("padding", (1, 2, 3, 3, 3), (2, 2, 3, 3, 3), padding=1),
    _case("dilation", (1, 2, 4, 5, 4), (3, 2, 2, 2, 2), dilation=2),
    _case("groups", (1, 4, 3, 4, 3), (4, 2, 2, 2, 2), groups=2),
    _case("depthwise", (1, 3, 3, 4, 3), (3, 1, 2, 2, 2), groups=3),
    _case(
        "everything", (1, 2, 5, 3, 5), (4, 1, 2, 1, 3),
        stride=(2, 1, 2), padding=(1, 0, 2), dilation=(2, 1, 1), groups=2,
    ),
    _transposed("plain", (2, 3, 5), (3, 4, 3)),
    _transposed("no_bias", (2, 3, 5), (3, 4, 3), bias=False),
    _transposed("stride", (2, 3, 4), (3, 4, 3), stride=2),
    _transposed("stride_beyond_kernel", (2, 3, 3), (3, 4, 2), stride=3),
    _transposed("padding", (2, 3, 6), (3, 4, 3), padding=1),
    _transposed("output_padding", (2, 3, 4), (3, 4, 3), stride=3, padding=1, output_padding=2),
    _transposed("dilation", (2, 3, 5), (3, 2, 3), dilation=2),
    _transposed("output_padding_by_dilation", (1, 2, 4), (2, 3, 3), dilation=3, output_padding=2),
    _transposed("groups", (2, 4, 4), (4, 3, 3), stride=2, groups=2),
    _transposed("f64", (1, 2, 4), (2, 3, 3), stride=2, padding=1, output_padding=1, dtype="f64"),
    _transposed("plain", (1, 3, 4, 4), (3, 3, 3, 3)),
    _transposed("no_bias", (1, 3, 4, 4), (3, 3, 3, 3), bias=False),
    _transposed("stride", (1, 2, 4, 3), (2, 3, 2, 2), stride=2),
    _transposed("padding", (1, 3, 5, 4), (3, 4, 3, 3), padding=1),
    _transposed("output_padding", (1, 2, 3, 3), (2, 3, 3, 3), stride=2, padding=1,
                output_padding=1),
    _transposed(
        "output_padding_uneven", (1, 2, 3, 3), (2, 3, 3, 2),
        stride=(2, 3), padding=(1, 0), output_padding=(0, 2),
    ),
    _transposed("dilation", (1, 2, 3, 4), (2, 3, 3, 2), dilation=(2, 3)),
    _transposed("groups", (1, 4, 4, 3), (4, 2, 3, 3), groups=2),
    _transposed("depthwise", (1, 3, 3, 3), (3, 1, 3, 3), stride=2, groups=3),
    _transposed(
        "everything", (1, 4, 3, 3), (4, 2, 2, 3),
        stride=(3, 2), padding=(1, 2), output_padding=(2, 1), dilation=(1, 2), groups=2,
    ),
    _transposed("plain", (1, 2, 3, 3, 2), (2, 3, 2, 2, 2)),
    _transposed("stride", (1, 2, 2, 2, 3), (2, 2, 2, 2, 2), stride=2, bias=False),
    _transposed(
        "output_padding", (1, 2, 2, 2, 2), (2, 2, 3, 2, 3),
        stride=2, padding=1, output_padding=1,
    ),
    _transposed("groups", (1, 4, 2, 3, 2), (4, 2, 2, 2, 2), groups=2),
    _transposed(
        "everything", (1, 4, 2, 2, 2), (4, 1, 2, 3, 2),
        stride=(2, 1, 2), padding=(1, 1, 0), output_padding=(1, 0, 1), dilation=(1, 2, 1), groups=2,
    ),
]
