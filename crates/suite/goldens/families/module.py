"""Modules whose weights have a layout that a reader of PyTorch files must match."""

from torch import nn
from torch.func import functional_call

from .case import Case, Tolerance, literal, normal

# PyTorch numbers the tensors of a recurrent module by layer; a case has one layer.
RECURRENT = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]


def _recurrent(build):
    def run(inputs, attributes):
        module = build(inputs, attributes)
        directions = ["", "_reverse"] if attributes["bidirectional"] else [""]
        weights = {
            f"{name}_l0{direction}": inputs[f"{name}{direction}"]
            for name in RECURRENT
            for direction in directions
            if f"{name}{direction}" in inputs
        }
        state = inputs.get("hidden")
        if "cell" in inputs:
            state = (state, inputs["cell"])
        y, last = functional_call(module, weights, (inputs["x"], state))
        if isinstance(last, tuple):
            return {"y": y, "last_hidden": last[0], "last_cell": last[1]}
        return {"y": y, "last_hidden": last}

    return run


def _options(inputs, attributes):
    hidden = inputs["weight_hh"].shape[1]
    return {
        "input_size": inputs["x"].shape[2],
        "hidden_size": hidden,
        "bias": "bias_ih" in inputs,
        "batch_first": True,
        "bidirectional": attributes["bidirectional"],
        "dtype": inputs["x"].dtype,
    }


def multi_head_attention(inputs, attributes):
    embedding = inputs["query"].shape[2]
    module = nn.MultiheadAttention(
        embedding,
        attributes["heads"],
        bias="in_proj_bias" in inputs,
        batch_first=True,
        dtype=inputs["query"].dtype,
    )
    weights = _weights(
        inputs, "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"
    )
    y, attention = functional_call(
        module,
        weights,
        (inputs["query"], inputs["key"], inputs["value"]),
        {"key_padding_mask": inputs.get("key_padding_mask"), "attn_mask": inputs.get("mask")},
    )
    return {"y": y, "mean_attention": attention}


def transformer_encoder_layer(inputs, attributes):
    module = nn.TransformerEncoderLayer(
        inputs["x"].shape[2],
        attributes["heads"],
        inputs["linear1.weight"].shape[0],
        dropout=0.0,
        activation=attributes["activation"],
        layer_norm_eps=attributes["epsilon"],
        batch_first=True,
        norm_first=attributes["norm_first"],
        dtype=inputs["x"].dtype,
    )
    weights = _weights(inputs, *(name for name in inputs if name != "x"))
    return {"y": functional_call(module, weights, (inputs["x"],))}


def _weights(inputs, *names):
    return {name: inputs[name] for name in names if name in inputs}


OPERATIONS = {
    "lstm": _recurrent(lambda inputs, attributes: nn.LSTM(**_options(inputs, attributes))),
    "gru": _recurrent(lambda inputs, attributes: nn.GRU(**_options(inputs, attributes))),
    "rnn": _recurrent(
        lambda inputs, attributes: nn.RNN(
            nonlinearity=attributes["nonlinearity"], **_options(inputs, attributes)
        )
    ),
    "multi_head_attention": multi_head_attention,
    "transformer_encoder_layer": transformer_encoder_layer,
}

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
DEEP = Tolerance(5e-5, 5e-5)


def _recurrent_case(name, op, bias=True, state=True, bidirectional=False, **attributes):
    batch, length, features, hidden = 2, 4, 3, 2
    rows = GATES[op] * hidden
    inputs = {"x": normal(batch, length, features)}
    directions = ["", "_reverse"] if bidirectional else [""]
    if state:
        inputs["hidden"] = normal(len(directions), batch, hidden)
        if op == "lstm":
            inputs["cell"] = normal(len(directions), batch, hidden)
    for direction in directions:
        inputs[f"weight_ih{direction}"] = normal(rows, features, scale=0.7)
        inputs[f"weight_hh{direction}"] = normal(rows, hidden, scale=0.7)
        if bias:
            inputs[f"bias_ih{direction}"] = normal(rows, scale=0.5)
            inputs[f"bias_hh{direction}"] = normal(rows, scale=0.5)
    attributes = {"bidirectional": bidirectional} | attributes
    return Case(f"{op}_{name}", op, inputs, attributes, tolerance=DEEP)


def _attention_case(name, query=(2, 3, 4), key=None, heads=2, bias=True, **masks):
    embedding = query[2]
    key = key or query
    inputs = {
        "query": normal(*query),
        "key": normal(*key),
        "value": normal(*key),
        "in_proj_weight": normal(3 * embedding, embedding, scale=0.6),
        "out_proj.weight": normal(embedding, embedding, scale=0.6),
    }
    if bias:
        inputs["in_proj_bias"] = normal(3 * embedding, scale=0.5)
        inputs["out_proj.bias"] = normal(embedding, scale=0.5)
    return Case(
        f"multi_head_attention_{name}", "multi_head_attention", inputs | masks, {"heads": heads},
        constant=("mask",), tolerance=DEEP,
    )


def _encoder_case(name, norm_first, activation):
    width, inner = 4, 5
    inputs = {
        "x": normal(2, 3, width),
        "self_attn.in_proj_weight": normal(3 * width, width, scale=0.6),
        "self_attn.in_proj_bias": normal(3 * width, scale=0.5),
        "self_attn.out_proj.weight": normal(width, width, scale=0.6),
        "self_attn.out_proj.bias": normal(width, scale=0.5),
        "linear1.weight": normal(inner, width, scale=0.6),
        "linear1.bias": normal(inner, scale=0.5),
        "linear2.weight": normal(width, inner, scale=0.6),
        "linear2.bias": normal(width, scale=0.5),
        "norm1.weight": normal(width),
        "norm1.bias": normal(width),
        "norm2.weight": normal(width),
        "norm2.bias": normal(width),
    }
    attributes = {
        "heads": 2, "norm_first": norm_first, "activation": activation, "epsilon": 1e-5,
    }
    op = "transformer_encoder_layer"
    return Case(f"{op}_{name}", op, inputs, attributes, tolerance=DEEP)


CASES = [
    _recurrent_case("plain", "lstm"),
    _recurrent_case("no_state", "lstm", state=False),
    _recurrent_case("no_bias", "lstm", bias=False),
    _recurrent_case("bidirectional", "lstm", bidirectional=True),
    _recurrent_case("plain", "gru"),
    _recurrent_case("no_state", "gru", state=False),
    _recurrent_case("no_bias", "gru", bias=False),
    _recurrent_case("bidirectional", "gru", bidirectional=True),
    _recurrent_case("tanh", "rnn", nonlinearity="tanh"),
    _recurrent_case("relu", "rnn", nonlinearity="relu"),
    _recurrent_case("bidirectional", "rnn", bidirectional=True, nonlinearity="tanh"),
    _attention_case("plain"),
    _attention_case("no_bias", bias=False),
    _attention_case("cross", (2, 3, 4), (2, 5, 4)),
    _attention_case("one_head", (1, 4, 4), heads=1),
    _attention_case(
        "causal_mask",
        mask=literal([[False, True, True], [False, False, True], [False, False, False]]),
    ),
    _attention_case(
        "key_padding",
        key_padding_mask=literal([[False, False, True], [False, False, False]]),
    ),
    _encoder_case("norm_last", False, "relu"),
    _encoder_case("norm_first", True, "gelu"),
]
