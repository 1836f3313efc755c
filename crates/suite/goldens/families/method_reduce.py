"""Many to one."""

import torch

from .case import Tolerance, booleans, distinct, literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add

NAN, INF = float("nan"), float("inf")
TIED = literal([[1.0, 3.0, 3.0, 2.0], [2.0, 2.0, 1.0, 2.0]])
ZEROS = literal([[2.0, 0.0, 3.0], [0.0, 1.5, 0.0], [1.0, 2.0, -3.0]])
GAPS = literal([[1.0, NAN, 2.5], [0.5, 1.0, 2.0]])


def whole(function):
    """Over all elements; Kiln gives one axis of length 1."""
    return lambda a: function(a).reshape(1)


add("sum", whole(torch.sum), normal(2, 3))
add("sum_dim", lambda a: a.sum(-1, keepdim=True), normal(2, 3))
add("sum_dims", lambda a: a.sum((0, -1), keepdim=True), normal(2, 3, 2))
add("sum_dims_squeeze", lambda a: a.sum((0, 2)), normal(2, 3, 4))
add("prod", whole(torch.prod), ZEROS)
add("prod_dim", lambda a: a.prod(-1, keepdim=True), normal(2, 3))
add("prod_dim/zeros", lambda a: a.prod(1, keepdim=True), ZEROS)
add("prod_dims", lambda a: a.prod(0, keepdim=True).prod(2, keepdim=True), normal(2, 3, 2))
add("mean", whole(torch.mean), normal(2, 3))
add("mean_dim", lambda a: a.mean(-1, keepdim=True), normal(2, 3))
add("mean_dims", lambda a: a.mean((0, -1), keepdim=True), normal(2, 3, 2))
# Of NaN, `torch.amax` gives NaN to every element, `torch.max` to those that are NaN.
for name, function in [("max", torch.max), ("min", torch.min)]:
    add(name, whole(function), TIED)
    add(name, whole(function), literal([[1.0, NAN, 2.0], [NAN, 3.0, 4.0]]), name=f"{name}_nan")
for name, function in [("max", torch.amax), ("min", torch.amin)]:
    add(f"{name}_dim", lambda a, f=function: f(a, -1, keepdim=True), TIED)
    add(f"{name}_dims", lambda a, f=function: f(a, (0, -1), keepdim=True), distinct(2, 3, 2))
for name, function in [("max", torch.max), ("min", torch.min)]:
    add(f"{name}_dim_with_indices", lambda a, f=function: tuple(f(a, 1, keepdim=True)), distinct(2, 3))
    add(
        f"{name}_dim_with_indices",
        lambda a, f=function: tuple(f(a, 1, keepdim=True)),
        literal([[1.0, NAN, 2.0], [NAN, 3.0, 4.0]]),
        name=f"{name}_dim_with_indices_nan",
    )
    add(
        f"{name}_dim_with_indices",
        lambda a, f=function: tuple(f(a, 1, keepdim=True)),
        literal([[1.0, NAN, NAN], [NAN, INF, NAN]]),
        name=f"{name}_dim_with_indices_two_nan",
    )
for name, function in [("argmax", torch.argmax), ("argmin", torch.argmin)]:
    add(name, lambda a, f=function: f(a, 1, keepdim=True), TIED, gradient=False)
add("max_abs", whole(lambda a: a.abs().amax()), distinct(2, 3))
add("max_abs_dim", lambda a: a.abs().amax(-1, keepdim=True), distinct(2, 3))
add("max_abs_dims", lambda a: a.abs().amax((0, -1), keepdim=True), distinct(2, 3, 2))
add("aminmax", lambda a: tuple(torch.aminmax(a, dim=1, keepdim=True)), distinct(2, 3))
add("nansum", whole(torch.nansum), GAPS)
add("nansum_dim", lambda a: torch.nansum(a, 1, keepdim=True), GAPS)
add("nanmean", whole(torch.nanmean), GAPS)
add("nanmean_dim", lambda a: torch.nanmean(a, 1, keepdim=True), GAPS)
add("logsumexp", lambda a: torch.logsumexp(a, 1, keepdim=True), literal([[90.0, 91.0], [-3.0, -INF]]))
add("logsumexp_dims", lambda a: torch.logsumexp(a, (0, 1), keepdim=True), normal(2, 3))
for name, function in [("all", torch.all), ("any", torch.any)]:
    add(name, whole(function), booleans(2, 3))
    add(f"{name}_dim", lambda a, f=function: f(a, 1, keepdim=True), booleans(3, 2))
    add(f"{name}_dims", lambda a, f=function: f(a, (0, 1), keepdim=True), booleans(2, 1, 3))
add("var", lambda a: torch.var(a, 1, keepdim=True), normal(2, 4))
add("var_bias", lambda a: torch.var(a, 1, correction=0, keepdim=True), normal(2, 4))
add("var_dims", lambda a: torch.var(a, (0, 2), correction=0.5, keepdim=True), normal(2, 3, 2))
add("var_mean", lambda a: torch.var_mean(a, -1, keepdim=True), normal(2, 4))
add("var_mean_bias", lambda a: torch.var_mean(a, -1, correction=0, keepdim=True), normal(2, 4))
add("std", lambda a: torch.std(a, 1, keepdim=True), normal(2, 4))
add("std", lambda a: torch.std(a, 1, keepdim=True), literal([[2.0, 2.0], [1.0, 3.0]]), name="std_zero")
add("std_dims", lambda a: torch.std(a, (0, 2), correction=0, keepdim=True), normal(2, 3, 2))
add("std_mean", lambda a: torch.std_mean(a, -1, keepdim=True), normal(2, 4))
# Numbers whose mean f32 holds exactly, so that PyTorch's gradient in f32 is exact too.
FAR = literal([[1e7, 1e7 + 1, 1e7 + 4, 1e7 + 7], [-1e7, -1e7 - 2, -1e7 + 2, -1e7]])
HUGE = literal([[1e30, 1.25e30, 1.5e30, 2e30], [-1e30, 1e30, 3e30, 0.0]])
for name, function in [
    ("var", lambda a: torch.var(a, 1, keepdim=True)),
    ("var_bias", lambda a: torch.var(a, 1, correction=0, keepdim=True)),
    ("var_mean", lambda a: torch.var_mean(a, -1, keepdim=True)),
    ("var_mean_bias", lambda a: torch.var_mean(a, -1, correction=0, keepdim=True)),
    ("std", lambda a: torch.std(a, 1, keepdim=True)),
    ("std_mean", lambda a: torch.std_mean(a, -1, keepdim=True)),
]:
    add(name, function, FAR, name=f"{name}_far", gradient=False)
    if name.startswith("std"):
        add(name, function, HUGE, name=f"{name}_huge", gradient=False)
    add(name, function, literal([[1.0, INF], [NAN, 2.0]]), name=f"{name}_not_finite", gradient=False)
# PyTorch's own algorithm leaves 2e-10 here.
add("var", lambda a: torch.var(a, 1, keepdim=True), FAR, name="var_far_gradient", dtype="f64",
    tolerance=Tolerance(1e-9, 1e-9))
add("var", lambda a: torch.var(a, 1, keepdim=True), HUGE, name="var_huge", dtype="f64")
add("std", lambda a: torch.std(a, 1, keepdim=True), HUGE, name="std_huge_gradient", dtype="f64")
add("cumsum", lambda a: torch.cumsum(a, 1), normal(2, 4))
add("cumprod", lambda a: torch.cumprod(a, 1), ZEROS)
for name, function in [("cummax", torch.cummax), ("cummin", torch.cummin)]:
    add(name, lambda a, f=function: f(a, 1)[0], TIED)
    add(f"{name}_with_indices", lambda a, f=function: tuple(f(a, 1)), TIED)
    add(
        f"{name}_with_indices/ties",
        lambda a, f=function: tuple(f(a, 1)),
        literal([[1.0, NAN, 3.0, NAN, 2.0]]),
        gradient=False,
    )
for name, function in [("cummax", torch.cummax), ("cummin", torch.cummin)]:
    add(
        f"{name}_with_indices",
        lambda a, f=function: tuple(f(a, 1)),
        literal([[1.0, 2.0, NAN, 3.0, 0.5], [1.0, 1.0, 0.5, 0.5, 2.0]]),
        name=f"{name}_with_indices_nan",
    )
add("logcumsumexp", lambda a: torch.logcumsumexp(a, 1), uniform(-40.0, 40.0, 2, 5))
add("diff", lambda a: torch.diff(a, 2, 1), normal(2, 5))
add("diff", lambda a: torch.diff(a, 2, 1), normal(2, 2), name="diff_beyond")
add(
    "diff_with",
    lambda a, b, c: torch.diff(a, 1, 1, b, c),
    normal(2, 3),
    normal(2, 1),
    normal(2, 2),
)
add("trapezoid", lambda a: torch.trapezoid(a, dx=0.5, dim=1)[:, None], normal(2, 4))
add("trapezoid_at", lambda a, b: torch.trapezoid(a, b, dim=1)[:, None], normal(2, 4), normal(4))
add("cumulative_trapezoid", lambda a: torch.cumulative_trapezoid(a, dx=0.5, dim=1), normal(2, 4))
add(
    "cumulative_trapezoid_at",
    lambda a, b: torch.cumulative_trapezoid(a, b, dim=1),
    normal(2, 4),
    normal(2, 4),
)
