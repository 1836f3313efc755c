"""Gated recurrent modules with options that `torch.nn` does not have, written out as formulas.

The first output is `all`: outputs and states after the last step, flat, so that gradients pass through each. The
formulas are those of Cho et al. 2014 (arXiv:1406.1078v3), of the coupled gates (CIFG) in Greff et al. 2015
(arXiv:1503.04069), and of Burn's options.
"""

import torch
from torch.nn import functional

from .case import Case, Tolerance, normal

ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "softsign": functional.softsign,
    "hard_sigmoid": functional.hardsigmoid,
    "elu": functional.elu,
}


def _activation(attributes, name, default):
    return ACTIVATIONS[attributes.get(name, default)]


def _clipped(state, attributes):
    clip = attributes.get("clip")
    return state if clip is None else state.clamp(-clip, clip)


def _gru_step(x, states, weights, attributes):
    (h,) = states
    gate = _activation(attributes, "gate_activation", "sigmoid")
    activation = _activation(attributes, "hidden_activation", "tanh")
    (w_ir, w_iz, w_in), (w_hr, w_hz, w_hn), (b_ir, b_iz, b_in), (b_hr, b_hz, b_hn) = (
        tensor.chunk(3) for tensor in weights
    )
    r = gate(x @ w_ir.T + b_ir + h @ w_hr.T + b_hr)
    z = gate(x @ w_iz.T + b_iz + h @ w_hz.T + b_hz)
    if attributes.get("reset_after", True):
        n = activation(x @ w_in.T + b_in + r * (h @ w_hn.T + b_hn))
    else:
        n = activation(x @ w_in.T + b_in + (r * h) @ w_hn.T + b_hn)
    return [_clipped((1 - z) * n + z * h, attributes)]


def _lstm_step(x, states, weights, attributes):
    h, c = states
    gate = _activation(attributes, "gate_activation", "sigmoid")
    w_ih, w_hh, b_ih, b_hh = weights
    sums = x @ w_ih.T + b_ih + h @ w_hh.T + b_hh
    if attributes.get("input_forget"):
        i, g, o = sums.chunk(3, dim=1)
        i = gate(i)
        f = 1 - i
    else:
        i, f, g, o = sums.chunk(4, dim=1)
        i, f = gate(i), gate(f)
    c = f * c + i * _activation(attributes, "cell_activation", "tanh")(g)
    c = _clipped(c, attributes)
    return [gate(o) * _activation(attributes, "hidden_activation", "tanh")(c), c]


STEPS = {"gru": _gru_step, "lstm": _lstm_step}
WEIGHTS = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]


def _weights(inputs, suffix=""):
    return [inputs[f"{name}{suffix}"] for name in WEIGHTS]


def _layers(op):
    def run(inputs, attributes):
        x = inputs["x"]
        states = [inputs[name] for name in ["hidden", "cell"] if name in inputs]
        directions = ["", "_reverse"] if attributes["bidirectional"] else [""]
        last = []
        for layer in range(attributes["layers"]):
            outputs = []
            for place, direction in enumerate(directions):
                state = [tensor[layer * len(directions) + place] for tensor in states]
                steps = list(x.unbind(1))
                y = []
                for step in steps[::-1] if direction else steps:
                    state = STEPS[op](step, state, _weights(inputs, f"_l{layer}{direction}"), attributes)
                    y.append(state[0])
                outputs.append(torch.stack(y[::-1] if direction else y, dim=1))
                last.append(state)
            x = torch.cat(outputs, dim=2)
        parts = [x] + [torch.stack(tensors) for tensors in zip(*last, strict=True)]
        return {"all": torch.cat([part.flatten() for part in parts])}

    return run


def _cell(op):
    def run(inputs, attributes):
        states = [inputs[name] for name in ["hidden", "cell"] if name in inputs]
        after = STEPS[op](inputs["x"], states, _weights(inputs), attributes)
        return {"all": torch.cat([part.flatten() for part in after])}

    return run


OPERATIONS = {op: _layers(op) for op in STEPS} | {f"{op}_cell": _cell(op) for op in STEPS}
DEEP = Tolerance(5e-5, 5e-5)


def _rows(op, hidden, attributes):
    return hidden * (4 if op == "lstm" and not attributes.get("input_forget") else 3)


def _layers_case(name, op, layers=1, bidirectional=False, **attributes):
    batch, length, features, hidden = 2, 3, 2, 2
    directions = ["", "_reverse"] if bidirectional else [""]
    rows = _rows(op, hidden, attributes)
    inputs = {"x": normal(batch, length, features)}
    for state in ["hidden", "cell"] if op == "lstm" else ["hidden"]:
        inputs[state] = normal(layers * len(directions), batch, hidden)
    for layer in range(layers):
        for direction in directions:
            width = len(directions) * hidden if layer else features
            inputs[f"weight_ih_l{layer}{direction}"] = normal(rows, width, scale=0.7)
            inputs[f"weight_hh_l{layer}{direction}"] = normal(rows, hidden, scale=0.7)
            inputs[f"bias_ih_l{layer}{direction}"] = normal(rows, scale=0.5)
            inputs[f"bias_hh_l{layer}{direction}"] = normal(rows, scale=0.5)
    attributes = {"layers": layers, "bidirectional": bidirectional} | attributes
    return Case(f"{op}_{name}", op, inputs, attributes, tolerance=DEEP)


def _cell_case(name, op, **attributes):
    batch, features, hidden = 2, 3, 2
    rows = _rows(op, hidden, attributes)
    inputs = {"x": normal(batch, features)}
    for state in ["hidden", "cell"] if op == "lstm" else ["hidden"]:
        inputs[state] = normal(batch, hidden)
    inputs["weight_ih"] = normal(rows, features, scale=0.7)
    inputs["weight_hh"] = normal(rows, hidden, scale=0.7)
    inputs["bias_ih"] = normal(rows, scale=0.5)
    inputs["bias_hh"] = normal(rows, scale=0.5)
    return Case(f"{op}_cell_{name}", f"{op}_cell", inputs, attributes, tolerance=DEEP)


DEEP_STACK = {"layers": 2, "bidirectional": True}
GRU_ACTIVATIONS = {"gate_activation": "hard_sigmoid", "hidden_activation": "softsign"}
LSTM_ACTIVATIONS = {"gate_activation": "hard_sigmoid", "cell_activation": "elu", "hidden_activation": "softsign"}

CASES = [
    _layers_case("defaults", "gru", **DEEP_STACK),
    _layers_case("reset_before", "gru", reset_after=False, **DEEP_STACK),
    _layers_case("clip", "gru", clip=0.25),
    _layers_case("activations", "gru", **GRU_ACTIVATIONS),
    _layers_case("all", "gru", reset_after=False, clip=0.4, **GRU_ACTIVATIONS),
    _cell_case("reset_before", "gru", reset_after=False),
    _cell_case("all", "gru", reset_after=False, clip=0.4, **GRU_ACTIVATIONS),
    _layers_case("defaults", "lstm", **DEEP_STACK),
    _layers_case("clip", "lstm", clip=0.25, **DEEP_STACK),
    _layers_case("input_forget", "lstm", input_forget=True, **DEEP_STACK),
    _layers_case("activations", "lstm", **LSTM_ACTIVATIONS),
    _layers_case("all", "lstm", input_forget=True, clip=0.4, **LSTM_ACTIVATIONS),
    _cell_case("clip", "lstm", clip=0.25),
    _cell_case("input_forget", "lstm", input_forget=True),
    _cell_case("all", "lstm", input_forget=True, clip=0.4, **LSTM_ACTIVATIONS),
]
