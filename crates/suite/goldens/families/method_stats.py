"""Statistics."""

import torch

from .case import integers, literal, normal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add

SOME = literal([[-0.9, 0.1, 0.3], [0.6, -0.2, 2.0]])

add("cov", torch.cov, normal(3, 5))
add("cov/columns", lambda a: torch.cov(a.T, correction=0), normal(4, 2))
add("corrcoef", torch.corrcoef, normal(3, 5))
add("histc", lambda a: torch.histc(a, 4, -1.0, 1.0), SOME, gradient=False)
add("histc/of all", lambda a: torch.histc(a, 3), SOME, gradient=False)
add("histogram", lambda a: tuple(torch.histogram(a, 4, density=True)), SOME, gradient=False)
add(
    "histogram/weighted",
    lambda a, b: tuple(torch.histogram(a, 3, range=(-1.0, 1.5), weight=b)),
    literal([0.2, -0.9, 0.4, 1.6, -0.3]),
    literal([1.0, 0.5, 0.25, 3.0, -2.0]),
    gradient=False,
)
add(
    "histogram_between",
    lambda a, b: torch.histogram(a, b)[0],
    literal([0.2, -0.9, 0.4, 1.6, -0.3, 0.5]),
    literal([-1.0, 0.0, 0.5, 1.0]),
    gradient=False,
)
add("bincount", lambda a: torch.bincount(a, minlength=3), integers(0, 6, 7))
add("bincount/weighted", torch.bincount, integers(0, 5, 7), normal(7), gradient=False)
for variant, p in [("", 2.0), ("/1", 1.0), ("/inf", float("inf")), ("/3", 3.0)]:
    add(f"cdist{variant}", lambda a, b, p=p: torch.cdist(a, b, p), normal(2, 3), normal(4, 3))
add("cdist/0", lambda a, b: torch.cdist(a, b, 0.0), normal(2, 3), normal(4, 3), gradient=False)
add(
    "cdist",
    lambda a, b: torch.cdist(a, b, 2.0),
    literal([[1.0, 2.0], [0.0, 1.0]]),
    literal([[1.0, 2.0], [3.0, 4.0]]),
    name="cdist_same",
)
add("pdist", torch.pdist, normal(4, 3))
add("pdist/1.5", lambda a: torch.pdist(a, 1.5), normal(4, 3))
