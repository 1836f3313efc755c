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
# PyTorch counts the tensor's own element among the equal ones even where it does not take part: there it is no
# equal one here.
for variant, reduction in [("max", "amax"), ("min", "amin")]:
    for suffix, include_self in [("", True), (" alone", False)]:
        add(
            f"scatter_reduce/{variant}{suffix}",
            reduced(reduction, include_self),
            literal([[2.0, 2.0, 0.5] if include_self else [7.0, -7.0, 0.5]]),
            literal([[0, 0, 1, 1, 1]]),
            literal([[2.0, 2.0, 3.0, 3.0, 1.0]]),
            name=f"scatter_reduce_{variant}{suffix.replace(' ', '_')}_tied",
        )
for suffix, include_self in [("", True), (" alone", False)]:
    add(
        f"scatter_reduce/prod{suffix}",
        reduced("prod", include_self),
        literal([[1.5, 0.0, 2.0]]),
        literal([[0, 0, 0, 1, 1]]),
        literal([[0.0, 0.0, 3.0, 2.0, 4.0]]),
        name=f"scatter_reduce_prod{suffix.replace(' ', '_')}_two_zeros",
    )
    add(
        f"scatter_reduce/mean{suffix}",
        reduced("mean", include_self),
        normal(2, 3),
        literal([[1, 1, 1, 1], [0, 2, 0, 0]]),
        normal(2, 4),
        name=f"scatter_reduce_mean{suffix.replace(' ', '_')}_repeated",
    )
add(
    "scatter",
    lambda a, b, c: torch.scatter_add(a, 1, b, c),
    normal(2, 3),
    literal([[1, 1, 1, 1], [0, 2, 0, 0]]),
    normal(2, 4),
    name="scatter_repeated",
)
add(
    "scatter_nd",
    lambda a, b, c: torch.index_put(a, (b[:, 0], b[:, 1]), c, accumulate=True),
    normal(2, 2, 3),
    literal([[1, 0], [0, 1], [1, 0], [1, 0]]),
    normal(4, 3),
    name="scatter_nd_repeated",
)
add(
    "scatter_nd/set",
    lambda a, b, c: torch.index_put(a, (b[:, 0],), c),
    normal(3, 2),
    literal([[2], [0]]),
    normal(2, 2),
)


def index_reduced(axis: int, reduction: str, include_self: bool):
    return lambda a, b, c: torch.index_reduce(a, axis, b, c, reduction, include_self=include_self)


away = uniform(0.5, 2.0, 2, 3), uniform(0.5, 2.0, 2, 4)
add("index_reduce/prod", index_reduced(1, "prod", True), away[0], literal([2, 0, 2, 2]), away[1])
add(
    "index_reduce/prod",
    index_reduced(1, "prod", True),
    literal([[1.5, 0.0, 2.0]]),
    literal([0, 0, 0, 1]),
    literal([[0.0, 0.0, 3.0, 2.0]]),
    name="index_reduce_prod_zeros",
)
add("index_reduce/mean alone", index_reduced(0, "mean", False), normal(3, 2), literal([1, 1, 0, 1]), normal(4, 2))
add("index_reduce/mean", index_reduced(0, "mean", True), normal(3, 2), literal([1, 1, 0, 1]), normal(4, 2))
add("index_reduce/max", index_reduced(0, "amax", True), normal(3, 2), literal([1, 1, 0, 1]), normal(4, 2))
add(
    "index_reduce/max",
    index_reduced(0, "amax", True),
    literal([[2.0], [1.0]]),
    literal([0, 0, 1, 1]),
    literal([[2.0], [1.0], [3.0], [3.0]]),
    name="index_reduce_max_tied",
)
add("index_reduce/min alone", index_reduced(0, "amin", False), normal(3, 2), literal([1, 1, 0, 1]), normal(4, 2))
# Elements that lie at several places of the result.
add("as_strided", lambda a: torch.as_strided(a, (3, 2), (1, 2), 1), normal(6))
add("as_strided", lambda a: torch.as_strided(a, (3, 2), (1, 2), 1), normal(2, 3), name="as_strided_matrix")
add("as_strided/one element", lambda a: torch.as_strided(a, (2, 3), (0, 0), 0), normal(1))
add("as_strided/windows", lambda a: torch.as_strided(a, (2, 3, 2), (4, 1, 1), 1), normal(9))
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
