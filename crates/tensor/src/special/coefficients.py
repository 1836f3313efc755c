"""Writes `coefficients.rs` beside this script: polynomials of the special functions.

    python3 -m venv venv && venv/bin/pip install mpmath==1.4.1
    venv/bin/python crates/tensor/src/special/coefficients.py

Each function is interpolated at Chebyshev points with 60 digits, which comes within a small factor of the least possible
error, and written in powers of a variable in [-1, 1]. The script fails if a polynomial is worse than its dtype.
"""

from pathlib import Path

from mpmath import mp, mpf

mp.dps = 60
TARGET = Path(__file__).resolve().with_name("coefficients.rs")
EPSILON = {"f32": mpf(2) ** -24, "f64": mpf(2) ** -53}

ROOT = mp.findroot(mp.digamma, 1.4616)


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


def erfc_tail(t):
    """(1 + 2 x) exp(x^2) erfc(x) for t = (x - 3.75) / (x + 3.75)."""
    if t == 1:
        return 2 / mp.sqrt(mp.pi)
    x = mpf("3.75") * (1 + t) / (1 - t)
    if x > 1000:
        # The asymptotic series; 10 terms are exact here.
        series = mp.nsum(lambda k: (-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k, [0, 10])
        return (1 + 2 * x) * series / (x * mp.sqrt(mp.pi))
    return (1 + 2 * x) * erfcx(x)


def erfinv_of_w(w):
    """erfinv(x) / x for w = -ln(1 - x^2)."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    if w < 20:
        return mp.erfinv(x) / x
    complement = mp.exp(-w) / (1 + x)
    y = mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(complement), mp.sqrt(w - mp.log(w) / 2))
    return y / x


def near(function, zero, value):
    """The function divided by the distance from its zero, where it has this value."""
    return lambda u: value if abs(u) < mpf(10) ** -30 else function(zero + u) / u


def scaled(bessel, order):
    """exp(-x) I(x), divided by x for order 1."""
    return lambda x: mpf(1) / (1 + order) if x < mpf(10) ** -30 else mp.exp(-x) * bessel(order, x) / x**order


def scaled_far(order):
    """sqrt(x) exp(-x) I(x) for z = 1 / x."""

    def value(z):
        if z == 0:
            return 1 / mp.sqrt(2 * mp.pi)
        x = 1 / z
        if x > 2000:
            square = 4 * mpf(order) ** 2
            total, term = mpf(1), mpf(1)
            for k in range(1, 12):
                term *= -(square - (2 * k - 1) ** 2) / (k * 8 * x)
                total += term
            return total / mp.sqrt(2 * mp.pi)
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)

    return value


def zeros_of(order):
    """The first two positive zeros of J."""
    return [mp.besseljzero(order, k) for k in (1, 2)]


J0_ZEROS, J1_ZEROS = zeros_of(0), zeros_of(1)


def ordinary_near(order, zeros):
    """J(x) over x^order and its first two zeros, for z = x^2."""

    def value(z):
        x = mp.sqrt(z)
        y = mpf(1) / (1 + order) if z < mpf(10) ** -30 else mp.besselj(order, x) / x**order
        return y / ((z - zeros[0] ** 2) * (z - zeros[1] ** 2))

    return value


def second_near(order):
    """Y without its logarithm, for z = x^2: Y0 - 2/pi ln(x) J0, and (Y1 - 2/pi (ln(x) J1 - 1/x)) / x."""

    def value(z):
        # The limits at 0 are those of a small argument to working precision.
        x = mp.sqrt(max(z, mpf(10) ** -25))
        logarithm = 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        if order == 0:
            return mp.bessely(0, x) - logarithm
        return (mp.bessely(1, x) - logarithm + 2 / (mp.pi * x)) / x

    return value


def modulus(order, part):
    """The factors P and Q x of Hankel's expansion, for w = 25 / x^2."""

    def value(w):
        square = 4 * mpf(order) ** 2
        if w == 0:
            return mpf(1) if part == "p" else (square - 1) / 8
        x = 5 / mp.sqrt(w)
        if x > 200:
            term, terms = mpf(1), []
            for k in range(1, 40):
                terms.append(term)
                term *= (square - (2 * k - 1) ** 2) / (k * 8 * x)
            signs = [1, 1, -1, -1]
            chosen = range(0, 39, 2) if part == "p" else range(1, 39, 2)
            total = sum(signs[k % 4] * terms[k] for k in chosen)
            return total if part == "p" else total * x
        angle = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        root = mp.sqrt(mp.pi * x / 2)
        if part == "p":
            return root * (j * mp.cos(angle) + y * mp.sin(angle))
        return root * (y * mp.cos(angle) - j * mp.sin(angle)) * x

    return value


def modified_second_near(order):
    """K without its logarithm, for z = x^2: K0 + ln(x/2) I0, and x (K1 - ln(x/2) I1)."""

    def value(z):
        x = mp.sqrt(max(z, mpf(10) ** -25))
        logarithm = mp.log(x / 2) * mp.besseli(order, x)
        return mp.besselk(0, x) + logarithm if order == 0 else x * (mp.besselk(1, x) - logarithm)

    return value


def modified_second_far(order):
    """sqrt(x) exp(x) K(x) for z = 1 / x."""

    def value(z):
        if z == 0:
            return mp.sqrt(mp.pi / 2)
        x = 1 / z
        if x > 200:
            square, term, total = 4 * mpf(order) ** 2, mpf(1), mpf(1)
            for k in range(1, 40):
                term *= (square - (2 * k - 1) ** 2) / (k * 8 * x)
                total += term
            return total * mp.sqrt(mp.pi / 2)
        return mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)

    return value


# Name, documentation, function, interval, and the error: 1 is relative to the value and as good as the dtype, 0 the same but
# absolute, since the function crosses zero, and `None` relative and to single precision.
POLYNOMIALS = [
    ("ERFC_TAIL", "`(1 + 2x) exp(x²) erfc(x)` for `x >= 0.5`, of `(x - 3.75) / (x + 3.75)`",
     erfc_tail, (mpf("-0.7648"), mpf(1)), 1),
    ("ERFINV_CENTRE", "`erfinv(x) / x` for `w <= 6`, of `w = -ln(1 - x²)`; to single precision", erfinv_of_w, (mpf(0), mpf(6)), None),
    ("ERFINV_TAIL", "`erfinv(x) / x` for `6 <= w <= 38`, of `√w`; to single precision",
     lambda v: erfinv_of_w(v * v), (mp.sqrt(6), mp.sqrt(38)), None),
    ("LGAMMA_ONE", "`ln Γ(1 + u) / u` for `|u| <= 1/2`",
     near(lambda x: mp.log(mp.gamma(x)), mpf(1), -mp.euler), (mpf(-1) / 2, mpf(1) / 2), 1),
    ("LGAMMA_TWO", "`ln Γ(2 + u) / u` for `|u| <= 1/2`",
     near(lambda x: mp.log(mp.gamma(x)), mpf(2), 1 - mp.euler), (mpf(-1) / 2, mpf(1) / 2), 1),
    ("DIGAMMA", "`ψ(x) / (x - x₀)` for `1 <= x <= 2`, where `x₀` is the root there",
     lambda x: mp.digamma(x) / (x - ROOT), (mpf(1), mpf(2)), 1),
    ("I0_NEAR", "`exp(-x) I₀(x)` for `0 <= x <= 8`", scaled(mp.besseli, 0), (mpf(0), mpf(8)), 1),
    ("I0_FAR", "`√x exp(-x) I₀(x)` for `x >= 8`, of `1 / x`", scaled_far(0), (mpf(0), mpf(1) / 8), 1),
    ("I1_NEAR", "`exp(-x) I₁(x) / x` for `0 <= x <= 8`", scaled(mp.besseli, 1), (mpf(0), mpf(8)), 1),
    ("I1_FAR", "`√x exp(-x) I₁(x)` for `x >= 8`, of `1 / x`", scaled_far(1), (mpf(0), mpf(1) / 8), 1),
    ("ERFINV_FAR", "`erfinv(x) / x` for `38 <= w <= 720`, of `√w`",
     lambda v: erfinv_of_w(v * v), (mp.sqrt(38), mp.sqrt(720)), 1),
    ("J0_NEAR", "`J₀(x) / (z - a) / (z - b)` for `0 <= x <= 5`, of `z = x²`, where `a` and `b` are the squares of the first two zeros",
     ordinary_near(0, J0_ZEROS), (mpf(0), mpf(25)), 1),
    ("J1_NEAR", "`J₁(x) / x / (z - a) / (z - b)` for `0 <= x <= 5`, of `z = x²`, where `a` and `b` are the squares of the first two zeros",
     ordinary_near(1, J1_ZEROS), (mpf(0), mpf(25)), 1),
    ("Y0_NEAR", "`Y₀(x) - 2/π ln(x) J₀(x)` for `0 < x <= 5`, of `x²`", second_near(0), (mpf(0), mpf(25)), 0),
    ("Y1_NEAR", "`(Y₁(x) - 2/π (ln(x) J₁(x) - 1/x)) / x` for `0 < x <= 5`, of `x²`", second_near(1), (mpf(0), mpf(25)), 0),
    ("P0", "`P` of Hankel's expansion of order 0 for `x >= 5`, of `25 / x²`", modulus(0, "p"), (mpf(0), mpf(1)), 1),
    ("Q0", "`Q x` of Hankel's expansion of order 0 for `x >= 5`, of `25 / x²`", modulus(0, "q"), (mpf(0), mpf(1)), 1),
    ("P1", "`P` of Hankel's expansion of order 1 for `x >= 5`, of `25 / x²`", modulus(1, "p"), (mpf(0), mpf(1)), 1),
    ("Q1", "`Q x` of Hankel's expansion of order 1 for `x >= 5`, of `25 / x²`", modulus(1, "q"), (mpf(0), mpf(1)), 1),
    ("K0_NEAR", "`K₀(x) + ln(x/2) I₀(x)` for `0 < x <= 2`, of `x²`", modified_second_near(0), (mpf(0), mpf(4)), 0),
    ("K1_NEAR", "`x (K₁(x) - ln(x/2) I₁(x))` for `0 < x <= 2`, of `x²`", modified_second_near(1), (mpf(0), mpf(4)), 1),
    ("K0_FAR", "`√x exp(x) K₀(x)` for `x >= 2`, of `1 / x`", modified_second_far(0), (mpf(0), mpf(1) / 2), 1),
    ("K1_FAR", "`√x exp(x) K₁(x)` for `x >= 2`, of `1 / x`", modified_second_far(1), (mpf(0), mpf(1) / 2), 1),
]


def main() -> None:
    text = HEAD
    for name, about, function, interval, share in POLYNOMIALS:
        lists = {}
        for dtype in ["f32", "f64"]:
            wanted = EPSILON["f32"] / 2 if share is None else EPSILON[dtype] / 4
            lists[dtype] = shortest(function, interval, wanted, share == 0)
        print(name, {dtype: len(list) for dtype, list in lists.items()})
        text += polynomial_text(name, about, interval, lists)
    high, low = split(ROOT)
    text += f"""
/// The positive root of the digamma function, and its remainder beyond `f64`.
pub(super) const DIGAMMA_ROOT: [f64; 2] = [{literal(high)}, {literal(low)}];
"""
    for name, about, zeros in [("J0_ZEROS", "J₀", J0_ZEROS), ("J1_ZEROS", "J₁", J1_ZEROS)]:
        text += f"""
/// The first two positive zeros of {about}, each with its remainder beyond `f64`.
pub(super) const {name}: [[f64; 2]; 2] = {[[literal(z) for z in split(zero)] for zero in zeros]};
""".replace("'", "")
    TARGET.write_text(text)


def shortest(function, interval, wanted, is_absolute):
    """The shortest interpolation whose error is as wanted."""
    for count in range(4, 56):
        coefficients = interpolate(function, interval, count)
        if error(function, interval, coefficients, is_absolute) < wanted:
            return coefficients
    raise SystemExit("no polynomial is accurate enough")


def interpolate(function, interval, count):
    """Coefficients of powers of the variable that runs from -1 to 1 over the interval."""
    angles = [mp.pi * (2 * i + 1) / (2 * count) for i in range(count)]
    values = [function(unscaled(mp.cos(angle), interval)) for angle in angles]
    sums = [2 * sum(v * mp.cos(k * a) for v, a in zip(values, angles)) / count for k in range(count)]
    sums[0] /= 2
    powers = [mpf(0)] * count
    previous, current = [mpf(1)], [mpf(0), mpf(1)]
    for k in range(count):
        chebyshev = previous if k == 0 else current
        for i, c in enumerate(chebyshev):
            powers[i] += sums[k] * c
        if k > 0:
            following = [mpf(0)] + [2 * c for c in current]
            for i, c in enumerate(previous):
                following[i] -= c
            previous, current = current, following
    return powers


def unscaled(s, interval):
    low, high = interval
    return (low + high) / 2 + s * (high - low) / 2


def error(function, interval, coefficients, is_absolute):
    worst = mpf(0)
    for i in range(101):
        s = mp.cos(mp.pi * i / 100)
        exact = function(unscaled(s, interval))
        difference = abs(mp.polyval(coefficients[::-1], s) - exact)
        worst = max(worst, difference if is_absolute else difference / abs(exact))
    return worst


def polynomial_text(name, about, interval, lists):
    middle, half = unscaled(mpf(0), interval), (interval[1] - interval[0]) / 2
    lines = [f"\n/// {about}.\npub(super) const {name}: Polynomial = Polynomial {{"]
    lines.append(f"    middle: {literal(middle)},\n    half: {literal(half)},")
    shared = ""
    if lists["f32"] == lists["f64"]:
        shared = f"\n/// The coefficients of [`{name}`] for both dtypes.\nconst {name}_COEFFICIENTS: &[f64] = &[\n"
        shared += "".join(f"    {literal(c)},\n" for c in lists["f64"]) + "];\n"
        lines += [f"    {dtype}: {name}_COEFFICIENTS," for dtype in lists]
        lists = {}
    for dtype, coefficients in lists.items():
        lines.append(f"    {dtype}: &[")
        lines += [f"        {literal(c)}," for c in coefficients]
        lines.append("    ],")
    return shared + "\n".join(lines) + "\n};\n"


def split(number):
    """A number as a float and its remainder beyond `f64`."""
    high = mpf(float(number))
    return high, number - high


def literal(number):
    text = repr(float(number))
    if "e" in text or "." not in text:
        return text
    whole, fraction = text.split(".")
    groups = [fraction[i : i + 3] for i in range(0, len(fraction), 3)]
    return whole + "." + "_".join(groups)


HEAD = '''//! Polynomials of the special functions. Written by `coefficients.py`.
//!
//! over 700 lines: tables of numbers, which one program writes

use super::polynomial::Polynomial;
'''


if __name__ == "__main__":
    main()
