"""Attention and transformer modules, whose inputs are the whole state dict of a `torch.nn` module, and position
encodings by the formulas of their papers.

Weights are loaded strictly: each case has exactly the names and shapes of PyTorch's state dict.
"""

import math

import torch
from torch import nn
from torch.func import functional_call

from .case import Case, Tolerance, literal, normal


def _call(module, inputs, others, arguments, options=None):
    """Calls a module whose weights are all inputs but `others`."""
    weights = {name: value for name, value in inputs.items() if name not in others}
    return functional_call(module, weights, arguments, options or {}, strict=True)


def multi_head_attention(inputs, attributes):
    query, key, value = inputs["query"], inputs["key"], inputs["value"]
    module = nn.MultiheadAttention(
        query.shape[2],
        attributes["heads"],
        bias="in_proj_bias" in inputs,
        add_bias_kv="bias_k" in inputs,
        add_zero_attn=attributes["add_zero_attn"],
        kdim=key.shape[2],
        vdim=value.shape[2],
        batch_first=True,
        dtype=query.dtype,
    )
    others = ["query", "key", "value", "mask", "key_padding_mask"]
    options = {
        "key_padding_mask": inputs.get("key_padding_mask"),
        "attn_mask": inputs.get("mask"),
        "average_attn_weights": False,
    }
    y, weights = _call(module, inputs, others, (query, key, value), options)
    return {"y": y, "weights": weights}


def _options(inputs, attributes):
    return {
        "dropout": 0.0,
        "activation": attributes["activation"],
        "layer_norm_eps": attributes["epsilon"],
        "batch_first": True,
        "norm_first": attributes["norm_first"],
        "dtype": (inputs.get("x") if "x" in inputs else inputs["target"]).dtype,
    }


def _causal(length):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def encoder(inputs, attributes):
    width = inputs["x"].shape[2]
    inner = inputs["layers.0.linear1.weight"].shape[0]
    layer = nn.TransformerEncoderLayer(width, attributes["heads"], inner, **_options(inputs, attributes))
    norm = None
    if "norm.weight" in inputs:
        norm = nn.LayerNorm(width, eps=attributes["epsilon"], dtype=inputs["x"].dtype)
    module = nn.TransformerEncoder(layer, attributes["layers"], norm, enable_nested_tensor=False)
    mask = _causal(inputs["x"].shape[1]) if attributes["causal"] else None
    padding = inputs.get("padding")
    options = {"mask": mask, "src_key_padding_mask": padding}
    return {"y": _call(module, inputs, ["x", "padding"], (inputs["x"],), options)}


def decoder_layer(inputs, attributes):
    width = inputs["target"].shape[2]
    inner = inputs["linear1.weight"].shape[0]
    module = nn.TransformerDecoderLayer(width, attributes["heads"], inner, **_options(inputs, attributes))
    options = {
        "tgt_mask": _causal(inputs["target"].shape[1]) if attributes["causal"] else None,
        "memory_mask": inputs.get("memory_mask"),
        "memory_key_padding_mask": inputs.get("memory_padding"),
    }
    others = ["target", "memory", "memory_mask", "memory_padding"]
    return {"y": _call(module, inputs, others, (inputs["target"], inputs["memory"]), options)}


def transformer(inputs, attributes):
    inner = inputs["encoder.layers.0.linear1.weight"].shape[0]
    module = nn.Transformer(
        inputs["target"].shape[2], attributes["heads"], 1, 1, inner, **_options(inputs, attributes)
    )
    options = {"tgt_mask": _causal(inputs["target"].shape[1])}
    others = ["source", "target"]
    return {"y": _call(module, inputs, others, (inputs["source"], inputs["target"]), options)}


def frequencies(dim, theta, scaling, length):
    """Frequencies of the pairs and the factor of cosines and sines, as Hugging Face's `modeling_rope_utils` defines
    them, in f64."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    plain = theta**-exponents
    kind = scaling["kind"]
    if kind == "none":
        return plain, 1.0
    factor = scaling["factor"]
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "ntk":
        return (theta * factor ** (dim / (dim - 2))) ** -exponents, 1.0
    original = scaling["original"]
    if kind == "dynamic":
        length = max(length, original)
        stretched = theta * ((factor * length / original) - (factor - 1)) ** (dim / (dim - 2))
        return stretched**-exponents, 1.0
    if kind == "yarn":
        return _yarn(plain, dim, theta, scaling), 0.1 * math.log(factor) + 1.0
    assert kind == "llama3"
    return _llama3(plain, scaling), 1.0


def _yarn(plain, dim, theta, scaling):
    def correction(rotations):
        original = scaling["original"]
        return (dim * math.log(original / (rotations * 2 * math.pi))) / (2 * math.log(theta))

    low = max(math.floor(correction(scaling["beta_fast"])), 0)
    high = min(math.ceil(correction(scaling["beta_slow"])), dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    extrapolation = 1 - ramp
    return plain / scaling["factor"] * (1 - extrapolation) + plain * extrapolation


def _llama3(plain, scaling):
    factor, original = scaling["factor"], scaling["original"]
    low, high = scaling["low"], scaling["high"]
    wavelengths = 2 * math.pi / plain
    smooth = (original / wavelengths - low) / (high - low)
    smoothed = (1 - smooth) * plain / factor + smooth * plain
    scaled = torch.where(wavelengths > original / low, plain / factor, plain)
    medium = ~(wavelengths < original / high) & ~(wavelengths > original / low)
    return torch.where(medium, smoothed, scaled)


def rotary(inputs, attributes):
    x, start = inputs["x"], attributes["start"]
    length, dim = x.shape[-2:]
    rates, factor = frequencies(dim, attributes["theta"], attributes["scaling"], start + length)
    positions = torch.arange(start, start + length, dtype=torch.float64)
    angles = positions[:, None] * rates
    cos, sin = (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype)
    if attributes["interleaved"]:
        a, b = x[..., 0::2], x[..., 1::2]
        y = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        y = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return {"y": y}


def alibi_slopes(inputs, attributes):
    def powers(heads):
        start = 2.0 ** (-8.0 / heads)
        return [start ** (i + 1) for i in range(heads)]

    heads = attributes["heads"]
    closest = 2 ** math.floor(math.log2(heads))
    slopes = powers(closest)
    if closest < heads:
        slopes += powers(2 * closest)[0::2][: heads - closest]
    return {"slopes": torch.tensor(slopes, dtype=torch.float64)}


def t5_buckets(inputs, attributes):
    """Hugging Face's `T5Attention._relative_position_bucket`, with f32 logarithms as there."""
    relative, buckets = inputs["relative"], attributes["buckets"]
    result = torch.zeros_like(relative)
    if attributes["bidirectional"]:
        buckets //= 2
        result = result + (relative > 0).long() * buckets
        relative = relative.abs()
    else:
        relative = -relative.clamp(max=0)
    exact = buckets // 2
    large = exact + (
        torch.log(relative.float() / exact)
        / math.log(attributes["max_distance"] / exact)
        * (buckets - exact)
    ).long()
    large = large.clamp(max=buckets - 1)
    return {"buckets": result + torch.where(relative < exact, relative, large)}


OPERATIONS = {
    "multi_head_attention": multi_head_attention,
    "encoder": encoder,
    "decoder_layer": decoder_layer,
    "transformer": transformer,
    "rotary": rotary,
    "alibi_slopes": alibi_slopes,
    "t5_buckets": t5_buckets,
}

DEEP = Tolerance(5e-5, 5e-5)
WIDTH, INNER = 4, 5


def _attention_weights(prefix=""):
    return {
        f"{prefix}in_proj_weight": normal(3 * WIDTH, WIDTH, scale=0.6),
        f"{prefix}in_proj_bias": normal(3 * WIDTH, scale=0.5),
        f"{prefix}out_proj.weight": normal(WIDTH, WIDTH, scale=0.6),
        f"{prefix}out_proj.bias": normal(WIDTH, scale=0.5),
    }


def _norm_weights(name):
    return {f"{name}.weight": normal(WIDTH), f"{name}.bias": normal(WIDTH)}


def _rest_weights(prefix, norms):
    linears = {
        f"{prefix}linear1.weight": normal(INNER, WIDTH, scale=0.6),
        f"{prefix}linear1.bias": normal(INNER, scale=0.5),
        f"{prefix}linear2.weight": normal(WIDTH, INNER, scale=0.6),
        f"{prefix}linear2.bias": normal(WIDTH, scale=0.5),
    }
    for norm in range(1, norms + 1):
        linears |= _norm_weights(f"{prefix}norm{norm}")
    return linears


def _encoder_weights(prefix=""):
    return _attention_weights(f"{prefix}self_attn.") | _rest_weights(prefix, 2)


def _decoder_weights(prefix=""):
    attention = _attention_weights(f"{prefix}self_attn.")
    return attention | _attention_weights(f"{prefix}multihead_attn.") | _rest_weights(prefix, 3)


def _attributes(norm_first, activation, **rest):
    return {"heads": 2, "norm_first": norm_first, "activation": activation, "epsilon": 1e-5} | rest


def _attention_case(name, query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4), extra=None, zero=False, bias=True):
    inputs = {"query": normal(*query), "key": normal(*key), "value": normal(*value)}
    if key[2] == value[2] == WIDTH:
        inputs["in_proj_weight"] = normal(3 * WIDTH, WIDTH, scale=0.6)
    else:
        inputs["q_proj_weight"] = normal(WIDTH, WIDTH, scale=0.6)
        inputs["k_proj_weight"] = normal(WIDTH, key[2], scale=0.6)
        inputs["v_proj_weight"] = normal(WIDTH, value[2], scale=0.6)
    inputs["out_proj.weight"] = normal(WIDTH, WIDTH, scale=0.6)
    if bias:
        inputs["in_proj_bias"] = normal(3 * WIDTH, scale=0.5)
        inputs["out_proj.bias"] = normal(WIDTH, scale=0.5)
    op = "multi_head_attention"
    attributes = {"heads": 2, "add_zero_attn": zero}
    constant = ("mask",)
    return Case(f"{op}_{name}", op, inputs | (extra or {}), attributes, constant=constant, tolerance=DEEP)


def _bias_kv():
    return {"bias_k": normal(1, 1, WIDTH), "bias_v": normal(1, 1, WIDTH)}


def _encoder_case(name, layers, norm_first, activation, final_norm=True, causal=False, **extra):
    inputs = {"x": normal(2, 3, WIDTH)}
    for layer in range(layers):
        inputs |= _encoder_weights(f"layers.{layer}.")
    if final_norm:
        inputs |= _norm_weights("norm")
    attributes = _attributes(norm_first, activation, layers=layers, causal=causal)
    return Case(f"encoder_{name}", "encoder", inputs | extra, attributes, tolerance=DEEP)


def _decoder_case(name, norm_first, activation, causal, **extra):
    inputs = {"target": normal(2, 3, WIDTH), "memory": normal(2, 4, WIDTH)} | _decoder_weights()
    attributes = _attributes(norm_first, activation, causal=causal)
    return Case(f"decoder_layer_{name}", "decoder_layer", inputs | extra, attributes, tolerance=DEEP)


def _transformer_case(name, norm_first):
    weights = (
        _encoder_weights("encoder.layers.0.")
        | _norm_weights("encoder.norm")
        | _decoder_weights("decoder.layers.0.")
        | _norm_weights("decoder.norm")
    )
    inputs = {"source": normal(2, 4, WIDTH), "target": normal(2, 3, WIDTH)} | weights
    attributes = _attributes(norm_first, "relu")
    constant = tuple(weights)
    return Case(
        f"transformer_{name}", "transformer", inputs, attributes, constant=constant, tolerance=DEEP
    )


def _rotary_case(name, scaling, interleaved=False, start=0, theta=10000.0, dim=8):
    attributes = {"theta": theta, "interleaved": interleaved, "start": start, "scaling": scaling}
    return Case(f"rotary_{name}", "rotary", {"x": normal(1, 2, 3, dim)}, attributes)


NONE = {"kind": "none"}
DYNAMIC = {"kind": "dynamic", "factor": 2.0, "original": 16}
YARN = {"kind": "yarn", "factor": 4.0, "original": 64, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {"kind": "llama3", "factor": 8.0, "original": 64, "low": 1.0, "high": 4.0}
# Distances around each boundary of the buckets.
RELATIVE = literal([*range(-140, 141, 4), *range(-34, 35), -91, -90, 90, 91, -46, -45, 45, 46])


def _buckets_case(name, buckets, max_distance, bidirectional):
    attributes = {"buckets": buckets, "max_distance": max_distance, "bidirectional": bidirectional}
    return Case(f"t5_buckets_{name}", "t5_buckets", {"relative": RELATIVE}, attributes)


CASES = [
    _attention_case("kdim_vdim", (2, 3, 4), (2, 5, 3), (2, 5, 2)),
    _attention_case("kdim_no_bias", (2, 3, 4), (2, 5, 3), (2, 5, 4), bias=False),
    _attention_case("bias_kv", extra=_bias_kv()),
    _attention_case("zero_attention", zero=True),
    _attention_case(
        "bias_kv_zero_masks",
        extra=_bias_kv() | {
            "mask": literal([[False, True, True], [False, False, True], [False, False, False]]),
            "key_padding_mask": literal([[False, False, True], [False, False, False]]),
        },
        zero=True,
    ),
    _attention_case("additive_mask", extra={"mask": normal(4, 3, 3)}),
    _encoder_case("stack_norm_first", 2, True, "gelu"),
    _encoder_case("stack_norm_last", 2, False, "relu", final_norm=False),
    _encoder_case("causal", 1, True, "gelu", causal=True),
    _encoder_case(
        "padding", 1, False, "relu",
        padding=literal([[False, False, True], [False, False, False]]),
    ),
    _decoder_case("norm_last", False, "relu", False),
    _decoder_case("norm_first", True, "gelu", False),
    _decoder_case(
        "causal_memory_mask", False, "relu", True,
        memory_mask=literal(
            [[False, True, False, False], [False, False, True, False], [False, False, False, True]]
        ),
    ),
    _decoder_case(
        "causal_memory_padding", True, "relu", True,
        memory_padding=literal([[False, False, True, True], [False, False, False, True]]),
    ),
    _transformer_case("norm_last", False),
    _transformer_case("norm_first", True),
    _rotary_case("halves", NONE),
    _rotary_case("interleaved", NONE, interleaved=True),
    _rotary_case("halves_late", NONE, start=100),
    _rotary_case("interleaved_theta", NONE, interleaved=True, start=7, theta=500000.0),
    _rotary_case("linear", {"kind": "linear", "factor": 4.0}, start=9),
    _rotary_case("ntk", {"kind": "ntk", "factor": 4.0}, start=9),
    _rotary_case("dynamic_short", DYNAMIC, start=4),
    _rotary_case("dynamic_long", DYNAMIC, start=40),
    _rotary_case("yarn", YARN, start=50, dim=16),
    _rotary_case("yarn_interleaved", YARN, start=50, interleaved=True, theta=100.0),
    _rotary_case("llama3", LLAMA3, start=50, dim=16),
    *[Case(f"alibi_slopes_{heads}", "alibi_slopes", {}, {"heads": heads}) for heads in (1, 2, 6, 8, 12, 16)],
    _buckets_case("bidirectional", 32, 128, True),
    _buckets_case("causal", 32, 128, False),
    _buckets_case("small", 8, 20, True),
]
