"""Quantisation, with the arguments of the method tables."""

import torch

from .case import normal
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES


def _fake(x):
    """Per row, asymmetric, in `u8`."""
    low = x.detach().amin(1).clamp(max=0.0)
    high = x.detach().amax(1).clamp(min=0.0)
    scale = (high - low) / 255
    zero = torch.round(-low / scale).to(torch.int32)
    # The function takes 32 bits alone.
    y = torch.fake_quantize_per_channel_affine(x.float(), scale.float(), zero, 0, 0, 255)
    return y.to(x.dtype)


def _blocks(x):
    """Blocks of two of a row, symmetric, in `i8`."""
    blocks = x.reshape(len(x), -1, 2)
    scale = blocks.abs().amax(2) / 127
    q = torch.round(blocks / scale.unsqueeze(2)).long()
    return q.reshape(x.shape), scale


rows.add("fake_quantize", _fake, normal(3, 4))
rows.add("quantize_dynamic", _blocks, normal(3, 4), gradient=False)
rows.add(
    "quant_range",
    lambda x: (x.reshape(3, 2, 2).amin(2), x.reshape(3, 2, 2).amax(2)),
    normal(3, 4),
)
