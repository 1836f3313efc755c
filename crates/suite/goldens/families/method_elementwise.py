"""Arithmetic, comparisons, bits and functions of each element.

The rows of `elementwise.rs` fix the arguments that are no tensors; twins repeat them.
"""

import torch

from .case import Tolerance, booleans, distinct, integers, literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

INFINITY, NAN = float("inf"), float("nan")
CORNERS = literal([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-30, INFINITY, -INFINITY, NAN])
OTHERS = literal([1.0, -1.0, 0.0, -0.0, 2.0, NAN, -3.0, 1.0, INFINITY, 0.5])
POSITIVE = uniform(0.2, 4.0, 12)
STEPS = literal([-2.5, -1.5, -0.75, -0.5, 0.0, 0.25, 0.5, 1.5, 2.5])


def values(key, twin, *inputs, name):
    """A case without gradients."""
    rows.add(key, twin, *inputs, name=name, gradient=False)


for key, twin, smooth in [
    ("abs", torch.abs, normal(12)),
    ("neg", torch.neg, normal(12)),
    ("square", torch.square, normal(12)),
    ("recip", torch.reciprocal, POSITIVE),
    ("sqrt", torch.sqrt, POSITIVE),
    ("rsqrt", torch.rsqrt, POSITIVE),
    ("exp", torch.exp, normal(12)),
    ("expm1", torch.expm1, normal(12)),
    ("log", torch.log, POSITIVE),
    ("log1p", torch.log1p, POSITIVE),
    ("sin", torch.sin, normal(12)),
    ("cos", torch.cos, normal(12)),
    ("tan", torch.tan, uniform(-1.2, 1.2, 12)),
    ("tanh", torch.tanh, normal(12)),
    ("atan", torch.atan, normal(12)),
    ("erf", torch.erf, normal(12)),
    ("frac", torch.frac, normal(12)),
    ("deg2rad", torch.deg2rad, normal(12, scale=90.0)),
    ("rad2deg", torch.rad2deg, normal(12)),
]:
    rows.add(key, twin, smooth)
    if key not in ("frac", "sin", "cos", "tan"):
        values(key, twin, CORNERS, name=f"{key}_corners")
for key, twin in [
    ("sign", torch.sign),
    ("floor", torch.floor),
    ("ceil", torch.ceil),
    ("round", torch.round),
    ("trunc", torch.trunc),
    ("round_decimals", lambda a: torch.round(a, decimals=1)),
]:
    values(key, twin, STEPS, name=key)

for key, twin, a, b in [
    ("add", torch.add, normal(3, 1), normal(4)),
    ("sub", torch.sub, normal(3, 1), normal(4)),
    ("mul", torch.mul, normal(3, 1), normal(4)),
    ("div", torch.div, normal(3, 1), uniform(0.5, 2.0, 4)),
    ("minimum", torch.minimum, distinct(12), normal(12)),
    ("maximum", torch.maximum, distinct(12), normal(12)),
    ("min_pair", torch.minimum, distinct(12), normal(12)),
    ("max_pair", torch.maximum, distinct(12), normal(12)),
    ("fmin", torch.fmin, distinct(12), normal(12)),
    ("fmax", torch.fmax, distinct(12), normal(12)),
    ("atan2", torch.atan2, normal(12), normal(12)),
    ("hypot", torch.hypot, normal(12), normal(12)),
    ("logaddexp", torch.logaddexp, normal(12), normal(12)),
    ("logaddexp2", torch.logaddexp2, normal(12), normal(12)),
    ("xlogy", torch.special.xlogy, normal(12), POSITIVE),
    ("xlog1py", torch.special.xlog1py, normal(12), POSITIVE),
    ("copysign", torch.copysign, normal(12), normal(12)),
    ("pow", torch.pow, POSITIVE, normal(12)),
    ("powf", torch.pow, POSITIVE, normal(12)),
]:
    rows.add(key, twin, a, b)
    if key not in ("pow", "powf"):
        values(key, twin, CORNERS, OTHERS, name=f"{key}_corners")
# A gradient where one of two is NaN, and where both are, or equal.
for key, twin in [("minimum", torch.minimum), ("maximum", torch.maximum), ("fmin", torch.fmin), ("fmax", torch.fmax)]:
    rows.add(key, twin, literal([1.0, NAN, 2.0, NAN, 3.0]), literal([NAN, 1.0, 2.0, NAN, 4.0]),
             name=f"{key}_ties")
rows.add("hypot", torch.hypot, literal([3e20, 1e-25, 0.0]), literal([4e20, 1e-25, 0.0]),
         name="hypot_extremes", gradient=False, tolerance=Tolerance(0.0, 1e-6))
values("logaddexp", torch.logaddexp, literal([100.0, -100.0, 500.0]), literal([100.0, -101.0, -500.0]),
       name="logaddexp_far")
# Of NaN torch.heaviside gives 0; Kiln keeps it, as NumPy does.
values("heaviside", torch.heaviside, literal([-2.0, -0.0, 0.0, 3.0, INFINITY, -INFINITY]),
       literal([5.0, 0.5, 0.25, 7.0, 1.0, 1.0]), name="heaviside")
# Numbers that differ from f32's neighbours: the step is that of f64, where the script computes.
for key, twin in [
    ("add_scalar", lambda a: a + 1.5),
    ("sub_scalar", lambda a: a - 1.5),
    ("mul_scalar", lambda a: a * 1.5),
    ("div_scalar", lambda a: a / 1.5),
    ("clamp", lambda a: a.clamp(-0.1, 0.2)),
    ("clamp_min", lambda a: a.clamp(min=0.1)),
    ("clamp_max", lambda a: a.clamp(max=0.1)),
]:
    rows.add(key, twin, distinct(12))
rows.add("powi_scalar", lambda a: a**-2, uniform(0.5, 2.0, 12))
rows.add("pow_scalar", lambda a: a**2.5, POSITIVE)
rows.add("powf_scalar", lambda a: a**-0.5, POSITIVE)
rows.add("powi", torch.pow, uniform(-2.0, -0.5, 6), integers(-2, 4, 6))
rows.add("lerp", torch.lerp, normal(6), normal(6), literal([0.0, 0.25, 0.5, 0.75, 1.0, 1.5]))
rows.add("lerp_scalar", lambda a, b: torch.lerp(a, b, 0.25), normal(2, 3), normal(3))
rows.add("lerp_scalar/from the end", lambda a, b: torch.lerp(a, b, 0.75), normal(2, 3), normal(3))
rows.add("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), normal(2, 3), normal(3), normal(2, 1))
rows.add("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), normal(2, 3), normal(3), uniform(0.5, 2.0, 2, 1))
# The gradient of torch.ldexp takes integer powers of two, which are 0 for negative exponents.
rows.add("ldexp", lambda a, b: a * torch.pow(2.0, b.double()), normal(6), integers(-8, 8, 6))
rows.add("frexp", lambda a: (torch.frexp(a)[0], torch.frexp(a)[1].long()), uniform(0.1, 40.0, 8), gradient=False)
values("nan_to_num", lambda a: torch.nan_to_num(a, nan=0.5, posinf=9.0, neginf=-torch.finfo(torch.float32).max),
       literal([1.5, NAN, INFINITY, -INFINITY]), name="nan_to_num")

DIVIDENDS = literal([5.5, -5.5, 5.5, -5.5, 6.0, -6.0, 0.0, 1.0, 7.25])
DIVISORS = literal([3.0, 3.0, -3.0, -3.0, 3.0, 3.0, 2.0, 0.25, -0.5])
rows.add("fmod", torch.fmod, DIVIDENDS, DIVISORS)
rows.add("remainder", torch.remainder, DIVIDENDS, DIVISORS)
rows.add("fmod_scalar", lambda a: torch.fmod(a, 3.0), DIVIDENDS)
rows.add("remainder_scalar", lambda a: torch.remainder(a, -3.0), DIVIDENDS)
values("floor_divide", torch.floor_divide, DIVIDENDS, DIVISORS, name="floor_divide")
values("floor_divide", torch.floor_divide, CORNERS, OTHERS, name="floor_divide_corners")
values("floor_divide_scalar", lambda a: torch.floor_divide(a, 3.0), DIVIDENDS, name="floor_divide_scalar")
values("trunc_divide", lambda a, b: torch.div(a, b, rounding_mode="trunc"), DIVIDENDS, DIVISORS, name="trunc_divide")
values("trunc_divide_scalar", lambda a: torch.div(a, 3.0, rounding_mode="trunc"), DIVIDENDS, name="trunc_divide_scalar")
WHOLE, BY = literal([7, -7, 7, -7, 9, 0]), literal([3, 3, -3, -3, 3, 5])
values("fmod/integers", torch.fmod, WHOLE, BY, name="fmod_integers")
values("remainder/integers", torch.remainder, WHOLE, BY, name="remainder_integers")
values("floor_divide/integers", torch.floor_divide, WHOLE, BY, name="floor_divide_integers")
values("gcd/integers", torch.gcd, literal([12, -8, 0, 35, 0]), literal([18, 12, 5, -21, 0]), name="gcd")
values("lcm/integers", torch.lcm, literal([12, -8, 0, 35, 0]), literal([18, 12, 5, -21, 0]), name="lcm")
values("lcm/integers", torch.lcm, literal([-12, -4, 7, -1, 46341]), literal([11, -6, -7, 1, 1]), name="lcm_signs")

for key, twin in [
    ("equal", torch.eq),
    ("not_equal", torch.ne),
    ("lower", torch.lt),
    ("lower_equal", torch.le),
    ("greater", torch.gt),
    ("greater_equal", torch.ge),
]:
    values(key, twin, CORNERS, OTHERS, name=key)
for key, twin in [
    ("equal_elem", lambda a: a == 1.0),
    ("not_equal_elem", lambda a: a != 1.0),
    ("lower_elem", lambda a: a < 1.0),
    ("lower_equal_elem", lambda a: a <= 1.0),
    ("greater_elem", lambda a: a > 0.0),
    ("greater_equal_elem", lambda a: a >= 0.0),
    ("is_nan", torch.isnan),
    ("is_inf", torch.isinf),
    ("is_pos_inf", torch.isposinf),
    ("is_neg_inf", torch.isneginf),
    ("is_finite", torch.isfinite),
    ("signbit", torch.signbit),
    ("logical_not", torch.logical_not),
]:
    values(key, twin, CORNERS, name=key)
values("is_close", lambda a, b: torch.isclose(a, b, rtol=0.5, atol=0.25, equal_nan=True),
       literal([1.0, 1.0, -1.0, NAN, NAN, INFINITY, INFINITY, 1.0]),
       literal([1.25, 3.0, 1.0, NAN, 1.0, INFINITY, -INFINITY, INFINITY]), name="is_close")
for key, twin in [
    ("logical_and", torch.logical_and),
    ("logical_or", torch.logical_or),
    ("logical_xor", torch.logical_xor),
]:
    values(key, twin, CORNERS, booleans(10), name=key)

for key, twin in [
    ("bitwise_and", torch.bitwise_and),
    ("bitwise_or", torch.bitwise_or),
    ("bitwise_xor", torch.bitwise_xor),
]:
    values(key, twin, integers(-99, 99, 3, 4), integers(-99, 99, 4), name=key)
    values(f"{key}_scalar", lambda a, twin=twin: twin(a, 3), integers(-99, 99, 6), name=f"{key}_scalar")
for key, twin in [
    ("bitwise_left_shift", torch.bitwise_left_shift),
    ("bitwise_right_shift", torch.bitwise_right_shift),
]:
    values(key, twin, integers(-99, 99, 3, 4), integers(0, 9, 4), name=key)
    values(f"{key}_scalar", lambda a, twin=twin: twin(a, 3), integers(-99, 99, 6), name=f"{key}_scalar")
values("bitwise_not", torch.bitwise_not, integers(-99, 99, 6), name="bitwise_not")
