"""Normalisations, batch normalisation in both modes with its running statistics."""

import torch.nn.functional as F

from .case import Case, Tolerance, normal, uniform


def layer_norm(inputs, attributes):
    return {
        "y": F.layer_norm(
            inputs["x"],
            attributes["normalized_shape"],
            inputs.get("weight"),
            inputs.get("bias"),
            attributes["epsilon"],
        )
    }


def rms_norm(inputs, attributes):
    return {
        "y": F.rms_norm(
            inputs["x"], attributes["normalized_shape"], inputs.get("weight"), attributes["epsilon"]
        )
    }


def batch_norm(inputs, attributes):
    mean, variance = inputs["running_mean"].clone(), inputs["running_var"].clone()
    y = F.batch_norm(
        inputs["x"],
        mean,
        variance,
        inputs.get("weight"),
        inputs.get("bias"),
        training=attributes["training"],
        momentum=attributes["momentum"],
        eps=attributes["epsilon"],
    )
    return {"y": y, "new_running_mean": mean, "new_running_var": variance}


def group_norm(inputs, attributes):
    return {
        "y": F.group_norm(
            inputs["x"],
            attributes["groups"],
            inputs.get("weight"),
            inputs.get("bias"),
            attributes["epsilon"],
        )
    }


def instance_norm(inputs, attributes):
    return {
        "y": F.instance_norm(
            inputs["x"],
            weight=inputs.get("weight"),
            bias=inputs.get("bias"),
            eps=attributes["epsilon"],
        )
    }


def local_response_norm(inputs, attributes):
    return {
        "y": F.local_response_norm(
            inputs["x"],
            attributes["size"],
            attributes["alpha"],
            attributes["beta"],
            attributes["k"],
        )
    }


def normalize(inputs, attributes):
    return {
        "y": F.normalize(
            inputs["x"], attributes["p"], attributes["axis"], attributes["epsilon"]
        )
    }


OPERATIONS = {
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "local_response_norm": local_response_norm,
    "normalize": normalize,
}

NORM = Tolerance(2e-5, 2e-5)


def _inputs(x, weight=None, bias=None, scale=1.5):
    inputs = {"x": normal(*x, scale=scale)}
    if weight:
        inputs["weight"] = normal(*weight)
    if bias:
        inputs["bias"] = normal(*bias)
    return inputs


def _layer(name, x, axes, weight=True, bias=True, epsilon=1e-5, **options):
    shape = x[-axes:]
    inputs = _inputs(x, shape if weight else None, shape if bias else None)
    attributes = {"normalized_shape": list(shape), "epsilon": epsilon}
    options.setdefault("tolerance", None if options.get("dtype") == "f64" else NORM)
    return Case(f"layer_norm_{name}", "layer_norm", inputs, attributes, **options)


def _rms(name, x, axes=1, weight=True, epsilon=1e-6, **options):
    shape = x[-axes:]
    attributes = {"normalized_shape": list(shape), "epsilon": epsilon}
    inputs = _inputs(x, shape if weight else None)
    return Case(f"rms_norm_{name}", "rms_norm", inputs, attributes, **options)


def _batch(name, x, training, affine=True, momentum=0.1, epsilon=1e-5, **options):
    channels = (x[1],)
    inputs = _inputs(x, channels if affine else None, channels if affine else None)
    inputs["running_mean"] = normal(*channels, scale=0.5)
    inputs["running_var"] = uniform(0.5, 2.0, *channels)
    attributes = {"training": training, "momentum": momentum, "epsilon": epsilon}
    options.setdefault("tolerance", None if options.get("dtype") == "f64" else NORM)
    return Case(
        f"batch_norm_{name}", "batch_norm", inputs, attributes,
        constant=("running_mean", "running_var"), **options,
    )


def _group(name, x, groups, affine=True, epsilon=1e-5):
    channels = (x[1],) if affine else None
    attributes = {"groups": groups, "epsilon": epsilon}
    return Case(
        f"group_norm_{name}", "group_norm", _inputs(x, channels, channels), attributes,
        tolerance=NORM,
    )


def _instance(name, x, affine=True, epsilon=1e-5):
    channels = (x[1],) if affine else None
    attributes = {"epsilon": epsilon}
    inputs = _inputs(x, channels, channels)
    return Case(f"instance_norm_{name}", "instance_norm", inputs, attributes, tolerance=NORM)


CASES = [
    _layer("last", (4, 3, 7), 1),
    _layer("last_no_affine", (4, 3, 7), 1, weight=False, bias=False),
    _layer("last_no_bias", (4, 9), 1, bias=False),
    _layer("two_axes", (3, 4, 5), 2),
    _layer("two_axes_no_affine", (3, 4, 5), 2, weight=False, bias=False),
    _layer("large_epsilon", (4, 6), 1, epsilon=0.5),
    _layer("whole", (3, 5), 2),
    _layer("long_row", (1, 91), 1),
    _layer("f64", (3, 5), 1, dtype="f64"),
    _rms("last", (4, 3, 7)),
    _rms("no_weight", (4, 3, 7), weight=False),
    _rms("two_axes", (3, 4, 5), axes=2),
    _rms("large_epsilon", (4, 6), epsilon=0.5),
    _rms("f64", (3, 5), dtype="f64"),
    _batch("train_rank2", (6, 4), True),
    _batch("train_rank3", (3, 4, 5), True),
    _batch("train_rank4", (2, 3, 4, 4), True),
    _batch("train_rank5", (2, 2, 2, 3, 3), True),
    _batch("train_no_affine", (2, 3, 4, 4), True, affine=False),
    _batch("train_momentum", (2, 3, 4, 4), True, momentum=0.7, epsilon=1e-2),
    _batch("train_f64", (3, 2, 3), True, dtype="f64"),
    _batch("eval_rank2", (6, 4), False),
    _batch("eval_rank4", (2, 3, 4, 4), False),
    _batch("eval_no_affine", (2, 3, 4, 4), False, affine=False),
    _group("two_groups", (2, 4, 3, 3), 2),
    _group("one_group", (2, 4, 3, 3), 1),
    _group("each_channel", (2, 4, 3, 3), 4),
    _group("no_affine", (2, 6, 5), 3, affine=False),
    _instance("affine", (2, 3, 4, 4)),
    _instance("no_affine", (2, 3, 9), affine=False),
    Case("local_response_norm", "local_response_norm", {"x": normal(2, 6, 3, 3)},
         {"size": 5, "alpha": 0.5, "beta": 0.75, "k": 1.0}),
    Case("local_response_norm_even", "local_response_norm", {"x": normal(2, 6, 3, 3)},
         {"size": 4, "alpha": 0.5, "beta": 0.75, "k": 2.0}),
    Case("normalize_l2", "normalize", {"x": normal(4, 5)}, {"p": 2.0, "axis": 1, "epsilon": 1e-12}),
    Case("normalize_l1", "normalize", {"x": normal(4, 5)}, {"p": 1.0, "axis": 0, "epsilon": 1e-12}),
]
