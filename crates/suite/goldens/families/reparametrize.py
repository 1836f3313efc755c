"""Reparametrized weights: weight normalisation and spectral normalisation of linear and convolution layers."""

from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

from .case import Case, normal, uniform

LAYERS = {"linear": nn.Linear, "conv1d": nn.Conv1d, "conv_transpose1d": nn.ConvTranspose1d}


def _layer(inputs, attributes, weight):
    """A layer without bias for a weight of this shape."""
    shape = inputs[weight].shape
    kind = attributes["layer"]
    sizes = [shape[0], shape[1]] if kind == "conv_transpose1d" else [shape[1], shape[0]]
    return LAYERS[kind](*sizes, *shape[2:], bias=False, dtype=inputs["x"].dtype)


def weight_norm(inputs, attributes):
    layer = parametrizations.weight_norm(_layer(inputs, attributes, "v"), dim=attributes["dim"])
    weights = {
        "parametrizations.weight.original0": inputs["g"],
        "parametrizations.weight.original1": inputs["v"],
    }
    return {"y": functional_call(layer, weights, (inputs["x"],))}


def spectral_norm(inputs, attributes):
    layer = parametrizations.spectral_norm(
        _layer(inputs, attributes, "weight"),
        n_power_iterations=attributes["iterations"],
        dim=attributes["dim"],
    )
    # The power method writes into these tensors.
    u, v = inputs["u"].clone(), inputs["v"].clone()
    weights = {
        "parametrizations.weight.original": inputs["weight"],
        "parametrizations.weight.0._u": u,
        "parametrizations.weight.0._v": v,
    }
    layer.train()
    for _ in range(attributes["steps"]):
        y = functional_call(layer, weights, (inputs["x"],))
    if attributes["steps"] == 0:
        y = functional_call(layer.eval(), weights, (inputs["x"],))
    return {"y": y, "u_after": u.clone(), "v_after": v.clone()}


OPERATIONS = {"weight_norm": weight_norm, "spectral_norm": spectral_norm}


def _weight_norm(name, layer, dim, v, g, x):
    inputs = {"g": uniform(0.5, 2.0, *g), "v": normal(*v), "x": normal(*x)}
    return Case(f"weight_norm_{name}", "weight_norm", inputs, {"layer": layer, "dim": dim})


def _spectral_norm(name, layer, dim, weight, x, iterations, steps):
    rows = weight[dim]
    columns = 1
    for length in weight:
        columns *= length
    inputs = {
        "weight": normal(*weight),
        "u": normal(rows),
        "v": normal(columns // rows),
        "x": normal(*x),
    }
    attributes = {"layer": layer, "dim": dim, "iterations": iterations, "steps": steps}
    return Case(
        f"spectral_norm_{name}", "spectral_norm", inputs, attributes, constant=("u", "v")
    )


CASES = [
    _weight_norm("linear", "linear", 0, [3, 4], [3, 1], [2, 4]),
    _weight_norm("linear_inputs", "linear", 1, [3, 4], [1, 4], [2, 4]),
    _weight_norm("linear_whole", "linear", None, [3, 4], [], [2, 4]),
    _weight_norm("conv1d", "conv1d", 0, [4, 2, 3], [4, 1, 1], [2, 2, 6]),
    _weight_norm("conv_transpose1d", "conv_transpose1d", 1, [2, 3, 3], [1, 3, 1], [2, 2, 4]),
    _spectral_norm("linear", "linear", 0, [3, 4], [2, 4], 1, 1),
    _spectral_norm("linear_steps", "linear", 0, [3, 4], [2, 4], 2, 3),
    _spectral_norm("linear_evaluation", "linear", 0, [3, 4], [2, 4], 1, 0),
    _spectral_norm("conv1d", "conv1d", 0, [4, 2, 3], [2, 2, 6], 1, 2),
    _spectral_norm("conv_transpose1d", "conv_transpose1d", 1, [2, 3, 3], [2, 2, 4], 1, 2),
]
