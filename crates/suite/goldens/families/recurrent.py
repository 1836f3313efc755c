"""Recurrent modules of several layers and directions, with projections and packed lengths, and cells.

The first output is `all`: outputs and states after the last step, flat, so that gradients pass through each.
"""

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .case import Case, Tolerance, normal

MODULES = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
CELLS = {"lstm_cell": nn.LSTMCell, "gru_cell": nn.GRUCell, "rnn_cell": nn.RNNCell}
STATES = ["hidden", "cell"]


class Packed(nn.Module):
    """Runs a recurrent module on sequences of the given lengths."""

    def __init__(self, module, lengths):
        super().__init__()
        self.module, self.lengths = module, lengths

    def forward(self, x, state):
        first = self.module.batch_first
        if self.lengths is None:
            return self.module(x, state)
        packed = pack_padded_sequence(x, self.lengths, batch_first=first, enforce_sorted=False)
        y, last = self.module(packed, state)
        y, _ = pad_packed_sequence(y, batch_first=first, total_length=x.shape[int(first)])
        return y, last


def _states(inputs):
    found = [inputs[name] for name in STATES if name in inputs]
    return None if not found else tuple(found) if len(found) > 1 else found[0]


def _flat(*tensors):
    parts = [part for tensor in tensors for part in (tensor if isinstance(tensor, tuple) else [tensor])]
    return {"all": torch.cat([part.flatten() for part in parts])}


def _layers(op):
    def run(inputs, attributes):
        options = {name: attributes[name] for name in ["proj_size", "nonlinearity"] if name in attributes}
        module = MODULES[op](
            inputs["x"].shape[2],
            attributes["hidden"],
            num_layers=attributes["layers"],
            bias="bias_ih_l0" in inputs,
            batch_first=attributes["batch_first"],
            bidirectional=attributes["bidirectional"],
            dtype=inputs["x"].dtype,
            **options,
        )
        expected = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
        weights = {name: inputs[name] for name in expected}
        if expected != {name: tuple(weight.shape) for name, weight in weights.items()}:
            raise ValueError(f"the weights are {expected}")
        weights = {f"module.{name}": weight for name, weight in weights.items()}
        lengths = attributes.get("lengths")
        return _flat(*functional_call(Packed(module, lengths), weights, (inputs["x"], _states(inputs))))

    return run


def _cell(op):
    def run(inputs, attributes):
        options = {name: attributes[name] for name in ["nonlinearity"] if name in attributes}
        cell = CELLS[op](
            inputs["x"].shape[1],
            inputs["weight_hh"].shape[1],
            bias="bias_ih" in inputs,
            dtype=inputs["x"].dtype,
            **options,
        )
        weights = {name: inputs[name] for name, _ in cell.named_parameters()}
        return _flat(functional_call(cell, weights, (inputs["x"], _states(inputs))))

    return run


OPERATIONS = {op: _layers(op) for op in MODULES} | {op: _cell(op) for op in CELLS}

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
DEEP = Tolerance(5e-5, 5e-5)


def _layers_case(
    name, op, layers=1, bidirectional=False, batch_first=True, bias=True, state=True, projection=0,
    length=3, hidden=2, **attributes,
):
    batch, features = 2, 2
    directions = ["", "_reverse"] if bidirectional else [""]
    width = projection or hidden
    rows = GATES[op] * hidden
    inputs = {"x": normal(*((batch, length) if batch_first else (length, batch)), features)}
    if state:
        inputs["hidden"] = normal(layers * len(directions), batch, width)
        if op == "lstm":
            inputs["cell"] = normal(layers * len(directions), batch, hidden)
    for layer in range(layers):
        for direction in directions:
            suffix = f"l{layer}{direction}"
            inputs[f"weight_ih_{suffix}"] = normal(
                rows, len(directions) * width if layer else features, scale=0.7
            )
            inputs[f"weight_hh_{suffix}"] = normal(rows, width, scale=0.7)
            if bias:
                inputs[f"bias_ih_{suffix}"] = normal(rows, scale=0.5)
                inputs[f"bias_hh_{suffix}"] = normal(rows, scale=0.5)
            if projection:
                inputs[f"weight_hr_{suffix}"] = normal(projection, hidden, scale=0.7)
    attributes = {
        "layers": layers, "hidden": hidden, "bidirectional": bidirectional, "batch_first": batch_first,
    } | attributes
    if projection:
        attributes["proj_size"] = projection
    return Case(f"{op}_{name}", op, inputs, attributes, tolerance=DEEP)


def _cell_case(name, op, bias=True, state=True, **attributes):
    batch, features, hidden = 2, 3, 2
    rows = GATES[op.removesuffix("_cell")] * hidden
    inputs = {"x": normal(batch, features)}
    if state:
        inputs["hidden"] = normal(batch, hidden)
        if op == "lstm_cell":
            inputs["cell"] = normal(batch, hidden)
    inputs["weight_ih"] = normal(rows, features, scale=0.7)
    inputs["weight_hh"] = normal(rows, hidden, scale=0.7)
    if bias:
        inputs["bias_ih"] = normal(rows, scale=0.5)
        inputs["bias_hh"] = normal(rows, scale=0.5)
    return Case(f"{op}_{name}", op, inputs, attributes, tolerance=DEEP)


TANH, RELU = {"nonlinearity": "tanh"}, {"nonlinearity": "relu"}

CASES = [
    case
    for op, options in [("lstm", {}), ("gru", {}), ("rnn", TANH)]
    for case in [
        _layers_case("two_layers", op, layers=2, **options),
        _layers_case("length_first", op, layers=2, batch_first=False, **options),
        _layers_case("two_layers_bidirectional", op, layers=2, bidirectional=True, **options),
        _layers_case("no_bias", op, layers=2, bias=False, bidirectional=True, **options),
        _layers_case("no_state", op, state=False, **options),
        _layers_case("one_step", op, length=1, **options),
        _layers_case("packed", op, lengths=[2, 4], length=4, **options),
        _layers_case(
            "packed_bidirectional", op, layers=2, bidirectional=True, bias=op != "lstm", lengths=[3, 1],
            length=4, **options,
        ),
        _layers_case("packed_length_first", op, batch_first=False, lengths=[1, 3], **options),
        _cell_case("plain", f"{op}_cell", **options),
        _cell_case("no_bias", f"{op}_cell", bias=False, **options),
        _cell_case("no_state", f"{op}_cell", state=False, **options),
    ]
] + [
    _layers_case("relu", "rnn", layers=2, bidirectional=True, **RELU),
    _cell_case("relu", "rnn_cell", **RELU),
    _layers_case("projection", "lstm", layers=2, projection=1, hidden=3),
    _layers_case("projection_bidirectional", "lstm", projection=2, hidden=3, bidirectional=True),
    _layers_case("projection_packed", "lstm", projection=1, hidden=2, bidirectional=True, lengths=[2, 3]),
]
