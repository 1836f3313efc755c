"""Activations that the family `activation` does not have, with the arguments of the method tables."""

import torch
import torch.nn.functional as F

from .case import Tolerance, literal, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

PIECES = literal([-7.3, -4.1, -2.2, -0.7, -0.3, 0.3, 0.7, 2.2, 4.1, 7.3])


def _halves(function, axis):
    def run(x):
        a, b = x.chunk(2, axis)
        return a * function(b)

    return run


def _shrink(x):
    zero = torch.zeros_like(x)
    return torch.where(x > 0.5, x - 0.25, torch.where(x < -0.5, x + 0.25, zero))


def _gelu(x):
    """Of PyTorch's `erfc`: its `gelu`, with `1 + erf`, cancels in the tail."""
    return 0.5 * x * torch.erfc(-x * 0.5**0.5)


def _quiet_softmax(x):
    padded = torch.cat([x, torch.zeros_like(x[..., :1])], -1)
    return torch.softmax(padded, -1)[..., :-1]


rows.add("gelu", _gelu, literal([-9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -1.0, 3.0]),
         tolerance=Tolerance(1e-30, 2e-5))
rows.add("hardtanh", F.hardtanh, PIECES)
rows.add("leaky_relu", lambda x: F.leaky_relu(x, 0.1), PIECES)
rows.add("hard_sigmoid", lambda x: torch.clamp(0.2 * x + 0.5, 0.0, 1.0), PIECES)
rows.add("softplus", lambda x: F.softplus(x, 1.5, 100.0), normal(3, 4, scale=4.0))
rows.add("softplus_with_threshold", lambda x: F.softplus(x, 2.0, 3.0), PIECES)
rows.add("elu", lambda x: F.elu(x, 1.5), PIECES)
rows.add("celu", lambda x: F.celu(x, 1.5), PIECES)
rows.add("thresholded_relu", lambda x: F.threshold(x, 1.0, 0.0), PIECES)
rows.add("shrink", _shrink, PIECES)
rows.add("quiet_softmax", _quiet_softmax, normal(3, 4))
rows.add("glu", lambda x: F.glu(x, -1), normal(3, 6))
rows.add("reglu", _halves(torch.relu, 0), uniform(0.1, 2.0, 4, 3))
rows.add("geglu", _halves(F.gelu, 1), normal(3, 4))
rows.add("swiglu", _halves(F.silu, 1), normal(3, 4))
rows.add("rrelu", lambda x: F.rrelu(x, 0.1, 0.3, training=False), PIECES)
