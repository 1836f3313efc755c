"""Order, sets and quantiles."""

import torch

from .case import distinct, literal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add

NAN, INF = float("nan"), float("inf")
TIED = literal([[1.0, 3.0, NAN, 1.0, 3.0], [INF, 0.5, 0.5, NAN, -1.0]])
GAPS = literal([[1.0, NAN, 2.5, 0.0, 7.0, 3.0], [0.5, 1.0, 2.0, 5.0, 4.0, 3.0]])
REPEATED = literal([[2.0, -1.0, 2.0, 0.5], [0.5, 0.5, 0.5, -1.0]])
COLUMNS = literal([[2.0, 0.5, 2.0, 2.0, 0.5], [1.0, 3.0, 1.0, -1.0, 3.0]])
RUNS = literal([[2.0, 2.0, 0.5, 0.5], [0.5, -1.0, 2.0, 2.0]])

for suffix, descending in [("", False), ("_descending", True)]:

    def ordered(a, axis=1, descending=descending):
        return tuple(torch.sort(a, dim=axis, descending=descending, stable=True))

    add(f"sort{suffix}", lambda a, f=ordered: f(a)[0], distinct(2, 4))
    add(f"sort{suffix}_with_indices", ordered, distinct(2, 4))
    add(f"sort{suffix}_with_indices/ties", ordered, TIED, gradient=False)
    add(f"argsort{suffix}", lambda a, f=ordered: f(a, 0)[1], distinct(4, 2), gradient=False)
add("msort", torch.msort, distinct(3, 2))
for name, largest in [("topk", True), ("topk_smallest", False)]:

    def first(a, largest=largest):
        return tuple(torch.topk(a, 2, 1, largest))

    add(name, lambda a, f=first: f(a)[0], distinct(2, 4))
    add(f"{name}_with_indices", first, distinct(2, 4))
add("argtopk", lambda a: torch.topk(a, 2, 1)[1], distinct(2, 4), gradient=False)
add("kthvalue", lambda a: tuple(torch.kthvalue(a, 2, 1, True)), distinct(2, 4))
for name, function in [("median", torch.median), ("nanmedian", torch.nanmedian)]:
    add(name, lambda a, f=function: f(a, 1, True)[0], distinct(2, 5))
    add(f"{name}_with_indices", lambda a, f=function: tuple(f(a, 1, True)), distinct(2, 4))
    # Which of several equal elements is found is not fixed in PyTorch.
    add(f"{name}_with_indices/nan", lambda a, f=function: (f(a, 1, True)[0],), GAPS, gradient=False)
add("mode", lambda a: (torch.mode(a, 1, True)[0],), REPEATED, gradient=False)
for name, function in [("quantile", torch.quantile), ("nanquantile", torch.nanquantile)]:
    for interpolation in ["linear", "lower", "higher", "nearest", "midpoint"]:
        variant = "" if interpolation == "linear" else f"/{interpolation}"
        add(
            f"{name}{variant}",
            lambda a, f=function, i=interpolation: f(
                a, torch.tensor([0.0, 0.3, 0.5, 1.0], dtype=a.dtype), 1, interpolation=i
            ).T,
            distinct(2, 5),
        )
    add(
        f"{name}/nan",
        lambda a, f=function: f(a, torch.tensor([0.4, 0.75], dtype=a.dtype), 1).T,
        GAPS,
        gradient=False,
    )


def distinct_with(**options):
    return lambda a: torch.unique(a, return_inverse=True, return_counts=True, **options)


def runs_with(**options):
    return lambda a: torch.unique_consecutive(a, return_inverse=True, return_counts=True, **options)


add("unique", torch.unique, REPEATED, gradient=False)
add("unique_with_counts", distinct_with(), REPEATED, gradient=False)
add("unique_dim", distinct_with(dim=1), COLUMNS, gradient=False)
add("unique_consecutive", runs_with(), RUNS, gradient=False)
add("unique_consecutive_dim", runs_with(dim=1), COLUMNS, gradient=False)
add("isin", torch.isin, TIED, literal([0.5, NAN, 3.0]), gradient=False)
