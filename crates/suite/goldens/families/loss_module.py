"""Losses that are modules with parameters."""

import torch
from torch.func import functional_call

from .case import Case, literal, normal


def adaptive_log_softmax(inputs, attributes):
    """Parameters are inputs, by PyTorch's names."""
    parameters = {name: value for name, value in inputs.items() if "." in name}
    x = inputs["x"]
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(
        x.shape[1],
        attributes["n_classes"],
        attributes["cutoffs"],
        div_value=attributes["div_value"],
        head_bias="head.bias" in parameters,
        dtype=x.dtype,
    )
    # `strict`: every parameter, and no other name.
    output, loss = functional_call(module, parameters, (x, inputs["target"]), strict=True)
    with torch.no_grad():
        module.load_state_dict(parameters)
        log, predicted = module.log_prob(x), module.predict(x)
    return {"y": output, "loss": loss.reshape(1), "log_prob": log, "predicted": predicted}


OPERATIONS = {"adaptive_log_softmax": adaptive_log_softmax}

CASES = [
    Case(
        "adaptive_log_softmax_two_clusters",
        "adaptive_log_softmax",
        {
            "x": normal(6, 8),
            "target": literal([0, 2, 3, 6, 9, 4]),
            "head.weight": normal(5, 8, scale=0.5),
            "tail.0.0.weight": normal(4, 8, scale=0.5),
            "tail.0.1.weight": normal(3, 4, scale=0.5),
            "tail.1.0.weight": normal(2, 8, scale=0.5),
            "tail.1.1.weight": normal(4, 2, scale=0.5),
        },
        {"n_classes": 10, "cutoffs": [3, 6], "div_value": 2.0},
    ),
    # No target in the first cluster.
    Case(
        "adaptive_log_softmax_head_bias",
        "adaptive_log_softmax",
        {
            "x": normal(3, 8),
            "target": literal([1, 5, 0]),
            "head.weight": normal(4, 8, scale=0.5),
            "head.bias": normal(4),
            "tail.0.0.weight": normal(4, 8, scale=0.5),
            "tail.0.1.weight": normal(2, 4, scale=0.5),
            "tail.1.0.weight": normal(2, 8, scale=0.5),
            "tail.1.1.weight": normal(2, 2, scale=0.5),
        },
        {"n_classes": 6, "cutoffs": [2, 4], "div_value": 2.0},
        constant=("tail.0.0.weight", "tail.0.1.weight"),
    ),
]
