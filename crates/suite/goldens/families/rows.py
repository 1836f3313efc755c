"""Families of methods: each op is the key of a row of the tables in `src/methods/`.

The row calls Kiln's method with the inputs in order; the function here calls PyTorch's twin with the
same inputs and the same fixed arguments.
"""

import torch

from .case import Case, Make


class Rows:
    """The operations and cases of a family."""

    def __init__(self):
        self.OPERATIONS = {}
        self.CASES = []

    def add(self, key: str, twin, *inputs: Make, name: str | None = None, **options) -> None:
        """A case of the row `key`; `twin` takes the inputs and gives a tensor or several.

        Cases of one row after the first need a `name`. Of several results the float ones come first
        where a gradient is wanted, since gradients are those of the first result. Results that Kiln
        does not give are left out.
        """
        if key not in self.OPERATIONS:
            self.OPERATIONS[key] = _operation(twin)
        names = "abcdefgh"[: len(inputs)]
        name = name or key.replace("/", "_").replace(" ", "_")
        self.CASES.append(Case(name, key, dict(zip(names, inputs, strict=True)), **options))


def _operation(twin):
    def run(inputs, attributes):
        results = twin(*inputs.values())
        results = (results,) if isinstance(results, torch.Tensor) else tuple(results)
        return {f"y{place}": result for place, result in enumerate(results)}

    return run
