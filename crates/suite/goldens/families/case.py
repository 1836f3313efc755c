"""The class of a case, and generators of its inputs.

Floats are drawn as f64 that f32 represents exactly, so f32 and f64 runs start from equal numbers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import torch

Make = Callable[[Random], torch.Tensor]


class Tolerance(NamedTuple):
    """A result passes where |result - expected| <= absolute + relative * |expected|."""

    absolute: float
    relative: float


F32 = Tolerance(1e-5, 1e-5)
F64 = Tolerance(1e-11, 1e-11)


@dataclass(frozen=True)
class Case:
    """One op on drawn inputs. `constant` names float inputs that get no gradient."""

    name: str
    op: str
    inputs: dict[str, Make]
    attributes: dict = field(default_factory=dict)
    gradient: bool = True
    constant: tuple[str, ...] = ()
    dtype: str = "f32"
    tolerance: Tolerance | None = None

    def __post_init__(self):
        if self.tolerance is None:
            object.__setattr__(self, "tolerance", F32 if self.dtype == "f32" else F64)

    def differentiated(self) -> list[str]:
        """The inputs whose gradients the case stores."""
        if not self.gradient:
            return []
        probe = Random(0)
        return [
            name
            for name, make in self.inputs.items()
            if name not in self.constant and make(probe).is_floating_point()
        ]

    def draw_output_gradient(self, source: Random, shape) -> torch.Tensor:
        return normal(*shape)(source)


def normal(*shape: int, scale: float = 1.0) -> Make:
    """Normal numbers with standard deviation `scale`."""
    return _floats(shape, lambda source: source.gauss(0.0, scale))


def uniform(low: float, high: float, *shape: int) -> Make:
    """Uniform numbers in [low, high]."""
    return _floats(shape, lambda source: source.uniform(low, high))


def distinct(*shape: int) -> Make:
    """A shuffle of equally spaced numbers around zero: no ties, whatever the op compares."""
    count = math.prod(shape)

    def make(source: Random) -> torch.Tensor:
        order = source.sample(range(count), count)
        values = [0.1875 * (position - count // 2) + 0.0625 for position in order]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    return make


def integers(low: int, high: int, *shape: int) -> Make:
    """Uniform integers in low .. high, `high` excluded."""

    def make(source: Random) -> torch.Tensor:
        values = [source.randrange(low, high) for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.int64).reshape(shape)

    return make


def booleans(*shape: int, probability: float = 0.5) -> Make:
    """True with the given probability."""

    def make(source: Random) -> torch.Tensor:
        values = [source.random() < probability for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.bool).reshape(shape)

    return make


def literal(values) -> Make:
    """The given nested list: floats (rounded to f32), integers or booleans."""
    tensor = torch.tensor(values)
    if tensor.is_floating_point():
        tensor = torch.tensor(values, dtype=torch.float32).double()
    return lambda source: tensor


def probabilities(*shape: int) -> Make:
    """Positive numbers that sum to about one over axis 1."""

    def make(source: Random) -> torch.Tensor:
        raw = uniform(0.1, 1.0, *shape)(source)
        return (raw / raw.sum(1, keepdim=True)).float().double()

    return make


def _floats(shape: tuple[int, ...], draw: Callable[[Random], float]) -> Make:
    def make(source: Random) -> torch.Tensor:
        values = [round(draw(source) * 65536) / 65536 for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    return make
