"""Fractional max pooling with the indices of the maxima.

`samples` are in the order of the axes; PyTorch takes those of two axes the last axis first.
"""

from torch import nn

from .case import Case, distinct, integers, uniform


def fractional_max_pool(inputs, attributes):
    layer = {4: nn.FractionalMaxPool2d, 5: nn.FractionalMaxPool3d}[inputs["x"].dim()]
    samples = inputs["samples"]
    samples = samples.flip(-1) if inputs["x"].dim() == 4 else samples
    y, indices = layer(**attributes, return_indices=True, _random_samples=samples)(inputs["x"])
    return {"y": y, "indices": indices}


OPERATIONS = {"fractional_max_pool": fractional_max_pool}


def _few_values(*shape):
    """Many equal maxima."""
    return lambda source: integers(0, 2, *shape)(source).double()


def _case(name, make, x, kernel, size, gradient=True):
    inputs = {"x": make(*x), "samples": uniform(0.05, 0.95, x[0], x[1], len(x) - 2)}
    attributes = {"kernel_size": kernel, "output_size": size}
    return Case(name, "fractional_max_pool", inputs, attributes, gradient=gradient, constant=("samples",))


CASES = [
    _case("image", distinct, (2, 2, 7, 6), [2, 3], [4, 3]),
    _case("image_ties", _few_values, (1, 2, 7, 6), [3, 2], [3, 4]),
    _case("volume", distinct, (1, 2, 4, 5, 5), [2, 3, 2], [2, 2, 3]),
    _case("volume_ties", _few_values, (1, 1, 5, 5, 4), [3, 2, 2], [2, 3, 2]),
]
