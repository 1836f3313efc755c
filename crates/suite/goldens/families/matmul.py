"""Matrix products with every pattern of ranks and batch broadcasting."""

import torch
import torch.nn.functional as F

from .case import Case, normal


def linear(inputs, attributes):
    return {"y": F.linear(inputs["x"], inputs["weight"], inputs.get("bias"))}


def bilinear(inputs, attributes):
    return {"y": F.bilinear(inputs["a"], inputs["b"], inputs["weight"], inputs.get("bias"))}


OPERATIONS = {
    "matmul": lambda inputs, attributes: {"y": torch.matmul(inputs["a"], inputs["b"])},
    "linear": linear,
    "bilinear": bilinear,
    "einsum": lambda inputs, attributes: {
        "y": torch.einsum(attributes["equation"], *inputs.values())
    },
}


def _matmul(name, a, b, **options):
    return Case(f"matmul_{name}", "matmul", {"a": normal(*a), "b": normal(*b)}, **options)


def _einsum(name, equation, *shapes):
    inputs = {letter: normal(*shape) for letter, shape in zip("abc", shapes)}
    return Case(f"einsum_{name}", "einsum", inputs, {"equation": equation})


CASES = [
    _matmul("vector_vector", (7,), (7,)),
    _matmul("matrix_vector", (4, 7), (7,)),
    _matmul("vector_matrix", (7,), (7, 4)),
    _matmul("plain", (3, 5), (5, 4)),
    _matmul("one", (1, 1), (1, 1)),
    _matmul("outer", (6, 1), (1, 5)),
    _matmul("inner", (1, 20), (20, 1)),
    _matmul("long_inner", (2, 67), (67, 3)),
    _matmul("batch", (3, 2, 4), (3, 4, 5)),
    _matmul("batch_left_matrix", (2, 4), (3, 4, 5)),
    _matmul("batch_right_matrix", (3, 2, 4), (4, 5)),
    _matmul("batch_vector", (3, 2, 4), (4,)),
    _matmul("vector_batch", (4,), (3, 4, 2)),
    _matmul("broadcast_one", (1, 2, 4), (3, 4, 5)),
    _matmul("broadcast_both", (2, 1, 3, 4), (3, 4, 2)),
    _matmul("broadcast_cross", (2, 1, 2, 3), (1, 4, 3, 2)),
    _matmul("rank4", (2, 2, 3, 4), (2, 2, 4, 3)),
    _matmul("empty_inner", (2, 0), (0, 3)),
    _matmul("empty_rows", (0, 3), (3, 2)),
    _matmul("empty_batch", (0, 2, 3), (3, 2)),
    _matmul("f64", (2, 3, 5), (5, 4), dtype="f64"),
    Case("linear", "linear", {"x": normal(4, 5), "weight": normal(3, 5), "bias": normal(3)}),
    Case("linear_no_bias", "linear", {"x": normal(4, 5), "weight": normal(3, 5)}),
    Case("linear_vector", "linear", {"x": normal(5), "weight": normal(3, 5), "bias": normal(3)}),
    Case("linear_rank4", "linear",
         {"x": normal(2, 2, 3, 5), "weight": normal(4, 5), "bias": normal(4)}),
    Case("bilinear", "bilinear",
         {"a": normal(4, 3), "b": normal(4, 2), "weight": normal(5, 3, 2), "bias": normal(5)}),
    _einsum("product", "ij,jk->ik", (3, 4), (4, 2)),
    _einsum("transposed", "ij,kj->ki", (3, 4), (2, 4)),
    _einsum("batch", "bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
    _einsum("heads", "bqhd,bkhd->bhqk", (1, 3, 2, 4), (1, 4, 2, 4)),
    _einsum("trace", "ii->", (4, 4)),
    _einsum("diagonal", "ii->i", (4, 4)),
    _einsum("sum", "ijk->j", (2, 3, 4)),
    _einsum("outer", "i,j->ij", (3,), (4,)),
    _einsum("three", "ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    _einsum("ellipsis", "...ij,...jk->...ik", (2, 3, 4), (4, 2)),
]
