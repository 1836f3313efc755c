"""The same elements in another shape or order, or more than once."""

import torch
from torch.nn import functional

from .case import integers, normal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES
add = rows.add


def padded(mode: str, low: int, high: int):
    """Of the last axis; PyTorch wants a batch and channels before it in these modes."""
    return lambda a: functional.pad(a[None], (low, high), mode=mode)[0]


add("reshape", lambda a: a.reshape(3, 2), normal(2, 3))
add("reshape_lengths", lambda a: a.reshape(2, -1, 1), normal(2, 3))
add("flatten", lambda a: torch.flatten(a, 0, -2), normal(2, 3, 4))
add("unflatten", lambda a: torch.unflatten(a, 1, (2, -1)), normal(3, 4))
add("squeeze", torch.squeeze, normal(1, 3, 1))
add("squeeze_dim", lambda a: torch.squeeze(a, -2), normal(2, 1, 3))
add("squeeze_dims", lambda a: torch.squeeze(a, (0, -1)), normal(1, 3, 1))
add("unsqueeze_dim", lambda a: torch.unsqueeze(a, -1), normal(2, 3))
add("expand", lambda a: a.expand(4, 2, 3), normal(2, 1))
add("expand_lengths", lambda a: a.expand(4, -1, 3), normal(2, 1))
add("broadcast_tensors", torch.broadcast_tensors, normal(2, 1), normal(3), constant=("b",))
add("atleast_1d", torch.atleast_1d, normal())
add("atleast_2d", torch.atleast_2d, normal(2))
add("atleast_3d", torch.atleast_3d, normal(2))
add("atleast_3d", torch.atleast_3d, normal(2, 3), name="atleast_3d_matrix")
add("permute", lambda a: a.permute(-1, 0, 1), normal(2, 3, 4))
add("swap_dims", lambda a: torch.swapaxes(a, 0, -1), normal(2, 3, 4))
add("transpose", lambda a: a.mT, normal(2, 3, 4))
add("movedim", lambda a: torch.movedim(a, (0, 1), (-1, 0)), normal(2, 3, 4))
add("flip", lambda a: torch.flip(a, (0, -1)), normal(2, 3, 4))
add("fliplr", torch.fliplr, normal(2, 3))
add("flipud", torch.flipud, normal(2, 3))
add("rot90/1", lambda a: torch.rot90(a, 1, (0, 1)), normal(2, 3))
add("rot90/2", lambda a: torch.rot90(a, 2, (0, 1)), normal(2, 3))
add("rot90/3", lambda a: torch.rot90(a, 3, (0, 1)), normal(2, 3))
add("rot90/-1", lambda a: torch.rot90(a, -1, (0, 1)), normal(2, 3))
add("roll", lambda a: torch.roll(a, (1, -2), (0, 1)), normal(2, 3))
add("roll_dim", lambda a: torch.roll(a, -4, 1), normal(2, 3))
add("slice", lambda a: a[-2:, 0:4].flip(1)[:, ::2], normal(3, 4))
add("slice_dim", lambda a: a[:, 1:-1], normal(2, 4))
add("slice_assign", lambda a, b: torch.slice_scatter(a, b, 1, 0, 4, 2), normal(2, 4), normal(2, 2))
add("narrow", lambda a: torch.narrow(a, 1, 1, 2), normal(2, 4))
add("select_dim", lambda a: torch.select(a, 0, -1), normal(2, 3))
add("unfold", lambda a: a.unfold(1, 3, 2), normal(2, 7))
add("split", lambda a: torch.split(a, 2, 1), normal(2, 5))
add("split_with_sizes", lambda a: torch.split(a, [1, 0, 2], -1), normal(2, 3))
add("chunk", lambda a: torch.chunk(a, 2, 1), normal(2, 5))
add("tensor_split", lambda a: torch.tensor_split(a, 3, 1), normal(2, 5))
add("tensor_split_at", lambda a: torch.tensor_split(a, (1, -1, 9), 1), normal(2, 5))
add("unbind", lambda a: torch.unbind(a, 1), normal(2, 3))
add("repeat", lambda a: a.repeat(2, 3), normal(2, 3))
add("tile", lambda a: torch.tile(a, (2, 1, 2)), normal(2, 2))
add("repeat_interleave", lambda a: torch.repeat_interleave(a, 2, 1), normal(2, 3))
add(
    "repeat_interleave_each",
    lambda a, b: torch.repeat_interleave(a, b, 0),
    normal(3, 2),
    integers(0, 3, 3),
)
add("pad", lambda a: functional.pad(a, (0, 1, 1, 2), value=0.5), normal(2, 3))
add("pad/reflect", padded("reflect", 2, 1), normal(2, 3))
add("pad/circular", padded("circular", 2, 1), normal(2, 3))
add("pad_signed", lambda a: functional.pad(a, (1, -2, -1, 2), value=0.5), normal(2, 3))
add("pad_signed/reflect", padded("reflect", -2, 2), normal(2, 3))
add("pad_signed/circular", padded("circular", -1, 2), normal(2, 4))
add("pad_signed/edge", padded("replicate", 2, -3), normal(2, 4))
add(
    "pad/edge",
    lambda a: functional.pad(a[None, None], (0, 3, 2, 1), mode="replicate")[0, 0],
    normal(2, 3),
)
add("tril", lambda a: torch.tril(a, -1), normal(3, 4))
add("triu", lambda a: torch.triu(a, 1), normal(3, 4))
add("diagonal", lambda a: torch.diagonal(a, 1, 0, 1), normal(3, 4))
add("diagonal/below", lambda a: torch.diagonal(a, -1, 2, 0), normal(3, 4, 2))
add("diag_embed", lambda a: torch.diag_embed(a, -1, 0, -1), normal(2, 3))
add("diag", lambda a: torch.diag(a, 1), normal(3))
add("diag", lambda a: torch.diag(a, 1), normal(3, 4), name="diag_of_matrix")
