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
    ("ndtri", torch.special.ndtri, uniform(0.02, 0.98, 12), literal([0.0, 1.0, 0.5, -0.5, 1.5, 1e-20, 1e-30, NAN])),
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
# A gradient of 0 / 0 is NaN outside of [0, 1], and infinite at its ends.
rows.add("logit", torch.logit, literal([-0.5, 1.5, 0.25, 0.0, 1.0, INFINITY, NAN]), name="logit_outside")

# PyTorch has no gradients of these.
ORDINARY = literal([0.0, 1e-20, 0.3, 1.0, 2.0, 2.4375, 3.8125, 4.9375, 5.0625, 7.0, 8.6875, 20.0, 60.0])
LIMITS = literal([NAN, 0.0, -1.0, -7.5])
WAVES, DECAYS = Tolerance(1e-6, 2e-5), Tolerance(1e-35, 4e-5)
# Of infinity PyTorch gives NaN for these, Kiln the limit, 0. PyTorch's f64 is off by up to 1e-5.
for key in ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"]:
    twin = getattr(torch.special, key)
    rows.add(key, twin, ORDINARY, gradient=False, tolerance=WAVES)
    rows.add(key, twin, LIMITS, name=f"{key}_limits", gradient=False)
for key, tolerance in [
    ("modified_bessel_k0", DECAYS),
    ("modified_bessel_k1", DECAYS),
    ("scaled_modified_bessel_k0", DECAYS),
    ("scaled_modified_bessel_k1", DECAYS),
    ("spherical_bessel_j0", WAVES),
]:
    twin = getattr(torch.special, key)
    rows.add(key, twin, ORDINARY, gradient=False, tolerance=tolerance)
    rows.add(key, twin, literal([INFINITY, NAN, 0.0, -1.0]), name=f"{key}_limits", gradient=False)
    rows.add(key, twin, uniform(0.1, 20.0, 16), name=f"{key}_f64", gradient=False, dtype="f64",
             tolerance=Tolerance(1e-14, 1e-12))

# Series, continued fraction and asymptotic expansion, in which PyTorch's f64 is off by 1e-9. PyTorch has the gradient
# by `x` alone.
SHAPES = literal([0.25, 0.25, 1.0, 1.0, 3.0, 3.0, 3.0, 12.0, 25.0, 30.0, 30.0, 45.0, 250.0])
PLACES = literal([0.125, 4.0, 0.5, 6.0, 0.25, 3.0, 11.0, 12.0, 20.0, 30.0, 41.0, 44.0, 251.0])
CORNER_SHAPES = literal([0.0, 0.0, 1.0, 2.0, 2.0, -1.0, 1.0, INFINITY, NAN, 0.0])
CORNER_PLACES = literal([0.0, 1.0, 0.0, INFINITY, -1.0, 1.0, NAN, 1.0, 1.0, INFINITY])
for key, twin in [("gammainc", torch.special.gammainc), ("gammaincc", torch.special.gammaincc)]:
    rows.add(key, twin, SHAPES, PLACES, constant=("a",), tolerance=Tolerance(1e-7, 1e-4))
    rows.add(key, twin, uniform(0.1, 30.0, 16), uniform(0.1, 30.0, 16), name=f"{key}_f64", constant=("a",),
             dtype="f64", tolerance=Tolerance(1e-14, 1e-8))
    rows.add(key, twin, CORNER_SHAPES, CORNER_PLACES, name=f"{key}_corners", gradient=False)
rows.add("gammainc", torch.special.gammainc, literal([0.0, 1.0, 1.0, 2.0, 0.5]), literal([1.0, 0.0, INFINITY, 0.0, 0.0]),
         name="gammainc_slopes_at_ends", constant=("a",))
rows.add("zeta", torch.special.zeta, literal([1.5, 2.0, 3.0, 4.5, 2.0, 10.0, 1.0625]),
         literal([0.25, 1.0, 2.5, 7.0, 30.0, 0.5, 3.0]), constant=("a",))
rows.add("zeta", torch.special.zeta, uniform(1.1, 12.0, 12), uniform(0.2, 20.0, 12), name="zeta_f64",
         constant=("a",), dtype="f64", tolerance=Tolerance(1e-14, 1e-11))
# Of whole orders PyTorch sums from negative places too, Kiln gives NaN; of an infinite order PyTorch gives NaN.
rows.add("zeta", torch.special.zeta, literal([1.0, 0.5, 2.0, 2.0, 2.5, NAN, 2.0]),
         literal([1.0, 1.0, 0.0, -1.0, -0.5, 1.0, NAN]), name="zeta_corners", gradient=False)
NEGATIVE = literal([-0.25, -0.75, -1.25, -2.6, -3.3, -7.4])
rows.add("lgamma", torch.lgamma, NEGATIVE, name="lgamma_negative")
rows.add("digamma", torch.digamma, NEGATIVE, name="digamma_negative")
rows.add("polygamma", lambda a: torch.polygamma(1, a), uniform(0.3, 15.0, 12))
rows.add("polygamma", lambda a: torch.polygamma(1, a), NEGATIVE, name="trigamma_negative", gradient=False)
rows.add("polygamma/order 2", lambda a: torch.polygamma(2, a), uniform(0.5, 15.0, 12))
# Of infinity PyTorch gives NaN, Kiln the limit, 0.
rows.add("polygamma/order 2", lambda a: torch.polygamma(2, a), literal([1.0, 2.0, 0.125, 30.0]),
         name="polygamma_order_2_places", gradient=False, tolerance=Tolerance(1e-30, 4e-5))
rows.add("polygamma/order 3", lambda a: torch.polygamma(3, a), uniform(0.5, 15.0, 12))
