"""Discrete Fourier transforms. A complex tensor has a last axis of two: real, imaginary."""

import torch

from .case import Case, Tolerance, normal


def _to_complex(x):
    return torch.view_as_complex(x.contiguous())


def _along(function, complex_input, complex_output):
    """`axes` of one transforms a line, more transform a block."""

    def run(inputs, attributes):
        x = _to_complex(inputs["x"]) if complex_input else inputs["x"]
        y = function(x, attributes["sizes"], attributes["axes"], attributes["norm"])
        return {"y": torch.view_as_real(y) if complex_output else y}

    return run


OPERATIONS = {
    "fft": _along(torch.fft.fftn, True, True),
    "ifft": _along(torch.fft.ifftn, True, True),
    "rfft": _along(torch.fft.rfftn, False, True),
    "irfft": _along(torch.fft.irfftn, True, False),
}

FFT = Tolerance(2e-5, 2e-5)


def _case(name, op, x, axes=None, sizes=None, norm="backward", dtype="f32"):
    """`x` is the logical shape, without the axis of two."""
    axes = [len(x) - 1] if axes is None else axes
    shape = x if op == "rfft" else (*x, 2)
    attributes = {"axes": axes, "sizes": sizes, "norm": norm}
    return Case(
        f"{op}_{name}", op, {"x": normal(*shape)}, attributes, dtype=dtype,
        tolerance=FFT if dtype == "f32" else None,
    )


CASES = [
    *(_case(f"length_{n}", op, (2, n)) for op in ["fft", "ifft"] for n in [1, 2, 4, 7, 8, 12]),
    _case("length_32", "fft", (1, 32)),
    _case("length_31", "fft", (1, 31)),
    _case("length_31", "ifft", (1, 31)),
    _case("length_13", "ifft", (2, 13)),
    _case("padded", "ifft", (2, 5), sizes=[8]),
    _case("cut", "ifft", (2, 8), sizes=[5]),
    _case("two_axes_sized", "fft", (2, 3, 5), [1, 2], sizes=[4, 3], norm="forward"),
    _case("first_axis", "fft", (6, 3), [0]),
    _case("middle_axis", "fft", (2, 5, 3), [1]),
    _case("padded", "fft", (2, 5), sizes=[8]),
    _case("cut", "fft", (2, 8), sizes=[5]),
    _case("ortho", "fft", (2, 8), norm="ortho"),
    _case("forward", "fft", (2, 8), norm="forward"),
    _case("two_axes", "fft", (2, 4, 5), [1, 2]),
    _case("f64", "fft", (2, 8), dtype="f64"),
    _case("ortho", "ifft", (2, 6), norm="ortho"),
    _case("forward", "ifft", (2, 6), norm="forward"),
    _case("two_axes", "ifft", (2, 4, 3), [1, 2]),
    *(_case(f"length_{n}", "rfft", (2, n)) for n in [1, 2, 7, 8, 12, 16]),
    _case("first_axis", "rfft", (6, 3), [0]),
    _case("padded", "rfft", (2, 5), sizes=[8]),
    _case("cut", "rfft", (2, 9), sizes=[6]),
    _case("ortho", "rfft", (2, 8), norm="ortho"),
    _case("two_axes", "rfft", (2, 4, 5), [1, 2]),
    _case("f64", "rfft", (2, 7), dtype="f64"),
    *(_case(f"length_{n}", "rfft", (1, n)) for n in [3, 5, 9, 13, 31, 64, 74]),
    _case("forward", "rfft", (2, 7), norm="forward"),
    _case("ortho_odd", "rfft", (2, 9), norm="ortho"),
    _case("padded_odd", "rfft", (2, 4), sizes=[11]),
    _case("cut_odd", "rfft", (2, 9), sizes=[5]),
    _case("middle_axis", "rfft", (2, 5, 3), [1]),
    _case("two_axes_sized", "rfft", (2, 3, 5), [1, 2], sizes=[4, 3], norm="ortho"),
    _case("three_axes", "rfft", (2, 3, 4), [0, 1, 2]),
    _case("prime_f64", "rfft", (1, 31), dtype="f64"),
    _case("even", "irfft", (2, 5), sizes=[8]),
    _case("odd", "irfft", (2, 4), sizes=[7]),
    _case("default_size", "irfft", (2, 5)),
    _case("first_axis", "irfft", (4, 3), [0]),
    _case("padded", "irfft", (2, 3), sizes=[10]),
    _case("ortho", "irfft", (2, 5), sizes=[8], norm="ortho"),
    _case("two_axes", "irfft", (2, 4, 3), [1, 2], sizes=[4, 4]),
    *(_case(f"length_{n}", "irfft", (1, n // 2 + 1), sizes=[n])
      for n in [1, 2, 3, 5, 9, 13, 31, 64, 74]),
    _case("forward", "irfft", (2, 4), sizes=[7], norm="forward"),
    _case("ortho_odd", "irfft", (2, 5), sizes=[9], norm="ortho"),
    _case("cut", "irfft", (2, 7), sizes=[6]),
    _case("cut_odd", "irfft", (2, 7), sizes=[5]),
    _case("middle_axis", "irfft", (2, 4, 3), [1]),
    _case("two_axes_odd", "irfft", (2, 4, 3), [1, 2], sizes=[3, 5], norm="ortho"),
    _case("three_axes", "irfft", (2, 3, 3), [0, 1, 2]),
    _case("prime_f64", "irfft", (1, 16), sizes=[31], dtype="f64"),
]
