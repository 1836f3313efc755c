"""Layers of torch.nn that no other family has. The attributes are the arguments of the PyTorch module."""

import torch
import torch.nn.functional as F
from torch import nn

from .case import Case, distinct, integers, literal, normal, uniform

AXES = [1, 2, 3]
LENGTHS = {1: (5,), 2: (4, 5), 3: (3, 4, 3)}


def _layer(build):
    """A module of the input `x` without parameters."""
    return lambda inputs, attributes: {"y": build(**attributes)(inputs["x"])}


def max_unpool(inputs, attributes):
    options = {key: value for key, value in attributes.items() if key != "output_size"}
    axes = inputs["x"].dim() - 2
    layer = [nn.MaxUnpool1d, nn.MaxUnpool2d, nn.MaxUnpool3d][axes - 1](**options)
    size = attributes["output_size"]
    # PyTorch has no implementation that is deterministic for duplicate indices; these have none.
    torch.use_deterministic_algorithms(False)
    y = layer(inputs["x"], inputs["indices"], None if size is None else torch.Size(size))
    torch.use_deterministic_algorithms(True)
    return {"y": y}


def fractional_max_pool(inputs, attributes):
    layer = {4: nn.FractionalMaxPool2d, 5: nn.FractionalMaxPool3d}[inputs["x"].dim()]
    samples = inputs["samples"]
    # PyTorch takes the samples of two axes the last axis first.
    samples = samples.flip(-1) if inputs["x"].dim() == 4 else samples
    options = {key: value for key, value in attributes.items() if value is not None}
    return {"y": layer(**options, _random_samples=samples)(inputs["x"])}


def instance_norm(inputs, attributes):
    x = inputs["x"]
    kind = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}[x.dim()]
    layer = kind(
        x.shape[1], attributes["epsilon"], attributes["momentum"], track_running_stats=True,
        affine="weight" in inputs, dtype=x.dtype,
    )
    layer.train(attributes["training"])
    # Copies: training updates the buffers in place.
    state = {key: inputs[key].clone() for key in ["running_mean", "running_var"]}
    state |= {key: inputs[key] for key in ["weight", "bias"] if key in inputs}
    y = torch.func.functional_call(layer, state, (x,))
    return {"y": y, "new_running_mean": state["running_mean"], "new_running_var": state["running_var"]}


def embedding_bag(inputs, attributes):
    return {
        "y": F.embedding_bag(
            inputs["indices"],
            # A copy: PyTorch scales the rows of the table in place.
            inputs["weight"].clone(),
            inputs.get("offsets"),
            mode=attributes["mode"],
            max_norm=attributes["max_norm"],
            norm_type=attributes["norm_type"],
            include_last_offset=attributes["include_last_offset"],
            padding_idx=attributes["padding_idx"],
            per_sample_weights=inputs.get("weights"),
        )
    }


def bilinear(inputs, attributes):
    return {"y": F.bilinear(inputs["a"], inputs["b"], inputs["weight"], inputs.get("bias"))}


def pad(inputs, attributes):
    """`padding` has the first axis first, in pairs."""
    flat = [number for pair in reversed(attributes["padding"]) for number in pair]
    axes = len(attributes["padding"])
    layer = getattr(nn, f"{attributes['kind']}Pad{axes}d")
    arguments = [flat, attributes["value"]] if attributes["kind"] == "Constant" else [flat]
    return {"y": layer(*arguments)(inputs["x"])}


def two_inputs(build):
    return lambda inputs, attributes: {"y": build(**attributes)(inputs["a"], inputs["b"])}


OPERATIONS = {
    "softmax2d": _layer(nn.Softmax2d),
    "rrelu": _layer(lambda lower, upper: nn.RReLU(lower, upper).eval()),
    "avg_pool2d": _layer(nn.AvgPool2d),
    "avg_pool3d": _layer(nn.AvgPool3d),
    "max_unpool": max_unpool,
    "fractional_max_pool": fractional_max_pool,
    "lp_pool1d": _layer(nn.LPPool1d),
    "lp_pool2d": _layer(nn.LPPool2d),
    "lp_pool3d": _layer(nn.LPPool3d),
    "adaptive_max_pool3d": lambda inputs, attributes: dict(
        zip(["y", "indices"], nn.AdaptiveMaxPool3d(**attributes, return_indices=True)(inputs["x"]))
    ),
    "instance_norm": instance_norm,
    "local_response_norm": _layer(nn.LocalResponseNorm),
    "unfold": _layer(nn.Unfold),
    "fold": _layer(nn.Fold),
    "embedding_bag": embedding_bag,
    "bilinear": bilinear,
    "pad": pad,
    "upsample": _layer(nn.Upsample),
    "channel_shuffle": _layer(nn.ChannelShuffle),
    "cosine_similarity": two_inputs(nn.CosineSimilarity),
    "pairwise_distance": two_inputs(nn.PairwiseDistance),
}


def _case(name, op, x, **attributes):
    return Case(name, op, {"x": x}, attributes)


def _unpool_case(name, x, indices, kernel, stride, padding, size=None):
    inputs = {"x": normal(*x), "indices": literal(indices)}
    attributes = {"kernel_size": kernel, "stride": stride, "padding": padding, "output_size": size}
    return Case(f"max_unpool_{name}", "max_unpool", inputs, attributes)


def _fractional_case(name, x, kernel, size=None, ratio=None):
    axes = len(x) - 2
    inputs = {"x": distinct(*x), "samples": uniform(0.05, 0.95, x[0], x[1], axes)}
    attributes = {"kernel_size": kernel, "output_size": size, "output_ratio": ratio}
    return Case(f"fractional_max_pool_{name}", "fractional_max_pool", inputs, attributes,
                constant=("samples",))


def _instance_case(name, x, training, affine=True):
    channels = x[1]
    inputs = {"x": normal(*x)}
    if affine:
        inputs |= {"weight": normal(channels), "bias": normal(channels)}
    inputs |= {"running_mean": normal(channels), "running_var": uniform(0.5, 2.0, channels)}
    attributes = {"training": training, "momentum": 0.3, "epsilon": 1e-5}
    return Case(f"instance_norm_{name}", "instance_norm", inputs, attributes,
                constant=("running_mean", "running_var"))


def _bag_case(name, mode, max_norm=None, norm_type=2.0, last=False, padding=None, **inputs):
    attributes = {
        "mode": mode, "max_norm": max_norm, "norm_type": norm_type, "include_last_offset": last,
        "padding_idx": padding,
    }
    # Distinct elements: no two rows share a maximum.
    inputs = {"weight": distinct(5, 3)} | inputs
    return Case(f"embedding_bag_{name}", "embedding_bag", inputs, attributes)


def _pad_case(kind, axes):
    padding = [[1, 2], [0, 1], [2, 1]][3 - axes:]
    attributes = {"kind": kind, "padding": padding, "value": 0.75}
    return Case(f"{kind.lower()}_pad{axes}d", "pad", {"x": normal(1, 4 - axes, *LENGTHS[axes])}, attributes)


def _upsample_case(name, x, mode, size=None, scale_factor=None, align_corners=None):
    attributes = {
        "size": size, "scale_factor": scale_factor, "mode": mode, "align_corners": align_corners,
    }
    return Case(f"upsample_{name}", "upsample", {"x": normal(*x)}, attributes)


def _pair_case(name, op, a, b, **attributes):
    return Case(name, op, {"a": normal(*a), "b": normal(*b)}, attributes)


KINDS = ["Constant", "Zero", "Reflection", "Replication", "Circular"]
OFFSETS = {"indices": integers(0, 5, 6), "offsets": literal([0, 2, 2])}

CASES = [
    _case("softmax2d", "softmax2d", normal(2, 3, 2, 2)),
    _case("rrelu_evaluation", "rrelu", normal(3, 4), lower=0.125, upper=0.5),
    _case("avg_pool2d_divisor", "avg_pool2d", normal(1, 2, 5, 4), kernel_size=[2, 3], stride=[2, 1],
          padding=[1, 0], ceil_mode=False, count_include_pad=True, divisor_override=4),
    _case("avg_pool3d_divisor", "avg_pool3d", normal(1, 1, 4, 3, 4), kernel_size=[2, 2, 2],
          stride=[1, 1, 2], padding=[0, 0, 0], ceil_mode=False, count_include_pad=True,
          divisor_override=3),
    _unpool_case("line", (1, 2, 2), [[[1, 2], [0, 3]]], [2], [2], [0]),
    _unpool_case("line_longer", (1, 1, 2), [[[1, 4]]], [2], [2], [0], [5]),
    _unpool_case("image", (1, 1, 2, 2), [[[[0, 5], [10, 14]]]], [2, 2], [2, 2], [0, 0]),
    _unpool_case("image_padded", (1, 1, 2, 2), [[[[0, 2], [5, 7]]]], [3, 2], [2, 2], [1, 0]),
    _unpool_case("volume", (1, 1, 1, 2, 2), [[[[[0, 6], [9, 31]]]]], [2, 2, 2], [2, 2, 2], [0, 0, 0]),
    _fractional_case("image", (1, 2, 6, 5), [2, 2], size=[3, 2]),
    _fractional_case("image_ratio", (2, 1, 7, 6), [2, 3], ratio=[0.5, 0.6]),
    _fractional_case("volume", (1, 1, 4, 5, 4), [2, 1, 2], size=[2, 3, 2]),
    _case("lp_pool1d", "lp_pool1d", uniform(0.5, 2.0, 1, 2, 7), norm_type=2.5, kernel_size=3, stride=2,
          ceil_mode=False),
    _case("lp_pool1d_ceil", "lp_pool1d", uniform(0.5, 2.0, 1, 2, 6), norm_type=2.0, kernel_size=3,
          stride=2, ceil_mode=True),
    _case("lp_pool2d", "lp_pool2d", normal(1, 2, 5, 4), norm_type=2.0, kernel_size=[2, 3],
          stride=[2, 1], ceil_mode=False),
    _case("lp_pool3d", "lp_pool3d", uniform(0.5, 2.0, 1, 1, 4, 4, 3), norm_type=3.0,
          kernel_size=[2, 2, 1], stride=[2, 2, 1], ceil_mode=False),
    _case("adaptive_max_pool3d", "adaptive_max_pool3d", distinct(1, 2, 3, 4, 3), output_size=[2, 3, 2]),
    _instance_case("line_training", (3, 2, 4), True),
    _instance_case("image_training", (2, 3, 3, 2), True, affine=False),
    _instance_case("image_evaluation", (2, 3, 3, 2), False),
    _case("local_response_norm_even", "local_response_norm", normal(1, 5, 3), size=2, alpha=0.5,
          beta=0.75, k=1.5),
    _case("unfold", "unfold", normal(1, 2, 4, 5), kernel_size=[2, 3], dilation=[1, 2], padding=[1, 0],
          stride=[2, 1]),
    _case("fold", "fold", normal(1, 8, 6), output_size=[4, 5], kernel_size=[2, 2], dilation=[1, 1],
          padding=[1, 0], stride=[2, 2]),
    _bag_case("sum", "sum", indices=integers(0, 5, 2, 3)),
    _bag_case("mean", "mean", indices=integers(0, 5, 2, 3)),
    _bag_case("max", "max", indices=integers(0, 5, 2, 3)),
    _bag_case("weighted", "sum", indices=integers(0, 5, 2, 3), weights=normal(2, 3)),
    _bag_case("offsets_sum", "sum", **OFFSETS),
    _bag_case("offsets_mean", "mean", **OFFSETS),
    _bag_case("offsets_max", "max", **OFFSETS),
    _bag_case("offsets_weighted", "sum", **OFFSETS, weights=normal(6)),
    _bag_case("last_offset", "mean", last=True, indices=integers(0, 5, 6), offsets=literal([0, 2, 6])),
    _bag_case("max_norm", "sum", max_norm=1.0, indices=integers(0, 5, 2, 3)),
    *(
        _bag_case(f"padding_{mode}", mode, padding=1, indices=literal([[0, 1, 3], [1, 1, 1]]))
        for mode in ["sum", "mean", "max"]
    ),
    *(
        _bag_case(f"padding_offsets_{mode}", mode, padding=2, indices=literal([2, 4, 2, 2, 0, 3]),
                  offsets=literal([0, 2, 2, 4]))
        for mode in ["sum", "mean", "max"]
    ),
    Case("bilinear_vector", "bilinear",
         {"a": normal(3), "b": normal(2), "weight": normal(2, 3, 2), "bias": normal(2)}),
    Case("bilinear_no_bias", "bilinear",
         {"a": normal(2, 2, 3), "b": normal(2, 2, 2), "weight": normal(4, 3, 2)}),
    *(_pad_case(kind, axes) for kind in KINDS for axes in AXES),
    _upsample_case("nearest_line", (1, 2, 3), "nearest", scale_factor=2.0),
    _upsample_case("nearest_image", (1, 1, 3, 2), "nearest", size=[5, 4]),
    _upsample_case("linear", (1, 2, 4), "linear", scale_factor=1.5, align_corners=False),
    _upsample_case("bilinear_aligned", (1, 1, 3, 2), "bilinear", scale_factor=2.0, align_corners=True),
    _upsample_case("bicubic", (1, 1, 3, 4), "bicubic", size=[5, 6], align_corners=False),
    _upsample_case("trilinear", (1, 1, 2, 2, 2), "trilinear", scale_factor=2.0, align_corners=False),
    _case("channel_shuffle", "channel_shuffle", normal(1, 6, 2, 1), groups=2),
    _pair_case("cosine_similarity_rows", "cosine_similarity", (3, 4), (3, 4), dim=1, eps=1e-8),
    _pair_case("cosine_similarity_columns", "cosine_similarity", (3, 4), (1, 4), dim=0, eps=1e-8),
    _pair_case("pairwise_distance_2", "pairwise_distance", (3, 4), (3, 4), p=2.0, eps=1e-6),
    _pair_case("pairwise_distance_1", "pairwise_distance", (3, 4), (1, 4), p=1.0, eps=1e-6),
    _pair_case("pairwise_distance_3", "pairwise_distance", (2, 4), (2, 4), p=3.0, eps=0.01),
]
