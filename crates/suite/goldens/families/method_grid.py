"""Grids of coordinates, and sampling at them."""

import torch
import torch.nn.functional as F

from .case import literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

for key, indexing in [("meshgrid", "ij"), ("meshgrid/xy", "xy")]:
    rows.add(
        key,
        lambda *a, indexing=indexing: torch.meshgrid(*a, indexing=indexing),
        normal(2),
        normal(3),
        normal(2),
        gradient=False,
    )
rows.add("cartesian_prod", torch.cartesian_prod, normal(2), normal(3))
rows.add("combinations", torch.combinations, normal(4))
rows.add(
    "combinations/replacement", lambda a: torch.combinations(a, with_replacement=True), normal(3)
)
rows.add(
    "affine_grid_2d", lambda a: F.affine_grid(a, [2, 1, 2, 3], align_corners=False), normal(2, 2, 3)
)
rows.add(
    "affine_grid_2d/corners",
    lambda a: F.affine_grid(a, [2, 1, 2, 3], align_corners=True),
    normal(2, 2, 3),
)
rows.add(
    "affine_grid_3d",
    lambda a: F.affine_grid(a, [2, 1, 2, 1, 3], align_corners=False),
    normal(2, 3, 4),
)


def _sample(mode, padding, corners):
    return lambda x, grid: F.grid_sample(
        x, grid, mode=mode, padding_mode=padding, align_corners=corners
    )


def _add(key, mode, padding, corners, volume=False):
    if volume:
        x, grid = normal(1, 2, 3, 2, 3), uniform(-1.6, 1.6, 1, 2, 2, 1, 3)
    else:
        x, grid = normal(2, 2, 4, 3), uniform(-1.6, 1.6, 2, 2, 3, 2)
    rows.add(key, _sample(mode, padding, corners), x, grid)


_add("grid_sample_2d", "bilinear", "zeros", False)
_add("grid_sample_2d/border", "bilinear", "border", False)
_add("grid_sample_2d/reflection", "bilinear", "reflection", False)
_add("grid_sample_2d/corners", "bilinear", "reflection", True)
_add("grid_sample_2d/nearest", "nearest", "zeros", False)
_add("grid_sample_2d/nearest reflection", "nearest", "reflection", True)
_add("grid_sample_2d/bicubic", "bicubic", "zeros", False)
_add("grid_sample_2d/bicubic border", "bicubic", "border", True)
_add("grid_sample_2d/bicubic reflection", "bicubic", "reflection", False)
_add("grid_sample_3d", "bilinear", "zeros", True, volume=True)
_add("grid_sample_3d/border", "bilinear", "border", False, volume=True)
_add("grid_sample_3d/nearest", "nearest", "reflection", False, volume=True)
rows.add(
    "grid_sample_2d",
    _sample("bilinear", "zeros", False),
    normal(1, 1, 3, 3),
    literal([[[[-1.0, -1.0], [1.0, 1.0]], [[0.0, 0.0], [9.0, -9.0]]]]),
    name="grid_sample_2d_ends",
)
