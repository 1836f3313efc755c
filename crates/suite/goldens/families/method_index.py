"""By index and by mask."""

import torch

from .case import booleans, integers, literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add

NAN = float("nan")


def reduced(reduction: str, include_self: bool):
    return lambda a, b, c: torch.scatter_reduce(a, 1, b, c, reduction, include_self=include_self)


add("take", lambda a, b: a[:, b], normal(2, 3), integers(0, 3, 2, 2))
add("select", lambda a, b: torch.index_select(a, 0, b), normal(3, 2), integers(0, 3, 4))
add("gather", lambda a, b: torch.gather(a, 1, b), normal(3, 3), integers(0, 3, 2, 2))
add(
    "take_along_dim",
    lambda a, b: torch.take_along_dim(a, b, 1),
    normal(2, 3),
    integers(0, 3, 1, 4),
)
add("gather_nd", lambda a, b: a[b[:, 0], b[:, 1]], normal(2, 3, 4), integers(0, 2, 3, 2))
add(
    "scatter_nd",
    lambda a, b, c: torch.index_put(a, (b[:, 0], b[:, 1]), c, accumulate=True),
    normal(2, 2, 3),
    integers(0, 2, 3, 2),
    normal(3, 3),
)
add(
    "select_assign",
    lambda a, b, c: torch.index_add(a, 1, b, c),
    normal(2, 3),
    integers(0, 3, 4),
    normal(2, 4),
)
add("index_fill", lambda a, b: torch.index_fill(a, 1, b, 0.5), normal(2, 3), integers(0, 3, 2))
add(
    "scatter",
    lambda a, b, c: torch.scatter_add(a, 1, b, c),
    normal(3, 3),
    integers(0, 3, 2, 2),
    normal(2, 2),
)
for key, reduction, make in [
    ("sum", "sum", normal),
    ("prod", "prod", lambda *shape: uniform(0.5, 2.0, *shape)),
    ("mean", "mean", normal),
    ("max", "amax", normal),
    ("min", "amin", normal),
]:
    for variant, include_self in [("", True), (" alone", False)]:
        add(
            f"scatter_reduce/{key}{variant}",
            reduced(reduction, include_self),
            make(2, 3),
            integers(0, 3, 2, 4),
            make(2, 4),
        )
add(
    "scatter_reduce/max",
    reduced("amax", True),
    literal([[1.0, 2.0]]),
    literal([[0, 0, 1, 1]]),
    literal([[3.0, 3.0, 2.0, 1.0]]),
    name="scatter_reduce_ties",
)
add(
    "scatter_reduce/prod",
    reduced("prod", True),
    literal([[1.0, 0.0]]),
    literal([[0, 0, 1, 1]]),
    literal([[0.0, 3.0, 2.0, 4.0]]),
    name="scatter_reduce_zeros",
)
add("masked_scatter", torch.masked_scatter, normal(2, 3), booleans(2, 3), normal(7))
add("mask_where", lambda a, b, c: torch.where(b, c, a), normal(2, 3), booleans(3), normal(2, 1))
add("mask_fill", lambda a, b: torch.masked_fill(a, b, 0.5), normal(2, 3), booleans(2, 1))
add("mask_select", torch.masked_select, normal(2, 1), booleans(3))
add("argwhere", torch.argwhere, booleans(2, 3))
add("nonzero", lambda a: torch.nonzero(a, as_tuple=True), booleans(2, 3))
add("count_nonzero", lambda a: torch.count_nonzero(a)[None], literal([0.0, 1.0, NAN]), gradient=False)
add(
    "count_nonzero_dim",
    lambda a: torch.count_nonzero(a, 1)[:, None],
    literal([[0.0, 1.0], [0.0, 0.0]]),
    gradient=False,
)
for key, right in [("searchsorted", False), ("searchsorted/right", True)]:
    add(
        key,
        lambda a, b, right=right: torch.searchsorted(a.sort(-1)[0], b, right=right),
        literal([[1.0, 3.0, 3.0, 5.0], [0.0, 0.0, 2.0, 4.0]]),
        literal([[3.0, 6.0, 0.0], [0.0, 2.0, NAN]]),
        gradient=False,
    )
add(
    "bucketize",
    lambda a, b: torch.bucketize(a, b.sort()[0]),
    normal(2, 3),
    normal(4),
    gradient=False,
)
