"""The families of cases, each a module with `CASES` and `OPERATIONS`.

`OPERATIONS` maps the name of an op to a function from the inputs by name and the attributes to the
outputs by name; gradients are those of the first output.
"""

from . import (
    activation,
    attention,
    conv,
    fft,
    index,
    linalg,
    loss,
    math,
    matmul,
    method_core,
    method_elementwise,
    method_einsum,
    method_grid,
    method_linalg,
    method_signal,
    method_special,
    module,
    norm,
    optimizer,
    pool,
    reduce,
    resize,
)

FAMILIES = {
    "conv": conv,
    "pool": pool,
    "norm": norm,
    "attention": attention,
    "loss": loss,
    "activation": activation,
    "math": math,
    "matmul": matmul,
    "optimizer": optimizer,
    "resize": resize,
    "reduce": reduce,
    "index": index,
    "linalg": linalg,
    "fft": fft,
    "module": module,
    "method_core": method_core,
    "method_elementwise": method_elementwise,
    "method_einsum": method_einsum,
    "method_grid": method_grid,
    "method_linalg": method_linalg,
    "method_signal": method_signal,
    "method_special": method_special,
}
