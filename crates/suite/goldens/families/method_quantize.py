"""Quantisation, with the arguments of the method tables."""

import torch

from .case import Tolerance, normal, uniform
from .rows import Rows

# Devices with cores for 8-bit floats keep about 13 bits of a product beside the greatest that they add at the same time: of
# 16 products of up to 7, a few ten-thousandths.
CORES = Tolerance(1e-3, 1e-5)

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


def _float8(x):
    """The tensor in E4M3, and its scale."""
    scale = x.float().abs().amax() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def _bits(x, dtype):
    return x.float().to(dtype).view(torch.uint8).long()


def _quantized(x):
    q, scale = _float8(x)
    return q.view(torch.uint8).long(), scale.to(x.dtype)


def _product(a, b):
    (left, scale_a), (right, scale_b) = _float8(a), _float8(b)
    product = left.double() @ right.double() * scale_a.double() * scale_b.double()
    return product.to(a.dtype)


rows.add(
    "encode_float8",
    lambda x: _bits(x, torch.float8_e4m3fn),
    uniform(-500.0, 500.0, 3, 40),
    gradient=False,
)
rows.add(
    "encode_float8/e5m2",
    lambda x: _bits(x, torch.float8_e5m2),
    uniform(-70_000.0, 70_000.0, 3, 40),
    gradient=False,
)
rows.add(
    "decode_float8",
    lambda x: x.float().to(torch.float8_e4m3fn).to(x.dtype),
    normal(3, 40),
    gradient=False,
)
rows.add("quantize_float8", _quantized, normal(3, 40), gradient=False)
rows.add("matmul_float8", _product, normal(6, 16), normal(16, 5), tolerance=CORES, gradient=False)
rows.add(
    "linear_float8",
    lambda x, weight, bias: _product(x, weight.T) + bias,
    normal(6, 16),
    normal(5, 16),
    normal(5),
    tolerance=CORES,
    gradient=False,
)
