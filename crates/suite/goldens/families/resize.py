"""Interpolation to a new size, up and down, with both conventions for the corners."""

import torch.nn.functional as F

from .case import Case, Tolerance, normal


def resize(inputs, attributes):
    return {
        "y": F.interpolate(
            inputs["x"],
            size=attributes["size"],
            scale_factor=attributes["scale_factor"],
            mode=attributes["mode"],
            align_corners=attributes["align_corners"],
            antialias=attributes["antialias"],
        )
    }


OPERATIONS = {"resize": resize}

CUBIC = Tolerance(2e-5, 2e-5)


def _case(name, mode, x, size=None, align_corners=None, scale_factor=None, antialias=False,
          dtype="f32"):
    attributes = {
        "mode": mode,
        "size": size,
        "scale_factor": scale_factor,
        "align_corners": align_corners,
        "antialias": antialias,
    }
    tolerance = CUBIC if mode == "bicubic" and dtype == "f32" else None
    return Case(
        f"{mode.replace('-', '_')}_{name}", "resize", {"x": normal(*x)}, attributes, dtype=dtype,
        tolerance=tolerance,
    )


SIZES = [
    ("up_double", (1, 2, 3, 4), [6, 8]),
    ("up_uneven", (1, 2, 3, 4), [5, 7]),
    ("down_half", (1, 2, 6, 8), [3, 4]),
    ("down_uneven", (1, 2, 7, 8), [3, 5]),
    ("up_down", (1, 2, 4, 7), [9, 3]),
    ("to_one", (1, 2, 4, 5), [1, 1]),
    ("from_one", (1, 2, 1, 1), [3, 4]),
    ("same", (1, 2, 4, 3), [4, 3]),
]

CASES = [
    *(
        _case(name, mode, x, size)
        for mode in ["nearest", "nearest-exact"]
        for name, x, size in SIZES
    ),
    *(
        _case(f"{name}{'_aligned' if aligned else ''}", mode, x, size, aligned)
        for mode in ["bilinear", "bicubic"]
        for aligned in [False, True]
        for name, x, size in SIZES
    ),
    _case("up_line", "nearest", (2, 3, 5), [8]),
    _case("down_volume", "nearest", (1, 2, 4, 5, 3), [2, 3, 2]),
    _case("up", "linear", (2, 3, 5), [8], False),
    _case("up_aligned", "linear", (2, 3, 5), [8], True),
    _case("down", "linear", (2, 3, 8), [5], False),
    _case("up", "trilinear", (1, 2, 2, 3, 2), [3, 4, 4], False),
    _case("up_aligned", "trilinear", (1, 2, 2, 3, 2), [3, 4, 4], True),
    _case("scale_up", "nearest", (1, 2, 3, 4), scale_factor=[2.0, 1.5]),
    _case("scale_down", "nearest", (1, 2, 7, 8), scale_factor=[0.5, 0.6]),
    _case("scale_up", "bilinear", (1, 2, 3, 4), align_corners=False, scale_factor=[2.0, 1.6]),
    _case("scale_down", "bilinear", (1, 2, 7, 8), align_corners=False, scale_factor=[0.5, 0.6]),
    _case("scale_up", "bicubic", (1, 2, 3, 4), align_corners=False, scale_factor=[2.0, 1.6]),
    _case("antialias_down", "bilinear", (1, 2, 8, 7), [3, 3], False, antialias=True),
    _case("antialias_up", "bilinear", (1, 2, 3, 4), [5, 6], False, antialias=True),
    _case("antialias_down", "bicubic", (1, 2, 8, 7), [3, 3], False, antialias=True),
    _case("f64", "bilinear", (1, 2, 3, 4), [5, 3], False, dtype="f64"),
    _case("f64", "bicubic", (1, 1, 3, 4), [5, 3], True, dtype="f64"),
]
