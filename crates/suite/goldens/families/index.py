"""Sorting, and reading and writing by index."""

import torch
import torch.nn.functional as F

from .case import Case, booleans, distinct, integers, literal, normal


def sort(inputs, attributes):
    y, indices = torch.sort(
        inputs["x"], stable=True, dim=attributes["axis"], descending=attributes["descending"]
    )
    return {"y": y, "indices": indices}


def topk(inputs, attributes):
    y, indices = torch.topk(
        inputs["x"], attributes["k"], attributes["axis"], largest=attributes["largest"], sorted=True
    )
    return {"y": y, "indices": indices}


def argreduce(inputs, attributes):
    function = {"max": torch.argmax, "min": torch.argmin}[attributes["kind"]]
    return {"y": function(inputs["x"], attributes["axis"])}


def gather(inputs, attributes):
    return {"y": torch.gather(inputs["x"], attributes["axis"], inputs["indices"])}


def scatter(inputs, attributes):
    return {"y": inputs["x"].scatter(attributes["axis"], inputs["indices"], inputs["source"])}


def scatter_add(inputs, attributes):
    return {"y": inputs["x"].scatter_add(attributes["axis"], inputs["indices"], inputs["source"])}


def scatter_reduce(inputs, attributes):
    return {
        "y": inputs["x"].scatter_reduce(
            attributes["axis"],
            inputs["indices"],
            inputs["source"],
            attributes["reduce"],
            include_self=True,
        )
    }


def index_select(inputs, attributes):
    return {"y": torch.index_select(inputs["x"], attributes["axis"], inputs["indices"])}


def index_add(inputs, attributes):
    return {"y": inputs["x"].index_add(attributes["axis"], inputs["indices"], inputs["source"])}


def embedding(inputs, attributes):
    return {
        "y": F.embedding(
            inputs["indices"], inputs["weight"], padding_idx=attributes["padding_index"]
        )
    }


def pad(inputs, attributes):
    return {
        "y": F.pad(inputs["x"], attributes["padding"], attributes["mode"], attributes["value"])
    }


def unfold(inputs, attributes):
    return {"y": inputs["x"].unfold(attributes["axis"], attributes["size"], attributes["step"])}


def one_hot(inputs, attributes):
    return {"y": F.one_hot(inputs["indices"], attributes["classes"])}


def masked_fill(inputs, attributes):
    return {"y": inputs["x"].masked_fill(inputs["mask"], attributes["value"])}


OPERATIONS = {
    "sort": sort,
    "topk": topk,
    "argreduce": argreduce,
    "gather": gather,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "index_select": index_select,
    "index_add": index_add,
    "embedding": embedding,
    "masked_fill": masked_fill,
    "one_hot": one_hot,
    "nonzero": lambda inputs, attributes: {"y": torch.nonzero(inputs["x"])},
    "pad": pad,
    "unfold": unfold,
    "roll": lambda inputs, attributes: {
        "y": torch.roll(inputs["x"], attributes["shifts"], attributes["axes"])
    },
    "flip": lambda inputs, attributes: {"y": torch.flip(inputs["x"], attributes["axes"])},
    "tril": lambda inputs, attributes: {"y": torch.tril(inputs["x"], attributes["diagonal"])},
    "triu": lambda inputs, attributes: {"y": torch.triu(inputs["x"], attributes["diagonal"])},
    "repeat_interleave": lambda inputs, attributes: {
        "y": torch.repeat_interleave(inputs["x"], attributes["repeats"], attributes["axis"])
    },
    "pixel_shuffle": lambda inputs, attributes: {
        "y": F.pixel_shuffle(inputs["x"], attributes["factor"])
    },
    "pixel_unshuffle": lambda inputs, attributes: {
        "y": F.pixel_unshuffle(inputs["x"], attributes["factor"])
    },
}

TIED = literal([[2.0, 1.0, 2.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, -1.0, 5.0, 5.0]])
NOT_A_NUMBER = literal([2.0, float("nan"), -1.0, float("inf"), 0.5, float("-inf")])


def _sort(name, x, axis, descending=False, gradient=True):
    attributes = {"axis": axis, "descending": descending}
    return Case(f"sort_{name}", "sort", {"x": x}, attributes, gradient=gradient)


def _topk(name, x, k, axis, largest=True):
    return Case(f"topk_{name}", "topk", {"x": x}, {"k": k, "axis": axis, "largest": largest})


def _argreduce(name, kind, x, axis):
    return Case(
        f"argreduce_{name}", "argreduce", {"x": x}, {"kind": kind, "axis": axis}, gradient=False
    )


def _gather(name, x, indices, axis):
    return Case(f"gather_{name}", "gather", {"x": normal(*x), "indices": indices}, {"axis": axis})


def _write(op, name, x, indices, source, axis, **attributes):
    inputs = {"x": x, "indices": indices, "source": source}
    return Case(f"{op}_{name}", op, inputs, {"axis": axis} | attributes)


def _pad(name, x, padding, mode="constant", value=None):
    attributes = {"padding": padding, "mode": mode, "value": value}
    return Case(f"pad_{name}", "pad", {"x": normal(*x)}, attributes)


CASES = [
    _sort("last", distinct(3, 7), 1),
    _sort("first", distinct(6, 3), 0),
    _sort("middle", distinct(2, 5, 3), 1),
    _sort("descending", distinct(3, 7), 1, descending=True),
    _sort("stable", TIED, 1),
    _sort("stable_descending", TIED, 1, descending=True),
    _sort("not_a_number", NOT_A_NUMBER, 0, gradient=False),
    _sort("integers", integers(-9, 9, 3, 7), 1),
    _sort("long", distinct(1, 70), 1),
    _topk("largest", distinct(3, 7), 3, 1),
    _topk("smallest", distinct(3, 7), 3, 1, largest=False),
    _topk("first_axis", distinct(6, 3), 2, 0),
    _topk("all", distinct(2, 5), 5, 1),
    _topk("one", distinct(2, 3, 4), 1, 2),
    _argreduce("max_last", "max", distinct(3, 5), 1),
    _argreduce("max_first", "max", distinct(3, 5), 0),
    _argreduce("min_middle", "min", distinct(2, 5, 3), 1),
    _argreduce("max_ties", "max", TIED, 1),
    _argreduce("min_ties", "min", TIED, 1),
    _gather("last", (3, 5), integers(0, 5, 3, 4), 1),
    _gather("first", (4, 5), integers(0, 4, 6, 5), 0),
    _gather("middle", (2, 4, 3), integers(0, 4, 2, 2, 3), 1),
    _gather("smaller", (3, 5), integers(0, 5, 2, 3), 1),
    _write("scatter", "last", normal(3, 5), literal([[0, 3], [4, 1], [2, 0]]), normal(3, 2), 1),
    _write("scatter", "first", normal(4, 3), literal([[0, 1, 2], [3, 2, 0]]), normal(2, 3), 0),
    _write("scatter_add", "last", normal(3, 5), integers(0, 5, 3, 6), normal(3, 6), 1),
    _write("scatter_add", "first", normal(4, 3), integers(0, 4, 7, 3), normal(7, 3), 0),
    _write("scatter_add", "middle", normal(2, 3, 4), integers(0, 3, 2, 5, 4), normal(2, 5, 4), 1),
    _write("scatter_add", "smaller", normal(4, 5), integers(0, 5, 2, 3), normal(2, 3), 1),
    _write("scatter_add", "one_target", normal(2, 3), literal([[1] * 6, [0] * 6]), normal(2, 6), 1),
    *(
        _write("scatter_reduce", f"{kind}_{name}", normal(*x),
               integers(0, x[axis], *source), normal(*source), axis, reduce=kind)
        for kind in ["amin", "amax", "prod", "sum"]
        for name, x, source, axis in [("last", (3, 4), (3, 6), 1), ("first", (3, 4), (5, 4), 0)]
    ),
    _write("scatter_reduce", "prod_zero", literal([[1.5, 2.0, -1.0]]), literal([[0, 0, 1, 1, 2]]),
           literal([[0.0, 2.0, 3.0, -1.0, 0.5]]), 1, reduce="prod"),
    Case("index_select_first", "index_select",
         {"x": normal(4, 3), "indices": literal([2, 0, 2, 3])}, {"axis": 0}),
    Case("index_select_last", "index_select", {"x": normal(2, 3, 5), "indices": literal([4, 1, 1])},
         {"axis": 2}),
    Case("index_select_none", "index_select", {"x": normal(4, 3), "indices": integers(0, 4, 0)},
         {"axis": 0}),
    _write("index_add", "first", normal(4, 3), literal([2, 0, 2]), normal(3, 3), 0),
    _write("index_add", "last", normal(2, 5), literal([4, 4, 0]), normal(2, 3), 1),
    Case("embedding_plain", "embedding", {"weight": normal(6, 4), "indices": integers(0, 6, 2, 5)},
         {"padding_index": None}),
    Case("embedding_vector", "embedding", {"weight": normal(5, 3), "indices": integers(0, 5, 7)},
         {"padding_index": None}),
    Case("embedding_padding", "embedding",
         {"weight": normal(5, 3), "indices": literal([[1, 2, 0, 2], [2, 4, 1, 3]])},
         {"padding_index": 2}),
    Case("masked_fill", "masked_fill", {"x": normal(3, 4), "mask": booleans(3, 4)},
         {"value": -2.5}),
    Case("masked_fill_broadcast", "masked_fill", {"x": normal(2, 3, 4), "mask": booleans(3, 1)},
         {"value": 0.0}),
    Case("one_hot", "one_hot", {"indices": integers(0, 5, 2, 3)}, {"classes": 5}, gradient=False),
    Case("nonzero", "nonzero", {"x": booleans(3, 4)}, gradient=False),
    _pad("constant", (2, 3, 4), [1, 2, 0, 1], value=0.5),
    _pad("crop", (3, 5), [-1, 2, 1, -1], value=0.0),
    _pad("reflect", (1, 2, 5), [2, 3], "reflect"),
    _pad("reflect_image", (1, 2, 4, 3), [2, 1, 0, 3], "reflect"),
    _pad("replicate", (1, 2, 5), [2, 3], "replicate"),
    _pad("replicate_image", (1, 2, 3, 3), [1, 2, 2, 0], "replicate"),
    _pad("circular", (1, 2, 5), [2, 3], "circular"),
    Case("unfold_overlapping", "unfold", {"x": normal(2, 7)}, {"axis": 1, "size": 3, "step": 2}),
    Case("unfold_first", "unfold", {"x": normal(6, 2)}, {"axis": 0, "size": 2, "step": 1}),
    Case("roll", "roll", {"x": normal(3, 5)}, {"shifts": [2, -1], "axes": [1, 0]}),
    Case("flip", "flip", {"x": normal(2, 3, 4)}, {"axes": [0, 2]}),
    Case("tril", "tril", {"x": normal(2, 3, 4)}, {"diagonal": 0}),
    Case("tril_above", "tril", {"x": normal(4, 4)}, {"diagonal": 1}),
    Case("triu_below", "triu", {"x": normal(4, 5)}, {"diagonal": -1}),
    Case("repeat_interleave", "repeat_interleave", {"x": normal(3, 2)}, {"repeats": 3, "axis": 0}),
    Case("pixel_shuffle", "pixel_shuffle", {"x": normal(1, 8, 2, 3)}, {"factor": 2}),
    Case("pixel_unshuffle", "pixel_unshuffle", {"x": normal(1, 2, 4, 6)}, {"factor": 2}),
]
