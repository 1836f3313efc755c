"""Special functions: values, gradients, and where formulas change."""

import torch

from .case import Tolerance, literal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

INFINITY, NAN = float("inf"), float("nan")
WITHIN_ONE = uniform(-0.95, 0.95, 12)
WIDE = uniform(-4.0, 4.0, 12)
EDGES = literal([0.0, 1.0, -1.0, 1e-20, INFINITY, -INFINITY, NAN])
FAR = literal([-60.0, -20.0, -9.0, 9.0, 20.0, 60.0])


def cbrt(a):
    return torch.sign(a) * torch.abs(a) ** (1.0 / 3.0)


for key, twin, smooth, extra in [
    ("asin", torch.asin, WITHIN_ONE, EDGES),
    ("acos", torch.acos, WITHIN_ONE, EDGES),
    ("sinc", torch.sinc, WIDE, literal([0.0, 1e-20, 1e-4, NAN])),
    ("sinh", torch.sinh, WIDE, EDGES),
    ("cosh", torch.cosh, WIDE, EDGES),
    ("asinh", torch.asinh, WIDE, literal([0.0, 1e-20, 1e10, 1e30, -1e30, INFINITY, NAN])),
    ("acosh", torch.acosh, uniform(1.1, 9.0, 12), literal([1.0, 0.5, -2.0, 1e10, 1e30, INFINITY, NAN])),
    ("atanh", torch.atanh, WITHIN_ONE, EDGES),
    ("exp2", torch.exp2, WIDE, literal([0.0, 1.0, -30.0, 100.0, -INFINITY, INFINITY, NAN])),
    ("log2", torch.log2, uniform(0.1, 9.0, 12), literal([0.0, 1.0, -1.0, 1e30, INFINITY, NAN])),
    ("log10", torch.log10, uniform(0.1, 9.0, 12), literal([0.0, 1.0, -1.0, 1e30, INFINITY, NAN])),
    ("cbrt", cbrt, uniform(0.1, 9.0, 12), literal([0.0, 8.0, -27.0, 1e30])),
    ("sigmoid", torch.sigmoid, WIDE, literal([-80.0, -20.0, 20.0, INFINITY, -INFINITY, NAN])),
    ("logit", torch.logit, uniform(0.05, 0.95, 12), literal([0.0, 1.0, 0.5, -0.5, NAN])),
    ("erfc", torch.special.erfc, WIDE, literal([0.0, 5.0, 8.0, -8.0, INFINITY, -INFINITY, NAN])),
    ("erfinv", torch.erfinv, WITHIN_ONE, literal([0.0, 1.0, -1.0, 1.5, 0.9999, NAN])),
    ("lgamma", torch.lgamma, uniform(0.1, 15.0, 12), literal([0.0, 1.0, 2.0, -1.0, 1e-20, 1e10, INFINITY])),
    ("digamma", torch.digamma, uniform(0.1, 15.0, 12), literal([1.0, 2.0, 1e-10, 1e10, INFINITY])),
    ("i0", torch.i0, WIDE, FAR),
    ("i0e", torch.special.i0e, WIDE, FAR),
    ("i1", torch.special.i1, WIDE, FAR),
    ("i1e", torch.special.i1e, WIDE, FAR),
]:
    rows.add(key, twin, smooth)
    rows.add(key, twin, extra, name=f"{key}_extremes", gradient=False, tolerance=Tolerance(1e-37, 2e-5))
NEGATIVE = literal([-0.25, -0.75, -1.25, -2.6, -3.3, -7.4])
rows.add("lgamma", torch.lgamma, NEGATIVE, name="lgamma_negative")
rows.add("digamma", torch.digamma, NEGATIVE, name="digamma_negative")
rows.add("polygamma", lambda a: torch.polygamma(1, a), uniform(0.3, 15.0, 12))
rows.add("polygamma", lambda a: torch.polygamma(1, a), NEGATIVE, name="trigamma_negative", gradient=False)
rows.add("polygamma/order 3", lambda a: torch.polygamma(3, a), uniform(0.5, 15.0, 12))
