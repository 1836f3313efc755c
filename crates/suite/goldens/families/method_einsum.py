"""Contractions by name; the family `matmul` has more equations."""

import torch

from .case import normal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES


def _add(key, equation, *shapes, name=None):
    rows.add(
        key, lambda *a: torch.einsum(equation, *a), *[normal(*shape) for shape in shapes], name=name
    )


_add("einsum", "bij,bjk->bik", (2, 3, 4), (2, 4, 2))
_add("einsum", "bij,bjk->bik", (1, 3, 4), (2, 4, 2), name="einsum_length_one")
_add("einsum/chain", "ij,jk,kl,l->i", (2, 3), (3, 2), (2, 3), (3,))
_add("einsum/diagonal", "...ii->i...", (3, 3))
_add("einsum/diagonal", "...ii->i...", (2, 3, 3), name="einsum_diagonal_batch")
_add("einsum/sums", "ab,ac,d->cb", (3, 2), (3, 4), (5,))
_add("einsum/product", "i,j,ij->ij", (2,), (3,), (2, 3))
_add("einsum/implicit", "bA,Ac,...", (2, 3), (3, 2), (2,))
_add("einsum/ellipsis sum", "...i,...i->i", (2, 3, 4), (3, 4))
_add("einsum/repeated", "iij,jk->ik", (3, 3, 2), (2, 4))
