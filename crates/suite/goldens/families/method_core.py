"""The functions that every other method is made of."""

import torch

from .case import booleans, distinct, integers, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

rows.add("unary", torch.tanh, normal(2, 3))
rows.add("binary", torch.atan2, uniform(0.5, 2.0, 2, 1), uniform(0.5, 2.0, 3))
rows.add("scalar_binary", lambda a: 2.0 / a, uniform(0.5, 2.0, 2, 3))
rows.add("if_else", torch.where, booleans(3), normal(2, 1), normal(1))
rows.add("reduce", lambda a: torch.amax(a, 1, keepdim=True), distinct(2, 3))
rows.add("scan", lambda a: torch.cumprod(a, 1), uniform(0.5, 2.0, 2, 3))
rows.add(
    "scatter_mode",
    lambda a, b, c: torch.scatter_add(a, 1, b, c),
    normal(2, 3),
    integers(0, 3, 2, 4),
    normal(2, 4),
)
