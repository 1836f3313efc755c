"""Losses. Gradients are those of the prediction, not of the target or of weights."""

import torch.nn.functional as F

from .case import Case, integers, literal, normal, probabilities, uniform

# The `ignore_index` of cases that ignore no class: no target has this class.
NO_CLASS = -(2**31)


def _ignored(attributes):
    return NO_CLASS if attributes["ignore_index"] is None else attributes["ignore_index"]


def cross_entropy(inputs, attributes):
    return {
        "y": F.cross_entropy(
            inputs["x"],
            inputs["target"],
            weight=inputs.get("weight"),
            ignore_index=_ignored(attributes),
            reduction=attributes["reduction"],
            label_smoothing=attributes["label_smoothing"],
        )
    }


def nll(inputs, attributes):
    return {
        "y": F.nll_loss(
            inputs["x"],
            inputs["target"],
            weight=inputs.get("weight"),
            ignore_index=_ignored(attributes),
            reduction=attributes["reduction"],
        )
    }


def bce_with_logits(inputs, attributes):
    return {
        "y": F.binary_cross_entropy_with_logits(
            inputs["x"],
            inputs["target"],
            weight=inputs.get("weight"),
            pos_weight=inputs.get("pos_weight"),
            reduction=attributes["reduction"],
        )
    }


def bce(inputs, attributes):
    return {
        "y": F.binary_cross_entropy(
            inputs["x"], inputs["target"], reduction=attributes["reduction"]
        )
    }


def ctc(inputs, attributes):
    return {
        "y": F.ctc_loss(
            F.log_softmax(inputs["x"], -1),
            inputs["target"],
            inputs["input_lengths"],
            inputs["target_lengths"],
            blank=attributes["blank"],
            reduction=attributes["reduction"],
            zero_infinity=attributes["zero_infinity"],
        )
    }


def _pairwise(function, *options):
    def run(inputs, attributes):
        chosen = {name: attributes[name] for name in ("reduction", *options)}
        return {"y": function(inputs["x"], inputs["target"], **chosen)}

    return run


def cosine_embedding(inputs, attributes):
    return {
        "y": F.cosine_embedding_loss(
            inputs["a"],
            inputs["b"],
            inputs["target"],
            margin=attributes["margin"],
            reduction=attributes["reduction"],
        )
    }


OPERATIONS = {
    "cross_entropy": cross_entropy,
    "nll": nll,
    "mse": _pairwise(F.mse_loss),
    "l1": _pairwise(F.l1_loss),
    "smooth_l1": _pairwise(F.smooth_l1_loss, "beta"),
    "huber": _pairwise(F.huber_loss, "delta"),
    "bce_with_logits": bce_with_logits,
    "bce": bce,
    "kl_div": _pairwise(F.kl_div, "log_target"),
    "poisson_nll": _pairwise(F.poisson_nll_loss, "log_input", "full", "eps"),
    "ctc": ctc,
    "cosine_embedding": cosine_embedding,
}


def _classes(op, name, x, target, weight=None, dtype="f32", **attributes):
    inputs = {"x": x, "target": target}
    if weight:
        inputs["weight"] = weight
    defaults = {"reduction": "mean", "ignore_index": None}
    if op == "cross_entropy":
        defaults["label_smoothing"] = 0.0
    return Case(
        f"{op}_{name}", op, inputs, defaults | attributes, constant=("target", "weight"),
        dtype=dtype,
    )


def _two(op, name, x, target, **attributes):
    attributes = {"reduction": "mean"} | attributes
    return Case(f"{op}_{name}", op, {"x": x, "target": target}, attributes, constant=("target",))


def _binary(name, x, target, weight=None, pos_weight=None, reduction="mean"):
    inputs = {"x": x, "target": target}
    if weight:
        inputs["weight"] = weight
    if pos_weight:
        inputs["pos_weight"] = pos_weight
    return Case(
        f"bce_with_logits_{name}", "bce_with_logits", inputs, {"reduction": reduction},
        constant=("target", "weight", "pos_weight"),
    )


LOGITS, CLASSES = normal(5, 4, scale=2.0), integers(0, 4, 5)
WEIGHTS = literal([0.5, 2.0, 1.0, 0.25])
SOME_IGNORED = literal([2, 0, -100, 3, -100])
LOG_PROBABILITIES = literal(
    [[-1.0, -2.0, -0.75, -3.0], [-0.25, -4.0, -2.5, -3.0], [-2.0, -1.5, -1.0, -1.25]]
)

CASES = [
    _classes("cross_entropy", "mean", LOGITS, CLASSES),
    _classes("cross_entropy", "sum", LOGITS, CLASSES, reduction="sum"),
    _classes("cross_entropy", "none", LOGITS, CLASSES, reduction="none"),
    _classes("cross_entropy", "smoothing", LOGITS, CLASSES, label_smoothing=0.1),
    _classes("cross_entropy", "smoothing_sum", LOGITS, CLASSES, label_smoothing=0.3,
             reduction="sum"),
    _classes("cross_entropy", "smoothing_none", LOGITS, CLASSES, label_smoothing=0.3,
             reduction="none"),
    _classes("cross_entropy", "weights", LOGITS, CLASSES, WEIGHTS),
    _classes("cross_entropy", "weights_sum", LOGITS, CLASSES, WEIGHTS, reduction="sum"),
    _classes("cross_entropy", "weights_none", LOGITS, CLASSES, WEIGHTS, reduction="none"),
    _classes("cross_entropy", "weights_smoothing", LOGITS, CLASSES, WEIGHTS, label_smoothing=0.2),
    _classes("cross_entropy", "ignore", LOGITS, SOME_IGNORED, ignore_index=-100),
    _classes("cross_entropy", "ignore_class", LOGITS, literal([1, 0, 1, 3, 2]), ignore_index=1),
    _classes("cross_entropy", "ignore_none", LOGITS, SOME_IGNORED, ignore_index=-100,
             reduction="none"),
    _classes("cross_entropy", "ignore_smoothing", LOGITS, SOME_IGNORED, ignore_index=-100,
             label_smoothing=0.1),
    _classes("cross_entropy", "ignore_weights_smoothing", LOGITS, SOME_IGNORED, WEIGHTS,
             ignore_index=-100, label_smoothing=0.1),
    _classes("cross_entropy", "spatial", normal(2, 4, 3, 2), integers(0, 4, 2, 3, 2)),
    _classes("cross_entropy", "spatial_none", normal(2, 4, 5), integers(0, 4, 2, 5),
             reduction="none"),
    _classes("cross_entropy", "probabilities", LOGITS, probabilities(5, 4)),
    _classes("cross_entropy", "probabilities_smoothing", LOGITS, probabilities(5, 4),
             label_smoothing=0.2),
    _classes("cross_entropy", "probabilities_weights_sum", LOGITS, probabilities(5, 4), WEIGHTS,
             reduction="sum"),
    _classes("cross_entropy", "large_logits", literal([[1000.0, 0.0, -1000.0], [80.0, 90.0, 70.0]]),
             literal([0, 2])),
    _classes("cross_entropy", "f64", LOGITS, CLASSES, dtype="f64"),
    _classes("nll", "mean", LOG_PROBABILITIES, literal([1, 3, 0])),
    _classes("nll", "sum", LOG_PROBABILITIES, literal([1, 3, 0]), reduction="sum"),
    _classes("nll", "none", LOG_PROBABILITIES, literal([1, 3, 0]), reduction="none"),
    _classes("nll", "weights", LOG_PROBABILITIES, literal([1, 3, 0]), WEIGHTS),
    _classes("nll", "ignore", LOG_PROBABILITIES, literal([1, -100, 0]), WEIGHTS, ignore_index=-100),
    _classes("nll", "spatial", normal(2, 4, 3), integers(0, 4, 2, 3)),
    _two("mse", "mean", normal(3, 4), normal(3, 4)),
    _two("mse", "sum", normal(3, 4), normal(3, 4), reduction="sum"),
    _two("mse", "none", normal(3, 4), normal(3, 4), reduction="none"),
    Case("mse_both_gradients", "mse", {"x": normal(3, 4), "target": normal(3, 4)},
         {"reduction": "mean"}),
    _two("l1", "mean", normal(3, 4), normal(3, 4)),
    _two("l1", "sum", normal(3, 4), normal(3, 4), reduction="sum"),
    _two("l1", "none", normal(3, 4), normal(3, 4), reduction="none"),
    _two("smooth_l1", "mean", normal(3, 4), normal(3, 4), beta=1.0),
    _two("smooth_l1", "small_beta", normal(3, 4), normal(3, 4), beta=0.25, reduction="sum"),
    _two("huber", "mean", normal(3, 4), normal(3, 4), delta=1.0),
    _two("huber", "small_delta", normal(3, 4), normal(3, 4), delta=0.25, reduction="none"),
    _binary("mean", normal(3, 4), uniform(0.0, 1.0, 3, 4)),
    _binary("sum", normal(3, 4), uniform(0.0, 1.0, 3, 4), reduction="sum"),
    _binary("none", normal(3, 4), uniform(0.0, 1.0, 3, 4), reduction="none"),
    _binary("weight", normal(3, 4), uniform(0.0, 1.0, 3, 4), weight=uniform(0.1, 2.0, 3, 4)),
    _binary("pos_weight", normal(3, 4), uniform(0.0, 1.0, 3, 4), pos_weight=uniform(0.5, 3.0, 4)),
    _binary("both_weights", normal(3, 4), uniform(0.0, 1.0, 3, 4), uniform(0.1, 2.0, 3, 4),
            uniform(0.5, 3.0, 4), "none"),
    _binary("large_logits", literal([100.0, -100.0, 50.0, -50.0]), literal([0.0, 1.0, 1.0, 0.0]),
            reduction="none"),
    _two("bce", "mean", uniform(0.05, 0.95, 3, 4), uniform(0.0, 1.0, 3, 4)),
    # Values only: PyTorch's gradient at 0 is an artefact of the constant that it adds there.
    Case("bce_certain", "bce", {"x": literal([0.0, 1.0, 0.5]), "target": literal([1.0, 1.0, 0.0])},
         {"reduction": "none"}, gradient=False),
    _two("kl_div", "batchmean", LOG_PROBABILITIES, probabilities(3, 4), reduction="batchmean",
         log_target=False),
    _two("kl_div", "sum", LOG_PROBABILITIES, probabilities(3, 4), reduction="sum",
         log_target=False),
    _two("kl_div", "log_target", LOG_PROBABILITIES, normal(3, 4), reduction="sum", log_target=True),
    _two("kl_div", "target_zero", LOG_PROBABILITIES,
         literal([[0.5, 0.0, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]),
         reduction="none", log_target=False),
    _two("poisson_nll", "log_input", normal(3, 4), uniform(0.0, 5.0, 3, 4),
         log_input=True, full=False, eps=1e-8),
    _two("poisson_nll", "plain_input", uniform(0.5, 3.0, 3, 4), uniform(0.0, 5.0, 3, 4),
         log_input=False, full=False, eps=1e-8),
    Case("ctc_mean", "ctc",
         {"x": normal(6, 2, 4), "target": literal([[1, 2, 2], [3, 1, 0]]),
          "input_lengths": literal([6, 5]), "target_lengths": literal([3, 2])},
         {"blank": 0, "reduction": "mean", "zero_infinity": False}),
    Case("ctc_none", "ctc",
         {"x": normal(6, 2, 4), "target": literal([[1, 2, 2], [0, 1, 0]]),
          "input_lengths": literal([6, 4]), "target_lengths": literal([3, 1])},
         {"blank": 3, "reduction": "none", "zero_infinity": False}),
    Case("ctc_zero_infinity", "ctc",
         {"x": normal(4, 2, 4), "target": literal([[1, 1, 1], [2, 3, 0]]),
          "input_lengths": literal([4, 4]), "target_lengths": literal([3, 2])},
         {"blank": 0, "reduction": "sum", "zero_infinity": True}),
    Case("cosine_embedding_mean", "cosine_embedding",
         {"a": normal(4, 3), "b": normal(4, 3), "target": literal([1, -1, -1, 1])},
         {"margin": 0.0, "reduction": "mean"}),
    Case("cosine_embedding_margin", "cosine_embedding",
         {"a": normal(4, 3), "b": normal(4, 3), "target": literal([1, -1, -1, 1])},
         {"margin": 0.3, "reduction": "none"}),
]
