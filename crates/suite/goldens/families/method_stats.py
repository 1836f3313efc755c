"""Statistics."""

import torch

from .case import Tolerance, integers, literal, normal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add

SOME = literal([[-0.9, 0.1, 0.3], [0.6, -0.2, 2.0]])

add("cov", torch.cov, normal(3, 5))
add("cov/columns", lambda a: torch.cov(a.T, correction=0), normal(4, 2))
add("corrcoef", torch.corrcoef, normal(3, 5))
add("cov", torch.cov, literal([[1e7, 1e7 + 1, 1e7 + 4, 1e7 + 7], [1.0, 2.0, 4.0, -1.0]]), name="cov_far",
    gradient=False, tolerance=Tolerance(1e-5, 1e-4))
add("histc", lambda a: torch.histc(a, 4, -1.0, 1.0), SOME, gradient=False)
add("histc/of all", lambda a: torch.histc(a, 3), SOME, gradient=False)
add("histc", lambda a: torch.histc(a, 4, -1.0, 1.0), literal([-1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.5, -1.5]),
    name="histc_edges", gradient=False)
add("histc/of all", lambda a: torch.histc(a, 3), literal([2.0, 2.0, 2.0]), name="histc_of_one_number", gradient=False)
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
add("bincount", lambda a: torch.bincount(a, minlength=3), integers(0, 2, 0), name="bincount_of_nothing")
add("bincount", lambda a: torch.bincount(a, minlength=3), literal([0, 0, 1]), name="bincount_short")
add(
    "bincount/weighted, at least 8",
    lambda a, b: torch.bincount(a, b, minlength=8),
    literal([3, 3, 0, 5, 3]),
    normal(5),
    gradient=False,
)
for variant, p in [("", 2.0), ("/1", 1.0), ("/inf", float("inf")), ("/3", 3.0), ("/3.5", 3.5), ("/1.5", 1.5)]:
    add(f"cdist{variant}", lambda a, b, p=p: torch.cdist(a, b, p), normal(2, 3), normal(4, 3))
add("cdist/0", lambda a, b: torch.cdist(a, b, 0.0), normal(2, 3), normal(4, 3), gradient=False)
add(
    "cdist/0",
    lambda a, b: torch.cdist(a, b, 0.0),
    literal([[1.0, 2.0], [0.0, 1.0]]),
    literal([[1.0, 2.0], [3.0, 1.0]]),
    name="cdist_0_gradient",
)
# More than 25 rows on one side, where PyTorch turns to a matrix product.
for name, left, right in [("left", 26, 3), ("right", 3, 27), ("not", 25, 3)]:
    add("cdist", lambda a, b: torch.cdist(a, b, 2.0), normal(left, 2), normal(right, 2), name=f"cdist_many_rows_{name}",
        tolerance=Tolerance(2e-4, 1e-5))
add(
    "cdist",
    lambda a, b: torch.cdist(a, b, 2.0),
    lambda source: integers(-4, 4, 26, 2)(source).double(),
    literal([[1.0, 2.0], [0.0, -3.0]]),
    name="cdist_many_rows_same",
)
for key, mode in [("cdist_with_mode", "use_mm_for_euclid_dist"), ("cdist_with_mode/direct", "donot_use_mm_for_euclid_dist")]:
    add(key, lambda a, b, mode=mode: torch.cdist(a, b, 2.0, mode), normal(2, 3), normal(4, 3))
    add(
        key,
        lambda a, b, mode=mode: torch.cdist(a, b, 2.0, mode),
        normal(2, 2, 3),
        normal(1, 4, 3),
        name=f"{key.replace('/', '_')}_batches",
    )
add(
    "cdist_with_mode",
    lambda a, b: torch.cdist(a, b, 2.0, "use_mm_for_euclid_dist"),
    literal([[1.0, 2.0], [0.0, 1.0]]),
    literal([[1.0, 2.0], [3.0, 4.0]]),
    name="cdist_with_mode_same",
)
for variant, p in [("/1", 1.0), ("/1.5", 1.5), ("/3.5", 3.5)]:
    add(
        f"cdist{variant}",
        lambda a, b, p=p: torch.cdist(a, b, p),
        literal([[1.0, 2.0], [0.0, 1.0]]),
        literal([[1.0, 2.0], [1.0, 4.0]]),
        name=f"cdist_{p}_same",
    )
add(
    "cdist",
    lambda a, b: torch.cdist(a, b, 2.0),
    literal([[1.0, 2.0], [0.0, 1.0]]),
    literal([[1.0, 2.0], [3.0, 4.0]]),
    name="cdist_same",
)
add("pdist", torch.pdist, normal(4, 3))
add("pdist/1.5", lambda a: torch.pdist(a, 1.5), normal(4, 3))
add(
    "cdist/inf",
    lambda a, b: torch.cdist(a, b, float("inf")),
    # No two equal differences: of several greatest ones PyTorch gives each the whole gradient, Kiln a share.
    literal([[1.0, 2.0], [0.0, 1.5]]),
    literal([[1.0, 2.0], [1.0, 4.0]]),
    name="cdist_inf_same",
)
