"""Tensors from nothing and from others."""

import torch
from torch.nn import functional

from .case import integers, normal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add


def made(key: str, make) -> None:
    """From nothing: the operand only says where."""
    add(key, lambda a: make(), normal(1), gradient=False)


made("arange", lambda: torch.arange(-3, 8, 2))
made("arange/down", lambda: torch.arange(5.0, 0.0, -2.0, dtype=torch.float64))
made("arange_float", lambda: torch.arange(0.0, 1.0, 0.1, dtype=torch.float64))
made("linspace", lambda: torch.linspace(-1.0, 2.0, 7, dtype=torch.float64))
made("logspace", lambda: torch.logspace(-1.0, 2.0, 5, dtype=torch.float64))
made("tril_indices", lambda: torch.tril_indices(3, 4, -1))
made("triu_indices", lambda: torch.triu_indices(3, 4, 1))
made("eye", lambda: torch.eye(2, 3, dtype=torch.float64))
add("one_hot", lambda a: functional.one_hot(a, 4), integers(0, 4, 2, 3))
add("cat", lambda a, b: torch.cat((a, b), -1), normal(2, 3), normal(2, 1))
add("stack_tensors", lambda a, b: torch.stack((a, b), 1), normal(2, 3), normal(2, 3))
add("hstack", lambda a, b: torch.hstack((a, b)), normal(2, 3), normal(2, 1))
add("vstack", lambda a, b: torch.vstack((a, b)), normal(2), normal(2))
add("dstack", lambda a, b: torch.dstack((a, b)), normal(2, 3), normal(2, 3))
add("column_stack", lambda a, b: torch.column_stack((a, b)), normal(2, 3), normal(2))
add("block_diag", torch.block_diag, normal(2, 3), normal(2), normal(2, 1))
