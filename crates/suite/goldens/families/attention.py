"""Scaled dot-product attention."""

import torch.nn.functional as F

from .case import Case, literal, normal


def attention(inputs, attributes):
    return {
        "y": F.scaled_dot_product_attention(
            inputs["query"],
            inputs["key"],
            inputs["value"],
            attn_mask=inputs.get("mask"),
            is_causal=attributes["causal"],
            scale=attributes["scale"],
            enable_gqa=attributes["grouped_query"],
        )
    }


OPERATIONS = {"attention": attention}

INFINITY = float("inf")


def _case(name, query, key, value=None, mask=None, causal=False, scale=None, **options):
    inputs = {"query": normal(*query), "key": normal(*key), "value": normal(*(value or key))}
    if mask is not None:
        inputs["mask"] = mask
    attributes = {"causal": causal, "scale": scale, "grouped_query": query[1] != key[1]}
    return Case(name, "attention", inputs, attributes, **options)


CASES = [
    _case("plain", (2, 2, 4, 3), (2, 2, 4, 3)),
    _case("one_query", (2, 2, 1, 4), (2, 2, 5, 4)),
    _case("shorter_query", (1, 2, 3, 4), (1, 2, 6, 4)),
    _case("longer_query", (1, 2, 6, 4), (1, 2, 3, 4)),
    _case("value_width", (1, 2, 4, 3), (1, 2, 5, 3), (1, 2, 5, 6)),
    _case("scale", (2, 2, 4, 3), (2, 2, 4, 3), scale=0.25),
    _case("scale_one", (1, 2, 4, 3), (1, 2, 5, 3), scale=1.0),
    _case("causal", (2, 2, 4, 3), (2, 2, 4, 3), causal=True),
    _case("causal_scale", (1, 2, 5, 4), (1, 2, 5, 4), causal=True, scale=0.7),
    _case("causal_shorter_query", (1, 2, 3, 4), (1, 2, 5, 4), causal=True),
    _case("causal_longer_query", (1, 2, 5, 4), (1, 2, 3, 4), causal=True),
    _case("float_mask", (2, 2, 4, 3), (2, 2, 5, 3), mask=normal(4, 5), constant=("mask",)),
    _case("float_mask_per_head", (1, 2, 4, 3), (1, 2, 4, 3), mask=normal(1, 2, 4, 4),
          constant=("mask",)),
    _case("float_mask_gradient", (1, 2, 4, 3), (1, 2, 4, 3), mask=normal(1, 2, 4, 4)),
    _case("float_mask_infinite", (1, 2, 3, 3), (1, 2, 3, 3), constant=("mask",),
          mask=literal([[0.0, -INFINITY, 0.5], [0.0, 0.0, -INFINITY], [-INFINITY, 0.25, 0.0]])),
    _case("bool_mask", (2, 2, 4, 3), (2, 2, 4, 3), mask=literal(
        [[True, False, True, True], [False, True, False, False],
         [True, True, True, True], [False, False, True, True]])),
    _case("bool_mask_per_batch", (2, 2, 3, 3), (2, 2, 4, 3), mask=literal(
        [[[[True, True, False, False]]], [[[True, True, True, False]]]])),
    _case("bool_mask_empty_row", (1, 2, 3, 3), (1, 2, 4, 3), mask=literal(
        [[True, False, True, True], [False, False, False, False], [True, True, False, True]])),
    _case("grouped_query", (1, 4, 3, 4), (1, 2, 3, 4)),
    _case("grouped_query_causal", (1, 4, 4, 3), (1, 2, 4, 3), causal=True),
    _case("multi_query", (1, 3, 3, 4), (1, 1, 5, 4)),
    _case("grouped_query_mask", (1, 4, 3, 3), (1, 2, 4, 3), mask=literal(
        [[True, True, False, True], [True, False, True, True], [False, True, True, False]])),
    _case("f64", (1, 2, 3, 3), (1, 2, 4, 3), dtype="f64"),
    _case("f64_causal", (1, 2, 3, 3), (1, 2, 3, 3), causal=True, dtype="f64"),
]
