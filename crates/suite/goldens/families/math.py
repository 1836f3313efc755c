"""Element-wise arithmetic: the meaning of rounding, remainders, powers and special values."""

import torch

from .case import Case, Tolerance, literal, normal, uniform


def _unary(function):
    return lambda inputs, attributes: {"y": function(inputs["x"])}


def _binary(function):
    return lambda inputs, attributes: {"y": function(inputs["a"], inputs["b"])}


def where(inputs, attributes):
    return {"y": torch.where(inputs["condition"], inputs["a"], inputs["b"])}


def clamp(inputs, attributes):
    return {"y": inputs["x"].clamp(attributes["min"], attributes["max"])}


UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "recip": torch.reciprocal,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "square": torch.square,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "ln": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "tanh": torch.tanh,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "atan2": torch.atan2,
}
OPERATIONS = {
    **{name: _unary(function) for name, function in UNARY.items()},
    **{name: _binary(function) for name, function in BINARY.items()},
    "where": where,
    "clamp": clamp,
}

INFINITY, NAN = float("inf"), float("nan")
POSITIVE = uniform(0.1, 4.0, 12)
WITHIN_ONE = uniform(-0.9, 0.9, 12)
DOMAINS = {
    "recip": uniform(0.3, 3.0, 12),
    "sqrt": POSITIVE,
    "rsqrt": POSITIVE,
    "ln": POSITIVE,
    "log2": POSITIVE,
    "log10": POSITIVE,
    "log1p": uniform(-0.8, 3.0, 12),
    "tan": uniform(-1.3, 1.3, 12),
    "asin": WITHIN_ONE,
    "acos": WITHIN_ONE,
    "acosh": uniform(1.2, 4.0, 12),
    "atanh": WITHIN_ONE,
}
HALVES = literal([-2.5, -1.5, -0.5, -0.25, 0.0, 0.25, 0.5, 1.5, 2.5, 3.5, 8388609.0, -0.75])
SPECIAL = literal([0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN])
DIVIDENDS = literal([5.5, -5.5, 5.5, -5.5, 6.0, -6.0, 0.0, 1.0, 7.25])
DIVISORS = literal([3.0, 3.0, -3.0, -3.0, 3.0, 3.0, 2.0, 0.25, -0.5])


def _special(name):
    """Values only: gradients at poles and infinities are not something to hold an engine to."""
    return Case(f"{name}_special", name, {"x": SPECIAL}, gradient=False)


def _two(name, op, a, b, **options):
    return Case(name, op, {"a": a, "b": b}, **options)


CASES = [
    *(Case(name, name, {"x": DOMAINS.get(name, normal(12))}) for name in UNARY),
    *(
        _special(name)
        for name in [
            "abs", "recip", "sqrt", "exp", "expm1", "ln", "log1p", "tanh", "atan", "erf",
            "floor", "round",
        ]
    ),
    *(Case(f"{name}_halves", name, {"x": HALVES}) for name in ["floor", "ceil", "round", "trunc"]),
    Case("expm1_small", "expm1", {"x": literal([1e-7, -1e-7, 1e-3, -1e-3, 1e-20])},
         tolerance=Tolerance(1e-26, 1e-5)),
    Case("log1p_small", "log1p", {"x": literal([1e-7, -1e-7, 1e-3, -1e-3, 1e-20])},
         tolerance=Tolerance(1e-26, 1e-5)),
    _two("add_broadcast", "add", normal(3, 1, 4), normal(2, 1)),
    _two("sub_broadcast", "sub", normal(4), normal(3, 1)),
    _two("mul_broadcast", "mul", normal(2, 3, 1), normal(3, 4)),
    _two("div_broadcast", "div", normal(2, 3), uniform(0.5, 2.0, 3)),
    _two("div_special", "div", literal([1.0, -1.0, 0.0, INFINITY]),
         literal([0.0, 0.0, 0.0, INFINITY]), gradient=False),
    _two("fmod", "fmod", DIVIDENDS, DIVISORS),
    _two("remainder", "remainder", DIVIDENDS, DIVISORS),
    _two("pow", "pow", POSITIVE, normal(12)),
    _two("pow_negative_base", "pow", literal([-2.0, -2.0, -2.0, -0.5, -3.0]),
         literal([2.0, 3.0, -1.0, 4.0, 0.0]), constant=("b",)),
    _two("pow_zero", "pow", literal([0.0, 0.0, 0.0, 2.0]), literal([0.0, 1.0, 2.0, 0.0]),
         constant=("b",)),
    _two("minimum", "minimum", normal(12), normal(12)),
    _two("maximum", "maximum", normal(12), normal(12)),
    _two("minimum_ties", "minimum", literal([1.0, 2.0, 3.0]), literal([1.0, 1.0, 4.0])),
    _two("maximum_ties", "maximum", literal([1.0, 2.0, 3.0]), literal([1.0, 1.0, 4.0])),
    _two("maximum_nan", "maximum", literal([NAN, 1.0, NAN]), literal([1.0, NAN, NAN]),
         gradient=False),
    _two("atan2", "atan2", normal(12), normal(12)),
    _two("atan2_axes", "atan2", literal([0.0, 0.0, 1.0, -1.0, -0.0, 0.0]),
         literal([1.0, -1.0, 0.0, 0.0, -1.0, 0.0]), gradient=False),
    Case("where_broadcast", "where",
         {"condition": literal([[True], [False]]), "a": normal(3), "b": normal(2, 3)}),
    Case("clamp_both", "clamp", {"x": normal(12)}, {"min": -0.5, "max": 0.75}),
    Case("clamp_low", "clamp", {"x": normal(12)}, {"min": 0.0, "max": None}),
    Case("clamp_bounds", "clamp", {"x": literal([-1.0, -0.5, 0.0, 0.5, 1.0])},
         {"min": -0.5, "max": 0.5}),
    Case("clamp_low_bound", "clamp", {"x": literal([-1.0, -0.5, 0.0, NAN])},
         {"min": -0.5, "max": None}),
    Case("clamp_high_bound", "clamp", {"x": literal([0.0, 0.5, 1.0, NAN])},
         {"min": None, "max": 0.5}),
    Case("clamp_nan", "clamp", {"x": literal([NAN, INFINITY, -INFINITY, 0.0])},
         {"min": -0.5, "max": 0.5}),
    _two("atan2_origin", "atan2", literal([0.0, 0.0, -0.0, 1.0]), literal([0.0, -0.0, 0.0, 2.0])),
    _two("atan2_far", "atan2", literal([1e-30, 1e30, 1e30]), literal([2e-30, -1e30, 1.0]), dtype="f64",
         tolerance=Tolerance(0.0, 1e-11)),
]
