"""Reductions and scans along axes."""

import torch

from .case import Case, Tolerance, booleans, distinct, integers, literal, normal, uniform


def _over_axes(function):
    def run(inputs, attributes):
        return {"y": function(inputs["x"], attributes["axes"], keepdim=attributes["keep"])}

    return run


def prod(inputs, attributes):
    y = inputs["x"]
    if attributes["axes"] is None:
        return {"y": y.prod()}
    (axis,) = attributes["axes"]
    return {"y": y.prod(axis, keepdim=attributes["keep"])}


def _spread(function):
    def run(inputs, attributes):
        return {
            "y": function(
                inputs["x"],
                attributes["axes"],
                correction=attributes["correction"],
                keepdim=attributes["keep"],
            )
        }

    return run


def _with_index(function):
    def run(inputs, attributes):
        y, indices = function(inputs["x"], attributes["axis"], keepdim=attributes["keep"])
        return {"y": y, "indices": indices}

    return run


def vector_norm(inputs, attributes):
    order = float(attributes["order"])
    return {
        "y": torch.linalg.vector_norm(
            inputs["x"], order, attributes["axes"], keepdim=attributes["keep"]
        )
    }


def _scan(function):
    return lambda inputs, attributes: {"y": function(inputs["x"], attributes["axis"])}


def _scan_with_index(function):
    def run(inputs, attributes):
        y, indices = function(inputs["x"], attributes["axis"])
        return {"y": y, "indices": indices}

    return run


OPERATIONS = {
    "sum": _over_axes(torch.sum),
    "mean": _over_axes(torch.mean),
    "amin": _over_axes(torch.amin),
    "amax": _over_axes(torch.amax),
    "logsumexp": _over_axes(torch.logsumexp),
    "prod": prod,
    "var": _spread(torch.var),
    "std": _spread(torch.std),
    "max": _with_index(torch.max),
    "min": _with_index(torch.min),
    "median": _with_index(torch.median),
    "vector_norm": vector_norm,
    "cumsum": _scan(torch.cumsum),
    "cumprod": _scan(torch.cumprod),
    "logcumsumexp": _scan(torch.logcumsumexp),
    "cummax": _scan_with_index(torch.cummax),
    "cummin": _scan_with_index(torch.cummin),
    "any": lambda inputs, attributes: {"y": inputs["x"].any(attributes["axis"])},
    "all": lambda inputs, attributes: {"y": inputs["x"].all(attributes["axis"])},
    "diff": lambda inputs, attributes: {"y": inputs["x"].diff(attributes["n"], attributes["axis"])},
}

INFINITY = float("inf")
CUBE = normal(2, 3, 4)
COMPARING = ["amin", "amax", "cummin", "cummax"]
SPREAD = Tolerance(2e-5, 2e-5)


def _reduce(name, op, x=CUBE, axes=(1,), keep=False, **options):
    attributes = {"axes": list(axes), "keep": keep} | options.pop("attributes", {})
    return Case(name, op, {"x": x}, attributes, **options)


def _spread_case(name, op, axes=(1,), keep=False, correction=1, x=CUBE, **options):
    return _reduce(name, op, x, axes, keep, attributes={"correction": correction}, **options)


def _norm(name, order, axes=(1,)):
    return _reduce(
        f"vector_norm_{name}", "vector_norm", axes=axes, attributes={"order": order},
        gradient=order != 0.0,
    )


def _along(name, op, x=CUBE, axis=1, **options):
    return Case(name, op, {"x": x}, {"axis": axis}, **options)


ONE_ZERO = literal([[1.5, 0.0, -2.0], [0.5, 3.0, -1.0]])
TWO_ZEROS = literal([[1.5, 0.0, -2.0, 0.0], [0.0, 3.0, -1.0, 2.0]])

CASES = [
    *(
        _reduce(f"{op}_{name}", op, CUBE if op not in COMPARING else distinct(2, 3, 4), axes, keep)
        for op in ["sum", "mean", "amin", "amax", "logsumexp"]
        for name, axes, keep in [
            ("first", (0,), False),
            ("middle_kept", (1,), True),
            ("last", (2,), False),
            ("outer", (0, 2), False),
            ("everything", (0, 1, 2), False),
        ]
    ),
    _reduce("sum_long", "sum", normal(1, 150)),
    _reduce("sum_empty", "sum", normal(2, 0, 3)),
    _reduce("sum_f64", "sum", dtype="f64"),
    _reduce("mean_f64", "mean", dtype="f64"),
    _reduce("amax_ties", "amax", literal([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])),
    # One bit of f32 is 6e-5 at 1000, and the gradient is an exponential of such numbers.
    _reduce("logsumexp_large", "logsumexp",
            literal([[1000.0, 1000.0, 999.0], [-1000.0, -1001.0, -999.0]]),
            tolerance=Tolerance(1e-4, 1e-4)),
    _reduce("logsumexp_infinite", "logsumexp",
            literal([[-INFINITY, 1.0, 2.0], [0.0, -INFINITY, -1.0]])),
    _reduce("prod_last", "prod", axes=(2,)),
    _reduce("prod_middle_kept", "prod", keep=True),
    _reduce("prod_one_zero", "prod", ONE_ZERO),
    _reduce("prod_two_zeros", "prod", TWO_ZEROS),
    _reduce("prod_first_zeros", "prod", TWO_ZEROS, axes=(0,)),
    Case("prod_everything", "prod", {"x": CUBE}, {"axes": None, "keep": False}),
    Case("prod_everything_zero", "prod", {"x": ONE_ZERO}, {"axes": None, "keep": False}),
    *(
        _spread_case(f"{op}_{name}", op, axes, keep, correction, tolerance=SPREAD)
        for op in ["var", "std"]
        for name, axes, keep, correction in [
            ("sample", (1,), False, 1),
            ("population", (1,), False, 0),
            ("kept", (2,), True, 1),
            ("two_axes", (0, 2), False, 1),
            ("everything", (0, 1, 2), False, 1),
        ]
    ),
    _spread_case("var_f64", "var", dtype="f64"),
    _spread_case("var_offset", "var", (0,), x=literal([1000.0, 1001.0, 999.5, 1000.25, 998.75]),
                 tolerance=Tolerance(1e-4, 1e-4)),
    *(
        Case(f"{op}{suffix}", op, {"x": distinct(2, 5, 3)}, {"axis": 1, "keep": keep})
        for op in ["max", "min", "median"]
        for suffix, keep in [("", False), ("_kept", True)]
    ),
    Case("median_even", "median", {"x": distinct(3, 4)}, {"axis": 1, "keep": False}),
    _norm("one", 1.0),
    _norm("two", 2.0),
    _norm("three", 3.0),
    _norm("infinity", "inf"),
    _norm("everything", 2.0, (0, 1, 2)),
    *(
        _norm(f"{name}_outer", order, (0, 2))
        for name, order in [
            ("zero", 0.0), ("half", 0.5), ("one", 1.0), ("three", 3.0), ("infinity", "inf"),
        ]
    ),
    _reduce("vector_norm_outer_kept", "vector_norm", axes=(0, 2), keep=True, attributes={"order": 2.0}),
    _reduce("vector_norm_outer_zeros", "vector_norm", literal([[[0.0, 0.0]], [[0.0, 0.0]]]), axes=(0, 2),
            attributes={"order": 2.0}),
    _reduce("vector_norm_outer_ties", "vector_norm", literal([[[2.0, -1.0]], [[-2.0, 2.0]]]),
            axes=(0, 2), attributes={"order": "inf"}),
    *(
        _along(f"{op}_{name}", op, CUBE if op not in COMPARING else distinct(2, 3, 4), axis)
        for op in ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]
        for name, axis in [("first", 0), ("middle", 1), ("last", 2)]
    ),
    _along("cumsum_long", "cumsum", normal(1, 150), tolerance=Tolerance(1e-4, 1e-5)),
    _along("cumsum_f64", "cumsum", dtype="f64"),
    _along("cumprod_one_zero", "cumprod", ONE_ZERO),
    _along("cumprod_two_zeros", "cumprod", TWO_ZEROS),
    _along("cummax_ties", "cummax", literal([[1.0, 3.0, 3.0, 2.0, 4.0, 4.0]]), gradient=False),
    _along("any", "any", booleans(4, 3), gradient=False),
    _along("all", "all", booleans(4, 3, probability=0.8), gradient=False),
    Case("sum_integers", "sum", {"x": integers(-50, 50, 3, 4)}, {"axes": [1], "keep": False},
         gradient=False),
    Case("cumsum_integers", "cumsum", {"x": integers(-50, 50, 3, 4)}, {"axis": 1}, gradient=False),
    Case("diff_once", "diff", {"x": normal(3, 5)}, {"n": 1, "axis": 1}),
    Case("diff_twice", "diff", {"x": normal(5, 2)}, {"n": 2, "axis": 0}),
    Case("diff_never", "diff", {"x": normal(2, 3)}, {"n": 0, "axis": 1}),
    Case("diff_all", "diff", {"x": normal(2, 3)}, {"n": 2, "axis": 1}),
    Case("diff_beyond", "diff", {"x": normal(2, 3)}, {"n": 9, "axis": 1}),
    _reduce("mean_positive", "mean", uniform(1.0, 2.0, 3, 7)),
]
