"""Activations, on random inputs and on the ones where a careless formula overflows."""

import torch
import torch.nn.functional as F

from .case import Case, literal, normal, uniform


def _one(function, *names):
    def run(inputs, attributes):
        return {"y": function(inputs["x"], *(attributes[name] for name in names))}

    return run


OPERATIONS = {
    "relu": _one(F.relu),
    "relu6": _one(F.relu6),
    "gelu": lambda inputs, attributes: {
        "y": F.gelu(inputs["x"], approximate=attributes["approximate"])
    },
    "silu": _one(F.silu),
    "tanh": _one(torch.tanh),
    "sigmoid": _one(torch.sigmoid),
    "log_sigmoid": _one(F.logsigmoid),
    "hard_sigmoid": _one(F.hardsigmoid),
    "hard_swish": _one(F.hardswish),
    "hard_tanh": _one(F.hardtanh, "min", "max"),
    "mish": _one(F.mish),
    "softmax": _one(F.softmax, "axis"),
    "log_softmax": _one(F.log_softmax, "axis"),
    "softmin": _one(F.softmin, "axis"),
    "elu": _one(F.elu, "alpha"),
    "selu": _one(F.selu),
    "celu": _one(F.celu, "alpha"),
    "leaky_relu": _one(F.leaky_relu, "negative_slope"),
    "prelu": lambda inputs, attributes: {"y": F.prelu(inputs["x"], inputs["weight"])},
    "softplus": _one(F.softplus, "beta", "threshold"),
    "softsign": _one(F.softsign),
    "hard_shrink": _one(F.hardshrink, "lambda"),
    "soft_shrink": _one(F.softshrink, "lambda"),
    "tanh_shrink": _one(F.tanhshrink),
    "threshold": _one(F.threshold, "threshold", "value"),
    "glu": _one(F.glu, "axis"),
}

INFINITY = float("inf")
RANDOM = normal(4, 6, scale=2.0)
FAR = literal([-1000.0, -100.0, -30.0, -10.0, -1e-6, 1e-6, 10.0, 30.0, 100.0, 1000.0])
# Where relu-like functions have a corner, PyTorch's choice of gradient.
CORNERS = literal([-6.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0])


def _case(name, op, x=RANDOM, **attributes):
    return Case(name, op, {"x": x}, attributes)


CASES = [
    *(
        _case(f"{op}{suffix}", op, x)
        for op in [
            "relu", "relu6", "silu", "tanh", "sigmoid", "log_sigmoid", "hard_sigmoid", "hard_swish",
            "mish", "selu", "softsign", "tanh_shrink",
        ]
        for suffix, x in [("", RANDOM), ("_far", FAR)]
    ),
    *(
        _case(f"{op}_corners", op, CORNERS)
        for op in ["relu", "relu6", "hard_sigmoid", "hard_swish", "selu", "softsign"]
    ),
    _case("gelu_exact", "gelu", approximate="none"),
    _case("gelu_exact_far", "gelu", FAR, approximate="none"),
    _case("gelu_tanh", "gelu", approximate="tanh"),
    _case("gelu_tanh_far", "gelu", FAR, approximate="tanh"),
    _case("hard_tanh", "hard_tanh", min=-1.0, max=1.0),
    _case("hard_tanh_bounds", "hard_tanh", CORNERS, min=-0.5, max=3.0),
    _case("softmax_last", "softmax", normal(2, 3, 5), axis=2),
    _case("softmax_middle", "softmax", normal(2, 5, 3), axis=1),
    _case("softmax_first", "softmax", normal(4, 6), axis=0),
    _case("softmax_large", "softmax", literal([[1e4, 0.0, -1e4], [700.0, 710.0, 705.0]]), axis=1),
    _case("softmax_infinite", "softmax", literal([[0.5, -INFINITY, 1.0], [2.0, 1.0, 0.0]]), axis=1),
    _case("softmax_one", "softmax", normal(4, 1), axis=1),
    _case("softmax_long", "softmax", normal(2, 70), axis=1),
    _case("log_softmax_last", "log_softmax", normal(2, 3, 5), axis=2),
    _case("log_softmax_middle", "log_softmax", normal(2, 5, 3), axis=1),
    _case("log_softmax_large", "log_softmax", literal([[1e4, 0.0, -1e4], [70.0, 71.0, 75.0]]),
          axis=1),
    _case("softmin", "softmin", normal(3, 5), axis=1),
    _case("elu", "elu", alpha=1.0),
    _case("elu_alpha", "elu", alpha=0.5),
    _case("elu_far", "elu", FAR, alpha=1.0),
    _case("celu", "celu", alpha=1.0),
    _case("celu_alpha", "celu", alpha=2.5),
    _case("leaky_relu", "leaky_relu", negative_slope=0.01),
    _case("leaky_relu_slope", "leaky_relu", negative_slope=0.3),
    _case("leaky_relu_corners", "leaky_relu", CORNERS, negative_slope=0.2),
    Case("prelu_shared", "prelu", {"x": normal(2, 3, 4), "weight": uniform(0.05, 0.5, 1)}),
    Case("prelu_channels", "prelu", {"x": normal(2, 3, 4), "weight": uniform(0.05, 0.5, 3)}),
    _case("softplus", "softplus", beta=1.0, threshold=20.0),
    _case("softplus_beta", "softplus", beta=2.0, threshold=20.0),
    _case("softplus_threshold", "softplus", beta=2.0, threshold=1.0),
    _case("softplus_far", "softplus", FAR, beta=1.0, threshold=20.0),
    _case("hard_shrink", "hard_shrink", **{"lambda": 0.5}),
    _case("soft_shrink", "soft_shrink", **{"lambda": 0.5}),
    _case("threshold", "threshold", threshold=0.5, value=-2.0),
    _case("glu_last", "glu", normal(3, 6), axis=1),
    _case("glu_first", "glu", normal(4, 3), axis=0),
    Case("gelu_exact_f64", "gelu", {"x": RANDOM}, {"approximate": "none"}, dtype="f64"),
    Case("softmax_f64", "softmax", {"x": normal(3, 5)}, {"axis": 1}, dtype="f64"),
    Case("silu_f64", "silu", {"x": RANDOM}, dtype="f64"),
    Case("tanh_f64", "tanh", {"x": RANDOM}, dtype="f64"),
]
